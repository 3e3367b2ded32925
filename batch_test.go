package weir_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/denycache"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
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

// A shadow rule decides as if it were the only rule, and the other rules as if it were
// not there. So a limiter with both answers like two limiters.
func TestShadowAlone(t *testing.T) {
	t.Parallel()
	seed := weirtest.Seed(t)
	list := []algorithm.Algorithm{
		algorithm.GCRA{Rate: algorithm.Rate{Count: 7, Period: time.Minute}, Burst: 5}, algorithm.LeakyBucket{Rate: algorithm.PerMinute(1), Queue: 4},
		weirtest.Window(5, time.Hour), algorithm.SlidingLog{Limit: 5, Window: time.Hour},
	}
	for _, candidate := range list {
		for _, live := range list {
			r, c := rand.New(rand.NewPCG(seed, 0)), weirtest.NewClock()
			next, apart := weir.Rule{Name: "next", Algorithm: candidate}, weirtest.NewStore(c)
			both := weirtest.NewPolicy(t, weirtest.NewStore(c), weirtest.Rules(weir.Rule{Algorithm: live}, shadow(next)))
			one, other := weirtest.New(t, apart, live), weirtest.NewPolicy(t, apart, weirtest.Rules(next))
			denials := 0
			for i := range 300 {
				c.Advance(time.Duration(r.IntN(8)) * time.Second)
				q := weir.Request{Key: keyU.Key, Op: weir.Op(r.IntN(int(weir.Settle) + 1)), Cost: r.Int64N(4), ID: strconv.Itoa(r.IntN(20))}
				if q.Op == weir.Settle {
					q.Actual = weir.ActualCost(r.Int64N(6))
				} else if q.Op < weir.Refund && r.IntN(2) == 0 {
					q.ID = "x" + strconv.Itoa(i)
				}
				got, err := both.Decide(t.Context(), q, nil)
				says := got.Shadow
				got.Shadow = nil
				if want, wantErr := one.Decide(t.Context(), q, nil); got != want || fmt.Sprint(err) != fmt.Sprint(wantErr) {
					t.Fatalf("seed %d, %+v beside %+v, %d: %+v:\ngot  %+v, %v\nwant %+v, %v", seed, candidate, live, i, q, got, err, want, wantErr)
				}
				if err != nil && (!errors.Is(err, weir.ErrInvalidCost) || q.Op == weir.Settle) {
					continue // the shadow rule is not asked
				}
				if q.Op == weir.Refund {
					q.Cost = 0
				}
				want, wantErr := other.Decide(t.Context(), q, nil)
				if wantErr == nil && !want.Allowed && q.Op <= weir.Force {
					wantErr = &weir.DeniedError{Result: want}
					denials++
				}
				if err == nil && fmt.Sprint(says) != fmt.Sprint(wantErr) {
					t.Fatalf("seed %d, %+v, %d: %+v: the shadow rule says %v, want %v", seed, candidate, i, q, says, wantErr)
				}
			}
			if denials < 5 {
				t.Errorf("seed %d, %+v: it denied %d requests, want more", seed, candidate, denials)
			}
		}
	}
}

