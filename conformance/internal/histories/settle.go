package histories

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/model"
)

// settle settles or finishes d, twice.
func (h *history) settle(v *version, user string, d *decision, say func(string, ...any)) error {
	actual, given := pick(h.r, 0, d.total, h.r.Int64N(12), h.r.Int64N(12)), v.follows && (!v.counts || h.r.IntN(2) == 0)
	r, amounts := d.Request, h.amounts(d.Costs, 3)
	for !given && amounts == (weir.Costs{}) {
		amounts = h.amounts(d.Costs, 3)
	}
	if r.Op, r.Actual = weir.Settle, weir.ActualCosts(amounts); given {
		r.Actual = weir.ActualCost(actual).With(amounts)
	}
	if h.finishes(&r) && h.r.IntN(3) == 0 {
		given, amounts, r.Actual = false, weir.Costs{}, weir.Actual{}
	}
	if v.places() && !v.bills() {
		return h.withoutBill(v, r, say)
	}
	if r.Op == weir.Finish && h.r.IntN(12) == 0 {
		r.Actual = weir.ActualCost(-1) // and the lease stays
		_, _, err := h.ask(v, r)
		return is(err, weir.ErrInvalidCost)
	}
	live := h.live(v, d)
	costly := plain(live)
	old := append(costs(costly), 0)
	if len(old) > 2 && v.places() {
		return nil // it is not known what counts
	}
	if len(old) > 2 { // the rules disagree: a repeat says what counts
		res, each, err := h.ask(v, d.Request)
		if i := slices.IndexFunc(v.rules, follows); i >= 0 {
			old = []int64{each[i].Granted}
		}
		if want := v.rejects(d.Request); want != nil || err != nil || !res.Allowed {
			return is(err, want)
		}
	}
	before, err3 := h.peek(v, d.Key)
	res, said, err := h.ask(v, r)
	after, err4 := h.peek(v, d.Key)
	res2, each, err2 := h.ask(v, r)
	say("%v %q at %d (%v), %v: %+v, %v", r.Op, d.ID, actual, given, amounts, res, err)
	if r.Op == weir.Finish && err == nil {
		err = h.finished(v, &r, &res, &res2, len(live) > 0)
	}
	got := weir.Settlement{Found: res.Allowed, Cost: res.Granted, Kept: res.Rule}
	if err := errors.Join(err3, err, err4, err2); err != nil {
		return err
	}
	for _, r := range v.rules {
		i, n, ok := slices.Index(h.names, r.Name), actual, given
		if r.Unit != "" {
			n, ok = amounts.Amount(r.Unit)
		}
		if m := live[r.Name]; ok && m != nil && m.spent > n && m.returns(r) && !h.ended(m, r) && (model.Rated(r.Algorithm) || h.state(r.Name, user).loose || h.stepped >= d.at) && before[i] == after[i] {
			return errUnknown // it may have kept the tokens, or they were refilled
		}
	}
	want, kept := weir.Settlement{Found: len(live) > 0}, map[string]bool{}
	if want.Found && v.follows {
		want.Cost = old[0]
	}
	if given && len(costly) > 0 {
		want.Cost = h.settled(v, user, d, costly, old[0], actual, kept)
	}
	for _, r := range v.rules {
		switch n, ok := amounts.Amount(r.Unit); {
		case !want.Found:
		case follows(r) && given && len(costly) == 0:
			kept[r.Name] = true
		case r.Unit != "" && ok:
			kept[r.Name] = h.settleUnit(v, user, d, r, live[r.Name], n)
		}
		if kept[r.Name] && want.Kept == "" {
			want.Kept = r.Name
			h.stats.Kept++
		}
	}
	if res2 != res || got != want || !slices.Equal(said, each) {
		return fmt.Errorf("got %+v, and then %+v, want %+v", got, res2, want)
	}
	for i, r := range v.rules {
		m := d.marks[id(r)]
		found := live[r.Name] != nil || m != nil && m.end < 0 // a Settle to more writes a mark
		if v.counts && (each[i].Allowed != found || r.Cost == 0 && each[i].Allowed && !m.own && each[i].Granted != m.spent) {
			return fmt.Errorf("got %+v, want %+v", each[i], m)
		}
	}
	return nil
}

