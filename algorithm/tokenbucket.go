package algorithm

import (
	_ "embed"
	"math/bits"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// TokenBucket is a bucket of Capacity tokens, which is full at first. In each Period of
// Refill, Count tokens are refilled: one by one, or all together at the end of the period
// if AtOnce is true. A request is allowed if the bucket has at least as many tokens as
// the request costs. Tokens can be reserved ahead of time with Request.MaxWait.
//
// Unless AtOnce is true, a [GCRA] makes the same decisions. The two differ only if the
// clock steps back, or if the limit changes: a TokenBucket keeps the number of missing
// tokens, and a GCRA the time until the bucket is full.
//
// The state is one string. A period starts when the bucket was last full. Refilling is
// exact, in integers. If the clock steps back to before the start of the period, no
// tokens are refilled until the clock reaches that time again.
//
// If the limit changes, the missing tokens are refilled at the new rate, but no later
// than the bucket would have been full under the limit that consumed from it last.
// RetryAfter can then be longer than the real wait.
//
// In debt, more than Capacity tokens are missing, and refilled tokens reduce the debt
// first. If Capacity is at most 2^45 and is refilled within a year, the debt can be at
// least 100 times Capacity.
//
// A refund returns the tokens that have not been refilled yet, or fewer after refunds of
// other decisions: see [GCRA] for figures. It does not move the start
// of the period. So if the refunded request started the period, later tokens can be
// refilled earlier than without that request: by less than one Period if AtOnce is true,
// and otherwise by less than the time between two tokens. If Refill or AtOnce has changed
// since the decision, nothing is refunded.
//
// Sources: the bucket of "Scaling your API with rate limiters" by Stripe (2017), and the
// greedy and interval refill of bucket4j.
type TokenBucket struct {
	// Capacity is the most tokens that one request can consume. It is at least 1, and an
	// empty bucket must be full within MaxSpan. Capacity plus q, which Refill explains,
	// must be less than 2^53. If AtOnce is true, Refill.Count replaces q.
	Capacity int64

	// Refill is how fast tokens are refilled. Its Count is at most 2^52/1000.
	//
	// If AtOnce is true, Period must be whole microseconds, from 1 µs to MaxSpan. If
	// AtOnce is false, Refill has another bound, because the arithmetic is exact. For
	// example, PerDay(n) is valid for every n up to 104,249. In general, the time between
	// two tokens is a fraction of whole numbers, p/q microseconds in lowest terms, and
	// p*q must be less than 2^53. If Refill is not valid, the error says what to change.
	Refill Rate

	// If AtOnce is true, the tokens of a period are refilled together, at its end.
	AtOnce bool
}

//go:embed tokenbucket.lua
var tokenBucketLua string

var tokenBucketKind = &contract.MeterKind{
	Head:     contract.Head{Name: "tokenbucket", Tag: store.Tag{'t', '2'}, Cell: "anchor missing", Args: "capacity num den step", Lua: tokenBucketLua},
	Note:     "moved from since",
	Reserves: true,
	Meter: func(args []store.Arg) contract.Meter {
		return &tokenBucket{capacity: args[0].Int(), num: args[1].Int(), den: args[2].Int(), step: args[3].Int()}
	},
}

// NewLimit implements [Algorithm].
func (b TokenBucket) NewLimit() (*contract.Limit, error) {
	num, den, err := b.Refill.interval()
	if err != nil {
		return nil, err
	}
	if b.Capacity < 1 || b.Capacity > MaxTokens {
		return nil, contract.Invalid("TokenBucket.Capacity is %d: it must be from 1 to %d", b.Capacity, int64(MaxTokens))
	}
	m := tokenBucket{b.Capacity, num, den, den}
	if b.AtOnce {
		if num, err = contract.WholeMicros("TokenBucket.Refill.Period", b.Refill.Period); err != nil {
			return nil, err
		}
		m = tokenBucket{b.Capacity, num, b.Refill.Count, 0}
	} else if hi, lo := bits.Mul64(uint64(num), uint64(den)); hi > 0 || lo > uint64(MaxTokens) {
		return nil, b.tooFine()
	}
	span := m.until(b.Capacity)
	if span > maxSpan {
		return nil, contract.Invalid("TokenBucket with Capacity %d at %d per %v takes longer than %v years to fill: lower Capacity or raise Refill",
			b.Capacity, b.Refill.Count, b.Refill.Period, years)
	}
	if most := MaxTokens - m.den; b.Capacity > most {
		return nil, contract.Invalid("TokenBucket.Capacity is %d: with %d tokens in a period of %d µs it must be at most %d", b.Capacity, m.den, m.num, most)
	}
	spare := MaxTokens - m.den - b.Capacity // tokens that can be reserved so that no number passes 2^53
	l := &contract.Limit{
		Kind: tokenBucketKind, Args: consts(m.capacity, m.num, m.den, m.step), Capacity: b.Capacity, Window: window(b.Capacity, b.Refill),
		MaxWait: max(min(maxSpan-span, m.until(spare-spare%m.den)-m.num), 0),
		MaxDebt: min(m.back(maxSpan), MaxTokens-m.den) - b.Capacity,
	}
	at, last := int64(0), contract.Cell{}
	if !b.AtOnce { // a period ends, and each of its tokens was consumed at once
		at, last.B = m.until(m.den-1), m.capacity+m.den-1
	}
	carry := refilled(l, at, last, "the missing tokens stay, and are refilled at the new rate", "")
	l.Carry = func(to *contract.Limit) contract.Carried {
		c := carry(to)
		if at > 0 && to.Kind == tokenBucketKind && to.Args[3].Int() == 0 {
			c.Wait = max(c.Wait, c.Wait+contract.Micros(to.Args[1].Int())) // earlier in the period; it may overflow
		}
		return c
	}
	return l, nil
}

// tooFine returns the error of a Refill that cannot be counted exactly. It names a rate
// that can.
func (b TokenBucket) tooFine() error {
	part := gcd(b.Refill.Period.Nanoseconds(), 1000)
	hi, lo := bits.Mul64(uint64(b.Refill.Period.Nanoseconds()/part), uint64(1000/part))
	if hi == 0 && lo <= uint64(MaxTokens) {
		return contract.Invalid("TokenBucket.Refill is %d per %v, which is too fine to be counted exactly: with this Period, use a Count up to %d; GCRA allows more",
			b.Refill.Count, b.Refill.Period, uint64(MaxTokens)/lo)
	}
	return contract.Invalid("TokenBucket.Refill is %d per %v, which is too fine to be counted exactly: use a Period of whole microseconds, up to %v, and a small Count; GCRA allows more",
		b.Refill.Count, b.Refill.Period, contract.Micros(maxSpan))
}

// A tokenBucket is the Meter of a TokenBucket. Its cell has the integers anchor and
// missing: anchor is when a period began, and missing is the number of tokens that were
// missing then or consumed since then. In each period of num microseconds, den tokens are
// refilled. step is den if they are refilled one by one, and 0 if all together. If step
// is den, num*den is less than 2^53.
type tokenBucket struct{ capacity, num, den, step int64 }

// back returns the number of tokens that are refilled in past microseconds, at most 2^53.
func (b *tokenBucket) back(past int64) int64 {
	switch {
	case past <= 0:
		return 0
	case b.den == 1: // as in most rates; without this, a decision in memory takes 6 % longer
		return min(past/b.num, MaxTokens+1)
	}
	hi, lo := bits.Mul64(uint64(past/b.num), uint64(b.den))
	if hi > 0 || lo > uint64(MaxTokens) {
		return MaxTokens + 1
	}
	return min(int64(lo)+past%b.num*b.step/b.num, MaxTokens+1)
}

// until returns the microseconds in which n tokens are refilled, at most 2^61.
func (b *tokenBucket) until(n int64) int64 {
	periods, rest := n, int64(0)
	if b.den > 1 {
		periods, rest = n/b.den, n%b.den
	}
	hi, lo := bits.Mul64(uint64(periods), uint64(b.num))
	if hi > 0 || lo > 1<<60 {
		return 1 << 61
	}
	switch {
	case rest > 0 && b.step == 0:
		return int64(lo) + b.num
	case rest > 0:
		return int64(lo) + ceilDiv(rest*b.num, b.den)
	}
	return int64(lo)
}

func (b *tokenBucket) Advance(now int64, c contract.Cell) contract.Cell {
	past := now - c.A
	switch {
	case b.back(past) >= c.B:
		c = contract.Cell{A: now}
	case past >= b.num:
		c.A, c.B = now-past%b.num, c.B-past/b.num*b.den
	}
	return c
}

func (b *tokenBucket) Room(_, at int64, c contract.Cell) int64 {
	return b.capacity - max(c.B-b.back(at-c.A), 0)
}

func (b *tokenBucket) Take(c contract.Cell, n int64) contract.Cell {
	c.B += n
	return c
}

func (b *tokenBucket) Ends(c contract.Cell) int64 { return min(c.A+b.until(c.B), MaxTokens) }

func (b *tokenBucket) Ready(now int64, c contract.Cell, n, wait int64) int64 {
	lack := c.B + n - b.capacity
	if lack <= b.back(now-c.A) {
		return now - wait
	}
	return c.A + b.until(lack) - wait
}

func (b *tokenBucket) Refund(now int64, c contract.Cell, ch contract.Charge, note contract.Cell) (contract.Cell, contract.Cell) {
	moved, from := note.A, note.B-b.back(now-note.C)
	lack := c.B - b.back(now-c.A)
	past := b.back(now - ch.Was.A)
	left := ch.Was.B - past
	left = min(max(left+ch.Moved-moved, from+ch.Held), left)
	give := min(left, ch.N)
	if lack > b.capacity {
		give -= max(lack-left, 0)
	}
	if give = min(give, lack); give <= 0 || moved+give > maxMoved {
		return c, note
	}
	after := contract.Cell{A: moved + give, B: min(max(left+past-ch.Held, 0), MaxTokens), C: ch.Was.A}
	if moved > 0 && from < left-ch.Held {
		after.B, after.C = note.B, note.C
	}
	if give == lack {
		return contract.Cell{}, after
	}
	c.B -= give
	return c, after
}
