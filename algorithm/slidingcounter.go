package algorithm

import (
	_ "embed"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// SlidingCounter allows about Limit tokens in any span of Window, from two counts:
// that of the window under way, and that of the one before, which weighs as much
// as of it lies within one Window of now. It is what Cloudflare describes in "How
// we built rate limiting capable of scaling to millions of domains" (2017), in
// integers.
//
// It takes the memory of one count, and forgets when within the window before its
// tokens were taken: it takes them for evenly spread. So it can admit more than
// Limit in some span of Window, when they came late, at worst almost twice as
// much, and fewer when they came early. docs/algorithms.md has the error on random
// traffic.
//
// A window starts at a multiple of Window since the Unix epoch. The weight falls in
// steps: of a microsecond, or of a 2^20th of Window if that is longer. What is left
// of a token is rounded up. A denied request passes at the step at which the weight
// is low enough. If the clock steps back behind the start of the window, that goes
// on, and the one before weighs in full. If Limit or Window changes under a live
// key, its two counts are judged by the new one.
type SlidingCounter struct {
	// Limit is the most tokens in a Window, from 1 to MaxCounter.
	Limit int64

	// Window is its length: whole microseconds, from 1 µs to MaxSpan/4.
	Window time.Duration
}

// MaxCounter is the largest Limit of a [SlidingCounter].
const MaxCounter = 1 << 32

// counterSteps is the most steps in which a window's weight falls: times
// MaxCounter, it is less than 2^53.
const counterSteps = 1 << 20

//go:embed slidingcounter.lua
var slidingCounterLua string

var slidingCounterKind = &contract.Kind{
	Name: "slidingcounter",
	Tag:  store.Tag{'s', '2'},
	Cell: "start count before",
	Args: "limit window step steps",
	Lua:  slidingCounterLua,
	Meter: func(args []store.Arg) contract.Meter {
		return slidingCounter{args[0].Int(), args[1].Int(), args[2].Int(), args[3].Int()}
	},
}

// NewLimit implements [Algorithm].
func (c SlidingCounter) NewLimit() (*contract.Limit, error) {
	if c.Limit < 1 || c.Limit > MaxCounter {
		return nil, contract.Invalid("SlidingCounter.Limit is %d: it must be from 1 to %d", c.Limit, int64(MaxCounter))
	}
	window, err := contract.WholeMicros("SlidingCounter.Window", c.Window)
	if err != nil {
		return nil, err
	}
	if window > MaxSpan/4 {
		return nil, contract.Invalid("SlidingCounter.Window is %v: it must be at most %v", c.Window, contract.Micros(MaxSpan/4))
	}
	step := ceilDiv(window, counterSteps)
	return &contract.Limit{
		Kind: slidingCounterKind, Args: consts(c.Limit, window, step, ceilDiv(window, step)), Capacity: c.Limit, Window: c.Window,
	}, nil
}

// A slidingCounter works on cells of start, count and before. A window has steps
// steps of step microseconds, the last of which may be shorter.
type slidingCounter struct{ limit, window, step, steps int64 }

func (s slidingCounter) Settle(now int64, c contract.Cell) contract.Cell {
	switch past := now - c.A; {
	case past >= 2*s.window:
		return contract.Cell{A: now - now%s.window}
	case past >= s.window:
		return contract.Cell{A: c.A + s.window, C: c.B}
	}
	return c
}

func (s slidingCounter) Room(now, _ int64, c contract.Cell) int64 {
	left := s.steps
	if past := now - c.A; past > 0 {
		left -= past / s.step
	}
	weight := (min(c.C, MaxCounter)*left + s.steps - 1) / s.steps
	return s.limit - c.B - weight
}

func (s slidingCounter) Take(c contract.Cell, n int64) contract.Cell {
	c.B += n
	return c
}

func (s slidingCounter) Ends(c contract.Cell) int64 {
	if c.B > 0 {
		return c.A + 2*s.window
	}
	return c.A + s.window
}

func (s slidingCounter) Ready(_ int64, c contract.Cell, n, _ int64) int64 {
	if room := s.limit - n; c.B > room { // when this window is the one before, and weighs little enough
		return c.A + s.window + s.fades(c.B, room)
	}
	return c.A + s.fades(c.C, s.limit-n-c.B)
}

// fades returns how long after a window's end its count n weighs at most room, which
// is less than n.
func (s slidingCounter) fades(n, room int64) int64 {
	n = max(min(n, MaxCounter), 1)
	return min((s.steps-room*s.steps/n)*s.step, s.window)
}

func (s slidingCounter) Refund(now int64, c contract.Cell, ch contract.Charge, note contract.Cell) (contract.Cell, contract.Cell) {
	switch {
	case ch.Was.A == c.A:
		c.B = max(c.B-ch.N, 0)
	case ch.Was.A == c.A-s.window && now < c.A+s.window:
		c.C = max(c.C-ch.N, 0)
	}
	if c.B+c.C == 0 {
		c.A = 0
	}
	return c, note
}
