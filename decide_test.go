package weir_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store/memory"
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

// The size of a Result is a multiple of 16 bytes. A Result is copied in parts of 16
// bytes. With another size, the last two parts overlap, and a processor waits if it soon
// copies the result of the copy. This took a twentieth of a decision in memory.
func TestResultSize(t *testing.T) {
	if size := unsafe.Sizeof(weir.Result{}); strconv.IntSize == 64 && size%16 != 0 {
		t.Errorf("a Result has %d bytes, want a multiple of 16: order the fields so that small ones are neighbours", size)
	}
}

// A decision on a key that the memory store holds allocates nothing: allowed or denied,
// and also through three wrappers.
func TestAllocations(t *testing.T) {
	if weirtest.Race {
		t.Skip("the race detector allocates")
	}
	fast := algorithm.GCRA{Rate: algorithm.PerSecond(1_000_000), Burst: 1 << 32}
	slow := algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 1}
	st := memory.New(nil)
	ctx := t.Context()
	one := weirtest.New(t, st, fast)
	denied, err := weir.New("denied", st, slow, nil)
	if err != nil {
		t.Fatal(err)
	}
	two := weirtest.NewPolicy(t, st, weir.Policy{
		Name: "two", Segments: []string{"ip", "account", "token"}, Secret: []string{"token"},
		Rules: []weir.Rule{
			{Name: "ip", By: []string{"ip"}, Algorithm: algorithm.FixedWindow{Limit: 1 << 40, Window: time.Hour}},
			{Name: "all", Algorithm: fast},
		},
	})
	units := weirtest.NewPolicy(t, st, weir.Policy{Units: []string{"input", "output", "microcents"}, Rules: []weir.Rule{
		{Name: "input", Unit: "input", Algorithm: fast}, {Name: "output", Unit: "output", Algorithm: fast}, {Name: "pause", Algorithm: algorithm.Pause{}},
	}})
	user, ip, token := "user:1000", "192.0.2.1", "a token that is longer than thirty-two bytes"
	long := strings.Repeat("{", 90)
	each := make([]weir.Result, 2)
	wrapped := weirtest.Wrap(t, two, weirtest.Pass, weirtest.Pass, weirtest.Pass)
	for _, tt := range []struct {
		name string
		call func() (weir.Result, error)
		want bool
	}{
		{"Allow", func() (weir.Result, error) { return one.Allow(ctx, "ann") }, true},
		{"Allow with a variable", func() (weir.Result, error) { return one.Allow(ctx, user) }, true},
		{"Allow with a key that is long when escaped", func() (weir.Result, error) { return one.Allow(ctx, long) }, true},
		{"AllowN", func() (weir.Result, error) { return one.AllowN(ctx, 7, user) }, true},
		{"Peek", func() (weir.Result, error) { return one.Peek(ctx, user) }, true},
		{"TakeUpTo", func() (weir.Result, error) { return one.TakeUpTo(ctx, 3, user) }, true},
		{"denied", func() (weir.Result, error) { return denied.Allow(ctx, user) }, false},
		{"MaxWait", func() (weir.Result, error) {
			return one.Decide(ctx, weir.Request{Key: weir.KeyOf(user), MaxWait: time.Second}, nil)
		}, true},
		{"two rules", func() (weir.Result, error) { return two.Allow(ctx, ip, user, token) }, true},
		{"Decide with each", func() (weir.Result, error) {
			return two.Decide(ctx, weir.Request{Key: weir.KeyOf(ip, user, token)}, each)
		}, true},
		{"Costs", func() (weir.Result, error) {
			costs := weir.CostsOf(map[string]int64{"input": 1, "output": 1, "microcents": 0})
			return units.Decide(ctx, weir.Request{Key: weir.KeyOf(user), Costs: costs}, nil)
		}, true},
		{"Allow through three wrappers", func() (weir.Result, error) { return wrapped.Allow(ctx, ip, user, token) }, true},
		{"Decide through three wrappers", func() (weir.Result, error) {
			return wrapped.Decide(ctx, weir.Request{Key: weir.KeyOf(ip, user, token), Cost: 2}, each)
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := tt.call(); err != nil {
				t.Fatal(err)
			}
			var res weir.Result
			var err error
			if got := testing.AllocsPerRun(1000, func() { res, err = tt.call() }); got != 0 {
				t.Errorf("%v allocations, want 0", got)
			}
			if err != nil || res.Allowed != tt.want {
				t.Errorf("got %+v, %v, want allowed: %v", res, err, tt.want)
			}
		})
	}
}

// KeyOf allocates nothing.
func TestKeyOfAllocations(t *testing.T) {
	ip, account := "192.0.2.1", "ann"
	var k weir.Key
	if got := testing.AllocsPerRun(1000, func() { k = weir.KeyOf(ip, account) }); got != 0 || k != weir.KeyOf(ip, account) {
		t.Errorf("%v allocations for %v, want 0", got, k)
	}
}

