package weir_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/test/weirtest"
)

// If the request is denied, the result describes the rule with the longest RetryAfter.
// Otherwise it describes the rule with the fewest tokens remaining. A denied request
// consumes nothing.
func TestResult(t *testing.T) {
	t.Parallel()
	type step struct {
		after time.Duration
		cost  int64
		want  weir.Result
	}
	const s, never = time.Second, weir.Never
	for _, tt := range []struct {
		name  string
		rules []weir.Rule
		steps []step
	}{
		{"one rule", []weir.Rule{{Algorithm: weirtest.PerSecond}}, []step{
			{0, 1, weir.Result{Allowed: true, Granted: 1, Limit: 5, Window: 5 * s, Remaining: 4, ResetAfter: 1 * s, Rule: "gcra"}},
			{0, 5, weir.Result{Delay: never, Limit: 5, Window: 5 * s, Remaining: 4, RetryAfter: 1 * s, ResetAfter: 1 * s, Rule: "gcra"}},
			{0, 6, weir.Result{Delay: never, Limit: 5, Window: 5 * s, Remaining: 4, RetryAfter: never, ResetAfter: 1 * s, Rule: "gcra"}},
			{0, 4, weir.Result{Allowed: true, Granted: 4, Limit: 5, Window: 5 * s, ResetAfter: 5 * s, Rule: "gcra"}},
			{2 * s, 1 << 62, weir.Result{Delay: never, Limit: 5, Window: 5 * s, Remaining: 2, RetryAfter: never, ResetAfter: 3 * s, Rule: "gcra"}},
			{0, 2, weir.Result{Allowed: true, Granted: 2, Limit: 5, Window: 5 * s, ResetAfter: 5 * s, Rule: "gcra"}},
		}},
		{"the fewest remaining", []weir.Rule{{Name: "a", Algorithm: weirtest.Window(5, 10*s)}, {Name: "b", Algorithm: weirtest.Window(3, 20*s)}, {Name: "c", Algorithm: weirtest.Window(3, 30*s)}}, []step{
			{0, 2, weir.Result{Allowed: true, Granted: 2, Limit: 3, Window: 20 * s, Remaining: 1, ResetAfter: 20 * s, Rule: "b"}},             // the first of equal rules
			{0, 2, weir.Result{Delay: never, Limit: 3, Window: 30 * s, Remaining: 1, RetryAfter: 30 * s, ResetAfter: 30 * s, Rule: "c"}},      // c has the longest RetryAfter
			{0, 4, weir.Result{Delay: never, Limit: 3, Window: 20 * s, Remaining: 1, RetryAfter: never, ResetAfter: 20 * s, Rule: "b"}},       // a denies for 10 s
			{0, 6, weir.Result{Delay: never, Limit: 5, Window: 10 * s, Remaining: 3, RetryAfter: never, ResetAfter: 10 * s, Rule: "a"}},       // the first of equal rules
			{20 * s, 2, weir.Result{Delay: never, Limit: 3, Window: 30 * s, Remaining: 1, RetryAfter: 10 * s, ResetAfter: 10 * s, Rule: "c"}}, // a and b allow
			{0, 1, weir.Result{Allowed: true, Granted: 1, Limit: 3, Window: 30 * s, Remaining: 0, ResetAfter: 10 * s, Rule: "c"}},
		}},
		{"a rule with a cost", []weir.Rule{{Name: "a", Algorithm: weirtest.Window(10, 10*s)}, {Name: "b", Algorithm: weirtest.Window(3, 20*s), Cost: 1}}, []step{
			{0, 4, weir.Result{Allowed: true, Granted: 4, Limit: 3, Window: 20 * s, Remaining: 2, ResetAfter: 20 * s, Rule: "b"}},
			{0, 5, weir.Result{Allowed: true, Granted: 5, Limit: 10, Window: 10 * s, Remaining: 1, ResetAfter: 10 * s, Rule: "a"}},
			{0, 2, weir.Result{Delay: never, Limit: 10, Window: 10 * s, Remaining: 1, RetryAfter: 10 * s, ResetAfter: 10 * s, Rule: "a"}},
			{0, 1, weir.Result{Allowed: true, Granted: 1, Limit: 10, Window: 10 * s, Remaining: 0, ResetAfter: 10 * s, Rule: "a"}},
			{10 * s, 1, weir.Result{Delay: never, Limit: 3, Window: 20 * s, Remaining: 0, RetryAfter: 10 * s, ResetAfter: 10 * s, Rule: "b"}},
		}},
		{"two rules with a cost", []weir.Rule{{Name: "a", Algorithm: weirtest.Window(10, 10*s), Cost: 3}, {Name: "b", Algorithm: weirtest.Window(9, 20*s), Cost: 2}}, []step{
			{0, 50, weir.Result{Allowed: true, Granted: 3, Limit: 10, Window: 10 * s, Remaining: 7, ResetAfter: 10 * s, Rule: "a"}},
			{0, 50, weir.Result{Allowed: true, Granted: 3, Limit: 10, Window: 10 * s, Remaining: 4, ResetAfter: 10 * s, Rule: "a"}},
			{0, 50, weir.Result{Allowed: true, Granted: 3, Limit: 10, Window: 10 * s, Remaining: 1, ResetAfter: 10 * s, Rule: "a"}},
			{10 * s, 1, weir.Result{Allowed: true, Granted: 2, Limit: 9, Window: 20 * s, Remaining: 1, ResetAfter: 10 * s, Rule: "b"}},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := weirtest.NewClock()
			st := weirtest.NewStore(c)
			l := weirtest.NewPolicy(t, st, weirtest.Rules(tt.rules...))
			for i, step := range tt.steps {
				c.Advance(step.after)
				before := dump(t, st)
				r := weir.Request{Key: weir.KeyOf("u"), Op: weir.Peek, Cost: step.cost}
				peeked, err := l.Decide(t.Context(), r, nil)
				if err != nil {
					t.Fatal(err)
				}
				if after := dump(t, st); !slices.Equal(before, after) {
					t.Errorf("step %d: a peek changed %q to %q", i, before, after)
				}
				got, err := l.AllowN(t.Context(), step.cost, "u")
				if err != nil || got != step.want {
					t.Errorf("step %d, cost %d: got %+v, %v, want %+v", i, step.cost, got, err, step.want)
				}
				if peeked.Allowed != got.Allowed || peeked.Granted != 0 || peeked.RetryAfter != got.RetryAfter || peeked.Delay != got.Delay {
					t.Errorf("step %d, cost %d: Peek says %+v, and then %+v", i, step.cost, peeked, got)
				}
				if !got.Allowed && peeked != got {
					t.Errorf("step %d, cost %d: Peek says %+v, and then %+v", i, step.cost, peeked, got)
				}
				after := dump(t, st)
				if changed := !slices.Equal(before, after); changed != got.Allowed {
					t.Errorf("step %d, cost %d: allowed %v, and changed %q to %q", i, step.cost, got.Allowed, before, after)
				}
				if len(after) > 0 && len(after) != len(tt.rules) && step.after == 0 {
					t.Errorf("step %d: %d rules have %q", i, len(tt.rules), after)
				}
			}
		})
	}
}

