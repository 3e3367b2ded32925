package adapter

import (
	"context"
	"fmt"

	"github.com/weir-go/weir/store"
)

// Answer appends val, the reply of script, to reply. The client represents strings as string or
// []byte, and nil as nil. If err is not nil, Answer returns the store's error for it.
func (e *Errors) Answer(ctx context.Context, script *store.Script, keys []string, reply []store.Value, val any, err error) ([]store.Value, error) {
	if err != nil {
		return reply, e.Eval(ctx, script, keys, err)
	}
	list, ok := val.([]any)
	if !ok {
		list = []any{val}
	}
	out := reply
	for i, element := range list {
		switch v := element.(type) {
		case int64:
			out = append(out, store.IntegerValue(v))
		case string:
			out = append(out, store.BulkValue(v))
		case []byte:
			out = append(out, store.BulkValue(string(v)))
		case nil:
			out = append(out, store.Value{})
		default:
			return reply, e.Call("eval "+script.Name(), fmt.Errorf("%w: element %d of the reply is a %T: it must be an integer, a string or nil",
				store.ErrScript, i, element))
		}
	}
	return out, nil
}