// TestShadow has what shadow rules make of a request, beside the others.
func TestShadow(t *testing.T) {
	t.Parallel()
	job := func(name string, limit int64) weir.Rule {
		return weir.Rule{Name: name, Algorithm: algorithm.Concurrency{Limit: limit, Lease: time.Minute}}
	}
	of := func(r weir.Request, amounts map[string]int64) weir.Request { r.Costs = weir.CostsOf(amounts); return r }
	to := func(amounts map[string]int64) weir.Request {
		return weir.Request{Op: weir.Settle, ID: "x", Actual: weir.ActualCosts(weir.CostsOf(amounts))}
	}
	units := func(list ...weir.Rule) []weir.Policy {
		return []weir.Policy{{Units: []string{"bytes", "tried"}, Rules: append(list, weir.Rule{Name: "bytes", Unit: "bytes", Algorithm: weirtest.Window(100, time.Hour)})}}
	}
	play(t, []trace{
		{name: "the longest RetryAfter", policies: rules(window("w", 9), shadow(weir.Rule{Name: "short", Algorithm: weirtest.Window(1, time.Minute)}), shadow(window("long", 2)), shadow(minute("other", 6))), steps: []step{
			{0, 0, ask(1, ""), "1", "8 0 1 5"},
			{0, 0, ask(1, ""), "1, denied by short in 1m0s: w 7 of 9, full in 1h0m0s", "7 0 0 4"},
			{0, 0, ask(1, ""), "1, denied by long in 1h0m0s", "6 0 0 3"},
			{0, 0, do(weir.Peek, 1, ""), "0, denied by long in 1h0m0s", "6 0 0 3"},
			{0, 0, ask(7, ""), "denied for 1h0m0s, denied by short in " + weir.Never.String(), "6 0 0 3"},
			{0, 0, weir.Request{Op: weir.Reset}, "true", "9 1 2 6"},
		}},
		{name: "metadata", policies: rules(metaRule, shadow(rateRule)), steps: []step{
			{0, 0, weir.Request{Metadata: "m"}, "1", "4 4"},
		}},
		{name: "an unsupported wait", policies: rules(rateRule, shadow(window("w", 9))), steps: []step{
			{0, 0, weir.Request{MaxWait: second}, `1, weir: MaxWait, Wait and Reserve: rule "w" is a fixedwindow, whose tokens cannot be reserved: use algorithm.GCRA, TokenBucket or LeakyBucket: rate 4 of 5, full in 1s`, "4 9"},
		}},
		{name: "leases", policies: rules(job("leases", 2), shadow(job("fewer", 1)), shadow(window("starts", 3))), steps: []step{
			{0, 0, ask(1, "a"), "1", "1 0 2"},
			{0, 0, ask(1, "b"), "1, denied by fewer in 1m0s", "0 0 1"},
			{0, 0, do(weir.Renew, 0, "b"), "true", "0 0 1"},
			{0, 0, ask(1, "c"), "denied for 1m0s, denied by fewer in 1m0s", "0 0 0"},
			{0, 0, do(weir.Release, 0, "a"), "true", "1 1 0"},
			{0, 0, ask(1, "a"), "1, denied by starts in 1h0m0s", "0 0 0"}, // the ID names a lease, and no decision
		}},
		{name: "a Cost", policies: rules(window("tokens", 100), shadow(costing(window("calls", 10), 5))), steps: []step{
			{0, 0, do(weir.TakeUpTo, 20, "x"), "20", "80 5"},
			{0, 0, do(weir.TakeUpTo, 20, "x"), "repeat, 20", "80 5"},
			{0, 0, settle(7, "x"), "found true, cost 7", "93 5"},
			{0, 0, do(weir.TakeUpTo, 20, "y"), "20", "73 0"},
			{0, 0, do(weir.TakeUpTo, 20, "z"), "20, denied by calls in 1h0m0s", "53 0"},
		}},
		{name: "a unit", policies: units(shadow(weir.Rule{Name: "next", Unit: "tried", Algorithm: weirtest.Window(5, time.Hour)})), steps: []step{
			{0, 0, of(ask(1, ""), map[string]int64{"bytes": 1}), `1, weir: rule "next" counts the unit "tried", which Request.Costs does not name: name it with CostsOf, even if its amount is 0, and call Decide or another method that takes a Request: bytes 99 of 100, full in 1h0m0s`, "99 5"},
			{0, 0, of(ask(1, "x"), map[string]int64{"bytes": 1, "tried": 4}), "1", "98 1"},
			{0, 0, of(ask(1, ""), map[string]int64{"bytes": 1, "tried": 2}), "1, denied by next in 1h0m0s", "97 1"},
			{0, 0, to(map[string]int64{"tried": 2}), "found true, cost 0", "97 3"},
			{0, 0, of(do(weir.Refund, 0, "x"), map[string]int64{"bytes": 1, "tried": 4}), "found true, cost 0", "98 5"},
		}},
		{name: "no unit beside one", policies: units(shadow(rateRule)), steps: []step{
			{0, 0, of(ask(1, "x"), map[string]int64{"bytes": 1}), "1", "99 4"},
			{0, 0, to(map[string]int64{"bytes": 2}), "found true, cost 0", "98 4"},
			{0, 0, weir.Request{Op: weir.Reset}, "true", "100 5"},
		}},
	})
}

