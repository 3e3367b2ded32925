package page

import (
	"cmp"
	"errors"
	"fmt"
	"html"
	"path"
	"strings"

	"github.com/weir-go/weir/internal/marked"
)

// The files, as paths from the root of the repository.
const (
	Page     = "docs/performance.md"
	ChartDir = "docs/performance"
	Readme   = "README.md"
	Compare  = "docs/compare.md"
	Now      = "bench/results.txt"
	Earlier  = "bench/earlier.txt"
)

// The marks around the parts of README.md and of compare.md that [Make] replaces.
const (
	begin = "<!-- bench/run writes this part from bench/results.txt. -->\n"
	end   = "<!-- end -->\n"
)

// fewRounds is how many rounds a comparison needs.
const fewRounds = 10

// A writer writes the page and its charts.
type writer struct {
	*Results
	strings.Builder
	earlier *Results          // of another run
	files   map[string]string // by path
	missing []string          // sections without results
}

// Make returns the files, by their paths. The page compares the ratios of r with those of
// earlier. readme and compare are the texts of README.md and of compare.md, of which one part is
// replaced. Of the results, the files have only what the pages need.
func Make(r, earlier *Results, readme, compare string) (map[string]string, error) {
	if len(r.series) == 0 {
		return nil, errors.New("there are no results: measure first")
	}
	w := &writer{Results: r, earlier: earlier, files: map[string]string{}}
	w.head()
	w.worse()
	w.allRatios()
	w.differences()
	w.memory()
	w.servers()
	w.many()
	w.postgres()
	w.sqlite()
	w.nats()
	w.around()
	w.sizing()
	w.unmeasured()
	w.files[Page] = strings.TrimRight(w.String(), "\n") + "\n"
	readme, err := marked.Replace(readme, begin, end, r.readme())
	compare, err2 := marked.Replace(compare, begin, end, r.ratios())
	w.files[Readme], w.files[Compare], w.files[Now] = readme, compare, r.Text()
	if text := earlier.Text(); text != "" {
		w.files[Earlier] = text
	}
	return w.files, errors.Join(err, err2)
}

// p writes a paragraph.
func (w *writer) p(format string, args ...any) {
	fmt.Fprintf(&w.Builder, format+"\n\n", args...)
}

// table writes a table, or nothing if it has no rows.
func (w *writer) table(head string, rows []string) {
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(&w.Builder, "%s\n|%s\n", head, strings.Repeat("---|", strings.Count(head, "|")-1))
	for _, row := range rows {
		fmt.Fprintln(&w.Builder, row)
	}
	w.WriteByte('\n')
}

// A named is what a row of a table is about: its name in the results, and its text.
type named struct{ name, text string }

// A cells returns a cell of a row, or several, by the row's name. If there are no results, it
// returns "".
type cells func(name string) string

// rows returns a row for each of items that has results. A dash stands for cells without.
func rows(items []named, columns ...cells) []string {
	var all []string
	for _, item := range items {
		row, found := "| "+item.text+" |", false
		for _, of := range columns {
			text := of(item.name)
			found = found || text != ""
			row += " " + cmp.Or(text, "–") + " |"
		}
		if found {
			all = append(all, row)
		}
	}
	return all
}

// in returns cells with medians. format has a verb for the row's name.
func (w *writer) in(format, unit string, factor float64) cells {
	return func(name string) string {
		if s, ok := w.stat(fmt.Sprintf(format, name), unit); ok {
			return number(s.median * factor)
		}
		return ""
	}
}

// start writes a heading, and reports whether a benchmark has results. If it has none, it writes
// nothing, and notes its subject.
func (w *writer) start(heading, name, unit, what string) bool {
	_, ok := w.stat(name, unit)
	if ok {
		w.p("%s", heading)
	} else {
		w.missing = append(w.missing, what)
	}
	return ok
}

