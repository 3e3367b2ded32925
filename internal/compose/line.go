package compose

import (
	"math"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/storekey"
)

// This file repeats what slots.go does for the most frequent decision: a Consume without
// options by one rule. Straight-line code keeps the state of the rule in registers, and
// takes three quarters of the time. Its caller is weir.Limiter.Decide. A test of package
// weir compares its answers and values with those of scripts.

// DecideInLine decides a Consume of cost tokens by the only rule of p, which keeps a cell
// and has no Cost. It writes the record r, and the answer a, which is zero. now is the
// store's time. If it returns false, it has written nothing, and the store must run the
// script with Eval. It does what [Query.DecideOnSlots] does.
func (p *Program) DecideInLine(now int64, r *storekey.Record, cost int64, a *Result) bool {
	q := &p.rules[0]
	s := &q.step
	m, used, prev := s.meter, false, int64(math.MinInt64)
	var c contract.Cell
	if r.Expires > now {
		if c = recordCell(r); !s.fits(r, &c) {
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
	c = m.Advance(now, c)
	switch room := m.Room(now, now, c); {
	case room < cost:
		q.resultOfCell(a, now, c, room, used, cost, 0)
		r.Deny(now)
		return true
	case cost > q.Limit.Capacity:
		return false // a Meter with a defect
	}
	c = m.Take(c, cost)
	ends := m.Ends(c)
	a.Allowed, a.Granted, a.Rule, a.Limit, a.Window = true, cost, q.Name, q.Limit.Capacity, q.Limit.Window
	a.Remaining = min(max(m.Room(now, now, c), 0), q.Limit.Capacity)
	a.ResetAfter = contract.Micros(max(ends-now, 0))
	s.setRecord(r, &c)
	if s.writesTTL(prev, ends) {
		r.Expires = now + lifeMicros(now, ends)
	}
	return true
}
