package weir_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
)

const second = time.Second

// TestDecide has what Consume, Peek and TakeUpTo answer. A denial describes the rule with the
// longest RetryAfter, and the answer to an allowed request that with the fewest tokens.
func TestDecide(t *testing.T) {
	t.Parallel()
	const log = 1000
	for10 := func(name string, limit int64, times int) weir.Rule {
		return weir.Rule{Name: name, Algorithm: weirtest.Window(limit, time.Duration(10*times)*second)}
	}
	play(t, []trace{
		{name: "one rule", policies: rules(weir.Rule{Algorithm: weirtest.PerSecond}), steps: []step{
			{0, 0, ask(1, ""), "1: gcra 4 of 5, full in 1s", "4"},
			{0, 0, do(weir.Peek, 4, ""), "0: gcra 4 of 5, full in 1s", "4"},
			{0, 0, ask(5, ""), "denied for 1s: gcra 4 of 5, full in 1s", "4"},
			{0, 0, ask(6, ""), "denied for ever: gcra 4 of 5, full in 1s", "4"},
			{0, 0, ask(4, ""), "4: gcra 0 of 5, full in 5s", "0"},
			{2 * second, 0, ask(1<<62, ""), "denied for ever: gcra 2 of 5, full in 3s", "2"},
			{0, 0, do(weir.TakeUpTo, 9, ""), "2: gcra 0 of 5, full in 5s", "0"},
			{0, 0, do(weir.TakeUpTo, 9, ""), "denied for 1s: gcra 0 of 5, full in 5s", "0"},
		}},
		{name: "a forgotten cost is 1", policies: rules(window("w", 2)), steps: []step{
			{0, 0, weir.Request{Op: weir.Peek}, "0: w 2 of 2, full in 0s", "2"},
			{0, 0, weir.Request{}, "1", "1"},
			{0, 0, weir.Request{Op: weir.TakeUpTo}, "1", "0"},
			{0, 0, weir.Request{}, "denied for 1h0m0s", "0"},
			{0, 0, weir.Request{Op: weir.Force}, "1", "0"},
		}},
		{name: "three rules", policies: rules(for10("a", 5, 1), for10("b", 3, 2), for10("c", 3, 3)), steps: []step{
			{0, 0, ask(2, ""), "2: b 1 of 3, full in 20s", "3 1 1"}, // the first of equal rules
			{0, 0, ask(2, ""), "denied for 30s: c 1 of 3, full in 30s", "3 1 1"},
			{0, 0, ask(4, ""), "denied for ever: b 1 of 3, full in 20s", "3 1 1"},
			{0, 0, ask(6, ""), "denied for ever: a 3 of 5, full in 10s", "3 1 1"},
			{20 * second, 0, ask(2, ""), "denied for 10s: c 1 of 3, full in 10s", "5 3 1"},
			{0, 0, do(weir.TakeUpTo, 4, ""), "1: c 0 of 3, full in 10s", "4 2 0"},
		}},
		{name: "a rule with a Cost", policies: rules(for10("a", 10, 1), costing(for10("b", 3, 2), 1)), steps: []step{
			{0, 0, ask(4, ""), "4: b 2 of 3, full in 20s", "6 2"},
			{0, 0, ask(5, ""), "5: a 1 of 10, full in 10s", "1 1"},
			{0, 0, ask(2, ""), "denied for 10s: a 1 of 10, full in 10s", "1 1"},
			{0, 0, do(weir.TakeUpTo, 9, ""), "1: a 0 of 10, full in 10s", "0 0"},
			{10 * second, 0, ask(1, ""), "denied for 10s: b 0 of 3, full in 10s", "10 0"},
		}},
		{name: "only rules with a Cost", policies: rules(costing(for10("a", 10, 1), 3), costing(for10("b", 9, 2), 2)), steps: []step{
			{0, 0, ask(50, ""), "3: a 7 of 10, full in 10s", "7 7"},
			{0, 0, ask(50, ""), "3: a 4 of 10, full in 10s", "4 5"},
			{10 * second, 0, ask(1, ""), "2: b 3 of 9, full in 10s", "7 3"}, // Granted is that of the rule shown
			{0, 0, do(weir.TakeUpTo, 1e6, ""), "! every rule has a Cost", "7 3"},
		}},
		{name: "the most at once", policies: rules(weir.Rule{Name: "log", Algorithm: weirtest.Capped(algorithm.SlidingLog{Limit: 2 * log, Window: time.Hour}, log)}, window("w", 1<<50)), steps: []step{
			{0, 0, ask(log+1, ""), `! the cost is 1001: rule "log" is a slidinglog, which can consume at most 1000`, ""},
			{0, 0, do(weir.Peek, log+1, ""), "! can consume at most 1000", ""},
			{0, 0, ask(2*log+1, ""), "denied for ever", ""},
			{0, 0, do(weir.TakeUpTo, 1<<60, ""), "1000", ""},
			{0, 0, do(weir.TakeUpTo, 1<<60, ""), "1000", ""},
			{0, 0, do(weir.TakeUpTo, 1<<60, ""), "denied for 1h0m0s", "0 1125899906840624"},
		}},
		{name: "the largest numbers", policies: rules(window("w", algorithm.MaxTokens)), steps: []step{
			{0, 0, ask(1<<63-1, ""), "denied for ever", ""},
			{0, 0, ask(algorithm.MaxTokens+1, ""), "denied for ever", ""},
			{0, 0, ask(algorithm.MaxTokens, ""), "9007199254740991", "0"},
			{0, 0, weir.Request{Op: weir.Reset}, "true", ""},
			{0, 0, do(weir.TakeUpTo, 1<<63-1, ""), "9007199254740991", "0"},
		}},
		{name: "a queue", policies: rules(weir.Rule{Algorithm: algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: 2}}), steps: []step{
			{0, 0, weir.Request{}, "1: leakybucket 0 of 3, full in 1s", ""}, // without MaxWait, nothing waits
			{0, 0, weir.Request{}, "denied for 1s: leakybucket 0 of 3, full in 1s", ""},
			{0, 0, weir.Request{MaxWait: weir.Never}, "1 in 1s: leakybucket 0 of 3, full in 2s", ""},
			{0, 0, weir.Request{MaxWait: weir.Never}, "1 in 2s: leakybucket 0 of 3, full in 3s", ""},
			{0, 0, weir.Request{MaxWait: weir.Never}, "denied for 1s", ""},
		}},
	})
}

