package rueidisapi

import (
	"context"
	"iter"
	"slices"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/adapter"
)

// MGet is the MGet of a [store.Store]. On one server, it sends one MGET. On a cluster, it
// sends one MGET for each slot, in one pipeline.
func (s *Store[C, R]) MGet(ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
	if err := ctx.Err(); err != nil {
		return values, s.Errs.Call("mget", err)
	}
	if len(keys) == 0 {
		return values, nil
	}
	var cmds []C
	var places [][]int
	for part, at := range s.parts(keys) {
		if at != nil && places == nil {
			places = make([][]int, 0, len(keys))
		}
		cmds, places = append(cmds, s.Dialect.MGet(part)), append(places, at)
	}
	out := slices.Grow(values, len(keys))[:len(values)+len(keys)]
	if err := s.scatter(s.Client.DoMulti(ctx, cmds...), places, out[len(values):]); err != nil {
		return values, s.Errs.Read(ctx, "mget", err)
	}
	return out, nil
}

// scatter stores value j of results[i] in read[places[i][j]]. If places[i] is nil, it stores
// value j in read[j].
func (s *Store[C, R]) scatter(results []R, places [][]int, read []store.Value) error {
	if len(results) < len(places) {
		return errUnsent
	}
	var part []store.Value
	for i, at := range places {
		var err error
		if at == nil {
			_, err = s.list(read[:0:len(read)], results[i], len(read))
			return err
		}
		if part, err = s.list(part[:0], results[i], len(at)); err != nil {
			return err
		}
		for j, to := range at {
			read[to] = part[j]
		}
	}
	return nil
}

// list appends the values of an MGET of n keys to values, which is empty.
func (s *Store[C, R]) list(values []store.Value, result R, n int) ([]store.Value, error) {
	values, list, err := s.Dialect.Append(values, result)
	if err != nil && !isNotValue(err) {
		return values, err
	}
	integer := func(v store.Value) bool { return v.Kind() == store.Integer }
	if err != nil || !list || len(values) != n || slices.ContainsFunc(values, integer) {
		return values, adapter.ErrNotMGet
	}
	return values, nil
}

// parts returns the keys of each MGET, with their indices in keys. If one MGET reads all
// keys, the indices are nil.
func (s *Store[C, R]) parts(keys []string) iter.Seq2[[]string, []int] {
	if s.Single {
		return func(yield func([]string, []int) bool) { yield(keys, nil) }
	}
	return adapter.BySlot(keys, false)
}
