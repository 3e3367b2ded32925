package compose

import (
	"math"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
)

// An outcome is what a Refund or a Settle replies: see replyLayout.
type outcome struct {
	head, cost, kept int64

	// costs has what the decision costs in each rule, plus 1, or 0 if the rule has no
	// marker. It is used only if units can be named.
	costs [MaxRules]int64
}

// marks holds the markers of all rules. If a marker is missing or has ended, Len is 0.
type marks [MaxRules]store.Nums

// found reports whether any marker is there.
func (m *marks) found() bool {
	for i := range m {
		if m[i].Len > 0 {
			return true
		}
	}
	return false
}

// spent returns what the decision costs, and ASKED. The markers of all rules agree,
// unless a rule counts a unit, which spent ignores, a rule kept its tokens, or a limiter
// without the rule settled the decision. If all markers are of rules that kept their
// tokens, the cost is TOTAL of one of them, and kept is true. asked is 0 if there is no
// such marker.
func (r *run) spent(m *marks) (total, asked int64, kept bool) {
	kept = true
	for i := range r.rules {
		if n := &m[i]; n.Len > 0 && r.rules[i].costBy != CostUnit && (kept || n.Tag != script.KeptTag) {
			total, asked, kept = n.N[script.MarkTotal], n.N[script.MarkAsked], n.Tag == script.KeptTag
		}
	}
	return total, asked, kept
}

// spentBy returns what the rule with the marker n has consumed for a decision of this
// cost. Without a marker (a new rule, or an expired marker), the rule counts as settled
// at cost.
func spentBy(n *store.Nums, cost int64) int64 {
	switch {
	case n.Len == 0:
		return cost
	case n.N[script.MarkFit]%2 != 0: // the rule had a Cost
		return n.N[script.MarkHeld]
	}
	return n.N[script.MarkTotal]
}

// readMarks reads the markers. ended has bit i if the decision has ended in rule i, but its
// marker has not: see script.MarkHead.
func (r *run) readMarks(m *marks) (ended int64, err error) {
	for i := range r.rules {
		q, s := &r.rules[i], r.step(i)
		if q.layout.Marker == 0 {
			continue
		}
		n, ok, err := r.tx.Get(q.layout.Marker)
		size := r.rules[i].layout.MarkInts()
		switch {
		case err != nil:
			return 0, err
		case !ok:
			continue
		case !script.IsMark(n.Tag) || int(n.Len) != size:
			return 0, store.ForeignAt(q.layout.Marker)
		}
		ends, cell := n.N[size-1], int64(math.MaxInt64)
		if s.raw == nil && (s.kind.Absolute || r.sameFit(i, &n)) {
			cell = s.meter.Ends(toCell(n.N[script.MarkHead : script.MarkHead+s.cell]))
		}
		if s.raw == nil && ends == 0 {
			ends = cell
		}
		if ends <= r.now {
			continue
		}
		if m[i] = n; cell <= r.now {
			ended |= 1 << i
		}
	}
	return ended, nil
}

// replay returns the reply to a repeated decision, if a marker is there. The reply has
// the state of the rules and the code already. Unless a lease is missing or the key is
// paused, replay takes or renews the leases.
func (r *run) replay(held []held, reply []store.Value, head int) (_ []store.Value, done bool, err error) {
	var m marks
	if _, err := r.readMarks(&m); !m.found() || err != nil {
		return nil, false, err
	}
	total, asked, _ := r.spent(&m)
	code := int64(script.Replayed)
	if asked > 0 && asked != r.call.Cost && !(r.verb.TakesUpTo() && asked < r.call.Cost) {
		total, code = asked, script.OtherCost
	} else if i := r.otherAmount(&m); i >= 0 {
		total, code = m[i].N[script.MarkAsked], script.OtherCost+int64(i)+1
	} else if asked == 0 && r.verb.TakesUpTo() { // how much it consumed is not known, but it was allowed
		total = 1
	} else if asked == 0 { // no rule with another cost is found: the caller asked for this one
		total = r.call.Cost
	}
	reply[head], reply[len(reply)-1] = store.IntegerValue(total), store.IntegerValue(code)
	if code != script.Replayed {
		return reply, true, nil
	}
	free := r.source.Bills && !r.verb.Forces()
	for i := range r.rules {
		q := &r.rules[i]
		reply = r.appendSpent(i, &m[i], reply)
		free = free && (held[i].room >= r.cost(q) || !q.layout.Leases() && !q.pauses())
	}
	for i := range r.rules {
		if free && r.rules[i].layout.Leases() {
			if err := r.consume(i, &held[i], 1); err != nil {
				return nil, false, err
			}
		}
	}
	return reply, true, nil
}

