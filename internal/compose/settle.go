package compose

import (
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
)

// settle makes the call's cost the cost of the decision of the markers, in all rules
// without a Cost. It returns TOTAL of the markers plus 1, or 0 if no marker is there.
//
// If the decision gets cheaper, its last tokens are refunded. If it gets more expensive,
// the difference is consumed as by a Force, also from a rule whose marker has ended. The
// markers of all rules get the same TOTAL.
func (r *run) settle(held []held) (int64, error) {
	var m marks
	if found, err := r.readMarks(&m); !found || err != nil {
		return 0, err
	}
	total, asked := m.spent()
	more := r.call.Cost - total
	for i := range held {
		if q, h := &r.rules[i], &held[i]; more > 0 && q.layout.Marker > 0 && q.Cost == 0 {
			r.measure(i, h) // a Settle has no Wait
			more = max(min(more, h.room+r.call.debt), 0)
		}
	}
	if more == 0 {
		return total + 1, nil
	}
	total += more
	for i := range held {
		var err error
		switch q, n := &r.rules[i], &m[i]; {
		case q.layout.Marker == 0:
		case more > 0 && q.Cost == 0:
			err = r.addTo(i, &held[i], n, more, total, asked)
		case n.Len > 0:
			if back := min(-more, n.N[script.MarkHeld]); back > 0 && q.Cost == 0 {
				_, err = r.giveBack(i, &held[i], n, back)
				n.N[script.MarkHeld] -= back
			}
			n.Tag, n.N[script.MarkTotal] = script.SettledTag, total
			r.tx.Keep(q.layout.Marker, *n)
		default: // it may have ended: if the clock steps back, its TOTAL must not count again
			r.tx.Del(q.layout.Marker)
		}
		if err != nil {
			return 0, err
		}
	}
	return total + 1, nil
}

// addTo consumes k tokens from rule i for the decision of the marker m, and writes its
// new marker with these TOTAL and ASKED. Of the earlier tokens of the decision, it is not
// known which are still held, so only the k tokens can be refunded. But if nothing has
// changed since the decision, it is as if the decision had consumed the k tokens too.
func (r *run) addTo(i int, h *held, m *store.Nums, k, total, asked int64) error {
	q, s, gen := &r.rules[i], h.step, r.call.Gen
	if s.raw != nil {
		if err := s.raw.Write(r.tx, q.key, r.now, h.state, k, r.ask(q), gen, r.slack); err != nil {
			return err
		}
		r.markStep(i, h, k, total, asked, gen)
		return nil
	}
	held := k
	if m.Len > 0 && h.tail && h.nums.N[s.cell] == m.N[script.MarkGen] && h.cell == toCell(m.N[script.MarkHead:script.MarkHead+s.cell]) &&
		(!s.notes() || h.nums.N[s.cell+1] == m.N[script.MarkHead+s.cell]) {
		held += m.N[script.MarkHeld]
	}
	h.take(k)
	h.set(&h.nums, h.next, gen)
	r.tx.Put(q.key, h.nums, life(r.now, h.ends, r.slack))
	r.markCell(i, h, held, total, asked)
	return nil
}
