package rueidis

import (
	"context"
	"errors"
	"iter"
	"slices"

	redis "github.com/redis/rueidis"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/adapter"
)

// errNotMGet is the error of a reply that MGET does not give.
var errNotMGet = errors.New("the reply is not a list of one string or nil for each key")

// MGet implements [store.Store]. On one server, it sends one MGET. On a cluster, it sends one
// MGET for each slot, in one pipeline.
func (s *Store) MGet(ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
	if err := s.Check(); err != nil {
		return values, err
	}
	if err := ctx.Err(); err != nil {
		return values, s.errs.Call("mget", err)
	}
	if len(keys) == 0 {
		return values, nil
	}
	var cmds redis.Commands
	var places [][]int
	for part, at := range s.parts(keys) {
		cmds = append(cmds, s.client.B().Mget().Key(part...).Build())
		places = append(places, at)
	}
	out := slices.Grow(values, len(keys))[:len(values)+len(keys)]
	read := out[len(values):]
	results := s.client.DoMulti(ctx, cmds...)
	for i, at := range places {
		err := errUnsent
		if i < len(results) {
			err = scatter(results[i], read, at)
		}
		if err != nil {
			return values, s.errs.Read(ctx, "mget", err)
		}
	}
	return out, nil
}

// parts returns the keys of each MGET, with their indices in keys. If one MGET reads all
// keys, the indices are nil.
func (s *Store) parts(keys []string) iter.Seq2[[]string, []int] {
	if s.single {
		return func(yield func([]string, []int) bool) { yield(keys, nil) }
	}
	return adapter.BySlot(keys)
}

// scatter stores value i of an MGET's reply in read[at[i]]. If at is nil, it stores value i
// in read[i].
func scatter(result redis.RedisResult, read []store.Value, at []int) error {
	list, err := result.ToArray()
	if err != nil {
		return err
	}
	want := len(read)
	if at != nil {
		want = len(at)
	}
	if len(list) != want {
		return errNotMGet
	}
	for i := range list {
		v, ok := value(&list[i])
		if !ok || v.Kind() == store.Integer {
			return errNotMGet
		}
		to := i
		if at != nil {
			to = at[i]
		}
		read[to] = v
	}
	return nil
}
