package main

import (
	"bytes"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	svg "github.com/ajstarks/svgo/float"
)

// A chart shows what happens over time: a row of ticks for each caller or answer, and above the
// rows, how a count changes.
type chart struct {
	file  string // without ending
	page  string // that shows it, from the root of the repository
	alt   string // what it shows, for readers who do not see it
	title string
	keys  []key
	axis  string

	from, to time.Duration
	marks    []mark // of the axis
	lines    []line
	bands    []band

	most, step int64 // the largest count, and the one between two labels; 0 if there are no counts
	limit      int64 // a line at this count; 0 for none
	stairs     []stairs

	rows    []row
	columns []string // what is above the numbers of the rows
}

// The classes of what is drawn, which style gives colours. An area has a line on top of it.
const (
	blue, orange, black, grey = "blue", "orange", "black", "grey"
	area, dashed, faint       = "area", "dashed", "faint"
)

// The colours are those of Okabe and Ito, "Color universal design" (2008), so that colour-blind
// readers can tell them apart. The background is white on a dark page too.
const style = `text{fill:#222}.note{fill:#666}.bold{font-weight:bold}path,line{fill:none;stroke-width:1.5}
.blue,.area{stroke:#0072b2}.orange{stroke:#d55e00}.black,.dashed{stroke:#222}.grey{stroke:#777}
.area{fill:#cce6f5}.dashed{stroke-dasharray:7 4}.faint{stroke:#d8d8d8;stroke-width:.75}.shade{fill:#f3f3f3}`

type (
	// A key explains a class. ticks is true for rows of ticks.
	key struct {
		class string
		ticks bool
		text  string
	}
	mark struct {
		at   time.Duration
		text string
	}
	// A line is vertical. Its text is above it.
	line struct {
		class string
		mark
	}
	// A band is a shaded span. A newline divides the lines of its text.
	band struct {
		from, to time.Duration
		text     string
	}
	stairs struct {
		class  string
		counts []count
	}
	// ticks are thin if they are half as high as others.
	ticks struct {
		class string
		thin  bool
		times []time.Duration
	}
	row struct {
		text    string
		ticks   []ticks
		numbers []int
	}
)

// The sizes, in pixels. letter is the mean width of a letter of a wide font.
const (
	width, margin       = 830, 16
	letter, lineHeight  = 7.4, 15
	panel, pitch        = 130, 22
	header, columnWidth = 56, 80
)

