package weir_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
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

// work is a policy with two places, a bucket of 10 tokens and a pause.
var work = weir.Policy{Name: "work", Rules: []weir.Rule{
	{Name: "parallel", Algorithm: algorithm.Concurrency{Limit: 2, Lease: time.Minute}, Cost: 1},
	{Name: "tokens", Algorithm: algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerDay(10)}},
	{Name: "closed", Algorithm: algorithm.Pause{}},
}}

// newWork returns a limiter of work over st.
func newWork(t *testing.T, st store.Store, settles bool) *weir.Limiter {
	t.Helper()
	l, err := weir.NewPolicy(st, work, &weir.Options{Settles: settles})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// What each op does to a piece of work, "a" at a cost of 3, whose lease is held or not, and whose
// bill is found or not. docs/guide/work.md has the same table.
func TestWork(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("docs"); err != nil {
		t.Skip("docs is another module, which a copy of this one lacks")
	}
	page, err := os.ReadFile("docs/guide/work.md")
	if err != nil {
		t.Fatal(err)
	}
	const heldLost, freeFound, free, without = 1, 2, 3, 4 // columns
	const unsupported = "ErrUnsupported"
	columns := [...]string{"held, found", "held, not found", "not held, found", "not held, not found", "without the option"}
	five := weir.ActualCost(5)
	for _, tt := range []struct {
		name   string // of the row in the page; with a "-", the page does not have it
		r      weir.Request
		full   bool      // others hold all other places
		paused bool      // while the request is made
		want   [5]string // the answer as the page has it, Granted, and the places, the tokens and the pause afterwards
	}{
		{"Consume", ask(3, "a"), false, false, [5]string{
			"Allowed, Replayed: 3, 1 7 open", "Allowed: 3, 1 7 open", "Allowed, Replayed: 3, 1 7 open", "Allowed: 3, 1 7 open", "Allowed: 3, 1 4 open"}},
		{"TakeUpTo", do(weir.TakeUpTo, 3, "a"), false, false, [5]string{
			"Allowed, Replayed: 3, 1 7 open", "Allowed: 3, 1 7 open", "Allowed, Replayed: 3, 1 7 open", "Allowed: 3, 1 7 open", "Allowed: 3, 1 4 open"}},
		{"Consume, no lease is free", ask(3, "a"), true, false, [5]string{
			"Allowed, Replayed: 3, 0 7 open", "Allowed: 3, 0 7 open", "Replayed: 0, 0 7 open", "–: 0, 0 10 open", "Allowed: 3, 0 1 open"}},
		{"Consume, in a pause", ask(3, "a"), false, true, [5]string{
			"Replayed: 0, 1 7 closed", "–: 0, 1 10 closed", "Replayed: 0, 2 7 closed", "–: 0, 2 10 closed", "–: 0, 1 7 closed"}},
		{"-Consume at another cost", ask(4, "a"), false, false, [5]string{
			"ErrInvalidCost", "Allowed: 4, 1 6 open", "ErrInvalidCost", "Allowed: 4, 1 6 open", "Allowed: 4, 1 3 open"}},
		{"Renew", do(weir.Renew, 0, "a"), false, false, [5]string{
			"Allowed: 0, 1 7 open", "Allowed: 0, 1 10 open", "–: 0, 2 7 open", "–: 0, 2 10 open", "Allowed: 0, 1 7 open"}},
		{"Release; the bill stays", do(weir.Release, 0, "a"), false, false, [5]string{
			"Allowed: 0, 2 7 open", "Allowed: 0, 2 10 open", "–: 0, 2 7 open", "–: 0, 2 10 open", "Allowed: 0, 2 7 open"}},
		{"Settle; the lease stays", settle(5, "a"), false, false, [5]string{
			"Allowed: 5, 1 5 open", "–: 0, 1 10 open", "Allowed: 5, 2 5 open", "–: 0, 2 10 open", unsupported}},
		{"Refund; the lease stays", do(weir.Refund, 0, "a"), false, true, [5]string{
			"Allowed: 0, 1 10 closed", "–: 0, 1 10 closed", "Allowed: 0, 2 10 closed", "–: 0, 2 10 closed", unsupported}},
		{"Finish", do(weir.Finish, 0, "a"), false, true, [5]string{
			"Allowed, Replayed: 3, 2 7 closed", "Allowed: 0, 2 10 closed", "Replayed: 3, 2 7 closed", "–: 0, 2 10 closed", "Allowed: 0, 2 7 closed"}},
		{"Finish with amounts", weir.Request{Op: weir.Finish, ID: "a", Actual: five, Cost: 1}, false, true, [5]string{
			"Allowed, Replayed: 5, 2 5 closed", "Allowed: 0, 2 10 closed", "Replayed: 5, 2 5 closed", "–: 0, 2 10 closed", unsupported}},
		{"-Finish at 0", weir.Request{Op: weir.Finish, ID: "a", Actual: weir.ActualCost(0)}, false, false, [5]string{
			"Allowed, Replayed: 0, 2 10 open", "Allowed: 0, 2 10 open", "Replayed: 0, 2 10 open", "–: 0, 2 10 open", unsupported}},
		{"Finish that refunds", weir.Request{Op: weir.Finish, ID: "a", Actual: weir.ActualRefund(), Cost: -4, Costs: weir.CostsOf(map[string]int64{"u": 1})}, false, true, [5]string{
			"Allowed, Replayed: 0, 2 10 closed", "Allowed: 0, 2 10 closed", "Replayed: 0, 2 10 closed", "–: 0, 2 10 closed", unsupported}},
		{"-Force of other work", do(weir.Force, 2, "b"), true, false, [5]string{
			"Allowed: 2, 0 5 open", "Allowed: 2, 0 8 open", "Allowed: 2, 0 5 open", "Allowed: 2, 0 8 open", unsupported}},
	} {
		row := "| " + tt.name + " |"
		for column, want := range tt.want {
			says, _, _ := strings.Cut(want, ":")
			row += " " + says + " |"
			t.Run(tt.name+": "+columns[column], func(t *testing.T) {
				l := newWork(t, weirtest.NewStore(weirtest.NewClock()), column != without)
				send := func(r weir.Request) (weir.Result, error) {
					r.Key = weir.KeyOf("ann")
					return l.Decide(t.Context(), r, nil)
				}
				if column != free {
					_, _ = send(ask(3, "a"))
				}
				switch column {
				case heldLost:
					_, _ = send(do(weir.Refund, 0, "a"))
				case freeFound:
					_, _ = send(do(weir.Release, 0, "a"))
				}
				for i := 0; tt.full && !strings.HasPrefix(leftOf(t, l, weir.KeyOf("ann")), "0"); i++ {
					_, _ = send(ask(3, fmt.Sprint(i)))
					_, _ = send(do(weir.Refund, 0, fmt.Sprint(i))) // without the option, its tokens stay consumed
				}
				if tt.paused {
					pause(t, l, time.Hour, "ann")
				}
				res, err := send(tt.r)
				var got []string
				if res.Allowed {
					got = append(got, "Allowed")
				}
				if res.Replayed {
					got = append(got, "Replayed")
				}
				if len(got) == 0 {
					got = []string{"–"}
				}
				switch text := fmt.Sprintf("%s: %d, %s", strings.Join(got, ", "), res.Granted, leftOf(t, l, weir.KeyOf("ann"))); {
				case want == unsupported || want == "ErrInvalidCost":
					is := map[string]error{unsupported: weir.ErrUnsupported, "ErrInvalidCost": weir.ErrInvalidCost}[want]
					if !errors.Is(err, is) {
						t.Errorf("got %s, %v, want %v", text, err, is)
					}
				case err != nil || text != want:
					t.Errorf("got %s, %v, want %s", text, err, want)
				}
			})
		}
		if !strings.HasPrefix(tt.name, "-") && !strings.Contains(string(page), row+"\n") {
			t.Errorf("docs/guide/work.md lacks the row %s", row)
		}
	}
}

// TestWorkEnds has how long a bill is kept: for at least 10 minutes or the lease time after the
// decision. Renewals and repeats do not move its end, and a Settle never shortens it. A limiter
// that lost its lease, or gained one, reads the markers of the other.
func TestWorkEnds(t *testing.T) {
	t.Parallel()
	fast := weir.Rule{Name: "fast", Algorithm: algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(10)}}
	list := weir.Rule{Name: "list", Algorithm: algorithm.SlidingLog{Limit: 10, Window: second}, Cost: 2}
	var traces []trace
	for _, tt := range []struct {
		lease, want time.Duration
		by          int // the limiter that makes the later calls
	}{{time.Minute, 10 * time.Minute, 0}, {time.Hour, time.Hour, 0}, {time.Minute, 10 * time.Minute, 1}} {
		place := weir.Rule{Name: "place", Algorithm: algorithm.Concurrency{Limit: 9, Lease: tt.lease}, Cost: 1}
		traces = append(traces, trace{fmt.Sprint(tt), []weir.Policy{weirtest.Rules(fast, list, place), weirtest.Rules(fast, list)}, true, []step{
			{0, 0, ask(3, "a"), "3", "7 8 8"},
			{5 * time.Minute, 0, ask(3, "a"), "repeat, 3", "10 10 8"},
			{0, 0, do(weir.Renew, 0, "a"), "true", "10 10 8"},
			{0, tt.by, settle(2, "a"), "found true, cost 2", "10 10 8"},
			{tt.want - 5*time.Minute - time.Microsecond, tt.by, ask(3, "a"), "repeat, 2", ""},
			{time.Microsecond, tt.by, settle(1, "a"), "found false, cost 0", ""},
			{0, tt.by, ask(3, "a"), "3", ""},
			{time.Hour, 1, ask(3, "a"), "3", "7 8 9"},
			{0, 0, do(weir.Finish, 0, "a"), "held false, found true, cost 3", "7 8 9"},
		}})
	}
	pace := weir.Rule{Name: "pace", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1}}
	play(t, append(traces, trace{"a repeat after the clock stepped back", rules(work.Rules[0], pace), true, []step{
		{0, 0, ask(1, "a"), "1", "1 0"},
		{-time.Hour, 0, ask(1, "a"), "repeat, 1", ""},
	}}, trace{"shadow rules are settled and released too", rules(append(slices.Clip(work.Rules),
		shadow(window("tokens2", 10)), shadow(costing(weir.Rule{Name: "parallel2", Algorithm: oneJob}, 1)))...), true, []step{
		{0, 0, ask(3, "a"), "3", "1 7 open 7 0"},
		{0, 0, weir.Request{Op: weir.Finish, ID: "a", Actual: weir.ActualCost(5)}, "held true, found true, cost 5", "2 5 open 5 1"},
		{0, 0, weir.Request{Op: weir.Finish, ID: "a", Actual: weir.ActualRefund(), Costs: weir.CostsOf(map[string]int64{"u": 1})}, "held false, found true, cost 0", "2 10 open 10 1"},
		{0, 0, do(weir.Force, 2, "f"), "2", "2 8 open 8 1"}, // which takes no lease
		{0, 0, do(weir.Force, 2, "f"), "repeat, 2", "2 8 open 8 1"},
	}}))
}

