// Package page makes docs/performance.md, its charts and a part of README.md from the
// results of the benchmarks.
package page

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Results are the results of a run, from a file in Go's benchmark format.
type Results struct {
	config map[string]string
	series map[series][]float64 // one value for each round
}

// A series is a benchmark, without "Benchmark" and without the number of threads, and a
// unit of its results.
type series struct{ name, unit string }

// Read reads results. A benchmark that occurs again is the next round.
func Read(r io.Reader) (*Results, error) {
	res := &Results{config: map[string]string{}, series: map[series][]float64{}}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if text, ok := strings.CutPrefix(line, "Benchmark"); ok {
			if err := res.add(strings.Fields(text)); err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
		} else if name, value, ok := strings.Cut(line, ": "); ok && !strings.ContainsAny(name, " \t") {
			res.config[name] = strings.TrimSpace(value)
		}
	}
	return res, lines.Err()
}

// add adds a line of results: a name, a number of iterations, and pairs of a value and a
// unit.
func (r *Results) add(fields []string) error {
	if len(fields)%2 != 0 || len(fields) < 4 {
		return fmt.Errorf("%q is not a result of a benchmark", fields)
	}
	name := fields[0]
	if n := r.config["gomaxprocs"]; n != "1" { // Go adds no number to the names then
		name = strings.TrimSuffix(name, "-"+n)
	}
	for i := 2; i < len(fields); i += 2 {
		value, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return err
		}
		key := series{name, fields[i+1]}
		r.series[key] = append(r.series[key], value)
	}
	return nil
}

// A stat is a median, and the bounds of its 95 % confidence interval.
type stat struct{ median, low, high float64 }

// values returns the values of a series. The unit "wire-B/op" is the sum of the bytes that
// were sent and received.
func (r *Results) values(s series) []float64 {
	if s.unit != "wire-B/op" {
		return r.series[s]
	}
	sent, received := r.series[series{s.name, "sent-B/op"}], r.series[series{s.name, "received-B/op"}]
	var sum []float64
	for i := range min(len(sent), len(received)) {
		sum = append(sum, sent[i]+received[i])
	}
	return sum
}

// stat returns the median of a series.
func (r *Results) stat(name, unit string) (stat, bool) {
	return summarize(r.values(series{name, unit}))
}

// ratio returns the median of the ratios of each round.
func (r *Results) ratio(a, b series) (stat, bool) {
	over, under := r.values(a), r.values(b)
	var ratios []float64
	for i := range min(len(over), len(under)) {
		ratios = append(ratios, over[i]/under[i])
	}
	return summarize(ratios)
}

// minus returns the median of the differences of each round.
func (r *Results) minus(a, b series) (stat, bool) {
	from, what := r.values(a), r.values(b)
	var differences []float64
	for i := range min(len(from), len(what)) {
		differences = append(differences, from[i]-what[i])
	}
	return summarize(differences)
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

// times returns s in a larger unit, or the rate of what takes s.
func (s stat) times(f float64) stat { return stat{s.median * f, s.low * f, s.high * f} }
