package rueidis

import (
	"fmt"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/adapter"
)

// command returns the command of that name that runs script. The keys must have the same
// slot, or the builder panics. The client can recycle a command after its use, so a new
// one is made for each call.
func (s *Store) command(name string, script *store.Script, keys []string, args []store.Arg) rueidis.Completed {
	verb, text := "EVALSHA", script.SHA() // the builder would copy a name in lower case
	if name == adapter.Eval {
		verb, text = "EVAL", script.Lua()
	}
	c := s.client.B().Arbitrary(verb, text, strconv.Itoa(len(keys))).Keys(keys...)
	for _, arg := range args {
		c = c.Args(arg.String())
	}
	return c.Build()
}

// appendValues appends the values of result to values. If an element of the reply is not
// an integer, a string or nil, the error is [store.ErrScript]. Any other error is from
// the client.
func appendValues(values []store.Value, result rueidis.RedisResult) ([]store.Value, error) {
	m, err := result.ToMessage()
	if rueidis.IsRedisNil(err) {
		return append(values, store.Value{}), nil
	}
	if err != nil {
		return values, err
	}
	elements := []rueidis.RedisMessage{m}
	if m.IsArray() {
		elements, _ = m.ToArray()
	}
	out := values
	for i := range elements {
		v, ok := value(&elements[i])
		if !ok {
			return values, fmt.Errorf("%w: element %d of the reply has another type: it must be an integer, a string or nil", store.ErrScript, i)
		}
		out = append(out, v)
	}
	return out, nil
}

// value returns m as a value. It returns false if m is not an integer, a string or nil.
func value(m *rueidis.RedisMessage) (store.Value, bool) {
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
