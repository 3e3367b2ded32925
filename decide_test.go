package weir_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
)

const second = time.Second

// TestDecide has what Consume, Peek and TakeUpTo answer. A denial describes the rule with the
// longest RetryAfter, and the answer to an allowed request that with the fewest tokens.
func TestDecide(t *testing.T) {
	t.Parallel()
	const log = 1000
	in := func(name string, limit int64, seconds time.Duration) weir.Rule {
		return weir.Rule{Name: name, Algorithm: weirtest.Window(limit, seconds*second)}
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
			{0, 0, ask(-1, ""), "! Request.Cost is -1", "0"}, // misuse is found in memory too, though it knows the key
			{0, 0, weir.Request{Metadata: "m"}, "! Request.Metadata has 1 bytes", "0"},
			{0, 0, do(99, 1, ""), "! Request.Op is Op(99)", "0"},
		}},
		{name: "a forgotten cost is 1", policies: rules(window("w", 2)), steps: []step{
			{0, 0, weir.Request{Op: weir.Peek}, "0: w 2 of 2, full in 0s", "2"},
			{0, 0, weir.Request{}, "1", "1"},
			{0, 0, weir.Request{Op: weir.TakeUpTo}, "1", "0"},
			{0, 0, weir.Request{}, "denied for 1h0m0s", "0"},
			{0, 0, weir.Request{Op: weir.Force}, "1", "0"},
		}},
		{name: "three rules", policies: rules(in("a", 5, 10), in("b", 3, 20), in("c", 3, 30)), steps: []step{
			{0, 0, ask(2, ""), "2: b 1 of 3, full in 20s", "3 1 1"}, // the first of equal rules
			{0, 0, ask(2, ""), "denied for 30s: c 1 of 3, full in 30s", "3 1 1"},
			{0, 0, ask(4, ""), "denied for ever: b 1 of 3, full in 20s", "3 1 1"},
			{0, 0, ask(6, ""), "denied for ever: a 3 of 5, full in 10s", "3 1 1"},
			{20 * second, 0, ask(2, ""), "denied for 10s: c 1 of 3, full in 10s", "5 3 1"},
			{0, 0, do(weir.TakeUpTo, 4, ""), "1: c 0 of 3, full in 10s", "4 2 0"},
		}},
		{name: "a rule with a Cost", policies: rules(in("a", 10, 10), costing(in("b", 3, 20), 1)), steps: []step{
			{0, 0, ask(4, ""), "4: b 2 of 3, full in 20s", "6 2"},
			{0, 0, ask(5, ""), "5: a 1 of 10, full in 10s", "1 1"},
			{0, 0, ask(2, ""), "denied for 10s: a 1 of 10, full in 10s", "1 1"},
			{0, 0, do(weir.TakeUpTo, 9, ""), "1: a 0 of 10, full in 10s", "0 0"},
			{10 * second, 0, ask(1, ""), "denied for 10s: b 0 of 3, full in 10s", "10 0"},
		}},
		{name: "only rules with a Cost", policies: rules(costing(in("a", 10, 10), 3), costing(in("b", 9, 20), 2)), steps: []step{
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
	})
}

// TestForce has what a Force answers. Debt denies requests until it is refilled.
func TestForce(t *testing.T) {
	t.Parallel()
	const most = algorithm.MaxLogTokens - 10
	log := func(name string, limit int64) weir.Rule {
		return weir.Rule{Name: name, Algorithm: algorithm.SlidingLog{Limit: limit, Window: time.Hour}}
	}
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
	})
}

// TestMethods has what the methods make of their arguments.
func TestMethods(t *testing.T) {
	t.Parallel()
	l := weirtest.NewPolicy(t, weirtest.NewStore(weirtest.NewClock()), by(2, "0"))
	ctx := t.Context()
	for _, tt := range []struct {
		call func() (weir.Result, error)
		want string
	}{
		{func() (weir.Result, error) { return l.Allow(ctx, "u", "x") }, "1: a 4 of 5, full in 1s"},
		{func() (weir.Result, error) { return l.AllowN(ctx, 2, "u", "x") }, "2: a 2 of 5, full in 3s"},
		{func() (weir.Result, error) { return l.Peek(ctx, "u", "x") }, "0: a 2 of 5, full in 3s"},
		{func() (weir.Result, error) { return l.TakeUpTo(ctx, 9, "u", "x") }, "2: a 0 of 5, full in 5s"},
		{func() (weir.Result, error) { return l.Force(ctx, 7, "u", "x") }, "7: a 0 of 5, full in 12s"},
	} {
		if res, err := tt.call(); answerOf(weir.Request{}, res, err) != tt.want {
			t.Errorf("got %s, want %s", answerOf(weir.Request{}, res, err), tt.want)
		}
	}
	for _, key := range [][]string{{}, {"u"}, {"u", ""}, {"u", "x", "y"}} {
		if res, err := l.Allow(ctx, key...); !errors.Is(err, weir.ErrInvalidKey) || res != (weir.Result{}) {
			t.Errorf("the key %q: got %+v, %v", key, res, err)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	if res, err := l.Allow(ctx, "u", "x"); !errors.Is(err, context.Canceled) || res != (weir.Result{}) {
		t.Errorf("a context that has ended: got %+v, %v", res, err)
	}
}

// Decide stores the result of each rule in each, or nothing. Further elements do not change.
func TestEach(t *testing.T) {
	t.Parallel()
	l := weirtest.NewPolicy(t, weirtest.NewStore(weirtest.NewClock()), weirtest.Rules(window("a", 5), costing(rateRule, 4), window("c", 2)))
	spare := weir.Result{Rule: "spare"}
	for i, tt := range []struct {
		r    weir.Request
		want [3]string
	}{
		{do(weir.Peek, 2, ""), [3]string{"0: a 5 of 5, full in 0s", "0: rate 5 of 5, full in 0s", "0: c 2 of 2, full in 0s"}},
		{do(weir.TakeUpTo, 9, "x"), [3]string{"2: a 3 of 5, full in 1h0m0s", "4: rate 1 of 5, full in 4s", "2: c 0 of 2, full in 1h0m0s"}},
		{ask(3, ""), [3]string{"0: a 3 of 5, full in 1h0m0s", "denied for 3s: rate 1 of 5, full in 4s", "denied for ever: c 0 of 2, full in 1h0m0s"}},
		{do(weir.Refund, 0, "x"), [3]string{}},
		{weir.Request{Op: weir.Reset}, [3]string{}},
	} {
		each := []weir.Result{spare, spare, spare, spare}
		tt.r.Key = keyU.Key
		res := weirtest.Decide(t, l, tt.r, each...)
		for n, want := range tt.want {
			if got := each[n]; want != "" && answerOf(tt.r, got, nil) != want || want == "" && got != (weir.Result{}) || got.Window != l.Rules()[n].Window && want != "" || got.Allowed != (got.Delay == 0) && want != "" {
				t.Errorf("step %d, rule %d: got %+v, want %s", i, n, got, want)
			}
		}
		if each[3] != spare || tt.r.Op >= weir.Refund && res != (weir.Result{Allowed: true}) || tt.r.Op == weir.Consume && res != each[2] {
			t.Errorf("step %d: got %+v of %+v", i, res, each)
		}
	}
}
