package soak

import "sync"

// A ledger has two bounds of the tokens that a limit holds as consumed. The sums below only
// grow, except that a call that surely consumed or refunded nothing is taken out of begun or
// refunding. At any instant, the limit holds at least granted − refunding tokens, and at most
// begun − refunded.
type ledger struct {
	mu        sync.Mutex
	begun     int64 // tokens of calls that began, and can have consumed them
	granted   int64 // tokens of calls that returned, and were granted them
	refunding int64 // tokens of refunds that began, and can have refunded them
	refunded  int64 // tokens of refunds that returned, and surely refunded them
}

// A mark has the sums when a call began.
type mark struct{ granted, refunded int64 }

// An effect is what a call did.
type effect struct {
	cost, granted int64 // tokens that it asked for, and was granted
	back          int64 // tokens that it asked to refund
	refunded      int64 // tokens that were surely refunded
	unknown       bool  // nobody knows whether it was made
	repeats       int64 // how many more times it can have been made
	kept          bool  // it surely refunded nothing
	resolved      int64 // tokens of an earlier call without a reply, which was the same decision
}

// bounds are the bounds of the tokens that a limit held at any instant of a call, without
// those of the call itself.
type bounds struct{ low, high int64 }

// begin notes that a call begins, which asks for cost tokens and to refund back tokens.
func (l *ledger) begin(cost, back int64) mark {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun += cost
	l.refunding += back
	return mark{l.granted, l.refunded}
}

// end notes what a call did, and returns the bounds.
func (l *ledger) end(m mark, e effect) bounds {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun += e.repeats * e.cost
	b := bounds{low: m.granted - (l.refunding - e.back), high: l.begun - e.cost - m.refunded}
	if e.unknown {
		return b
	}
	l.begun -= e.cost - e.granted + e.resolved
	l.granted += e.granted
	l.refunded += e.refunded
	if e.kept {
		l.refunding -= e.back
	}
	return b
}

// reset notes a reset, while no other call is under way. A call without a reply can still
// consume tokens after it.
func (l *ledger) reset(unknown bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	high := l.begun - l.refunded
	if !unknown {
		high -= l.granted - l.refunding
	}
	l.begun, l.granted, l.refunding, l.refunded = max(high, 0), 0, 0, 0
}
