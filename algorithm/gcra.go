package algorithm

import (
	_ "embed"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// GCRA is the generic cell rate algorithm: a bucket of Burst tokens, which is full at
// first, and to which one token is added every emission interval, the period of Rate
// divided by its count. If Rate changes, callers keep the time until the bucket is full,
// not the number of tokens, so use a [TokenBucket] for a limit that can change. A request is
// allowed if the bucket has at least as many tokens as the request costs. Tokens can be
// reserved ahead of time with Request.MaxWait.
//
// The state is one string with the theoretical arrival time (TAT), at which the bucket
// will be full. A request of cost n is allowed if max(TAT, now) plus n intervals, the new
// TAT, is at most Burst intervals after now. The interval is an exact fraction, so rates
// do not drift. After a change of Rate, a fraction of a microsecond is rounded up.
//
// In debt, TAT is more than Burst intervals after now, and refilled tokens reduce the
// debt first. If Burst is at most 2^45 and is refilled within a year, the debt can be at
// least 100 times Burst. If the interval is not a whole number of microseconds, a Force
// that is too large to be exact sets TAT up to 4 µs late, and its refund leaves it up to
// 8 µs late.
//
// A refund returns the tokens that have not been refilled yet, except those that later
// reservations depend on, which keep their time. After refunds of other decisions, it may
// return fewer. For example, 18 jobs start at once, at 1000 per second with a Burst of
// 1000. If they settle 2 ms later on average, 0.2 % of the tokens that they return are
// lost, and 15 % if they settle after 50 ms. If every token counts, settle a
// [FixedWindow], a [Calendar] or a [SlidingLog], which lose none. If Rate has changed
// since the decision, nothing is refunded.
//
// Source: ATM Forum Traffic Management Specification 4.0, section 4.4.2 (virtual
// scheduling). redis-cell applies it too: its max_burst is Burst minus one.
type GCRA struct {
	// Rate is how fast tokens are refilled. Its Count is at most 2^52/1000.
	Rate Rate

	// Burst is the capacity: the most tokens that one request can consume. It is at least
	// 1, and an empty bucket must be full within MaxSpan.
	//
	// If the interval is not a whole number of microseconds, Burst has a second bound,
	// because the arithmetic is exact: at 3 per second, for example, 9,007,199,254. The
	// error for a larger Burst names the bound.
	Burst int64
}

//go:embed gcra.lua
var gcraLua string

//go:embed gcrafraction.lua
var gcraFractionLua string

// Most rates have an interval of whole microseconds. Their script does not need
// fractions, so it costs a server less. Both kinds use the same keys and values.
var (
	gcraKind = &contract.MeterKind{
		Head: contract.Head{Name: "gcra", Tag: store.Tag{'g', '2'}, Cell: "tat [rem den]", Args: "interval span", Lua: gcraLua},
		Note: "moved from", Reserves: true, Absolute: true,
		Meter: func(args []store.Arg) contract.Meter {
			return newGCRA(args[0].Int(), 1, args[1].Int(), true)
		},
	}
	gcraFractionKind = &contract.MeterKind{
		Head: contract.Head{Name: "gcra", Tag: gcraKind.Tag, Cell: gcraKind.Cell, Args: "num parts total", Lua: gcraFractionLua},
		Note: gcraKind.Note, Reserves: true, Absolute: true,
		Meter: func(args []store.Arg) contract.Meter {
			return newGCRA(args[0].Int(), args[1].Int(), args[2].Int(), false)
		},
	}
)

// NewLimit implements [Algorithm].
func (g GCRA) NewLimit() (*contract.Limit, error) {
	num, parts, err := g.Rate.interval()
	if err != nil {
		return nil, err
	}
	if g.Burst < 1 || g.Burst > MaxTokens {
		return nil, contract.Invalid("GCRA.Burst is %d: it must be from 1 to %d", g.Burst, int64(MaxTokens))
	}
	span := mulDiv(g.Burst, num, parts, maxSpan+1)
	if span > maxSpan {
		return nil, contract.Invalid("GCRA with Burst %d at %d per %v takes longer than %v years to fill: lower Burst or raise Rate",
			g.Burst, g.Rate.Count, g.Rate.Period, years)
	}
	l := &contract.Limit{Kind: gcraKind, Capacity: g.Burst, Window: window(g.Burst, g.Rate), MaxWait: max(maxSpan-1-span, 0)}
	l.Carry = refilled(l, 0, contract.Cell{}, "the used tokens stay used", "the time until the bucket is full stays, not the number of tokens")
	inSpan := mulDiv(maxSpan-1, parts, num, MaxTokens) // with this many tokens missing, TAT is below 2^53
	if parts == 1 {
		l.Args, l.MaxDebt = consts(num, span), max(inSpan-g.Burst, 0)
		return l, nil
	}
	most := (MaxTokens - parts) / num
	if g.Burst > most {
		if most < 1 {
			return nil, contract.Invalid("GCRA.Rate is %d per %v, which is too fine to be counted exactly: use a Period of whole microseconds and a smaller Count",
				g.Rate.Count, g.Rate.Period)
		}
		return nil, contract.Invalid("GCRA.Burst is %d: at %d per %v it must be at most %d, so that it can be counted exactly", g.Burst, g.Rate.Count, g.Rate.Period, most)
	}
	// Up to most tokens, a debt is exact. A larger one is rounded, so it must end well
	// before 2^52 µs.
	far := min(mulDiv(maxSpan-1000, parts, num, MaxTokens)-8, 101*min(g.Burst, MaxTokens/101))
	l.Kind, l.Args, l.MaxDebt = gcraFractionKind, consts(num, parts, g.Burst*num), max(min(inSpan, most)-g.Burst, far-g.Burst, 0)
	return l, nil
}

// A gcra is the Meter of a GCRA. Its cell has the integers tat, rem and den. The interval
// is num/parts microseconds, and an empty bucket is full after total/parts microseconds.
// If bare is true, parts is 1, and den is not written.
type gcra struct {
	num, parts, total int64
	far               int64 // the most microseconds that TAT can be ahead, so that they are less than 2^53 parts
	bare, queue       bool
}

func newGCRA(num, parts, total int64, bare bool) *gcra {
	return &gcra{num: num, parts: parts, total: total, far: MaxTokens/parts - 1, bare: bare}
}

// micros returns n/parts, rounded down.
func (g *gcra) micros(n int64) int64 {
	if g.bare { // a division takes as long as all the rest
		return n
	}
	return floorDiv(n, g.parts)
}

// exact returns c with its remainder in units of 1/parts microseconds.
func (g *gcra) exact(c contract.Cell) contract.Cell {
	switch {
	case g.bare && c.B > 0:
		c.A++
		fallthrough
	case g.bare:
		c.B, c.C = 0, 0
	case c.C != g.parts:
		if c.B > 0 {
			c.A++
		}
		c.B, c.C = 0, g.parts
	}
	return c
}

func (g *gcra) Advance(now int64, c contract.Cell) contract.Cell {
	if c = g.exact(c); c.A < now {
		c.A, c.B = now, 0
	}
	return c
}

func (g *gcra) Room(_, at int64, c contract.Cell) int64 {
	ahead := c.A - at
	switch {
	case ahead < 0:
		return g.total / g.num
	case ahead > g.far:
		return g.farRoom(ahead, c.B)
	}
	return floorDiv(g.total-ahead*g.parts-c.B, g.num)
}

// farRoom is Room for a TAT that is more than g.far microseconds ahead. If that is 2^53
// parts or more, the result is not exact, and rounded as in Lua.
func (g *gcra) farRoom(ahead, rem int64) int64 {
	debt := float64(float64(ahead)*float64(g.parts)) + float64(rem) // the conversion forbids a fused operation
	if debt < 1<<53 {
		return floorDiv(g.total-int64(debt), g.num)
	}
	return -1 - int64(min((debt-float64(g.total))/float64(g.num), float64(MaxTokens-1)))
}

func (g *gcra) Take(c contract.Cell, n int64) contract.Cell {
	sum := c.B + n*g.num
	if sum > MaxTokens { // see gcrafraction.lua
		return contract.Cell{A: c.A + g.time(n) + 3, C: c.C}
	}
	whole := g.micros(sum) // n can be negative
	c.A, c.B = c.A+whole, sum-whole*g.parts
	return c
}

// time returns the microseconds in which n tokens are refilled, rounded down, and at most
// MaxTokens. It is off by up to one, as in Lua.
func (g *gcra) time(n int64) int64 {
	some := n % g.parts
	whole := mulDiv(n/g.parts, g.num, 1, MaxTokens)
	return min(whole+int64(float64(some)*float64(g.num)/float64(g.parts)), MaxTokens)
}

func (g *gcra) Ends(c contract.Cell) int64 {
	if c.B > 0 {
		return c.A + 1
	}
	return c.A
}

func (g *gcra) Ready(_ int64, c contract.Cell, n, wait int64) int64 {
	return c.A - g.micros(g.total-n*g.num-c.B) - wait
}

// maxMoved is the largest sum that refunds can move while a key lives, in microseconds or
// tokens. It keeps all sums below 2^53.
const maxMoved = maxSpan / 2

func (g *gcra) Refund(now int64, c contract.Cell, ch contract.Charge, note contract.Cell) (contract.Cell, contract.Cell) {
	moved, from := note.A, note.B
	parts, num, total, most := g.parts, g.num, g.total, g.far
	in := func(us, rem int64) int64 { return max(min(us, most), -most)*parts + rem }
	if g.bare {
		ch.Was.B = 0
	}
	e := g.exact(c)
	shift := ch.Moved - moved
	late := ch.Was.A + shift
	rest, cost, size, kept := ch.Was.B, mulDiv(ch.N, num, 1, MaxTokens), mulDiv(ch.Held, num, 1, MaxTokens), int64(0)
	exact := size <= most*parts || g.bare
	if least := from + size/parts; exact && least > late {
		late, rest = least, 0
	}
	if late > ch.Was.A {
		late, rest, shift = ch.Was.A, ch.Was.B, 0
	}
	if cost > most*parts && !g.bare { // see gcrafraction.lua
		if e.B > rest {
			late--
		}
		e.B, kept, rest, most = 0, e.B, 0, MaxTokens
		cost = g.time(ch.N) - 2
		parts, num, total = 1, 1, total/parts-1
	}
	behind := in(e.A-late, e.B-rest)
	if over := behind % num; behind > 0 && !g.bare && over/parts < in(-shift, 0)/num { // see gcrafraction.lua
		behind, rest = behind-over, rest+over
		late, rest = late+rest/parts, rest%parts
	}
	back := min(in(late-now, rest), cost)
	ahead := in(e.A-now, e.B)
	switch {
	case behind > 0 && g.queue:
		return c, note
	case behind > 0 && ahead > total:
		back -= behind
	}
	back = min(back, ahead)
	up := ceilDiv(back, parts)
	if back <= 0 || up > e.A || moved+up > maxMoved {
		return c, note
	}
	first := int64(0)
	if exact {
		first = max(late-max(up, ceilDiv(size-rest, parts)), 0)
	}
	if moved > 0 {
		first = min(first, from)
	}
	e.A, e.B = e.A-back/parts, e.B-back%parts+kept
	if e.B < 0 {
		e.A, e.B = e.A-1, e.B+parts
	}
	return e, contract.Cell{A: moved + up, B: first}
}
