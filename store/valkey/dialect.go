package valkey

import (
	"errors"

	"github.com/valkey-io/valkey-go"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/rueidisapi"
)

// dialect returns what the shared code needs to know of the client.
func dialect(client valkey.Client) rueidisapi.Dialect[valkey.Completed, valkey.ValkeyResult] {
	return rueidisapi.Dialect[valkey.Completed, valkey.ValkeyResult]{
		Run: func(way rueidisapi.Way, script *store.Script, keys []string, args []store.Arg) valkey.Completed {
			return run(client.B(), way, script, keys, args)
		},
		MGet:   func(keys []string) valkey.Completed { return client.B().Mget().Key(keys...).Build() },
		Time:   func() valkey.Completed { return client.B().Time().Build() },
		Append: appendValues,
	}
}

// run returns the command that runs script. The keys must have the same slot, or the builder
// panics.
func run(b valkey.Builder, way rueidisapi.Way, script *store.Script, keys []string, args []store.Arg) valkey.Completed {
	if way == rueidisapi.Eval {
		c := b.Eval().Script(script.Lua()).Numkeys(int64(len(keys))).Key(keys...).Arg()
		for _, arg := range args {
			c = c.Arg(arg.String())
		}
		return c.Build()
	}
	c := b.Evalsha().Sha1(script.SHA()).Numkeys(int64(len(keys))).Key(keys...).Arg()
	for _, arg := range args {
		c = c.Arg(arg.String())
	}
	return c.Build()
}

// appendValues is the Append of the dialect.
func appendValues(values []store.Value, result valkey.ValkeyResult) (out []store.Value, list bool, err error) {
	m, err := result.ToMessage()
	if valkey.IsValkeyNil(err) {
		return append(values, store.Value{}), false, nil
	}
	if err != nil {
		return values, false, err
	}
	if !m.IsArray() {
		v, ok := value(&m)
		if !ok {
			return values, false, rueidisapi.NotValue(0)
		}
		return append(values, v), false, nil
	}
	elements, _ := m.ToArray() // it is an array
	out = values
	for i := range elements {
		v, ok := value(&elements[i])
		if !ok {
			return values, true, rueidisapi.NotValue(i)
		}
		out = append(out, v)
	}
	return out, true, nil
}

// value returns m as a value. It returns false if m is not an integer, a string or nil.
func value(m *valkey.ValkeyMessage) (store.Value, bool) {
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

// replied returns the text of the error reply that err is or wraps. It returns false if
// err is not from a server. The client removes a leading ERR.
func replied(err error) (text string, ok bool) {
	var reply *valkey.ValkeyError
	if !errors.As(err, &reply) || reply.IsNil() {
		return "", false
	}
	return reply.Error(), true
}