// After a Finish without an error, a Lease sends nothing more. Before it, Finish can be retried.
func TestLeaseFinish(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		calls := 0
		l := weirtest.Wrap(t, newWork(t, st, true), observe.Observer(func(context.Context, observe.Decision) { calls++ }).Wrap)
		lease, err := l.Acquire(t.Context(), weir.Request{Key: weir.KeyOf("ann"), ID: "a", Cost: 3})
		if err != nil || lease.ID() != "a" || lease.Granted != 3 {
			t.Fatalf("got %+v, %v", lease, err)
		}
		if _, err := lease.Finish(t.Context(), weir.ActualCost(-1)); !errors.Is(err, weir.ErrInvalidCost) || lease.Renew(t.Context()) != nil {
			t.Errorf("an invalid Finish: got %v, want the lease to be held", err)
		}
		kept := make(chan error, 1)
		go func() {
			lease.KeepAlive(t.Context(), func(err error) { kept <- err })
			close(kept)
		}()
		st.Set(weirtest.Down)
		if done, err := lease.Finish(t.Context(), weir.ActualCost(5)); !errors.Is(err, store.ErrUnavailable) || done != (weir.Settlement{}) {
			t.Errorf("in an outage: got %+v, %v", done, err)
		}
		if err := <-kept; err != nil {
			t.Errorf("KeepAlive: %v, want it to return without an error", err)
		}
		st.Set(weirtest.Up)
		if done, err := lease.Finish(t.Context(), weir.ActualCost(5)); err != nil || done != (weir.Settlement{Found: true, Held: true, Cost: 5}) {
			t.Errorf("after it: got %+v, %v", done, err)
		}
		calls = 0
		released, err := lease.Release(t.Context())
		done, err2 := lease.Finish(t.Context(), weir.ActualRefund())
		if err3 := lease.Renew(t.Context()); released || err != nil || done != (weir.Settlement{}) || err2 != nil || !errors.Is(err3, weir.ErrLeaseLost) || calls != 0 {
			t.Errorf("finished: Release %v, %v, Finish %+v, %v, Renew %v, %d calls", released, err, done, err2, err3, calls)
		}
		lease.KeepAlive(t.Context(), func(err error) { t.Errorf("KeepAlive: %v", err) })
		if left := leftOf(t, l, weir.KeyOf("ann")); left != "2 5 open" {
			t.Errorf("got %s, want all places free", left)
		}
	})
}

