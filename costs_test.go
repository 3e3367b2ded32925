package weir_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
)

// gateway is the policy of a gateway for language models.
func gateway() weir.Policy {
	team := []string{"team"}
	return weir.Policy{Name: "llm", Segments: []string{"team", "user"}, Units: []string{"input", "output", "microcents"}, Rules: []weir.Rule{
		{Name: "requests", Algorithm: algorithm.TokenBucket{Refill: algorithm.PerMinute(60), Capacity: 60}, Cost: 1},
		{Name: "input", By: team, Unit: "input", Algorithm: algorithm.TokenBucket{Refill: algorithm.PerMinute(10_000), Capacity: 10_000}},
		{Name: "output", By: team, Unit: "output", Algorithm: algorithm.TokenBucket{Refill: algorithm.PerMinute(6_000), Capacity: 6_000}},
		{Name: "month", By: team, Unit: "microcents", Algorithm: algorithm.Calendar{Limit: 50_000_000_000, Every: algorithm.Month, Day: 17, Zone: "Europe/Berlin"}},
		{Name: "provider", By: team, Algorithm: algorithm.Pause{}},
	}}
}

func amounts(input, output, cents int64) weir.Costs {
	return weir.CostsOf(map[string]int64{"input": input, "output": output, "microcents": cents})
}

// TestCosts follows one call of a gateway: one decision over three units, and one settlement.
func TestCosts(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	st := weirtest.NewStore(c)
	l, err := weir.NewPolicy(st, gateway(), &weir.Options{Settles: true})
	if err != nil {
		t.Fatal(err)
	}
	key := weir.KeyOf("acme", "ann")
	r := weir.Request{Key: key, ID: "x", Costs: amounts(1200, 4000, 3500)}
	left := func() (list [4]int64) {
		t.Helper()
		each := make([]weir.Result, 5)
		weirtest.Decide(t, l, weir.Request{Key: key, Op: weir.Peek, Costs: amounts(1, 1, 1)}, each...)
		for i := range list {
			list[i] = each[i].Remaining
		}
		return list
	}
	want := func(what string, requests, input, output, month int64) {
		t.Helper()
		if got := left(); got != [4]int64{requests, input, output, 50_000_000_000 - month} {
			t.Errorf("%s: %d left, want %d", what, got, [4]int64{requests, input, output, 50_000_000_000 - month})
		}
	}
	each := make([]weir.Result, 5)
	res := weirtest.Decide(t, l, r, each...)
	if !res.Allowed || res.Rule != "requests" || res.Granted != 1 || each[1].Granted != 1200 || each[2].Granted != 4000 || each[3].Granted != 3500 {
		t.Errorf("got %+v and %+v", res, each)
	}
	want("decided", 59, 8800, 2000, 3500)
	if res := weirtest.Decide(t, l, r, each...); !res.Replayed || !res.Allowed || each[2].Granted != 4000 {
		t.Errorf("a repeat: got %+v and %+v", res, each)
	}
	other := r
	other.Costs = amounts(1200, 4001, 3500)
	_, err = l.Decide(t.Context(), other, nil)
	weirtest.WantError(t, err, weir.ErrInvalidCost, "weir", `the amount of the unit "output" is 4001, and Request.ID names a decision that asked for 4000`)
	want("repeated", 59, 8800, 2000, 3500)

	for range 2 {
		done, err := l.SettleCosts(t.Context(), r, amounts(1180, 812, 1900))
		if err != nil || done != (weir.Settlement{Found: true}) {
			t.Errorf("SettleCosts = %+v, %v", done, err)
		}
		want("settled", 59, 8820, 5188, 1900)
	}
	if res := weirtest.Decide(t, l, r, each...); !res.Replayed || each[1].Granted != 1180 || each[2].Granted != 812 {
		t.Errorf("a repeat after the settlement: got %+v and %+v", res, each)
	}
	// A unit that is not named keeps its amount. Past the limit, the rule is in debt.
	set := weir.Request{Key: key, ID: "x", Op: weir.Settle, Actual: weir.ActualCosts(weir.CostsOf(map[string]int64{"output": 6500}))}
	if res := weirtest.Decide(t, l, set, each...); !res.Allowed || each[1].Granted != 1180 || each[2].Granted != 6500 || !each[2].Allowed || each[4].Allowed {
		t.Errorf("settled output alone: got %+v and %+v", res, each)
	}
	want("settled output alone", 59, 8820, 0, 1900)
	free := weir.Request{Key: key, Costs: amounts(1, 0, 1)}
	if res := weirtest.Decide(t, l, free, each...); res.Allowed || res.Rule != "output" || res.RetryAfter != 5*time.Second {
		t.Errorf("no output, in debt by 500: got %+v, want that it is denied for 5 s", res)
	}
	c.Advance(5 * time.Second)
	if res := weirtest.Decide(t, l, free, each...); !res.Allowed || each[2].Granted != 0 {
		t.Errorf("no output, without debt: got %+v", res)
	}
	// Nine minutes later, all buckets are full, and the month still has the tokens.
	c.Advance(9 * time.Minute)
	if done, err := l.Refund(t.Context(), r); err != nil || !done.Found || done.Kept != "" {
		t.Errorf("Refund = %+v, %v", done, err)
	}
	want("refunded", 60, 10_000, 6_000, 1)
	if done, err := l.SettleCosts(t.Context(), r, amounts(1, 1, 1)); err != nil || done.Found {
		t.Errorf("SettleCosts of a refunded decision = %+v, %v", done, err)
	}
}

