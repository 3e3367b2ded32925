package goredis

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store"
)

// errNotMGet is for a reply that no MGET gives.
var errNotMGet = errors.New("the reply is not a list of one string or nil for each key")

// MGet reads keys: see [store.Store]. It sends one MGET to a [redis.Client]; to
// any other client, one for each slot, in one pipeline.
func (s *Store) MGet(ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
	if err := s.Check(); err != nil {
		return values, err
	}
	if err := ctx.Err(); err != nil {
		return values, fmt.Errorf("goredis: mget: %w", err)
	}
	if len(keys) == 0 {
		return values, nil
	}
	var order, slots []int
	if !s.single {
		order, slots = bySlot(keys)
	}
	out := slices.Grow(values, len(keys))[:len(values)+len(keys)]
	read := out[len(values):]
	var err error
	if order == nil {
		err = scatter(s.client.MGet(ctx, keys...), read, nil)
	} else {
		err = s.mgetSlots(ctx, keys, order, slots, read)
	}
	if err != nil {
		return values, s.readError(ctx, "mget", err)
	}
	return out, nil
}

// mgetSlots reads keys, of the given slots, with one MGET for each slot. The order is that of bySlot.
func (s *Store) mgetSlots(ctx context.Context, keys []string, order, slots []int, read []store.Value) error {
	type part struct {
		cmd   *redis.SliceCmd
		order []int
	}
	var parts []part
	pipe := s.client.Pipeline()
	sorted := make([]string, len(keys))
	for from, to := 0, 0; from < len(order); from = to {
		for to < len(order) && slots[order[to]] == slots[order[from]] {
			sorted[to] = keys[order[to]]
			to++
		}
		parts = append(parts, part{pipe.MGet(ctx, sorted[from:to]...), order[from:to]})
	}
	_, failure := pipe.Exec(ctx)
	for _, p := range parts {
		if failure != nil && p.cmd.Err() == nil && p.cmd.Val() == nil {
			return failure // nothing was sent
		}
		if err := scatter(p.cmd, read, p.order); err != nil {
			return err
		}
	}
	return nil
}

// scatter stores value i of an MGET's reply at read[order[i]], or at read[i]
// when there is no order.
func scatter(cmd *redis.SliceCmd, read []store.Value, order []int) error {
	list, err := cmd.Result()
	if err != nil {
		return err
	}
	want := len(read)
	if order != nil {
		want = len(order)
	}
	if len(list) != want {
		return errNotMGet
	}
	for i, element := range list {
		at := i
		if order != nil {
			at = order[i]
		}
		switch v := element.(type) {
		case string:
			read[at] = store.BulkValue(v)
		case nil:
			read[at] = store.Value{}
		default:
			return errNotMGet
		}
	}
	return nil
}

// bySlot returns the indices of keys, ordered by slot, and the slot of each key.
// The order is nil when there is one slot alone.
func bySlot(keys []string) (order, slots []int) {
	slots = make([]int, len(keys))
	one := true
	for i, key := range keys {
		slots[i] = store.Slot(key)
		one = one && slots[i] == slots[0]
	}
	if one {
		return nil, slots
	}
	order = make([]int, len(keys))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return slots[a] - slots[b] })
	return order, slots
}
