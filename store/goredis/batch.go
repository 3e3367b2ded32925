package goredis

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store"
)

// errUnsent is the error of a command to which a pipeline gave neither a reply nor an error.
var errUnsent = errors.New("the client sent no command")

// EvalBatch runs calls: see [store.Batcher]. It sends one pipeline, which a
// ClusterClient splits by node. It sends a second one for the calls whose script a
// server did not know.
func (s *Store) EvalBatch(ctx context.Context, calls []store.Eval) {
	pending := make([]int, 0, len(calls))
	for i := range calls {
		c := &calls[i]
		if c.Err = s.Check(); c.Err != nil {
			continue
		}
		if err := store.CheckKeys(c.Keys); err != nil {
			c.Err = s.errs.Call("eval "+c.Script.Name(), err)
			continue
		}
		pending = append(pending, i)
	}
	pending = s.flush(ctx, evalSHA, calls, pending)
	s.flush(ctx, eval, calls, pending)
}

// flush runs the pending calls by name, in one pipeline. It returns the calls to run by
// eval, because a server did not know their scripts.
func (s *Store) flush(ctx context.Context, name any, calls []store.Eval, pending []int) []int {
	if len(pending) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		for _, i := range pending {
			calls[i].Err = s.errs.Call("eval "+calls[i].Script.Name(), err)
		}
		return nil
	}
	pipe := s.client.Pipeline()
	cmds := make([]*redis.Cmd, len(pending))
	for j, i := range pending {
		cmds[j] = command(ctx, name, calls[i].Script, calls[i].Keys, calls[i].Args)
		_ = pipe.Process(ctx, cmds[j]) // it queues
	}
	_, failure := pipe.Exec(ctx) // the first of many errors, or the reason why nothing was sent
	unknown := pending[:0]
	for j, i := range pending {
		c := &calls[i]
		val, err := cmds[j].Result()
		if list, _ := val.([]any); list != nil {
			err = nil // newer clients set the error of a broken pipeline on answered commands too
		} else if val == nil && err == nil { // and not redis.Nil: there was no reply
			if err = failure; err == nil {
				err = errUnsent
			}
		}
		if name == evalSHA && s.errs.NoScript(err) {
			unknown = append(unknown, i)
			continue
		}
		c.Reply, c.Err = s.answer(ctx, c.Script, c.Keys, c.Reply, val, err)
	}
	return unknown
}
