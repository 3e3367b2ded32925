package algorithm

import (
	_ "embed"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// SlidingCounter is the sliding window counter: it allows about Limit tokens in any
// interval of length Window. It keeps the counts of the current and of the previous
// window. A request is allowed if its cost, the current count and a fraction of the
// previous count are together at most Limit. When a quarter of the current window has
// passed, for example, the fraction is three quarters.
//
// This is an estimate: it assumes that the tokens of the previous window were consumed
// evenly. If they were consumed late in that window, more than Limit tokens can be
// allowed in an interval, at worst almost twice Limit. If they were consumed early, fewer
// are allowed. docs/reference/algorithms.md has the error on random traffic.
//
// The state is one string. Windows start at multiples of Window since the Unix epoch. The
// fraction falls in steps of Window/2^20, rounded up to whole microseconds, and the
// estimate is rounded up to whole tokens. RetryAfter is the time until the step at which
// the request is allowed.
//
// In debt, the estimate is above Limit. A count above Limit also counts in the next
// window, with its fraction, so the debt ends with that window at the latest.
//
// If Limit or Window changes, the new limit applies to the two counts, until they have
// left the windows of the limit that consumed last. RetryAfter can then be longer than
// the real wait. If the clock steps back to before the start of the current window, that
// window stays the current one, and the estimate uses the whole previous count.
//
// A refund lowers the count of the window of its decision, if that is the current or the
// previous window, unless Window has changed since the decision.
//
// Source: "How we built rate limiting capable of scaling to millions of domains" by
// Cloudflare (2017). This implementation uses integers.
type SlidingCounter struct {
	// Limit is the number of tokens in a window, from 1 to MaxCounter.
	Limit int64

	// Window is the length of a window. It must be whole microseconds, from 1 µs to
	// MaxSpan/4, about 35 years.
	Window time.Duration
}

// MaxCounter is the largest Limit of a [SlidingCounter].
const MaxCounter int64 = 1 << 32

// counterSteps is the largest number of steps in a window. maxCount is the largest sum of
// the counts, with debt. Their product is less than 2^53.
const counterSteps, maxCount = 1 << 20, 1<<33 - 1

//go:embed slidingcounter.lua
var slidingCounterLua string

var slidingCounterKind = &contract.MeterKind{
	Head: contract.Head{Name: "slidingcounter", Tag: store.Tag{'s', '2'}, Cell: "start count before", Args: "limit window step steps", Lua: slidingCounterLua},
	Meter: func(args []store.Arg) contract.Meter {
		return &slidingCounter{args[0].Int(), args[1].Int(), args[2].Int(), args[3].Int()}
	},
}

// NewLimit implements [Algorithm].
func (c SlidingCounter) NewLimit() (*contract.Limit, error) {
	window, err := checkWindow("SlidingCounter", c.Limit, MaxCounter, c.Window)
	if err != nil {
		return nil, err
	}
	if window > maxSpan/4 {
		return nil, contract.Invalid("SlidingCounter.Window is %v: it must be at most %v", c.Window, contract.Micros(maxSpan/4))
	}
	step := ceilDiv(window, counterSteps)
	l := &contract.Limit{
		Kind: slidingCounterKind, Args: consts(c.Limit, window, step, ceilDiv(window, step)), Capacity: c.Limit, MaxDebt: maxCount - c.Limit, Window: c.Window,
	}
	carry := refilled(l, 2*window, contract.Cell{A: window, B: c.Limit, C: c.Limit}, "the counts of both windows stay", "")
	l.Carry = func(to *contract.Limit) contract.Carried {
		carried := carry(to)
		if to.Window != c.Window {
			carried.Exact, carried.Text = false, "the counts stay, and are spread over windows of the new length"
		}
		return carried
	}
	return l, nil
}

// A slidingCounter is the Meter of a SlidingCounter. Its cell has the integers start,
// count and before. A window is divided into steps parts of step microseconds. The last
// part may be shorter.
type slidingCounter struct{ limit, window, step, steps int64 }

func (s *slidingCounter) Advance(now int64, c contract.Cell) contract.Cell {
	switch past := now - c.A; {
	case past >= 2*s.window:
		return contract.Cell{A: now - now%s.window}
	case past >= s.window:
		return contract.Cell{A: c.A + s.window, C: c.B}
	}
	return c
}

func (s *slidingCounter) Room(now, _ int64, c contract.Cell) int64 {
	left := s.steps
	if past := now - c.A; past > 0 {
		left -= past / s.step
	}
	weight := (min(c.C, maxCount)*left + s.steps - 1) / s.steps
	return s.limit - c.B - weight
}

func (s *slidingCounter) Take(c contract.Cell, n int64) contract.Cell {
	c.B += n
	return c
}

func (s *slidingCounter) Ends(c contract.Cell) int64 {
	if c.B > 0 {
		return c.A + 2*s.window
	}
	return c.A + s.window
}

func (s *slidingCounter) Ready(_ int64, c contract.Cell, n, _ int64) int64 {
	if room := s.limit - n; c.B > room { // in the next window, when enough of this window's count has faded
		return c.A + s.window + s.fades(c.B, room)
	}
	return c.A + s.fades(c.C, s.limit-n-c.B)
}

// fades returns how long after the end of a window its count n adds at most room to the
// estimate. room is less than n.
func (s *slidingCounter) fades(n, room int64) int64 {
	n = max(min(n, maxCount), 1)
	return min((s.steps-room*s.steps/n)*s.step, s.window)
}

func (s *slidingCounter) Refund(_ int64, c contract.Cell, ch contract.Charge, note contract.Cell) (contract.Cell, contract.Cell) {
	switch {
	case ch.Was.A == c.A:
		c.B = max(c.B-ch.N, 0)
	case ch.Was.A == c.A-s.window:
		c.C = max(c.C-ch.N, 0)
	}
	if c.B+c.C == 0 {
		c.A = 0
	}
	return c, note
}
