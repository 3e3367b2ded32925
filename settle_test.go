package weir_test

import (
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
)

// budget is a policy of a rate and a daily budget.
func budget(perMinute, perDay int64) weir.Policy {
	return weirtest.Rules(minute("minute", perMinute), weir.Rule{Name: "day", Algorithm: weirtest.Window(perDay, 24*time.Hour)})
}

// TestRepeat has what a request answers whose ID names an earlier decision.
func TestRepeat(t *testing.T) {
	t.Parallel()
	turn := func(wait time.Duration) weir.Request { return weir.Request{ID: "x", MaxWait: wait} }
	reserve := weir.Request{MaxWait: weir.Never}
	play(t, []trace{
		{name: "consumes nothing", policies: rules(minute("m", 6)), steps: []step{
			{0, 0, ask(4, "x"), "4: m 2 of 6, full in 40s", "2"},
			{0, 0, do(weir.TakeUpTo, 4, "y"), "2: m 0 of 6, full in 1m0s", "0"},
			{second, 0, ask(4, "x"), "repeat, 4: m 0 of 6, full in 59s", "0"},
			{0, 0, do(weir.TakeUpTo, 4, "y"), "repeat, 2: m 0 of 6, full in 59s", "0"},
			{0, 0, do(weir.Force, 4, "x"), "repeat, 4: m 0 of 6, full in 59s", "0"},
			{0, 0, ask(3, "x"), "! Consume: the cost is 3, and Request.ID names a decision that asked for 4: repeat the request of that decision, or use another ID", "0"},
			{0, 0, do(weir.TakeUpTo, 3, "x"), "! TakeUpTo: the cost is 3, and Request.ID names a decision that asked for 4", "0"},
			{0, 0, ask(7, "x"), "! the cost is 7, and Request.ID names a decision that asked for 4", "0"},
			{0, 0, do(weir.Refund, 0, "x"), "found true, cost 0", "4"},
			{0, 0, ask(3, "x"), "3", "1"}, // a new decision
		}},
		{name: "of a denial, and after the refill", policies: rules(minute("m", 60)), steps: []step{
			{0, 0, ask(60, ""), "60", "0"},
			{0, 0, ask(2, "x"), "denied for 2s", "0"},
			{2 * second, 0, ask(2, "x"), "2", "0"},
			{0, 0, ask(2, "x"), "repeat, 2", "0"},
			{60 * second, 0, ask(2, "x"), "2", "58"},
		}},
		{name: "of several rules", policies: rules(minute("fast", 60), costing(window("slow", 100), 4)), steps: []step{
			{0, 0, do(weir.TakeUpTo, 90, "x"), "60: fast 0 of 60, full in 1m0s", "0 96"},
			{59 * time.Minute, 0, do(weir.TakeUpTo, 90, "x"), "repeat, 60: fast 60 of 60, full in 0s", "60 96"}, // only the marker of slow is left
			{time.Minute, 0, do(weir.TakeUpTo, 90, "x"), "60", "0 96"},
		}},
		{name: "of a reservation", policies: rules(minute("turns", 1), minute("many", 6000)), steps: []step{
			{0, 0, reserve, "1", ""},
			{0, 0, reserve, "1 in 1m0s", ""},
			{0, 0, turn(weir.Never), "1 in 2m0s", ""},
			{0, 0, reserve, "1 in 3m0s", ""},
			{0, 0, turn(weir.Never), "repeat, 1 in 2m0s", ""},
			{30 * second, 0, turn(89 * second), "repeat, denied for 1s: turns 0 of 1, full in 3m30s", ""}, // not ahead of its turn
			{0, 0, turn(90 * second), "repeat, 1 in 1m30s", ""},
			{90*second - time.Microsecond, 0, turn(0), "repeat, denied for 1µs", ""},
			{time.Microsecond, 0, turn(0), "repeat, 1", ""},
		}},
		{name: "after Settles", policies: rules(minute("m", 6)), steps: []step{
			{0, 0, ask(3, "x"), "3", "3"},
			{0, 0, settle(9, "x"), "found true, cost 9", "0"},
			{0, 0, settle(3, "x"), "found true, cost 3", "3"},
			{0, 0, ask(3, "x"), "repeat, 3", "3"}, // without a Delay
			{0, 0, settle(0, "x"), "found true, cost 0", "6"},
			{0, 0, weir.Request{Cost: 9, MaxWait: weir.Never}, "denied for ever", "6"},
			{0, 0, ask(6, ""), "6", "0"},
			{0, 0, settle(3, "x"), "found true, cost 3", "0"},
			{0, 0, ask(3, "x"), "repeat, 3", "0"},
		}},
		{name: "in a pause", policies: rules(pauseRule, rateRule), steps: []step{
			{0, 0, ask(5, "x"), "5", "open 0"}, // refilled in 5 s
			{0, 0, weir.Request{Op: weir.Pause, ID: "p", For: 2 * second}, "true", "closed 0"},
			{0, 0, ask(5, "x"), "repeat, denied for 2s: pause 0 of 9007199254740991, full in 2s", "closed 0"},
			{0, 0, weir.Request{Cost: 5, ID: "x", MaxWait: time.Hour}, "repeat, denied for 2s", "closed 0"},
			{0, 0, do(weir.Force, 5, "x"), "repeat, 5", "closed 0"},
			{2 * second, 0, ask(5, "x"), "repeat, 5: rate 2 of 5, full in 3s", "open 2"},
			{0, 0, weir.Request{Op: weir.Pause, ID: "p", For: 4 * second}, "true", "closed 2"},
			{4 * second, 0, ask(5, "x"), "5: rate 0 of 5, full in 5s", "open 0"}, // the pause outlasted the decision
		}},
		{name: "of a huge cost", policies: rules(costing(window("w", 10), 1)), steps: []step{
			{0, 0, ask(1<<60, "x"), "1", "9"},
			{0, 0, ask(1<<60, "x"), "repeat, 1", "9"},
			{0, 0, do(weir.Force, 1<<60, "y"), "1", "8"},
			{0, 0, do(weir.Force, 1<<60, "y"), "repeat, 1", "8"},
		}},
	})
}

