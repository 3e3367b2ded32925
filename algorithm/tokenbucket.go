package algorithm

import (
	_ "embed"
	"math/bits"
	"time"

	"github.com/weir-go/weir/store"
)

// TokenBucket is a bucket of Capacity tokens that is full at first. A request
// passes if the bucket holds its cost, and takes that out. Refill.Count tokens
// come back in each Refill.Period, one by one, evenly spread, or, if AtOnce, all
// together when the period ends; never more than are missing. Periods are counted
// from when the bucket was last full: from the request that first took from it.
//
// Without AtOnce it admits what a [GCRA] of the same rate and burst does. They
// differ when the limit changes under a live key: here the tokens missing stay
// missing, whatever the time in which they come back; a GCRA keeps the time until
// full. What came back since the period began in which something was taken last
// is counted at the new Refill; a bucket that would be full by now under the old
// limit may be.
//
// It counts in integers, and exactly: three per second is 259,200 a day. If the
// clock steps back behind the start of that period, nothing has come back since,
// until it is there again.
//
// It heeds [Request].MaxWait: tokens that come back within that time can be taken
// now, so that more can be missing than there is room for. Verdict.Delay tells when
// they are back.
//
// Source: Stripe's "Scaling your API with rate limiters" (2017) for the bucket,
// and bucket4j's greedy and interval refill for the two ways in which tokens come
// back.
type TokenBucket struct {
	// Capacity is the most that can be taken at once, from 1 to MaxTokens, and
	// such that the bucket fills within MaxSpan. Together with the tokens of a
	// period it is less than 2^53.
	Capacity int64

	// Refill is how fast tokens come back. Its Count is at most 2^52/1000. If
	// AtOnce, its Period is whole microseconds, from 1 µs to MaxSpan. If not, the
	// microseconds of its Period times its Count, in lowest terms, are less than
	// 2^53: up to 104,249 a day always are, and so are a million a day, one every
	// 86,400 µs.
	Refill Rate

	// AtOnce says that the tokens of a period come back together, at its end.
	AtOnce bool
}

//go:embed tokenbucket.lua
var tokenBucketLua string

var tokenBucketTag = store.Tag{'t', '1'}

var tokenBucketFragment = &Fragment{
	Name:     "tokenbucket",
	Lua:      tokenBucketLua,
	Args:     6,
	State:    []string{"anchor", "missing"},
	Check:    tokenBucketCheck,
	Commit:   tokenBucketCommit,
	Fit:      tokenBucketFit,
	Take:     tokenBucketTake,
	Charge:   tokenBucketCharge,
	Refund:   tokenBucketRefund,
	Notes:    true,
	Reserves: true,
}

// A refill is tokens that come back, den of them in each period of num
// microseconds. step is den if they come one by one, and 0 if all at once. If
// step is den, num times den is less than 2^53.
type refill struct{ num, den, step int64 }

// back is how many tokens come back in past microseconds, at most 2^53 of them.
func (r refill) back(past int64) int64 {
	if past <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(past/r.num), uint64(r.den))
	if hi > 0 || lo > MaxTokens {
		return MaxTokens + 1
	}
	return min(int64(lo)+past%r.num*r.step/r.num, MaxTokens+1)
}

// until is how many microseconds pass until n tokens are back, at most 2^61.
func (r refill) until(n int64) int64 {
	hi, lo := bits.Mul64(uint64(n/r.den), uint64(r.num))
	if hi > 0 || lo > 1<<60 {
		return 1 << 61
	}
	rest := n % r.den
	switch {
	case rest > 0 && r.step == 0:
		return int64(lo) + r.num
	case rest > 0:
		return int64(lo) + (rest*r.num+r.den-1)/r.den
	}
	return int64(lo)
}

type tokenBucketLimit struct {
	refill
	capacity int64
	longest  int64       // the longest wait that is heeded
	one      []store.Arg // for cost 1
}

