package compose

import (
	"math"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/storekey"
	"github.com/weir-go/weir/store"
)

// A Direct is a decision on values in the memory of the process. It decides as the Go form
// does, but has no arguments and no reply. CanDecide says which verbs it supports.
//
// A store locks the keys of all turns, sets Turn.Record for each, and calls Decide.
type Direct struct {
	Program *Program
	Verb    Verb
	Call    Call
	Outcome // Decide sets it

	stored int64         // the store's time
	slack  time.Duration // see clockSlack
}

// A Turn is the part of one rule in a [Direct].
type Turn struct {
	Key    storekey.Key
	Record *Record // the value of Key; the store sets it
	Answer         // the answer of the rule; Decide sets it

	cellRun
}

// A Record is a value in the memory of the process: up to four integers.
type Record struct {
	Ints    [4]int64 // those after the first Len are 0
	Expires int64    // microseconds since the epoch
	Extra   uint32   // only the store uses it
	Tag     store.Tag
	Len     uint8 // the number of integers; a larger one marks a value that is not in Ints
	Denied  bool  // the last request that could have changed the value was denied
}

// CanDecide reports whether Decide supports the verb. Every rule must keep a cell, and the verb
// must read and write only these cells.
func (d *Direct) CanDecide() bool {
	return d.Program.direct && (d.Verb == Consume || d.Verb == UpTo || d.Verb == Peek)
}

// Decide makes the decision, and writes the records. now is the store's time. turns has one Turn
// for each rule, in which only Key and Record are set. If Decide returns false, it has changed no
// record, and the store must run the script with Eval instead, for example because a value is
// foreign.
//
// Decide calls Meters, which can be third-party code and can panic. So it writes nothing before
// it has called all of them.
func (d *Direct) Decide(now int64, turns []Turn) bool {
	p := d.Program
	d.stored, d.Now, d.N = now, now, 1
	if d.Call.Now > 0 {
		d.Now, d.slack = d.Call.Now, clockSlack
	}
	if d.Verb.upTo() {
		d.N = d.Call.Cost
	}
	d.Call.Wait = min(d.Call.Wait, p.maxWait)
	turns = turns[:len(p.rules)]
	for i := range turns {
		if !d.read(&turns[i], &p.rules[i]) {
			return false
		}
	}
	for i := range turns {
		d.answer(&turns[i], &p.rules[i])
	}
	if d.Verb != Peek {
		for i := range turns {
			d.write(&turns[i])
		}
	}
	return true
}

// read reads and settles the cell of q, and lowers d.N to the tokens that q allows. It returns
// false if Eval must decide. It does what cellRun.load and settle do, but takes less time.
func (d *Direct) read(t *Turn, q *rule) bool {
	r, s := t.Record, &q.step
	t.step, t.prev = s, math.MinInt64
	m := s.meter
	var c contract.Cell
	if r.Expires > d.stored {
		c = contract.Cell{A: r.Ints[0], B: r.Ints[1], C: r.Ints[2], D: r.Ints[3]}
		// A Meter with a defect stored a larger integer: Program.Outcome returns the error.
		small := uint64(c.A|c.B|c.C|c.D) < 1<<53
		if n := int(r.Len); !small || r.Tag != s.kind.Tag || n != s.short && n != s.cell {
			return false
		}
		if t.prev = m.Ends(c); t.prev > d.Now {
			t.used = c != contract.Cell{}
		} else {
			c = contract.Cell{}
		}
	} else if int(r.Len) > len(r.Ints) {
		return false
	}
	t.cell = m.Settle(d.Now, c)
	t.room = m.Room(d.Now, d.Now+d.Call.Wait, t.cell)
	d.N = fit(d.Verb, q.Cost > 0, d.asked(q), t.room, d.N)
	return true
}

// answer sets the answer of q. If the request consumes tokens, answer sets the next cell too.
func (d *Direct) answer(t *Turn, q *rule) {
	cost := d.asked(q)
	if d.N > 0 && d.Verb != Peek {
		t.take(cost)
		t.Granted = cost
	}
	q.answerCell(&t.Answer, d.Now, &t.cellRun, cost, d.Call.Wait)
}

// write writes the next cell to the record. If the request is denied, it only marks the record.
func (d *Direct) write(t *Turn) {
	r, c, all := t.Record, &t.next, &t.step.all
	if d.N == 0 {
		r.Denied = r.Denied || r.Expires > d.stored
		return
	}
	// One by one, because a processor waits when it reads more bytes at once than were
	// written at once.
	r.Ints[0], r.Ints[1], r.Ints[2], r.Ints[3] = c.A&all.A, c.B&all.B, c.C&all.C, c.D&all.D
	r.Tag, r.Len, r.Denied = t.step.kind.Tag, uint8(t.step.size(c)), false
	if ttl := t.ttl(d.Now, d.slack); ttl > 0 {
		r.Expires = d.stored + ttl.Microseconds()
	}
}

// asked returns the tokens that the call asks of q.
func (d *Direct) asked(q *rule) int64 { return q.asked(d.Verb, d.N, d.Call.Cost) }
