// Package onestore detects that one wrapper is used with two stores.
package onestore

import (
	"reflect"
	"sync/atomic"

	"github.com/weir-go/weir/store"
)

// A Mark remembers the first store that it is shown.
type Mark struct{ first atomic.Pointer[store.Store] }

// Is reports whether st is the first store that m was shown. Stores of one type that cannot be
// compared count as one store.
func (m *Mark) Is(st store.Store) bool {
	m.first.CompareAndSwap(nil, &st)
	first := *m.first.Load()
	return reflect.TypeOf(first) == reflect.TypeOf(st) && (!reflect.ValueOf(st).Comparable() || first == st)
}