// NewLimit implements [Algorithm].
func (b TokenBucket) NewLimit() (Limit, error) {
	num, den, err := b.Refill.interval()
	if err != nil {
		return nil, err
	}
	if b.Capacity < 1 || b.Capacity > MaxTokens {
		return nil, invalid("TokenBucket.Capacity is %d: it must be from 1 to %d", b.Capacity, int64(MaxTokens))
	}
	l := &tokenBucketLimit{refill: refill{num, den, den}, capacity: b.Capacity}
	if b.AtOnce {
		if num, err = wholeMicros("TokenBucket.Refill.Period", b.Refill.Period); err != nil {
			return nil, err
		}
		l.refill = refill{num, b.Refill.Count, 0}
	} else if hi, lo := bits.Mul64(uint64(num), uint64(den)); hi > 0 || lo > MaxTokens {
		return nil, b.tooFine()
	}
	if most := MaxTokens - l.den; b.Capacity > most {
		return nil, invalid("TokenBucket.Capacity is %d: with %d tokens in a period of %d µs it must be at most %d", b.Capacity, l.den, l.num, most)
	}
	span := l.until(b.Capacity)
	if span > MaxSpan {
		return nil, invalid("TokenBucket with Capacity %d at %d per %v takes longer than %v years to fill: lower Capacity or raise Refill",
			b.Capacity, b.Refill.Count, b.Refill.Period, int64(MaxSpan)/(365*24*3600*1e6))
	}
	// So that no time and no count passes 2^53.
	spare := MaxTokens - l.den - b.Capacity
	l.longest = max(min(MaxSpan-span, l.until(spare-spare%l.den)-l.num), 0)
	l.one = constArgs(l.AppendArgs(nil, Request{Cost: 1}))
	return l, nil
}

// tooFine says that Refill cannot be counted exactly, and what could.
func (b TokenBucket) tooFine() error {
	part := gcd(b.Refill.Period.Nanoseconds(), 1000)
	hi, lo := bits.Mul64(uint64(b.Refill.Period.Nanoseconds()/part), uint64(1000/part))
	if hi == 0 && lo <= MaxTokens {
		return invalid("TokenBucket.Refill is %d per %v, too fine to be counted exactly: with this Period a Count up to %d would do; GCRA takes any",
			b.Refill.Count, b.Refill.Period, MaxTokens/lo)
	}
	return invalid("TokenBucket.Refill is %d per %v, too fine to be counted exactly: a Period of whole microseconds, up to %v, with a small Count would do; GCRA takes any",
		b.Refill.Count, b.Refill.Period, micros(MaxSpan))
}

func (l *tokenBucketLimit) Fragment() *Fragment { return tokenBucketFragment }

func (l *tokenBucketLimit) AppendArgs(args []store.Arg, r Request) []store.Arg {
	if r.Cost == 1 && r.MaxWait == 0 && l.one != nil {
		return append(args, l.one...)
	}
	room, wait := l.capacity-r.Cost, l.wait(r)
	if room < 0 {
		room, wait = -1, 0
	}
	return append(args, store.IntArg(room), store.IntArg(min(r.Cost, l.capacity)),
		store.IntArg(l.num), store.IntArg(l.den), store.IntArg(l.step), store.IntArg(wait))
}

// wait is how many microseconds r may wait.
func (l *tokenBucketLimit) wait(r Request) int64 {
	return min(max(r.MaxWait.Microseconds(), 0), l.longest)
}

func (l *tokenBucketLimit) Verdict(now int64, committed bool, s State, r Request) Verdict {
	anchor, missing := s[0], s[1]
	v := Verdict{Limit: l.capacity}
	if r.Cost > l.capacity {
		v.RetryAfter = Never
	} else {
		delay := l.delay(now, anchor, missing+r.Cost-l.capacity)
		if wait := l.wait(r); delay > wait {
			v.RetryAfter = micros(delay - wait)
		} else {
			v.Allowed, v.Delay = true, micros(delay)
		}
	}
	if committed {
		missing += r.Cost
	}
	v.Remaining = max(l.capacity-max(missing-l.back(now-anchor), 0), 0)
	v.ResetAfter = micros(l.delay(now, anchor, missing))
	return v
}

// delay is how long after now n tokens are back since anchor.
func (l *tokenBucketLimit) delay(now, anchor, n int64) int64 {
	if n <= l.back(now-anchor) {
		return 0
	}
	return anchor + l.until(n) - now
}

// A tokenBucketArgs is the arguments of the fragment.
type tokenBucketArgs struct {
	room, cost int64
	refill
	wait int64
}

func readTokenBucketArgs(args []store.Arg) tokenBucketArgs {
	return tokenBucketArgs{args[0].Int(), args[1].Int(), refill{args[2].Int(), args[3].Int(), args[4].Int()}, args[5].Int()}
}

