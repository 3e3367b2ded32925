package histories

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A decision is what the documentation says of one with an ID.
type decision struct {
	weir.Request
	at    int64
	asked int64 // ASKED of the rules that count no unit
	total int64
	marks map[string]*mark // by id
}

// id returns what identifies the mark of r: it is of another unit if its Unit changes.
func id(r weir.Rule) string { return r.Name + r.Unit }

// A mark is what one rule has of a decision.
type mark struct {
	unit              string              // that the rule counts
	until             int64               // END, if it counts a unit, or another rule held leases
	own               bool                // the rule had a Cost
	kept              bool                // the rule did not agree with the newest Settle
	spent             int64               // by this rule
	total             int64               // of the decision
	a                 algorithm.Algorithm // of the newest tokens
	end               int64
	parts             []part // that can be refunded
	count             [3]int64
	version, consumed int
}

// A part is some tokens of a charge.
type part struct {
	*charge
	k    int64
	sure bool
}

// live returns the marks of d that the rules of v have. Under Options.Clock, no marker expires
// during a test.
func (h *history) live(v *version, d *decision) map[string]*mark {
	live := map[string]*mark{}
	for _, r := range v.rules {
		switch m := d.marks[id(r)]; {
		case m == nil:
		case m.until > h.c.Micros,
			m.until == 0 && (m.end > h.c.Micros || lasts(m.a) && (m.own != (r.Cost > 0) || !fits(m.a, r.Algorithm))):
			live[r.Name] = m
		}
	}
	return live
}

// ended reports whether m, which is live, holds no tokens of r, because the decision has
// ended. A log or buckets know that without it.
func (h *history) ended(m *mark, r weir.Rule) bool {
	switch r.Algorithm.(type) {
	case algorithm.SlidingLog, algorithm.SlidingBuckets:
		return false
	}
	return m.until > 0 && m.end <= h.c.Micros && (!lasts(m.a) || m.own == (r.Cost > 0) && fits(m.a, r.Algorithm))
}

// plain returns the marks of the rules that count no unit.
func plain(live map[string]*mark) map[string]*mark {
	live = maps.Clone(live)
	maps.DeleteFunc(live, func(_ string, m *mark) bool { return m.unit != "" })
	return live
}

// mark returns the mark of r for a decision that was charged just now.
func (h *history) mark(v *version, s *state, r weir.Rule, spent, total int64, parts []part) *mark {
	m := &mark{
		unit: r.Unit, own: r.Cost > 0, spent: spent, total: total, a: r.Algorithm, end: -1, parts: parts,
		count: [3]int64{s.edge, s.count, s.before}, version: s.version, consumed: s.consumed,
	}
	if r.Unit != "" || v.bills() {
		m.until = h.c.Micros + v.life.Microseconds()
	}
	return m
}

// repeat repeats d, sometimes with another cost or other amounts.
func (h *history) repeat(v *version, user string, d *decision, before seen, say func(string, ...any)) (map[string]int64, error) {
	live := h.live(v, d)
	switch {
	case v.places() && !v.bills() || len(live) == 0 && h.anew(v, d):
		return h.decide(v, user, d, before, say)
	case len(live) == 0:
		return map[string]int64{}, nil
	}
	r := d.Request
	if h.r.IntN(4) == 0 {
		r.Cost, r.Costs = pick(h.r, r.Cost, r.Cost, 1+h.r.Int64N(9)), h.amounts(r.Costs, 20)
	}
	if h.work && r.Op != weir.Force && h.r.IntN(8) == 0 {
		r.Op, r.Cost = pick(h.r, weir.Consume, weir.TakeUpTo), d.asked
	}
	other := false
	for i, rule := range v.rules {
		asked, n := d.asked, r.Cost
		if rule.Unit != "" {
			asked, n = v.asked(i, &d.Request), v.asked(i, &r)
		}
		other = other || live[rule.Name] != nil && asked != n && (rule.Unit != "" || r.Op != weir.TakeUpTo || asked > n)
	}
	free := h.free(v, &r)
	res, each, err := h.ask(v, r)
	say("repeat %q, %v %d, %v: %+v, %v", d.ID, r.Op, r.Cost, r.Costs, res, err)
	if want := v.rejects(r); want != nil {
		h.stats.Forgot++
		return map[string]int64{}, is(err, want)
	} else if other {
		h.stats.Other++
		return map[string]int64{}, is(err, weir.ErrInvalidCost)
	} else if err != nil {
		return nil, err
	}
	h.stats.Replayed++
	early := !v.bills() && (h.c.Micros < d.at || h.stepped > h.c.Micros)
	if !res.Replayed || res.Allowed != free && (res.Allowed || !early) || !res.Allowed && res.Granted > 0 {
		return nil, fmt.Errorf("got %+v, want a repeat: allowed %v", res, free)
	}
	for i, rule := range v.rules {
		want := costs(plain(live))
		if m := live[rule.Name]; m != nil && rule.Unit != "" {
			want = []int64{m.spent}
		} else if rule.Unit != "" || len(want) == 0 {
			want = []int64{v.asked(i, &r)}
			if rule.Unit == "" && r.Op == weir.TakeUpTo { // what it consumed is not known
				want = []int64{1}
			}
		}
		if res.Allowed && rule.Cost == 0 && !slices.Contains(want, each[i].Granted) || !res.Allowed && each[i].Granted > 0 {
			return nil, fmt.Errorf("rule %s: got %+v, want that %d tokens were granted", rule.Name, each[i], want)
		}
	}
	if v.bills() && !free {
		h.stats.Full++
	} else if v.bills() && !h.holds(&r) && r.Op != weir.Force {
		h.stats.Again++
	}
	return map[string]int64{}, h.took(v, &r, free, res.Allowed)
}

