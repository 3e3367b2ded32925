package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/docs/playground/simulate"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store/memory"
)

const (
	algorithms = "docs/reference/algorithms.md"
	windows    = "time in seconds; windows begin at the multiples of ten"
)

// timeline shows all of the traffic, the answers, and two counts: the requests that were allowed
// within the last window, and the tokens that the algorithm counts.
func timeline(p simulation) chart {
	what, counts := "allowed", "what "+p.kind()+" counts (Limit − Remaining)"
	rows := []row{{text: "allowed", ticks: []ticks{{class: blue, times: p.allowed}}}, {text: "denied", ticks: []ticks{{class: orange, times: p.denied}}}}
	if p.waits {
		what, counts = "whose turn came", "turns taken"
		rows = append(rows, row{text: "its turn", ticks: []ticks{{class: blue, times: p.turns}}})
	}
	c := chart{
		file: p.file, page: algorithms, title: p.title(), axis: windows,
		alt: fmt.Sprintf("%s: of %d requests %d are allowed, at most %d start within 10 s",
			p.name(), len(p.allowed)+len(p.denied), len(p.allowed), most(p.turns, window)),
		keys: []key{
			{class: area, text: fmt.Sprintf("%s within the last %.0f s", what, window.Seconds())},
			{class: orange, text: counts}, {class: dashed, text: "the limit"},
		},
		to: length, marks: seconds(0, length, window), rows: rows,
		most: 2 * limit, step: limit / 2, limit: limit,
		stairs: []stairs{{area, inWindow(p.turns, window)}, {orange, p.counted}},
	}
	for at := time.Duration(0); at <= length; at += window {
		c.lines = append(c.lines, line{faint, mark{at: at}})
	}
	for _, ph := range traffic {
		if ph.requests > 0 {
			c.bands = append(c.bands, band{ph.start, ph.end, ph.label})
		}
	}
	return c
}

// atEdge shows the answers to the burst across the edge of two windows, and within one window from
// its first request on: a row for each simulation, followed by two numbers.
func atEdge(simulations []simulation) chart {
	const start, end = edge - burst/2, edge - burst/2 + window
	outside := func(at time.Duration) bool { return at < start || at >= end }
	c := chart{
		file: "edge", page: algorithms, axis: windows,
		title: fmt.Sprintf("A burst at a window’s edge, limit %d in %.0f s: how many are allowed", limit, window.Seconds()),
		keys:  []key{{blue, true, "allowed; from a queue: whose turn came"}, {orange, true, "denied"}},
		from:  start - 500*time.Millisecond, to: end + 500*time.Millisecond, marks: seconds(edge, end, time.Second),
		bands: []band{{from: start, to: start + burst}}, lines: []line{{dashed, mark{edge, "edge"}}},
		columns: []string{"in 1 s", "in 10 s"},
	}
	var parts []string
	for _, p := range simulations {
		in, out := slices.DeleteFunc(slices.Clone(p.turns), outside), slices.DeleteFunc(slices.Clone(p.denied), outside)
		second, whole := int(most(in, time.Second)), len(in)
		c.rows = append(c.rows, row{p.name(), []ticks{{class: blue, times: in}, {class: orange, thin: true, times: out}}, []int{second, whole}})
		parts = append(parts, fmt.Sprintf("%s %d and %d", p.name(), second, whole))
	}
	c.alt = "Allowed within 1 s and within 10 s around a window’s edge: " + strings.Join(parts, ", ")
	return c
}

// calendars shows when the periods of some calendars start, in the first half of a year. The first
// request of each period says when the period ends.
func calendars(ctx context.Context) (chart, error) {
	c := chart{
		file: "calendar", page: algorithms, title: "Calendar: when periods start", axis: "2026; each grey line is the first day of a month",
		keys: []key{{blue, true, "a period starts"}}, to: time.Date(2026, time.July, 4, 0, 0, 0, 0, time.UTC).Sub(epoch),
	}
	for m := time.January; m <= time.July; m++ {
		at := time.Date(2026, m, 1, 0, 0, 0, 0, time.UTC).Sub(epoch)
		c.marks, c.lines = append(c.marks, mark{at, m.String()[:3]}), append(c.lines, line{faint, mark{at: at}})
	}
	var parts []string
	for _, r := range []struct {
		text     string
		calendar algorithm.Calendar
	}{
		{"Month", algorithm.Calendar{Limit: 1, Every: algorithm.Month}},
		{"Month, Day: 17", algorithm.Calendar{Limit: 1, Every: algorithm.Month, Day: 17}},
		{"Month, Day: 31", algorithm.Calendar{Limit: 1, Every: algorithm.Month, Day: 31}},
		{"Week, Day: 1", algorithm.Calendar{Limit: 1, Every: algorithm.Week, Day: 1}},
		{"Quarter", algorithm.Calendar{Limit: 1, Every: algorithm.Quarter}},
	} {
		now, starts := epoch, []time.Duration(nil)
		lim, err := weir.New("charts", memory.New(nil), r.calendar, &weir.Options{Clock: func() time.Time { return now }})
		if err != nil {
			return c, err
		}
		for {
			res, err := lim.Allow(ctx, "calendar")
			if err != nil {
				return c, err
			}
			if now = now.Add(res.ResetAfter); now.Sub(epoch) > c.to {
				break
			}
			starts = append(starts, now.Sub(epoch))
		}
		c.rows = append(c.rows, row{text: r.text, ticks: []ticks{{class: blue, times: starts}}})
		parts = append(parts, fmt.Sprintf("%d of %s", len(starts), r.text))
	}
	c.alt = "The starts of periods in half a year: " + strings.Join(parts, "; ")
	return c, nil
}