// gateway is the policy of a gateway for language models.
func gateway() weir.Policy {
	bucket := func(perMinute int64) algorithm.Algorithm {
		return algorithm.TokenBucket{Refill: algorithm.PerMinute(perMinute), Capacity: perMinute}
	}
	return weir.Policy{Name: "llm", Units: []string{"input", "output", "microcents", "later"}, Rules: []weir.Rule{
		{Name: "requests", Algorithm: bucket(60), Cost: 1},
		{Name: "input", Unit: "input", Algorithm: bucket(10_000)},
		{Name: "output", Unit: "output", Algorithm: bucket(6_000)},
		{Name: "month", Unit: "microcents", Algorithm: algorithm.Calendar{Limit: 50_000, Every: algorithm.Month, Day: 17, Zone: "Europe/Berlin"}},
		{Name: "provider", Algorithm: algorithm.Pause{}},
	}}
}

func amounts(input, output, cents int64) weir.Costs {
	return weir.CostsOf(map[string]int64{"input": input, "output": output, "microcents": cents})
}

// TestCosts has what requests answer in rules that count units.
func TestCosts(t *testing.T) {
	t.Parallel()
	of := func(r weir.Request, costs weir.Costs) weir.Request { r.Costs = costs; return r }
	bytes := func(n int64) weir.Costs { return weir.CostsOf(map[string]int64{"bytes": n}) }
	to := func(costs weir.Costs) weir.Request {
		return weir.Request{Op: weir.Settle, ID: "x", Actual: weir.ActualCosts(costs)}
	}
	units := func(list ...weir.Rule) []weir.Policy { return []weir.Policy{{Units: []string{"bytes"}, Rules: list}} }
	perSecond := func(name, unit string, n int64) weir.Rule {
		return weir.Rule{Name: name, Unit: unit, Algorithm: algorithm.TokenBucket{Capacity: n, Refill: algorithm.PerSecond(n)}}
	}
	one := weir.CostsOf(map[string]int64{"output": 6500}) // of the units
	play(t, []trace{
		{"one call of a gateway", []weir.Policy{gateway()}, true, []step{
			{0, 0, of(ask(0, "x"), amounts(1200, 4000, 3500)), "1: requests 59 of 60, full in 1s", "59 8800 2000 46500 open"},
			{0, 0, of(ask(0, "x"), amounts(1200, 4000, 3500)), "repeat, 1", "59 8800 2000 46500 open"},
			{0, 0, of(ask(0, "x"), amounts(1200, 4001, 3500)), `! the amount of the unit "output" is 4001, and Request.ID names a decision that asked for 4000`, ""},
			{0, 0, of(ask(0, ""), amounts(0, 2001, 0)), "denied for 10ms: output 2000 of 6000, full in 40s", "59 8800 2000 46500 open"},
			{0, 0, to(amounts(1180, 812, 1900)), "found true, cost 0", "59 8820 5188 48100 open"},
			{0, 0, to(amounts(1180, 812, 1900)), "found true, cost 0", "59 8820 5188 48100 open"},
			{0, 0, to(one), "found true, cost 0", "59 8820 0 48100 open"},                                 // the others keep their amounts
			{0, 0, of(ask(0, ""), amounts(1, 0, 1)), "denied for 5s: output 0 of 6000, full in 1m5s", ""}, // in debt by 500
			{5 * second, 0, of(ask(0, ""), amounts(1, 0, 1)), "0", ""},
			{0, 0, of(do(weir.Force, 0, ""), amounts(0, 700, 0)), "700: output 0 of 6000, full in 1m7s", ""},
			{0, 0, of(ask(0, ""), weir.CostsOf(map[string]int64{"input": 1, "output": 0, "microcents": 0, "later": 1 << 60})), "denied for 7s", ""},
			{9 * time.Minute, 0, of(do(weir.Refund, 0, "x"), amounts(1200, 4000, 1)), "! Refund: Request.Cost is 0: the decision asked for more of it or of a unit in Request.Costs", ""},
			{0, 0, do(weir.Refund, 0, "x"), "found true, cost 0", "60 10000 6000 49999 open"}, // the month still has the tokens
			{0, 0, to(amounts(1, 1, 1)), "found false, cost 0", "60 10000 6000 49999 open"},
		}},
		{"an amount of 0 is settled for 10 minutes", units(perSecond("u", "bytes", 5)), true, []step{
			{0, 0, of(ask(0, "x"), bytes(0)), "0: u 5 of 5, full in 0s", "5"},
			{10*time.Minute - time.Microsecond, 0, to(bytes(3)), "found true, cost 0", "2"},
			{0, 0, to(bytes(3)), "found true, cost 0", "2"},
			{time.Hour, 0, of(ask(0, "y"), bytes(0)), "0", "5"},
			{10 * time.Minute, 0, weir.Request{Op: weir.Settle, ID: "y", Actual: weir.ActualCosts(bytes(3))}, "found false, cost 0", "5"},
		}},
		{"a repeated TakeUpTo, of which only the unit is left", units(perSecond("jobs", "", 5), perSecond("u", "bytes", 1000)), true, []step{
			{0, 0, of(do(weir.TakeUpTo, 100, "x"), bytes(10)), "5: jobs 0 of 5, full in 1s", "0 990"},
			{2 * second, 0, of(do(weir.TakeUpTo, 100, "x"), bytes(10)), "repeat, 1", "5 1000"}, // never more than it consumed
		}},
		{"a reservation waits for the slowest unit", units(perSecond("u", "bytes", 100), perSecond("v", "", 20)), true, []step{
			{0, 0, of(ask(20, ""), bytes(80)), "20: v 0 of 20, full in 1s", "20 0"},
			{0, 0, of(weir.Request{Cost: 5, ID: "x", MaxWait: time.Minute}, bytes(50)), "50 in 300ms: u 0 of 100, full in 1.3s", "0 0"},
			{0, 0, of(do(weir.Peek, 0, ""), bytes(0)), "denied for 300ms", "0 0"}, // reserved tokens deny an amount of 0
			{0, 0, do(weir.Refund, 0, "x"), "found true, cost 0", "20 0"},
		}},
		{"a unit that no rule counts", units(window("one", 9)), true, []step{
			{0, 0, of(ask(0, "x"), bytes(5)), "1", "8"},
			{0, 0, to(bytes(3)), "found true, cost 1", "8"},
		}},
		{"a unit that no rule counts, beside a Cost", units(costing(window("own", 9), 1)), true, []step{
			{0, 0, of(ask(0, "x"), bytes(5)), "1", "8"},
			{0, 0, to(bytes(3)), "found true, cost 1", "8"},
		}},
	})
}

