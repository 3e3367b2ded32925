// Package prose writes texts for people: durations, counts and errors.
package prose

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// units are the units of Duration above a second, the largest first.
var units = []struct {
	size time.Duration
	name string
}{
	{24 * time.Hour, "d"},
	{time.Hour, "h"},
	{time.Minute, "min"},
	{time.Second, "s"},
}

// Duration returns d with two or three digits of precision: "250 ms", "1.7 s", "2 min 5 s",
// "3 d 4 h". It rounds up, so that nobody comes too early.
func Duration(d time.Duration) string {
	switch {
	case d <= 0:
		return "0 s"
	case d < time.Millisecond:
		return strconv.FormatInt(int64(up(d, time.Microsecond)/time.Microsecond), 10) + " µs"
	case d <= 999*time.Millisecond:
		return strconv.FormatInt(int64(up(d, time.Millisecond)/time.Millisecond), 10) + " ms"
	case d <= time.Minute-100*time.Millisecond:
		return strconv.FormatFloat(float64(up(d, 100*time.Millisecond)/(100*time.Millisecond))/10, 'f', -1, 64) + " s"
	}
	for i, u := range units[:len(units)-1] {
		next := units[i+1]
		up := up(d, next.size)
		if up < u.size {
			continue
		}
		parts := []string{fmt.Sprintf("%d %s", up/u.size, u.name)}
		if rest := up % u.size / next.size; rest > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", rest, next.name))
		}
		return strings.Join(parts, " ")
	}
	return d.String()
}

// up rounds d up to a multiple of unit.
func up(d, unit time.Duration) time.Duration {
	if rest := d % unit; rest > 0 && d <= 1<<63-1-unit {
		return d - rest + unit
	}
	return d - d%unit
}

// Count returns n and the noun in its number: "1 token", "3 tokens".
func Count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.FormatInt(n, 10) + " " + noun + "s"
}
