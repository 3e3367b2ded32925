package weir_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// Settle makes the actual cost the cost of a decision: less, more, and more than the limit. A
// repeated Settle changes nothing.
func TestSettle(t *testing.T) {
	t.Parallel()
	for _, a := range refundable {
		c := newClock()
		l := mustNew(t, newStore(c), a)
		r := weir.Request{Key: weir.KeyOf("k"), Cost: 3, ID: "x"}
		if first := decide(t, l, r); !first.Allowed {
			t.Fatalf("%+v: got %+v", a, first)
		}
		for _, actual := range []int64{3, 1, 4, 9, 8} {
			for range 2 {
				if ok, err := l.Settle(t.Context(), r, actual); !ok || err != nil {
					t.Fatalf("%+v: Settle at %d = %v, %v", a, actual, ok, err)
				}
				if res := decide(t, l, r); !res.Replayed || res.Granted != actual {
					t.Errorf("%+v: settled at %d: a repeat: got %+v", a, actual, res)
				}
				res := decide(t, l, weir.Request{Key: r.Key, Op: weir.Peek})
				if _, queues := a.(algorithm.LeakyBucket); queues {
					if want := time.Duration(actual) * time.Minute; res.ResetAfter != want {
						t.Errorf("%+v: settled at %d: got %+v, want the last turn in %v", a, actual, res, want)
					}
				} else if want := max(5-actual, 0); res.Remaining != want {
					t.Errorf("%+v: settled at %d: got %+v, want %d left", a, actual, res, want)
				}
			}
		}
		if ok, err := l.Refund(t.Context(), r); !ok || err != nil {
			t.Errorf("%+v: Refund = %v, %v", a, ok, err)
		}
		if ok, err := l.Settle(t.Context(), r, 2); ok || err != nil {
			t.Errorf("%+v: Settle of a refunded decision = %v, %v, want false", a, ok, err)
		}
	}
}

// A decision can be settled at 0. Its ID stays, so that a repeat is no new decision.
func TestSettleAtZero(t *testing.T) {
	t.Parallel()
	for _, a := range refundable {
		c := newClock()
		l := mustNew(t, newStore(c), a)
		r := weir.Request{Key: weir.KeyOf("k"), Cost: 5, ID: "x"}
		decide(t, l, r)
		if ok, err := l.Settle(t.Context(), r, 0); !ok || err != nil {
			t.Fatalf("%+v: Settle at 0 = %v, %v", a, ok, err)
		}
		if res := decide(t, l, r); !res.Allowed || !res.Replayed || res.Granted != 0 || res.Remaining != 5 {
			t.Errorf("%+v: a repeat: got %+v, want that it consumes nothing", a, res)
		}
		if ok, err := l.Refund(t.Context(), r); ok || err != nil {
			t.Errorf("%+v: Refund = %v, %v, want false", a, ok, err)
		}
	}
}

// Settle of a decision that is not known, was denied, or has ended reports false, and changes
// nothing.
func TestSettleOfNoDecision(t *testing.T) {
	t.Parallel()
	c := newClock()
	st := newStore(c)
	l := mustNew(t, st, perSecond)
	settle := func(what, id string) {
		before := dump(t, st)
		if ok, err := l.Settle(t.Context(), weir.Request{Key: weir.KeyOf("k"), ID: id}, 9); ok || err != nil {
			t.Errorf("%s: Settle = %v, %v, want false", what, ok, err)
		}
		if after := dump(t, st); strings.Join(after, "\n") != strings.Join(before, "\n") {
			t.Errorf("%s: Settle turned\n%q\ninto\n%q", what, before, after)
		}
	}
	decide(t, l, weir.Request{Key: weir.KeyOf("k"), Cost: 4, ID: "allowed"})
	if res := decide(t, l, weir.Request{Key: weir.KeyOf("k"), Cost: 4, ID: "denied"}); res.Allowed {
		t.Fatalf("got %+v, want it denied", res)
	}
	settle("unknown", "other")
	settle("denied", "denied")
	c.advance(4 * time.Second)
	settle("ended", "allowed")
}

