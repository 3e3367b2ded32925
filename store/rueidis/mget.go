package rueidis

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/adapter"
)

// MGet implements [store.Store]. On one server, it sends one MGET. On a cluster, it sends
// one MGET for each slot, in one pipeline.
func (s *Store) MGet(ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
	if err := s.Check(); err != nil {
		return values, err
	}
	return s.base.MGet(ctx, keys, values, s.mget)
}

// mget sets read[i] to the value of keys[i].
func (s *Store) mget(ctx context.Context, keys []string, read []store.Value) error {
	var cmds []rueidis.Completed
	var parts [][]int
	for part, at := range adapter.BySlot(keys, s.single) {
		if at != nil && parts == nil {
			parts = make([][]int, 0, len(keys))
		}
		cmds, parts = append(cmds, s.client.B().Mget().Key(part...).Build()), append(parts, at)
	}
	results := s.client.DoMulti(ctx, cmds...)
	if len(results) < len(parts) {
		return errUnsent
	}
	for i, at := range parts {
		if err := scatter(results[i], read, at); err != nil {
			return err
		}
	}
	return nil
}

// scatter stores element i of result, the reply to an MGET, in read[at[i]]. If at is nil,
// it stores element i in read[i].
func scatter(result rueidis.RedisResult, read []store.Value, at []int) error {
	m, err := result.ToMessage()
	if err != nil && !rueidis.IsRedisNil(err) {
		return err
	}
	elements, _ := m.ToArray() // nil, which is too short, if m is no array
	return adapter.Scatter(elements, read, at, value)
}
