package weir_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
)

// Force consumes tokens past the limit. Then requests are denied for exactly as long as
// the debt takes to be refilled.
func TestForce(t *testing.T) {
	t.Parallel()
	for _, a := range append(refundable, algorithm.MetadataWindow{Limit: 5, Window: time.Hour}) {
		c := weirtest.NewClock()
		l := weirtest.New(t, weirtest.NewStore(c), a)
		each := make([]weir.Result, 1)
		for i, cost := range []int64{3, 4, 2} {
			res := weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf("k"), Op: weir.Force, Cost: cost}, each...)
			if want := max(5-3-4*int64(min(i, 1)), 0); !res.Allowed || res.Granted != cost || res.RetryAfter != 0 || res.Delay != 0 || i > 0 && res.Remaining != want || each[0] != res {
				t.Errorf("%+v: Force %d: got %+v, and of the rule %+v, want it allowed, and %d left", a, cost, res, each[0], want)
			}
		}
		peek := func(cost int64) weir.Result {
			return weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf("k"), Op: weir.Peek, Cost: cost})
		}
		start := c.Now()
		one, five := peek(1), peek(5)
		for cost, denied := range map[int64]weir.Result{1: one, 5: five} {
			if denied.Allowed || denied.Remaining != 0 || denied.RetryAfter <= 0 || denied.RetryAfter == weir.Never {
				t.Fatalf("%+v: in debt: %d: got %+v, want it denied", a, cost, denied)
			}
			c.Advance(start.Add(denied.RetryAfter - time.Microsecond).Sub(c.Now()))
			if res := peek(cost); res.Allowed || res.RetryAfter != time.Microsecond {
				t.Errorf("%+v: %d, a microsecond too early: got %+v, want it denied", a, cost, res)
			}
			c.Advance(time.Microsecond)
			if res := peek(cost); !res.Allowed {
				t.Errorf("%+v: %d, after RetryAfter: got %+v, want it allowed", a, cost, res)
			}
		}
		c.Advance(start.Add(one.ResetAfter).Sub(c.Now()))
		if res := peek(5); !res.Allowed || res.ResetAfter != 0 {
			t.Errorf("%+v: after ResetAfter: got %+v, want all tokens", a, res)
		}
	}
}

// A Force consumes the same number of tokens from all rules without a Cost, and the Cost
// of the others, even past their limits. If a debt has no room for all tokens, Granted is
// lower.
func TestForceOfSeveralRules(t *testing.T) {
	t.Parallel()
	l := weirtest.NewPolicy(t, weirtest.NewStore(weirtest.NewClock()), weirtest.Rules(
		weir.Rule{Name: "tokens", Algorithm: weirtest.Window(5, time.Hour)},
		weir.Rule{Name: "calls", Algorithm: algorithm.SlidingLog{Limit: 1, Window: time.Hour}, Cost: 1},
		weir.Rule{Name: "log", Algorithm: algorithm.SlidingLog{Limit: 10, Window: time.Hour}}))
	each := make([]weir.Result, 3)
	const most = algorithm.MaxLogTokens - 10
	for i, want := range []int64{most, 5, 0, 0} {
		r := weir.Request{Key: weir.KeyOf("k"), Op: weir.Force, Cost: most, ID: string(rune('a' + i))}
		res := weirtest.Decide(t, l, r, each...)
		if !res.Allowed || res.Granted != want || each[0].Granted != want || each[1].Granted != 1 || each[2].Granted != want {
			t.Errorf("Force %d: got %+v, and of the rules %+v, want %d tokens", i, res, each, want)
		}
		again := weirtest.Decide(t, l, r)
		if !again.Replayed || again.Granted != want {
			t.Errorf("Force %d again: got %+v, want a repeat", i, again)
		}
	}
	if res := weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf("k"), Op: weir.Peek}, each...); res.Allowed || each[0].Remaining != 0 || each[2].Remaining != 0 {
		t.Errorf("got %+v, want all rules in debt", each)
	}
	// A refund of the first Force returns its tokens.
	if ok, err := l.Refund(t.Context(), weir.Request{Key: weir.KeyOf("k"), ID: "a", Cost: most}); !ok.Found || err != nil {
		t.Errorf("Refund = %v, %v", ok, err)
	}
	if weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf("k"), Op: weir.Peek}, each...); each[2].Remaining != 5 || each[0].Remaining != 0 {
		t.Errorf("got %+v, want 5 tokens consumed from each rule", each)
	}
}

