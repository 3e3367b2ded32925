package redigo

import (
	"context"
	"slices"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/adapter"
)

// MGet implements [store.Store]. On a pool, it sends one MGET. On a cluster, it sends one
// MGET for each slot, in one pipeline for each node.
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
	out := slices.Grow(values, len(keys))[:len(values)+len(keys)]
	if err := s.mget(ctx, keys, out[len(values):]); err != nil {
		return values, s.errs.Read(ctx, "mget", err)
	}
	return out, nil
}

// mget sets read[i] to the value of keys[i].
func (s *Store) mget(ctx context.Context, keys []string, read []store.Value) error {
	var cmds []command
	var parts [][]int
	add := func(keys []string, at []int) {
		words := make([]any, len(keys))
		for i, key := range keys {
			words[i] = key
		}
		cmds, parts = append(cmds, command{key: keys[0], name: "MGET", args: words}), append(parts, at)
	}
	if s.cluster == nil {
		add(keys, nil)
	} else {
		for keys, at := range adapter.BySlot(keys) {
			add(keys, at)
		}
	}
	s.pipeline(ctx, cmds)
	for i := range cmds {
		if err := cmds[i].err; err != nil {
			return err
		}
		list, ok := cmds[i].reply.([]any)
		if !ok {
			return adapter.ErrNotMGet
		}
		if err := adapter.Scatter[[]byte](list, read, parts[i]); err != nil {
			return err
		}
	}
	return nil
}
