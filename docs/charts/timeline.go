package main

import (
	"fmt"
	"image/color"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Where rows of ticks lie, below the axis of time.
const (
	rowAllowed = -2.2
	rowDenied  = -4.4
	rowTurn    = -6.6 // of a queue alone
	rowHeight  = 1.5
	rowGap     = 1.2 // below the last row
	top        = 27.2
	topEdges   = 21.5 // of the lines at the edges of windows, below the labels
)

// A row is of ticks, one for each request.
type row struct {
	label string
	at    float64
	times []time.Duration
	color color.Color
}

// drawTimeline draws all of the traffic, the answers, and two counts: the requests that
// were allowed within the last window, and the tokens that the algorithm counts.
func drawTimeline(p simulation) (picture, error) {
	pl := newPlot(0, length)
	rows := []row{{"allowed", rowAllowed, p.allowed, blue}, {"denied", rowDenied, p.denied, orange}}
	if p.waits {
		rows = append(rows, row{"its turn", rowTurn, p.turns, blue})
	}
	bottom := rows[len(rows)-1].at - rowGap
	pl.Y.Min, pl.Y.Max = bottom, top
	pl.Y.Label.Text = fmt.Sprintf("requests in %.0f s", window.Seconds())
	pl.X.Tick.Marker = seconds(0, length, window)
	var marks plot.ConstantTicks
	for n := 0; n <= 2*limit; n += limit / 2 {
		marks = append(marks, plot.Tick{Value: float64(n), Label: strconv.Itoa(n)})
	}
	for _, ph := range traffic {
		if ph.requests > 0 {
			pl.Add(box(shade, ph.start, ph.end, bottom, top))
		}
	}
	var edges []time.Duration
	for at := time.Duration(0); at <= length; at += window {
		edges = append(edges, at)
	}
	pl.Add(verticals(stroke(faint, 0.75), edges, bottom, topEdges))
	let, own, bound := stroke(blue, 1.25), stroke(orange, 1.25), stroke(black, 1, 5, 3)
	recent := inWindow(p.turns, window)
	pl.Add(
		steps(recent, 0, true, let), steps(recent, 0, false, let),
		horizontal(stroke(grey, 0.75), 0), horizontal(bound, limit),
		steps(p.counted, 0, false, own),
	)
	for _, r := range rows {
		pl.Add(verticals(stroke(r.color, 1), r.times, r.at-rowHeight/2, r.at+rowHeight/2))
		marks = append(marks, plot.Tick{Value: r.at, Label: r.label})
	}
	pl.Y.Tick.Marker = marks
	s := style(sans, grey, text.XCenter, text.YTop)
	for _, ph := range traffic {
		pl.Add(label(s, (ph.start+ph.end)/2, top-0.6, ph.label))
	}

	what, counts := "allowed", "what "+p.kind()+" counts (Limit − Remaining)"
	if p.waits {
		what, counts = "whose turn came", "turns taken"
	}
	in := fmt.Sprintf("%s within the last %.0f s", what, window.Seconds())
	keys := []key{{area(sky, let), in}, {line(own), counts}, {line(bound), "the limit"}}
	alt := fmt.Sprintf("%s: of %d requests %d are allowed, at most %d start within 10 s",
		p.name(), len(p.allowed)+len(p.denied), len(p.allowed), most(p.turns, window))
	return finish(pl, 280, 0, p.title(), keys, p.file, alt)
}

// steps draws counts as stairs from first on, or the area below.
func steps(counts []count, first float64, fill bool, s draw.LineStyle) drawing {
	return func(c draw.Canvas, x, y func(float64) vg.Length) {
		var path vg.Path
		last := y(first)
		path.Move(vg.Point{X: x(0), Y: last})
		for _, n := range counts {
			if n.at > length {
				break // a queue goes on
			}
			path.Line(vg.Point{X: x(n.at.Seconds()), Y: last})
			last = y(float64(n.n))
			path.Line(vg.Point{X: x(n.at.Seconds()), Y: last})
		}
		path.Line(vg.Point{X: c.Max.X, Y: last})
		if !fill {
			c.SetLineStyle(s)
			c.Stroke(path)
			return
		}
		path.Line(vg.Point{X: c.Max.X, Y: y(0)})
		path.Close()
		c.SetColor(sky)
		c.Fill(path)
	}
}

// seconds are ticks of an axis of time.
func seconds(from, to, every time.Duration) plot.ConstantTicks {
	var marks plot.ConstantTicks
	for at := from; at <= to; at += every {
		marks = append(marks, plot.Tick{Value: at.Seconds(), Label: fmt.Sprint(at.Seconds())})
	}
	return marks
}