// settleUnit makes n the amount of d in r, which counts a unit. It reports whether another
// amount stays.
func (h *history) settleUnit(v *version, user string, d *decision, r weir.Rule, m *mark, n int64) (keeps bool) {
	if m == nil {
		h.stats.NotFound++
		return true
	}
	s, ended := h.state(r.Name, user), h.ended(m, r)
	if ended && n != m.spent {
		h.stats.Ended++
	}
	switch {
	case n > m.spent:
		h.stats.More++
		d.marks[id(r)] = h.add(v, s, d, r, m, n-m.spent, n)
	case n < m.spent && !ended && !m.returns(r):
		return true
	case n < m.spent:
		if h.stats.Less++; !ended {
			h.giveBack(s, m, r.Algorithm, m.spent-n)
		}
		m.spent = n
	}
	return false
}

// add consumes n tokens more from r for d, whose mark there is m or nil. It returns the new
// mark.
func (h *history) add(v *version, s *state, d *decision, r weir.Rule, m *mark, n, total int64) *mark {
	var before []part
	if m != nil && fits(m.a, r.Algorithm) && !h.ended(m, r) {
		before = h.held(s, m, r.Algorithm)
	}
	c := s.consume(h.c.Micros, r.Algorithm, owner{d, r.Unit}, n)
	if m != nil && c.tally != nil && m.edge != c.tally.At {
		before = nil // of an earlier window
	}
	more := h.mark(v, s, r, total, total, append(before, part{c, n, true}))
	if m != nil { // a Settle never shortens END, which logs and buckets always have
		more.until = max(more.until, m.until)
		switch r.Algorithm.(type) {
		case algorithm.SlidingLog, algorithm.SlidingBuckets:
			more.until = max(more.until, m.end)
		}
	}
	return more
}

// settled settles d at actual in the rules that count no unit, and returns its cost. It sets
// kept for the rules that keep another cost.
func (h *history) settled(v *version, user string, d *decision, live map[string]*mark, old, actual int64, kept map[string]bool) int64 {
	by, some, ended, keep, change := map[string]int64{}, false, false, false, actual != old
	for _, r := range v.rules {
		m, keeps := live[r.Name], false
		switch {
		case r.Unit != "":
		case m != nil && m.own != (r.Cost > 0):
			keeps = m.spent != actual
		case r.Cost > 0:
		case m == nil:
			if anyOther(live) { // otherwise what it has consumed is not known
				by[r.Name] = actual - old
			}
			ended, some = ended || by[r.Name] < 0, some || by[r.Name] >= 0
		case m.spent > actual && !h.ended(m, r) && !m.returns(r):
			keeps = true
		default:
			by[r.Name], some = actual-m.spent, true
		}
		change = change || by[r.Name] != 0
		kept[r.Name], keep = keeps, keep || keeps
	}
	if !some && (keep || !ended) {
		return old
	}
	if !change {
		return actual
	}
	h.stats.Settled++
	d.total = actual
	for _, r := range v.rules {
		s, m, n := h.state(r.Name, user), live[r.Name], by[r.Name]
		switch {
		case r.Unit != "":
		case n > 0:
			d.marks[id(r)] = h.add(v, s, d, r, m, n, actual)
		case m == nil:
			delete(d.marks, id(r))
		default:
			if n < 0 {
				if !h.ended(m, r) {
					h.giveBack(s, m, r.Algorithm, -n)
				}
				m.spent = actual
			}
			if m.kept = kept[r.Name] && !m.own; !m.kept {
				m.total = actual
			}
		}
	}
	return actual
}

// held returns what a Settle to more leaves of the tokens of m: if nothing has changed, they
// can still be refunded.
func (h *history) held(s *state, m *mark, a algorithm.Algorithm) []part {
	list := slices.Clone(m.parts)
	switch a.(type) {
	case algorithm.SlidingLog, algorithm.SlidingBuckets:
		return nil
	case algorithm.FixedWindow, algorithm.SlidingCounter:
		return slices.DeleteFunc(list, func(p part) bool { return !slices.Contains(s.charges, p.charge) })
	}
	if s.consumed != m.consumed {
		return nil
	}
	_, bucket := a.(algorithm.TokenBucket)
	for i := range list {
		list[i].sure = list[i].sure && !bucket && s.version == m.version
	}
	return list
}

// giveBack refunds the last n tokens of m.
func (h *history) giveBack(s *state, m *mark, a algorithm.Algorithm, n int64) (must, can bool) {
	for i := len(m.parts) - 1; i >= 0 && n > 0; i-- {
		p := &m.parts[i]
		k := min(n, p.k)
		p.k, n = p.k-k, n-k
		gave, may := s.refund(h.c.Micros, a, p.charge, k, p.sure, h.stepped >= p.at)
		must, can = must || gave, can || may
	}
	return must, can
}

// errUnknown ends a history: the documentation does not say what a rule keeps.
var errUnknown = errors.New("it is not known what a rule keeps")
