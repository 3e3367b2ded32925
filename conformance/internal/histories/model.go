package histories

import (
	"slices"

	"github.com/weir-go/weir/algorithm"
)

// A charge is a number of tokens that one decision consumed from one rule at once.
type charge struct {
	of      owner
	at      int64
	a       algorithm.Algorithm
	n, back int64 // consumed, and refunded
	sure    int64 // the part of back that must have been refunded
	in      int64 // the window, the bucket or the time of the entry that counts it
	lost    bool  // the entry may have been removed
	other   bool  // another limit decided afterwards
}

// An owner has the mark of a charge: if the unit of a rule changes, a decision has two.
type owner struct {
	*decision
	unit string
}

// A state is what the documentation says of one rule of one key. The states of the windows and
// of the log are exact. Those of the rates have two bounds: tokens that a refund may have
// returned, and tokens that it must have returned.
type state struct {
	charges             []*charge
	edge, count, before int64 // of a window
	version             int   // counts the changes, and refunds that may have changed nothing
	consumed            int   // counts the other changes
	mixed               bool  // other buckets were used, some of which a Reset does not delete
	loose               bool  // the documentation does not say what is left
	refunds             int   // since a rate had all tokens
	empty               bool  // a refund may have left no tokens in use of a rate, and the key is then deleted
	stepped             bool  // the clock stepped back since then
	mess                bool  // a rate had a refund that was not of its newest decision
	free                int64 // how many units may be free beyond the lower bound, in parts of a microsecond, or in tokens of a TokenBucket
}

// clear clears a rule whose limit is a. A Reset does not delete the buckets of a longer span.
func (s *state) clear(a algorithm.Algorithm) {
	if _, ok := a.(algorithm.SlidingBuckets); ok {
		s.advance(0, a)
	}
	*s = state{version: s.version + 1, consumed: s.consumed + 1, mixed: s.mixed, loose: s.mixed}
}

// stepBack is a step back of the clock. At the earlier time, more tokens had not been refilled.
// It is not known which of them refunds before the step returned.
func (s *state) stepBack() {
	s.stepped, s.loose = true, s.loose || s.empty
	for _, c := range s.charges {
		s.slack(c.a, c.back)
		c.sure, s.mess = 0, s.mess || c.back > 0
	}
}

// advance moves the windows to now.
func (s *state) advance(now int64, a algorithm.Algorithm) {
	switch a := a.(type) {
	case algorithm.FixedWindow:
		if s.edge > 0 && now >= s.edge {
			s.edge, s.count, s.before = 0, 0, s.before+1 // before numbers the windows
		}
	case algorithm.SlidingCounter:
		w := a.Window.Microseconds()
		s.loose = s.loose || s.edge%w != 0 || slices.ContainsFunc(s.charges, func(c *charge) bool { return !fits(c.a, a) })
		switch start := now - now%w; {
		case start == s.edge+w:
			s.edge, s.count, s.before = start, 0, s.count
		case start > s.edge:
			s.edge, s.count, s.before = start, 0, 0
		}
	case algorithm.SlidingBuckets:
		w := a.Width.Microseconds()
		s.edge = now - now%w // or the newest bucket in use, if the clock is before it
		for _, c := range s.charges {
			if c.n > c.back {
				s.edge = max(s.edge, c.in)
			}
		}
		s.loose = s.loose || slices.ContainsFunc(s.charges, func(c *charge) bool {
			if c.in > s.edge { // that bucket is empty again: what it has replaced is not known
				return true
			}
			b := c.a.(algorithm.SlidingBuckets)
			return b.Width != a.Width || span(b) != span(a)
		})
		s.mixed = s.mixed || s.loose
	}
}

// consume consumes n tokens.
func (s *state) consume(now int64, a algorithm.Algorithm, of owner, n int64) *charge {
	c := &charge{of: of, at: now, a: a, n: n}
	s.version, s.consumed = s.version+1, s.consumed+1
	s.advance(now, a)
	switch a := a.(type) {
	case algorithm.FixedWindow:
		w := a.Window.Microseconds()
		if s.edge == 0 && !a.Aligned {
			s.edge = now + w
		} else if s.edge == 0 {
			s.edge = now - now%w + w
		} else if a.Aligned && s.edge%w > 0 {
			s.edge += w - s.edge%w
		}
		s.count, c.in = s.count+n, s.before
	case algorithm.SlidingCounter:
		s.count, c.in = s.count+n, s.edge
		s.charges = slices.DeleteFunc(s.charges, func(c *charge) bool { return c.in < s.edge-a.Window.Microseconds() })
	case algorithm.SlidingBuckets:
		c.in = s.edge
	case algorithm.SlidingLog:
		c.in = s.lose(now, a)
	default:
		if _, hi := s.used(now, a); hi == 0 {
			s.charges, s.mess, s.free, s.refunds, s.stepped, s.empty = nil, false, 0, 0, false, false
		}
		back := false
		for _, e := range s.charges {
			e.other = e.other || !fits(e.a, a)
			back = back || e.back > 0
		}
		if _, bucket := a.(algorithm.TokenBucket); bucket && back { // when the period began is not known
			s.loose = s.loose || slices.ContainsFunc(s.charges, func(e *charge) bool { return e.other })
		}
	}
	s.charges = append(s.charges, c)
	return c
}

