package adapter

import (
	"iter"
	"slices"

	"github.com/weir-go/weir/store"
)

// BySlot returns the keys of each slot, with their indices in keys. If all keys have the same
// slot, it returns keys itself with nil indices.
func BySlot(keys []string) iter.Seq2[[]string, []int] {
	return func(yield func([]string, []int) bool) {
		slots := make([]int, len(keys))
		one := true
		for i, key := range keys {
			slots[i] = store.Slot(key)
			one = one && slots[i] == slots[0]
		}
		if one {
			yield(keys, nil)
			return
		}
		order := make([]int, len(keys))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int { return slots[a] - slots[b] })
		sorted := make([]string, len(keys))
		for from, to := 0, 0; from < len(order); from = to {
			for to < len(order) && slots[order[to]] == slots[order[from]] {
				sorted[to] = keys[order[to]]
				to++
			}
			if !yield(sorted[from:to], order[from:to]) {
				return
			}
		}
	}
}