// costs returns what the decision of live can cost. The rules can disagree only if a limiter
// that lacks one of them settled it. A rule that kept its tokens counts if there is no other.
func costs(live map[string]*mark) (list []int64) {
	for _, m := range live {
		if !m.kept && !slices.Contains(list, m.total) {
			list = append(list, m.total)
		}
	}
	if len(list) > 0 {
		return list
	}
	for _, m := range live {
		list = append(list, m.spent)
	}
	return list
}

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
		if m := live[r.Name]; ok && m != nil && m.spent > n && m.returns(r) && !h.ended(m, r) && (rated(r.Algorithm) || h.state(r.Name, user).loose || h.stepped >= d.at) && before[i] == after[i] {
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
	if m != nil && !rated(r.Algorithm) && m.count[0] != s.edge {
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
	_, ok := rateOf(a)
	for i := range list {
		list[i].sure = list[i].sure && ok && s.version == m.version
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

// rated reports whether tokens of a are refilled.
func rated(a algorithm.Algorithm) bool {
	_, bucket := a.(algorithm.TokenBucket)
	_, rate := rateOf(a)
	return bucket || rate
}

// peek returns the result of each rule under a wide limit, in the order of h.names, and then that
// of the rule that holds leases.
func (h *history) peek(v *version, key weir.Key) ([]weir.Result, error) {
	each := make([]weir.Result, len(h.names)+1)
	_, err := v.wide.Decide(h.ctx, weir.Request{Key: key, Op: weir.Peek}, each)
	return each, err
}

// returns reports whether the rule r of now can return tokens of m.
func (m *mark) returns(r weir.Rule) bool {
	return m.own == (r.Cost > 0) && fits(m.a, r.Algorithm) && m.holds(false) > 0
}

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
		case (rated(r.Algorithm) || h.state(r.Name, user).loose) && before[i] == after[i]:
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

// holds returns the tokens that a refund can return. If sure is true, it leaves out those that
// may not be known any more after a Settle to more.
func (m *mark) holds(sure bool) (n int64) {
	for _, p := range m.parts {
		if p.sure || !sure {
			n += p.k
		}
	}
	return n
}

// evict deletes the keys of one rule or of the leases, or one marker of d.
func (h *history) evict(v *version, user string, d *decision, known bool, say func(string, ...any)) error {
	lists, err := v.wide.StoreKeys(key(user))
	if err != nil {
		return err
	}
	i := h.r.IntN(len(lists))
	keys, marker := lists[i], false
	if i == len(h.names) {
		clear(h.ends("x", user))
	} else if marker = known && h.r.IntN(3) == 0; marker {
		keys, err = h.marker(d, h.names[i])
		delete(d.marks, h.names[i]+h.units[h.names[i]])
	} else {
		h.state(h.names[i], user).clear(v.algs[h.names[i]])
	}
	say("delete %q", keys)
	if err != nil || len(keys) == 0 {
		return fmt.Errorf("no key: %w", err)
	}
	_, err = h.st.Eval(h.ctx, scripts.Clean, keys, []store.Arg{store.IntArg(int64(len(keys)))}, nil)
	return err
}

// marker returns the key of the marker of d that a rule has.
func (h *history) marker(d *decision, name string) ([]string, error) {
	var named suite.Written
	p := weir.Policy{Name: suite.Name, Segments: []string{"tenant", "user"}, Units: units}
	for _, n := range h.names {
		p.Rules = append(p.Rules, weir.Rule{Name: n, By: h.by(n), Unit: h.units[n], Algorithm: widest(h.base[n])})
	}
	l, err := weir.NewPolicy(suite.Note(memory.New(nil), &named), p, &weir.Options{Prefix: h.prefix, Clock: h.c.Now})
	if err != nil {
		return nil, err
	}
	_, err = l.Decide(h.ctx, weir.Request{Key: d.Key, ID: d.ID, Costs: h.amounts(weir.Costs{}, 1<<62)}, nil)
	return slices.DeleteFunc(slices.Collect(maps.Keys(named.Keys)), func(k string) bool {
		return !strings.Contains(k, "}:"+name+".") || !strings.Contains(k, ":%id=")
	}), err
}

// anyOther reports whether a rule of live did not keep its tokens.
func anyOther(live map[string]*mark) bool {
	for _, m := range live {
		if !m.kept {
			return true
		}
	}
	return false
}
