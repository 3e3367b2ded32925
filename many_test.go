package weir_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
)

// A batching store is a store.Batcher that records the lengths of its batches.
type batching struct {
	*recorder
	batches []int
}

func (b *batching) EvalBatch(ctx context.Context, calls []store.Eval) {
	b.batches = append(b.batches, len(calls))
	for i := range calls {
		c := &calls[i]
		c.Reply, c.Err = b.Store.Eval(ctx, c.Script, c.Keys, c.Args, c.Reply)
	}
}

// DoMany answers peeks as Peek does, with one MGet and one Time. Package conformance compares more
// of them.
func TestDoManyPeeks(t *testing.T) {
	t.Parallel()
	st := &recorder{Store: weirtest.NewStore(weirtest.NewClock())}
	l := weirtest.NewPolicy(t, st, weirtest.Rules(window("a", 4), costing(rateRule, 3),
		weir.Rule{Name: "d", Algorithm: algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: 3 * time.Second, Limit: 20}}}}))
	weirtest.Plant(t, st.Store, "weir:t:{f}:rate.g2", store.Tag{'g', '1'}, 1, 2)
	weirtest.Allow(t, l, keyU)
	requests := []weir.Request{{Key: keyU.Key, Op: weir.Peek}, {Key: weir.KeyOf("f"), Op: weir.Peek}, {Key: weir.KeyOf("new"), Op: weir.Peek, Cost: 4}, {Op: weir.Peek}, {Key: weir.KeyOf("new"), Op: weir.Peek, Cost: 5}}
	*st = recorder{Store: st.Store}
	got := l.DoMany(t.Context(), requests)
	if st.mgets != 1 || st.times != 1 || st.evals != 0 || len(st.keys) != 4*5 {
		t.Errorf("%d MGets of %d keys, %d Times, %d Evals, want one MGet of 20 and one Time", st.mgets, len(st.keys), st.times, st.evals)
	}
	for i, r := range requests {
		want, err := l.Decide(t.Context(), r, nil)
		if got[i].Result != want || (got[i].Err == nil) != (err == nil) || errors.Is(got[i].Err, store.ErrForeign) != (i == 1) {
			t.Errorf("request %d: got %+v, and Decide says %+v, %v", i, got[i], want, err)
		}
	}
}

// DoMany sends other requests than peeks, and peeks at state that MGet cannot read, in
// one batch. If the store has no batches, each request is one call.
func TestDoManyBatches(t *testing.T) {
	t.Parallel()
	gcra := []weir.Rule{{Name: "a", Algorithm: weirtest.PerSecond}}
	log := append(gcra, weir.Rule{Name: "b", Algorithm: algorithm.SlidingLog{Limit: 3, Window: time.Minute}})
	u, v := weir.KeyOf("u"), weir.KeyOf("v")
	for _, tt := range []struct {
		name     string
		rules    []weir.Rule
		requests []weir.Request
		want     string // for each answer: allowed, denied, or an invalid request
		batch    int    // calls
	}{
		{"nothing", gcra, nil, "", 0},
		{"nothing valid", gcra, []weir.Request{{}, {Cost: -1, Key: u}}, "!!", 0},
		{"no peek valid", gcra, []weir.Request{{Op: weir.Peek}}, "!", 0},
		{"decisions", gcra, []weir.Request{{Key: u, Cost: 4}, {Key: v, Cost: 6}, {Cost: 3}, {Key: v, Cost: 5}}, "+-!+", 3},
		{"one that is no peek", gcra, []weir.Request{{Key: u, Op: weir.Peek}, {Key: u, Cost: 3}}, "++", 2},
		{"peeks at a set", log, []weir.Request{{Key: u, Op: weir.Peek, Cost: 3}, {Key: u, Op: weir.Peek, Cost: 4}}, "+-", 2},
		{"each op", gcra, []weir.Request{{Key: u, ID: "x"}, {Key: v, Op: weir.Refund, ID: "y"}, {Key: v, Op: weir.Reset}, {Key: weir.KeyOf("w"), Op: weir.TakeUpTo, Cost: 9}}, "+-++", 4},
	} {
		for _, batches := range []bool{true, false} {
			st := &batching{recorder: &recorder{Store: weirtest.NewStore(weirtest.NewClock())}}
			var of store.Store = st.recorder
			evals, lengths := tt.batch, []int(nil)
			if batches {
				if of, evals = st, 0; tt.batch > 0 {
					lengths = []int{tt.batch}
				}
			}
			got := ""
			for _, a := range weirtest.NewPolicy(t, of, weirtest.Rules(tt.rules...)).DoMany(t.Context(), tt.requests) {
				switch {
				case a.Err != nil && a.Result == (weir.Result{}):
					got += "!"
				case a.Err == nil && a.Result.Allowed:
					got += "+"
				case a.Err == nil:
					got += "-"
				}
			}
			if got != tt.want || st.evals != evals || st.mgets+st.times > 0 || !slices.Equal(st.batches, lengths) {
				t.Errorf("%s: %q, %d Evals, %d other calls, batches %v, want %q, %d, 0, %v", tt.name, got, st.evals, st.mgets+st.times, st.batches, tt.want, evals, lengths)
			}
		}
	}
}

// A together is a Decider that decides many requests together, and records how many.
type together struct {
	weir.Decider
	sizes *[]int
}

func (d together) DecideMany(ctx context.Context, requests []weir.Request, answers []weir.Answer) {
	*d.sizes = append(*d.sizes, len(requests))
	weir.DecideMany(ctx, d.Decider, requests, answers)
}

// DecideMany decides requests together with a ManyDecider, and otherwise one by one. So
// DoMany keeps its batches if every wrapper is a ManyDecider.
func TestDecideMany(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		opaque  bool // a wrapper is no ManyDecider
		batches []int
	}{{false, []int{3}}, {true, nil}} {
		st := &batching{recorder: &recorder{Store: weirtest.NewStore(weirtest.NewClock())}}
		sizes := new([]int)
		wrappers := []weir.Wrapper{weirtest.Around(func(next weir.Decider) together { return together{next, sizes} })}
		if tt.opaque {
			wrappers = append(wrappers, weirtest.Pass)
		}
		l := weirtest.Wrap(t, weirtest.New(t, st, weirtest.PerSecond), wrappers...)
		answers := l.DoMany(t.Context(), []weir.Request{{Key: keyU.Key, Cost: 4}, {Key: keyU.Key, Cost: 2}, {}, keyU})
		for i, want := range []bool{true, false, false, true} {
			if a := answers[i]; a.Result.Allowed != want || (a.Err != nil) != (i == 2) {
				t.Errorf("a wrapper is no ManyDecider: %v: answer %d: got %+v, want allowed: %v", tt.opaque, i, a, want)
			}
		}
		if !slices.Equal(*sizes, []int{4}) || !slices.Equal(st.batches, tt.batches) || tt.opaque == (st.evals == 0) {
			t.Errorf("a wrapper is no ManyDecider: %v: %d requests together, batches of %d, and %d calls", tt.opaque, *sizes, st.batches, st.evals)
		}
	}
}
