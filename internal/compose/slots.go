package compose

import (
	"math"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/internal/storekey"
)

// A Query is one call of a [Program].
//
// On a store in the memory of the process, a Query can be decided on the records of its
// keys. It is then decided as the Go form does, but without arguments and without a reply.
// Package weir locks the keys in the store, which finds their records, and calls Decide.
type Query struct {
	Program *Program
	Verb    script.Verb
	Call    Call

	now    int64 // the time of the decision
	take   int64 // 1 if all rules allow the request, 0 otherwise; for UpTo, the tokens that they allow
	stored int64 // the store's time
	slack  int64 // microseconds: see clockSlack
}

// A Slot is the state of one rule in a decision on records. It stays zero if the rule pauses.
type Slot struct {
	cell contract.Cell // the cell at the time of the decision; then the cell after the tokens were consumed
	prev int64         // when the cell that was read ends; MinInt64 if the key is missing
	ends int64         // when cell ends after the tokens were consumed
	room int64         // the result of Meter.Room
	used bool          // the cell that was read is not zero, and has not ended
}

// HasCells reports whether every rule keeps a cell, except rules that pause, of which
// there are fewer. Only then can slots decide.
func (p *Program) HasCells() bool { return p.cells }

// OnlyCells reports whether q reads and writes only cells, so that slots can decide it if
// its Program HasCells.
func (q *Query) OnlyCells() bool {
	return q.Verb == script.Consume || q.Verb == script.UpTo || q.Verb == script.Peek
}

// DecideOnSlots makes the decision, and writes the records. now is the store's time. places
// has one Place for each rule, and slots has one Slot, which is zero. each is empty, or has
// one Result for each rule, which DecideOnSlots sets. If it returns false, it has changed
// neither a record nor a Result, and the store must run the script with Eval instead, for
// example because a key is missing, a value is foreign, or a pause is stored.
//
// It sets a, which is zero, to the answer of the rule that a weir.Result describes. If
// the request is allowed, Delay is the longest of all rules. If it consumes tokens,
// Granted is the result of [Shown.Granted].
//
// It calls Meters, which can be third-party code and can panic. So it writes no record
// before it has called all of them. After a panic, each and a can be partly written.
func (d *Query) DecideOnSlots(now int64, places []storekey.Place, slots []Slot, each []Result, a *Result) bool {
	p := d.Program
	d.stored, d.now, d.take = now, now, 1
	if d.Call.Now > 0 {
		d.now, d.slack = d.Call.Now, clockSlack.Microseconds()
	}
	if d.Verb.TakesUpTo() {
		d.take = d.Call.Cost
	}
	d.Call.Wait = min(d.Call.Wait, p.maxWait)
	places, slots = places[:len(p.rules)], slots[:len(p.rules)]
	if !d.read(places, slots) {
		return false
	}
	if d.take > 0 && d.Verb != script.Peek {
		d.consume(slots, each, a)
		d.write(places, slots)
		return true
	}
	d.answer(slots, each, a)
	for i := range places {
		if r := places[i].Record; d.Verb != script.Peek && r != nil {
			r.Deny(d.stored)
		}
	}
	return true
}

// read reads and advances the cells of slots, and lowers d.take to the tokens that all
// rules allow. It returns false if Eval must decide.
func (d *Query) read(places []storekey.Place, slots []Slot) bool {
	now, at, stored, n, rules := d.now, d.now+d.Call.Wait, d.stored, d.take, d.Program.rules[:len(slots)]
	for i := range slots {
		sl, q := &slots[i], &rules[i]
		r, s := places[i].Record, &q.step
		if q.pauses() {
			if r != nil && r.Expires > stored {
				return false
			}
			continue
		}
		if r == nil {
			return false
		}
		m := s.meter
		var c contract.Cell
		sl.prev = math.MinInt64
		if r.Expires > stored {
			if c = recordCell(r); !s.fits(r, &c) {
				return false
			}
			if sl.prev = m.Ends(c); sl.prev > now {
				sl.used = c != contract.Cell{}
			} else {
				c = contract.Cell{}
			}
		} else if int(r.Len) > len(r.Ints) {
			return false
		}
		c = m.Advance(now, c)
		sl.cell, sl.room = c, m.Room(now, at, c)
		n = fit(d.Verb, q.own(), q.costOf(d.Verb, n, &d.Call), sl.room, n)
		if n > 0 && uint64(q.costOf(d.Verb, n, &d.Call)-1) >= uint64(q.Limit.Capacity) {
			return false // a Meter with a defect, or an amount of 0, which leaves the value as it is
		}
	}
	d.take = n
	return true
}

