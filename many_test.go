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

// DoMany answers peeks as Peek does, with one MGet and one Time.
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
	ctx := t.Context()
	var requests []weir.Request
	for i := range 30 {
		key := weir.KeyOf(fmt.Sprint("x", i%3), fmt.Sprint("y", i%10))
		requests = append(requests, weir.Request{Key: key, Op: weir.Peek, Cost: int64(i % 3)})
		for range i % 4 {
			if _, err := l.Decide(ctx, weir.Request{Key: key}, nil); err != nil {
				t.Fatal(err)
			}
			c.Advance(50 * time.Millisecond)
		}
	}
	requests = append(requests, weir.Request{Key: weir.KeyOf("nobody", "knows"), Op: weir.Peek}, requests[7])

	before := dump(t, mem)
	*st = recorder{Store: mem}
	got := l.DoMany(ctx, requests)
	if len(got) != len(requests) {
		t.Fatalf("%d answers to %d requests", len(got), len(requests))
	}
	if st.mgets != 1 || st.times != 1 || st.evals != 0 || len(st.keys) != len(requests)*6 {
		t.Errorf("%d MGets of %d keys, %d Times, %d Evals, want one MGet of %d and one Time", st.mgets, len(st.keys), st.times, st.evals, len(requests)*6)
	}
	if after := dump(t, mem); !slices.Equal(before, after) {
		t.Errorf("changed %q to %q", before, after)
	}
	denied := 0
	for i, r := range requests {
		want, err := l.Decide(ctx, r, nil)
		if err != nil || got[i] != (weir.Answer{Result: want}) {
			t.Errorf("request %d: got %+v, and Decide says %+v, %v", i, got[i], want, err)
		}
		if !want.Allowed {
			denied++
		}
	}
	if denied == 0 || denied == len(requests) {
		t.Errorf("%d of %d denied: the test sees one kind only", denied, len(requests))
	}
}

// If a key holds a foreign value, only the request for that key fails. The error names
// the key.
func TestDoManyForeign(t *testing.T) {
	t.Parallel()
	st := weirtest.NewStore(weirtest.NewClock())
	l := weirtest.NewPolicy(t, st, by(1, "all", "all"))
	ctx := t.Context()
	if _, err := l.Allow(ctx, "v"); err != nil {
		t.Fatal(err)
	}
	weirtest.Plant(t, st, "weir:t:{u}:b.g2", store.Tag{'x', '1'}, 1)
	weirtest.Plant(t, st, "weir:t:{w}:a.g2", store.Tag{'g', '1'}, 1, 2)
	keys := []string{"u", "v", "w", "new", ""}
	var requests []weir.Request
	for _, k := range keys {
		requests = append(requests, weir.Request{Key: weir.KeyOf(k), Op: weir.Peek})
	}
	for i, a := range l.DoMany(ctx, requests) {
		want, err := l.Peek(ctx, keys[i])
		if a.Result != want || (a.Err != nil) != (err != nil) {
			t.Errorf("key %q: got %+v, and Peek says %+v, %v", keys[i], a, want, err)
		}
		switch keys[i] {
		case "u":
			if !errors.Is(a.Err, store.ErrForeign) || !strings.Contains(a.Err.Error(), `"weir:t:{u}:b.g2"`) {
				t.Errorf("got %v, want ErrForeign that names the key", a.Err)
			}
		case "":
			if !errors.Is(a.Err, weir.ErrInvalidKey) {
				t.Errorf("got %v, want ErrInvalidKey", a.Err)
			}
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
			t.Run(fmt.Sprint(tt.name, ", batches ", batches), func(t *testing.T) {
				t.Parallel()
				st := &batching{recorder: &recorder{Store: weirtest.NewStore(weirtest.NewClock())}}
				var of store.Store = st.recorder
				if batches {
					of = st
				}
				l := weirtest.NewPolicy(t, of, weirtest.Rules(tt.rules...))
				got := ""
				for i, a := range l.DoMany(t.Context(), tt.requests) {
					switch {
					case a.Err != nil && a.Result != (weir.Result{}):
						t.Errorf("answer %d: got %+v", i, a)
					case a.Err != nil:
						got += "!"
					case a.Result.Allowed:
						got += "+"
					default:
						got += "-"
					}
				}
				if got != tt.want {
					t.Errorf("answers %q, want %q", got, tt.want)
				}
				evals, lengths := tt.batch, []int(nil)
				if batches {
					evals = 0
					if tt.batch > 0 {
						lengths = []int{tt.batch}
					}
				}
				if st.evals != evals || st.mgets+st.times > 0 || !slices.Equal(st.batches, lengths) {
					t.Errorf("%d Evals, %d other calls, batches %v, want %d, 0, %v", st.evals, st.mgets+st.times, st.batches, evals, lengths)
				}
			})
		}
	}
}
