package rueidis

import (
	"context"
	"fmt"

	redis "github.com/redis/rueidis"

	"github.com/weir-go/weir/store"
)

// A way is a command that runs a script: EVALSHA or EVAL.
type way bool

const (
	evalSHA way = false
	eval    way = true
)

// command returns the command that runs script. The command can be used only once, because
// the client recycles it. The keys must have the same slot, or the client's builder panics.
func (s *Store) command(how way, script *store.Script, keys []string, args []store.Arg) redis.Completed {
	if how == eval {
		c := s.client.B().Eval().Script(script.Lua()).Numkeys(int64(len(keys))).Key(keys...).Arg()
		for _, arg := range args {
			c = c.Arg(arg.String())
		}
		return c.Build()
	}
	c := s.client.B().Evalsha().Sha1(script.SHA()).Numkeys(int64(len(keys))).Key(keys...).Arg()
	for _, arg := range args {
		c = c.Arg(arg.String())
	}
	return c.Build()
}

// answer appends val, the reply of script, to reply. If err is not nil, it returns the
// store's error for it.
func (s *Store) answer(ctx context.Context, script *store.Script, keys []string, reply []store.Value, val *redis.RedisMessage, err error) ([]store.Value, error) {
	if redis.IsRedisNil(err) {
		return append(reply, store.Value{}), nil
	}
	if err != nil {
		return reply, s.errs.Eval(ctx, script, keys, err)
	}
	if !val.IsArray() {
		v, ok := value(val)
		if !ok {
			return reply, notValue(script, 0)
		}
		return append(reply, v), nil
	}
	list, _ := val.ToArray() // it is an array
	out := reply
	for i := range list {
		v, ok := value(&list[i])
		if !ok {
			return reply, notValue(script, i)
		}
		out = append(out, v)
	}
	return out, nil
}

// value returns m as a value. It returns false if m is not an integer, a string or nil.
func value(m *redis.RedisMessage) (store.Value, bool) {
	switch {
	case m.IsInt64():
		n, err := m.ToInt64()
		return store.IntegerValue(n), err == nil
	case m.IsString():
		text, err := m.ToString()
		return store.BulkValue(text), err == nil
	}
	return store.Value{}, m.IsNil()
}

func notValue(script *store.Script, element int) error {
	return fmt.Errorf("rueidis: eval %s: %w: element %d of the reply has another type: it must be an integer, a string or nil",
		script.Name(), store.ErrScript, element)
}
