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
		Fit:    gcraFit,
		Take:   gcraTake,
		Charge: gcraCharge,
		Refund: gcraRefund,

		Notes:    true,
		Reserves: true,
	}
	gcraFractionFragment = gcraFractions(*gcraFragment)
)

// gcraFractions is f with parts of a microsecond: the Go forms are the same.
func gcraFractions(f Fragment) *Fragment {
	f.Lua, f.Args, f.State = gcraFractionLua, 5, []string{"tat", "rem"}
	return &f
}

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
	if r.Cost == 1 && r.MaxWait <= 0 && l.one != nil {
		return append(args, l.one...)
	}
	room, roomRem := l.room(r.Cost)
	inc, incRem := int64(0), int64(0)
	if room >= 0 {
		room += l.wait(r)
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

// wait is how many microseconds r may wait, such that no time passes 2^53: now is
// less than MaxSpan, and so is what is added.
func (l *gcraLimit) wait(r Request) int64 {
	return max(min(r.MaxWait.Microseconds(), MaxSpan-1-l.span), 0)
}

func (l *gcraLimit) Verdict(now int64, committed bool, s State, r Request) Verdict {
	at, part := gcraLater(s, now)
	v := Verdict{Limit: l.burst}
	room, roomRem := l.room(r.Cost)
	delay := at - now - room
	if part > roomRem {
		delay++
	}
	switch wait := l.wait(r); {
	case room < 0:
		v.RetryAfter = Never
	case delay > wait:
		v.RetryAfter = micros(delay - wait)
	default:
		v.Allowed, v.Delay = true, micros(max(delay, 0))
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

func gcraFit(now int64, args []store.Arg, s State) int64 {
	a := readGCRAArgs(args)
	at, part := gcraLater(s, now)
	num := a.inc*a.den + a.incRem
	if a.den == 1 {
		return floorDiv(a.room+num-(at-now), num)
	}
	left := parts{a.room, a.roomRem}.minus(parts{-a.inc, -a.incRem}, a.den).minus(parts{at - now, part}, a.den)
	switch most := int64(MaxTokens) / num; {
	case left.whole < 0: // as far as a clock can step back
		return 0
	case most == 0: // no interval that anyone would write down
		if left.less(parts{a.inc, a.incRem}) {
			return 0
		}
		return 1
	case left.whole >= (MaxTokens-a.den)/a.den:
		return most
	default:
		return min((left.whole*a.den+left.rem)/num, most)
	}
}

func gcraTake(args []store.Arg, n int64) {
	a := readGCRAArgs(args)
	inc, incRem, _ := mulDiv(n, a.inc*a.den+a.incRem, a.den)
	if a.den == 1 {
		args[1] = store.IntArg(inc)
		return
	}
	args[2], args[3] = store.IntArg(inc), store.IntArg(incRem)
}

// gcraCharge is the TAT behind the tokens, and by how much they moved it. While
// refunds have moved what lay behind them, it is as if they had not: see gcraNote.
func gcraCharge(now int64, args []store.Arg, s State, note Note) (Charge, int64) {
	a := readGCRAArgs(args)
	at, part := gcraLater(s, now)
	at, part = gcraAdd(at, part, a.inc, a.incRem, a.den)
	late := at
	if n := gcraNote(note, now); n.moved > 0 {
		late = min(late+n.moved, MaxTokens)
		until := min(max(n.until, late+1), MaxTokens) // a marker is not to be read without the note
		note.Keep(Charge{n.moved, n.from, until}, until-now)
	}
	if a.den == 1 {
		return Charge{late, 0, a.inc, 0}, at - now
	}
	return Charge{late, part, a.inc, a.incRem}, at - now + 1
}

// A gcraMoved is a note: charges that end later than from end moved microseconds
// sooner than their markers say, rounded up. It matters until the last of those, as its
// marker says, has come back by itself.
type gcraMoved struct{ moved, from, until int64 }

func gcraNote(note Note, now int64) gcraMoved {
	if !note.Held || now >= note.Charge[2] {
		return gcraMoved{}
	}
	return gcraMoved{note.Charge[0], note.Charge[1], note.Charge[2]}
}

// maxMoved is the most that is given back in all, before a pause as long as a bucket
// takes to fill: 71 years. So that no sum passes 2^53.
const maxMoved = MaxSpan / 2

// A parts is a time in microseconds and parts of one.
type parts struct{ whole, rem int64 }

func (p parts) less(o parts) bool { return p.whole < o.whole || p.whole == o.whole && p.rem < o.rem }

// minus is p less o, of which one has den parts.
func (p parts) minus(o parts, den int64) parts {
	p.whole, p.rem = p.whole-o.whole, p.rem-o.rem
	if p.rem < 0 {
		p.whole, p.rem = p.whole-1, p.rem+den
	}
	if p.rem >= den {
		p.whole, p.rem = p.whole+1, p.rem-den
	}
	return p
}

func gcraRefund(tx store.Tx, key int, now int64, args []store.Arg, s State, was Charge, note Note) bool {
	return gcraGiveBack(tx, key, now, args, s, was, note, false)
}

// gcraGiveBack is gcraRefund. If queue, whoever is behind waits for a turn that it was
// told, whatever the burst.
func gcraGiveBack(tx store.Tx, key int, now int64, args []store.Arg, s State, was Charge, note Note, queue bool) bool {
	a := readGCRAArgs(args)
	span := parts{a.room, a.roomRem}.minus(parts{-a.inc, -a.incRem}, a.den)
	tat, late, back := parts{s[0], s[1]}, parts{was[0], was[1]}, parts{was[2], was[3]}
	if late.rem >= a.den { // under another denominator
		late.rem = 0
	}
	if back.rem >= a.den {
		back.rem = 0
	}
	n := gcraNote(note, now)
	if n.moved > 0 && late.whole > n.from {
		late.whole -= n.moved
	}
	if left := (parts{late.whole - now, late.rem}); left.less(back) {
		back = left
	}
	ahead := parts{tat.whole - now, tat.rem}
	switch behind := late.less(tat); {
	case behind && queue:
		return false
	case behind && span.less(ahead):
		back = back.minus(tat.minus(late, a.den), a.den)
	}
	if ahead.less(back) {
		back = ahead
	}
	up := back.whole
	if back.rem > 0 {
		up++
	}
	if up <= 0 || n.moved+up > maxMoved {
		return false
	}
	from, until := late.whole-up, tat.whole+1
	if n.moved > 0 {
		from, until = min(from, n.from), max(until, n.until)
	}
	note.Keep(Charge{n.moved + up, max(from, 0), until}, until-now)
	tat = tat.minus(back, a.den)
	v := store.Nums{Tag: gcraTag, Len: 1}
	if a.den > 1 {
		v.Len, v.N[1], v.N[2] = 3, tat.rem, a.den
	}
	v.N[0] = tat.whole
	tx.Put(key, v, 0)
	return true
}

// floorDiv is a/b rounded down; b is positive.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
