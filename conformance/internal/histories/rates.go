package histories

import (
	"fmt"
	"slices"

	"github.com/weir-go/weir/algorithm"
)

func (s *state) slack(a algorithm.Algorithm, n int64) {
	if r, ok := rateOf(a); ok {
		t, _ := interval(r)
		n *= t
	}
	s.free += n
}

// refundRate is refund of a GCRA, a LeakyBucket or a TokenBucket.
func (s *state) refundRate(now int64, a algorithm.Algorithm, c *charge, k int64, sure, stepped bool) (must, can bool) {
	last, end, after := true, true, false // no later decision holds tokens, or no later charge
	for _, e := range s.charges {
		after = after || e.of == c.of
		last = last && (!after || e.of == c.of || e.n == e.back)
		end = e == c || end && e.n == e.back
	}
	if _, queue := a.(algorithm.LeakyBucket); queue && !end && !s.mess && sure {
		s.version--
		return false, false
	}
	c.back += k
	s.refunds++
	if sure && last && !s.mess && !stepped && s.refunds <= 2 {
		c.sure += k
	} else {
		s.mess = true
	}
	if stepped || c.other {
		s.slack(a, k)
	}
	switch b := a.(type) {
	case algorithm.TokenBucket:
		s.free += phase(b)
		s.loose = s.loose || slices.ContainsFunc(s.charges, func(e *charge) bool { return !fits(e.a, a) })
	default:
		s.free += 2 * parts
	}
	lo, _ := s.used(now, a)
	s.empty = s.empty || lo == 0
	return false, true
}

// mixes reports whether a rate had refunds, and decisions with several denominators.
func (s *state) mixes() bool {
	denominators, back := map[int64]bool{}, false
	for _, c := range s.charges {
		r, _ := rateOf(c.a)
		_, q := interval(r)
		denominators[q], back = true, back || c.back > 0
	}
	return back && len(denominators) > 1
}

// tat returns the TAT, in parts of a microsecond, and its denominator: without the tokens that
// have been refunded, or only without those that must have been.
func (s *state) tat(hi bool) (tat, q int64) {
	for _, c := range s.charges {
		r, _ := rateOf(c.a)
		t, d := interval(r)
		n := c.n - c.back
		if hi {
			n = c.n - c.sure
		}
		if n == 0 {
			continue
		}
		if d != q {
			tat, q = (tat+parts-1)/parts*parts, d
		}
		tat = max(tat, c.at*parts) + n*t
	}
	return tat, q
}

// bucket returns the missing tokens of a TokenBucket.
func (s *state) bucket(now int64, a algorithm.TokenBucket, hi bool) int64 {
	anchor, missing := int64(0), int64(0)
	advance := func(now int64, a algorithm.TokenBucket) {
		p, n := a.Refill.Period.Microseconds(), a.Refill.Count
		if !a.AtOnce && p%n == 0 {
			p, n = p/n, 1
		}
		periods := max(now-anchor, 0) / p
		refilled := periods * n
		if !a.AtOnce {
			refilled += max(now-anchor, 0) % p * n / p
		}
		if missing <= refilled {
			anchor, missing = now, 0
		} else if anchor, missing = anchor+periods*p, missing-periods*n; missing < 0 {
			panic(fmt.Sprint("missing ", missing))
		}
	}
	for _, c := range s.charges {
		n := c.n - c.back
		if hi {
			n = c.n - c.sure
		}
		if n > 0 {
			advance(c.at, c.a.(algorithm.TokenBucket))
			missing += n
		}
	}
	advance(now, a)
	if missing > 0 && !a.AtOnce {
		p, n := a.Refill.Period.Microseconds(), a.Refill.Count
		missing -= max(now-anchor, 0) * n / p
	}
	return missing
}