// The methods Settle, SettleCosts, Refund and Finish return a Settlement.
func TestSettlement(t *testing.T) {
	t.Parallel()
	l := newWork(t, memory.New(nil), true)
	ctx, r := t.Context(), weir.Request{Key: keyU.Key, ID: "a", Cost: 3, Actual: weir.ActualCost(4)}
	weirtest.Allow(t, l, r)
	for i, want := range []weir.Settlement{{Found: true, Cost: 5}, {Found: true, Cost: 4}, {Found: true, Held: true, Cost: 4}, {Found: true}, {}} {
		got, err := [...]func() (weir.Settlement, error){
			func() (weir.Settlement, error) { return l.Settle(ctx, r, 5) },
			func() (weir.Settlement, error) { return l.SettleCosts(ctx, r, weir.Costs{}) }, // which keeps r.Actual
			func() (weir.Settlement, error) { return l.Finish(ctx, r, weir.Actual{}) },
			func() (weir.Settlement, error) { return l.Refund(ctx, r) },
			func() (weir.Settlement, error) { return l.Refund(ctx, r) },
		}[i]()
		if got != want || err != nil {
			t.Errorf("call %d: got %+v, %v, want %+v", i, got, err, want)
		}
	}
}

// A postman is a Decider that delivers each Consume late, even if its caller has gone, and
// counts the undos.
type postman struct {
	weir.Decider
	late  []time.Duration // of each Consume
	down  error           // the answer to an undo
	undos int
}

