package goredis

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/adapter"
)

// errUnsent is the error of a command that has neither a reply nor an error.
var errUnsent = errors.New("the client returned neither a reply nor an error: a hook of it may not call the next one")

// A once is a command of a pipeline that the client must not send again. If the first
// command of a node gets an error reply such as TRYAGAIN, a ClusterClient sends all
// commands of that node again, though all were answered and have run. Older clients look
// at Err, which hides error replies, and newer ones ask NoRetry.
type once struct{ *redis.Cmd }

// NoRetry tells newer clients to send no pipeline with this command again, even if a
// reply was lost.
func (once) NoRetry() bool { return true }

// Err returns the error of the command, unless it is a reply.
func (c once) Err() error {
	err := c.Cmd.Err()
	if _, answered := adapter.Replied[redis.Error](err); answered {
		return nil
	}
	return err
}

// EvalBatch implements [store.Batcher]. It sends one pipeline, which a ClusterClient
// splits by node. If a server does not know a script, it sends a second pipeline with the
// calls of such scripts.
func (s *Store) EvalBatch(ctx context.Context, calls []store.Eval) {
	if err := s.Check(); err != nil {
		adapter.Fail(calls, err)
		return
	}
	s.base.EvalBatch(ctx, calls, s.run)
}

// run runs the pending calls in one pipeline, with the command name.
func (s *Store) run(ctx context.Context, name string, calls []store.Eval, pending []int) {
	pipe := s.client.Pipeline()
	cmds := make([]*redis.Cmd, len(pending))
	for j, i := range pending {
		cmds[j] = command(ctx, name, calls[i].Script, calls[i].Keys, calls[i].Args)
		_ = pipe.Process(ctx, once{cmds[j]}) // it queues
	}
	_, failure := pipe.Exec(ctx) // the first error of a command, or the reason why nothing was sent
	for j, i := range pending {
		c := &calls[i]
		val, err := cmds[j].Result()
		if complete(val) {
			err = nil // if a pipeline breaks, newer clients set its error on answered commands too
		} else if val == nil && err == nil { // there was no reply: a nil reply is the error redis.Nil
			err = failure
		}
		c.Reply, c.Err = appendValues(c.Reply, val, err)
	}
}

// complete reports whether val is surely a whole reply. If a reply breaks off, the client
// leaves a zero value.
func complete(val any) bool {
	switch v := val.(type) {
	case []any:
		return v != nil
	case string:
		return v != ""
	case int64:
		return v != 0
	}
	return false
}

// firstKey is the index of the first key in the arguments of an EVAL.
const firstKey = 3

// command returns the command of that name that runs script. It allocates one slice; the
// client's own EvalSha allocates two.
func command(ctx context.Context, name string, script *store.Script, keys []string, args []store.Arg) *redis.Cmd {
	verb := any(adapter.EvalSHA) // a constant takes no allocation, and name would
	if name == adapter.Eval {
		verb = adapter.Eval
	}
	words := append(make([]any, 0, firstKey+len(keys)+len(args)), verb)
	cmd := redis.NewCmd(ctx, adapter.Words(words, name, script, keys, args)...)
	cmd.SetFirstKeyPos(firstKey)
	return cmd
}

// appendValues appends the values of val, the reply of a script, to reply. If err is not
// nil, it returns err, unless err stands for a nil reply.
func appendValues(reply []store.Value, val any, err error) ([]store.Value, error) {
	switch {
	case errors.Is(err, redis.Nil):
		val, err = nil, nil
	case val == nil && err == nil:
		err = errUnsent
	}
	return adapter.Append(reply, val, err)
}

// MGet implements [store.Store]. If the client is a [redis.Client], it sends one MGET.
// For other clients, it sends one MGET for each slot, in one pipeline.
func (s *Store) MGet(ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
	if err := s.Check(); err != nil {
		return values, err
	}
	return s.base.MGet(ctx, keys, values, s.mget)
}

// mget sets read[i] to the value of keys[i].
func (s *Store) mget(ctx context.Context, keys []string, read []store.Value) error {
	if s.single {
		return scatter(s.client.MGet(ctx, keys...), read, nil)
	}
	type part struct {
		cmd *redis.SliceCmd
		at  []int
	}
	var parts []part
	pipe := s.client.Pipeline()
	for keys, at := range adapter.BySlot(keys, false) {
		parts = append(parts, part{pipe.MGet(ctx, keys...), at})
	}
	_, failure := pipe.Exec(ctx)
	for _, p := range parts {
		if failure != nil && p.cmd.Err() == nil && p.cmd.Val() == nil {
			return failure // nothing was sent
		}
		if err := scatter(p.cmd, read, p.at); err != nil {
			return err
		}
	}
	return nil
}

// scatter stores value i of an MGET's reply in read[at[i]]. If at is nil, it stores value
// i in read[i].
func scatter(cmd *redis.SliceCmd, read []store.Value, at []int) error {
	list, err := cmd.Result()
	if err != nil {
		return err
	}
	return adapter.Scatter(list, read, at, adapter.Value)
}
