package compose

import (
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// A Direct is a decision on values in the memory of the process. It decides as the Go form
// does, but has no arguments and no reply. Program.CanDirect says which verbs it supports.
//
// A store locks all keys, and then makes these calls:
//
//  1. Load for each rule.
//  2. Decide.
//  3. Change for each rule, if Decide returned true. The store writes the results.
//
// Load and Decide call Meters, which can be third-party code and can panic. So the store
// writes nothing before Decide has returned.
type Direct struct {
	Program *Program
	Verb    Verb
	Call    *Call
	Outcome // the caller sets Turns, with one Turn for each rule

	slack time.Duration
}

// A Turn is the part of one rule in a [Direct].
type Turn struct {
	// End is the index at which the rule's key ends in the text of all keys, which follow
	// one another. The text is not a field, because it would then be allocated on the heap.
	End int

	// Hash, Shard and Slot say where a store keeps the key. Only the store uses them.
	Hash        uint64
	Shard, Slot int

	cellRun
}

// CanDirect reports whether a [Direct] supports v. Every rule must keep a cell, and v must read
// and write only these cells.
func (p *Program) CanDirect(v Verb) bool { return p.direct && (v == Consume || v == UpTo || v == Peek) }

// Load sets the value of the key of rule i: tag and ints. found is false if the key is missing.
// now is the store's time, and must be the same in each call. If Load returns false, the store
// must run the script with Eval instead, for example because the value is foreign.
func (d *Direct) Load(i int, tag store.Tag, ints []int64, found bool, now int64) bool {
	if d.Now == 0 {
		d.Now = now
		if d.Call.Now > 0 {
			d.Now, d.slack = d.Call.Now, clockSlack
		}
	}
	for _, n := range ints {
		if uint64(n) > 1<<53 { // a Meter with a defect stored it: Program.Outcome returns the error
			return false
		}
	}
	h := &d.Turns[i].cellRun
	h.step = &d.Program.rules[i].step
	return h.load(tag, ints, found, d.Now) && !h.tail
}

// Decide makes the decision. If it returns true, tokens are consumed, and the store must write
// the changes. Change calls no Meter, so it does not panic.
func (d *Direct) Decide() bool {
	d.N = 1
	if d.Verb.upTo() {
		d.N = d.Call.Cost
	}
	at := d.Now + min(d.Call.Wait, d.Program.maxWait)
	for i := range d.Turns {
		h, q := &d.Turns[i].cellRun, &d.Program.rules[i]
		h.settle(d.Now, at)
		d.N = fit(d.Verb, q.Cost > 0, d.tokens(q), h.room, d.N)
	}
	if d.N == 0 || d.Verb == Peek {
		return false
	}
	for i := range d.Turns {
		d.Turns[i].cellRun.take(d.tokens(&d.Program.rules[i]))
	}
	return true
}

// tokens returns the tokens that q consumes.
func (d *Direct) tokens(q *rule) int64 {
	switch {
	case q.Cost > 0:
		return q.Cost
	case d.Verb.upTo():
		return d.N
	}
	return d.Call.Cost
}

// Change returns the new value of the key of rule i: the tag, and the first n integers of the
// cell. ttl is 0 if the key keeps its TTL.
func (d *Direct) Change(i int) (tag store.Tag, c contract.Cell, n int, ttl time.Duration) {
	h := &d.Turns[i].cellRun
	s, c := h.step, h.next
	return s.kind.Tag, c, s.size(&[4]int64{c.A, c.B, c.C, c.D}), h.ttl(d.Now, d.slack)
}
