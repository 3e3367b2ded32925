package compose

import (
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
)

// settle makes the call's cost the cost of the decision of the markers, in all rules
// without a Cost.
//
// If a rule has consumed more, its last tokens are refunded. If it keeps them (see
// giveBack), its marker gets KeptTag for a later Settle. If a rule has consumed less, the
// difference is consumed as by a Force, even if the rule's marker has ended, or the rule
// is new. If no rule can be adjusted, nothing changes.
func (r *run) settle(held []held) (o outcome, err error) {
	var m marks
	if found, err := r.readMarks(&m); !found || err != nil {
		return o, err
	}
	old, asked, kept := m.spent()
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
		case q.layout.Marker == 0:
		case r.otherCost(i, n):
			if spentBy(n, fresh) != o.cost {
				o.kept |= 1 << i
			}
		case q.costBy == CostRequest:
			keeps := false
			if by[i] = o.cost - spentBy(n, fresh); by[i] < 0 && n.Len > 0 {
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
		if change && r.rules[i].layout.Marker > 0 && err == nil {
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
		return r.addTo(i, h, m, by, o.cost, asked)
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
	if s.raw != nil {
		if err := s.raw.Write(r.tx, q.key, r.now, h.state, k, r.ask(q), gen, r.slack); err != nil {
			return err
		}
		r.markStep(i, h, k, total, asked, gen)
		return nil
	}
	held, was := k, toCell(m.N[script.MarkHead:script.MarkHead+s.cell])
	h.take(k)
	if m.Len > 0 && r.sameFit(i, m) && h.tail && h.nums.N[s.cell] == m.N[script.MarkGen] &&
		(s.notes() && h.cell == was && h.nums.N[s.cell+1] == m.N[script.MarkHead+s.cell] || !s.notes() && h.ends == s.meter.Ends(was)) {
		held += m.N[script.MarkHeld]
	}
	h.set(&h.nums, h.next, gen)
	r.tx.Put(q.key, h.nums, life(r.now, h.ends, r.slack))
	r.markCell(i, h, held, total, asked)
	return nil
}
