package outage_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/outage"
)

// describe returns the rule of res, the tokens granted or the time of the denial, the
// tokens left of the limit, and the time until the limit has all of them. An "away" is a
// denial by no limit.
func describe(t *testing.T, res weir.Result, rule weir.RuleInfo) string {
	t.Helper()
	what := fmt.Sprint(res.Granted)
	if !res.Allowed {
		if what = "away"; errors.Is(res.Degraded, weir.ErrDenied) {
			what = "denied"
		}
		if what += " " + res.RetryAfter.String(); res.RetryAfter == weir.Never {
			what = strings.Replace(what, weir.Never.String(), "never", 1)
		}
	}
	if res.Degraded == nil || (res.Delay != 0) == res.Allowed || res.Window != rule.Window || res.Type != rule.Type || res.Allowed && res.RetryAfter != 0 {
		t.Errorf("got %+v of the rule %+v", res, rule)
	}
	text := fmt.Sprintf("%s %s %d/%d", res.Rule, what, res.Remaining, res.Limit)
	if res.ResetAfter > 0 {
		text += " " + res.ResetAfter.String()
	}
	return text
}

// What each fallback answers: its result, and after it those of the rules that differ.
func TestFallbacks(t *testing.T) { synctest.Test(t, testFallbacks) }

func testFallbacks(t *testing.T) {
	const day = 24 * time.Hour
	closed, open, local := outage.Options{}, outage.Options{Fallback: outage.Open}, outage.Options{Fallback: outage.Local, Processes: 4}
	window := func(name string, limit, cost int64) weir.Rule {
		return weir.Rule{Name: name, Algorithm: weirtest.Window(limit, time.Hour), Cost: cost}
	}
	two := weirtest.Rules(window("wide", 40, 0), weir.Rule{Name: "deep", Algorithm: weirtest.Window(80, day), Cost: 2})
	paused := weirtest.Rules(weir.Rule{Name: "pause", Algorithm: algorithm.Pause{}}, window("rate", 40, 0))
	units := weir.Policy{Units: []string{"in", "out"}, Rules: []weir.Rule{{Name: "in", Unit: "in", Algorithm: weirtest.Window(100, time.Hour)},
		{Name: "out", Unit: "out", Algorithm: weirtest.Window(60, time.Hour)}, window("n", 1000, 1)}}
	// A cost times the number of processes overflows.
	huge := weirtest.Rules(weir.Rule{Name: "huge", Algorithm: algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: time.Second, Limit: contract.MaxTokens}}}})
	million := outage.Options{Fallback: outage.Local, Processes: 1 << 20}
	counts := func(in, out int64) weir.Request { return weir.Request{Costs: amounts(in, out)} }
	cost := func(n int64) weir.Request { return weir.Request{Cost: n} }
	upTo := func(n int64) weir.Request { return weir.Request{Op: weir.TakeUpTo, Cost: n} }
	peek := weir.Request{Op: weir.Peek}
	for _, tt := range []struct {
		policy weir.Policy
		o      outage.Options
		r      weir.Request
		want   string
	}{
		{two, closed, cost(3), "wide away 1s 0/40, deep away 1s 0/80"},
		{two, closed, cost(41), "wide away never 0/40, deep away 1s 0/80"},
		{two, open, cost(3), "wide 3 0/40, deep 2 0/80"},
		{two, open, cost(41), "wide away never 0/40, deep 0 0/80"},
		{two, open, peek, "wide 0 0/40, deep 0 0/80"},
		{two, open, upTo(100), "wide 40 0/40, deep 2 0/80"},
		{two, local, cost(3), "wide 3 7/10 1h0m0s, deep 2 18/20 24h0m0s"},
		{two, local, cost(11), "wide denied 1s 10/10, deep 0 20/20"},
		{two, local, cost(41), "wide away never 0/40, deep away 1s 0/80"},
		{two, local, peek, "wide 0 10/10, deep 0 20/20"},
		{two, outage.Options{Fallback: outage.Local, Processes: 3}, upTo(100), "wide 13 0/13 1h0m0s, deep 2 24/26 24h0m0s"},
		{two, outage.Options{Fallback: outage.Local, Processes: 100, Floor: true}, cost(1), "wide 1 0/1 1h0m0s, deep 2 0/2 24h0m0s"},
		{weirtest.Rules(window("a", 9, 3), window("b", 9, 5)), open, cost(1), "a 3 0/9, b 5 0/9"},
		{weirtest.Rules(window("a", 9, 3), window("b", 9, 0)), open, cost(7), "a 7 0/9, a 3 0/9, b 7 0/9"},
		{weirtest.Rules(window("a", 9, 0), window("b", 5, 1)), open, cost(7), "a 7 0/9, b 1 0/5"},
		{weirtest.Rules(window("a", 40, 0), window("b", 30, 2)), open, upTo(35), "a 35 0/40, b 2 0/30"},
		{weirtest.Rules(window("a", 40, 0), window("b", 30, 0)), open, upTo(35), "a 30 0/40, b 30 0/30"},
		{weirtest.Rules(weir.Rule{Name: "a", Algorithm: weirtest.Capped(algorithm.SlidingLog{Limit: 3000, Window: time.Hour}, 1000)}), open, upTo(2000), "a 1000 0/3000"},
		{weirtest.Rules(window("a", 40, 0), window("b", 30, 0)), open, cost(35), "b away never 0/30, a 0 0/40, b away never 0/30"},
		{paused, closed, cost(2), "rate away 1s 0/40, pause away 1s 0/9007199254740991, rate away 1s 0/40"},
		{paused, open, cost(2), "rate 2 0/40, pause 2 0/9007199254740991, rate 2 0/40"},
		{paused, open, upTo(2), "rate 2 0/40, pause 2 0/9007199254740991, rate 2 0/40"},
		{paused, open, peek, "rate 0 0/40, pause 0 0/9007199254740991, rate 0 0/40"},
		{paused, local, upTo(2), "rate 2 8/10 1h0m0s, pause 2 9007199254740991/9007199254740991, rate 2 8/10 1h0m0s"},
		{units, closed, counts(7, 0), "in away 1s 0/100, out away 1s 0/60, n away 1s 0/1000"},
		{units, open, counts(7, 0), "in 7 0/100, out 0 0/60, n 1 0/1000"},
		{units, open, counts(101, 5), "in away never 0/100, out 0 0/60, n 0 0/1000"},
		{units, open, counts(7, 61), "out away never 0/60, in 0 0/100, out away never 0/60, n 0 0/1000"},
		{units, local, counts(0, 5), "out 5 10/15 1h0m0s, in 0 25/25, out 5 10/15 1h0m0s, n 1 249/250 1h0m0s"},
		{units, local, counts(7, 61), "out away never 0/60, in away 1s 0/100, out away never 0/60, n away 1s 0/1000"},
		{huge, million, cost(1<<33 - 1), "huge 8589934591 0/8589934591 1s"},
		{huge, million, cost(1 << 33), "huge denied 1s 8589934591/8589934591"},
		{huge, million, cost(1 << 34), "huge denied 1s 8589934591/8589934591"},
		{huge, million, cost(1 << 52), "huge denied 1s 8589934591/8589934591"},
		{huge, million, cost(1<<53 - 1), "huge denied 1s 8589934591/8589934591"},
	} {
		st := weirtest.NewFaulty()
		l := weirtest.NewPolicy(t, st, tt.policy)
		if tt.policy.Rules[0].Name == "pause" {
			if _, err := l.Pause(t.Context(), time.Hour, "ann"); err != nil {
				t.Fatal(err)
			}
		}
		l = onOutage(t, l, tt.o)
		st.Set(weirtest.Down)
		each, infos := make([]weir.Result, len(tt.policy.Rules)), map[string]weir.RuleInfo{}
		tt.r.Key = weir.KeyOf("ann")
		res, err := l.Decide(t.Context(), tt.r, each)
		for _, rule := range l.Rules() {
			infos[rule.Name] = rule
		}
		got := describe(t, weirtest.Degraded(t, res, err), infos[res.Rule])
		for _, one := range each {
			if text := describe(t, one, infos[one.Rule]); text != got {
				got += ", " + text
			}
		}
		if got != tt.want {
			t.Errorf("%v, %+v:\ngot  %s\nwant %s", tt.o.Fallback, tt.r, got, tt.want)
		}
	}
}

func amounts(in, out int64) weir.Costs {
	return weir.CostsOf(map[string]int64{"in": in, "out": out})
}
