package histories

import (
	"slices"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/model"
)

// A charge is a number of tokens that one decision consumed from one rule at once.
type charge struct {
	of      owner
	at      int64
	a       algorithm.Algorithm
	n, back int64        // consumed, and refunded
	sure    int64        // the part of back that must have been refunded
	tally   *model.Tally // the window, the bucket or the entry that counts it; nil for a rate
	lost    bool         // the entry may have been removed
	other   bool         // another limit decided afterwards
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
	windows  model.Model // of a window, a log or buckets; nil until tokens are consumed
	charges  []*charge
	version  int   // counts the changes, and refunds that may have changed nothing
	consumed int   // counts the other changes
	mixed    bool  // other buckets were used, some of which a Reset does not delete
	loose    bool  // the documentation does not say what is left
	refunds  int   // since a rate had all tokens
	empty    bool  // a refund may have left no tokens in use of a rate, and the key is then deleted
	stepped  bool  // the clock stepped back since then
	mess     bool  // a rate had a refund that was not of its newest decision
	free     int64 // how much may be free beyond the lower bound: microseconds, or tokens of a TokenBucket
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

// any reports whether there is such a charge.
func (s *state) any(such func(c *charge) bool) bool { return slices.ContainsFunc(s.charges, such) }

// advance puts the state under the limit a. It notes whether the documentation says what a
// makes of it, and which entries of a log have left the window by now, so that they may be
// removed.
func (s *state) advance(now int64, a algorithm.Algorithm) {
	if s.windows == nil && !model.Rated(a) {
		s.windows = model.New(a)
	} else if s.windows != nil {
		s.windows.Set(a)
	}
	switch a := a.(type) {
	case algorithm.SlidingCounter:
		s.loose = s.loose || s.any(func(c *charge) bool { return c.n > c.back && !fits(c.a, a) })
	case algorithm.SlidingBuckets:
		edge := now - now%a.Width.Microseconds() // or the newest bucket in use, if the clock is before it
		for _, c := range s.charges {
			if c.n > c.back {
				edge = max(edge, c.tally.At)
			}
		}
		// If a later bucket is empty again, what it has replaced is not known.
		s.loose = s.loose || s.any(func(c *charge) bool { return c.tally.At > edge || !fits(c.a, a) })
		s.mixed = s.mixed || s.loose
	case algorithm.SlidingLog:
		// An entry whose tokens were all refunded may have been removed.
		s.loose = s.loose || s.any(func(c *charge) bool { return c.tally.At > now && (c.lost || c.n == c.back) })
	}
}

// entered returns when the window of a log begins. It ends with the newest entry if the clock
// is before that.
func (s *state) entered(now int64, a algorithm.SlidingLog) int64 {
	for _, c := range s.charges {
		now = max(now, c.tally.At)
	}
	return now - a.Window.Microseconds()
}

// lose notes that entries of a log which have left the window may be removed.
func (s *state) lose(now int64, a algorithm.Algorithm) {
	if a, ok := a.(algorithm.SlidingLog); ok {
		from := s.entered(now, a)
		for _, c := range s.charges {
			c.lost = c.lost || c.tally.At <= from
		}
	}
}

// consume consumes n tokens.
func (s *state) consume(now int64, a algorithm.Algorithm, of owner, n int64) *charge {
	c := &charge{of: of, at: now, a: a, n: n}
	s.version, s.consumed = s.version+1, s.consumed+1
	if s.advance(now, a); s.windows == nil {
		s.consumeRate(now, a)
	} else {
		s.lose(now, a)
		c.tally = s.windows.Take(now, n)
		if a, ok := a.(algorithm.SlidingCounter); ok {
			s.charges = slices.DeleteFunc(s.charges, func(e *charge) bool { return e.tally.At < c.tally.At-a.Window.Microseconds() })
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
	if s.windows == nil {
		return s.refundRate(now, a, c, k, sure, stepped)
	}
	s.advance(now, a)
	s.lose(now, a)
	if c.lost {
		return false, c.tally.At > s.entered(now, a.(algorithm.SlidingLog))
	}
	if !model.Refund(s.windows, now, c.tally, k) && !s.loose {
		return false, false
	}
	c.back += k
	if _, log := a.(algorithm.SlidingLog); log && c.back == c.n && c == s.charges[len(s.charges)-1] {
		s.charges = s.charges[:len(s.charges)-1]
	}
	return !s.loose, true
}

// used returns the bounds of the tokens in use.
func (s *state) used(now int64, a algorithm.Algorithm) (lo, hi int64) {
	if s.advance(now, a); s.windows == nil {
		lo, hi = s.usedRate(now, a)
	} else {
		spans := s.windows.Spans()
		lo = s.windows.Used(now, slices.MaxFunc(spans, longer))
		hi = lo
	}
	if a, ok := a.(algorithm.SlidingLog); ok {
		from := s.entered(now, a)
		for _, c := range s.charges {
			if c.lost && c.tally.At > from {
				lo -= c.n - c.back
			}
		}
	}
	if s.loose {
		return 0, 1 << 50
	}
	return min(lo, hi), hi
}
