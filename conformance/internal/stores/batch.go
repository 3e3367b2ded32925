package stores

import (
	"context"
	"errors"
	"strconv"
	"unsafe"

	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/store"
)

// BatchChecks are the checks of a store that sends batches.
var BatchChecks = []suite.Check{
	{Name: "Independent", Text: "each call of a batch gets its own reply, over any slots, and takes effect once; a failed call does not affect the others, and changes nothing", Run: checkBatchIndependent},
	{Name: "ScriptLoss", Text: "if the server has lost the scripts of a batch, every call runs once", Run: checkBatchScriptLoss, Alone: true},
	{Name: "Cancelled", Text: "if the context of a batch is done, nothing runs, and each call returns the context's own error", Run: checkBatchCancelled},
}

func batcher(t *suite.T) store.Batcher {
	b, ok := t.Store.(store.Batcher)
	if !ok {
		t.Skipf("store is no Batcher")
	}
	return b
}

func checkBatchIndependent(t *suite.T) { batches(t, batcher(t), func() {}) }

func checkBatchScriptLoss(t *suite.T) { batches(t, batcher(t), t.DropScripts) }

// batches counts with batches on pairs of keys, each batch after a call of before. Of the ten
// calls for a pair, three fail.
func batches(t *suite.T, b store.Batcher, before func()) {
	const pairs, turns, each = 10, 10, 7
	for round := range int64(3) {
		calls := make([]store.Eval, pairs*turns)
		for i := range calls {
			calls[i] = store.Eval{Script: scripts.Counter, Keys: t.Keys(strconv.Itoa(i%pairs), 2), Reply: []store.Value{store.BulkValue("before")}}
			switch i / pairs {
			case 3:
				calls[i].Script = scripts.Broken
			case 5:
				calls[i].Keys = append(t.Keys("x", 1), t.Keys("y", 1)...)
			case 7:
				calls[i].Keys = nil
			}
		}
		before()
		b.EvalBatch(t.Ctx, calls)
		var got [pairs][each]bool
		for i, c := range calls {
			want, n := map[int]error{3: store.ErrScript, 5: store.ErrCrossSlot}[i/pairs], int64(-1)
			if c.Err == nil && len(c.Reply) == 4 && c.Reply[1] == c.Reply[2] {
				n = c.Reply[1].Int() - round*each
			}
			switch {
			case len(c.Reply) == 0 || c.Reply[0].Str() != "before" || c.Err != nil && len(c.Reply) > 1:
				t.Errorf("call %d: got reply %v, want it appended, and unchanged if the call fails", i, c.Reply)
			case i/pairs == 7 && c.Err != nil || want != nil && errors.Is(c.Err, want):
			case n < 0 || n >= each || want != nil || i/pairs == 7 || got[i%pairs][n]:
				t.Errorf("batch %d, call %d for its keys: got %v, %v, want error %v, or each number from %d to %d once, twice", round, i/pairs, c.Reply, c.Err, want, round*each, round*each+each-1)
			default:
				got[i%pairs][n] = true
			}
		}
	}
	b.EvalBatch(t.Ctx, nil)
}

func checkBatchCancelled(t *suite.T) {
	b := batcher(t)
	ctx, cancel := context.WithCancel(t.Ctx)
	cancel()
	calls := []store.Eval{{Script: scripts.Counter, Keys: t.Keys("a", 2)}, {Script: scripts.Counter, Keys: t.Keys("b", 2)}}
	b.EvalBatch(ctx, calls)
	for i, c := range calls {
		if !errors.Is(c.Err, context.Canceled) || errors.Is(c.Err, store.ErrUnavailable) {
			t.Errorf("call %d: got error %v, want %v alone", i, c.Err, context.Canceled)
		}
		t.Holds(store.Value{}, c.Keys, "call %d must not run", i)
	}
}

// borrowed returns a string that shares memory with b.
func borrowed(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