// consume consumes the tokens: it sets the next cells, and the answers.
func (d *Query) consume(slots []Slot, each []Result, a *Result) {
	now, wait, rules := d.now, d.Call.Wait, d.Program.rules[:len(slots)]
	shown := Shown{Allowed: true}
	for i := range slots {
		sl, q := &slots[i], &rules[i]
		m, cost, delay := q.step.meter, q.costOf(d.Verb, d.take, &d.Call), time.Duration(0)
		if q.pauses() {
			if shown.Add(i, math.MaxInt64, 0, 0); len(each) > 0 {
				q.open(&each[i])
				each[i].Granted = cost
			}
			continue
		}
		if wait > 0 {
			delay = contract.Micros(max(m.Ready(now, sl.cell, cost, 0)-now, 0))
		}
		c := m.Take(sl.cell, cost)
		sl.cell, sl.ends = c, m.Ends(c)
		left := min(max(m.Room(now, now, c), 0), q.Limit.Capacity)
		shown.Add(i, left, 0, delay)
		shown.Grant(q.follows, cost)
		if len(each) > 0 {
			each[i] = Result{
				Allowed: true, Granted: cost, Delay: delay, Rule: q.Name, Limit: q.Limit.Capacity, Window: q.Limit.Window,
				Remaining: left, ResetAfter: sl.resetAfter(now),
			}
		}
	}
	q := &rules[shown.Rule]
	granted, ok := shown.Granted()
	if !ok {
		granted = q.costOf(d.Verb, d.take, &d.Call)
	}
	a.Allowed, a.Granted, a.Delay, a.Rule, a.Limit, a.Window = true, granted, shown.Delay, q.Name, q.Limit.Capacity, q.Limit.Window
	a.Remaining, a.ResetAfter = shown.remaining, slots[shown.Rule].resetAfter(now)
}

// resetAfter returns the time until the rule is fully reset, after consume.
func (sl *Slot) resetAfter(now int64) time.Duration { return contract.Micros(max(sl.ends-now, 0)) }

// answer sets the answers of a request that consumes nothing.
func (d *Query) answer(slots []Slot, each []Result, a *Result) {
	shown := Shown{Allowed: d.take > 0}
	var other Result
	for i := range slots {
		sl, q, one := &slots[i], &d.Program.rules[i], a
		if i > 0 {
			other, one = Result{}, &other
		}
		left := int64(math.MaxInt64)
		if q.pauses() {
			q.open(one)
		} else {
			q.resultOfCell(one, d.now, sl.cell, sl.room, sl.used, q.costOf(d.Verb, d.take, &d.Call), d.Call.Wait)
			left = one.Remaining
		}
		if len(each) > 0 {
			each[i] = *one
		}
		if shown.Add(i, left, one.RetryAfter, one.Delay); shown.Rule == i && i > 0 {
			*a = other
		}
	}
	a.Delay = shown.Delay
}

// open sets out, which is zero, to the answer of a rule that pauses, for an open key.
func (r *rule) open(out *Result) {
	out.Allowed, out.Type, out.Rule, out.Limit, out.Remaining = true, contract.PauseRule, r.Name, r.Limit.Capacity, r.Limit.Capacity
}

// write writes the next cells to the records.
func (d *Query) write(places []storekey.Place, slots []Slot) {
	rules := d.Program.rules[:len(slots)]
	for i := range slots {
		sl, s := &slots[i], &rules[i].step
		if s.meter == nil {
			continue
		}
		r := places[i].Record
		s.setRecord(r, &sl.cell)
		if d.slack > 0 || s.writesTTL(sl.prev, sl.ends) {
			r.Expires = d.stored + lifeMicros(d.now, sl.ends) + d.slack
		}
	}
}

// recordCell returns the integers of r as a cell.
func recordCell(r *storekey.Record) contract.Cell {
	return contract.Cell{A: r.Ints[0], B: r.Ints[1], C: r.Ints[2], D: r.Ints[3]}
}

// fits reports whether c, the cell of r, is one that the rule wrote. A Meter with a
// defect can have stored a larger integer: Program.Parse returns the error.
func (s *step) fits(r *storekey.Record, c *contract.Cell) bool {
	n := int(r.Len)
	return uint64(c.A|c.B|c.C|c.D) < 1<<53 && r.Tag == s.kind.Tag && (n == s.short || n == s.cell)
}

// setRecord sets the value of r to c.
func (s *step) setRecord(r *storekey.Record, c *contract.Cell) {
	// One by one, because a processor waits when it reads more bytes at once than were
	// written at once.
	all := &s.all
	r.Ints[0], r.Ints[1], r.Ints[2], r.Ints[3] = c.A&all.A, c.B&all.B, c.C&all.C, c.D&all.D
	r.Tag, r.Len, r.Denied = s.kind.Tag, uint8(s.size(c)), false
}
