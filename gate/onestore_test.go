package gate_test

import (
	"testing"

	"github.com/weir-go/weir/gate"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A listed is a store that cannot be compared. An around can be compared if its store
// can.
type (
	listed struct {
		store.Store
		_ []int
	}
	around struct{ store.Store }
)

// A OneStore knows the first store that it was shown. A store that cannot be compared is
// known by its type.
func TestMark(t *testing.T) {
	t.Parallel()
	one, other := memory.New(nil), memory.New(nil)
	for i, tt := range []struct {
		first, then store.Store
		want        bool
	}{
		{one, one, true},
		{one, other, false},
		{around{one}, around{one}, true},
		{around{one}, around{other}, false},
		{around{one}, one, false},
		{listed{Store: one}, listed{Store: other}, true},
		{listed{Store: one}, one, false},
		{one, listed{Store: one}, false},
		{around{listed{Store: one}}, around{listed{Store: one}}, true},
		{around{one}, around{listed{Store: one}}, true},
		{around{listed{Store: one}}, around{one}, false},
	} {
		var m gate.OneStore
		for range 2 {
			if !m.Is(tt.first) {
				t.Errorf("%d: it does not know the first store", i)
			}
		}
		if got := m.Is(tt.then); got != tt.want {
			t.Errorf("%d: got %v, want %v", i, got, tt.want)
		}
	}
}
