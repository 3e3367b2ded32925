package weir_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

func window(limit int64, d time.Duration) algorithm.FixedWindow {
	return algorithm.FixedWindow{Limit: limit, Window: d}
}

// A result is that of the first rule that denies, or else of the one with the least left,
// with the longest wait among those that deny. A denial charges no rule.
func TestResult(t *testing.T) {
	t.Parallel()
	type step struct {
		after time.Duration
		cost  int64
		want  weir.Result
	}
	s := time.Second
	for _, tt := range []struct {
		name  string
		rules []weir.Rule
		steps []step
	}{
		{"one rule", []weir.Rule{{Algorithm: perSecond}}, []step{
			{0, 1, weir.Result{Allowed: true, Granted: 1, Limit: 5, Remaining: 4, ResetAfter: 1 * s, Rule: "gcra"}},
			{0, 0, weir.Result{Allowed: true, Limit: 5, Remaining: 4, ResetAfter: 1 * s, Rule: "gcra"}},
			{0, 5, weir.Result{Limit: 5, Remaining: 4, RetryAfter: 1 * s, ResetAfter: 1 * s, Rule: "gcra"}},
			{0, 6, weir.Result{Limit: 5, Remaining: 4, RetryAfter: weir.Never, ResetAfter: 1 * s, Rule: "gcra"}},
			{0, 4, weir.Result{Allowed: true, Granted: 4, Limit: 5, ResetAfter: 5 * s, Rule: "gcra"}},
			{0, 0, weir.Result{Allowed: true, Limit: 5, ResetAfter: 5 * s, Rule: "gcra"}},
			{2 * s, 1 << 62, weir.Result{Limit: 5, Remaining: 2, RetryAfter: weir.Never, ResetAfter: 3 * s, Rule: "gcra"}},
		}},
		{"the least left", []weir.Rule{{Name: "a", Algorithm: window(5, 10*s)}, {Name: "b", Algorithm: window(3, 20*s)}, {Name: "c", Algorithm: window(3, 30*s)}}, []step{
			{0, 0, weir.Result{Allowed: true, Limit: 3, Remaining: 3, Rule: "b"}}, // the first of equals
			{0, 2, weir.Result{Allowed: true, Granted: 2, Limit: 3, Remaining: 1, ResetAfter: 20 * s, Rule: "b"}},
			{0, 2, weir.Result{Limit: 3, Remaining: 1, RetryAfter: 30 * s, ResetAfter: 20 * s, Rule: "b"}}, // c denies for longer
			{0, 4, weir.Result{Limit: 5, Remaining: 3, RetryAfter: weir.Never, ResetAfter: 10 * s, Rule: "a"}},
			{20 * s, 2, weir.Result{Limit: 3, Remaining: 1, RetryAfter: 10 * s, ResetAfter: 10 * s, Rule: "c"}},
			{0, 1, weir.Result{Allowed: true, Granted: 1, Limit: 3, Remaining: 0, ResetAfter: 10 * s, Rule: "c"}},
		}},
		{"a rule of its own cost", []weir.Rule{{Name: "a", Algorithm: window(10, 10*s)}, {Name: "b", Algorithm: window(3, 20*s), Cost: 1}}, []step{
			{0, 4, weir.Result{Allowed: true, Granted: 4, Limit: 3, Remaining: 2, ResetAfter: 20 * s, Rule: "b"}},
			{0, 5, weir.Result{Allowed: true, Granted: 5, Limit: 10, Remaining: 1, ResetAfter: 10 * s, Rule: "a"}},
			{0, 0, weir.Result{Allowed: true, Limit: 10, Remaining: 1, ResetAfter: 10 * s, Rule: "a"}},
			{0, 2, weir.Result{Limit: 10, Remaining: 1, RetryAfter: 10 * s, ResetAfter: 10 * s, Rule: "a"}},
			{0, 1, weir.Result{Allowed: true, Granted: 1, Limit: 10, Remaining: 0, ResetAfter: 10 * s, Rule: "a"}},
			{10 * s, 1, weir.Result{Limit: 3, Remaining: 0, RetryAfter: 10 * s, ResetAfter: 10 * s, Rule: "b"}},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newClock()
			st := newStore(c)
			l := mustNew(t, st, tt.rules, nil)
			for i, step := range tt.steps {
				c.advance(step.after)
				before := dump(t, st)
				peeked, err := l.Do(t.Context(), weir.Request{Path: []string{"u"}, Cost: step.cost, Peek: true})
				if err != nil {
					t.Fatal(err)
				}
				if after := dump(t, st); !slices.Equal(before, after) {
					t.Errorf("step %d: a peek made of %q: %q", i, before, after)
				}
				got, err := l.AllowN(t.Context(), step.cost, "u")
				if err != nil || got != step.want {
					t.Errorf("step %d, cost %d: got %+v, %v, want %+v", i, step.cost, got, err, step.want)
				}
				if peeked.Allowed != got.Allowed || peeked.Granted != 0 || peeked.RetryAfter != got.RetryAfter {
					t.Errorf("step %d, cost %d: Peek says %+v, and then %+v", i, step.cost, peeked, got)
				}
				after := dump(t, st)
				if changed := !slices.Equal(before, after); changed != (got.Granted > 0) {
					t.Errorf("step %d, cost %d: granted %d, and made of %q: %q", i, step.cost, got.Granted, before, after)
				}
				if len(after) > 0 && len(after) != len(tt.rules) && step.after == 0 {
					t.Errorf("step %d: %d rules have %q", i, len(tt.rules), after)
				}
			}
		})
	}
}