func (p *postman) Unwrap() weir.Decider { return p.Decider }

func (p *postman) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	switch {
	case r.Op == weir.Consume:
		time.AfterFunc(p.late[0], func() { _, _ = p.Decider.Decide(context.WithoutCancel(ctx), r, nil) })
		p.late = p.late[1:]
		<-ctx.Done()
		return weir.Result{}, ctx.Err()
	case r.Op != weir.Peek:
		if p.undos++; p.down != nil {
			return weir.Result{}, p.down
		}
	}
	return p.Decider.Decide(ctx, r, each)
}

// wrap is a [weir.Wrapper].
func (p *postman) wrap(_ *weir.Limiter, next weir.Decider) (weir.Decider, error) {
	p.Decider = next
	return p, nil
}

// A grantCall asks for a grant until ctx ends.
type grantCall func(ctx context.Context, l *weir.Limiter) error

func tryAcquire(ctx context.Context, l *weir.Limiter) error {
	_, err := l.TryAcquire(ctx, weir.Request{Key: weir.KeyOf("k")})
	return err
}

func acquire(id string) grantCall {
	return func(ctx context.Context, l *weir.Limiter) error {
		_, err := l.Acquire(ctx, weir.Request{Key: weir.KeyOf("k"), ID: id})
		return err
	}
}

