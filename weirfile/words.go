package weirfile

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/algorithm"
)

// The units of a duration, from the longest to the shortest. A day has 24 hours.
var units = []struct {
	name   string
	length time.Duration
	words  string // what people write instead
}{
	{"d", 24 * time.Hour, " day days "},
	{"h", time.Hour, " hour hours hr hrs "},
	{"m", time.Minute, " minute minutes min mins "},
	{"s", time.Second, " second seconds sec secs "},
	{"ms", time.Millisecond, " millisecond milliseconds msec "},
	{"us", time.Microsecond, " microsecond microseconds µs μs usec "},
	{"ns", time.Nanosecond, " nanosecond nanoseconds nsec "},
}

const durationForm = "it must be whole numbers with the units d, h, m, s, ms, us or ns, the longest unit first: 1h30m"

// parseDuration reads a duration, for example 1h30m.
func parseDuration(text string) (time.Duration, error) {
	var sum time.Duration
	next := 0 // the index of the longest unit that can follow
	for rest := text; rest != "" || text == ""; {
		number, after := cut(rest, isDigit)
		unit, after := cut(after, func(c byte) bool { return !isDigit(c) })
		i := next
		for i < len(units) && units[i].name != unit {
			i++
		}
		if number == "" || i == len(units) {
			return 0, badDuration(text)
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n > int64(math.MaxInt64-sum)/int64(units[i].length) {
			return 0, errors.New("it must be at most 106751d")
		}
		sum += time.Duration(n) * units[i].length
		next, rest = i+1, after
	}
	return sum, nil
}

// badDuration is the error of a text that is no duration. It suggests what was meant.
func badDuration(text string) error {
	number, unit := cut(text, isDigit)
	unit = strings.ToLower(strings.TrimSpace(unit))
	switch {
	case number != "" && unit == "":
		return fmt.Errorf("the unit is missing: did you mean %ss?", number)
	case number != "" && strings.Contains(" w week weeks ", " "+unit+" "):
		if n, err := strconv.ParseInt(number, 10, 32); err == nil {
			return fmt.Errorf("did you mean %dd?", 7*n)
		}
	case number != "":
		for _, u := range units {
			if unit == u.name || strings.Contains(u.words, " "+unit+" ") {
				return fmt.Errorf("did you mean %s%s?", number, u.name)
			}
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return fmt.Errorf("%s; did you mean %s?", durationForm, formatDuration(d))
	}
	return errors.New(durationForm)
}

// formatDuration writes d as parseDuration reads it.
func formatDuration(d time.Duration) string {
	if d <= 0 {
		return "0s"
	}
	var b strings.Builder
	for _, u := range units {
		if n := d / u.length; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.name)
			d -= n * u.length
		}
	}
	return b.String()
}

// The periods of a rate that have a name.
var periods = []struct {
	name   string
	length time.Duration
}{{"second", time.Second}, {"minute", time.Minute}, {"hour", time.Hour}, {"day", 24 * time.Hour}}

const rateForm = "it must be a whole number per second, minute, hour or day, or per duration: 10 per second, 1 per 30s"

// parseRate reads a rate, for example 10 per second.
func parseRate(text string) (algorithm.Rate, error) {
	words := strings.Fields(text)
	if len(words) != 3 || words[1] != "per" {
		return algorithm.Rate{}, badRate(text)
	}
	count, err := parseInt(words[0])
	if err != nil {
		if _, notNumber := strconv.ParseFloat(words[0], 64); notNumber == nil {
			return algorithm.Rate{}, fmt.Errorf("the number is %s: %w; for less than one per %s, write 1 per a longer time: 1 per 30s", words[0], err, words[2])
		}
		return algorithm.Rate{}, badRate(text)
	}
	if count < 1 {
		return algorithm.Rate{}, errors.New("the number must be at least 1")
	}
	var names []string
	for _, p := range periods {
		if words[2] == p.name {
			return algorithm.Rate{Count: count, Period: p.length}, nil
		}
		names = append(names, p.name)
	}
	period, err := parseDuration(words[2])
	switch {
	case err == nil && period > 0:
		return algorithm.Rate{Count: count, Period: period}, nil
	case err == nil:
		return algorithm.Rate{}, errors.New("the time must be longer than 0")
	case strings.Contains(" week month quarter year ", " "+words[2]+" "):
		return algorithm.Rate{}, fmt.Errorf("a rate has no %s: write the days, for example %d per 30d, or use the algorithm calendar", words[2], count)
	case isDigit(words[2][0]):
		return algorithm.Rate{}, fmt.Errorf("in %q, %w", words[2], err)
	}
	if near := nearest(words[2], names); near != "" {
		return algorithm.Rate{}, fmt.Errorf("%q is no unit: did you mean %d per %s?", words[2], count, near)
	}
	return algorithm.Rate{}, fmt.Errorf("%q is no unit: %s", words[2], rateForm)
}

// badRate is the error of a text that is no rate. It suggests what was meant.
func badRate(text string) error {
	short := map[string]string{"s": "second", "sec": "second", "m": "minute", "min": "minute", "h": "hour", "d": "day"}
	if number, unit, found := strings.Cut(strings.ReplaceAll(text, " per ", "/"), "/"); found {
		number, unit = strings.TrimSpace(number), strings.TrimSpace(unit)
		if _, err := parseInt(number); err == nil && unit != "" {
			if unit = cmp.Or(short[unit], unit); !strings.Contains(unit, " ") {
				return fmt.Errorf("did you mean %q?", number+" per "+unit)
			}
		}
	}
	return errors.New(rateForm)
}

// formatRate writes r as parseRate reads it.
func formatRate(r algorithm.Rate) string {
	for _, p := range periods {
		if r.Period == p.length {
			return fmt.Sprintf("%d per %s", r.Count, p.name)
		}
	}
	return fmt.Sprintf("%d per %s", r.Count, formatDuration(r.Period))
}

// parseInt reads a whole number.
func parseInt(text string) (int64, error) {
	digits := strings.TrimPrefix(text, "-")
	rest, _ := cut(digits, isDigit)
	if rest == digits && digits != "" && (digits[0] != '0' || text == "0") {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("it must be at most %d", int64(algorithm.MaxTokens))
		}
		return n, nil
	}
	if f, err := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64); err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return 0, fmt.Errorf("did you mean %d?", int64(f))
	}
	return 0, errors.New("it must be a whole number, written in digits")
}

// parseClock reads a time of day, for example 06:00.
func parseClock(text string) (time.Duration, error) {
	for _, layout := range []string{"15:04", "15:04:05"} { // the second also reads a fraction
		if t, err := time.Parse(layout, text); err == nil && len(text) >= len(layout) {
			return t.Sub(time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)), nil
		}
	}
	return 0, errors.New(`it must be a time of day from "00:00" to "23:59"`)
}

// formatClock writes d as parseClock reads it.
func formatClock(d time.Duration) string {
	t := time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC).Add(d)
	if d%time.Minute == 0 {
		return t.Format("15:04")
	}
	return t.Format("15:04:05.999999999")
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// cut returns the longest start of text of which all bytes are ok, and the rest.
func cut(text string, ok func(c byte) bool) (start, rest string) {
	i := 0
	for i < len(text) && ok(text[i]) {
		i++
	}
	return text[:i], text[i:]
}
