package rueidis

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/rueidis"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/adapter"
)

// errUnsent is the error of a command for which the client, or a wrapper of it, returned
// no result.
var errUnsent = errors.New("the client returned no result")

// EvalBatch implements [store.Batcher]. It sends one pipeline, which the client of a
// cluster splits by node. If a server does not know a script, it sends a second pipeline
// with the calls of such scripts.
func (s *Store) EvalBatch(ctx context.Context, calls []store.Eval) {
	if err := s.Check(); err != nil {
		adapter.Fail(calls, err)
		return
	}
	s.base.EvalBatch(ctx, calls, s.run)
}

// run runs the pending calls in one pipeline, with the command name.
func (s *Store) run(ctx context.Context, name string, calls []store.Eval, pending []int) {
	cmds := make([]rueidis.Completed, len(pending))
	for j, i := range pending {
		cmds[j] = s.command(name, calls[i].Script, calls[i].Keys, calls[i].Args)
	}
	results := s.doMulti(ctx, cmds)
	for j, i := range pending {
		c := &calls[i]
		c.Err = errUnsent
		if j < len(results) {
			c.Reply, c.Err = appendValues(c.Reply, results[j])
		}
	}
}

// doMulti sends the commands in one pipeline. If a cluster has lost all nodes of a slot,
// the client sends nothing of a pipeline with that slot: then each half is sent alone, so
// that the commands of other slots are.
func (s *Store) doMulti(ctx context.Context, cmds []rueidis.Completed) []rueidis.RedisResult {
	results := s.client.DoMulti(ctx, cmds...)
	served := func(r rueidis.RedisResult) bool { return !errors.Is(r.Error(), rueidis.ErrNoSlot) }
	if len(cmds) < 2 || len(results) < len(cmds) || slices.ContainsFunc(results, served) {
		return results
	}
	half := len(cmds) / 2
	return append(s.doMulti(ctx, cmds[:half]), s.doMulti(ctx, cmds[half:])...)
}
