package histories

import (
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/model"
)

// slack notes that n tokens of a may be free beyond the lower bound.
func (s *state) slack(a algorithm.Algorithm, n int64) {
	switch a := a.(type) {
	case algorithm.TokenBucket:
		s.free += n
	case algorithm.GCRA:
		s.free += (n*a.Rate.Period.Microseconds() + a.Rate.Count - 1) / a.Rate.Count
	case algorithm.LeakyBucket:
		s.slack(algorithm.GCRA{Rate: a.Rate}, n)
	}
}

// consumeRate is what a charge under a means for those before.
func (s *state) consumeRate(now int64, a algorithm.Algorithm) {
	if _, hi := s.used(now, a); hi == 0 {
		s.charges, s.mess, s.free, s.refunds, s.stepped, s.empty = nil, false, 0, 0, false, false
	}
	for _, e := range s.charges {
		e.other = e.other || !fits(e.a, a)
	}
	if _, bucket := a.(algorithm.TokenBucket); bucket && s.any(refunded) { // when the period began is not known
		s.loose = s.loose || s.any(func(e *charge) bool { return e.other })
	}
}

func refunded(c *charge) bool { return c.back > 0 }

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
		s.loose = s.loose || s.any(func(e *charge) bool { return !fits(e.a, a) })
	default:
		s.free += 2
	}
	lo, _ := s.used(now, a)
	s.empty = s.empty || lo == 0
	return false, true
}

// usedBy returns the tokens in use at now if each charge has consumed these tokens.
func (s *state) usedBy(now int64, a algorithm.Algorithm, tokens func(c *charge) int64) int64 {
	m := model.New(a)
	for _, c := range s.charges {
		if n := tokens(c); n > 0 {
			m.Set(c.a)
			m.Take(c.at, n)
		}
	}
	m.Set(a)
	return m.Used(now, m.Spans()[0])
}

// usedRate is used of a rate: without the tokens that have been refunded, and only without those
// that must have been.
func (s *state) usedRate(now int64, a algorithm.Algorithm) (lo, hi int64) {
	left := func(c *charge) int64 { return c.n - c.back }
	most := func(c *charge) int64 { return c.n - c.sure }
	mixed := s.any(refunded) && s.any(func(c *charge) bool { return !fits(c.a, a) })
	bucket, ok := a.(algorithm.TokenBucket)
	if !ok {
		if hi = s.usedBy(now, a, most); mixed { // a refund does not undo what was rounded up
			hi = max(s.usedBy(now-2, a, most), 1)
		}
		return s.usedBy(now+s.free, a, left), hi
	}
	if mixed { // when the period began is not known
		return 0, 1 << 50
	}
	lo, hi = s.usedBy(now, a, left), s.usedBy(now, a, most)
	if s.refunds > 0 { // another period
		hi += phase(bucket)
	}
	if s.stepped { // a decision made it last what was refilled before the step
		for _, c := range s.charges {
			lo -= c.back
		}
		lo = min(lo, s.usedBy(now, a, func(c *charge) int64 { return c.n }))
	}
	return max(lo-s.free, 0), hi
}
