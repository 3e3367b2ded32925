package rueidisapi

import (
	"context"

	"github.com/weir-go/weir/store"
)

// EvalBatch is the EvalBatch of a [store.Batcher]. It sends one pipeline, which the client of
// a cluster splits by node. If a server does not know a script, it sends a second pipeline
// with the calls of such scripts.
func (s *Store[C, R]) EvalBatch(ctx context.Context, calls []store.Eval) {
	pending := make([]int, 0, len(calls))
	for i := range calls {
		c := &calls[i]
		if c.Err = store.CheckKeys(c.Keys); c.Err != nil {
			c.Err = s.call(c.Script, c.Err)
			continue
		}
		pending = append(pending, i)
	}
	pending = s.flush(ctx, EvalSHA, calls, pending)
	s.flush(ctx, Eval, calls, pending)
}

// flush runs the pending calls in one pipeline. It returns the calls whose scripts a server
// did not know: they must be run with EVAL.
func (s *Store[C, R]) flush(ctx context.Context, way Way, calls []store.Eval, pending []int) []int {
	if len(pending) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		for _, i := range pending {
			calls[i].Err = s.call(calls[i].Script, err)
		}
		return nil
	}
	cmds := make([]C, len(pending))
	for j, i := range pending {
		cmds[j] = s.Dialect.Run(way, calls[i].Script, calls[i].Keys, calls[i].Args)
	}
	results := s.Client.DoMulti(ctx, cmds...)
	unknown := pending[:0]
	for j, i := range pending {
		c := &calls[i]
		out, err := c.Reply, errUnsent
		if j < len(results) {
			out, _, err = s.Dialect.Append(c.Reply, results[j])
		}
		switch {
		case way == EvalSHA && s.Errs.NoScript(err):
			unknown = append(unknown, i)
		case err != nil:
			c.Err = s.failed(ctx, c.Script, c.Keys, err)
		default:
			c.Reply = out
		}
	}
	return unknown
}