// A request takes one call of a Batcher, for any number of shadow rules, and DoMany too.
func TestShadowRoundTrip(t *testing.T) {
	t.Parallel()
	st := &batching{recorder: &recorder{Store: memory.New(nil)}}
	l := weirtest.NewPolicy(t, st, weirtest.Rules(rateRule, shadow(window("next", 1)), shadow(window("third", 2))))
	weirtest.Allow(t, l, keyU)
	answers := l.DoMany(t.Context(), []weir.Request{keyU, {}, {Key: weir.KeyOf("other")}})
	if want := []int{3, 6}; !slices.Equal(st.batches, want) || st.calls() != 0 {
		t.Errorf("got batches of %d calls and %d other calls, want %d and none", st.batches, st.calls(), want)
	}
	for i, want := range []string{"1, denied by next", "! weir: the key has 0 segments", "1: rate 4 of 5"} {
		if got := answerOf(weir.Request{}, answers[i].Result, answers[i].Err); !strings.HasPrefix(got, want) {
			t.Errorf("answer %d: got %s, want %s", i, got, want)
		}
	}
}

// An error of a shadow rule changes no answer. If the others cannot decide, there is no Result,
// whatever a shadow rule says.
func TestShadowError(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	l := weirtest.NewPolicy(t, st, weirtest.Rules(rateRule, shadow(window("next", 1))))
	weirtest.Plant(t, st, "weir:t:{u}:next.f2", store.Tag{'x', '1'}, 1)
	weirtest.Plant(t, st, "weir:t:{v}:rate.g2", store.Tag{'x', '1'}, 1)
	each := make([]weir.Result, 1)
	res := weirtest.Decide(t, l, keyU, each...)
	if says := res.Shadow; !errors.Is(says, store.ErrForeign) || errors.Is(says, weir.ErrDenied) {
		t.Errorf("the shadow rule says %v, want an ErrForeign", says)
	}
	if res.Shadow = nil; !res.Allowed || res.Remaining != 4 || res != each[0] {
		t.Errorf("got %+v, each %+v, want it allowed with 4 left", res, each)
	}
	// It does not decide if a wrapper answers.
	cached := weirtest.Wrap(t, l, denycache.New(nil).Wrap)
	for i := range 2 {
		if res := weirtest.Decide(t, cached, weir.Request{Key: weir.KeyOf("u"), Cost: 5}); res.Allowed || (res.Shadow == nil) != (i > 0) {
			t.Errorf("denial %d: got %+v", i, res)
		}
	}
	for range 2 {
		if res, err := l.Allow(t.Context(), "v"); !errors.Is(err, store.ErrForeign) || res != (weir.Result{}) {
			t.Errorf("got %+v, %v, want an ErrForeign alone", res, err)
		}
	}
}

// A shadow rule's By can share no segment with the others, and does not move their keys. A Reset
// leaves a shadow rule alone that is not identified by the full key.
func TestShadowKeys(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	p := by(2, "1", "0")
	p.Rules[1].Shadow = true
	l := weirtest.NewPolicy(t, st, p)
	weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("acme", "ann")})
	keys := []string{"weir:t:{acme}:b.g2", "weir:t:{ann}:a.g2"}
	if got := keysIn(st); !slices.Equal(got, keys) || l.StorePrefix() != "weir:t:{" || l.StorePrefix("acme", "ann") != "weir:t:{a" {
		t.Errorf("the keys are %q, want %q; the prefix is %q", got, keys, l.StorePrefix("acme", "ann"))
	}
	if err := l.Reset(t.Context(), "acme", "ann"); !errors.Is(err, weir.ErrInvalidRule) {
		t.Errorf("Reset: got %v, want an ErrInvalidRule, as without the shadow rule", err)
	}
	p.Rules[0].By = nil
	l = weirtest.NewPolicy(t, st, p)
	weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("acme", "bob")})
	if res := weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("acme", "bob"), Op: weir.Reset}); res.Shadow != nil || !slices.Equal(keysIn(st), keys) {
		t.Errorf("Reset: got %+v, and the keys are %q, want %q", res, keysIn(st), keys)
	}
}