func wait(ctx context.Context, l *weir.Limiter) error { _, err := l.Wait(ctx, "k"); return err }

func reserve(within time.Duration, id string) grantCall {
	return func(ctx context.Context, l *weir.Limiter) error {
		_, err := l.Reserve(ctx, weir.Request{Key: weir.KeyOf("k"), MaxWait: within, ID: id})
		return err
	}
}

// A grant under an ID that weir made, and that reaches the store after its undo, is undone
// by a later one, unless it has ended by then. An ID of the caller is not undone.
func TestLateGrant(t *testing.T) {
	t.Parallel()
	const s = time.Second
	jobs := func(name string, lease time.Duration) weir.Rule {
		return weir.Rule{Name: name, Algorithm: algorithm.Concurrency{Limit: 1, Lease: lease}, Shadow: name == "shadow"}
	}
	job, other := jobs("job", time.Minute), costing(window("other", 9), 1)
	turn := weir.Rule{Name: "turn", Algorithm: algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 1}}
	place, token := costing(jobs("place", 3*s), 1), window("token", 1)
	fast := weir.Rule{Name: "fast", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 4}}
	for name, tt := range map[string]struct {
		rules []weir.Rule
		call  grantCall
		late  time.Duration
		down  error
		undos int
		held  bool // in the end
	}{
		"Acquire, later":         {[]weir.Rule{job}, acquire(""), 5 * s, nil, 3, false},
		"Reserve, late":          {[]weir.Rule{turn}, reserve(0, ""), 2 * s, nil, 2, false},
		"TryAcquire fails":       {[]weir.Rule{job}, tryAcquire, 0, store.ErrUnavailable, 4, true},
		"an ID of the caller":    {[]weir.Rule{turn}, reserve(0, "mine"), 2 * s, nil, 0, true},
		"a short lease":          {[]weir.Rule{jobs("job", 3*s), other}, tryAcquire, 20 * s, nil, 2, false},
		"a very short lease":     {[]weir.Rule{jobs("job", s/2), other}, tryAcquire, 20 * s, nil, 1, false},
		"a longer shadow lease":  {[]weir.Rule{jobs("job", 3*s), jobs("shadow", 6*s)}, tryAcquire, 20 * s, nil, 3, false},
		"a bill":                 {[]weir.Rule{place, token}, tryAcquire, 20 * s, nil, 4, false},
		"a bill of a caller":     {[]weir.Rule{place, token}, acquire("mine"), 2 * s, nil, 0, true},
		"a fast rate":            {[]weir.Rule{fast, pauseRule}, reserve(s/2, ""), 20 * s, nil, 2, false},
		"a fast rate, longer":    {[]weir.Rule{fast}, reserve(s, ""), 20 * s, nil, 3, false},
		"a fast rate, and other": {[]weir.Rule{fast, other}, reserve(s, ""), 40 * s, nil, 4, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			plain, err := weir.NewPolicy(memory.New(nil), weir.Policy{Name: "t", Rules: tt.rules}, &weir.Options{Settles: strings.HasPrefix(name, "a bill")})
			if err != nil {
				t.Fatal(err)
			}
			p := &postman{late: []time.Duration{tt.late}, down: tt.down}
			l := weirtest.Wrap(t, plain, p.wrap)
			ctx, cancel := context.WithTimeout(t.Context(), s)
			defer cancel()
			if err := tt.call(ctx, l); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrUnavailable) != (tt.down != nil) {
				t.Errorf("%s: got %v", name, err)
			}
			time.Sleep(55 * s)
			synctest.Wait()
			if res := weirtest.Left(t, plain, "k"); p.undos != tt.undos || (res.Remaining < res.Limit) != tt.held {
				t.Errorf("%s: %d undos, and %+v; want %d undos, held: %t", name, p.undos, res, tt.undos, tt.held)
			}
		})
	}
}

