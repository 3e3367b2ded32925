// Package page makes docs/performance.md, its charts and a part of README.md from the
// results of the benchmarks.
package page

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Results are the results of a run.
type Results struct {
	config map[string]string
	series map[series][]float64 // one value for each round
	used   map[series]bool      // whether a file was made from them
}

// A series is a benchmark, without "Benchmark" and without the number of threads, and a
// unit of its results.
type series struct{ name, unit string }

// cpu is the unit of the CPU time of a server.
const cpu = "server-cpu-µs/op"

// The names of what the command large measures, and the setting that says that the machine
// was busy then.
const (
	largeNames = "Large/"
	LargeLoad  = "large-load"
)

// Read reads results, as Go's benchmarks print them or as [Results.Text] returns them. A
// benchmark that occurs again is the next round.
func Read(r io.Reader) (*Results, error) {
	res := &Results{map[string]string{}, map[series][]float64{}, map[series]bool{}}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		if err := res.add(lines.Text()); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return res, lines.Err()
}

// add adds a line: a setting and its value; a benchmark, a number of iterations, and pairs of
// a value and a unit; or a series and its values.
func (r *Results) add(line string) error {
	if name, value, ok := strings.Cut(line, ": "); ok {
		r.config[name] = strings.TrimSpace(value)
		return nil
	}
	text, benchmark := strings.CutPrefix(line, "Benchmark")
	fields := strings.Fields(text)
	if len(fields) < 3 || benchmark && len(fields)%2 != 0 {
		return fmt.Errorf("%q is not a result of a benchmark", line)
	}
	if !benchmark {
		return r.append(series{fields[0], fields[1]}, fields[2:]...)
	}
	name := fields[0]
	if n := r.config["gomaxprocs"]; n != "1" { // Go adds no number to the names then
		name = strings.TrimSuffix(name, "-"+n)
	}
	for i := 2; i < len(fields); i += 2 {
		if err := r.append(series{name, fields[i+1]}, fields[i]); err != nil {
			return err
		}
	}
	return nil
}

// append adds values to a series.
func (r *Results) append(s series, texts ...string) error {
	for _, text := range texts {
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return err
		}
		r.series[s] = append(r.series[s], value)
	}
	return nil
}

// Text returns a line for each setting, and for each series that files were made from or that
// the command large measured: without a server, the page does not show the latter.
func (r *Results) Text() string {
	var lines []string
	for s, values := range r.series {
		if !r.used[s] && !strings.HasPrefix(s.name, largeNames) {
			continue
		}
		line := s.name + " " + s.unit
		for _, value := range values {
			line += " " + strconv.FormatFloat(value, 'f', -1, 64)
		}
		lines = append(lines, line+"\n")
	}
	slices.Sort(lines)
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r.config)) {
		fmt.Fprintf(&text, "%s: %s\n", name, r.config[name])
	}
	return text.String() + strings.Join(lines, "")
}

// Merge returns what the command large measured, from large, and all other results, from rest.
func Merge(rest, large *Results) *Results {
	r := &Results{maps.Clone(rest.config), map[series][]float64{}, map[series]bool{}}
	delete(r.config, LargeLoad)
	if load := large.config[LargeLoad]; load != "" {
		r.config[LargeLoad] = load
	}
	for from, want := range map[*Results]bool{rest: false, large: true} {
		for s, values := range from.series {
			if strings.HasPrefix(s.name, largeNames) == want {
				r.series[s] = values
			}
		}
	}
	return r
}

// A stat is a median, and the bounds of its 95 % confidence interval.
type stat struct{ median, low, high float64 }

// values returns the values of a series, and notes that they are used. The unit "wire-B/op"
// is the sum of the bytes that were sent and received.
func (r *Results) values(s series) []float64 {
	if s.unit == "wire-B/op" {
		return each(r.values(series{s.name, "sent-B/op"}), r.values(series{s.name, "received-B/op"}),
			func(sent, received float64) float64 { return sent + received })
	}
	if r.series[s] != nil {
		r.used[s] = true
	}
	return r.series[s]
}

// each returns what of returns for each round that both series have.
func each(a, b []float64, of func(a, b float64) float64) []float64 {
	var all []float64
	for i := range min(len(a), len(b)) {
		all = append(all, of(a[i], b[i]))
	}
	return all
}

// stat returns the median of a series.
func (r *Results) stat(name, unit string) (stat, bool) {
	return summarize(r.values(series{name, unit}))
}

// ratio returns the median of the ratios of each round.
func (r *Results) ratio(a, b series) (stat, bool) {
	return summarize(each(r.values(a), r.values(b), func(a, b float64) float64 { return a / b }))
}

// minus returns the median of the differences of each round.
func (r *Results) minus(a, b series) (stat, bool) {
	return summarize(each(r.values(a), r.values(b), func(a, b float64) float64 { return a - b }))
}

// summarize returns the median of values. The interval goes from the k-th smallest to the
// k-th largest value, where k is as large as 95 % allow. With less than six values, there
// is no such k, and the interval is the range.
func summarize(values []float64) (stat, bool) {
	n := len(values)
	if n == 0 {
		return stat{}, false
	}
	v := slices.Sorted(slices.Values(values))
	k := 1
	for missed := 2 * math.Pow(0.5, float64(n)); k < (n+1)/2; k++ {
		missed += 2 * binomial(n, k) * math.Pow(0.5, float64(n))
		if missed > 0.05 {
			break
		}
	}
	return stat{(v[(n-1)/2] + v[n/2]) / 2, v[k-1], v[n-k]}, true
}

func binomial(n, k int) float64 {
	b := 1.0
	for i := range k {
		b = b * float64(n-i) / float64(i+1)
	}
	return b
}

// rounds returns how many rounds the benchmark with the most rounds has.
func (r *Results) rounds() int {
	most := 0
	for _, values := range r.series {
		most = max(most, len(values))
	}
	return most
}

// number returns x with three significant digits, and commas between thousands. A whole
// number has no decimals.
func number(x float64) string {
	if x < 0 {
		return "−" + number(-x)
	}
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

// rounded returns x as number prints it: with three digits.
func rounded(x float64) float64 {
	short, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 3, 64), 64)
	return short
}

func (s stat) String() string {
	if number(s.low) == number(s.high) {
		return number(s.median)
	}
	return fmt.Sprintf("%s (%s–%s)", number(s.median), number(s.low), number(s.high))
}

// Times returns s times f.
func (s stat) Times(f float64) stat { return stat{s.median * f, s.low * f, s.high * f} }