// Each receives what every rule says by itself.
func TestEach(t *testing.T) {
	t.Parallel()
	s := time.Second
	l := mustNew(t, newStore(newClock()), []weir.Rule{
		{Name: "a", Algorithm: window(5, 10*s)}, {Name: "b", Algorithm: perSecond, Cost: 4}, {Name: "c", Algorithm: window(2, 20*s)},
	}, nil)
	for i, tt := range []struct {
		cost int64
		peek bool
		want []weir.Result
	}{
		{2, true, []weir.Result{
			{Allowed: true, Limit: 5, Remaining: 5, Rule: "a"},
			{Allowed: true, Limit: 5, Remaining: 5, Rule: "b"},
			{Allowed: true, Limit: 2, Remaining: 2, Rule: "c"},
		}},
		{2, false, []weir.Result{
			{Allowed: true, Granted: 2, Limit: 5, Remaining: 3, ResetAfter: 10 * s, Rule: "a"},
			{Allowed: true, Granted: 4, Limit: 5, Remaining: 1, ResetAfter: 4 * s, Rule: "b"},
			{Allowed: true, Granted: 2, Limit: 2, Remaining: 0, ResetAfter: 20 * s, Rule: "c"},
		}},
		{3, false, []weir.Result{
			{Allowed: true, Limit: 5, Remaining: 3, ResetAfter: 10 * s, Rule: "a"},
			{Limit: 5, Remaining: 1, RetryAfter: 3 * s, ResetAfter: 4 * s, Rule: "b"},
			{Limit: 2, Remaining: 0, RetryAfter: weir.Never, ResetAfter: 20 * s, Rule: "c"},
		}},
	} {
		each := make([]weir.Result, 3)
		res, err := l.Do(t.Context(), weir.Request{Path: []string{"u"}, Cost: tt.cost, Peek: tt.peek, Each: each})
		if err != nil || !slices.Equal(each, tt.want) {
			t.Errorf("step %d: got %+v, %v, want %+v", i, each, err, tt.want)
		}
		if want := each[0].Allowed && each[1].Allowed && each[2].Allowed; res.Allowed != want {
			t.Errorf("step %d: got %+v of %+v", i, res, each)
		}
	}
}

// RetryAfter holds for all rules together: one microsecond earlier is too early.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	c := newClock()
	l := mustNew(t, newStore(c), []weir.Rule{
		{Name: "a", By: []int{0}, Algorithm: window(7, 10*time.Second)},
		{Name: "b", By: []int{0, 1}, Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 4}},
	}, nil)
	admitted, denied := 0, 0
	for i := 0; admitted < 200; i++ {
		path := []string{"x", fmt.Sprint(i % 2)}
		res, err := l.Allow(t.Context(), path...)
		if err != nil {
			t.Fatal(err)
		}
		if res.Allowed {
			admitted++
			continue
		}
		denied++
		c.advance(res.RetryAfter - time.Microsecond)
		if res, _ := l.Peek(t.Context(), path...); res.Allowed || res.RetryAfter != time.Microsecond {
			t.Fatalf("step %d: one microsecond early: %+v", i, res)
		}
		c.advance(time.Microsecond)
		if res, _ := l.Allow(t.Context(), path...); !res.Allowed {
			t.Fatalf("step %d: in time: %+v", i, res)
		}
		admitted++
	}
	if denied < 20 {
		t.Errorf("%d denials, want some", denied)
	}
}
