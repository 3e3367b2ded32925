package weir_test

import (
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
)

// settle settles r at actual, twice, and checks the Settlement.
func settle(t *testing.T, l *weir.Limiter, r weir.Request, actual int64, want weir.Settlement) {
	t.Helper()
	for range 2 {
		if got, err := l.Settle(t.Context(), r, actual); got != want || err != nil {
			t.Errorf("Settle at %d: got %+v, %v, want %+v", actual, got, err, want)
		}
	}
}

// left checks how many tokens a rule has left.
func left(t *testing.T, l *weir.Limiter, rule string, want int64, key ...string) {
	t.Helper()
	if res := weirtest.Left(t, weirtest.Only(t, l, rule), key...); res.Remaining != want {
		t.Errorf("rule %q: %d tokens left, want %d", rule, res.Remaining, want)
	}
}

// budget is a policy of a rate and a daily budget.
func budget(perMinute, perDay int64) weir.Policy {
	return weirtest.Rules(
		weir.Rule{Name: "minute", Algorithm: algorithm.GCRA{Rate: algorithm.PerMinute(perMinute), Burst: perMinute}},
		weir.Rule{Name: "day", Algorithm: weirtest.Window(perDay, 24*time.Hour)},
	)
}

// A decision is repeated, settled and refunded by a process whose rate is another one, in
// both directions of a rolling deployment. The rate keeps what it had consumed. The
// budget does not depend on it.
func TestChangeOfOneLimit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ first, then int64 }{{5000, 8000}, {8000, 5000}} {
		st := weirtest.NewStore(weirtest.NewClock())
		before, after := weirtest.NewPolicy(t, st, budget(tt.first, 100_000)), weirtest.NewPolicy(t, st, budget(tt.then, 100_000))
		r := weir.Request{Key: weir.KeyOf("u"), Cost: 4000, ID: "x"}
		weirtest.Allow(t, before, r)
		if res := weirtest.Decide(t, after, r); !res.Replayed || res.Granted != 4000 {
			t.Errorf("%+v: a repeat: got %+v", tt, res)
		}
		left(t, after, "day", 96_000, "u")
		settle(t, after, r, 100, weir.Settlement{Found: true, Cost: 100, Kept: "minute"})
		left(t, after, "day", 99_900, "u")
		left(t, before, "minute", tt.first-4000, "u")
		settle(t, before, r, 100, weir.Settlement{Found: true, Cost: 100}) // the first process can adjust its rate
		left(t, before, "minute", tt.first-100, "u")
		settle(t, after, r, 300, weir.Settlement{Found: true, Cost: 300})
		left(t, after, "day", 99_700, "u")
		if got, err := after.Refund(t.Context(), r); got != (weir.Settlement{Found: true}) || err != nil {
			t.Errorf("%+v: Refund: got %+v, %v", tt, got, err)
		}
		left(t, after, "day", 100_000, "u") // a window returns the tokens before a Settle to more, too
		if res := weirtest.Decide(t, before, r); res.Replayed {
			t.Errorf("%+v: a request after the refund: got %+v", tt, res)
		}
	}
}

