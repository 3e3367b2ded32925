package model

import (
	"math"
	"math/big"
	"time"

	"github.com/weir-go/weir/algorithm"
)

// A GCRA is the model of a GCRA or a LeakyBucket: the time at which all tokens are available.
type GCRA struct {
	leaky    bool
	span     algorithm.Span
	num, den *big.Int // one token takes num/den µs
	tat, was *big.Int // the time, in parts of 1/was µs
}

// Set implements Model.
func (g *GCRA) Set(a algorithm.Algorithm) {
	rate, burst := algorithm.Rate{}, int64(0)
	if l, ok := a.(algorithm.LeakyBucket); ok {
		g.leaky, rate, burst = true, l.Rate, l.Queue+1
	} else {
		rate, burst = a.(algorithm.GCRA).Rate, a.(algorithm.GCRA).Burst
	}
	g.span = algorithm.Span{Limit: burst, Window: fills(burst, rate)}
	num, den := interval(rate)
	if g.num, g.den = big.NewInt(num), big.NewInt(den); g.tat == nil {
		g.tat, g.was = new(big.Int), g.den
	}
}

func (g *GCRA) queue() bool { return g.leaky }

// Spans implements Model.
func (g *GCRA) Spans() []algorithm.Span { return []algorithm.Span{g.span} }

// time returns the later of at and the time at which all tokens are available, in parts of
// 1/den µs. If another limit with another denominator wrote it, it is rounded up.
func (g *GCRA) time(at int64) *big.Int {
	tat, now := g.tat, new(big.Int).Mul(big.NewInt(at), g.den)
	if g.was.Cmp(g.den) != 0 {
		tat = new(big.Int).Mul(ceil(tat, g.was), g.den)
	}
	if tat.Cmp(now) < 0 {
		return now
	}
	return tat
}

// Used implements Model.
func (g *GCRA) Used(at int64, _ algorithm.Span) int64 {
	ahead := g.time(at)
	ahead = new(big.Int).Sub(ahead, new(big.Int).Mul(big.NewInt(at), g.den))
	if n := ceil(ahead, g.num); n.IsInt64() && n.Int64() < math.MaxInt64/4 {
		return n.Int64()
	}
	return math.MaxInt64 / 4
}

// Take implements Model.
func (g *GCRA) Take(now, n int64) *Tally {
	g.tat, g.was = new(big.Int).Add(g.time(now), new(big.Int).Mul(big.NewInt(n), g.num)), g.den
	return nil
}

// Deep reports whether all tokens are available only after 2^53 parts or more, so that an
// algorithm rounds them.
func (g *GCRA) Deep(now int64) bool {
	ahead := new(big.Int).Sub(g.time(now), new(big.Int).Mul(big.NewInt(now), g.den))
	return g.rounds(ahead)
}

func (g *GCRA) rounds(parts *big.Int) bool {
	return g.den.Cmp(big.NewInt(1)) > 0 && parts.Cmp(big.NewInt(1<<53)) >= 0
}

// Follow sets the time of the model to an algorithm's after n tokens were consumed: whole
// microseconds, and rest parts of one. It reports whether the algorithm was right: exact
// or, if the time of n tokens is rounded, less than 4 µs late.
func (g *GCRA) Follow(n, whole, rest int64) bool {
	was := g.tat
	g.tat = new(big.Int).Mul(big.NewInt(whole), g.den)
	g.tat.Add(g.tat, big.NewInt(rest))
	late := new(big.Int).Sub(g.tat, was)
	size := new(big.Int).Mul(big.NewInt(n), g.num)
	return late.Sign() == 0 || g.rounds(size.Add(size, g.den)) && late.Sign() > 0 && late.Cmp(new(big.Int).Mul(g.den, big.NewInt(4))) < 0
}

// A bucket is the model of a TokenBucket: the tokens that were missing when a period began.
type bucket struct {
	algorithm.TokenBucket
	anchor, missing int64
	num, den        int64 // den tokens are refilled in num µs
}

func (b *bucket) Set(a algorithm.Algorithm) {
	b.TokenBucket = a.(algorithm.TokenBucket)
	if b.num, b.den = interval(b.Refill); b.AtOnce {
		b.num, b.den = b.Refill.Period.Microseconds(), b.Refill.Count
	}
}

func (*bucket) queue() bool { return false }

func (b *bucket) Spans() []algorithm.Span {
	return []algorithm.Span{{Limit: b.Capacity, Window: fills(b.Capacity, b.Refill)}}
}

func (b *bucket) Used(at int64, _ algorithm.Span) int64 {
	past := max(at-b.anchor, 0)
	if b.AtOnce {
		past -= past % b.num
	}
	return max(b.missing-mulDiv(past, b.den, b.num), 0)
}

func (b *bucket) Take(now, n int64) *Tally {
	if b.Used(now, algorithm.Span{}) == 0 {
		b.anchor, b.missing = now, 0
	}
	periods := max(now-b.anchor, 0) / b.num
	b.anchor, b.missing = b.anchor+periods*b.num, b.missing-periods*b.den+n
	return nil
}

// interval returns the time of one token, in microseconds, as a reduced fraction. Its inverse
// says how many tokens are refilled in how many whole microseconds.
func interval(r algorithm.Rate) (num, den int64) {
	x, y := int64(r.Period), r.Count*1000
	for y > 0 {
		x, y = y, x%y
	}
	return int64(r.Period) / x, r.Count * 1000 / x
}

// fills returns the time in which n tokens are refilled, rounded down.
func fills(n int64, r algorithm.Rate) time.Duration {
	return max(time.Duration(mulDiv(n, int64(r.Period), r.Count)), 1)
}

func ceil(n, d *big.Int) *big.Int {
	q, rest := new(big.Int).QuoRem(n, d, new(big.Int))
	if rest.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q
}
