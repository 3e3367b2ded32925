package page

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"html"
	"maps"
	"path"
	"slices"
	"strings"
	"text/template"

	"github.com/weir-go/weir/internal/weirtest"
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

//go:embed page.tmpl
var source string

var templates = template.Must(template.New("").Parse(source))

// A writer writes the pages. The templates call its methods.
type writer struct {
	*Results
	earlier *Results          // of another run
	files   map[string]string // by path
	missing map[string]bool   // benchmarks without the results that a page needs
}

// Make returns the files, by their paths. The page compares the ratios of r with those of
// earlier. readme and compare are the texts of README.md and of compare.md, of which one part is
// replaced. Of the results, the files have only what the pages need.
func Make(r, earlier *Results, readme, compare string) (map[string]string, error) {
	if len(r.series) == 0 {
		return nil, errors.New("there are no results: measure first")
	}
	w := &writer{Results: r, earlier: earlier, files: map[string]string{}, missing: map[string]bool{}}
	var errs []error
	execute := func(name string) string {
		var text strings.Builder
		errs = append(errs, templates.ExecuteTemplate(&text, name, w))
		return text.String()
	}
	replace := func(page, part string) string {
		text, err := weirtest.ReplacePart(page, begin, end, part)
		errs = append(errs, err)
		return text
	}
	w.files[Page] = execute("page")
	w.files[Readme], w.files[Compare] = replace(readme, execute("readme")), replace(compare, execute("compare"))
	w.files[Now] = r.Text()
	if text := earlier.Text(); text != "" {
		w.files[Earlier] = text
	}
	return w.files, errors.Join(errs...)
}

// Machine says where the results come from.
func (r *Results) Machine() string {
	caution := ""
	if r.rounds() < fewRounds {
		caution += fmt.Sprintf("\n**These figures are provisional: the run had less than %d rounds.**", fewRounds)
	}
	if load := cmp.Or(r.config["load"], r.config[LargeLoad]); load != "" {
		caution += fmt.Sprintf("\n**These figures are provisional: the machine was busy, with a load average of %s.**", load)
	}
	return fmt.Sprintf("The figures come from %d rounds on\n%s, with %s.\nThe same cores ran %s.\nCompare ratios: the times hold for this machine only.%s",
		r.rounds(), r.Cores(), r.toolchain(), r.servers(), caution)
}

// Cores returns the cores that a run had.
func (r *Results) Cores() string {
	return fmt.Sprintf("%s cores of %s (%s/%s)", r.config["gomaxprocs"], r.config["cpu"], r.config["goos"], r.config["goarch"])
}

// toolchain returns the version of Go.
func (r *Results) toolchain() string { return "Go " + strings.TrimPrefix(r.config["go"], "go") }

// servers returns the servers that a run measured.
func (r *Results) servers() string {
	servers := slices.DeleteFunc([]string{r.config["server"], r.config["postgres"]}, func(s string) bool { return s == "" })
	return cmp.Or(strings.Join(servers, ",\nand "), "no server")
}

// units are short names of units, and what to multiply their values by.
var units = map[string]struct {
	unit   string
	factor float64
}{
	"ns": {"ns/op", 1}, "µs": {"ns/op", 1e-3}, "µs/decision": {"ns/decision", 1e-3},
	"allocs": {"allocs/op", 1}, "cpu": {cpu, 1}, "wire": {"wire-B/op", 1},
}

// parse returns the series of a text such as "Memory/impl=weir-gcra/keys=1 ns", and the factor of
// its unit.
func parse(text string) (series, float64) {
	name, unit, _ := strings.Cut(text, " ")
	if u, ok := units[unit]; ok {
		return series{name, u.unit}, u.factor
	}
	return series{name, unit}, 1
}

// lack notes that a series was not measured.
func (w *writer) lack(text string) { w.missing[text[:strings.IndexAny(text, "/ ")]] = true }

// Missing returns the benchmarks that were not measured.
func (w *writer) Missing() string {
	return strings.Join(slices.Sorted(maps.Keys(w.missing)), ", ")
}

// N returns the median of a series, or a dash.
func (w *writer) N(text string) string {
	s, factor := parse(text)
	got, ok := w.stat(s.name, s.unit)
	if !ok {
		w.lack(text)
		return "–"
	}
	return number(got.median * factor)
}

// Rows returns a row of a table for each of names, such as "weir-gcra=GCRA|weir-four=four rules".
// In the texts of the columns, a star stands for the name. "-" is a column without a value.
func (w *writer) Rows(names string, columns ...string) string {
	var rows []string
	for name := range strings.SplitSeq(names, "|") {
		name, text, _ := strings.Cut(name, "=")
		row := "| " + text + " |"
		for _, column := range columns {
			cell := "–"
			if column != "-" {
				cell = w.N(strings.ReplaceAll(column, "*", name))
			}
			row += " " + cell + " |"
		}
		rows = append(rows, row)
	}
	return strings.Join(rows, "\n")
}

// Ratio returns the ratio of two series.
func (w *writer) Ratio(a, b string) stat {
	x, _ := parse(a)
	y, _ := parse(b)
	s, ok := w.ratio(x, y)
	if !ok {
		w.lack(a)
	}
	return s
}

// A Sizing is what the example of a deployment needs: each decision with 4 rules, for 20,000 per
// second and 2,000,000 callers.
type Sizing struct {
	Network, Each, Cores, Megabytes string
	Shards                          int
}

// Sizing sizes the example from the measured figures.
func (w *writer) Sizing() Sizing {
	network, _ := w.minus(series{"Redis/impl=weir-gcra/callers=32", cpu}, series{"Server/impl=weir-gcra", cpu})
	script, _ := w.stat("Rules/impl=rules-4", cpu)
	bytes, _ := w.stat("Bytes/state=gcra", "bytes/key")
	each := rounded(rounded(script.median) + rounded(network.median)) // the reader adds what is printed
	cores := each * 20_000 / 1e6
	s := Sizing{number(network.median), number(each), number(cores), number(2_000_000 * 4 * bytes.median / 1e6), 1}
	for float64(s.Shards) < 2*cores {
		s.Shards++
	}
	return s
}

// Picture adds a chart of a series, in which a star stands for each of names, and returns the line
// that shows it. If one of them was not measured, there is no chart.
func (w *writer) Picture(file, alt, title, text, names string) string {
	var bars []bar
	for name := range strings.FieldsSeq(names) {
		one, _ := parse(strings.ReplaceAll(text, "*", name))
		s, ok := w.stat(one.name, one.unit)
		if !ok {
			w.lack(text)
			return ""
		}
		bars = append(bars, bar{implName(name), s, others[name] == ""})
	}
	w.files[ChartDir+"/"+file] = chart(title, bars)
	return fmt.Sprintf("![%s](%s/%s)", alt, path.Base(ChartDir), file)
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
