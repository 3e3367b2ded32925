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

// A command is a command of a pipeline, with its reply.
type command struct {
	key  string // decides which node of a cluster the command is sent to; "" means any
	name string
	args []any

	reply any
	err   error
}

// newCommand returns the command of that name that runs script.
func newCommand(name string, script *store.Script, keys []string, args []store.Arg) command {
	words := make([]any, 0, 2+len(keys)+len(args))
	return command{key: keys[0], name: name, args: adapter.Words(words, name, script, keys, args)}
}

// size returns the approximate number of bytes of the command on the wire.
func (c *command) size() int {
	const frame = 16
	n := frame + len(c.name)
	for _, arg := range c.args {
		n += frame
		if text, ok := arg.(string); ok {
			n += len(text)
		}
	}
	return n
}

// MGet implements [store.Store]. On a pool, it sends one MGET. On a cluster, it sends one
// MGET for each slot, in one pipeline for each node.
func (s *Store) MGet(ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
	if err := s.Check(); err != nil {
		return values, err
	}
	return s.base.MGet(ctx, keys, values, s.mget)
}

// mget sets read[i] to the value of keys[i].
func (s *Store) mget(ctx context.Context, keys []string, read []store.Value) error {
	var cmds []command
	var parts [][]int
	for keys, at := range adapter.BySlot(keys, s.cluster == nil) {
		words := make([]any, len(keys))
		for i, key := range keys {
			words[i] = key
		}
		cmds, parts = append(cmds, command{key: keys[0], name: "MGET", args: words}), append(parts, at)
	}
	s.pipeline(ctx, cmds)
	for i := range cmds {
		if err := cmds[i].err; err != nil {
			return err
		}
		list, _ := cmds[i].reply.([]any) // nil is too short
		if err := adapter.Scatter(list, read, parts[i], bulk); err != nil {
			return err
		}
	}
	return nil
}

// bulk returns an element of the reply to an MGET as a value. It returns false for a
// status, which the client represents as a string.
func bulk(element *any) (store.Value, bool) {
	if _, status := (*element).(string); status {
		return store.Value{}, false
	}
	return adapter.Value(element)
}
