package redigo

import (
	"context"

	"github.com/weir-go/weir/store"
)

// EvalBatch implements [store.Batcher]. It sends one pipeline to each node. If a node
// does not know a script, it sends a second pipeline with the calls of such scripts. A
// pipeline of more than 32 KiB is sent in parts. A part is sent after the replies to
// the previous part have arrived.
func (s *Store) EvalBatch(ctx context.Context, calls []store.Eval) {
	if len(calls) == 0 {
		return
	}
	cmds, at := make([]command, 0, len(calls)), make([]int, 0, len(calls))
	for i := range calls {
		c := &calls[i]
		if c.Err = s.Check(); c.Err == nil {
			c.Err = s.errs.CheckEval(ctx, c.Script, c.Keys)
		}
		if c.Err == nil {
			cmds, at = append(cmds, newCommand(c.Script, c.Keys, c.Args)), append(at, i)
		}
	}
	if len(cmds) == 0 {
		return
	}
	s.pipeline(ctx, cmds)

	unknown, unknownAt := cmds[:0], at[:0]
	for j, cmd := range cmds {
		if c := &calls[at[j]]; s.errs.NoScript(cmd.err) {
			cmd.spellOut(c.Script)
			cmd.reply, cmd.err = nil, nil
			unknown, unknownAt = append(unknown, cmd), append(unknownAt, at[j])
		} else {
			c.Reply, c.Err = s.errs.Answer(ctx, c.Script, c.Keys, c.Reply, cmd.reply, cmd.err)
		}
	}
	if len(unknown) == 0 {
		return
	}
	s.pipeline(ctx, unknown)
	for j, cmd := range unknown {
		c := &calls[unknownAt[j]]
		c.Reply, c.Err = s.errs.Answer(ctx, c.Script, c.Keys, c.Reply, cmd.reply, cmd.err)
	}
}
