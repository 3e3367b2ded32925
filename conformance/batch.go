package conformance

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"unsafe"

	"github.com/weir-go/weir/store"
)

var batchChecks = []check{
	{"Independent", "each call of a batch gets its own reply, over any slots, and a failed call does not affect the others", batchIndependent},
	{"ScriptLoss", "if the server has lost the scripts of a batch, every call runs once", batchScriptLoss},
	{"Cancelled", "if the context of a batch is done, nothing runs, and each call returns the context's own error", batchCancelled},
}

func (t *T) batcher() store.Batcher {
	b, ok := t.store.(store.Batcher)
	if !ok {
		t.skipf("store is no Batcher")
	}
	return b
}

func batchIndependent(t *T) {
	b := t.batcher()
	const n = 100
	calls := make([]store.Eval, n)
	for i := range calls {
		tag := strconv.Itoa(i / 2)
		calls[i] = store.Eval{
			Script: echo, Keys: t.keys(tag, 1), Args: []store.Arg{store.IntArg(int64(i))},
			Reply: []store.Value{store.BulkValue("before")},
		}
		switch i % 10 {
		case 3:
			calls[i].Script = broken
		case 5:
			calls[i].Keys = []string{t.key("x", "1"), t.key("y", "1")}
		case 7:
			calls[i].Keys = nil
		}
	}
	b.EvalBatch(t.ctx, calls)
	for i, c := range calls {
		want := []store.Value{store.BulkValue("before")}
		switch i % 10 {
		case 3:
			if !errors.Is(c.Err, store.ErrScript) {
				t.errorf("call %d: got error %v, want ErrScript", i, c.Err)
			}
		case 5:
			if !errors.Is(c.Err, store.ErrCrossSlot) {
				t.errorf("call %d: got error %v, want ErrCrossSlot", i, c.Err)
			}
		case 7:
			if c.Err == nil {
				t.errorf("call %d: no error without keys", i)
			}
		default:
			if c.Err != nil {
				t.errorf("call %d: %v", i, c.Err)
			}
			want = append(want, store.BulkValue(strconv.Itoa(i)))
		}
		if !slices.Equal(c.Reply, want) {
			t.errorf("call %d: got reply %v, want %v", i, c.Reply, want)
		}
	}
	b.EvalBatch(t.ctx, nil)
}

func batchScriptLoss(t *T) {
	b := t.batcher()
	if t.backend.DropScripts == nil {
		t.skipf("backend gives no DropScripts")
	}
	const n = 20
	for range 2 {
		t.backend.DropScripts(t.test, t.hooked)
		calls := make([]store.Eval, n)
		for i := range calls {
			calls[i] = store.Eval{Script: counter, Keys: t.keys(strconv.Itoa(i%4), 2)}
		}
		b.EvalBatch(t.ctx, calls)
		for i, c := range calls {
			if c.Err != nil {
				t.errorf("call %d: %v", i, c.Err)
			}
		}
	}
	for i := range 4 {
		if got := t.eval(counter, t.keys(strconv.Itoa(i), 2))[0].Int(); got != 2*n/4 {
			t.errorf("key %d counted %d steps, want %d", i, got, 2*n/4)
		}
	}
}

func batchCancelled(t *T) {
	b := t.batcher()
	ctx, cancel := context.WithCancel(t.ctx)
	cancel()
	calls := []store.Eval{{Script: counter, Keys: t.keys("a", 2)}, {Script: counter, Keys: t.keys("b", 2)}}
	b.EvalBatch(ctx, calls)
	for i, c := range calls {
		if !errors.Is(c.Err, context.Canceled) {
			t.errorf("call %d: got error %v, want %v", i, c.Err, context.Canceled)
		}
		if v := t.mget(c.Keys[0])[0]; v.Kind() != store.Nil {
			t.errorf("call %d ran: its key holds %v", i, v)
		}
	}
}

// borrowed returns a string that shares memory with b.
func borrowed(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
