package adapter

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/store"
)

func TestBySlot(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string][]string{
		"one":            {"a"},
		"one slot":       {"a{k}", "b{k}", "k"},
		"each its own":   {"a", "b", "c", "d"},
		"interleaved":    {"a{x}", "a{y}", "b{x}", "b{y}", "a{z}", "c{x}"},
		"the same twice": {"a", "b", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := make([]string, len(keys))
			seen := map[int]bool{}
			for part, at := range BySlot(keys, false) {
				slot := store.Slot(part[0])
				if seen[slot] {
					t.Errorf("slot %d comes twice", slot)
				}
				seen[slot] = true
				for i, key := range part {
					if store.Slot(key) != slot {
						t.Errorf("%q is not of the slot of %q", key, part[0])
					}
					to := i
					if at != nil {
						to = at[i]
					}
					got[to] = key
				}
			}
			if !slices.Equal(got, keys) {
				t.Errorf("put back in order: got %q, want %q", got, keys)
			}
			for part, at := range BySlot(keys, true) {
				if !slices.Equal(part, keys) || at != nil {
					t.Errorf("a single server: got %q, %v, want all keys", part, at)
				}
			}
		})
	}
}

// Open returns true once in each quarter of a second, however many callers there are.
func TestGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		var passed atomic.Int64
		for range 8 {
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() {
					if g.Open() {
						passed.Add(1)
					}
				})
			}
			wg.Wait()
			time.Sleep(125 * time.Millisecond)
		}
		if got := passed.Load(); got != 4 {
			t.Errorf("%d passed within a second, want 4", got)
		}
	})
}
