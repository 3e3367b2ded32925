package goredis

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/adapter"
)

// MGet implements [store.Store]. If the client is a [redis.Client], it sends one MGET. For
// other clients, it sends one MGET for each slot, in one pipeline.
func (s *Store) MGet(ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
	if err := s.Check(); err != nil {
		return values, err
	}
	return s.base.MGet(ctx, keys, values, s.mget)
}

// mget sets read[i] to the value of keys[i].
func (s *Store) mget(ctx context.Context, keys []string, read []store.Value) error {
	if s.single {
		return scatter(s.client.MGet(ctx, keys...), read, nil)
	}
	type part struct {
		cmd *redis.SliceCmd
		at  []int
	}
	var parts []part
	pipe := s.client.Pipeline()
	for keys, at := range adapter.BySlot(keys, false) {
		parts = append(parts, part{pipe.MGet(ctx, keys...), at})
	}
	_, failure := pipe.Exec(ctx)
	for _, p := range parts {
		if failure != nil && p.cmd.Err() == nil && p.cmd.Val() == nil {
			return failure // nothing was sent
		}
		if err := scatter(p.cmd, read, p.at); err != nil {
			return err
		}
	}
	return nil
}

// scatter stores value i of an MGET's reply in read[at[i]]. If at is nil, it stores value i
// in read[i].
func scatter(cmd *redis.SliceCmd, read []store.Value, at []int) error {
	list, err := cmd.Result()
	if err != nil {
		return err
	}
	return adapter.Scatter(list, read, at, adapter.Value)
}