// otherAmount returns the first rule whose marker has another amount than the call, or -1.
func (r *run) otherAmount(m *marks) int {
	for i := range r.rules {
		if q := &r.rules[i]; q.costBy == CostUnit && m[i].Len > 0 && m[i].N[script.MarkAsked] != r.amount(q) {
			return i
		}
	}
	return -1
}

// appendSpent appends the last integers of rule i to a reply, for Program.replayed: the
// tokens that the decision of the marker m consumed, 1 if its FIT has changed, and the
// cell after it. They are all 0 if the rule has no marker, or if it has no Cost and a
// Settle changed the tokens. The cell is 0 if the rule has a Step. If the rule counts a
// unit, the first integer is TOTAL plus 1, or 0 if it has no marker.
func (p *Program) appendSpent(i int, m *store.Nums, reply []store.Value) []store.Value {
	q := &p.rules[i]
	var ints [2 + store.MaxNums]int64
	if n := m.N[script.MarkHeld]; m.Len > 0 && (q.costBy == CostOwn || m.Tag == script.MarkTag && n == m.N[script.MarkTotal] && n == m.N[script.MarkAsked]) {
		ints[0] = n
		if m.N[script.MarkFit] != p.fits[q.layout.Marker-p.source.Keys].Int() {
			ints[1] = 1
		}
		if q.step.meter != nil {
			copy(ints[2:], m.N[script.MarkHead:script.MarkHead+q.ints])
		}
	}
	if q.costBy == CostUnit && m.Len > 0 {
		if n := m.N[script.MarkTotal]; ints[0] == 0 || n == 0 { // 2 says that the cell is not that of the decision
			ints[1] = 2
		}
		ints[0] = m.N[script.MarkTotal] + 1
	}
	for _, n := range ints[:2+q.ints] {
		reply = append(reply, store.IntegerValue(n))
	}
	return reply
}

// spends returns TOTAL and ASKED of a new marker. take is the number for a TakeUpTo and a
// Force.
func (r *run) spends(take int64) (total, asked int64) {
	switch {
	case r.verb.Forces():
		return take, r.call.Cost
	case r.verb.TakesUpTo():
		return take, take
	}
	return r.call.Cost, r.call.Cost
}

// markStep writes the marker of rule i, whose Step has consumed n tokens. least is as in
// putMark.
func (r *run) markStep(i int, h *held, n, total, asked, gen, least int64) {
	c, ends := h.step.raw.(contract.StepRefunder).Mark(r.now, h.state, n, gen)
	r.putMark(i, ends, least, [store.MaxNums]int64{gen, n, total, asked, r.fit(i), c.A, c.B, c.C})
}

// markCell writes the marker of rule i, whose next cell is known.
func (r *run) markCell(i int, h *held, held, total, asked, least int64) {
	s := h.step
	ints := [store.MaxNums]int64{h.nums.N[s.cell], held, total, asked, r.fit(i)}
	copy(ints[script.MarkHead:], h.nums.N[:s.cell])
	if s.notes() {
		ints[script.MarkHead+s.cell] = h.nums.N[s.cell+1]
	}
	r.putMark(i, h.ends, least, ints)
}