// Decide stores the result of each rule in each. Further elements do not change.
func TestEach(t *testing.T) {
	t.Parallel()
	const s = time.Second
	l := weirtest.NewPolicy(t, weirtest.NewStore(weirtest.NewClock()), weirtest.Rules(
		weir.Rule{Name: "a", Algorithm: weirtest.Window(5, 10*s)}, weir.Rule{Name: "b", Algorithm: weirtest.PerSecond, Cost: 4}, weir.Rule{Name: "c", Algorithm: weirtest.Window(2, 20*s)},
	))
	spare := weir.Result{Rule: "spare"}
	for i, tt := range []struct {
		op   weir.Op
		cost int64
		id   string
		want []weir.Result
	}{
		{weir.Peek, 2, "", []weir.Result{
			{Allowed: true, Limit: 5, Window: 10 * s, Remaining: 5, Rule: "a"},
			{Allowed: true, Limit: 5, Window: 5 * s, Remaining: 5, Rule: "b"},
			{Allowed: true, Limit: 2, Window: 20 * s, Remaining: 2, Rule: "c"},
		}},
		{weir.Consume, 2, "x", []weir.Result{
			{Allowed: true, Granted: 2, Limit: 5, Window: 10 * s, Remaining: 3, ResetAfter: 10 * s, Rule: "a"},
			{Allowed: true, Granted: 4, Limit: 5, Window: 5 * s, Remaining: 1, ResetAfter: 4 * s, Rule: "b"},
			{Allowed: true, Granted: 2, Limit: 2, Window: 20 * s, Remaining: 0, ResetAfter: 20 * s, Rule: "c"},
		}},
		{weir.Consume, 3, "", []weir.Result{
			{Allowed: true, Limit: 5, Window: 10 * s, Remaining: 3, ResetAfter: 10 * s, Rule: "a"},
			{Limit: 5, Window: 5 * s, Remaining: 1, RetryAfter: 3 * s, ResetAfter: 4 * s, Delay: weir.Never, Rule: "b"},
			{Limit: 2, Window: 20 * s, Remaining: 0, RetryAfter: weir.Never, ResetAfter: 20 * s, Delay: weir.Never, Rule: "c"},
		}},
		{weir.Refund, 0, "x", make([]weir.Result, 3)},
		{weir.TakeUpTo, 9, "", []weir.Result{
			{Allowed: true, Granted: 2, Limit: 5, Window: 10 * s, Remaining: 3, ResetAfter: 10 * s, Rule: "a"},
			{Allowed: true, Granted: 4, Limit: 5, Window: 5 * s, Remaining: 1, ResetAfter: 4 * s, Rule: "b"},
			{Allowed: true, Granted: 2, Limit: 2, Window: 20 * s, Remaining: 0, ResetAfter: 20 * s, Rule: "c"},
		}},
		{weir.Reset, 0, "", make([]weir.Result, 3)},
	} {
		each := []weir.Result{spare, spare, spare, spare}
		res, err := l.Decide(t.Context(), weir.Request{Key: weir.KeyOf("u"), Op: tt.op, Cost: tt.cost, ID: tt.id}, each)
		if err != nil || !slices.Equal(each[:3], tt.want) || each[3] != spare {
			t.Errorf("step %d: got %+v, %v, want %+v", i, each, err, tt.want)
		}
		switch tt.op {
		case weir.Refund, weir.Reset:
			if res != (weir.Result{Allowed: true}) {
				t.Errorf("step %d: got %+v, want Allowed alone", i, res)
			}
		default:
			if want := each[0].Allowed && each[1].Allowed && each[2].Allowed; res.Allowed != want {
				t.Errorf("step %d: got %+v of %+v", i, res, each)
			}
		}
	}
}