// refund refunds k tokens of c. It reports whether any must have been refunded, and whether any
// can have been. If sure is false, it is not known whether the decision still held them.
func (s *state) refund(now int64, a algorithm.Algorithm, c *charge, k int64, sure, stepped bool) (must, can bool) {
	if k == 0 || !slices.Contains(s.charges, c) {
		return false, k > 0 && (s.mixed || s.loose)
	}
	s.version++
	switch a := a.(type) {
	case algorithm.FixedWindow:
		if c.in != s.before || now >= s.edge {
			return false, false
		}
		if s.count -= k; s.count == 0 {
			s.advance(s.edge, a)
		}
	case algorithm.SlidingCounter:
		switch c.in {
		case s.edge:
			s.count -= k
		case s.edge - a.Window.Microseconds():
			s.before -= k
		default:
			return false, s.loose
		}
		if s.count == 0 && s.before == 0 {
			s.edge, s.charges = 0, nil
		}
	case algorithm.SlidingBuckets:
		if s.advance(now, a); c.in <= s.edge-span(a).Microseconds() && !s.loose {
			return false, false
		}
		c.back += k
	case algorithm.SlidingLog:
		if at := s.lose(now, a); c.lost {
			return false, c.in > at-a.Window.Microseconds()
		}
		if c.back += k; c.back == c.n && c == s.charges[len(s.charges)-1] {
			s.charges = s.charges[:len(s.charges)-1]
		}
	default:
		return s.refundRate(now, a, c, k, sure, stepped)
	}
	return !s.loose, true
}

// lose notes that entries of a log which have left the window may be removed. It returns the
// end of the window: the time of the newest entry if the clock is before it.
func (s *state) lose(now int64, a algorithm.SlidingLog) (at int64) {
	at = s.newest(now)
	for _, c := range s.charges {
		c.lost = c.lost || c.in <= at-a.Window.Microseconds()
	}
	return at
}

// newest returns the later of now and the time of the newest entry of a log. An entry whose
// tokens were all refunded may have been removed.
func (s *state) newest(now int64) (at int64) {
	at = now
	for _, c := range s.charges {
		at = max(at, c.in)
		s.loose = s.loose || c.in > now && (c.lost || c.n == c.back)
	}
	return at
}

// used returns the bounds of the tokens in use.
func (s *state) used(now int64, a algorithm.Algorithm) (lo, hi int64) {
	view := *s
	view.advance(now, a)
	s.loose = view.loose
	switch a := a.(type) {
	case algorithm.FixedWindow:
		if now < s.edge {
			lo = s.count
		}
		hi = lo
	case algorithm.SlidingCounter:
		w := a.Window.Microseconds()
		lo = view.count + (view.before*min(w, view.edge+w-now)+w-1)/w
		hi = lo
	case algorithm.SlidingBuckets:
		for _, c := range s.charges {
			if c.in > view.edge-span(a).Microseconds() {
				lo += c.n - c.back
			}
		}
		hi = lo
	case algorithm.SlidingLog:
		at := s.newest(now)
		for _, c := range s.charges {
			switch n := c.n - c.back; {
			case c.in <= at-a.Window.Microseconds():
			case c.lost:
				hi += n
			default:
				lo, hi = lo+n, hi+n
			}
		}
	case algorithm.TokenBucket:
		lo, hi = s.bucket(now, a, false), s.bucket(now, a, true)
		if s.refunds > 0 { // another period
			hi += phase(a)
		}
		if s.stepped { // a decision made it last what was refilled before the step
			all := *s
			all.charges = nil
			for _, c := range s.charges {
				all.charges = append(all.charges, &charge{at: c.at, a: c.a, n: c.n})
				lo -= c.back
			}
			lo = min(lo, all.bucket(now, a, true))
		}
		lo = max(lo-s.free, 0)
		if slices.ContainsFunc(s.charges, func(c *charge) bool { return !fits(c.a, a) }) &&
			slices.ContainsFunc(s.charges, func(c *charge) bool { return c.back > 0 }) { // when the period began is not known
			return 0, 1 << 50
		}
	default:
		r, _ := rateOf(a)
		t, q := interval(r)
		units := func(hi bool, free int64) int64 {
			tat, was := s.tat(hi)
			if hi && s.mixes() { // a refund does not undo what was rounded up
				tat = max(tat, now*parts) + 2*parts
			}
			if q != was {
				tat = (tat + parts - 1) / parts * parts
			}
			return max((tat-free-now*parts+t-1)/t, 0)
		}
		lo, hi = units(false, s.free), units(true, 0)
	}
	if s.loose {
		return 0, 1 << 50
	}
	return min(lo, hi), hi
}
