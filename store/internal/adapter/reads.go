package adapter

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/weir-go/weir/store"
)

// MGet is the MGet of a store. The function get sets read[i] to the value of keys[i].
func (b *Base) MGet(ctx context.Context, keys []string, values []store.Value,
	get func(ctx context.Context, keys []string, read []store.Value) error,
) ([]store.Value, error) {
	if err := ctx.Err(); err != nil {
		return values, b.CallError("mget", err)
	}
	if len(keys) == 0 {
		return values, nil
	}
	out := slices.Grow(values, len(keys))[:len(values)+len(keys)]
	if err := get(ctx, keys, out[len(values):]); err != nil {
		return values, b.ReadError(ctx, "mget", err)
	}
	return out, nil
}

// Time is the Time of a store. The function get asks a server.
func (b *Base) Time(ctx context.Context, get func(context.Context) (time.Time, error)) (time.Time, error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, b.CallError("time", err)
	}
	now, err := get(ctx)
	if err != nil {
		return time.Time{}, b.ReadError(ctx, "time", err)
	}
	return now, nil
}

// BySlot returns the keys of each slot, with their indices in keys. If all keys have the same
// slot, or are on a single server, it returns keys itself with nil indices.
func BySlot(keys []string, single bool) iter.Seq2[[]string, []int] {
	return func(yield func([]string, []int) bool) {
		var slots []int
		one := true
		if !single {
			slots = make([]int, len(keys))
			for i, key := range keys {
				slots[i] = store.Slot(key)
				one = one && slots[i] == slots[0]
			}
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

// ErrNotMGet is the error of a reply that MGET does not give.
var ErrNotMGet = errors.New("the reply is not a list of one string or nil for each key")

// Scatter stores element i of list, the reply to an MGET, in read[at[i]]. If at is nil, it
// stores element i in read[i]. The client represents strings as S.
func Scatter[S string | []byte](list []any, read []store.Value, at []int) error {
	want := len(read)
	if at != nil {
		want = len(at)
	}
	if len(list) != want {
		return ErrNotMGet
	}
	for i, element := range list {
		to := i
		if at != nil {
			to = at[i]
		}
		switch v := element.(type) {
		case S:
			read[to] = store.BulkValue(string(v))
		case nil:
			read[to] = store.Value{}
		default:
			return ErrNotMGet
		}
	}
	return nil
}