// If the replies of two tries of an Acquire are lost, both can be granted late.
func TestLateGrantTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plain := weirtest.New(t, memory.New(nil), oneJob)
		p := &postman{late: []time.Duration{2 * time.Second, 10 * time.Second}}
		breaker := outage.New(&outage.Options{Budget: 100 * time.Millisecond, Failures: 1000})
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		defer cancel()
		if err := acquire("")(ctx, weirtest.Wrap(t, plain, breaker.Wrap, p.wrap)); !errors.Is(err, context.DeadlineExceeded) || len(p.late) > 0 {
			t.Fatalf("got %v, and %d tries were not made", err, len(p.late))
		}
		if time.Sleep(40 * time.Second); weirtest.Left(t, plain, "k").Remaining != 1 {
			t.Error("a lease is held")
		}
	})
}

// Nothing is repeated if no reply of a grant was lost, or if Acquire gets the lease in the
// end.
func TestNoLateGrant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		undos := 0
		count := observe.Observer(func(_ context.Context, d observe.Decision) {
			if d.Request.Op != weir.Consume {
				undos++
			}
		})
		check := func(what string, want int, call func(context.Context) error) error {
			t.Helper()
			undos = 0
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			err := call(ctx)
			time.Sleep(50 * time.Second)
			if synctest.Wait(); undos != want {
				t.Errorf("%s: %d undos after %v, want %d", what, undos, err, want)
			}
			return err
		}
		jobs := weirtest.Wrap(t, weirtest.New(t, st, oneJob), count.Wrap)
		pace := weirtest.Wrap(t, weirtest.New(t, st, algorithm.LeakyBucket{Rate: algorithm.PerHour(1), Queue: 5}), count.Wrap)
		slow := weirtest.Wrap(t, jobs, outage.New(&outage.Options{Budget: 50 * time.Millisecond, Failures: 1000}).Wrap)
		st.Set(weirtest.Lost)
		time.AfterFunc(80*time.Millisecond, func() { st.Set(weirtest.Up) })
		var lease *weir.Lease
		_ = check("Acquire, after a lost reply", 0, func(ctx context.Context) (err error) {
			lease, err = slow.Acquire(ctx, weir.Request{Key: weir.KeyOf("k")})
			return err
		})
		weirtest.Allow(t, pace, weir.Request{Key: weir.KeyOf("k")})
		turn, err := pace.Reserve(t.Context(), weir.Request{Key: weir.KeyOf("k"), MaxWait: weir.Never})
		if err != nil || lease == nil || lease.Renew(t.Context()) != nil {
			t.Fatal(err, lease)
		}
		st.Set(weirtest.Down)
		_ = check("Release", 1, func(ctx context.Context) error { _, err := lease.Release(ctx); return err })
		if err := check("Wait of a turn", 1, turn.Wait); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("Wait of a turn: got %v, want both errors", err)
		}
		for l, call := range map[*weir.Limiter]grantCall{jobs: tryAcquire, pace: wait} {
			open := weirtest.Wrap(t, weirtest.Wrap(t, l, outage.New(&outage.Options{Failures: 1, Probe: time.Hour}).Wrap), count.Wrap)
			for i, want := range []int{4, 0} { // the first request opens the circuit
				if err := check(fmt.Sprint("in an outage ", i), want, func(ctx context.Context) error { return call(ctx, open) }); !errors.Is(err, weir.ErrDenied) || errors.Is(err, store.ErrUnavailable) {
					t.Errorf("in an outage: got %v, want a denial alone", err)
				}
			}
		}
	})
}

