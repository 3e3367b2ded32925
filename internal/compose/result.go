package compose

import (
	"cmp"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
)

// A Result is one rule's answer to a call. Its fields are those of a weir.Result, so
// package weir converts pointers to Results into pointers to Answers, in one function. A
// decision in memory thus writes the Result of the caller while it holds the lock: a
// processor waits if a struct is copied right after its fields were written.
type Result struct {
	Allowed    bool              // the rule allows the request
	Replayed   bool              // only package weir uses it
	Type       contract.RuleType // the zero value for every rule that keeps a cell
	Granted    int64             // the tokens consumed from the rule
	Delay      time.Duration     // if allowed, the time until the tokens are available; otherwise Never
	Rule       string            // Rule.Name
	Limit      int64
	Window     time.Duration
	Remaining  int64
	RetryAfter time.Duration
	ResetAfter time.Duration
	Degraded   error // this package does not set it
	Shadow     error // only package weir uses it
}

// deny makes a a denial with this RetryAfter.
func (a *Result) deny(retry time.Duration) {
	a.Allowed, a.Delay, a.RetryAfter = false, contract.Never, retry
}

// Result returns the answer of rule i to the call c. o is the parsed reply of v.
func (p *Program) Result(i int, v script.Verb, o *Reply, c *Call) (out Result) {
	r := &p.rules[i]
	a := contract.Ask{Cost: r.costOf(v, o.Granted, c), Wait: min(c.Wait, p.maxWait)}
	if v.Forces() {
		a.Wait = 0
	}
	switch {
	case o.Replayed && r.layout.Leases() && p.again(v, o, c): // it holds a lease now
		consumed := Reply{Allowed: true, Now: o.Now, ints: o.ints}
		return p.Result(i, script.Consume, &consumed, c)
	case o.Replayed:
		return p.replayed(i, v, o, a, c)
	}
	granted := func(room int64) int64 {
		switch {
		case v.Forces() && !r.own():
			return o.Granted
		case v.Forces() && r.layout.Leases():
			return 0
		case v.Forces() && r.costBy == CostUnit:
			return max(min(a.Cost, room+r.Limit.MaxDebt), 0)
		case v.Forces():
			return max(min(r.Cost, room+p.ownDebt), 0)
		case o.Allowed && v != script.Peek:
			return a.Cost
		}
		return 0
	}
	switch {
	case r.step.raw != nil:
		a.Text, a.Renew = c.Text, v == script.Renew
		s := r.stateIn(o)
		room := r.step.raw.Room(o.Now, s, a)
		out.Granted = granted(room)
		own := r.step.raw.Answer(o.Now, s, out.Granted, a)
		out.Type, out.Rule, out.Limit, out.Window, out.Remaining, out.ResetAfter = r.Limit.Kind.Type(), r.Name, own.Limit, own.Window, own.Remaining, own.ResetAfter
		switch {
		case a.Cost > r.Limit.Capacity && !r.pauses():
			out.deny(contract.Never)
		case room < a.Cost:
			out.deny(own.RetryAfter)
		default:
			out.Allowed = true
		}
	default:
		h := cellRun{step: &r.step, cell: cellOf(o.ints[r.state : r.state+r.ints])}
		h.used = h.cell != contract.Cell{} && r.step.meter.Ends(h.cell) > o.Now
		if !h.used {
			h.cell = contract.Cell{}
		}
		h.advance(o.Now, o.Now+a.Wait)
		if out.Granted = granted(h.room); out.Granted > 0 {
			h.take(out.Granted)
		}
		r.resultOfCell(&out, o.Now, h.cell, h.room, h.used && out.Granted == 0, a.Cost, a.Wait)
		if out.Granted > 0 {
			out.Remaining = min(max(r.step.meter.Room(o.Now, o.Now, h.next), 0), out.Limit)
			out.ResetAfter = contract.Micros(max(h.ends-o.Now, 0))
		}
	}
	if v.Forces() {
		out.Allowed, out.Delay, out.RetryAfter = true, 0, 0
	}
	return out
}

// stateIn returns the State of r, which has a Step, in a reply.
func (r *rule) stateIn(o *Reply) (s contract.State) {
	for i, n := range o.ints[r.state : r.state+r.ints] {
		s[i] = n.Int()
	}
	return s
}

