package main

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchmath"
)

// A measured is the benchmarks of some files, and what the page shows of them.
type measured struct {
	config  map[string]string    // of the last benchmark
	series  map[string][]float64 // by the name of a benchmark and the unit: a value for each round
	names   map[string]bool      // of the benchmarks
	shown   map[string]bool      // those that the page shows
	missing map[string]bool      // those that it would show
}

// add adds the benchmarks of a file, and returns them.
func (m *measured) add(path string) ([]*benchfmt.Result, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []*benchfmt.Result
	lines := benchfmt.NewReader(bytes.NewReader(text), path)
	for lines.Scan() {
		switch line := lines.Result().(type) {
		case *benchfmt.SyntaxError:
			return nil, line
		case *benchfmt.Result:
			all = append(all, line.Clone())
			for _, c := range line.Config {
				m.config[c.Key] = string(c.Value)
			}
			m.names[m.name(line)] = true
			for _, v := range line.Values {
				name := m.name(line) + " " + cmp.Or(v.OrigUnit, v.Unit)
				value := v.Value
				if v.OrigUnit != "" {
					value = v.OrigValue
				}
				m.series[name] = append(m.series[name], value)
			}
		}
	}
	return all, lines.Err()
}

// name returns the name of a benchmark without the number of threads, which Go adds if it is not 1.
func (m *measured) name(r *benchfmt.Result) string {
	if m.config["gomaxprocs"] == "1" {
		return string(r.Name.Full())
	}
	return strings.TrimSuffix(string(r.Name.Full()), "-"+m.config["gomaxprocs"])
}

// text returns those of the benchmarks that the page shows, as a file.
func (m *measured) text(all []*benchfmt.Result) (string, error) {
	var out strings.Builder
	w := benchfmt.NewWriter(&out)
	for _, r := range all {
		if m.shown[m.name(r)] {
			if err := w.Write(r); err != nil {
				return "", err
			}
		}
	}
	return out.String(), nil
}

// units are short names of units, what to multiply their values by, and how they are printed.
var units = map[string]struct {
	unit   string
	factor float64
	text   string
}{
	"ns": {"ns/op", 1, " ns"}, "µs": {"ns/op", 1e-3, " µs"}, "µs/decision": {"ns/decision", 1e-3, " µs"},
	"cpu": {"server-cpu-µs/op", 1, " µs"}, "allocs": {"allocs/op", 1, ""}, "wire": {"", 1, " bytes"}, "bytes/key": {"bytes/key", 1, " bytes"},
}

// values returns a value for each round of a query, such as "Memory/impl=weir-gcra/keys=1 ns". The
// unit "wire" is the sum of the bytes that were sent and received.
func (m *measured) values(query string) []float64 {
	name, unit, _ := strings.Cut(query, " ")
	if unit == "wire" {
		return both(m.values(name+" sent-B/op"), m.values(name+" received-B/op"), func(a, b float64) float64 { return a + b })
	}
	u, ok := units[unit]
	if !ok {
		u.unit, u.factor = unit, 1
	}
	values := slices.Clone(m.series[name+" "+u.unit])
	for i := range values {
		values[i] *= u.factor
	}
	if !m.names[name] {
		m.missing[name[:strings.IndexByte(name, '/')]] = true
	}
	m.shown[name] = true
	return values
}

// both returns what of returns for each round that both a and b have.
func both(a, b []float64, of func(a, b float64) float64) []float64 {
	var all []float64
	for i := range min(len(a), len(b)) {
		all = append(all, of(a[i], b[i]))
	}
	return all
}

// A stat is a median, and the bounds of its 95 % confidence interval.
type stat benchmath.Summary

func summarize(values []float64) (s stat, ok bool) {
	if len(values) == 0 {
		return s, false
	}
	s = stat(benchmath.AssumeNothing.Summary(benchmath.NewSample(values, &benchmath.DefaultThresholds), 0.95))
	if math.IsInf(s.Lo, 0) || math.IsInf(s.Hi, 0) { // there are less than six rounds
		s.Lo, s.Hi = slices.Min(values), slices.Max(values)
	}
	return s, true
}

// stat returns the median of a query.
func (m *measured) stat(query string) (stat, bool) { return summarize(m.values(query)) }

// ratio returns the median of the ratios of each round.
func (m *measured) ratio(a, b string) (stat, bool) {
	return summarize(both(m.values(a), m.values(b), func(a, b float64) float64 { return a / b }))
}

func (s stat) String() string {
	if number(s.Lo) == number(s.Hi) {
		return number(s.Center)
	}
	return fmt.Sprintf("%s (%s–%s)", number(s.Center), number(s.Lo), number(s.Hi))
}

// number returns x with three significant digits, and commas between thousands. A whole number has
// no decimals.
func number(x float64) string {
	short, digits := rounded(x), 0
	if x != math.Trunc(x) {
		for limit := 100.0; digits < 2 && short < limit; limit /= 10 {
			digits++
		}
	}
	whole, rest, _ := strings.Cut(strconv.FormatFloat(short, 'f', digits, 64), ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if rest == "" {
		return whole
	}
	return whole + "." + rest
}

// rounded returns x with three significant digits.
func rounded(x float64) float64 {
	short, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 3, 64), 64)
	return short
}
