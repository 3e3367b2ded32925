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
	open      int64 // tokens of calls that are under way
	openBack  int64 // tokens of refunds that are under way
	suspended bool  // a fault can lose tokens, so nothing is judged
	epoch     int   // how often the ledger was suspended or resumed
}

// A mark has the sums when a call began.
type mark struct {
	granted, refunded int64
	epoch             int
}

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
type bounds struct {
	low, high int64
	void      bool // they say nothing, because tokens can be lost
}

// begin notes that a call begins, which asks for cost tokens and to refund back tokens.
func (l *ledger) begin(cost, back int64) mark {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun += cost
	l.refunding += back
	l.open += cost
	l.openBack += back
	return mark{l.granted, l.refunded, l.epoch}
}

// end notes what a call did, and returns the bounds.
func (l *ledger) end(m mark, e effect) bounds {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open -= e.cost
	l.openBack -= e.back
	l.begun += e.repeats * e.cost
	b := bounds{
		low:  m.granted - (l.refunding - e.back),
		high: l.begun - e.cost - m.refunded,
		void: l.suspended || m.epoch != l.epoch,
	}
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

// A snapshot has the sums at an instant: at least those, and at most those.
type snapshot struct{ granted, mostGranted, refunded, mostRefunded int64 }

// suspend ends all judgement, or resumes it.
func (l *ledger) suspend(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.suspended = on
	l.epoch++
}

// snapshot returns the sums now. A reply can have been sent that its caller has not seen.
func (l *ledger) snapshot() snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	return snapshot{l.granted, l.granted + l.open, l.refunded, l.refunded + l.openBack}
}

// forgive allows that all is lost between two snapshots. It returns how many tokens that is at
// most.
func (l *ledger) forgive(from, to snapshot) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := to.mostGranted - from.granted
	l.granted -= n
	l.refunded -= to.mostRefunded - from.refunded
	return n
}
