package weir_test

import (
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store/memory"
)

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
