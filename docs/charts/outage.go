package main

import (
	"context"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg/draw"

	"github.com/weir-go/weir/outage"
)

// drawOutage draws who answers while a server is away that answers nothing, with the defaults
// of package outage.
func drawOutage(context.Context) (picture, error) {
	const dies, back, end = 1 * time.Second, 4700 * time.Millisecond, 7 * time.Second
	var answers [3][]time.Duration // by the store, by the fallback after the budget, and at once
	var failures int
	var probe time.Duration // when the next request goes to the store
	for at := 40 * time.Millisecond; at < end; at += 80 * time.Millisecond {
		away, open := at >= dies && at < back, failures >= outage.DefaultFailures
		switch {
		case open && at < probe:
			answers[2] = append(answers[2], at)
		case away:
			failures, probe = failures+1, at+outage.DefaultProbe
			answers[1] = append(answers[1], at+outage.DefaultBudget)
		default:
			failures = 0
			answers[0] = append(answers[0], at)
		}
	}
	pl := newPlot(0, end)
	pl.X.Label.Text = "time in seconds"
	pl.X.Tick.Marker = seconds(0, end, time.Second)
	pl.Y.Min, pl.Y.Max = -0.6, 3.2
	pl.Y.Tick.Length = 0
	pl.Y.Tick.Marker = plot.ConstantTicks{{Value: 2, Label: "the store"}, {Value: 1, Label: "the fallback, late"}, {Value: 0, Label: "the fallback, at once"}}
	pl.Add(box(shade, dies, back, -0.6, 2.5))
	colors := [3]draw.LineStyle{stroke(blue, 1.5), stroke(orange, 1.5), stroke(black, 1)}
	for i, times := range answers {
		pl.Add(verticals(colors[i], times, 1.64-float64(i), 2.36-float64(i)))
	}
	head := style(sans, black, text.XCenter, text.YCenter)
	pl.Add(label(head, dies, 2.85, "Redis dies"), label(head, back, 2.85, "Redis is back"))
	keys := []key{{ticks(colors[0]), "decided"}, {ticks(colors[1]), "answered after the budget"}, {ticks(colors[2]), "answered in the process"}}
	alt := "When Redis dies, five requests wait for the budget. Then the fallback answers at once, except for a probe each second. The first probe after Redis is back ends the outage"
	p, err := finish(pl, 190, 28, "What happens when Redis dies: five failures, then a probe each second", keys, "outage", alt)
	p.page = "docs/guide/outage.md"
	return p, err
}