// draw returns the chart as an SVG.
func (c chart) draw() []byte {
	longest, lines := 2, 0
	for _, r := range c.rows {
		longest = max(longest, utf8.RuneCountInString(r.text))
	}
	for _, b := range c.bands {
		lines = max(lines, strings.Count(b.text, "\n")+1)
	}
	if len(c.columns) > 0 {
		lines = max(lines, 1)
	}
	for _, l := range c.lines {
		if l.text != "" {
			lines = max(lines, 1)
		}
	}
	left, right := margin+8+letter*float64(longest), width-margin-columnWidth*float64(len(c.columns))
	counts := float64(header + lineHeight*lines + 6) // where the panel of counts begins
	rows := counts + pitch/2
	if c.most > 0 {
		rows += panel + pitch/2
	}
	bottom := rows + pitch*float64(len(c.rows)) - pitch/2 + 4
	height := bottom + 46
	x := func(at time.Duration) float64 { return left + (right-left)*float64(at-c.from)/float64(c.to-c.from) }
	y := func(n int64) float64 { return counts + panel*(1-float64(n)/float64(c.most)) }

	var out bytes.Buffer
	s := svg.New(&out)
	s.Decimals = 1
	s.Start(width, height, fmt.Sprintf(`viewBox="0 0 %d %.1f"`, width, height), `role="img"`, `font-family="Arial,Helvetica,'Liberation Sans',sans-serif"`, `font-size="13"`)
	s.Title(c.alt)
	s.Style("text/css", style)
	text := func(x, y float64, anchor, class, text string) {
		s.Text(x, y+4.5, text, fmt.Sprintf(`text-anchor="%s"`, anchor), fmt.Sprintf(`class="%s"`, class))
	}
	path := func(class, d string) { s.Path(d, fmt.Sprintf(`class="%s"`, class)) }
	s.Rect(0, 0, width, height, `fill="#fff"`)
	text(margin, 16, "start", "bold", c.title)
	at := float64(margin)
	for _, k := range c.keys {
		switch {
		case k.ticks:
			path(k.class, fmt.Sprintf("M%.1f 34v12m6-12v12m6-12v12", at+4))
		case k.class == area:
			path(k.class, fmt.Sprintf("M%.1f 34h22v12h-22z", at))
		default:
			path(k.class, fmt.Sprintf("M%.1f 40h22", at))
		}
		text(at+29, 40, "start", "", k.text)
		at += 50 + letter*float64(utf8.RuneCountInString(k.text))
	}

	for _, b := range c.bands {
		s.Rect(x(b.from), header, x(b.to)-x(b.from), bottom-header, `class="shade"`)
		for i, t := range strings.Split(b.text, "\n") {
			text(x((b.from+b.to)/2), header+10+lineHeight*float64(i), "middle", "note", t)
		}
	}
	for i, t := range c.columns {
		text(right+columnWidth*(float64(i)+0.5), header+10, "middle", "note", t)
	}
	for _, l := range c.lines {
		path(l.class, fmt.Sprintf("M%.1f %.1fV%.1f", x(l.at), counts, bottom))
		text(x(l.at), header+10, "middle", "note", l.text)
	}
	for n := int64(0); c.most > 0 && n <= c.most; n += c.step {
		text(left-8, y(n), "end", "", fmt.Sprint(n))
		path(faint, fmt.Sprintf("M%.1f %.1fH%.1f", left, y(n), right))
	}
	for _, st := range c.stairs {
		d := fmt.Sprintf("M%.1f %.1f", x(c.from), y(0))
		for _, n := range st.counts {
			if n.at > c.to {
				break // a queue goes on
			}
			d += fmt.Sprintf("H%.1fV%.1f", x(n.at), y(n.n))
		}
		d += fmt.Sprintf("H%.1f", right)
		if st.class == area {
			d += fmt.Sprintf("V%.1fz", y(0))
		}
		path(st.class, d)
	}
	if c.limit > 0 {
		path(dashed, fmt.Sprintf("M%.1f %.1fH%.1f", left, y(c.limit), right))
	}
	d := fmt.Sprintf("M%.1f %.1fV%.1fH%.1f", left, counts, bottom, right)
	for _, m := range c.marks {
		d += fmt.Sprintf("M%.1f %.1fv5", x(m.at), bottom)
		text(x(m.at), bottom+14, "middle", "", m.text)
	}
	path(grey, d)
	for i, r := range c.rows {
		at := rows + pitch*float64(i)
		text(left-8, at, "end", "", r.text)
		path(faint, fmt.Sprintf("M%.1f %.1fH%.1f", left, at, right))
		for _, t := range r.ticks {
			half, d := 8.0, ""
			if t.thin {
				half = 4
			}
			for _, when := range t.times {
				d += fmt.Sprintf("M%.1f %.1fv%.1f", x(when), at-half, 2*half)
			}
			path(t.class, d)
		}
		for j, n := range r.numbers {
			text(right+columnWidth*(float64(j)+0.5), at, "middle", "bold", fmt.Sprint(n))
		}
	}
	text((left+right)/2, bottom+33, "middle", "", c.axis)
	s.End()
	return out.Bytes()
}

// seconds are marks of an axis of seconds.
func seconds(from, to, every time.Duration) []mark {
	var marks []mark
	for at := from; at <= to; at += every {
		marks = append(marks, mark{at, fmt.Sprint(at.Seconds())})
	}
	return marks
}
