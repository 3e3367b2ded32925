package compose

import (
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
)

// settle makes the call's cost the cost of the decision of the markers, in all rules
// without a Cost, and each amount of the call in the rules that count its unit.
func (r *run) settle(held []held) (o outcome, err error) {
	var m marks
	ended, err := r.readMarks(&m)
	if !m.found() || err != nil {
		return o, err
	}
	old, asked, kept := r.spent(&m)
	switch o = (outcome{head: 1, cost: old}); {
	case asked > 0 && r.call.Cost >= 0:
		if o, err = r.settleCost(held, &m, ended, old, asked, kept); err != nil {
			return o, err
		}
	case r.call.Cost >= 0:
		for i := range r.rules {
			if q := &r.rules[i]; q.costBy == CostRequest && q.layout.Marker > 0 {
				o.kept |= 1 << i
			}
		}
	}
	if !r.named {
		return o, nil
	}
	for i := range r.rules {
		if r.rules[i].costBy == CostUnit {
			if err := r.settleUnit(i, &held[i], &m[i], ended>>i&1 > 0, &o); err != nil {
				return o, err
			}
		}
		switch n := &m[i]; {
		case n.Len == 0:
		case r.rules[i].costBy == CostOwn:
			o.costs[i] = n.N[script.MarkHeld] + 1
		default:
			o.costs[i] = n.N[script.MarkTotal] + 1
		}
	}
	return o, nil
}

// settleUnit makes the amount of the call, if it is given, the cost of the decision in rule
// i, which counts a unit. The decision has the marker m, which settleUnit changes. If the
// marker is missing, nothing changes.
func (r *run) settleUnit(i int, h *held, m *store.Nums, ended bool, o *outcome) error {
	total, spent := r.amount(&r.rules[i]), m.N[script.MarkTotal]
	switch {
	case total < 0:
		return nil
	case m.Len == 0:
		o.kept |= 1 << i
		return nil
	case total > spent:
		r.measure(i, h)
		total = min(total, spent+max(h.room+r.debt(&r.rules[i]), 0))
	}
	keeps := false
	if total < spent && !ended {
		var err error
		if _, keeps, err = r.giveBack(i, h, m, spent-total); err != nil {
			return err
		}
	}
	switch {
	case keeps:
		o.kept |= 1 << i
		return nil
	case total > spent:
		if err := r.addTo(i, h, m, total-spent, total, m.N[script.MarkAsked]); err != nil {
			return err
		}
	case total < spent:
		m.Tag, m.N[script.MarkTotal] = script.SettledTag, total
		r.tx.Keep(r.rules[i].layout.Marker, *m)
	}
	m.N[script.MarkTotal] = total
	return nil
}

// settleCost makes the call's cost the cost of the decision of the markers, in all rules
// without a Cost or a unit. old is its cost, and asked its ASKED. gone is as in readMarks,
// and kept as in spent.
//
// If a rule has consumed more, its last tokens are refunded. If it keeps them (see
// giveBack), its marker gets KeptTag for a later Settle. If a rule has consumed less, the
// difference is consumed as by a Force, even if the rule's marker has ended, or the rule
// is new. If no rule can be adjusted, nothing changes.
func (r *run) settleCost(held []held, m *marks, gone, old, asked int64, kept bool) (o outcome, err error) {
	fresh := old // what a rule without a marker counts as
	if kept {    // what the other rules paid is not known, so they pay nothing
		fresh = r.call.Cost
	}
	o = outcome{head: 1, cost: r.call.Cost}
	for i := range held {
		if q, h := &r.rules[i], &held[i]; q.layout.Marker > 0 && q.costBy == CostRequest && !r.otherCost(i, &m[i]) {
			if spent := spentBy(&m[i], fresh); o.cost > spent {
				r.measure(i, h) // a Settle has no Wait
				o.cost = min(o.cost, spent+max(h.room+r.call.debt, 0))
			}
		}
	}
	var by [MaxRules]int64                             // the tokens that a rule has to consume, or to refund if negative
	some, ended, change := false, false, o.cost != old // ended: a rule without a marker would refund tokens
	for i := range held {
		switch q, n := &r.rules[i], &m[i]; {
		case q.layout.Marker == 0 || q.costBy == CostUnit:
		case r.otherCost(i, n):
			if spentBy(n, fresh) != o.cost {
				o.kept |= 1 << i
			}
		case q.costBy == CostRequest:
			keeps := false
			if by[i] = o.cost - spentBy(n, fresh); by[i] < 0 && n.Len > 0 && gone>>i&1 == 0 {
				if _, keeps, err = r.giveBack(i, &held[i], n, -by[i]); err != nil {
					return o, err
				}
			}
			switch {
			case keeps:
				o.kept |= 1 << i
			case n.Len == 0 && by[i] < 0:
				ended = true
			default:
				some, change = true, change || by[i] != 0
			}
		}
	}
	if !some && (o.kept > 0 || !ended) {
		o.cost = old
		return o, nil
	}
	for i := range held {
		if q := &r.rules[i]; change && q.layout.Marker > 0 && q.costBy != CostUnit && err == nil {
			err = r.settleRule(i, &held[i], &m[i], by[i], asked, &o)
		}
	}
	return o, err
}