// At RetryAfter, all rules allow the same request. One microsecond earlier, a rule denies
// it.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	l := weirtest.NewPolicy(t, weirtest.NewStore(c), weir.Policy{Segments: []string{"tenant", "user"}, Rules: []weir.Rule{
		{Name: "a", By: []string{"tenant"}, Algorithm: weirtest.Window(7, 10*time.Second)},
		{Name: "b", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 4}},
	}})
	allowed, denied := 0, 0
	for i := 0; allowed < 200; i++ {
		user := weirtest.Number(i % 2)
		res, err := l.Allow(t.Context(), "x", user)
		if err != nil {
			t.Fatal(err)
		}
		if res.Allowed {
			allowed++
			continue
		}
		denied++
		c.Advance(res.RetryAfter - time.Microsecond)
		if res := weirtest.Left(t, l, "x", user); res.Allowed || res.RetryAfter != time.Microsecond {
			t.Fatalf("step %d: one microsecond early: %+v", i, res)
		}
		c.Advance(time.Microsecond)
		if res, err := l.Allow(t.Context(), "x", user); !res.Allowed {
			t.Fatalf("step %d: in time: %+v, %v", i, res, err)
		}
		allowed++
	}
	if denied < 20 {
		t.Errorf("%d requests denied, want some", denied)
	}
}

// A cost above the capacity is denied with Never, even at the largest capacity. So is a
// cost above the integers that Lua counts exactly.
func TestLargestCosts(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), weirtest.Window(algorithm.MaxTokens, time.Hour))
	for _, tt := range []struct {
		cost int64
		want bool
	}{{1<<63 - 1, false}, {algorithm.MaxTokens + 1, false}, {algorithm.MaxTokens, true}} {
		res, err := l.AllowN(t.Context(), tt.cost, "u")
		if err != nil || res.Allowed != tt.want || (res.RetryAfter == weir.Never) == tt.want {
			t.Errorf("cost %d: got %+v, %v, want allowed: %v", tt.cost, res, err, tt.want)
		}
	}
	if err := l.Reset(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	if res, err := l.TakeUpTo(t.Context(), 1<<63-1, "u"); err != nil || res.Granted != algorithm.MaxTokens {
		t.Errorf("TakeUpTo: got %+v, %v, want all", res, err)
	}
}

// A Result and a compose.Result have the same layout, because one is used in the place of
// the other.
func TestAnswerLayout(t *testing.T) {
	t.Parallel()
	result, answer := reflect.TypeFor[weir.Result](), reflect.TypeFor[compose.Result]()
	if result.NumField() != answer.NumField() || result.Size() != answer.Size() {
		t.Fatalf("a Result has %d fields in %d bytes, an Answer %d in %d", result.NumField(), result.Size(), answer.NumField(), answer.Size())
	}
	for i := range result.NumField() {
		if r, a := result.Field(i), answer.Field(i); r.Name != a.Name || r.Type != a.Type || r.Offset != a.Offset {
			t.Errorf("field %d of a Result is %s %v at %d, of an Answer %s %v at %d", i, r.Name, r.Type, r.Offset, a.Name, a.Type, a.Offset)
		}
	}
}
