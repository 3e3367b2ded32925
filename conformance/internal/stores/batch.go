package stores

import (
	"context"
	"errors"
	"slices"
	"strconv"

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

func checkBatchIndependent(t *suite.T) {
	b := batcher(t)
	batches(t, b, func() {})
	calls := make([]store.Eval, 1100)
	for i := range calls {
		calls[i] = store.Eval{Script: scripts.Echo, Keys: t.Keys(strconv.Itoa(i%50), 1), Args: []store.Arg{store.IntArg(int64(i))}, Err: errStale}
	}
	b.EvalBatch(t.Ctx, calls)
	for i, c := range calls {
		if want := []store.Value{store.BulkValue(strconv.Itoa(i))}; c.Err != nil || !slices.Equal(c.Reply, want) {
			t.Errorf("call %d of a batch of %d: got reply %v and error %v, want %v and none", i, len(calls), c.Reply, c.Err, want)
		}
	}
	// The keys of the first two calls, one after the other, are the same text, divided at another
	// place. The third has its first key from the first. A call that fails is the last.
	k, one := t.Key("alike", ""), []store.Arg{scripts.LongMillis, store.IntArg(1), store.IntArg(1)}
	alike := []store.Eval{
		{Script: scripts.Put, Keys: []string{k + "a", k + "b" + k + "c"}, Args: one},
		{Script: scripts.Put, Keys: []string{k + "a" + k + "b", k + "c"}, Args: one},
		{Script: scripts.Put, Keys: []string{k + "a", k + "d"}, Args: one},
		{Script: scripts.Broken, Keys: []string{k + "e"}},
	}
	b.EvalBatch(t.Ctx, alike)
	for i, c := range alike[:3] {
		if c.Err != nil {
			t.Errorf("call %d of a batch, whose last call fails: got error %v, want none", i, c.Err)
		}
		t.Holds(store.BulkValue("p1 1"), c.Keys, "call %d of a batch, whose last call fails, puts 1 to the keys %q", i, c.Keys)
	}
}

// errStale is the Err of calls before EvalBatch, which must set it to nil.
var errStale = errors.New("the Err from before the batch, which EvalBatch must set")

func checkBatchScriptLoss(t *suite.T) { batches(t, batcher(t), t.DropScripts) }

// batches counts with batches on pairs of keys, each batch after a call of before. Of the ten
// calls for a pair, three fail.
func batches(t *suite.T, b store.Batcher, before func()) {
	const pairs, turns, each = 10, 10, 7
	for round := range int64(3) {
		calls := make([]store.Eval, pairs*turns)
		for i := range calls {
			calls[i] = store.Eval{Script: scripts.Counter, Keys: t.Keys(strconv.Itoa(i%pairs), 2), Reply: []store.Value{store.BulkValue("before")}, Err: errStale}
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
			case errors.Is(c.Err, errStale):
				t.Errorf("batch %d, call %d: its Err was set before, and EvalBatch left it: it must set the Err of every call, to nil if the call succeeds", round, i)
			case len(c.Reply) == 0 || c.Reply[0].Str() != "before" || c.Err != nil && len(c.Reply) > 1:
				t.Errorf("batch %d, call %d, whose Reply held [before]: got reply %v and error %v, want the reply appended to it, and [before] if the call fails", round, i, c.Reply, c.Err)
			case i/pairs == 7 && c.Err != nil || want != nil && errors.Is(c.Err, want):
			case want != nil:
				t.Errorf("batch %d, call %d, which must fail: got reply %v and error %v, want %v", round, i, c.Reply, c.Err, want)
			case i/pairs == 7:
				t.Errorf("batch %d, call %d, which has no keys: got reply %v and no error, want one", round, i, c.Reply)
			case c.Err != nil:
				t.Errorf("batch %d, call %d: got error %v, want none: calls that fail must not affect the others", round, i, c.Err)
			case n < 0 || n >= each || got[i%pairs][n]:
				t.Errorf("batch %d, call %d, which adds 1 to two keys: it read %v, want the same number from %d to %d for both keys, and each number in one call of the batch: a call was lost, ran twice, or saw another one's update", round, i, c.Reply[1:], round*each, round*each+each-1)
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
			t.Errorf("call %d of a batch whose context was done: got error %v, want %v without ErrUnavailable", i, c.Err, context.Canceled)
		}
		t.Holds(store.Value{}, c.Keys, "call %d of a batch whose context was done, which must not run", i)
	}
}
