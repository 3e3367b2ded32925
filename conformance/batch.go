package conformance

import (
	"context"
	"errors"
	"strconv"
	"unsafe"

	"github.com/weir-go/weir/store"
)

var batchChecks = []check{
	{"Independent", "each call of a batch gets its own reply, over any slots, and takes effect once; a failed call does not affect the others, and changes nothing", batchIndependent},
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

func batchIndependent(t *T) { t.batches(t.batcher(), func() {}) }

func batchScriptLoss(t *T) { t.batches(t.batcher(), t.dropScripts) }

// dropScripts makes the server lose its scripts.
func (t *T) dropScripts() {
	if t.backend.DropScripts == nil {
		t.skipf("backend gives no DropScripts")
	}
	t.backend.DropScripts(t.test, t.hooked)
}

// batches counts with batches on pairs of keys, each batch after a call of before. Of the ten
// calls for a pair, three fail.
func (t *T) batches(b store.Batcher, before func()) {
	const pairs, turns, each = 10, 10, 7
	for round := range int64(3) {
		calls := make([]store.Eval, pairs*turns)
		for i := range calls {
			calls[i] = store.Eval{Script: counter, Keys: t.keys(strconv.Itoa(i%pairs), 2), Reply: []store.Value{store.BulkValue("before")}}
			switch i / pairs {
			case 3:
				calls[i].Script = broken
			case 5:
				calls[i].Keys = append(t.keys("x", 1), t.keys("y", 1)...)
			case 7:
				calls[i].Keys = nil
			}
		}
		before()
		b.EvalBatch(t.ctx, calls)
		var got [pairs][each]bool
		for i, c := range calls {
			want, n := map[int]error{3: store.ErrScript, 5: store.ErrCrossSlot}[i/pairs], int64(-1)
			if c.Err == nil && len(c.Reply) == 4 && c.Reply[1] == c.Reply[2] {
				n = c.Reply[1].Int() - round*each
			}
			switch {
			case len(c.Reply) == 0 || c.Reply[0].Str() != "before" || c.Err != nil && len(c.Reply) > 1:
				t.errorf("call %d: got reply %v, want it appended, and unchanged if the call fails", i, c.Reply)
			case i/pairs == 7 && c.Err != nil || want != nil && errors.Is(c.Err, want):
			case n < 0 || n >= each || want != nil || i/pairs == 7 || got[i%pairs][n]:
				t.errorf("batch %d, call %d for its keys: got %v, %v, want error %v, or each number from %d to %d once, twice", round, i/pairs, c.Reply, c.Err, want, round*each, round*each+each-1)
			default:
				got[i%pairs][n] = true
			}
		}
	}
	b.EvalBatch(t.ctx, nil)
}

func batchCancelled(t *T) {
	b := t.batcher()
	ctx, cancel := context.WithCancel(t.ctx)
	cancel()
	calls := []store.Eval{{Script: counter, Keys: t.keys("a", 2)}, {Script: counter, Keys: t.keys("b", 2)}}
	b.EvalBatch(ctx, calls)
	for i, c := range calls {
		if !errors.Is(c.Err, context.Canceled) || errors.Is(c.Err, store.ErrUnavailable) {
			t.errorf("call %d: got error %v, want %v alone", i, c.Err, context.Canceled)
		}
		t.holds(store.Value{}, c.Keys, "call %d must not run", i)
	}
}

// borrowed returns a string that shares memory with b.
func borrowed(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