// putMark writes the marker of rule i, whose END it sets. The decision ends at ends. least
// is the END of an earlier marker, or 0.
func (r *run) putMark(i int, ends, least int64, ints [store.MaxNums]int64) {
	q := &r.rules[i]
	size := q.layout.MarkInts()
	lives := q.costBy == CostUnit || r.source.Bills
	if lives {
		ends = max(ends, r.now+r.life())
	}
	if ends = max(ends, least); lives || least > 0 || q.layout.Step != nil {
		ints[size-1] = ends
	}
	n := store.Nums{Tag: script.MarkTag, Len: uint8(size), N: ints}
	if r.verb.Settles() {
		n.Tag = script.SettledTag
	}
	r.tx.Put(r.rules[i].layout.Marker, n, life(r.now, ends, r.slack))
}

// refund refunds the decision of the markers, and deletes the markers. But if a rule
// keeps its tokens (see giveBack), and no rule refunds any, nothing changes.
func (r *run) refund(held []held) (o outcome, err error) {
	var m marks
	ended, err := r.readMarks(&m)
	if err != nil {
		return o, err
	}
	for i := range r.rules {
		q, asked := &r.rules[i], m[i].N[script.MarkAsked]
		if r.verb == script.FinishRefund { // it has no cost and no amounts
			break
		}
		if q.costBy == CostRequest && r.call.Cost > 0 && asked > r.call.Cost ||
			q.costBy == CostUnit && r.amount(q) >= 0 && asked > r.amount(q) {
			return outcome{head: script.TooLittle}, nil
		}
	}
	var was outcome
	for i := range r.rules {
		n := &m[i]
		spent := spentBy(n, 0)
		if n.Len > 0 {
			was.costs[i], o.costs[i] = spent+1, 1
		}
		if spent == 0 || ended>>i&1 > 0 { // a missing marker, or one that was settled to 0
			continue
		}
		gave, keeps, err := r.giveBack(i, &held[i], n, spent)
		switch {
		case err != nil:
			return o, err
		case gave:
			o.head = 1
		case keeps:
			o.kept |= 1 << i
			o.costs[i] = was.costs[i]
			if r.rules[i].costBy == CostRequest && n.N[script.MarkFit]%2 == 0 {
				o.cost = max(o.cost, spent)
			}
		}
	}
	stays := o.kept > 0 && o.head == 0
	if r.verb == script.FinishRefund && m.found() {
		o.head = 1
	}
	if stays {
		o.cost, _, _ = r.spent(&m)
		o.costs = was.costs
		return o, nil
	}
	for i := range r.rules {
		if key := r.rules[i].layout.Marker; key > 0 {
			r.tx.Del(key)
		}
	}
	return o, nil
}

// giveBack refunds the last k tokens of the decision with the marker m to rule i, and
// reports whether anything was refunded. A rule keeps the tokens if its FIT has changed,
// if the marker holds none, or if later reservations depend on them. Tokens that were
// refilled before the marker ended, or deleted, are not kept.
func (r *run) giveBack(i int, h *held, m *store.Nums, k int64) (gave, keeps bool, err error) {
	key, s, gen := r.rules[i].key, h.step, m.N[script.MarkGen]
	if k = min(k, m.N[script.MarkHeld]); k == 0 || !r.sameFit(i, m) {
		return false, true, nil
	}
	if s.raw != nil {
		was := toCell(m.N[script.MarkHead : script.MarkHead+3])
		gave, err = s.raw.(contract.StepRefunder).Refund(r.tx, key, r.now, h.state, contract.Ask{Cost: 1}, was, k, m.N[script.MarkHeld]-k, gen)
	} else {
		ch := contract.Charge{Was: toCell(m.N[script.MarkHead : script.MarkHead+s.cell]), N: k, Held: m.N[script.MarkHeld]}
		if s.notes() {
			ch.Moved = m.N[script.MarkHead+s.cell]
		}
		gave, keeps = h.refund(r.tx, key, r.now, ch, gen)
	}
	if !keeps {
		m.N[script.MarkHeld] -= k
	}
	return gave, keeps, err
}