// The errors of Force say what is wrong, and consume nothing.
func TestForceErrors(t *testing.T) {
	t.Parallel()
	conc := weir.Rule{Name: "leases", Algorithm: algorithm.Concurrency{Limit: 5, Lease: time.Minute}, Cost: 1}
	fixed := weir.Rule{Name: "window", Algorithm: weirtest.Window(5, time.Hour)}
	log := weir.Rule{Name: "log", Algorithm: weirtest.Capped(algorithm.SlidingLog{Limit: 2000, Window: time.Hour}, 1000)}
	small := weir.Rule{Name: "small", Algorithm: algorithm.SlidingLog{Limit: 20, Window: time.Hour}}
	for _, tt := range []struct {
		rules []weir.Rule
		r     weir.Request
		is    error
		says  string
	}{
		{[]weir.Rule{fixed, conc}, weir.Request{ID: "x"}, weir.ErrUnsupported, `Force: rule "leases" is a concurrency, which cannot be in debt`},
		{[]weir.Rule{{Name: "huge", Algorithm: weirtest.Window(algorithm.MaxTokens, time.Hour)}}, weir.Request{}, weir.ErrUnsupported, `rule "huge" is a fixedwindow, which cannot be in debt with the limit 9007199254740991 in 1h0m0s: lower the limit`},
		{[]weir.Rule{fixed}, weir.Request{MaxWait: time.Second}, weir.ErrUnsupported, "Force: Request.MaxWait is 1s: it must be 0"},
		{[]weir.Rule{fixed}, weir.Request{Cost: -1}, weir.ErrInvalidCost, "Request.Cost is -1"},
		{[]weir.Rule{fixed, log}, weir.Request{Cost: 1001}, weir.ErrInvalidCost, `the cost is 1001: rule "log" is a slidinglog, which can consume at most 1000 at once`},
		{[]weir.Rule{small}, weir.Request{Cost: 1 << 52}, weir.ErrInvalidCost, `the cost is 4503599627370496: rule "small" is a slidinglog, which can consume at most 4503599627370495 at once`},
		{[]weir.Rule{fixed}, weir.Request{Cost: 1 << 60}, weir.ErrInvalidCost, "which can consume at most 9007199254740991 at once"},
		{[]weir.Rule{fixed}, weir.Request{Metadata: "x"}, weir.ErrUnsupported, "Request.Metadata"},
		{[]weir.Rule{{Name: "list", Algorithm: algorithm.MetadataWindow{Limit: 5, Window: time.Hour}}}, weir.Request{ID: "x"}, weir.ErrUnsupported, "Request.ID"},
	} {
		st := weirtest.NewStore(weirtest.NewClock())
		l := weirtest.NewPolicy(t, st, weirtest.Rules(tt.rules...))
		tt.r.Key, tt.r.Op = weir.KeyOf("k"), weir.Force
		res, err := l.Decide(t.Context(), tt.r, nil)
		if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.says) || res != (weir.Result{}) || len(keysIn(st)) > 0 {
			t.Errorf("%+v: got %+v, %v, want an error that says %q", tt.r, res, err, tt.says)
		}
	}
	l := weirtest.NewPolicy(t, weirtest.NewStore(weirtest.NewClock()), weirtest.Rules(fixed))
	if _, err := l.Force(t.Context(), 0, "k"); !errors.Is(err, weir.ErrInvalidCost) {
		t.Errorf("Force 0: %v, want ErrInvalidCost", err)
	}
	if res, err := l.Force(t.Context(), 7, "k"); err != nil || res.Granted != 7 || res.Remaining != 0 {
		t.Errorf("Force 7: got %+v, %v", res, err)
	}
}