// Which changes of a limit leave a decision that can be settled and refunded.
func TestChangeByAlgorithm(t *testing.T) {
	t.Parallel()
	log := func(limit int64, window time.Duration) algorithm.Algorithm {
		return algorithm.SlidingLog{Limit: limit, Window: window}
	}
	counter := func(limit int64, window time.Duration) algorithm.Algorithm {
		return algorithm.SlidingCounter{Limit: limit, Window: window}
	}
	gcra := func(count, burst int64) algorithm.Algorithm {
		return algorithm.GCRA{Rate: algorithm.PerMinute(count), Burst: burst}
	}
	queue := func(count, queue int64) algorithm.Algorithm {
		return algorithm.LeakyBucket{Rate: algorithm.PerMinute(count), Queue: queue}
	}
	bucket := func(count, capacity int64, atOnce bool) algorithm.Algorithm {
		return algorithm.TokenBucket{Refill: algorithm.PerMinute(count), Capacity: capacity, AtOnce: atOnce}
	}
	buckets := func(window time.Duration, limit int64) algorithm.Algorithm {
		return algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: window, Limit: limit}}}
	}
	for _, tt := range []struct {
		name   string
		a, b   algorithm.Algorithm
		adjust bool
	}{
		{"fixed window, limit", weirtest.Window(9, time.Hour), weirtest.Window(20, time.Hour), true},
		{"fixed window, window", weirtest.Window(9, time.Hour), weirtest.Window(20, time.Minute), true},
		{"fixed window, aligned", weirtest.Window(9, time.Hour), algorithm.FixedWindow{Limit: 9, Window: time.Hour, Aligned: true}, true},
		{"log, limit", log(9, time.Hour), log(20, time.Hour), true},
		{"log, longer window", log(9, time.Hour), log(20, 2*time.Hour), true},
		{"log, shorter window", log(9, time.Hour), log(20, time.Minute), true},
		{"counter, limit", counter(9, time.Hour), counter(20, time.Hour), true},
		{"counter, window", counter(9, time.Hour), counter(9, 2*time.Hour), false},
		{"buckets, limit", buckets(5*time.Second, 9), buckets(5*time.Second, 20), true},
		{"buckets, windows", buckets(5*time.Second, 9), buckets(10*time.Second, 20), false},
		{"GCRA, burst", gcra(7, 9), gcra(7, 20), true},
		{"GCRA, rate", gcra(7, 9), gcra(8, 9), false},
		{"GCRA, rate without fractions", gcra(7, 9), gcra(6, 9), false},
		{"leaky bucket, queue", queue(7, 9), queue(7, 20), true},
		{"leaky bucket, rate", queue(7, 9), queue(8, 9), false},
		{"token bucket, capacity", bucket(7, 9, false), bucket(7, 20, false), true},
		{"token bucket, refill", bucket(7, 9, false), bucket(8, 9, false), false},
		{"token bucket, at once", bucket(7, 9, false), bucket(7, 9, true), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, swap := range []bool{false, true} {
				a, b := tt.a, tt.b
				if swap {
					a, b = b, a
				}
				st := weirtest.NewStore(weirtest.NewClock())
				before, after := weirtest.New(t, st, a), weirtest.New(t, st, b)
				r := weir.Request{Key: weir.KeyOf("u"), Cost: 5, ID: "x"}
				weirtest.Allow(t, before, r)
				if res := weirtest.Decide(t, after, r); !res.Replayed || res.Granted != 5 {
					t.Errorf("a repeat: got %+v", res)
				}
				full := weirtest.Left(t, weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), b), "u")
				name := full.Rule
				if !tt.adjust {
					was := weirtest.Left(t, after, "u")
					settle(t, after, r, 2, weir.Settlement{Found: true, Cost: 5, Kept: name})
					if got, err := after.Refund(t.Context(), r); got != (weir.Settlement{Found: true, Cost: 5, Kept: name}) || err != nil {
						t.Errorf("Refund: got %+v, %v", got, err)
					}
					if now := weirtest.Left(t, after, "u"); now != was {
						t.Errorf("Settle and Refund turned %+v into %+v", was, now)
					}
					settle(t, before, r, 2, weir.Settlement{Found: true, Cost: 2})
				} else {
					settle(t, after, r, 2, weir.Settlement{Found: true, Cost: 2})
				}
				if !tt.adjust { // what this Settle adds can be refunded again
					settle(t, after, r, 3, weir.Settlement{Found: true, Cost: 3})
				}
				if got, err := after.Refund(t.Context(), r); !got.Found || got.Kept != "" || err != nil {
					t.Errorf("Refund: got %+v, %v", got, err)
				}
				if now := weirtest.Left(t, after, "u"); tt.adjust && now.Remaining != full.Remaining {
					t.Errorf("after the refund: got %+v, want all %d tokens", now, full.Remaining)
				}
			}
		})
	}
}

