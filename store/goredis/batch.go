package goredis

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/adapter"
)

// errUnsent is the error of a command that has neither a reply nor an error.
var errUnsent = errors.New("the client returned neither a reply nor an error")

// A once is a command of a pipeline that the client must not send again. If the first command
// of a node gets an error reply such as TRYAGAIN, a ClusterClient sends all commands of that
// node again, though all were answered and have run. Older clients look at Err, which hides
// error replies, and newer ones ask NoRetry.
type once struct{ *redis.Cmd }

// NoRetry tells newer clients to send no pipeline with this command again, also if a reply was
// lost.
func (once) NoRetry() bool { return true }

// Err returns the error of the command, unless it is a reply.
func (c once) Err() error {
	err := c.Cmd.Err()
	if _, answered := adapter.Replied[redis.Error](err); answered {
		return nil
	}
	return err
}

// EvalBatch implements [store.Batcher]. It sends one pipeline, which a ClusterClient splits
// by node. If a server does not know a script, it sends a second pipeline with the calls of
// such scripts.
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
			if err = failure; err == nil {
				err = errUnsent
			}
		}
		c.Reply, c.Err = appendValues(c.Reply, val, err)
	}
}

// complete reports whether val is surely a whole reply. If a reply breaks off, the client leaves
// a zero value.
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