// TestForce has what a Force answers. Debt denies requests until it is refilled.
func TestForce(t *testing.T) {
	t.Parallel()
	const most = algorithm.MaxLogTokens - 10
	log := func(name string, limit int64) weir.Rule {
		return weir.Rule{Name: name, Algorithm: algorithm.SlidingLog{Limit: limit, Window: time.Hour}}
	}
	years := algorithm.GCRA{Rate: algorithm.Every(20 * 365 * 24 * time.Hour), Burst: 6}
	play(t, []trace{
		{name: "past the limit", policies: rules(minute("m", 6)), steps: []step{
			{0, 0, do(weir.Force, 4, ""), "4: m 2 of 6, full in 40s", "2"},
			{0, 0, do(weir.Force, 4, ""), "4: m 0 of 6, full in 1m20s", "0"},
			{0, 0, ask(1, ""), "denied for 30s: m 0 of 6, full in 1m20s", "0"},
			{0, 0, do(weir.Peek, 6, ""), "denied for 1m20s", "0"},
			{30*second - time.Microsecond, 0, ask(1, ""), "denied for 1µs", "0"},
			{time.Microsecond, 0, ask(1, ""), "1: m 0 of 6, full in 1m0s", "0"},
		}},
		{name: "several rules", policies: rules(window("tokens", 5), costing(log("calls", 1), 1), log("log", 10)), steps: []step{
			{0, 0, do(weir.Force, most, "a"), "4503599627370485: tokens 0 of 5, full in 1h0m0s", "0 0 0"},
			{0, 0, do(weir.Force, most, "b"), "5", "0 0 0"}, // what the log has left
			{0, 0, do(weir.Force, most, "b"), "repeat, 5", "0 0 0"},
			{0, 0, do(weir.Force, most, "c"), "0", "0 0 0"},
			{0, 0, ask(1, ""), "denied for 1h0m0s", "0 0 0"},
			{0, 0, do(weir.Refund, most, "a"), "found true, cost 0", "0 0 5"},
		}},
		{name: "a part of a Cost", policies: rules(costing(window("w", algorithm.MaxTokens-5), algorithm.MaxTokens-5)), steps: []step{
			{0, 0, do(weir.Force, 0, "a"), "9007199254740986", "0"},
			{0, 0, do(weir.Force, 0, "b"), "5", "0"},
			{0, 0, do(weir.Force, 0, "b"), "repeat, 5", "0"},
		}},
		{name: "a part of a Cost beside another rule", policies: rules(window("w", 100), costing(weir.Rule{Name: "years", Algorithm: years}, 3)), steps: []step{
			{0, 0, do(weir.Force, 2, "a"), "2: years 3 of 6, full in 525600h0m0s", "98 3"},
			{0, 0, do(weir.Force, 2, "b"), "2: years 0 of 6, full in 1051200h0m0s", "96 0"},
			{0, 0, do(weir.Force, 2, "c"), "2: years 0 of 6, full in 1226400h0m0s", "94 0"},
			{0, 0, do(weir.Force, 2, "c"), "repeat, 2: years 0 of 6, full in 1226400h0m0s", "94 0"},
		}},
	})
}