// TestSettle has what Settle and Refund answer.
func TestSettle(t *testing.T) {
	t.Parallel()
	log := weir.Rule{Name: "log", Algorithm: algorithm.SlidingLog{Limit: 10, Window: time.Hour}} // at most MaxLogTokens, with its debt
	acme := func(user string, r weir.Request) weir.Request { r.Key = weir.KeyOf("acme", user); return r }
	tenant := weir.Rule{Name: "tenant", By: []string{"tenant"}, Algorithm: weirtest.Window(100, time.Hour)}
	back := []step{ // the marker of the bucket ends before the window's, and the clock steps back
		{0, 0, ask(4, "x"), "4", ""},
		{4 * second, 0, settle(1, "x"), "found true, cost 1", ""},
		{-second, 0, settle(1, "x"), "found true, cost 1", ""},
		{0, 0, do(weir.Peek, 1, ""), "0: window 9 of 10, full in 59m57s", ""},
	}
	play(t, []trace{
		{name: "less and more", policies: rules(window("w", 5)), steps: []step{
			{0, 0, ask(3, "x"), "3", "2"},
			{0, 0, settle(3, "x"), "found true, cost 3", "2"},
			{0, 0, settle(1, "x"), "found true, cost 1", "4"},
			{0, 0, settle(9, "x"), "found true, cost 9", "0"},
			{0, 0, settle(9, "x"), "found true, cost 9", "0"},
			{0, 0, do(weir.Peek, 1, ""), "denied for 1h0m0s", "0"},
			{0, 0, settle(4, "x"), "found true, cost 4", "1"},
			{0, 0, ask(3, "x"), "repeat, 4", "1"},
			{0, 0, do(weir.Refund, 2, "x"), "! Refund: Request.Cost is 2: the decision asked for more of it: pass the decision's request, to refund all of it; to refund a part, use Settle", "1"},
			{0, 0, do(weir.Refund, 3, "x"), "found true, cost 0", "5"},
			{0, 0, settle(2, "x"), "found false, cost 0", "5"},
			{0, 0, do(weir.Refund, 0, "x"), "found false, cost 0", "5"},
		}},
		{name: "at 0", policies: rules(minute("m", 5)), steps: []step{
			{0, 0, ask(5, "x"), "5", "0"},
			{0, 0, settle(0, "x"), "found true, cost 0", "5"},
			{0, 0, ask(5, "x"), "repeat, 0", "5"},
			{0, 0, do(weir.Refund, 5, "x"), "found false, cost 0", "5"},
		}},
		{name: "no decision", policies: rules(minute("m", 60)), steps: []step{
			{0, 0, ask(40, "allowed"), "40", "20"},
			{0, 0, ask(40, "denied"), "denied for 20s", "20"},
			{0, 0, settle(9, "unknown"), "found false, cost 0", "20"},
			{0, 0, settle(9, "denied"), "found false, cost 0", "20"},
			{40 * second, 0, settle(9, "allowed"), "found false, cost 0", "60"}, // its tokens have been refilled
		}},
		{name: "at the bound of the debt", policies: rules(log), steps: []step{
			{0, 0, ask(5, "x"), "5", "5"},
			{0, 0, do(weir.Force, algorithm.MaxLogTokens-10, ""), "4503599627370485", "0"},
			{0, 0, settle(100, "x"), "found true, cost 10", "0"},
			{0, 0, settle(100, "x"), "found true, cost 10", "0"},
		}},
		{name: "after a Reset", policies: rules(window("w", 20)), steps: []step{
			{0, 0, ask(3, "x"), "3", "17"},
			{0, 0, ask(4, "y"), "4", "13"},
			{0, 0, weir.Request{Op: weir.Reset}, "true", "20"},
			{time.Microsecond, 0, do(weir.Refund, 0, "x"), "found false, cost 0", "20"}, // which ends the ID
			{0, 0, ask(10, "x"), "10", "10"},
			{0, 0, do(weir.Refund, 0, "y"), "found false, cost 0", "10"},
			{0, 0, do(weir.Refund, 0, "x"), "found true, cost 0", "20"},
		}},
		{name: "by the whole key, under any limit", policies: []weir.Policy{
			{Segments: []string{"tenant", "user"}, Rules: []weir.Rule{tenant, window("user", 90)}},
			{Segments: []string{"tenant", "user"}, Rules: []weir.Rule{{Name: "tenant", By: []string{"tenant"}, Algorithm: weirtest.Window(200, time.Hour)}, window("user", 90)}},
		}, steps: []step{
			{0, 0, acme("ann", ask(1, "order")), "1", "99 89"},
			{0, 0, acme("bob", ask(90, "order")), "90", "9 0"},
			{0, 0, acme("eve", do(weir.Refund, 0, "order")), "found false, cost 0", "9 90"},
			{0, 0, weir.Request{Op: weir.Refund, Key: weir.KeyOf("order", "acme"), ID: "ann"}, "found false, cost 0", ""},
			{0, 1, acme("ann", do(weir.Refund, 0, "order")), "found true, cost 0", "10 90"},
			{0, 0, acme("ann", do(weir.Refund, 0, "order")), "found false, cost 0", "10 90"},
			{0, 0, acme("bob", do(weir.Peek, 1, "")), "denied for 1h0m0s", "10 0"},
		}},
		{name: "and a clock that steps back", policies: rules(window("window", 10), minute("bucket", 60)), steps: back},
		{name: "and a clock that steps back, in another order", policies: rules(minute("bucket", 60), window("window", 10)), steps: back},
	})
}

