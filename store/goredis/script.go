package goredis

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/adapter"
)

// firstKey is the index of the first key in the arguments of an EVAL.
const firstKey = 3

// command returns the command of that name that runs script. It allocates one slice; the client's
// own EvalSha allocates two.
func command(ctx context.Context, name string, script *store.Script, keys []string, args []store.Arg) *redis.Cmd {
	words := append(make([]any, 0, firstKey+len(keys)+len(args)), name)
	cmd := redis.NewCmd(ctx, adapter.Words(words, name, script, keys, args)...)
	cmd.SetFirstKeyPos(firstKey)
	return cmd
}

// appendValues appends the values of val, the reply of a script, to reply. If err is not nil, it
// returns err, unless err stands for a nil reply.
func appendValues(reply []store.Value, val any, err error) ([]store.Value, error) {
	if errors.Is(err, redis.Nil) {
		val, err = nil, nil
	}
	return adapter.Append(reply, val, err)
}
