package algorithm

import (
	_ "embed"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// FixedWindow allows Limit tokens in each window. A window starts with its first request
// or, if Aligned, at a multiple of Window since the Unix epoch. RetryAfter is the time
// until it ends.
//
// Up to twice Limit tokens can be consumed around the end of a window: Limit just before
// the end, and Limit just after it.
//
// The state is one string. In debt, the count of the window is above Limit, and the debt
// ends with the window.
//
// If Limit or Window changes, the current window keeps its end and its count. If Aligned
// is true and the window ends between two multiples of Window, the next allowed request
// makes it last until the next multiple. If the clock steps back, the window lasts until
// the clock reaches its end again.
//
// A refund returns the tokens of a decision while its window lasts, after any change of
// the limit. The window keeps its end, even if the refunded request started it. But if no
// consumed tokens are left in it, the next request starts a new window.
//
// Source: the fixed window counter of the literature. The Redis documentation describes
// the aligned form as a counter for each second.
type FixedWindow struct {
	// Limit is the number of tokens in a window, from 1 to MaxTokens.
	Limit int64

	// Window is the length of a window. It must be whole microseconds, from 1 µs to
	// MaxSpan.
	Window time.Duration

	// If Aligned is true, windows start at multiples of Window since the Unix epoch.
	Aligned bool
}

//go:embed fixedwindow.lua
var fixedWindowLua string

var fixedWindowKind = &contract.MeterKind{
	Head:     contract.Head{Name: "fixedwindow", Tag: store.Tag{'f', '2'}, Cell: "edge count", Args: "limit window align", Lua: fixedWindowLua},
	Absolute: true,
	Meter: func(args []store.Arg) contract.Meter {
		return &fixedWindow{args[0].Int(), args[1].Int(), args[2].Int()}
	},
}

// NewLimit implements [Algorithm].
func (f FixedWindow) NewLimit() (*contract.Limit, error) {
	window, err := checkWindow("FixedWindow", f.Limit, MaxTokens, f.Window)
	if err != nil {
		return nil, err
	}
	align := int64(1)
	if f.Aligned {
		align = window
	}
	return &contract.Limit{
		Kind: fixedWindowKind, Args: consts(f.Limit, window, align), Capacity: f.Limit, MaxDebt: MaxTokens - f.Limit, Window: f.Window,
		Carry: counted(f.Limit, f.Window, "the count and the end of the current window stay"),
	}, nil
}

// A fixedWindow is the Meter of a FixedWindow. Its cell has the integers edge and count.
type fixedWindow struct{ limit, window, align int64 }

func (w *fixedWindow) Advance(now int64, c contract.Cell) contract.Cell {
	if now >= c.A {
		c.A, c.B = now-now%w.align+w.window, 0
	}
	return c
}

func (w *fixedWindow) Room(_, _ int64, c contract.Cell) int64 { return w.limit - c.B }

func (w *fixedWindow) Take(c contract.Cell, n int64) contract.Cell {
	c.B += n
	if rest := c.A % w.align; rest > 0 { // a limit with other windows started this one
		c.A = min(c.A-rest+w.align, MaxTokens)
	}
	return c
}

func (w *fixedWindow) Ends(c contract.Cell) int64 { return c.A }

func (w *fixedWindow) Ready(_ int64, c contract.Cell, _, _ int64) int64 { return c.A }

func (w *fixedWindow) Refund(_ int64, c contract.Cell, ch contract.Charge, note contract.Cell) (contract.Cell, contract.Cell) {
	if c.B = max(c.B-ch.N, 0); c.B == 0 {
		c.A = 0
	}
	return c, note
}
