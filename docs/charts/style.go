package main

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"regexp"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Colours that colour-blind readers can tell apart: those of Okabe and Ito, "Color
// universal design" (2008). The background is white on a dark page too.
var (
	black  = color.Gray{0x22}
	grey   = color.Gray{0x77}
	faint  = color.Gray{0xd8}
	shade  = color.Gray{0xf3}
	blue   = color.RGBA{0x00, 0x72, 0xb2, 0xff}
	orange = color.RGBA{0xd5, 0x5e, 0x00, 0xff}
	sky    = color.RGBA{0xcc, 0xe6, 0xf5, 0xff}
)

const (
	width    = 620 // points
	margin   = 8
	fontSize = 10

	// spare is how much wider than Liberation Sans another font can be without texts
	// that overlap: 30 %, which is more than DejaVu Sans and Verdana need.
	spare = 1.3
)

var (
	sans = font.Font{Typeface: "Liberation", Variant: "Sans"}
	bold = font.Font{Typeface: "Liberation", Variant: "Sans", Weight: 2}
)

// style is a style for text at the left of, or above, a point.
func style(f font.Font, c color.Color, x text.XAlignment, y text.YAlignment) text.Style {
	return text.Style{Color: c, Font: font.From(f, fontSize), XAlign: x, YAlign: y, Handler: plot.DefaultTextHandler}
}

// stroke is a line of that width, in points.
func stroke(c color.Color, width vg.Length, dashes ...vg.Length) draw.LineStyle {
	return draw.LineStyle{Color: c, Width: width, Dashes: dashes}
}

// newPlot returns a plot over the seconds from start to end.
func newPlot(start, end time.Duration) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	p.X.Min, p.X.Max = start.Seconds(), end.Seconds()
	p.X.Label.Text = "time in seconds; windows begin at the multiples of ten"
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Padding = 0
		a.Label.Padding = 3
		a.Label.TextStyle.Font = font.From(sans, fontSize)
		a.Label.TextStyle.Color = black
		a.Tick.Label.Font = font.From(sans, fontSize)
		a.Tick.Label.Color = black
		a.LineStyle = stroke(grey, 0.75)
		a.Tick.LineStyle = stroke(grey, 0.75)
		a.Tick.Length = 4
	}
	return p
}

// A drawing draws on a plot.
type drawing func(c draw.Canvas, x, y func(float64) vg.Length)

func (d drawing) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	d(c, x, y)
}

// verticals draws a line at each of times, all in one path.
func verticals(s draw.LineStyle, times []time.Duration, from, to float64) drawing {
	return func(c draw.Canvas, x, y func(float64) vg.Length) {
		var path vg.Path
		for _, at := range times {
			path.Move(vg.Point{X: x(at.Seconds()), Y: y(from)})
			path.Line(vg.Point{X: x(at.Seconds()), Y: y(to)})
		}
		c.SetLineStyle(s)
		c.Stroke(path)
	}
}

// horizontal draws a line across the plot.
func horizontal(s draw.LineStyle, at float64) drawing {
	return func(c draw.Canvas, _, y func(float64) vg.Length) {
		c.StrokeLine2(s, c.Min.X, y(at), c.Max.X, y(at))
	}
}

// box fills a part of the plot.
func box(fill color.Color, from, to time.Duration, low, high float64) drawing {
	return func(c draw.Canvas, x, y func(float64) vg.Length) {
		c.SetColor(fill)
		c.Fill(vg.Rectangle{
			Min: vg.Point{X: x(from.Seconds()), Y: y(low)},
			Max: vg.Point{X: x(to.Seconds()), Y: y(high)},
		}.Path())
	}
}

// label writes a text beside a point.
func label(s text.Style, at time.Duration, height float64, txt string) drawing {
	return func(c draw.Canvas, x, y func(float64) vg.Length) {
		c.FillText(s, vg.Point{X: x(at.Seconds()), Y: y(height)}, txt)
	}
}

// A key explains what a line, a tick or an area is.
type key struct {
	sample func(c draw.Canvas, left, right vg.Point)
	txt    string
}

// line is the sample of a line.
func line(s draw.LineStyle) func(draw.Canvas, vg.Point, vg.Point) {
	return func(c draw.Canvas, left, right vg.Point) { c.StrokeLine2(s, left.X, left.Y, right.X, right.Y) }
}

