package histories

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/internal/decisions"
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
	edge              int64  // of the window that counts the newest tokens
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
		version: s.version, consumed: s.consumed,
	}
	if len(parts) > 0 && parts[len(parts)-1].tally != nil {
		m.edge = parts[len(parts)-1].tally.At
	}
	if r.Unit != "" || v.bills() {
		m.until = h.c.Micros + v.life.Microseconds()
	}
	return m
}

// decide makes a new decision. It has the ID of old, whose marks are not found, unless old is
// nil.
func (h *history) decide(v *version, user string, old *decision, before seen, say func(string, ...any)) (map[string]int64, error) {
	r := weir.Request{
		Key: key(user), Op: pick(h.r, weir.Consume, weir.Consume, weir.TakeUpTo, weir.Force), Cost: pick(h.r, 1, 1, 2, 1+h.r.Int64N(9)),
		Costs: h.amounts(weir.Costs{}, 30),
	}
	if h.r.IntN(5) > 0 {
		h.ids++
		r.ID = fmt.Sprint("id", h.ids)
	}
	if old != nil {
		r = old.Request
		h.stats.Anew++
	} else if h.work && h.r.IntN(8) == 0 {
		r.Op = weir.Peek
	} else if v.places() && h.r.IntN(16) == 0 {
		r.MaxWait = time.Second
	}
	free, lost := h.free(v, &r), h.lose(v, r, say)
	res, each, err := h.ask(v, r)
	say("%v %d, %v %q: allowed %v, replayed %v, granted %d of %s, %v", r.Op, r.Cost, r.Costs, r.ID, res.Allowed, res.Replayed, res.Granted, res.Rule, err)
	if want := v.rejects(r); want != nil {
		h.stats.Forgot++
		return map[string]int64{}, is(err, want)
	}
	if err != nil {
		return nil, err
	}
	asked := r
	if i := slices.IndexFunc(v.rules, follows); i >= 0 && r.Op == weir.TakeUpTo {
		if asked.Cost = max(each[i].Granted, 1); asked.Cost > r.Cost {
			return nil, fmt.Errorf("got %+v", each[i])
		}
	}
	want, d := map[string]int64{}, &decision{Request: r, at: h.c.Micros, asked: asked.Cost, total: asked.Cost, marks: map[string]*mark{}}
	full, sure := !free, true
	for i, rule := range v.rules {
		n := v.asked(i, &asked)
		if r.Op == weir.Peek {
			n = 0
		}
		if each[i].Granted != n && res.Allowed || each[i].Granted != 0 && !res.Allowed {
			return nil, fmt.Errorf("rule %s: got %+v, want that it granted %d", rule.Name, each[i], n)
		}
		switch rule.Algorithm.(type) {
		case algorithm.LeakyBucket, algorithm.SlidingBuckets: // one at a time, or several limits
			sure = false
		default:
			full = full || before[rule.Name].used+v.asked(i, &asked) > v.lim.Rules()[v.index[rule.Name]].Limit
		}
		if res.Granted != each[i].Granted && (v.counts && rule.Name == res.Rule || !v.counts && follows(rule)) {
			return nil, fmt.Errorf("got %+v, want that it granted %d", res, each[i].Granted)
		}
		if !res.Allowed || r.Op == weir.Peek {
			continue
		}
		s, id := h.state(rule.Name, user), id(rule)
		if want[rule.Name] = n; n > 0 {
			c := s.consume(h.c.Micros, rule.Algorithm, owner{d, rule.Unit}, n)
			d.marks[id] = h.mark(v, s, rule, n, d.total, []part{{c, n, true}})
		} else if h.stats.Zeros++; v.life > 0 {
			d.marks[id] = h.mark(v, s, rule, 0, 0, nil)
			d.marks[id].end = 0
		}
		if rule.Unit != "" && n > 0 {
			h.stats.Counted++
		}
	}
	if res.Replayed != (lost && res.Allowed) || res.Allowed == full && (full || sure) && r.Op != weir.Force || !res.Allowed && r.Op == weir.Force {
		return nil, fmt.Errorf("got %+v after %+v", res, before)
	}
	switch {
	case !res.Allowed || r.Op == weir.Peek:
	case v.places() && !v.bills(): // no bill
		h.stats.Plain++
		if d.marks = nil; old == nil {
			h.decisions = append(h.decisions, d)
		}
	case r.ID != "":
		h.decisions = append(slices.DeleteFunc(h.decisions, func(d *decision) bool { return d == old }), d)
	}
	if err := h.took(v, &r, free, res.Allowed); err != nil || res.Allowed || h.r.IntN(3) > 0 || res.RetryAfter > 20*time.Second {
		return want, err
	}
	return nil, h.due(v, r, res.RetryAfter)
}

// due checks that the request r, which was denied just now, is denied until 1µs before its
// RetryAfter, and then allowed.
func (h *history) due(v *version, r weir.Request, after time.Duration) error {
	if r.Op == weir.TakeUpTo { // it needs one token
		r.Cost = 1
	}
	if end := h.ends("x", user(&r))[r.ID]; end > h.c.Micros && end <= h.c.Micros+after.Microseconds() {
		return nil // its lease ends first, and then it needs another place
	}
	r.Op = weir.Peek
	for _, allowed := range []bool{false, true} {
		h.c.Advance(after - time.Microsecond)
		if res, _, err := h.ask(v, r); err != nil || res.Allowed != allowed {
			return fmt.Errorf("at %d µs, around the RetryAfter of %+v: got %+v, %v, want allowed %v", h.c.Micros-decisions.NewClock().Micros, r, res, err, allowed)
		}
		after = 2 * time.Microsecond
	}
	return nil
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

// holds returns the tokens that a refund can return.
func (m *mark) holds() (n int64) {
	for _, p := range m.parts {
		n += p.k
	}
	return n
}

// returns reports whether the rule r of now can return tokens of m.
func (m *mark) returns(r weir.Rule) bool {
	return m.own == (r.Cost > 0) && fits(m.a, r.Algorithm) && m.holds() > 0
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
