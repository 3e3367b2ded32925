package compose

import (
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// A Direct is a decision on values in the memory of the process. It is what the Go form
// does, without arguments and a reply. Program.CanDirect says which verbs it can do.
//
// A store, which holds the locks of all keys,
//  1. calls Load for each rule;
//  2. calls Decide, which calls the Meters. They are third-party code and can panic, so
//     nothing has been written by then;
//  3. calls Change for each rule if Decide returned true, and writes its results.
type Direct struct {
	Program *Program
	Verb    Verb
	Call    *Call
	Outcome // of which the caller sets Turns, one for each rule

	slack time.Duration
}

// A Turn is one rule's part in a [Direct].
type Turn struct {
	// End is where the rule's key ends in the text of all keys, one behind the other. The
	// text is no field, because the compiler would then allocate it.
	End int

	// Hash, Shard and Slot say where a store keeps the key. Only the store uses them.
	Hash        uint64
	Shard, Slot int

	cellRun
}

// CanDirect reports whether a [Direct] can do v: every rule keeps a cell, and nothing but
// that cell is read or written.
func (p *Program) CanDirect(v Verb) bool { return p.direct && (v == Consume || v == UpTo || v == Peek) }

// Load hands the value of its key to rule i: a tag and integers, if the key was found. It
// reports false if Eval has to decide, for example because the value is foreign. now is
// the store's time, and must be the same in each call.
func (d *Direct) Load(i int, tag store.Tag, ints []int64, found bool, now int64) bool {
	if d.Now == 0 {
		d.Now = now
		if d.Call.Now > 0 {
			d.Now, d.slack = d.Call.Now, clockSlack
		}
	}
	for _, n := range ints {
		if uint64(n) > 1<<53 { // a broken Meter stored it: Program.Outcome returns the error
			return false
		}
	}
	h := &d.Turns[i].cellRun
	h.step = &d.Program.rules[i].step
	return h.load(tag, ints, found, d.Now) && !h.tail
}

// Decide decides, and reports whether the rules consume. The store must then make the
// changes. An algorithm can panic in Decide, but not in Change.
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

// tokens is what q consumes.
func (d *Direct) tokens(q *rule) int64 {
	switch {
	case q.Cost > 0:
		return q.Cost
	case d.Verb.upTo():
		return d.N
	}
	return d.Call.Cost
}

// Change returns the value of the key of rule i after the decision: its tag, and the first
// n integers of the cell. The TTL is 0 if the key keeps its own.
func (d *Direct) Change(i int) (tag store.Tag, c contract.Cell, n int, ttl time.Duration) {
	h := &d.Turns[i].cellRun
	s, c := h.step, h.next
	return s.kind.Tag, c, s.size(&[4]int64{c.A, c.B, c.C, c.D}), h.ttl(d.Now, d.slack)
}