// A repeat is not denied because a lower burst would have made it wait.
func TestChangeToALowerBurst(t *testing.T) {
	t.Parallel()
	st := weirtest.NewStore(weirtest.NewClock())
	limit := func(burst int64) *weir.Limiter {
		return weirtest.New(t, st, algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: burst})
	}
	r := weir.Request{Key: weir.KeyOf("u"), Cost: 7, ID: "x"}
	weirtest.Allow(t, limit(10), r)
	if res := weirtest.Decide(t, limit(3), r); !res.Allowed || !res.Replayed || res.Granted != 7 || res.Delay != 0 {
		t.Errorf("a repeat under a lower burst: got %+v", res)
	}
	r.MaxWait = time.Minute
	if res := weirtest.Decide(t, limit(3), r); !res.Allowed || res.Delay != 4*time.Second {
		t.Errorf("a repeat that can wait: got %+v, want a Delay of 4s", res)
	}
}

// A refund under a shorter window of a log leaves the tokens of other decisions, which
// the longer window still counts.
func TestChangeOfALogsWindow(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	st := weirtest.NewStore(c)
	long, short := weirtest.New(t, st, algorithm.SlidingLog{Limit: 10, Window: 10 * time.Second}), weirtest.New(t, st, algorithm.SlidingLog{Limit: 10, Window: time.Second})
	a, b := weir.Request{Key: weir.KeyOf("u"), Cost: 5, ID: "a"}, weir.Request{Key: weir.KeyOf("u"), Cost: 3, ID: "b"}
	weirtest.Allow(t, long, a)
	c.Advance(5 * time.Second)
	weirtest.Allow(t, long, b)
	c.Advance(time.Second / 10)
	if got, err := short.Refund(t.Context(), b); !got.Found || err != nil {
		t.Errorf("Refund: got %+v, %v", got, err)
	}
	if res := weirtest.Left(t, long, "u"); res.Remaining != 5 {
		t.Errorf("got %+v, want the 5 tokens that b did not consume", res)
	}
	if got, err := long.Refund(t.Context(), a); !got.Found || err != nil {
		t.Errorf("Refund of the earlier decision: got %+v, %v", got, err)
	}
}

// A rule that is new, removed or renamed does not hide a decision from the other rules.
func TestChangeOfRules(t *testing.T) {
	t.Parallel()
	hour, day := weir.Rule{Name: "hour", Algorithm: weirtest.Window(50, time.Hour)}, weir.Rule{Name: "day", Algorithm: weirtest.Window(90, 24*time.Hour)}
	other := weir.Rule{Name: "other", Algorithm: weirtest.Window(70, time.Hour)}
	r := weir.Request{Key: weir.KeyOf("u"), Cost: 40, ID: "x"}
	for _, tt := range []struct {
		name        string
		rules, then weir.Policy
		left        map[string]int64 // after a Settle at 10, and then at 15
	}{
		{"new", weirtest.Rules(day), weirtest.Rules(hour, day), map[string]int64{"hour": 45, "day": 75}},
		{"removed", weirtest.Rules(hour, day), weirtest.Rules(day), map[string]int64{"day": 75}},
		{"renamed", weirtest.Rules(hour, day), weirtest.Rules(other, day), map[string]int64{"other": 65, "day": 75}},
		{"in another order", weirtest.Rules(hour, day), weirtest.Rules(day, hour), map[string]int64{"hour": 35, "day": 75}},
	} {
		st := weirtest.NewStore(weirtest.NewClock())
		weirtest.Allow(t, weirtest.NewPolicy(t, st, tt.rules), r)
		l := weirtest.NewPolicy(t, st, tt.then)
		if res := weirtest.Decide(t, l, r); !res.Replayed || res.Granted != 40 {
			t.Errorf("%s: a repeat: got %+v", tt.name, res)
		}
		settle(t, l, r, 10, weir.Settlement{Found: true, Cost: 10})
		settle(t, l, r, 15, weir.Settlement{Found: true, Cost: 15})
		for rule, want := range tt.left {
			left(t, l, rule, want, "u")
		}
	}
}

