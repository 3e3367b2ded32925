package algorithm

import (
	_ "embed"
	"math/bits"
	"time"

	"github.com/weir-go/weir/store"
)

// GCRA is the generic cell rate algorithm: a bucket of Burst tokens that is
// full at first and gets one back every emission interval, the period of
// Rate divided by its count. A request passes if the bucket holds its cost.
//
// Its whole state is one time, the theoretical arrival time (TAT) at which the
// bucket would be full. A request of cost n moves max(TAT, now) ahead by n
// intervals, and passes if that is at most Burst intervals from now. The
// interval is kept exactly, so no count and period drift, above a million per
// second either.
//
// If the rate changes under a live key, the TAT stays: the time until full is
// carried over, not the number of tokens. What is left of a microsecond is
// rounded up if the new interval has another denominator.
//
// Source: ATM Forum Traffic Management Specification 4.0, section 4.4.2
// (virtual scheduling), as redis-cell applies it; Burst is redis-cell's
// max_burst plus one.
type GCRA struct {
	// Rate is how fast tokens come back. Its Count is at most 2^52/1000.
	Rate Rate

	// Burst is the capacity: the most that can be taken at once. It is at least
	// 1, and such that the bucket fills within MaxSpan.
	Burst int64
}

//go:embed gcra.lua
var gcraLua string

//go:embed gcrafraction.lua
var gcraFractionLua string

var gcraTag = store.Tag{'g', '1'}

// Most rates have an interval of whole microseconds. They go without the
// arithmetic of parts: a decision then costs the server a twelfth less.
var (
	gcraFragment = &Fragment{
		Name:   "gcra",
		Lua:    gcraLua,
		Args:   2,
		State:  []string{"tat"},
		Check:  gcraCheck,
		Commit: gcraCommit,
	}
	gcraFractionFragment = &Fragment{
		Name:   "gcra",
		Lua:    gcraFractionLua,
		Args:   5,
		State:  []string{"tat", "rem"},
		Check:  gcraCheck,
		Commit: gcraCommit,
	}
)

// A gcraLimit has emission interval num/den microseconds.
type gcraLimit struct {
	burst    int64
	num, den int64
	span     int64       // time to fill the bucket: whole microseconds
	spanRem  int64       // and parts of den
	one      []store.Arg // for cost 1
}

// NewLimit implements [Algorithm].
func (g GCRA) NewLimit() (Limit, error) {
	num, den, err := g.Rate.interval()
	if err != nil {
		return nil, err
	}
	if g.Burst < 1 || g.Burst > MaxTokens {
		return nil, invalid("GCRA.Burst is %d: it must be from 1 to %d", g.Burst, int64(MaxTokens))
	}
	l := &gcraLimit{burst: g.Burst, num: num, den: den}
	var ok bool
	if l.span, l.spanRem, ok = mulDiv(g.Burst, num, den); !ok {
		return nil, invalid("GCRA with Burst %d at %d per %v takes longer than %v years to fill: lower Burst or raise Rate",
			g.Burst, g.Rate.Count, g.Rate.Period, int64(MaxSpan)/(365*24*3600*1e6))
	}
	l.one = constArgs(l.AppendArgs(nil, Request{Cost: 1}))
	return l, nil
}

func (l *gcraLimit) Fragment() *Fragment {
	if l.den == 1 {
		return gcraFragment
	}
	return gcraFractionFragment
}

func (l *gcraLimit) AppendArgs(args []store.Arg, r Request) []store.Arg {
	if r.Cost == 1 && l.one != nil {
		return append(args, l.one...)
	}
	room, roomRem := l.room(r.Cost)
	inc, incRem := int64(0), int64(0)
	if room >= 0 {
		inc, incRem, _ = mulDiv(r.Cost, l.num, l.den)
	}
	if l.den == 1 {
		return append(args, store.IntArg(room), store.IntArg(inc))
	}
	return append(args, store.IntArg(room), store.IntArg(roomRem),
		store.IntArg(inc), store.IntArg(incRem), store.IntArg(l.den))
}

