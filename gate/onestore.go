package gate

import (
	"reflect"
	"sync/atomic"

	"github.com/weir-go/weir/store"
)

// A OneStore remembers the first store that it is shown.
type OneStore struct{ first atomic.Pointer[store.Store] }

// Is reports whether st is the first store that m was shown. Stores of one type that cannot be
// compared count as one store.
func (m *OneStore) Is(st store.Store) bool {
	m.first.CompareAndSwap(nil, &st)
	first := *m.first.Load()
	return reflect.TypeOf(first) == reflect.TypeOf(st) && (!reflect.ValueOf(st).Comparable() || first == st)
}
