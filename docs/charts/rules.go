package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store/memory"
)

// The rules of the picture of two rules.
var (
	tenantRule = algorithm.GCRA{Rate: algorithm.PerSecond(2), Burst: 6}
	userRule   = algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 3}
)

// A caller sends requests at an even pace.
type caller struct {
	name       string
	start, end time.Duration
	every      time.Duration
}

var callers = []caller{
	{"ann", 0, 20 * time.Second, 1600 * time.Millisecond},
	{"bob", 3100 * time.Millisecond, 9 * time.Second, 300 * time.Millisecond},
	{"cid", 11050 * time.Millisecond, 16 * time.Second, 700 * time.Millisecond},
	{"dan", 11300 * time.Millisecond, 16 * time.Second, 700 * time.Millisecond},
}

// An answer is the answer to a request of one caller.
type answer struct {
	caller int
	at     time.Duration
	rule   string // that denied it; "" if none did
	left   int64  // tokens of the tenant
}

// decideRules plays the traffic of all callers, in virtual time.
func decideRules(ctx context.Context) ([]answer, error) {
	var list []answer
	for i, c := range callers {
		for at := c.start; at < c.end; at += c.every {
			list = append(list, answer{caller: i, at: at})
		}
	}
	slices.SortStableFunc(list, func(a, b answer) int { return cmp.Compare(a.at, b.at) })
	now := epoch
	lim, err := weir.NewPolicy(memory.New(nil), weir.Policy{Name: "charts", Segments: []string{"tenant", "user"}, Rules: []weir.Rule{
		{Name: "tenant", By: []string{"tenant"}, Algorithm: tenantRule},
		{Name: "user", Algorithm: userRule},
	}}, &weir.Options{Clock: func() time.Time { return now }})
	if err != nil {
		return nil, err
	}
	tenant, err := lim.Only("tenant")
	if err != nil {
		return nil, err
	}
	for i := range list {
		a := &list[i]
		now = epoch.Add(a.at)
		user := callers[a.caller].name
		res, err := lim.Allow(ctx, "acme", user)
		if err != nil {
			return nil, err
		}
		if !res.Allowed {
			a.rule = res.Rule
		}
		if res, err = tenant.Peek(ctx, "acme", user); err != nil {
			return nil, err
		}
		a.left = res.Remaining
	}
	return list, nil
}

// drawRules draws what two rules decide: a row for each caller, and the tokens of the tenant.
func drawRules(ctx context.Context) (picture, error) {
	answers, err := decideRules(ctx)
	if err != nil {
		return picture{}, err
	}
	const end = 20 * time.Second
	rows := float64(len(callers))
	pl := newPlot(0, end)
	pl.X.Label.Text = "time in seconds"
	pl.Y.Min, pl.Y.Max = -0.6, rows+2.9
	pl.X.Tick.Marker = seconds(0, end, 2*time.Second)
	let, user, tenant := stroke(blue, 1.5), stroke(orange, 1.5), stroke(black, 1.5)
	var marks plot.ConstantTicks
	var parts []string
	for i, c := range callers {
		at := rows - 1 - float64(i)
		marks = append(marks, plot.Tick{Value: at, Label: c.name})
		times := map[string][]time.Duration{}
		for _, a := range answers {
			if a.caller == i {
				times[a.rule] = append(times[a.rule], a.at)
			}
		}
		pl.Add(
			horizontal(stroke(faint, 0.75), at),
			verticals(let, times[""], at-0.36, at+0.36),
			verticals(user, times["user"], at-0.18, at+0.18),
			verticals(tenant, times["tenant"], at-0.18, at+0.18),
		)
		parts = append(parts, fmt.Sprintf("%s %d, %d and %d", c.name, len(times[""]), len(times["user"]), len(times["tenant"])))
	}
	const tokens = 2.0 // how high a full limit is drawn
	base := rows - 0.2
	marks = append(marks, plot.Tick{Value: base, Label: "0"}, plot.Tick{Value: base + tokens, Label: fmt.Sprint(tenantRule.Burst)})
	left := []count{}
	for _, a := range answers {
		left = append(left, count{a.at, a.left})
	}
	most := float64(tenantRule.Burst)
	pl.Add(scaled(steps(left, most, false, stroke(grey, 1.25)), base, tokens/most))
	pl.Y.Tick.Marker = marks
	pl.Y.Tick.Length = 0
	keys := []key{
		{ticks(let), "allowed"}, {ticks(user), "denied by rule user"}, {ticks(tenant), "denied by rule tenant"},
		{line(stroke(grey, 1.25)), "tokens of the tenant"},
	}
	alt := "Requests of one tenant that were allowed, denied by the user’s rule, and denied by the tenant’s rule: " + strings.Join(parts, "; ")
	title := "Two rules, one decision: each user 1 per second (burst 3), all users of a tenant 2 per second (burst 6)"
	p, err := finish(pl, 235, 20, title, keys, "rules", alt)
	p.page = "README.md"
	return p, err
}

// scaled draws d with its zero at base, and its heights times factor.
func scaled(d drawing, base, factor float64) drawing {
	return func(c draw.Canvas, x, y func(float64) vg.Length) {
		d(c, x, func(at float64) vg.Length { return y(base + factor*at) })
	}
}
