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
		list, _ := cmds[i].reply.([]any) // nil is too short
		if err := adapter.Scatter(list, read, parts[i], bulk); err != nil {
			return err
		}
	}
	return nil
}

// bulk returns an element of the reply to an MGET as a value. It returns false for a status, which
// the client represents as a string.
func bulk(element *any) (store.Value, bool) {
	if _, status := (*element).(string); status {
		return store.Value{}, false
	}
	return adapter.Value(element)
}