// TestCostsOfZero charges later: an amount of 0 consumes nothing, and can be settled for 10
// minutes.
func TestCostsOfZero(t *testing.T) {
	t.Parallel()
	for _, a := range refundable {
		c := weirtest.NewClock()
		l, err := weir.NewPolicy(weirtest.NewStore(c), weir.Policy{Name: "n", Units: []string{"u"}, Rules: []weir.Rule{{Unit: "u", Algorithm: a}}}, &weir.Options{Settles: true})
		if err != nil {
			if !strings.Contains(err.Error(), "100 times") {
				t.Error(err)
			}
			continue
		}
		of := func(n int64) weir.Costs { return weir.CostsOf(map[string]int64{"u": n}) }
		for id, wait := range map[string]time.Duration{"soon": time.Second, "late": 10*time.Minute - 1} {
			r := weir.Request{Key: weir.KeyOf(id), ID: id, Costs: of(0)}
			if res := weirtest.Decide(t, l, r); !res.Allowed || res.Granted != 0 {
				t.Errorf("%+v: got %+v", a, res)
			}
			c.Advance(wait)
			for range 2 {
				if done, err := l.SettleCosts(t.Context(), r, of(3)); err != nil || !done.Found || done.Kept != "" {
					t.Errorf("%+v: SettleCosts = %+v, %v", a, done, err)
				}
			}
			res := weirtest.Decide(t, l, weir.Request{Key: r.Key, Op: weir.Peek, Costs: of(1)})
			if _, queues := a.(algorithm.LeakyBucket); !queues && res.Remaining != 2 {
				t.Errorf("%+v: got %+v, want 2 left", a, res)
			}
		}
		late := weir.Request{Key: weir.KeyOf("later"), ID: "later", Costs: of(0)}
		weirtest.Decide(t, l, late)
		c.Advance(10 * time.Minute)
		if done, err := l.SettleCosts(t.Context(), late, of(3)); err != nil || done.Found {
			t.Errorf("%+v: after 10 minutes: SettleCosts = %+v, %v", a, done, err)
		}
	}
}

func TestCostsAllocateNothing(t *testing.T) {
	l, err := weir.NewPolicy(weirtest.NewStore(weirtest.NewClock()), gateway(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := weir.Request{Key: weir.KeyOf("acme", "ann")}
	if n := testing.AllocsPerRun(100, func() {
		r.Costs = weir.CostsOf(map[string]int64{"input": 1200, "output": 4000, "microcents": 3500})
		if _, err := l.Decide(t.Context(), r, nil); err != nil {
			t.Error(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// A repeated TakeUpTo never grants more than it consumed, even if only the marker of a rule
// with a Unit is left.
func TestCostsOfARepeatedTakeUpTo(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	l, err := weir.NewPolicy(weirtest.NewStore(c), weir.Policy{Name: "n", Units: []string{"u"}, Rules: []weir.Rule{
		{Name: "jobs", Algorithm: algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(5)}},
		{Name: "u", Unit: "u", Algorithm: algorithm.TokenBucket{Capacity: 1000, Refill: algorithm.PerSecond(1000)}},
	}}, &weir.Options{Settles: true})
	if err != nil {
		t.Fatal(err)
	}
	r := weir.Request{Key: weir.KeyOf("k"), Op: weir.TakeUpTo, Cost: 100, ID: "x", Costs: weir.CostsOf(map[string]int64{"u": 10})}
	each := make([]weir.Result, 2)
	if weirtest.Decide(t, l, r, each...); each[0].Granted != 5 {
		t.Errorf("got %+v, want 5 jobs", each)
	}
	c.Advance(2 * time.Second)
	if res := weirtest.Decide(t, l, r, each...); !res.Replayed || each[0].Granted != 1 {
		t.Errorf("a repeat: got %+v and %+v, want 1 job", res, each)
	}
}
