package weir_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/store"
)

// Settle makes the actual cost the cost of a decision: less, more, and more than the
// limit. A repeated Settle changes nothing.
func TestSettle(t *testing.T) {
	t.Parallel()
	for _, a := range refundable {
		c := weirtest.NewClock()
		l := weirtest.New(t, weirtest.NewStore(c), a)
		r := weir.Request{Key: weir.KeyOf("k"), Cost: 3, ID: "x"}
		if first := weirtest.Decide(t, l, r); !first.Allowed {
			t.Fatalf("%+v: got %+v", a, first)
		}
		for _, actual := range []int64{3, 1, 4, 9, 8} {
			for range 2 {
				if ok, err := l.Settle(t.Context(), r, actual); !ok.Found || err != nil {
					t.Fatalf("%+v: Settle at %d = %v, %v", a, actual, ok, err)
				}
				if res := weirtest.Decide(t, l, r); !res.Replayed || res.Granted != actual {
					t.Errorf("%+v: settled at %d: a repeat: got %+v", a, actual, res)
				}
				res := weirtest.Decide(t, l, weir.Request{Key: r.Key, Op: weir.Peek})
				if _, queues := a.(algorithm.LeakyBucket); queues {
					if want := time.Duration(actual) * time.Minute; res.ResetAfter != want {
						t.Errorf("%+v: settled at %d: got %+v, want the last turn in %v", a, actual, res, want)
					}
				} else if want := max(5-actual, 0); res.Remaining != want {
					t.Errorf("%+v: settled at %d: got %+v, want %d left", a, actual, res, want)
				}
			}
		}
		if ok, err := l.Refund(t.Context(), r); !ok.Found || err != nil {
			t.Errorf("%+v: Refund = %v, %v", a, ok, err)
		}
		if ok, err := l.Settle(t.Context(), r, 2); ok.Found || err != nil {
			t.Errorf("%+v: Settle of a refunded decision = %v, %v, want false", a, ok, err)
		}
	}
}

// A decision can be settled at 0. Its ID stays, so that a repeat is no new decision.
func TestSettleAtZero(t *testing.T) {
	t.Parallel()
	for _, a := range refundable {
		c := weirtest.NewClock()
		l := weirtest.New(t, weirtest.NewStore(c), a)
		r := weir.Request{Key: weir.KeyOf("k"), Cost: 5, ID: "x"}
		weirtest.Decide(t, l, r)
		if ok, err := l.Settle(t.Context(), r, 0); !ok.Found || err != nil {
			t.Fatalf("%+v: Settle at 0 = %v, %v", a, ok, err)
		}
		if res := weirtest.Decide(t, l, r); !res.Allowed || !res.Replayed || res.Granted != 0 || res.Remaining != 5 {
			t.Errorf("%+v: a repeat: got %+v, want that it consumes nothing", a, res)
		}
		if ok, err := l.Refund(t.Context(), r); ok.Found || err != nil {
			t.Errorf("%+v: Refund = %v, %v, want false", a, ok, err)
		}
	}
}

// Settle of a decision that is not known, was denied, or has ended reports false, and
// changes nothing.
func TestSettleOfNoDecision(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	st := weirtest.NewStore(c)
	l := weirtest.New(t, st, weirtest.PerSecond)
	settle := func(what, id string) {
		before := dump(t, st)
		if ok, err := l.Settle(t.Context(), weir.Request{Key: weir.KeyOf("k"), ID: id}, 9); ok.Found || err != nil {
			t.Errorf("%s: Settle = %v, %v, want false", what, ok, err)
		}
		if after := dump(t, st); strings.Join(after, "\n") != strings.Join(before, "\n") {
			t.Errorf("%s: Settle turned\n%q\ninto\n%q", what, before, after)
		}
	}
	weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf("k"), Cost: 4, ID: "allowed"})
	if res := weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf("k"), Cost: 4, ID: "denied"}); res.Allowed {
		t.Fatalf("got %+v, want it denied", res)
	}
	settle("unknown", "other")
	settle("denied", "denied")
	c.Advance(4 * time.Second)
	settle("ended", "allowed")
}

