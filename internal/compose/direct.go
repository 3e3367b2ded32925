package compose

import (
	"math"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/internal/storekey"
	"github.com/weir-go/weir/store"
)

// A Direct is a decision on values in the memory of the process. It decides as the Go form
// does, but has no arguments and no reply. CanDecide says which verbs it supports.
//
// A store locks the keys of all turns, sets Turn.Record for each, and calls Decide.
type Direct struct {
	Program *Program
	Verb    script.Verb
	Call    Call

	now    int64 // the time of the decision
	take   int64 // 1 if all rules allow the request, 0 otherwise; for UpTo, the tokens that they allow
	stored int64 // the store's time
	slack  int64 // microseconds: see clockSlack
}

// A Turn is the part of one rule in a [Direct].
type Turn struct {
	Key    storekey.Key
	Record *Record // the value of Key; the store sets it

	cell contract.Cell // the settled cell; then the cell after the tokens were consumed
	prev int64         // when the cell that was read ends; MinInt64 if the key is missing
	ends int64         // when cell ends after the tokens were consumed
	room int64         // the result of Meter.Room
	used bool          // the cell that was read is not zero, and has not ended
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

// Direct reports whether every rule keeps a cell, so that a Direct can decide.
func (p *Program) Direct() bool { return p.direct }

// DecideAlone decides a Consume of cost tokens by the only rule of p, which keeps a cell and has no
// Cost. It writes the record r, and the answer a, which is zero. now is the store's time. If it returns
// false, it has written nothing, and the store must run the script with Eval. It does what
// [Direct.Decide] does, but in a straight line: the state of the rule stays in registers.
func (p *Program) DecideAlone(now int64, r *Record, cost int64, a *Answer) bool {
	q := &p.rules[0]
	s := &q.step
	m, used, prev := s.meter, false, int64(math.MinInt64)
	var c contract.Cell
	if r.Expires > now {
		if c = r.cell(); !s.fits(r, &c) {
			return false
		}
		if prev = m.Ends(c); prev > now {
			used = c != contract.Cell{}
		} else {
			c = contract.Cell{}
		}
	} else if int(r.Len) > len(r.Ints) {
		return false
	}
	c = m.Settle(now, c)
	switch room := m.Room(now, now, c); {
	case room < cost:
		q.answerCell(a, now, c, room, used, cost, 0)
		r.deny(now)
		return true
	case cost > q.Limit.Capacity:
		return false // a Meter with a defect
	}
	c = m.Take(c, cost)
	ends := m.Ends(c)
	a.Allowed, a.Granted, a.Rule, a.Limit, a.Window = true, cost, q.Name, q.Limit.Capacity, q.Limit.Window
	a.Remaining = min(max(m.Room(now, now, c), 0), q.Limit.Capacity)
	a.ResetAfter = contract.Micros(max(ends-now, 0))
	r.set(s, &c)
	if s.writesTTL(prev, ends) {
		r.Expires = now + lifeMicros(now, ends)
	}
	return true
}

// CanDecide reports whether Decide supports the verb. Every rule must keep a cell, and the verb
// must read and write only these cells.
func (d *Direct) CanDecide() bool {
	return d.Program.direct && (d.Verb == script.Consume || d.Verb == script.UpTo || d.Verb == script.Peek)
}

// Decide makes the decision, and writes the records. now is the store's time. turns has one Turn for
// each rule, in which only Key and Record are set. each is empty, or has one Answer for each rule, which
// Decide sets. If Decide returns false, it has changed neither a record nor an Answer, and the store must
// run the script with Eval instead, for example because a value is foreign.
//
// Decide sets a, which is zero, to the answer of the rule that a weir.Result describes. If the request is
// allowed, Delay is the longest of all rules. If it consumes tokens, Granted is what each rule without a
// Cost consumes, if there is one.
//
// Decide calls Meters, which can be third-party code and can panic. So it writes no record before it has
// called all of them. After a panic, each and a can be partly written.
func (d *Direct) Decide(now int64, turns []Turn, each []Answer, a *Answer) bool {
	p := d.Program
	d.stored, d.now, d.take = now, now, 1
	if d.Call.Now > 0 {
		d.now, d.slack = d.Call.Now, clockSlack.Microseconds()
	}
	if d.Verb.TakesUpTo() {
		d.take = d.Call.Cost
	}
	d.Call.Wait = min(d.Call.Wait, p.maxWait)
	turns = turns[:len(p.rules)]
	if !d.read(turns) {
		return false
	}
	if d.take > 0 && d.Verb != script.Peek {
		d.consume(turns, each, a)
		d.write(turns)
		return true
	}
	d.answer(turns, each, a)
	for i := range turns {
		if d.Verb != script.Peek {
			turns[i].Record.deny(d.stored)
		}
	}
	return true
}

// read reads and settles the cells of turns, and lowers d.take to the tokens that all rules allow. It
// returns false if Eval must decide.
func (d *Direct) read(turns []Turn) bool {
	now, at, stored, n, rules := d.now, d.now+d.Call.Wait, d.stored, d.take, d.Program.rules[:len(turns)]
	for i := range turns {
		t, q := &turns[i], &rules[i]
		r, s := t.Record, &q.step
		m := s.meter
		var c contract.Cell
		t.prev = math.MinInt64
		if r.Expires > stored {
			if c = r.cell(); !s.fits(r, &c) {
				return false
			}
			if t.prev = m.Ends(c); t.prev > now {
				t.used = c != contract.Cell{}
			} else {
				c = contract.Cell{}
			}
		} else if int(r.Len) > len(r.Ints) {
			return false
		}
		c = m.Settle(now, c)
		t.cell, t.room = c, m.Room(now, at, c)
		n = fit(d.Verb, q.Cost > 0, q.costOf(d.Verb, n, d.Call.Cost), t.room, n)
		if n > 0 && q.costOf(d.Verb, n, d.Call.Cost) > q.Limit.Capacity {
			return false // a Meter with a defect
		}
	}
	d.take = n
	return true
}

// consume consumes the tokens: it sets the next cells, and the answers.
func (d *Direct) consume(turns []Turn, each []Answer, a *Answer) {
	now, wait, rules := d.now, d.Call.Wait, d.Program.rules[:len(turns)]
	shown, least, longest, granted := 0, int64(math.MaxInt64), time.Duration(0), int64(-1)
	for i := range turns {
		t, q := &turns[i], &rules[i]
		m, cost, delay := q.step.meter, q.costOf(d.Verb, d.take, d.Call.Cost), time.Duration(0)
		if wait > 0 {
			delay = contract.Micros(max(m.Ready(now, t.cell, cost, 0)-now, 0))
			longest = max(longest, delay)
		}
		c := m.Take(t.cell, cost)
		t.cell, t.ends = c, m.Ends(c)
		left := min(max(m.Room(now, now, c), 0), q.Limit.Capacity)
		if left < least {
			shown, least = i, left
		}
		if q.Cost == 0 {
			granted = cost
		}
		if len(each) > 0 {
			each[i] = Answer{
				Allowed: true, Granted: cost, Delay: delay, Rule: q.Name, Limit: q.Limit.Capacity, Window: q.Limit.Window,
				Remaining: left, ResetAfter: t.resetAfter(now),
			}
		}
	}
	q := &rules[shown]
	if granted < 0 {
		granted = q.Cost
	}
	a.Allowed, a.Granted, a.Delay, a.Rule, a.Limit, a.Window = true, granted, longest, q.Name, q.Limit.Capacity, q.Limit.Window
	a.Remaining, a.ResetAfter = least, turns[shown].resetAfter(now)
}

// resetAfter returns the time until the rule is fully reset, after consume.
func (t *Turn) resetAfter(now int64) time.Duration { return contract.Micros(max(t.ends-now, 0)) }

// answer sets the answers of a request that consumes nothing.
func (d *Direct) answer(turns []Turn, each []Answer, a *Answer) {
	for i := range turns {
		t, q := &turns[i], &d.Program.rules[i]
		var one Answer
		q.answerCell(&one, d.now, t.cell, t.room, t.used, q.costOf(d.Verb, d.take, d.Call.Cost), d.Call.Wait)
		if len(each) > 0 {
			each[i] = one
		}
		longest := max(a.Delay, one.Delay)
		if i == 0 || d.take > 0 && one.Remaining < a.Remaining || d.take == 0 && one.RetryAfter > a.RetryAfter {
			*a = one
		}
		a.Delay = longest
	}
}

// write writes the next cells to the records.
func (d *Direct) write(turns []Turn) {
	rules := d.Program.rules[:len(turns)]
	for i := range turns {
		t, s := &turns[i], &rules[i].step
		t.Record.set(s, &t.cell)
		if d.slack > 0 || s.writesTTL(t.prev, t.ends) {
			t.Record.Expires = d.stored + lifeMicros(d.now, t.ends) + d.slack
		}
	}
}

// cell returns the integers of r as a cell.
func (r *Record) cell() contract.Cell {
	return contract.Cell{A: r.Ints[0], B: r.Ints[1], C: r.Ints[2], D: r.Ints[3]}
}

// fits reports whether c, the cell of r, is one that the rule wrote. A Meter with a defect can have
// stored a larger integer: Program.Outcome returns the error.
func (s *step) fits(r *Record, c *contract.Cell) bool {
	n := int(r.Len)
	return uint64(c.A|c.B|c.C|c.D) < 1<<53 && r.Tag == s.kind.Tag && (n == s.short || n == s.cell)
}

// set sets the value of r to c.
func (r *Record) set(s *step, c *contract.Cell) {
	// One by one, because a processor waits when it reads more bytes at once than were
	// written at once.
	all := &s.all
	r.Ints[0], r.Ints[1], r.Ints[2], r.Ints[3] = c.A&all.A, c.B&all.B, c.C&all.C, c.D&all.D
	r.Tag, r.Len, r.Denied = s.kind.Tag, uint8(s.size(c)), false
}

// deny marks r, of which the request was denied.
func (r *Record) deny(stored int64) { r.Denied = r.Denied || r.Expires > stored }