// lack is how many tokens are missing that are not back within wait, less than
// none if more come back.
func (a tokenBucketArgs) lack(now int64, s State) int64 { return s[1] - a.back(now+a.wait-s[0]) }

func tokenBucketCheck(tx store.Tx, key int, now int64, args []store.Arg) (State, bool, error) {
	n, ok, err := tx.Get(key, tokenBucketTag)
	if err != nil {
		return State{}, false, err
	}
	if ok && n.Len != 2 {
		return State{}, false, tx.Foreign(key)
	}
	a := readTokenBucketArgs(args)
	s := State{n.N[0], n.N[1]}
	past := now - s[0]
	switch {
	case a.back(past) >= s[1]:
		s = State{now, 0}
	case past >= a.num:
		s = State{now - past%a.num, s[1] - past/a.num*a.den}
	}
	return s, a.lack(now, s) <= a.room, nil
}

func tokenBucketCommit(tx store.Tx, key int, now int64, args []store.Arg, s State, slack time.Duration) {
	a := readTokenBucketArgs(args)
	missing := s[1] + a.cost
	n := store.Nums{Tag: tokenBucketTag, Len: 2, N: [store.MaxNums]int64{s[0], missing}}
	tx.Put(key, n, ttl(s[0]+a.until(missing)-now+1, slack))
}

func tokenBucketFit(now int64, args []store.Arg, s State) int64 {
	a := readTokenBucketArgs(args)
	return a.room + 1 - max(a.lack(now, s), 0)
}

func tokenBucketTake(args []store.Arg, n int64) {
	args[0] = store.IntArg(args[0].Int() + 1 - n)
	args[1] = store.IntArg(n)
}

// tokenBucketCharge is when the period began, the tokens missing behind those taken,
// and these. While refunds have moved what lay behind them, it is as if they had not:
// see tokenBucketNote.
func tokenBucketCharge(now int64, args []store.Arg, s State, note Note) (Charge, int64) {
	a := readTokenBucketArgs(args)
	missing := s[1] + a.cost
	full := s[0] + a.until(missing) + 1
	c := Charge{s[0], missing, a.cost}
	if n := a.note(note, now); n.moved > 0 {
		c[1] = min(missing+n.moved, MaxTokens)
		until := min(max(n.until, s[0]+a.until(c[1])+1), MaxTokens) // a marker is not to be read without the note
		note.Keep(Charge{n.moved, note.Charge[1], note.Charge[2], until}, until-now)
	}
	return c, full - now
}

// A tokenBucketMoved is a note: charges behind which more than from tokens are missing
// lack moved tokens less than their markers say. It matters until the last of those, as
// its marker says, has come back by itself.
type tokenBucketMoved struct{ moved, from, until int64 }

func (a tokenBucketArgs) note(note Note, now int64) tokenBucketMoved {
	if !note.Held || now >= note.Charge[3] {
		return tokenBucketMoved{}
	}
	return tokenBucketMoved{note.Charge[0], note.Charge[1] - a.back(now-note.Charge[2]), note.Charge[3]}
}

func tokenBucketRefund(tx store.Tx, key int, now int64, args []store.Arg, s State, was Charge, note Note) bool {
	a := readTokenBucketArgs(args)
	lack := a.lack(now, s)
	n := a.note(note, now)
	left := was[1] - a.back(now-was[0])
	if n.moved > 0 && left > n.from {
		was[1], left = was[1]-n.moved, left-n.moved
	}
	give := min(left, was[2])
	if lack > a.room+1 {
		give -= max(lack-left, 0)
	}
	if give = min(give, lack); give <= 0 || n.moved+give > maxMoved {
		return false
	}
	kept := Charge{n.moved + give, max(was[1]-give, 0), was[0], min(s[0]+a.until(s[1])+1, MaxTokens)}
	if n.moved > 0 {
		kept[3] = max(kept[3], n.until)
		if n.from < left-give {
			kept[1], kept[2] = note.Charge[1], note.Charge[2]
		}
	}
	note.Keep(kept, kept[3]-now)
	if give == lack {
		tx.Del(key)
		return true
	}
	tx.Put(key, store.Nums{Tag: tokenBucketTag, Len: 2, N: [store.MaxNums]int64{s[0], s[1] - give}}, 0)
	return true
}