// costOf returns the tokens that the call c consumes from r if it is allowed. n is the
// number of tokens for an UpTo.
func (r *rule) costOf(v script.Verb, n int64, c *Call) int64 {
	if r.own() {
		if r.costBy == CostOwn {
			return r.Cost
		}
		return c.Amounts[r.Unit-1]
	}
	if v.TakesUpTo() {
		return max(n, 1)
	}
	return c.Cost
}

// replayed returns the answer of rule i to a repeated decision: the current state, and
// what the decision consumed. If its tokens are not available within a.Wait, or the key
// is paused, the answer is a denial. With a bill, only a missing lease or a pause denies it.
func (p *Program) replayed(i int, v script.Verb, o *Reply, a contract.Ask, c *Call) (out Result) {
	r := &p.rules[i]
	peek := Reply{Allowed: true, Now: o.Now, ints: o.ints}
	out = p.Result(i, script.Peek, &peek, &Call{Cost: 1, Text: c.Text, Amounts: &Amounts{}})
	if (r.pauses() || r.layout.Leases()) && !v.Forces() && !out.Allowed { // the caller has not gone ahead
		return out
	}
	out.Allowed, out.Delay, out.RetryAfter, out.Granted = true, 0, 0, o.Granted
	spent := o.ints[r.spent : r.spent+2+r.ints]
	n, changed, meter := spent[0].Int(), spent[1].Int() > 0, r.step.meter
	switch {
	case r.layout.Leases(): // a Force takes none
		out.Granted = 0
	case r.costBy == CostOwn:
		out.Granted = cmp.Or(n, r.Cost) // a Force can have consumed less than the Cost
	case r.costBy == CostUnit && n == 0: // the rule has no marker
		out.Granted = a.Cost
	case r.costBy == CostUnit:
		n--
		if out.Granted = n; spent[1].Int() == 2 {
			n = 0
		}
	}
	if n > 0 && meter != nil && r.step.kind.Reserves && !v.Forces() && !p.source.Bills { // with a bill, the store has taken the lease
		before := meter.Take(cellOf(spent[2:]), -n)
		left := max(meter.Ready(o.Now, before, n, 0)-o.Now, 0)
		if changed { // an estimate, because the turn was another limit's
			left = min(left, a.Wait)
		}
		if out.Delay = contract.Micros(left); left > a.Wait {
			out.deny(contract.Micros(left - a.Wait))
			out.Granted = 0
		}
	}
	return out
}

// again reports whether a repeated decision has taken or renewed its leases: all rules that
// hold leases or pause keys had room for it.
func (p *Program) again(v script.Verb, o *Reply, c *Call) bool {
	for i := range p.rules {
		if r := &p.rules[i]; r.layout.Leases() || r.pauses() {
			cost := r.costOf(v, 1, c)
			if r.step.raw.Room(o.Now, r.stateIn(o), contract.Ask{Cost: cost, Text: c.Text}) < cost {
				return false
			}
		}
	}
	return !v.Forces()
}

// resultOfCell sets out, which is zero, to the answer of a rule that keeps a cell, before
// any tokens are consumed. c is the advanced cell, and room is its Room at now plus wait.
// If used is true, the cell that was read is not zero and has not ended, and resultOfCell
// sets ResetAfter.
func (r *rule) resultOfCell(out *Result, now int64, c contract.Cell, room int64, used bool, cost, wait int64) {
	m := r.step.meter
	out.Rule, out.Limit, out.Window = r.Name, r.Limit.Capacity, r.Limit.Window
	switch {
	case cost > r.Limit.Capacity:
		out.deny(contract.Never)
	case room >= cost:
		out.Allowed = true
		if wait > 0 {
			out.Delay = contract.Micros(max(m.Ready(now, c, cost, 0)-now, 0))
		}
	default:
		out.deny(contract.Micros(max(m.Ready(now, c, cost, wait)-now, 1)))
	}
	if wait > 0 {
		room = m.Room(now, now, c)
	}
	out.Remaining = min(max(room, 0), out.Limit)
	if used {
		out.ResetAfter = contract.Micros(max(m.Ends(c)-now, 0))
	}
}

// cellOf returns the cell of ints.
func cellOf(ints []store.Value) contract.Cell {
	var n [4]int64
	for i, v := range ints {
		n[i] = v.Int()
	}
	return toCell(n[:])
}