// The errors of Settle say what is wrong, and change nothing.
func TestSettleErrors(t *testing.T) {
	t.Parallel()
	fixed := weir.Rule{Name: "window", Algorithm: window(5, time.Hour)}
	for _, tt := range []struct {
		rule weir.Rule
		r    weir.Request
		is   error
		says string
	}{
		{fixed, weir.Request{ID: "x"}, weir.ErrInvalidCost, "Settle: Request.Actual is not set: set it to ActualCost(n)"},
		{fixed, weir.Request{ID: "x", Actual: weir.ActualCost(-1)}, weir.ErrInvalidCost, "Settle: the actual cost is -1: it must be 0 or more"},
		{fixed, weir.Request{ID: "x", Actual: weir.ActualCost(1 << 53)}, weir.ErrInvalidCost, "can consume at most 9007199254740991 at once"},
		{fixed, weir.Request{Actual: weir.ActualCost(1)}, weir.ErrInvalidKey, "Settle: Request.ID is empty"},
		{weir.Rule{Name: "own", Algorithm: window(5, time.Hour), Cost: 1}, weir.Request{ID: "x", Actual: weir.ActualCost(1)}, weir.ErrUnsupported, "Settle: every rule has a Cost"},
		{weir.Rule{Name: "list", Algorithm: algorithm.MetadataWindow{Limit: 5, Window: time.Hour}}, weir.Request{ID: "x", Actual: weir.ActualCost(1)}, weir.ErrUnsupported, `Settle: rule "list" is a metadatawindow`},
		{weir.Rule{Name: "leases", Algorithm: algorithm.Concurrency{Limit: 5, Lease: time.Hour}}, weir.Request{ID: "x", Actual: weir.ActualCost(1)}, weir.ErrUnsupported, "Settle: a rule holds leases"},
	} {
		st := newStore(newClock())
		l := mustPolicy(t, st, rules(tt.rule))
		tt.r.Key, tt.r.Op = weir.KeyOf("k"), weir.Settle
		res, err := l.Decide(t.Context(), tt.r, nil)
		if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.says) || res != (weir.Result{}) || len(keysIn(st)) > 0 {
			t.Errorf("%+v: got %+v, %v, want an error that says %q", tt.r, res, err, tt.says)
		}
	}
}

// If the reply to a Settle is lost, it can be sent again.
func TestSettleOfALostReply(t *testing.T) {
	t.Parallel()
	lossy := &hooked{Store: newStore(newClock())}
	l := mustNew(t, lossy, window(10, time.Hour))
	r := weir.Request{Key: weir.KeyOf("k"), Cost: 3, ID: "x"}
	decide(t, l, r)
	for actual, left := range map[int64]int64{1: 9, 12: 0, 7: 3} {
		lossy.lose = store.ErrUnavailable
		if ok, err := l.Settle(t.Context(), r, actual); ok || !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("Settle = %v, %v, want ErrUnavailable", ok, err)
		}
		lossy.lose = nil
		if ok, err := l.Settle(t.Context(), r, actual); !ok || err != nil {
			t.Errorf("the second Settle = %v, %v", ok, err)
		}
		if res := decide(t, l, weir.Request{Key: r.Key, Op: weir.Peek}); res.Remaining != left {
			t.Errorf("settled at %d: %d left, want %d", actual, res.Remaining, left)
		}
	}
}

// A decision that FailLocal made is settled in the process. Other decisions are settled by the
// store, when it is back.
func TestSettleInAnOutage(t *testing.T) {
	t.Parallel()
	down := false
	st := &hooked{Store: newStore(newClock()), eval: func(context.Context, *store.Script) error {
		if down {
			return store.ErrUnavailable
		}
		return nil
	}}
	l, err := mustNew(t, st, window(10, time.Hour)).OnOutage(weir.Outage{Fallback: weir.FailLocal, Processes: 2, Failures: 100})
	if err != nil {
		t.Fatal(err)
	}
	key := weir.KeyOf("k")
	before, during := weir.Request{Key: key, Cost: 4, ID: "before"}, weir.Request{Key: key, Cost: 2, ID: "during"}
	decide(t, l, before)
	down = true
	if res := decide(t, l, during); !res.Allowed || res.Degraded == nil {
		t.Fatalf("got %+v, want a decision of the process", res)
	}
	if ok, err := l.Settle(t.Context(), before, 1); ok || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Settle of a decision of the store = %v, %v, want ErrUnavailable", ok, err)
	}
	during.Op, during.Actual = weir.Settle, weir.ActualCost(5)
	if res := decide(t, l, during); !res.Allowed || res.Granted != 5 || res.Degraded == nil {
		t.Errorf("Settle of a decision of the process: got %+v", res)
	}
	if res := decide(t, l, weir.Request{Key: key, Op: weir.Peek}); res.Allowed || res.Degraded == nil {
		t.Errorf("got %+v, want no token of the share left", res)
	}
	down = false
	if ok, err := l.Settle(t.Context(), before, 1); !ok || err != nil {
		t.Errorf("Settle after the outage = %v, %v", ok, err)
	}
	if res := decide(t, l, weir.Request{Key: key, Op: weir.Peek}); res.Remaining != 9 {
		t.Errorf("got %+v, want 9 of 10 left", res)
	}
}

// If earlier debt leaves less than the difference, a Settle consumes what is left.
func TestSettleAtTheBound(t *testing.T) {
	t.Parallel()
	l := mustNew(t, newStore(newClock()), algorithm.SlidingLog{Limit: 10, Window: time.Hour}) // at most MaxLogTokens, with its debt
	r := weir.Request{Key: weir.KeyOf("k"), Cost: 5, ID: "x"}
	decide(t, l, r)
	decide(t, l, weir.Request{Key: r.Key, Op: weir.Force, Cost: algorithm.MaxLogTokens - 10})
	r.Op, r.Actual = weir.Settle, weir.ActualCost(100)
	for range 2 {
		if res := decide(t, l, r); !res.Allowed || res.Granted != 10 {
			t.Errorf("got %+v, want the decision settled at 10", res)
		}
	}
}
