package weirfile

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/algorithm"
)

// The units that people write, from the longest to the shortest. A duration has those
// from d on. A day has 24 hours.
var allUnits = []struct {
	name   string
	length time.Duration
	words  string // what people write instead; the first is for a rate
	hint   string
}{
	{"y", 365 * 24 * time.Hour, " year years yr yrs ", calendarHint},
	{"quarter", 90 * 24 * time.Hour, " quarters ", calendarHint},
	{"mo", 30 * 24 * time.Hour, " month months ", calendarHint},
	{"w", 7 * 24 * time.Hour, " week weeks wk ", calendarHint},
	{"d", 24 * time.Hour, " day days ", ""},
	{"h", time.Hour, " hour hours hr hrs ", ""},
	{"m", time.Minute, " minute minutes min mins ", ""},
	{"s", time.Second, " second seconds sec secs ", ""},
	{"ms", time.Millisecond, " millisecond milliseconds msec ", ""},
	{"us", time.Microsecond, " microsecond microseconds µs μs usec ", ""},
	{"ns", time.Nanosecond, " nanosecond nanoseconds nsec ", ""},
}

var units = allUnits[4:]

const calendarHint = " The algorithm calendar counts weeks, months, quarters and years"

// lengthOf returns the length of n units as people write them, and a hint. It is 0 if there
// is no such unit, or if it is too long.
func lengthOf(n int64, unit string) (time.Duration, string) {
	unit = strings.ToLower(strings.TrimSpace(unit))
	for _, u := range allUnits {
		if (unit == u.name || strings.Contains(u.words, " "+unit+" ")) && n <= math.MaxInt64/int64(u.length) {
			return time.Duration(n) * u.length, u.hint
		}
	}
	return 0, ""
}

const durationForm = "it must be whole numbers with the units d, h, m, s, ms, us or ns, the longest unit first: 1h30m"

// ParseDuration reads a duration as files have it, for example 1d or 1h30m.
func ParseDuration(text string) (time.Duration, error) {
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
	n, _ := strconv.ParseInt(number, 10, 64)
	switch length, hint := lengthOf(n, unit); {
	case number != "" && unit == "":
		return fmt.Errorf("the unit is missing: did you mean %ss?", number)
	case length > 0 && strings.TrimSpace(unit) == "M":
		return fmt.Errorf("did you mean %sm, or %dd for months?", number, 30*n)
	case length > 0:
		return fmt.Errorf("did you mean %s?%s", formatDuration(length), hint)
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return fmt.Errorf("%s; did you mean %s?", durationForm, formatDuration(d))
	}
	return errors.New(durationForm)
}

// formatDuration writes d as ParseDuration reads it.
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
	for _, u := range units[:4] {
		if strings.HasPrefix(u.words, " "+words[2]+" ") {
			return algorithm.Rate{Count: count, Period: u.length}, nil
		}
	}
	period, err := ParseDuration(words[2])
	switch {
	case err == nil && period > 0:
		return algorithm.Rate{Count: count, Period: period}, nil
	case err == nil:
		return algorithm.Rate{}, errors.New("the time must be longer than 0: 1 per 30s")
	case isDigit(words[2][0]):
		return algorithm.Rate{}, fmt.Errorf("in %q, %w", words[2], err)
	}
	return algorithm.Rate{}, badRate(text)
}

// otherRates are the rates of other programs: 10/s, 10r/s, 1000-H, 10 per second/ip.
var otherRates = regexp.MustCompile(`^(?i)(\d{1,18}) *(?:r|req|requests?)? *(?:/|-|per) *(\d{0,9}) *([a-z]+)(?: *(?:/|per) *(\w+))?$`)

// badRate is the error of a text that is no rate. It suggests what was meant.
func badRate(text string) error {
	m := otherRates.FindStringSubmatch(text)
	if m == nil {
		return errors.New(rateForm)
	}
	count, _ := strconv.ParseInt(m[1], 10, 64)
	n, _ := strconv.ParseInt(cmp.Or(m[2], "1"), 10, 64)
	unit := cmp.Or(nearest(m[3], names{"second", "minute", "hour", "day", "week", "month", "year"}), m[3])
	length, hint := lengthOf(n, unit)
	if count < 1 || length <= 0 {
		return errors.New(rateForm)
	}
	if m[4] != "" {
		hint += fmt.Sprintf(" For a limit for each %s, the rule of the policy needs by: [%[1]s]", m[4])
	}
	return fmt.Errorf("did you mean %q?%s", formatRate(algorithm.Rate{Count: count, Period: length}), hint)
}

// formatRate writes r as parseRate reads it.
func formatRate(r algorithm.Rate) string {
	for _, u := range units[:4] {
		if r.Period == u.length {
			return fmt.Sprintf("%d per %s", r.Count, strings.Fields(u.words)[0])
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

// parseBool reads true or false.
func parseBool(text string) (bool, error) {
	if text != "true" && text != "false" {
		return false, errors.New("it must be true or false")
	}
	return text == "true", nil
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
