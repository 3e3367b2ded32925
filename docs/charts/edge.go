package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
)

// The picture of all setups shows the burst, and one window from its first request on.
const (
	edgeStart = edge - burst/2
	edgeEnd   = edgeStart + window
	edgeFrom  = edgeStart - 500*time.Millisecond
	edgeTo    = edgeEnd + 4*time.Second // with room for two columns
)

// drawEdge draws the answers to the burst across the edge of two windows: a row for each
// simulation, followed by two numbers.
func drawEdge(simulations []simulation) (picture, error) {
	const row = vg.Length(22)
	outside := func(at time.Duration) bool { return at < edgeStart || at >= edgeEnd }
	pl := newPlot(edgeFrom, edgeTo)
	rows := float64(len(simulations))
	pl.Y.Min, pl.Y.Max = -0.6, rows+0.5
	pl.X.Tick.Marker = seconds(edge, edgeEnd, time.Second)
	pl.Add(
		box(shade, edgeStart, edgeStart+burst, -0.6, rows-0.4),
		verticals(stroke(black, 1, 5, 3), []time.Duration{edge}, -0.6, rows-0.4),
	)
	head := style(sans, grey, text.XCenter, text.YCenter)
	number := style(bold, black, text.XCenter, text.YCenter)
	const column1, column2 = edgeEnd + 1200*time.Millisecond, edgeEnd + 3*time.Second
	pl.Add(
		label(head, edge, rows, "edge"),
		label(head, column1, rows, "in 1 s"), label(head, column2, rows, "in 10 s"),
	)
	var marks plot.ConstantTicks
	var parts []string
	for i, p := range simulations {
		at := rows - 1 - float64(i)
		marks = append(marks, plot.Tick{Value: at, Label: p.name()})
		in, out := slices.DeleteFunc(slices.Clone(p.turns), outside), slices.DeleteFunc(slices.Clone(p.denied), outside)
		second, whole := most(in, time.Second), len(in)
		pl.Add(
			verticals(stroke(blue, 1.5), in, at-0.36, at+0.36),
			verticals(stroke(orange, 0.75), out, at-0.12, at+0.12),
			label(number, column1, at, fmt.Sprint(second)), label(number, column2, at, fmt.Sprint(whole)),
		)
		parts = append(parts, fmt.Sprintf("%s %d and %d", p.name(), second, whole))
	}
	pl.Y.Tick.Marker = marks
	pl.Y.Tick.Length = 0
	keys := []key{{ticks(stroke(blue, 1.5)), "allowed; from a queue: whose turn came"}, {ticks(stroke(orange, 0.75)), "denied"}}
	title := fmt.Sprintf("A burst at a window’s edge, limit %d in %.0f s: how many are allowed", limit, window.Seconds())
	alt := "Allowed within 1 s and within 10 s around a window’s edge: " + strings.Join(parts, ", ")
	return finish(pl, 95+row*vg.Length(len(simulations)+1), 28, title, keys, "edge", alt)
}