// The errors of Settle say what is wrong, and change nothing.
func TestSettleErrors(t *testing.T) {
	t.Parallel()
	fixed := weir.Rule{Name: "window", Algorithm: weirtest.Window(5, time.Hour)}
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
		{weir.Rule{Name: "own", Algorithm: weirtest.Window(5, time.Hour), Cost: 1}, weir.Request{ID: "x", Actual: weir.ActualCost(1)}, weir.ErrUnsupported, "Settle: every rule has a Cost"},
		{weir.Rule{Name: "list", Algorithm: algorithm.MetadataWindow{Limit: 5, Window: time.Hour}}, weir.Request{ID: "x", Actual: weir.ActualCost(1)}, weir.ErrUnsupported, `Settle: rule "list" is a metadatawindow`},
		{weir.Rule{Name: "leases", Algorithm: algorithm.Concurrency{Limit: 5, Lease: time.Hour}}, weir.Request{ID: "x", Actual: weir.ActualCost(1)}, weir.ErrUnsupported, "Settle: a rule holds leases"},
	} {
		st := weirtest.NewStore(weirtest.NewClock())
		l := weirtest.NewPolicy(t, st, weirtest.Rules(tt.rule))
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
	lossy := &weirtest.Hooked{Store: weirtest.NewStore(weirtest.NewClock())}
	l := weirtest.New(t, lossy, weirtest.Window(10, time.Hour))
	r := weir.Request{Key: weir.KeyOf("k"), Cost: 3, ID: "x"}
	weirtest.Decide(t, l, r)
	for actual, left := range map[int64]int64{1: 9, 12: 0, 7: 3} {
		lossy.Lose = store.ErrUnavailable
		if ok, err := l.Settle(t.Context(), r, actual); ok.Found || !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("Settle = %v, %v, want ErrUnavailable", ok, err)
		}
		lossy.Lose = nil
		if ok, err := l.Settle(t.Context(), r, actual); !ok.Found || err != nil {
			t.Errorf("the second Settle = %v, %v", ok, err)
		}
		if res := weirtest.Decide(t, l, weir.Request{Key: r.Key, Op: weir.Peek}); res.Remaining != left {
			t.Errorf("settled at %d: %d left, want %d", actual, res.Remaining, left)
		}
	}
}

// If earlier debt leaves less than the difference, a Settle consumes what is left.
func TestSettleAtTheBound(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), algorithm.SlidingLog{Limit: 10, Window: time.Hour}) // at most MaxLogTokens, with its debt
	r := weir.Request{Key: weir.KeyOf("k"), Cost: 5, ID: "x"}
	weirtest.Decide(t, l, r)
	weirtest.Decide(t, l, weir.Request{Key: r.Key, Op: weir.Force, Cost: algorithm.MaxLogTokens - 10})
	r.Op, r.Actual = weir.Settle, weir.ActualCost(100)
	for range 2 {
		if res := weirtest.Decide(t, l, r); !res.Allowed || res.Granted != 10 {
			t.Errorf("got %+v, want the decision settled at 10", res)
		}
	}
}

// A debtless algorithm is a FixedWindow that cannot be in debt.
type debtless struct{ algorithm.FixedWindow }

func (d debtless) NewLimit() (*contract.Limit, error) {
	l, err := d.FixedWindow.NewLimit()
	if err != nil {
		return nil, err
	}
	limit := *l
	limit.MaxDebt = 0
	return &limit, nil
}

