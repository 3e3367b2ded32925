package adapter

import (
	"context"
	"fmt"

	"github.com/weir-go/weir/store"
)

// The commands that run a script. A client can need them in lower case.
const (
	EvalSHA = "evalsha"
	Eval    = "eval"
)

// A Run runs the pending calls in one pipeline, with the command name, and sets their
// replies and errors.
type Run func(ctx context.Context, name string, calls []store.Eval, pending []int)

// Fail sets the error of all calls to err.
func Fail(calls []store.Eval, err error) {
	for i := range calls {
		calls[i].Err = err
	}
}

// EvalBatch is the EvalBatch of a store. It runs the calls with EVALSHA, and those whose
// scripts a server did not know again with EVAL.
func (b *Base) EvalBatch(ctx context.Context, calls []store.Eval, run Run) {
	pending := make([]int, 0, len(calls))
	for i := range calls {
		c := &calls[i]
		if c.Err = b.checkEval(ctx, c.Script, c.Keys); c.Err == nil {
			pending = append(pending, i)
		}
	}
	for name := EvalSHA; len(pending) > 0; name = Eval {
		run(ctx, name, calls, pending)
		unknown := pending[:0]
		for _, i := range pending {
			c := &calls[i]
			if name == Eval || !b.noScript(c.Err) {
				c.Err = b.evalError(ctx, c.Script, c.Keys, c.Err)
			} else if c.Err = b.checkEval(ctx, c.Script, c.Keys); c.Err == nil {
				unknown = append(unknown, i)
			}
		}
		pending = unknown
	}
}

// Eval is the Eval of a store. The function run runs the script with the command name,
// and appends the values of its reply to reply. It runs twice if the server does not know
// the script.
func (b *Base) Eval(ctx context.Context, script *store.Script, keys []string, reply []store.Value,
	run func(name string) ([]store.Value, error),
) ([]store.Value, error) {
	if err := b.checkEval(ctx, script, keys); err != nil {
		return reply, err
	}
	out, err := run(EvalSHA)
	if b.noScript(err) {
		if err = ctx.Err(); err == nil {
			out, err = run(Eval)
		}
	}
	return out, b.evalError(ctx, script, keys, err)
}

// Words appends the arguments of the command name, which runs script, to words. They are
// made for a client that takes strings and numbers.
func Words(words []any, name string, script *store.Script, keys []string, args []store.Arg) []any {
	text := script.SHA()
	if name == Eval {
		text = script.Lua()
	}
	words = append(words, text, len(keys))
	for _, key := range keys {
		words = append(words, key)
	}
	for _, arg := range args {
		words = append(words, arg.Any())
	}
	return words
}

// checkEval returns the error of a call that must not be sent, because of its keys or
// because ctx is done.
func (b *Base) checkEval(ctx context.Context, script *store.Script, keys []string) error {
	err := store.CheckKeys(keys)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return b.callError("eval "+script.Name(), err)
	}
	return nil
}

// Append appends the values of val, the reply of a script, to reply. If a value is none
// of those that [Value] knows, the error is [store.ErrScript]. If err is not nil, Append
// returns it.
func Append(reply []store.Value, val any, err error) ([]store.Value, error) {
	if err != nil {
		return reply, err
	}
	list, ok := val.([]any)
	if !ok {
		list = []any{val}
	}
	out := reply
	for i := range list {
		v, ok := Value(&list[i])
		if !ok {
			return reply, fmt.Errorf("%w: element %d of the reply is a %T: it must be an integer, a string or nil", store.ErrScript, i, list[i])
		}
		out = append(out, v)
	}
	return out, nil
}

// Value returns an element of a reply as a value. The client represents strings as string
// or []byte, and nil as nil. Value returns false for another type.
func Value(element *any) (store.Value, bool) {
	switch v := (*element).(type) {
	case int64:
		return store.IntegerValue(v), true
	case string:
		return store.BulkValue(v), true
	case []byte:
		return store.BulkValue(string(v)), true
	}
	return store.Value{}, *element == nil
}
