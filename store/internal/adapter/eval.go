package adapter

import (
	"context"
	"fmt"

	"github.com/weir-go/weir/store"
)

// The commands that run a script.
const (
	EvalSHA = "EVALSHA"
	Eval    = "EVAL"
)

// CheckEval returns the error of a call that must not be sent, because of its keys or because
// ctx is done.
func (b *Base) CheckEval(ctx context.Context, script *store.Script, keys []string) error {
	err := store.CheckKeys(keys)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return b.CallError("eval "+script.Name(), err)
	}
	return nil
}

// CheckBatch sets the errors of the calls that must not be sent, and appends the indices of the
// others to pending.
func (b *Base) CheckBatch(ctx context.Context, calls []store.Eval, pending []int) []int {
	for i := range calls {
		c := &calls[i]
		if c.Err = b.CheckEval(ctx, c.Script, c.Keys); c.Err == nil {
			pending = append(pending, i)
		}
	}
	return pending
}

// SettleBatch turns the errors of the pending calls, which were run with the command name, into
// those of the store. It returns the calls whose scripts a server did not know: they must be run
// with Eval.
func (b *Base) SettleBatch(ctx context.Context, name string, calls []store.Eval, pending []int) []int {
	unknown := pending[:0]
	for _, i := range pending {
		c := &calls[i]
		if name == Eval || !b.NoScript(c.Err) {
			c.Err = b.EvalError(ctx, c.Script, c.Keys, c.Err)
		} else if c.Err = b.CheckEval(ctx, c.Script, c.Keys); c.Err == nil {
			unknown = append(unknown, i)
		}
	}
	return unknown
}

// Append appends the values of val, the reply of a script, to reply. The client represents
// strings as string or []byte, and nil as nil. If a value has another type, the error is
// [store.ErrScript]. If err is not nil, Append returns it.
func Append(reply []store.Value, val any, err error) ([]store.Value, error) {
	if err != nil {
		return reply, err
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
			return reply, fmt.Errorf("%w: element %d of the reply is a %T: it must be an integer, a string or nil", store.ErrScript, i, element)
		}
	}
	return out, nil
}