// An overdue context has a deadline that has passed, and does not know it yet.
type overdue struct{ context.Context }

func (overdue) Deadline() (time.Time, bool) { return time.Unix(1, 0), true }

// If a call ends and its reply is lost, the grant is undone, unless another request can use it. A
// client can notice a deadline before ctx does. After an outage, nothing is undone.
func TestLostReply(t *testing.T) {
	t.Parallel()
	canceled, late, down := context.Canceled, context.DeadlineExceeded, store.ErrUnavailable
	for _, tt := range []struct {
		name       string
		id         string
		ends       bool // ctx ends during the call
		lost, want error
		held       bool
	}{
		{"cancelled", "", true, canceled, canceled, false},
		{"cancelled, and unavailable", "", true, down, canceled, false},
		{"past the deadline", "", false, late, late, false},
		{"an outage", "", false, down, down, true},
		{"cancelled, and another error", "", true, store.ErrScript, store.ErrScript, true}, // nothing is known of the grant
		{"cancelled, with an ID", "x", true, canceled, canceled, true},
		{"past the deadline, with an ID", "x", false, late, late, true},
	} {
		for method, call := range map[string]grantCall{"TryAcquire": tryAcquire, "Acquire": acquire(tt.id), "Wait": wait, "Reserve": reserve(time.Hour, tt.id)} {
			if tt.id != "" && (method == "Wait" || method == "TryAcquire") {
				continue
			}
			mem := memory.New(nil)
			st := &weirtest.Hooked{Store: mem}
			l := weirtest.New(t, st, algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 1})
			if strings.HasSuffix(method, "cquire") {
				l = weirtest.New(t, st, oneJob)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			calls := 0
			st.Before = func(context.Context, *store.Script) error {
				st.Lose = nil
				if calls++; calls == 1 {
					st.Lose = fmt.Errorf("store: %w", tt.lost)
					if tt.ends {
						cancel()
					}
				}
				return nil
			}
			err := call(ctx, l)
			if res := weirtest.Left(t, l, "k"); !errors.Is(err, tt.want) && !errors.Is(err, tt.lost) || res.Allowed == tt.held {
				t.Errorf("%s, %s: got %v and left %+v, want %v, held %t", tt.name, method, err, res, tt.want, tt.held)
			}
			if r := (weir.Request{Key: weir.KeyOf("k"), ID: "x"}); tt.id != "" && method == "Reserve" { // the caller can refund it
				if gave, err := l.Refund(t.Context(), r); !gave.Found || err != nil {
					t.Errorf("%s: Refund = %v, %v", tt.name, gave, err)
				}
			}
		}
	}
}

// If a client or a wrapper repeats the call, and the repeat is denied, the tokens are refunded:
// only this request knows the ID. With an ID of the caller, they stay.
func TestDeniedRepeat(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), algorithm.LeakyBucket{Rate: algorithm.PerMinute(1), Queue: 10})
	weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf("k")})
	twice := weirtest.Wrap(t, l, around(func(ctx context.Context, next weir.Decider, r weir.Request, each []weir.Result) (weir.Result, error) {
		if r.Op == weir.Consume {
			_, _ = next.Decide(ctx, r, each)
			r.MaxWait = time.Second
		}
		return next.Decide(ctx, r, each)
	}))
	for _, tt := range []struct {
		call grantCall
		want time.Duration // until a full reset
	}{{reserve(time.Hour, ""), time.Minute}, {wait, time.Minute}, {reserve(time.Hour, "mine"), 2 * time.Minute}} {
		if err := tt.call(t.Context(), twice); !errors.Is(err, weir.ErrDenied) {
			t.Errorf("got %v, want ErrDenied", err)
		}
		if res := weirtest.Left(t, l, "k"); res.ResetAfter != tt.want {
			t.Errorf("left %+v, want a full reset in %v", res, tt.want)
		}
	}
}
