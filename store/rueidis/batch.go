package rueidis

import (
	"context"
	"errors"

	"github.com/redis/rueidis"

	"github.com/weir-go/weir/store"
)

// errUnsent is the error of a command for which the client, or a wrapper of it, returned no
// result.
var errUnsent = errors.New("the client returned no result")

// EvalBatch implements [store.Batcher]. It sends one pipeline, which the client of a cluster
// splits by node. If a server does not know a script, it sends a second pipeline with the
// calls of such scripts.
func (s *Store) EvalBatch(ctx context.Context, calls []store.Eval) {
	pending := make([]int, 0, len(calls))
	for i := range calls {
		c := &calls[i]
		if c.Err = s.Check(); c.Err == nil {
			c.Err = s.errs.CheckEval(ctx, c.Script, c.Keys)
		}
		if c.Err == nil {
			pending = append(pending, i)
		}
	}
	pending = s.flush(ctx, evalSHA, calls, pending)
	s.flush(ctx, eval, calls, pending)
}

// flush runs the pending calls in one pipeline, with the command name. It returns the calls
// whose scripts a server did not know: they must be run with eval.
func (s *Store) flush(ctx context.Context, name string, calls []store.Eval, pending []int) []int {
	if len(pending) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		for _, i := range pending {
			calls[i].Err = s.errs.Call("eval "+calls[i].Script.Name(), err)
		}
		return nil
	}
	cmds := make([]rueidis.Completed, len(pending))
	for j, i := range pending {
		cmds[j] = s.command(name, calls[i].Script, calls[i].Keys, calls[i].Args)
	}
	results := s.client.DoMulti(ctx, cmds...)
	unknown := pending[:0]
	for j, i := range pending {
		c := &calls[i]
		out, err := c.Reply, errUnsent
		if j < len(results) {
			out, err = appendValues(c.Reply, results[j])
		}
		switch {
		case name == evalSHA && s.errs.NoScript(err):
			unknown = append(unknown, i)
		case err != nil:
			c.Err = s.errs.Eval(ctx, c.Script, c.Keys, err)
		default:
			c.Reply = out
		}
	}
	return unknown
}
