package page

import (
	"fmt"
	"html"
	"strings"
)

// A bar is a row of a chart.
type bar struct {
	label string
	s     stat
	ours  bool
}

// The sizes of a chart, in pixels.
const (
	chartWidth  = 720
	labelWidth  = 250
	valueWidth  = 90
	rowHeight   = 24
	chartTop    = 34
	chartMargin = 8
)

// chart draws horizontal bars, with a line for each interval.
func chart(title string, bars []bar) string {
	longest := 0.0
	for _, b := range bars {
		longest = max(longest, b.s.high)
	}
	scale := (chartWidth - labelWidth - valueWidth) / longest
	height := chartTop + len(bars)*rowHeight + chartMargin
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="13">`+"\n", chartWidth, height)
	fmt.Fprintf(&svg, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", chartWidth, height)
	fmt.Fprintf(&svg, `<text x="%d" y="21" font-weight="bold" fill="#222222">%s</text>`+"\n", chartMargin, html.EscapeString(title))
	for i, b := range bars {
		y := chartTop + i*rowHeight
		color := "#9aa5b1"
		if b.ours {
			color = "#2f6fb5"
		}
		length := b.s.median * scale
		fmt.Fprintf(&svg, `<text x="%d" y="%d" text-anchor="end" fill="#222222">%s</text>`, labelWidth-chartMargin, y+16, html.EscapeString(b.label))
		fmt.Fprintf(&svg, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`, labelWidth, y+3, length, rowHeight-7, color)
		if b.s.low != b.s.high {
			fmt.Fprintf(&svg, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%[3]d" stroke="#222222"/>`, labelWidth+b.s.low*scale, labelWidth+b.s.high*scale, y+11)
		}
		fmt.Fprintf(&svg, `<text x="%.1f" y="%d" fill="#222222">%s</text>`+"\n", labelWidth+b.s.high*scale+chartMargin, y+16, number(b.s.median))
	}
	svg.WriteString("</svg>\n")
	return svg.String()
}