// A Cost that is added to a rule, or removed, keeps what the rule had consumed.
func TestChangeOfCost(t *testing.T) {
	t.Parallel()
	rules := func(cost int64) weir.Policy {
		return weirtest.Rules(weir.Rule{Name: "calls", Algorithm: weirtest.Window(50, time.Hour), Cost: cost}, weir.Rule{Name: "tokens", Algorithm: weirtest.Window(90, time.Hour)})
	}
	for _, costs := range [][2]int64{{0, 1}, {1, 0}} {
		st := weirtest.NewStore(weirtest.NewClock())
		before, after := weirtest.NewPolicy(t, st, rules(costs[0])), weirtest.NewPolicy(t, st, rules(costs[1]))
		r := weir.Request{Key: weir.KeyOf("u"), Cost: 40, ID: "x"}
		weirtest.Allow(t, before, r)
		was := weirtest.Left(t, weirtest.Only(t, after, "calls"), "u").Remaining
		settle(t, after, r, 10, weir.Settlement{Found: true, Cost: 10, Kept: "calls"})
		left(t, after, "calls", was, "u")
		left(t, after, "tokens", 80, "u")
		settle(t, before, r, 10, weir.Settlement{Found: true, Cost: 10})
		if got, err := after.Refund(t.Context(), r); got != (weir.Settlement{Found: true, Kept: "calls"}) || err != nil {
			t.Errorf("%v: Refund: got %+v, %v", costs, got, err)
		}
		left(t, after, "tokens", 90, "u")
	}
}

// A decision is recognized for as long as the limits last that made it, even by a process
// under whose limits its tokens have been refilled.
func TestChangeToAFasterLimit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ slow, fast algorithm.Algorithm }{
		{algorithm.TokenBucket{Refill: algorithm.PerMinute(1), Capacity: 10}, algorithm.TokenBucket{Refill: algorithm.PerSecond(10), Capacity: 10}},
		{algorithm.SlidingCounter{Limit: 10, Window: time.Hour}, algorithm.SlidingCounter{Limit: 10, Window: time.Second}},
		{algorithm.SlidingLog{Limit: 10, Window: time.Hour}, algorithm.SlidingLog{Limit: 10, Window: time.Second}},
		{algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 10}, algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 10}},
		{weirtest.Window(10, time.Hour), weirtest.Window(10, time.Second)},
	} {
		c := weirtest.NewClock()
		st := weirtest.NewStore(c)
		slow, fast := weirtest.New(t, st, tt.slow), weirtest.New(t, st, tt.fast)
		r := weir.Request{Key: weir.KeyOf("u"), Cost: 5, ID: "x"}
		weirtest.Allow(t, slow, r)
		c.Advance(4 * time.Minute)
		if res := weirtest.Decide(t, fast, r); !res.Replayed {
			t.Errorf("%+v: a repeat: got %+v", tt, res)
		}
		c.Advance(3 * time.Hour)
		if res := weirtest.Decide(t, fast, r); res.Replayed {
			t.Errorf("%+v: a repeat after three hours: got %+v", tt, res)
		}
	}
}

