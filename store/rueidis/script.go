package rueidis

import (
	"context"
	"fmt"

	redis "github.com/redis/rueidis"

	"github.com/weir-go/weir/store"
)

// A way is one of the two ways to run a script.
type way bool

const (
	evalSHA way = false
	eval    way = true
)

// command returns the command that runs script. The client takes it back after
// one use. Keys share a slot: the builder panics if they do not.
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

// answer appends val, what script replied, to reply, unless err says that it
// did not.
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
	list, _ := val.ToArray() // it is one
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

// value returns m as a value, and false if it is none.
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
	return fmt.Errorf("rueidis: eval %s: %w: element %d of the reply is of another kind: want integers and strings",
		script.Name(), store.ErrScript, element)
}
