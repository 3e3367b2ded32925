package algorithm

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/prose"
)

// A Describer is an [Algorithm] that describes its limit in words, for people. The
// built-in algorithms do.
type Describer interface {
	// Describe returns the limit in words: "10 tokens per second, burst 20".
	Describe() string
}

// Words describes the limit of a in words. If a is no [Describer], it is described by its
// limit: "20 tokens in 2 s (mine)".
func Words(a Algorithm) string {
	if d, ok := a.(Describer); ok {
		return d.Describe()
	}
	if a == nil {
		return ""
	}
	limit, err := a.NewLimit()
	if err != nil || limit == nil || limit.Kind == nil || limit.Kind.Common() == nil {
		return ""
	}
	text := tokens(limit.Capacity)
	if limit.Window > 0 {
		text += " in " + prose.Duration(limit.Window)
	}
	return fmt.Sprintf("%s (%s)", text, limit.Kind.Common().Name)
}

// tokens returns n tokens in words.
func tokens(n int64) string { return prose.Count(n, "token") }

// per returns the rate in words: "10 tokens per second".
func (r Rate) per(noun string) string {
	unit := prose.Duration(r.Period)
	switch r.Period {
	case time.Second:
		unit = "second"
	case time.Minute:
		unit = "minute"
	case time.Hour:
		unit = "hour"
	case 24 * time.Hour:
		unit = "day"
	}
	return prose.Count(r.Count, noun) + " per " + unit
}

// Describe implements [Describer].
func (g GCRA) Describe() string {
	return fmt.Sprintf("%s, burst %d", g.Rate.per("token"), g.Burst)
}

// Describe implements [Describer].
func (b TokenBucket) Describe() string {
	text := fmt.Sprintf("a bucket of %s, refilled at %s", tokens(b.Capacity), b.Refill.per("token"))
	if b.AtOnce {
		return text + ", at once"
	}
	return text
}

// Describe implements [Describer].
func (b LeakyBucket) Describe() string {
	return fmt.Sprintf("a queue that %s leave, and in which up to %d wait", b.Rate.per("request"), b.Queue)
}

// Describe implements [Describer].
func (f FixedWindow) Describe() string { return inWindow(f.Limit, f.Window, f.Aligned) }

// Describe implements [Describer].
func (m MetadataWindow) Describe() string { return inWindow(m.Limit, m.Window, m.Aligned) }

func inWindow(limit int64, length time.Duration, aligned bool) string {
	text := fmt.Sprintf("%s in each window of %s", tokens(limit), prose.Duration(length))
	if aligned {
		return text + ", aligned to the clock"
	}
	return text
}

// Describe implements [Describer].
func (s SlidingLog) Describe() string { return tokens(s.Limit) + " in any " + prose.Duration(s.Window) }

// Describe implements [Describer].
func (s SlidingCounter) Describe() string {
	return tokens(s.Limit) + " in any " + prose.Duration(s.Window) + ", estimated"
}

// Describe implements [Describer].
func (s SlidingBuckets) Describe() string {
	var parts []string
	for _, span := range s.Spans {
		parts = append(parts, span.describe())
	}
	return strings.Join(parts, " and ")
}

func (s Span) describe() string { return tokens(s.Limit) + " in any " + prose.Duration(s.Window) }

// Describe implements [Describer].
func (c Concurrency) Describe() string {
	return fmt.Sprintf("%s at once, each for up to %s", prose.Count(c.Limit, "lease"), prose.Duration(c.Lease))
}

// Describe implements [Describer].
func (c Calendar) Describe() string {
	text := fmt.Sprintf("%s in each %s", tokens(c.Limit), c.Every)
	var start []string
	if c.Month > 1 {
		start = append(start, "in "+c.Month.String())
	}
	switch {
	case c.Every == Week:
		start = append(start, "on "+time.Weekday(c.Day%7).String())
	case c.Day > 1:
		start = append(start, fmt.Sprintf("on day %d", c.Day))
	}
	if c.At > 0 {
		start = append(start, "at "+time.Time{}.Add(c.At).Format("15:04:05"))
	}
	if c.Zone != "" {
		start = append(start, "in "+c.Zone)
	}
	if len(start) > 0 {
		text += ", which starts " + strings.Join(start, " ")
	}
	if c.Carry > 0 {
		text += fmt.Sprintf(", and up to %d more left over from the previous %s", c.Carry, c.Every)
	}
	return text
}

// Describe implements [Describer].
func (Pause) Describe() string { return "no limit, unless the key is paused" }