// A Settle counts what each rule has consumed for the decision, even if another process
// settled it without the rule, or could not adjust the rule.
func TestChangeBetweenSettles(t *testing.T) {
	t.Parallel()
	minute := func(perMinute, cost int64) weir.Rule {
		return weir.Rule{Name: "minute", Algorithm: algorithm.GCRA{Rate: algorithm.PerMinute(perMinute), Burst: 60}, Cost: cost}
	}
	day := weir.Rule{Name: "day", Algorithm: weirtest.Window(90, 24*time.Hour)}
	type settled struct {
		rules  []weir.Rule
		actual int64
		kept   string
		spent  [2]int64 // by minute and day
	}
	for _, tt := range []struct {
		name  string
		steps []settled
	}{
		{"a process without a rule", []settled{
			{[]weir.Rule{minute(1, 0)}, 9, "", [2]int64{9, 4}},
			{[]weir.Rule{minute(1, 0), day}, 9, "", [2]int64{9, 9}},
			{[]weir.Rule{minute(1, 0)}, 4, "", [2]int64{4, 9}},
			{[]weir.Rule{minute(1, 0), day}, 4, "", [2]int64{4, 4}},
		}},
		{"a kept rule, some tokens of which can be refunded", []settled{
			{[]weir.Rule{minute(1, 0), day}, 9, "", [2]int64{9, 9}},
			{[]weir.Rule{minute(2, 0), day}, 5, "minute", [2]int64{9, 5}},
			{[]weir.Rule{minute(2, 0), day}, 5, "minute", [2]int64{9, 5}},
			{[]weir.Rule{minute(2, 0), day}, 9, "", [2]int64{9, 9}},
		}},
		{"a Cost", []settled{
			{[]weir.Rule{minute(1, 1), day}, 6, "minute", [2]int64{4, 6}},
			{[]weir.Rule{minute(1, 0), day}, 5, "", [2]int64{5, 5}},
			{[]weir.Rule{minute(1, 1), day}, 5, "", [2]int64{5, 5}},
		}},
	} {
		st := weirtest.NewStore(weirtest.NewClock())
		r := weir.Request{Key: weir.KeyOf("u"), Cost: 4, ID: "x"}
		first := weirtest.NewPolicy(t, st, weirtest.Rules(minute(1, 0), day))
		weirtest.Allow(t, first, r)
		if tt.steps[0].kept == "" && len(tt.steps[0].rules) == 2 { // only the difference can be refunded
			weirtest.Allow(t, first, weir.Request{Key: r.Key})
		}
		for i, s := range tt.steps {
			l := weirtest.NewPolicy(t, st, weirtest.Rules(s.rules...))
			settle(t, l, r, s.actual, weir.Settlement{Found: true, Cost: s.actual, Kept: s.kept})
			if res := weirtest.Decide(t, l, r); !res.Replayed || res.Granted != s.actual {
				t.Errorf("%s, step %d: a repeat: got %+v", tt.name, i, res)
			}
			for j, name := range []string{"minute", "day"} {
				before := [2]int64{60, 90}[j]
				if tt.steps[0].kept == "" && len(tt.steps[0].rules) == 2 {
					before--
				}
				if got := before - weirtest.Left(t, weirtest.Only(t, first, name), "u").Remaining; got != s.spent[j] {
					t.Errorf("%s, step %d: rule %q holds %d tokens of the decision, want %d", tt.name, i, name, got, s.spent[j])
				}
			}
		}
	}
}

// An aligned limit can move the end of a window. Its decisions can still be refunded.
func TestChangeOfAlignedWindow(t *testing.T) {
	t.Parallel()
	st := weirtest.NewStore(weirtest.NewClock())
	aligned := algorithm.FixedWindow{Limit: 9, Window: 7 * time.Minute, Aligned: true}
	r := weir.Request{Key: weir.KeyOf("u"), Cost: 3, ID: "x"}
	weirtest.Allow(t, weirtest.New(t, st, weirtest.Window(9, time.Hour)), r)
	l := weirtest.New(t, st, aligned)
	weirtest.Allow(t, l, weir.Request{Key: r.Key})
	if got, err := l.Refund(t.Context(), r); !got.Found || err != nil {
		t.Errorf("Refund: got %+v, %v", got, err)
	}
	if res := weirtest.Left(t, l, "u"); res.Remaining != 8 {
		t.Errorf("got %+v, want 8 tokens left", res)
	}
}

// If only the marker of a rule is left that a Settle could not adjust, a new rule
// consumes nothing: what the other rules paid is not known.
func TestChangeWithOnlyAKeptRule(t *testing.T) {
	t.Parallel()
	st := weirtest.NewStore(weirtest.NewClock())
	calls := weir.Rule{Name: "calls", Algorithm: weirtest.Window(50, time.Hour)}
	paid := calls
	paid.Cost = 1
	day, week := weir.Rule{Name: "day", Algorithm: weirtest.Window(90, 24*time.Hour)}, weir.Rule{Name: "week", Algorithm: weirtest.Window(90, 168*time.Hour)}
	r := weir.Request{Key: weir.KeyOf("u"), Cost: 4, ID: "x"}
	weirtest.Allow(t, weirtest.NewPolicy(t, st, weirtest.Rules(calls, day)), r)
	settle(t, weirtest.NewPolicy(t, st, weirtest.Rules(paid, day)), r, 6, weir.Settlement{Found: true, Cost: 6, Kept: "calls"})
	l := weirtest.NewPolicy(t, st, weirtest.Rules(paid, week))
	settle(t, l, r, 6, weir.Settlement{Found: true, Cost: 6, Kept: "calls"})
	left(t, l, "week", 90, "u")
}
