package redigo

import (
	"context"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/adapter"
)

// MGet implements [store.Store]. On a pool, it sends one MGET. On a cluster, it sends one
// MGET for each slot, in one pipeline for each node.
func (s *Store) MGet(ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
	if err := s.Check(); err != nil {
		return values, err
	}
	return s.base.MGet(ctx, keys, values, s.mget)
}

// mget sets read[i] to the value of keys[i].
func (s *Store) mget(ctx context.Context, keys []string, read []store.Value) error {
	var cmds []command
	var parts [][]int
	for keys, at := range adapter.BySlot(keys, s.cluster == nil) {
		words := make([]any, len(keys))
		for i, key := range keys {
			words[i] = key
		}
		cmds, parts = append(cmds, command{key: keys[0], name: "MGET", args: words}), append(parts, at)
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
