package histories

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/model"
)

// refund refunds d, twice, or finishes it so.
func (h *history) refund(v *version, user string, d *decision, say func(string, ...any)) error {
	live := h.live(v, d)
	r := weir.Request{Key: d.Key, ID: d.ID, Op: weir.Refund, Costs: pick(h.r, weir.Costs{}, weir.Costs{}, d.Costs, d.Costs, h.amounts(d.Costs, 3))}
	again := weir.Request{Key: d.Key, ID: d.ID, Op: weir.Refund}
	finish := h.finishes(&r)
	if finish {
		r.Actual = weir.ActualRefund()
		again = r
	}
	if v.places() && !v.bills() {
		return h.withoutBill(v, r, say)
	}
	before, err3 := h.peek(v, d.Key)
	res, each, err := h.ask(v, r)
	after, err4 := h.peek(v, d.Key)
	for i, rule := range v.rules {
		if n, ok := r.Costs.Amount(rule.Unit); ok && !finish && live[rule.Name] != nil && v.asked(i, &d.Request) > n {
			say("refund %q, %v: %v", d.ID, r.Costs, err)
			h.stats.Other++
			return is(err, weir.ErrInvalidCost)
		}
	}
	res2, _, err2 := h.ask(v, again)
	say("%v %q, %v: %+v, %v, and then %+v, %v", r.Op, d.ID, r.Costs, res, err, res2, err2)
	if err := errors.Join(err3, err, err4, err2); err != nil {
		return err
	}
	gave, found, found2 := res.Allowed, res.Allowed || res.Rule != "", res2.Allowed || res2.Rule != ""
	if finish {
		err = h.finished(v, &r, &res, &res2, len(live) > 0)
		found, found2 = res.Allowed, res2.Allowed
		gave = found && !found2 // or there was nothing to refund
	}
	got := weir.Settlement{Found: found, Cost: res.Granted, Kept: res.Rule}
	got2 := weir.Settlement{Found: found2, Cost: res2.Granted, Kept: res2.Rule}
	want, must, can, sure := weir.Settlement{}, false, false, true
	stays, old := !gave && found, costs(plain(live))
	if len(old) == 0 || !v.follows {
		old = []int64{0}
	}
	for n, r := range v.rules {
		i, m, left, known := slices.Index(h.names, r.Name), live[r.Name], int64(0), true
		switch {
		case m == nil || m.spent == 0 || h.ended(m, r):
		case !m.returns(r):
			if left = m.spent; !m.own && follows(r) {
				want.Cost = max(want.Cost, m.spent)
			}
			want.Kept = cmp.Or(want.Kept, r.Name)
		case (model.Rated(r.Algorithm) || h.state(r.Name, user).loose) && before[i] == after[i]:
			known = false // it may have kept the tokens, or they were refilled
		default:
			parts := slices.Clone(m.parts)
			back, may := h.giveBack(h.state(r.Name, user), m, r.Algorithm, m.spent)
			if must, can = must || back, can || may; !gave {
				m.parts = parts
			}
			// After a step back of the clock, d can be live again, and its window not.
			known = may || h.stepped < d.at || before[i] != after[i]
		}
		if sure = sure && known; stays && m != nil || !known && each[n].Granted > 0 {
			left = m.spent
		}
		if v.counts && (each[n].Allowed != (m != nil) || each[n].Granted != left) {
			return fmt.Errorf("got %+v, want that %d stay", each[n], left)
		}
	}
	if want.Found = gave || want.Kept != ""; stays && sure {
		want.Cost = got.Cost
	}
	if finish {
		want.Found, can = len(live) > 0, can || want.Kept == ""
	}
	if err != nil || stays && !slices.Contains(old, got.Cost) || must && !gave || gave && !can && sure || sure && got != want || stays && got2 != got || !stays && found2 {
		return fmt.Errorf("got %+v, and then %+v, want %+v (must %v, can %v, sure %v): %v", res, res2, want, must, can, sure, err)
	}
	if stays {
		h.stats.Held++
		return nil
	}
	h.stats.Refunded++
	for _, r := range v.rules {
		delete(d.marks, id(r))
	}
	return nil
}
