package algorithm

import (
	_ "embed"
	"time"

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

var slidingCounterTag = store.Tag{'s', '1'}

var slidingCounterFragment = &Fragment{
	Name:   "slidingcounter",
	Lua:    slidingCounterLua,
	Args:   5,
	State:  []string{"start", "count", "before"},
	Check:  slidingCounterCheck,
	Commit: slidingCounterCommit,
	Fit:    slidingCounterFit,
	Take:   slidingCounterTake,
	Charge: slidingCounterCharge,
	Refund: slidingCounterRefund,
}

type slidingCounterLimit struct {
	limit  int64
	window int64
	step   int64 // in microseconds
	steps  int64 // in a window, the last of which may be shorter
	one    []store.Arg
}

// NewLimit implements [Algorithm].
func (c SlidingCounter) NewLimit() (Limit, error) {
	if c.Limit < 1 || c.Limit > MaxCounter {
		return nil, invalid("SlidingCounter.Limit is %d: it must be from 1 to %d", c.Limit, int64(MaxCounter))
	}
	window, err := wholeMicros("SlidingCounter.Window", c.Window)
	if err != nil {
		return nil, err
	}
	if window > MaxSpan/4 {
		return nil, invalid("SlidingCounter.Window is %v: it must be at most %v", c.Window, micros(MaxSpan/4))
	}
	l := &slidingCounterLimit{limit: c.Limit, window: window}
	l.step = (window + counterSteps - 1) / counterSteps
	l.steps = (window + l.step - 1) / l.step
	l.one = constArgs(l.AppendArgs(nil, Request{Cost: 1}))
	return l, nil
}

func (l *slidingCounterLimit) Fragment() *Fragment { return slidingCounterFragment }

func (l *slidingCounterLimit) AppendArgs(args []store.Arg, r Request) []store.Arg {
	if r.Cost == 1 && l.one != nil {
		return append(args, l.one...)
	}
	return append(args, store.IntArg(max(l.limit-r.Cost, -1)), store.IntArg(l.window),
		store.IntArg(l.step), store.IntArg(l.steps), store.IntArg(min(r.Cost, l.limit)))
}

func (l *slidingCounterLimit) Verdict(now int64, committed bool, s State, r Request) Verdict {
	start, count, before := s[0], s[1], min(s[2], MaxCounter)
	weight := counterWeight(before, now-start, l.step, l.steps)
	v := Verdict{Limit: l.limit}
	switch {
	case r.Cost > l.limit:
		v.RetryAfter = Never
	case count > l.limit-r.Cost:
		// When this window is the one before, and weighs so little.
		v.RetryAfter = micros(max(start+l.window+l.fades(count, l.limit-r.Cost)-now, 1))
	case count+weight > l.limit-r.Cost:
		v.RetryAfter = micros(max(start+l.fades(before, l.limit-r.Cost-count)-now, 1))
	default:
		v.Allowed = true
	}
	if committed {
		count += r.Cost
	}
	v.Remaining = max(l.limit-min(count, l.limit)-weight, 0)
	switch {
	case count > 0:
		v.ResetAfter = micros(start + 2*l.window - now)
	case before > 0:
		v.ResetAfter = micros(start + l.window - now)
	}
	return v
}

// fades returns how long after a window's end its count n weighs at most room,
// which is less than n.
func (l *slidingCounterLimit) fades(n, room int64) int64 {
	return min((l.steps-room*l.steps/n)*l.step, l.window)
}

// counterWeight is what before tokens of the window before weigh when so much of
// the current one is past, rounded up.
func counterWeight(before, past, step, steps int64) int64 {
	left := steps
	if past > 0 {
		left -= past / step
	}
	return (before*left + steps - 1) / steps
}

func slidingCounterCheck(tx store.Tx, key int, now int64, args []store.Arg) (State, bool, error) {
	n, ok, err := tx.Get(key, slidingCounterTag)
	if err != nil {
		return State{}, false, err
	}
	if ok && (n.Len != 3 || n.N[1] > MaxCounter || n.N[2] > MaxCounter) {
		return State{}, false, tx.Foreign(key)
	}
	window := args[1].Int()
	s := State{n.N[0], n.N[1], n.N[2]}
	past := now - s[0]
	switch {
	case past >= 2*window:
		s = State{now - now%window}
		past = now - s[0]
	case past >= window:
		s = State{s[0] + window, 0, s[1]}
		past -= window
	}
	weight := counterWeight(s[2], past, args[2].Int(), args[3].Int())
	return s, s[1]+weight <= args[0].Int(), nil
}

func slidingCounterCommit(tx store.Tx, key int, now int64, args []store.Arg, s State, slack time.Duration) {
	n := store.Nums{Tag: slidingCounterTag, Len: 3, N: [store.MaxNums]int64{s[0], s[1] + args[4].Int(), s[2]}}
	tx.Put(key, n, ttl(s[0]+2*args[1].Int()-now, slack))
}

func slidingCounterFit(now int64, args []store.Arg, s State) int64 {
	return args[0].Int() + 1 - s[1] - counterWeight(s[2], now-s[0], args[2].Int(), args[3].Int())
}

func slidingCounterTake(args []store.Arg, n int64) { args[4] = store.IntArg(n) }

// slidingCounterCharge is the window's start, and the tokens.
func slidingCounterCharge(now int64, args []store.Arg, s State, _ Note) (Charge, int64) {
	return Charge{s[0], args[4].Int()}, s[0] + 2*args[1].Int() - now
}

func slidingCounterRefund(tx store.Tx, key int, _ int64, args []store.Arg, s State, was Charge, _ Note) bool {
	window := args[1].Int()
	// What the key holds is left in its place: another limit may read it otherwise.
	n, ok, err := tx.Get(key, slidingCounterTag)
	switch {
	case err != nil || !ok:
		return false
	case n.N[0] == was[0] && n.N[1] > 0 && (s[0] == was[0] || s[0]-window == was[0]):
		n.N[1] = max(n.N[1]-was[1], 0)
	case n.N[0]-window == was[0] && s[0] == n.N[0] && n.N[2] > 0:
		n.N[2] = max(n.N[2]-was[1], 0)
	default:
		return false
	}
	tx.Put(key, n, 0)
	return true
}
