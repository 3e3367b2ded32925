package main

import (
	"context"
	"math"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/weir-go/weir/outage"
)

// A state is a box of a state diagram, with a loop above it.
type state struct{ name, note, loop string }

// A life is the diagram of three states in a row. steps are the texts of the arrows from
// state to state, and ends those of the ways back to the first, or one of both.
type life struct {
	file, title, alt, page string
	states                 [3]state
	steps                  [2]string
	ends                   []string
}

var decision = life{
	file: "decision", page: "docs/guide/idempotency.md",
	title:  "The life of a decision with an ID, which costs 5 tokens, and then 3",
	alt:    "A new ID consumes 5 tokens. A repeat consumes nothing. Settle makes 3 the cost. After a refund, or when no token is left to refund, the ID is new again",
	states: [3]state{{"new", "no marker", "denied: consumes nothing"}, {"decided", "a marker of 5", "repeated: consumes nothing"}, {"settled", "a marker of 3", "repeated, settled again"}},
	steps:  [2]string{"consumes 5", "Settle: refunds 2"},
	ends:   []string{"refunded: the tokens return, and the marker is deleted\nor ended: no token is left to refund, and the marker expires"},
}

var lease = life{
	file: "lease", page: "docs/reference/algorithms.md",
	title:  "The life of a lease of a Concurrency",
	alt:    "A lease is acquired, then held until it is released, and renewed meanwhile. If its time passes, others can acquire it, and its holder gets ErrLeaseLost",
	states: [3]state{{"no lease", "no entry", "denied: all leases are held"}, {"held", "an entry with an end", "Renew: the full time again"}, {"expired", "the holder lost it", "Renew: ErrLeaseLost"}},
	steps:  [2]string{"Acquire", "its time passes"},
	ends:   []string{"Release: the holder is done", "others can acquire it"},
}

// draw draws l in points, 600 wide and 155 high.
func (l life) draw(context.Context) (picture, error) {
	const half, mid, low = 62, 90, 44 // half the width of a box, its middle, and the way back
	at := [3]float64{80, 300, 520}
	pl := newPlot(0, 600*time.Second)
	pl.HideAxes()
	pl.X.Label.Text = ""
	pl.Y.Min, pl.Y.Max = 0, 155
	arrow := stroke(grey, 1.25)
	plain, strong := style(sans, black, text.XCenter, text.YCenter), style(bold, black, text.XCenter, text.YCenter)
	for i, s := range l.states {
		x := at[i]
		pl.Add(way(arrow, x-18, mid+24, x-18, mid+44, x+18, mid+44, x+18, mid+24), write(plain, x, mid+56, s.loop))
		if i > 0 {
			pl.Add(way(arrow, at[i-1]+half, mid, x-half, mid), write(plain, (at[i-1]+x)/2, mid+11, l.steps[i-1]))
			pl.Add(way(arrow, x, mid-24, x, low, at[0], low, at[0], mid-24))
		}
		left, right := time.Duration(x-half)*time.Second, time.Duration(x+half)*time.Second
		pl.Add(box(shade, left, right, mid-24, mid+24), write(strong, x, mid+9, s.name), write(plain, x, mid-9, s.note))
	}
	for i, txt := range l.ends {
		pl.Add(write(plain, at[0]+440*(float64(i)+0.5)/float64(len(l.ends)), low-11, txt))
	}
	p, err := finish(pl, 205, 0, l.title, nil, l.file, l.alt)
	p.page = l.page
	return p, err
}

// write writes lines of text around a point, or below it.
func write(s text.Style, at, height float64, txt string) drawing {
	return func(c draw.Canvas, x, y func(float64) vg.Length) {
		for i, line := range strings.Split(txt, "\n") {
			c.FillText(s, vg.Point{X: x(at), Y: y(height - 13*float64(i))}, line)
		}
	}
}

// way draws a line through points, with an arrowhead at its end.
func way(s draw.LineStyle, points ...float64) drawing {
	return func(c draw.Canvas, x, y func(float64) vg.Length) {
		var path, head vg.Path
		path.Move(vg.Point{X: x(points[0]), Y: y(points[1])})
		for i := 2; i < len(points); i += 2 {
			path.Line(vg.Point{X: x(points[i]), Y: y(points[i+1])})
		}
		c.SetLineStyle(s)
		c.Stroke(path)
		n := len(points)
		end := vg.Point{X: x(points[n-2]), Y: y(points[n-1])}
		angle := math.Atan2(points[n-1]-points[n-3], points[n-2]-points[n-4])
		head.Move(end)
		for _, side := range []float64{-0.45, 0.45} {
			head.Line(vg.Point{X: end.X - vg.Length(8*math.Cos(angle+side)), Y: end.Y - vg.Length(8*math.Sin(angle+side))})
		}
		head.Close()
		c.SetColor(s.Color)
		c.Fill(head)
	}
}

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
	pl.Add(write(head, 1, 2.85, "Redis dies"), write(head, 4.7, 2.85, "Redis is back"))
	keys := []key{{ticks(colors[0]), "decided"}, {ticks(colors[1]), "answered after the budget"}, {ticks(colors[2]), "answered in the process"}}
	alt := "When Redis dies, five requests wait for the budget. Then the fallback answers at once, except for a probe each second. The first probe after Redis is back ends the outage"
	p, err := finish(pl, 190, 28, "What happens when Redis dies: five failures, then a probe each second", keys, "outage", alt)
	p.page = "docs/guide/outage.md"
	return p, err
}
