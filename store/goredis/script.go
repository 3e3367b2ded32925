package goredis

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store"
)

// The two commands that run a script, converted to an interface once.
var (
	evalSHA any = "evalsha"
	eval    any = "eval"
)

// firstKey is the index of the first key in the arguments of an EVAL.
const firstKey = 3

// command returns the command that runs script. The name is evalSHA or eval. It allocates
// one slice; the client's own EvalSha allocates two.
func command(ctx context.Context, name any, script *store.Script, keys []string, args []store.Arg) *redis.Cmd {
	words := make([]any, firstKey, firstKey+len(keys)+len(args))
	words[0] = name
	if name == evalSHA {
		words[1] = script.SHA()
	} else {
		words[1] = script.Lua()
	}
	words[2] = len(keys)
	for _, key := range keys {
		words = append(words, key)
	}
	for _, arg := range args {
		words = append(words, arg.Any())
	}
	cmd := redis.NewCmd(ctx, words...)
	cmd.SetFirstKeyPos(firstKey)
	return cmd
}

// answer appends val, the reply of script, to reply. If err is not nil, it returns the
// store's error for it.
func (s *Store) answer(ctx context.Context, script *store.Script, keys []string, reply []store.Value, val any, err error) ([]store.Value, error) {
	if errors.Is(err, redis.Nil) {
		val, err = nil, nil
	}
	return s.errs.Answer(ctx, script, keys, reply, val, err)
}