// otherCost reports whether rule i got a Cost, or lost it, since the marker n was written.
func (r *run) otherCost(i int, n *store.Nums) bool {
	return n.Len > 0 && (n.N[script.MarkFit]^r.fit(i))%2 != 0
}

// settleRule consumes by tokens from rule i, unless by is negative, for the decision of the
// marker m, and writes the marker.
func (r *run) settleRule(i int, h *held, m *store.Nums, by, asked int64, o *outcome) error {
	key := r.rules[i].layout.Marker
	switch {
	case by > 0:
		err := r.addTo(i, h, m, by, o.cost, asked)
		m.N[script.MarkTotal], m.Len = o.cost, max(m.Len, 1) // the rule has a marker now
		return err
	case m.Len == 0: // it may have ended: if the clock steps back, its TOTAL must not count again
		r.tx.Del(key)
		return nil
	}
	if m.Tag = script.SettledTag; o.kept>>i&1 > 0 && m.N[script.MarkFit]%2 == 0 {
		m.Tag = script.KeptTag
	} else {
		m.N[script.MarkTotal] = o.cost
	}
	r.tx.Keep(key, *m)
	return nil
}

// addTo consumes k tokens from rule i for the decision of the marker m, and writes its
// new marker with these TOTAL and ASKED. Which earlier tokens of the decision are still
// held is not known, so only the k tokens can be refunded. But if nothing has changed
// since the decision, or the k tokens are in the same window, they count as consumed by
// the decision.
func (r *run) addTo(i int, h *held, m *store.Nums, k, total, asked int64) error {
	q, s, gen := &r.rules[i], h.step, r.call.Gen
	least := m.N[q.layout.MarkInts()-1]
	if s.raw != nil {
		if err := s.raw.Write(r.tx, q.key, r.now, h.state, k, r.ask(q), gen, r.slack); err != nil {
			return err
		}
		r.markStep(i, h, k, total, asked, gen, least)
		return nil
	}
	held, was := k, toCell(m.N[script.MarkHead:script.MarkHead+s.cell])
	h.take(k)
	if m.Len > 0 && r.sameFit(i, m) && h.tail && h.nums.N[s.cell] == m.N[script.MarkGen] &&
		(s.notes() && h.cell == was && h.nums.N[s.cell+1] == m.N[script.MarkHead+s.cell] || !s.notes() && h.ends == s.meter.Ends(was) && (!s.kind.Carries || h.next.A == was.A)) {
		held += m.N[script.MarkHeld]
	}
	h.set(&h.nums, h.next, gen)
	r.tx.Put(q.key, h.nums, life(r.now, h.ends, r.slack))
	r.markCell(i, h, held, total, asked, least)
	return nil
}