// TestMethods has what the methods make of their arguments.
func TestMethods(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), weirtest.PerSecond)
	ctx := t.Context()
	for _, tt := range []struct {
		call func() (weir.Result, error)
		want string
	}{
		{func() (weir.Result, error) { return l.Allow(ctx, "u") }, "1: gcra 4 of 5, full in 1s"},
		{func() (weir.Result, error) { return l.AllowN(ctx, 2, "u") }, "2: gcra 2 of 5, full in 3s"},
		{func() (weir.Result, error) { return l.Peek(ctx, "u") }, "0: gcra 2 of 5, full in 3s"},
		{func() (weir.Result, error) { return l.TakeUpTo(ctx, 9, "u") }, "2: gcra 0 of 5, full in 5s"},
		{func() (weir.Result, error) { return l.Force(ctx, 7, "u") }, "7: gcra 0 of 5, full in 12s"},
	} {
		if res, err := tt.call(); answerOf(weir.Request{}, res, err) != tt.want {
			t.Errorf("got %s, want %s", answerOf(weir.Request{}, res, err), tt.want)
		}
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
		r    weir.Request
		want []weir.Result
	}{
		{do(weir.Peek, 2, ""), []weir.Result{
			{Allowed: true, Limit: 5, Window: 10 * s, Remaining: 5, Rule: "a"},
			{Allowed: true, Limit: 5, Window: 5 * s, Remaining: 5, Rule: "b"},
			{Allowed: true, Limit: 2, Window: 20 * s, Remaining: 2, Rule: "c"},
		}},
		{do(weir.TakeUpTo, 9, "x"), []weir.Result{
			{Allowed: true, Granted: 2, Limit: 5, Window: 10 * s, Remaining: 3, ResetAfter: 10 * s, Rule: "a"},
			{Allowed: true, Granted: 4, Limit: 5, Window: 5 * s, Remaining: 1, ResetAfter: 4 * s, Rule: "b"},
			{Allowed: true, Granted: 2, Limit: 2, Window: 20 * s, Remaining: 0, ResetAfter: 20 * s, Rule: "c"},
		}},
		{ask(3, ""), []weir.Result{
			{Allowed: true, Limit: 5, Window: 10 * s, Remaining: 3, ResetAfter: 10 * s, Rule: "a"},
			{Limit: 5, Window: 5 * s, Remaining: 1, RetryAfter: 3 * s, ResetAfter: 4 * s, Delay: weir.Never, Rule: "b"},
			{Limit: 2, Window: 20 * s, Remaining: 0, RetryAfter: weir.Never, ResetAfter: 20 * s, Delay: weir.Never, Rule: "c"},
		}},
		{do(weir.Refund, 0, "x"), make([]weir.Result, 3)},
		{weir.Request{Op: weir.Reset}, make([]weir.Result, 3)},
	} {
		each := []weir.Result{spare, spare, spare, spare}
		tt.r.Key = weir.KeyOf("u")
		res := weirtest.Decide(t, l, tt.r, each...)
		if !slices.Equal(each[:3], tt.want) || each[3] != spare {
			t.Errorf("step %d: got %+v, want %+v", i, each, tt.want)
		}
		if tt.r.Op >= weir.Refund && res != (weir.Result{Allowed: true}) || tt.r.Op == weir.Consume && res != each[2] {
			t.Errorf("step %d: got %+v of %+v", i, res, each)
		}
	}
}

