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
	total int64
	marks map[string]*mark
}

// A mark is what one rule has of a decision.
type mark struct {
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
		m := d.marks[r.Name]
		if m != nil && (m.end > h.c.Micros || lasts(m.a) && (m.own != (r.Cost > 0) || !fits(m.a, r.Algorithm))) {
			live[r.Name] = m
		}
	}
	return live
}

// repeat repeats d.
func (h *history) repeat(v *version, d *decision, say func(string, ...any)) (map[string]int64, error) {
	live := h.live(v, d)
	if len(live) == 0 {
		return map[string]int64{}, nil
	}
	res, err := v.lim.Decide(h.ctx, d.Request, nil)
	say("repeat %q: %+v, %v", d.ID, res, err)
	if err != nil {
		return nil, err
	}
	h.stats.Replayed++
	early := h.c.Micros < d.at || h.stepped > h.c.Micros
	if !res.Replayed || !res.Allowed && !early {
		return nil, fmt.Errorf("got %+v, want it allowed, as a repeat", res)
	}
	if res.Allowed && !slices.Contains(costs(live), res.Granted) {
		return nil, fmt.Errorf("got %+v, want that %d tokens were granted", res, costs(live))
	}
	return map[string]int64{}, nil
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

// settle settles d, twice.
func (h *history) settle(v *version, user string, d *decision, say func(string, ...any)) error {
	actual := pick(h.r, 0, d.total, h.r.Int64N(12), h.r.Int64N(12))
	live := h.live(v, d)
	old := append(costs(live), 0)
	if len(old) > 2 { // the rules disagree: a repeat says what counts
		res, err := v.lim.Decide(h.ctx, d.Request, nil)
		if old = []int64{res.Granted}; err != nil || !res.Allowed {
			return err
		}
	}
	before, err3 := h.peek(v, d.Key)
	got, err := v.lim.Settle(h.ctx, weir.Request{Key: d.Key, ID: d.ID}, actual)
	after, err4 := h.peek(v, d.Key)
	again, err2 := v.lim.Settle(h.ctx, weir.Request{Key: d.Key, ID: d.ID}, actual)
	say("settle %q at %d: %+v, %v", d.ID, actual, got, err)
	if err := errors.Join(err3, err, err4, err2); err != nil {
		return err
	}
	want := weir.Settlement{}
	for _, r := range v.rules {
		i := slices.Index(h.names, r.Name)
		if m := live[r.Name]; m != nil && m.spent > actual && m.returns(r) && (rated(r.Algorithm) || h.state(r.Name, user).loose || h.stepped >= d.at) && before[i] == after[i] {
			return errUnknown // it may have kept the tokens, or they were refilled
		}
	}
	if len(live) > 0 {
		want = h.settled(v, user, d, live, old[0], actual)
	}
	if again != got || got != want {
		return fmt.Errorf("got %+v, and then %+v, want %+v", got, again, want)
	}
	return nil
}

// settled settles d at actual, and returns what Settle must return.
func (h *history) settled(v *version, user string, d *decision, live map[string]*mark, old, actual int64) weir.Settlement {
	want, by, some, change := weir.Settlement{Found: true, Cost: actual}, map[string]int64{}, false, actual != old
	ended := false
	kept := map[string]bool{}
	for _, r := range v.rules {
		m, keeps := live[r.Name], false
		switch {
		case m != nil && m.own != (r.Cost > 0):
			keeps = m.spent != actual
		case r.Cost > 0:
		case m == nil:
			if anyOther(live) { // otherwise what it has consumed is not known
				by[r.Name] = actual - old
			}
			ended, some = ended || by[r.Name] < 0, some || by[r.Name] >= 0
		case m.spent > actual && !m.returns(r):
			keeps = true
		default:
			by[r.Name], some = actual-m.spent, true
		}
		change = change || by[r.Name] != 0
		if kept[r.Name] = keeps; keeps && want.Kept == "" {
			want.Kept = r.Name
		}
	}
	if want.Kept != "" {
		h.stats.Kept++
	}
	if !some && (want.Kept != "" || !ended) {
		want.Cost = old
		return want
	}
	if !change {
		return want
	}
	h.stats.Settled++
	d.total = actual
	for _, r := range v.rules {
		s, m, n := h.state(r.Name, user), live[r.Name], by[r.Name]
		switch {
		case n > 0:
			var before []part
			if m != nil && fits(m.a, r.Algorithm) {
				before = h.held(s, m, r.Algorithm)
			}
			c := s.consume(h.c.Micros, r.Algorithm, d, n)
			if m != nil && !rated(r.Algorithm) && m.count[0] != s.edge {
				before = nil // of an earlier window
			}
			d.marks[r.Name] = &mark{spent: actual, total: actual, a: r.Algorithm, end: -1, parts: append(before, part{c, n, true}), count: [3]int64{s.edge, s.count, s.before}, version: s.version, consumed: s.consumed}
		case m == nil:
			delete(d.marks, r.Name)
		default:
			if n < 0 {
				h.giveBack(s, m, r.Algorithm, -n)
				m.spent = actual
			}
			if m.kept = kept[r.Name] && !m.own; !m.kept {
				m.total = actual
			}
		}
	}
	return want
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

// peek returns the result of each rule under a wide limit, in the order of h.names.
func (h *history) peek(v *version, key weir.Key) ([]weir.Result, error) {
	each := make([]weir.Result, len(h.names))
	_, err := v.wide.Decide(h.ctx, weir.Request{Key: key, Op: weir.Peek}, each)
	return each, err
}

// returns reports whether the rule r of now can return tokens of m.
func (m *mark) returns(r weir.Rule) bool {
	return m.own == (r.Cost > 0) && fits(m.a, r.Algorithm) && m.holds(false) > 0
}

// refund refunds d, twice.
func (h *history) refund(v *version, user string, d *decision, say func(string, ...any)) error {
	live := h.live(v, d)
	before, err3 := h.peek(v, d.Key)
	res, err := v.lim.Decide(h.ctx, weir.Request{Key: d.Key, ID: d.ID, Op: weir.Refund}, nil)
	after, err4 := h.peek(v, d.Key)
	again, err2 := v.lim.Refund(h.ctx, weir.Request{Key: d.Key, ID: d.ID})
	got := weir.Settlement{Found: res.Allowed || res.Rule != "", Cost: res.Granted, Kept: res.Rule}
	say("refund %q: %+v, %v, and then %+v, %v", d.ID, res, err, again, err2)
	if err := errors.Join(err3, err, err4, err2); err != nil {
		return err
	}
	want, must, can, sure := weir.Settlement{}, false, false, true
	for _, r := range v.rules {
		i, m := slices.Index(h.names, r.Name), live[r.Name]
		switch {
		case m == nil || m.spent == 0:
		case !m.returns(r):
			if !m.own && r.Cost == 0 {
				want.Cost = max(want.Cost, m.spent)
			}
			want.Kept = cmp.Or(want.Kept, r.Name)
		case (rated(r.Algorithm) || h.state(r.Name, user).loose) && before[i] == after[i]:
			sure = false // it may have kept the tokens, or they were refilled
		default:
			parts := slices.Clone(m.parts)
			gave, may := h.giveBack(h.state(r.Name, user), m, r.Algorithm, 1<<50)
			if must, can = must || gave, can || may; !res.Allowed {
				m.parts = parts
			}
			// After a step back of the clock, d can be live again, and its window not.
			sure = sure && (may || h.stepped < d.at || before[i] != after[i])
		}
	}
	stays := !res.Allowed && got.Found
	if want.Found = res.Allowed || want.Kept != ""; stays && sure {
		want.Cost = got.Cost
	}
	if stays && !slices.Contains(costs(live), got.Cost) || must && !res.Allowed || res.Allowed && !can && sure || sure && got != want || stays && again != got || !stays && again.Found {
		return fmt.Errorf("got %+v, and then %+v, want %+v (must %v, can %v, sure %v)", res, again, want, must, can, sure)
	}
	if stays {
		h.stats.Held++
		return nil
	}
	h.stats.Refunded++
	for _, r := range v.rules {
		delete(d.marks, r.Name)
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

// evict deletes the keys of one rule, or one marker of d.
func (h *history) evict(v *version, user string, d *decision, known bool, say func(string, ...any)) error {
	name := pick(h.r, h.names...)
	var named suite.Written
	p := weir.Policy{Name: suite.Name, Segments: []string{"tenant", "user"}}
	for _, n := range h.names {
		p.Rules = append(p.Rules, weir.Rule{Name: n, By: h.by(n), Algorithm: widest(v.algs[n])})
	}
	l, err := weir.NewPolicy(suite.Note(memory.New(nil), &named), p, &weir.Options{Prefix: h.prefix, Clock: h.c.Now})
	if err != nil {
		return err
	}
	r := weir.Request{Key: key(user), ID: "none"}
	marker := known && h.r.IntN(3) == 0
	if marker {
		r.ID = d.ID
	}
	if _, err := l.Decide(h.ctx, r, nil); err != nil {
		return err
	}
	keys := slices.Sorted(maps.Keys(named.Keys))
	keys = slices.DeleteFunc(keys, func(k string) bool {
		return !strings.Contains(k, "}:"+name+".") || strings.Contains(k, ":%id=") != marker
	})
	say("delete %q", keys)
	if len(keys) == 0 {
		return fmt.Errorf("no key of rule %s among %v", name, named.Keys)
	}
	if marker {
		delete(d.marks, name)
	} else {
		h.state(name, user).clear(v.algs[name])
	}
	_, err = h.st.Eval(h.ctx, scripts.Clean, keys, []store.Arg{store.IntArg(int64(len(keys)))}, nil)
	return err
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