// area is the sample of a filled area with a line on top.
func area(fill color.Color, s draw.LineStyle) func(draw.Canvas, vg.Point, vg.Point) {
	return func(c draw.Canvas, left, right vg.Point) {
		c.SetColor(fill)
		c.Fill(vg.Rectangle{Min: vg.Point{X: left.X, Y: left.Y - 4}, Max: vg.Point{X: right.X, Y: right.Y + 4}}.Path())
		c.StrokeLine2(s, left.X, left.Y+4, right.X, right.Y+4)
	}
}

// ticks is the sample of a row of ticks.
func ticks(s draw.LineStyle) func(draw.Canvas, vg.Point, vg.Point) {
	return func(c draw.Canvas, left, right vg.Point) {
		for at := left.X + 3; at < right.X; at += 5 {
			c.StrokeLine2(s, at, left.Y-4, at, left.Y+4)
		}
	}
}

// finish draws p, indented, with a title and keys above it, as the picture of that name.
func finish(p *plot.Plot, height, indent vg.Length, title string, keys []key, file, alt string) (picture, error) {
	const line = 15
	svg := vgsvg.New(width, height)
	all := draw.New(svg)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())

	c := draw.Crop(all, margin, -margin, margin, -margin)
	left := c.Min.X + margin
	c.FillText(style(bold, black, text.XLeft, text.YTop), vg.Point{X: left, Y: c.Max.Y}, title)
	s := style(sans, black, text.XLeft, text.YCenter)
	at := vg.Point{X: left, Y: c.Max.Y - 1.6*line}
	for _, k := range keys {
		k.sample(c, at, vg.Point{X: at.X + sample, Y: at.Y})
		at.X += sample + gap
		c.FillText(s, at, k.txt)
		at.X += spare*s.Width(k.txt) + 10
	}
	p.Draw(draw.Crop(c, indent, 0, 0, -2.4*line))

	var out bytes.Buffer
	if _, err := svg.WriteTo(&out); err != nil {
		return picture{}, err
	}
	anchors := map[string]string{title: "start"}
	for _, k := range keys {
		anchors[k.txt] = "start"
	}
	for _, mark := range p.Y.Tick.Marker.Ticks(0, 0) {
		if _, err := strconv.Atoi(mark.Label); err != nil {
			anchors[mark.Label] = "end"
		}
	}
	return picture{file + ".svg", alt, readable(out.String(), alt, anchors), "docs/reference/algorithms.md"}, nil
}

// The width of the sample of a key, and of the gap between it and its text.
const sample, gap = 18, 5

var texts = regexp.MustCompile(`(?s)<text x="([0-9.-]+)"([^>]*font-weight:(\w+);[^>]*)>([^<]*)</text>`)

// readable adds what vgsvg leaves out: fonts for machines that lack the drawing's, the
// width and the anchor of each text, and the text that a screen reader reads. A text
// without an entry in anchors is centred. Some viewers ignore the width: the anchors keep
// a text in its place there.
func readable(svg, alt string, anchors map[string]string) []byte {
	svg = strings.ReplaceAll(svg, "font-family:Liberation Sans;font-variant:normal;", "font-family:Liberation Sans,Arial,Helvetica,sans-serif;")
	svg = texts.ReplaceAllStringFunc(svg, func(s string) string {
		part := texts.FindStringSubmatch(s)
		face := sans
		if part[3] != "normal" {
			face = bold
		}
		txt := html.UnescapeString(part[4])
		width := float64(style(face, black, 0, 0).Width(txt))
		x, _ := strconv.ParseFloat(part[1], 64)
		anchor := anchors[txt]
		switch anchor {
		case "start":
		case "end":
			x += width
		default:
			anchor, x = "middle", x+width/2
		}
		return fmt.Sprintf("<text text-anchor=\"%s\" textLength=\"%.1f\" lengthAdjust=\"spacingAndGlyphs\" x=\"%.1f\"%s>%s</text>", anchor, width, x, part[2], part[4])
	})
	head, body, _ := strings.Cut(svg, "xmlns:xlink=\"http://www.w3.org/1999/xlink\">\n")
	return fmt.Appendf(nil, "%srole=\"img\">\n<title>%s</title>\n%s", head, html.EscapeString(alt), body)
}