// TestSettleUnderOtherLimits has what becomes of a decision if the limits or the rules of the
// limiter change, in both directions of a rolling deployment. Package conformance compares random
// changes with a model.
func TestSettleUnderOtherLimits(t *testing.T) {
	t.Parallel()
	of := func(policies ...weir.Policy) []weir.Policy { return policies }
	day := window("day", 90)
	slow := func(perMinute, cost int64) weir.Rule {
		return weir.Rule{Name: "minute", Algorithm: algorithm.GCRA{Rate: algorithm.PerMinute(perMinute), Burst: 60}, Cost: cost}
	}
	burst := func(n int64) weir.Policy {
		return weirtest.Rules(weir.Rule{Name: "b", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: n}})
	}
	var traces []trace
	for _, rates := range [][2]int64{{5000, 8000}, {8000, 5000}} {
		traces = append(traces, trace{name: "another rate", policies: of(budget(rates[0], 100_000), budget(rates[1], 100_000)), steps: []step{
			{0, 0, ask(4000, "x"), "4000", ""},
			{0, 1, ask(4000, "x"), "repeat, 4000", ""},
			{0, 1, settle(100, "x"), "found true, cost 100, kept minute", ""}, // the rate keeps what it had consumed
			{0, 1, settle(100, "x"), "found true, cost 100, kept minute", ""},
			{0, 0, do(weir.Peek, 1, ""), map[int64]string{5000: "0: minute 1000 of 5000, full in 48s", 8000: "0: minute 4000 of 8000, full in 30s"}[rates[0]], ""},
			{0, 0, settle(100, "x"), "found true, cost 100", ""}, // the first process can adjust its rate
			{0, 1, settle(300, "x"), "found true, cost 300", ""},
			{0, 1, do(weir.Refund, 0, "x"), "found true, cost 0", ""},
			{0, 0, ask(4000, "x"), "4000", ""},
		}})
	}
	play(t, append(traces, []trace{
		{name: "a lower burst", policies: of(burst(10), burst(3)), steps: []step{
			{0, 0, ask(7, "x"), "7", "3"},
			{0, 1, ask(7, "x"), "repeat, 7: b 0 of 3, full in 7s", ""}, // it does not wait
			{0, 1, weir.Request{Cost: 7, ID: "x", MaxWait: time.Minute}, "repeat, 7 in 4s", ""},
			{0, 1, settle(2, "x"), "found true, cost 2", "8"},
		}},
		{name: "a new rule", policies: of(weirtest.Rules(window("hour", 50), day), weirtest.Rules(day)), steps: []step{
			{0, 1, ask(40, "x"), "40", "50 50"},
			{0, 0, ask(40, "x"), "repeat, 40", "50 50"},
			{0, 0, settle(10, "x"), "found true, cost 10", "50 80"},
			{0, 0, settle(15, "x"), "found true, cost 15", "45 75"},
		}},
		{name: "a removed or renamed rule", policies: of(weirtest.Rules(window("hour", 50), window("other", 70), day), weirtest.Rules(day, window("other", 70)), weirtest.Rules(window("hour", 50), day)), steps: []step{
			{0, 2, ask(40, "x"), "40", "10 70 50"},
			{0, 1, settle(10, "x"), "found true, cost 10", "10 70 80"},
			{0, 1, settle(15, "x"), "found true, cost 15", "10 65 75"},
			{0, 2, settle(15, "x"), "found true, cost 15", "35 65 75"},
		}},
		{name: "a new Cost", policies: of(weirtest.Rules(costing(window("calls", 50), 1), day), weirtest.Rules(window("calls", 50), day)), steps: []step{
			{0, 1, ask(40, "x"), "40", "10 50"},
			{0, 0, settle(10, "x"), "found true, cost 10, kept calls", "10 80"},
			{0, 1, settle(10, "x"), "found true, cost 10", "40 80"},
			{0, 0, do(weir.Refund, 0, "x"), "found true, cost 0, kept calls", "40 90"},
		}},
		{name: "a kept rule", policies: of(weirtest.Rules(slow(1, 0), day), weirtest.Rules(slow(2, 0), day), weirtest.Rules(slow(1, 1), day)), steps: []step{
			{0, 0, ask(4, "x"), "4", "56 86"},
			{0, 0, settle(9, "x"), "found true, cost 9", "51 81"},
			{0, 1, settle(5, "x"), "found true, cost 5, kept minute", "51 85"},
			{0, 1, settle(9, "x"), "found true, cost 9", "51 81"},
			{0, 2, settle(6, "x"), "found true, cost 6, kept minute", "51 84"},
			{0, 0, settle(5, "x"), "found true, cost 5", "55 85"},
			{0, 2, settle(5, "x"), "found true, cost 5", "55 85"},
		}},
		{name: "only a kept rule", policies: of(weirtest.Rules(costing(window("calls", 50), 1), window("week", 90)), weirtest.Rules(window("calls", 50), day), weirtest.Rules(costing(window("calls", 50), 1), day)), steps: []step{
			{0, 1, ask(4, "x"), "4", "46 90"},
			{0, 2, settle(6, "x"), "found true, cost 6, kept calls", "46 90"},
			{0, 0, settle(6, "x"), "found true, cost 6, kept calls", "46 90"}, // what the other rules paid is not known
		}},
	}...))
}