// With Options.Settles, a limiter whose rules cannot be settled is an error of New,
// NewPolicy and With. The advice in the error is true for the rule.
func TestSettles(t *testing.T) {
	t.Parallel()
	window := algorithm.FixedWindow{Limit: 5, Window: time.Hour}
	for _, tt := range []struct {
		rule weir.Rule
		says string // empty: the rule can be settled
	}{
		{weir.Rule{Algorithm: window}, ""},
		{weir.Rule{Algorithm: algorithm.GCRA{Rate: algorithm.PerDay(1_000_003), Burst: 100_000}}, ""},
		{weir.Rule{Algorithm: algorithm.SlidingCounter{Limit: 1 << 26, Window: time.Hour}}, ""},
		{weir.Rule{Algorithm: window, Cost: 1}, "Settle: every rule has a Cost"},
		{weir.Rule{Algorithm: debtless{window}}, "is a fixedwindow, which cannot be in debt: use another algorithm"},
		{weir.Rule{Algorithm: algorithm.MetadataWindow{Limit: 5, Window: time.Hour}}, "is a metadatawindow, whose tokens cannot be refunded"},
		{weir.Rule{Algorithm: algorithm.Concurrency{Limit: 5, Lease: time.Hour}, Cost: 1}, "Settle: a rule holds leases: no other rule can be settled"},
		{weir.Rule{Algorithm: algorithm.GCRA{Rate: algorithm.Every(algorithm.MaxSpan), Burst: 1}}, "which cannot be in debt with the limit 1 in 1250999h53m47.370496s: lower the limit, shorten its time"},
		{weir.Rule{Algorithm: algorithm.GCRA{Rate: algorithm.PerDay(1), Burst: 1000}}, "which has the limit 1000 in 24000h0m0s and can be in debt by 51124: Options.Settles needs 100 times the limit"},
		{weir.Rule{Algorithm: weirtest.Windowless(algorithm.GCRA{Rate: algorithm.PerDay(1), Burst: 1000}, 0)}, "which has the limit 1000 and can be in debt by 51124: Options.Settles needs 100 times the limit: lower the limit, or use another algorithm"},
		{weir.Rule{Algorithm: weirtest.Windowless(weirtest.Window(algorithm.MaxTokens, time.Hour), 0)}, "which cannot be in debt with the limit 9007199254740991: lower the limit, or use another algorithm"},
		{weir.Rule{Algorithm: algorithm.SlidingCounter{Limit: 1 << 27, Window: time.Hour}}, "can be in debt by 8455716863"},
	} {
		st := weirtest.NewStore(weirtest.NewClock())
		_, err := weir.NewPolicy(st, weir.Policy{Name: "l", Rules: []weir.Rule{tt.rule}}, &weir.Options{Settles: true})
		if tt.says == "" && err != nil || tt.says != "" && (!errors.Is(err, weir.ErrUnsupported) || !strings.Contains(err.Error(), tt.says)) {
			t.Errorf("%+v: got %v, want %q", tt.rule, err, tt.says)
		}
		if _, err := weir.NewPolicy(st, weir.Policy{Name: "l", Rules: []weir.Rule{tt.rule}}, nil); err != nil {
			t.Errorf("%+v: without Settles: %v", tt.rule, err)
		}
	}
	l, err := weir.New("l", weirtest.NewStore(weirtest.NewClock()), algorithm.GCRA{Rate: algorithm.PerDay(1), Burst: 3}, &weir.Options{Settles: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.With(weir.Rule{Algorithm: algorithm.GCRA{Rate: algorithm.PerDay(1), Burst: 1000}}); !errors.Is(err, weir.ErrUnsupported) {
		t.Errorf("With to a limit that cannot be settled: %v, want ErrUnsupported", err)
	}
	if _, err := l.With(weir.Rule{Algorithm: algorithm.GCRA{Rate: algorithm.PerDay(1), Burst: 4}}); err != nil {
		t.Errorf("With: %v", err)
	}
	if _, err := l.Only(""); err != nil {
		t.Errorf("Only: %v", err)
	}
}