// picture adds a chart, unless one of its bars lacks results.
// format has a verb for the name of a bar.
func (w *writer) picture(file, alt, title, format, unit string, items []named) {
	var bars []bar
	for _, item := range items {
		s, ok := w.stat(fmt.Sprintf(format, item.name), unit)
		if !ok {
			return
		}
		bars = append(bars, bar{item.text, s, others[item.name] == ""})
	}
	w.files[ChartDir+"/"+file] = chart(title, bars)
	w.p("![%s](%s/%s)", alt, path.Base(ChartDir), file)
}

func (w *writer) head() {
	w.p("<!-- bench/run writes this page from bench/results.txt and bench/earlier.txt. Do not edit it. -->")
	w.p("# Performance")
	w.p(`This page compares weir with other limiters, and helps to [size a deployment](#sizing).
[Bench](../bench/README.md) says how to measure yourself.

%s`, w.machine())
	w.p(`Each figure is the median of the rounds. A ratio is the median of the ratios of all rounds: 2 means
that weir takes twice as much as the peer. Its 95 %% confidence interval is in brackets.`)
	w.p(`With several callers, a time is the run's duration divided by its decisions. CPU time counts the
server's main thread.`)
}

// machine says where the results come from.
func (r *Results) machine() string {
	caution := ""
	if r.rounds() < fewRounds {
		caution += fmt.Sprintf("\n**These figures are provisional: the run had less than %d rounds.**", fewRounds)
	}
	if load := cmp.Or(r.config["load"], r.config[largeLoad]); load != "" {
		caution += fmt.Sprintf("\n**These figures are provisional: the machine was busy, with a load average of %s.**", load)
	}
	return fmt.Sprintf("The figures come from %d rounds on\n%s, with %s.\nThe same cores ran %s.\nCompare ratios: the times hold for this machine only.%s",
		r.rounds(), r.cores(), r.toolchain(), r.servers(), caution)
}

// cores returns the cores that a run had.
func (r *Results) cores() string {
	return fmt.Sprintf("%s cores of %s (%s/%s)", r.config["gomaxprocs"], r.config["cpu"], r.config["goos"], r.config["goarch"])
}

// toolchain returns the version of Go.
func (r *Results) toolchain() string { return "Go " + strings.TrimPrefix(r.config["go"], "go") }

// servers returns the servers that a run measured.
func (r *Results) servers() string {
	var servers []string
	for _, name := range []string{"server", "postgres"} {
		if server := r.config[name]; server != "" {
			servers = append(servers, server)
		}
	}
	return cmp.Or(strings.Join(servers, ",\nand "), "no server")
}

func (w *writer) worse() {
	w.p("## Where weir is worse")
	head, all, earlier := "| One decision | weir | peer | ratio |", w.compare(), w.again()
	if earlier != "" {
		head += " earlier run |"
	}
	var rows []string
	for _, c := range all {
		if !c.ratio.worse() {
			continue
		}
		row := c.row()
		if earlier != "" {
			cell := "–"
			if before, ok := w.earlier.ratio(c.weir, c.peer); ok {
				cell = before.String()
			}
			row += " " + cell + " |"
		}
		rows = append(rows, row)
	}
	w.p("Weir is worse than a peer in %d of %d comparisons: the whole interval of the ratio is above 1.\nSuch a peer does less, as [shown below](#what-the-peers-do-differently).", len(rows), len(all))
	w.table(head, rows)
	if earlier != "" {
		w.p("%s", earlier)
	}
}

// allRatios writes the ratio of each comparison.
func (w *writer) allRatios() {
	w.p("## All ratios")
	head := "| Time in memory |"
	for _, keys := range keyCounts {
		head += " " + keys.text + " |"
	}
	w.table(head+" 1,000 keys, parallel |", w.rows(comparison.inMemory, stat.String))
	w.table(serverHead(), w.rows(comparison.onServer, stat.String))
}

// unmeasured names what has no results.
func (w *writer) unmeasured() {
	if len(w.missing) > 0 {
		w.p("This run did not measure %s.", strings.Join(w.missing, ", "))
	}
}

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
