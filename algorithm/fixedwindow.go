package algorithm

import (
	_ "embed"
	"time"

	"github.com/weir-go/weir/store"
)

// FixedWindow allows Limit tokens in each window. A window starts with the
// first request that finds none, or, if Aligned, at the multiples of Window
// since the Unix epoch, so that a day starts at midnight UTC.
//
// It is the cheapest count, and coarse: up to twice Limit can pass within one
// Window that spans the edge of two.
//
// A request that was denied passes when the window ends, and not before. If the
// clock steps back behind the start of a window, the window goes on. If Limit
// or Window changes under a live key, the window under way keeps its count, and
// ends when it would have.
type FixedWindow struct {
	// Limit is the capacity of a window, from 1 to MaxTokens.
	Limit int64

	// Window is its length: whole microseconds, from 1 µs to MaxSpan.
	Window time.Duration

	// Aligned says that windows start at the multiples of Window.
	Aligned bool
}

//go:embed fixedwindow.lua
var fixedWindowLua string

var fixedWindowTag = store.Tag{'f', '1'}

var fixedWindowFragment = &Fragment{
	Name:   "fixedwindow",
	Lua:    fixedWindowLua,
	Args:   4,
	State:  []string{"edge", "count"},
	Check:  fixedWindowCheck,
	Commit: fixedWindowCommit,
	Fit:    fixedWindowFit,
	Take:   fixedWindowTake,
	Charge: fixedWindowCharge,
	Refund: fixedWindowRefund,
}

type fixedWindowLimit struct {
	limit  int64
	window int64
	align  int64
	one    []store.Arg // for cost 1
}

// NewLimit implements [Algorithm].
func (f FixedWindow) NewLimit() (Limit, error) {
	if f.Limit < 1 || f.Limit > MaxTokens {
		return nil, invalid("FixedWindow.Limit is %d: it must be from 1 to %d", f.Limit, int64(MaxTokens))
	}
	window, err := wholeMicros("FixedWindow.Window", f.Window)
	if err != nil {
		return nil, err
	}
	l := &fixedWindowLimit{limit: f.Limit, window: window, align: 1}
	if f.Aligned {
		l.align = window
	}
	l.one = constArgs(l.AppendArgs(nil, Request{Cost: 1}))
	return l, nil
}

func (l *fixedWindowLimit) Fragment() *Fragment { return fixedWindowFragment }

func (l *fixedWindowLimit) AppendArgs(args []store.Arg, r Request) []store.Arg {
	if r.Cost == 1 && l.one != nil {
		return append(args, l.one...)
	}
	return append(args, store.IntArg(max(l.limit-r.Cost, -1)), store.IntArg(l.window),
		store.IntArg(min(r.Cost, l.limit)), store.IntArg(l.align))
}

func (l *fixedWindowLimit) Verdict(now int64, committed bool, s State, r Request) Verdict {
	edge, count := s[0], s[1]
	if now >= edge {
		edge, count = now+l.window, 0 // no check reports such a window
	}
	v := Verdict{Limit: l.limit}
	switch {
	case r.Cost > l.limit:
		v.RetryAfter = Never
	case count > l.limit-r.Cost:
		v.RetryAfter = micros(edge - now)
	default:
		v.Allowed = true
	}
	if committed {
		count += r.Cost
	}
	v.Remaining = max(l.limit-count, 0)
	if count > 0 {
		v.ResetAfter = micros(edge - now)
	}
	return v
}

func fixedWindowCheck(tx store.Tx, key int, now int64, args []store.Arg) (State, bool, error) {
	n, ok, err := tx.Get(key, fixedWindowTag)
	if err != nil {
		return State{}, false, err
	}
	if ok && n.Len != 2 {
		return State{}, false, tx.Foreign(key)
	}
	s := State{n.N[0], n.N[1]}
	if now >= s[0] {
		s = State{now - now%args[3].Int() + args[1].Int(), 0}
	}
	return s, s[1] <= args[0].Int(), nil
}

func fixedWindowCommit(tx store.Tx, key int, now int64, args []store.Arg, s State, slack time.Duration) {
	n := store.Nums{Tag: fixedWindowTag, Len: 2, N: [store.MaxNums]int64{s[0], s[1] + args[2].Int()}}
	tx.Put(key, n, ttl(s[0]-now, slack))
}

func fixedWindowFit(_ int64, args []store.Arg, s State) int64 { return args[0].Int() + 1 - s[1] }

func fixedWindowTake(args []store.Arg, n int64) { args[2] = store.IntArg(n) }

// fixedWindowCharge is the window's end, and the tokens.
func fixedWindowCharge(now int64, args []store.Arg, s State, _ Note) (Charge, int64) {
	return Charge{s[0], args[2].Int()}, s[0] - now
}

func fixedWindowRefund(tx store.Tx, key int, _ int64, _ []store.Arg, s State, was Charge, _ Note) bool {
	if s[0] != was[0] || s[1] == 0 {
		return false
	}
	n := store.Nums{Tag: fixedWindowTag, Len: 2, N: [store.MaxNums]int64{s[0], max(s[1]-was[1], 0)}}
	tx.Put(key, n, 0)
	return true
}