// With each, a Settle answers what each rule that counts a unit costs now.
func TestCostsEach(t *testing.T) {
	t.Parallel()
	l, err := weir.NewPolicy(memory.New(nil), gateway(), &weir.Options{Settles: true})
	if err != nil {
		t.Fatal(err)
	}
	each := make([]weir.Result, 5)
	r := weir.Request{Key: keyU.Key, ID: "x", Costs: amounts(1200, 4000, 3500)}
	check := func(want ...int64) {
		t.Helper()
		for i, r := range each {
			if r.Granted != want[i] || r.Rule != l.Rules()[i].Name {
				t.Errorf("got %+v, want %d", each, want)
			}
		}
	}
	weirtest.Decide(t, l, r, each...)
	check(1, 1200, 4000, 3500, 1)
	r.Op, r.Actual = weir.Settle, weir.ActualCosts(weir.CostsOf(map[string]int64{"output": 812}))
	weirtest.Decide(t, l, r, each...)
	if check(1, 1200, 812, 3500, 0); !each[2].Allowed || each[4].Allowed || each[4].Type != weir.PauseRule {
		t.Errorf("got %+v, want that a rule that pauses is not found", each)
	}
	if done, err := l.SettleCosts(t.Context(), r, amounts(1, 2, 3)); err != nil || done != (weir.Settlement{Found: true}) {
		t.Errorf("SettleCosts = %+v, %v", done, err)
	}
	// Each request of a batch has its own amounts.
	many := l.DoMany(t.Context(), []weir.Request{{Key: keyU.Key, Costs: amounts(6000, 1, 1)}, {Key: keyU.Key, Costs: amounts(6000, 2, 1)}, {Key: keyU.Key, Costs: amounts(3000, 3, 1)}})
	if !many[0].Result.Allowed || many[1].Result.Rule != "input" || many[1].Result.Allowed || !many[2].Result.Allowed {
		t.Errorf("DoMany: got %+v", many)
	}
}

// Costs are equal if they have the same amounts of the same units.
func TestCostsOf(t *testing.T) {
	t.Parallel()
	type costs = map[string]int64
	a := weir.CostsOf(costs{"x": 1, "y": 0, "a": 3})
	for _, b := range []weir.Costs{{}, weir.CostsOf(costs{"x": 1, "a": 3}), weir.CostsOf(costs{"x": 1, "y": 2, "a": 3}), weir.CostsOf(costs{"x": 1, "z": 0, "a": 3}), weir.CostsOf(costs{"": 1})} {
		if a == b {
			t.Errorf("%v is equal to %v", a, b)
		}
	}
	if b := weir.CostsOf(costs{"a": 3, "y": 0, "x": 1}); a != b || a.String() != "a=3 x=1 y=0" || weir.CostsOf(costs{}) != (weir.Costs{}) {
		t.Errorf("%v is not equal to %v", a, b)
	}
	x, named := a.Amount("x")
	if _, other := a.Amount("z"); x != 1 || !named || other {
		t.Errorf("%v names x: %d, %v, and z: %v", a, x, named, other)
	}
}