// room is how far ahead of now the TAT may be for cost to pass, -1 if it cannot.
func (l *gcraLimit) room(cost int64) (whole, rem int64) {
	if cost > l.burst {
		return -1, 0
	}
	whole, rem, _ = mulDiv(l.burst-cost, l.num, l.den)
	return whole, rem
}

func (l *gcraLimit) Verdict(now int64, committed bool, s State, r Request) Verdict {
	at, part := gcraLater(s, now)
	v := Verdict{Limit: l.burst}
	room, roomRem := l.room(r.Cost)
	wait := at - now - room
	if part > roomRem {
		wait++
	}
	switch {
	case room < 0:
		v.RetryAfter = Never
	case wait > 0:
		v.RetryAfter = micros(wait)
	default:
		v.Allowed = true
	}
	if committed {
		inc, incRem, _ := mulDiv(r.Cost, l.num, l.den)
		at, part = gcraAdd(at, part, inc, incRem, l.den)
	}
	v.Remaining = l.tokens(now+l.span-at, l.spanRem-part)
	v.ResetAfter = micros(at - now)
	if part > 0 {
		v.ResetAfter = micros(at - now + 1)
	}
	return v
}

// tokens is how many whole tokens whole+rem/den microseconds are worth.
func (l *gcraLimit) tokens(whole, rem int64) int64 {
	if rem < 0 {
		borrow := (l.den - 1 - rem) / l.den // 1, unless somebody edited the key
		whole, rem = whole-borrow, rem+borrow*l.den
	}
	if whole < 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(whole), uint64(l.den))
	lo, carry := bits.Add64(lo, uint64(rem), 0)
	q, _ := bits.Div64(hi+carry, lo, uint64(l.num)) // at most burst, as whole+rem/den is at most span
	return int64(q)
}

// gcraLater is the later of the TAT and now.
func gcraLater(s State, now int64) (at, part int64) {
	if s[0] < now {
		return now, 0
	}
	return s[0], s[1]
}

func gcraAdd(at, part, inc, incRem, den int64) (int64, int64) {
	at, part = at+inc, part+incRem
	if part >= den {
		at, part = at+1, part-den
	}
	return at, part
}

// A gcraArgs is the arguments of either fragment.
type gcraArgs struct{ room, roomRem, inc, incRem, den int64 }

func readGCRAArgs(args []store.Arg) gcraArgs {
	if len(args) == 2 {
		return gcraArgs{room: args[0].Int(), inc: args[1].Int(), den: 1}
	}
	return gcraArgs{args[0].Int(), args[1].Int(), args[2].Int(), args[3].Int(), args[4].Int()}
}

func gcraCheck(tx store.Tx, key int, now int64, args []store.Arg) (State, bool, error) {
	n, ok, err := tx.Get(key, gcraTag)
	if err != nil {
		return State{}, false, err
	}
	if ok && n.Len != 1 && n.Len != 3 {
		return State{}, false, tx.Foreign(key)
	}
	a := readGCRAArgs(args)
	s := State{n.N[0], n.N[1]}
	if s[1] > 0 && (n.N[2] != a.den || a.den == 1) {
		s[0], s[1] = s[0]+1, 0
	}
	at, part := gcraLater(s, now)
	over := at - now - a.room
	return s, over < 0 || over == 0 && part <= a.roomRem, nil
}

func gcraCommit(tx store.Tx, key int, now int64, args []store.Arg, s State, slack time.Duration) {
	a := readGCRAArgs(args)
	at, part := gcraLater(s, now)
	at, part = gcraAdd(at, part, a.inc, a.incRem, a.den)
	n := store.Nums{Tag: gcraTag, Len: 1}
	if a.den > 1 {
		n.Len, n.N[1], n.N[2] = 3, part, a.den
	}
	n.N[0] = at
	tx.Put(key, n, ttl(at-now+1, slack))
}
