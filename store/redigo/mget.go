package redigo

import (
	"context"
	"errors"
	"slices"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/adapter"
)

// errNotMGet is the error of a reply that MGET does not give.
var errNotMGet = errors.New("the reply is not a list of one string or nil for each key")

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
		if err := scatter(cmds[i].reply, read, parts[i]); err != nil {
			return err
		}
	}
	return nil
}

// scatter stores value i of an MGET's reply in read[at[i]]. If at is nil, it stores value i
// in read[i].
func scatter(reply any, read []store.Value, at []int) error {
	want := len(read)
	if at != nil {
		want = len(at)
	}
	list, ok := reply.([]any)
	if !ok || len(list) != want {
		return errNotMGet
	}
	for i, element := range list {
		to := i
		if at != nil {
			to = at[i]
		}
		switch v := element.(type) {
		case []byte:
			read[to] = store.BulkValue(string(v))
		case nil:
			read[to] = store.Value{}
		default:
			return errNotMGet
		}
	}
	return nil
}
