package redigo

import (
	"context"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/adapter"
)

// EvalBatch implements [store.Batcher]. It sends one pipeline to each node. If a node
// does not know a script, it sends a second pipeline with the calls of such scripts. A
// pipeline of more than 32 KiB is sent in parts. A part is sent after the replies to
// the previous part have arrived.
func (s *Store) EvalBatch(ctx context.Context, calls []store.Eval) {
	if err := s.Check(); err != nil {
		adapter.Fail(calls, err)
		return
	}
	s.base.EvalBatch(ctx, calls, s.run)
}

// run runs the pending calls in one pipeline to each node, with the command name.
func (s *Store) run(ctx context.Context, name string, calls []store.Eval, pending []int) {
	cmds := make([]command, len(pending))
	for j, i := range pending {
		cmds[j] = newCommand(name, calls[i].Script, calls[i].Keys, calls[i].Args)
	}
	s.pipeline(ctx, cmds)
	for j, i := range pending {
		c := &calls[i]
		c.Reply, c.Err = adapter.Append(c.Reply, cmds[j].reply, cmds[j].err)
	}
}