// callers send requests at an even pace to the two rules.
var callers = []struct {
	name       string
	start, end time.Duration
	every      time.Duration
}{
	{"ann", 0, 20 * time.Second, 1600 * time.Millisecond},
	{"bob", 3100 * time.Millisecond, 9 * time.Second, 300 * time.Millisecond},
	{"cid", 11050 * time.Millisecond, 16 * time.Second, 700 * time.Millisecond},
	{"dan", 11300 * time.Millisecond, 16 * time.Second, 700 * time.Millisecond},
}

// twoRules shows what two rules decide: a row for each caller, and the tokens of the tenant.
func twoRules(ctx context.Context) (chart, error) {
	const end = 20 * time.Second
	c := chart{
		file: "rules", page: "README.md", axis: "time in seconds", to: end, marks: seconds(0, end, 2*time.Second), most: 6, step: 2,
		title: "Two rules, one decision: each user 1 per second (burst 3), all users of a tenant 2 per second (burst 6)",
		keys:  []key{{blue, true, "allowed"}, {orange, true, "denied by rule user"}, {black, true, "denied by rule tenant"}, {class: grey, text: "tokens of the tenant"}},
	}
	var arrivals []simulate.Arrival
	for i, who := range callers {
		c.rows = append(c.rows, row{text: who.name, ticks: []ticks{{class: blue}, {class: orange, thin: true}, {class: black, thin: true}}})
		for at := who.start; at < who.end; at += who.every {
			arrivals = append(arrivals, simulate.Arrival{At: at, Client: i})
		}
	}
	slices.SortStableFunc(arrivals, func(a, b simulate.Arrival) int { return cmp.Compare(a.At, b.At) })
	var left []count
	err := simulate.Play{
		Policy: weir.Policy{Name: "charts", Segments: []string{"tenant", "user"}, Rules: []weir.Rule{
			{Name: "tenant", By: []string{"tenant"}, Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(2), Burst: 6}},
			{Name: "user", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 3}},
		}},
		Start: epoch, Length: end, Arrivals: arrivals,
		Key:    func(client int) weir.Key { return weir.KeyOf("acme", callers[client].name) },
		Look:   time.Second,
		Peeked: func(time.Duration, weir.Result) {},
		Decided: func(a simulate.Arrival, _ int, res weir.Result, each []weir.Result) {
			kind := 0
			if !res.Allowed {
				kind = map[string]int{"user": 1, "tenant": 2}[res.Rule]
			}
			t := &c.rows[a.Client].ticks[kind]
			t.times, left = append(t.times, a.At), append(left, count{a.At, each[0].Remaining})
		},
	}.Run(ctx)
	c.stairs = []stairs{{grey, left}}
	var parts []string
	for _, r := range c.rows {
		parts = append(parts, fmt.Sprintf("%s %d, %d and %d", r.text, len(r.ticks[0].times), len(r.ticks[1].times), len(r.ticks[2].times)))
	}
	c.alt = "Requests of one tenant that were allowed, denied by the user’s rule, and denied by the tenant’s rule: " + strings.Join(parts, "; ")
	return c, err
}

// duringOutage shows who answers while a server is away that answers nothing, with the defaults of
// package outage.
func duringOutage() chart {
	const dies, back, end = 1 * time.Second, 4700 * time.Millisecond, 7 * time.Second
	var store, late, once []time.Duration // answers by the store, by the fallback after the budget, and at once
	var failures int
	var probe time.Duration // when the next request goes to the store
	for at := 40 * time.Millisecond; at < end; at += 80 * time.Millisecond {
		away, open := at >= dies && at < back, failures >= outage.DefaultFailures
		switch {
		case open && at < probe:
			once = append(once, at)
		case away:
			failures, probe = failures+1, at+outage.DefaultProbe
			late = append(late, at+outage.DefaultBudget)
		default:
			failures = 0
			store = append(store, at)
		}
	}
	return chart{
		file: "outage", page: "docs/guide/outage.md", axis: "time in seconds", to: end, marks: seconds(0, end, time.Second),
		title: "What happens when Redis dies: five failures, then a probe each second",
		alt:   "When Redis dies, five requests wait for the budget. Then the fallback answers at once, except for a probe each second. The first probe after Redis is back ends the outage",
		keys:  []key{{blue, true, "decided"}, {orange, true, "answered after the budget"}, {black, true, "answered in the process"}},
		bands: []band{{from: dies, to: back}}, lines: []line{{dashed, mark{dies, "Redis dies"}}, {dashed, mark{back, "Redis is back"}}},
		rows: []row{
			{text: "the store", ticks: []ticks{{class: blue, times: store}}},
			{text: "the fallback, late", ticks: []ticks{{class: orange, times: late}}},
			{text: "the fallback, at once", ticks: []ticks{{class: black, times: once}}},
		},
	}
}
