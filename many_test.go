package weir_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
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

// DoMany answers peeks as Peek does, with one MGet and one Time. If a key holds a foreign value,
// only the request for that key fails, and the error names the key.
func TestDoManyPeeks(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	mem := weirtest.NewStore(c)
	st := &recorder{Store: mem}
	l := weirtest.NewPolicy(t, st, weir.Policy{Segments: []string{"x", "y"}, Rules: []weir.Rule{
		{Name: "a", By: []string{"x"}, Algorithm: weirtest.Window(40, time.Minute)},
		{Name: "b", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 4}},
		{Name: "c", Algorithm: weirtest.PerSecond, Cost: 3},
		{Name: "d", Algorithm: algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: 3 * time.Second, Limit: 20}}}},
	}})
	var requests []weir.Request
	for i := range 30 {
		key := weir.KeyOf(fmt.Sprint("x", i%3), fmt.Sprint("y", i%10))
		requests = append(requests, weir.Request{Key: key, Op: weir.Peek, Cost: int64(i % 3)})
		for range i % 4 {
			weirtest.Decide(t, l, weir.Request{Key: key})
			c.Advance(50 * time.Millisecond)
		}
	}
	const foreign = "weir:t:{x0}:b.g2:y99"
	weirtest.Plant(t, mem, foreign, store.Tag{'g', '1'}, 1, 2)
	requests = append(requests, weir.Request{Key: weir.KeyOf("x0", "y99"), Op: weir.Peek}, weir.Request{Key: weir.KeyOf("nobody", "knows"), Op: weir.Peek}, requests[7])
	before := dump(t, mem)
	*st = recorder{Store: mem}
	got := l.DoMany(t.Context(), append(requests, weir.Request{Op: weir.Peek}))
	if st.mgets != 1 || st.times != 1 || st.evals != 0 || len(st.keys) != len(requests)*6 {
		t.Errorf("%d MGets of %d keys, %d Times, %d Evals, want one MGet of %d and one Time", st.mgets, len(st.keys), st.times, st.evals, len(requests)*6)
	}
	if after := dump(t, mem); !slices.Equal(before, after) {
		t.Errorf("changed %q to %q", before, after)
	}
	denied := 0
	for i, r := range requests {
		want, err := l.Decide(t.Context(), r, nil)
		if got[i].Result != want || (got[i].Err == nil) != (err == nil) {
			t.Errorf("request %d: got %+v, and Decide says %+v, %v", i, got[i], want, err)
		}
		if err := got[i].Err; i == 30 && (!errors.Is(err, store.ErrForeign) || !strings.Contains(err.Error(), `"`+foreign+`"`)) {
			t.Errorf("got %v, want an ErrForeign that names the key", err)
		}
		if err == nil && !want.Allowed {
			denied++
		}
	}
	if last := got[len(requests)]; !errors.Is(last.Err, weir.ErrInvalidKey) || denied == 0 || denied >= len(requests)-1 {
		t.Errorf("got %+v for an invalid key, and %d of %d denied", last, denied, len(requests))
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