// RetryAfter is exact: 1 µs earlier, the request is denied, and then it is allowed, whatever its
// op, its cost and its MaxWait are, and beside pauses.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	denied := map[string]int{}
	for seed := range uint64(50) {
		rnd, c := rand.New(rand.NewPCG(seed, 1)), weirtest.NewClock()
		rules := []weir.Rule{
			{Name: "tenant", By: []string{"tenant"}, Algorithm: algorithm.Pause{}},
			pauseRule,
			{Name: "rate", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 4}},
			{Name: "queue", By: []string{"tenant"}, Algorithm: algorithm.LeakyBucket{Rate: algorithm.PerSecond(2), Queue: 5}},
		}
		rnd.Shuffle(len(rules), func(i, j int) { rules[i], rules[j] = rules[j], rules[i] })
		l := weirtest.NewPolicy(t, weirtest.NewStore(c), weir.Policy{Name: "t", Segments: []string{"tenant", "user"}, Rules: rules})
		pauses := [2]*weir.Limiter{weirtest.Only(t, l, "tenant"), weirtest.Only(t, l, "pause")}
		for range 100 {
			r := weir.Request{Key: weir.KeyOf("a", weirtest.Number(rnd.IntN(2))), Op: weir.Op(rnd.IntN(4)), Cost: 1 + rnd.Int64N(3)}
			if r.Op <= weir.Peek && rnd.IntN(2) == 0 {
				r.MaxWait = time.Duration(1+rnd.IntN(2_000_000)) * time.Microsecond
			}
			if rnd.IntN(4) == 0 {
				pause(t, pauses[rnd.IntN(2)], time.Duration(1+rnd.IntN(2_000_000))*time.Microsecond, r.Key.Segments()...)
			}
			res := weirtest.Decide(t, l, r)
			if res.Allowed {
				if res.Delay > r.MaxWait {
					t.Fatalf("seed %d: %+v: got the Delay %v", seed, r, res.Delay)
				}
				c.Advance(time.Duration(rnd.IntN(500_000)) * time.Microsecond)
				continue
			}
			denied[res.Rule]++
			if r.Op == weir.TakeUpTo {
				r.Cost = 1
			}
			r.Op = weir.Peek
			c.Advance(res.RetryAfter - time.Microsecond)
			if early := weirtest.Decide(t, l, r); early.Allowed {
				t.Fatalf("seed %d: %+v was denied for %v, and is allowed 1 µs earlier", seed, r, res.RetryAfter)
			}
			c.Advance(time.Microsecond)
			if late := weirtest.Decide(t, l, r); !late.Allowed {
				t.Fatalf("seed %d: %+v was denied for %v, and then for %v by %q", seed, r, res.RetryAfter, late.RetryAfter, late.Rule)
			}
		}
	}
	if len(denied) != 4 {
		t.Errorf("the denials were %v, want some of each rule", denied)
	}
}
