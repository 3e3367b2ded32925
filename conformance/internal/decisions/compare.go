package decisions

import (
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/internal/model"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A Pair is two limiters with the same rules: one on the store under test, and one on the
// reference store.
type Pair struct {
	T         *T
	Lim, Ref  *weir.Limiter
	Reference store.Store
}

// Pair returns a pair whose reference store is a new memory store.
func (t *T) Pair(c *Clock, rules ...weir.Rule) Pair { return t.PairOn(memory.New(nil), c, rules...) }

// PairOn returns a pair with this reference store.
func (t *T) PairOn(reference store.Store, c *Clock, rules ...weir.Rule) Pair {
	return Pair{t, t.Limiter(c, rules...), t.Reference(reference, c, rules...), reference}
}

// Both makes a request on both stores, and checks that the answers are equal.
func (p Pair) Both(r weir.Request) weir.Result {
	if p.T.Leases && r.Op == weir.Consume && r.ID == "" {
		r.ID = p.T.Lease()
	}
	got, want := p.T.Do(p.Lim, r), p.T.Do(p.Ref, r)
	p.T.Equal(got, want, "request %+v:\ngot  %+v\nwant %+v, as on the reference store", r)
	return got
}

// Refund refunds the decision with the ID on both stores, and checks that the answers are
// equal.
func (p Pair) Refund(id string, key ...string) bool {
	return p.Both(weir.Request{Key: weir.KeyOf(key...), Op: weir.Refund, ID: id}).Allowed
}

// Same checks that keys hold the same values as on the reference store.
func (p Pair) Same(what any, keys ...string) {
	want := suite.Must[[]store.Value](p.T.T, "the reference store")(p.Reference.MGet(p.T.Ctx, keys, nil))
	for i, v := range p.T.MGet(keys...) {
		if v != want[i] {
			p.T.Errorf("%+v: key %q holds %q, on the reference store %q", what, keys[i], v.Str(), want[i].Str())
		}
	}
}

// Beside runs n random histories on keys that begin with name, each with the algorithms of
// maker in random order. It compares the answer of each rule with the answer of the rule
// alone, on the memory store. Some rules have a Cost. If only some rules have leases, the
// Cost of these is 1.
func (t *T) Beside(name string, n, steps int, maker func(*rand.Rand) []algorithm.Algorithm) {
	r := t.Rand()
	for h := range n {
		list := maker(r)
		unit := t.Unit(list[0])
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		m := t.newMix(r, list)
		key := weir.KeyOf(name + strconv.Itoa(h))
		l := t.Limiter(m.c, m.rules...)
		each := make([]weir.Result, len(list))
		for s := range steps {
			m.c.Advance(model.Pause(r, unit))
			id := ""
			if m.leases {
				id = model.Pick(r, "a", "\x00", "c2 a", strconv.Itoa(s))
			}
			if m.leases && r.IntN(6) == 0 {
				m.release(t, l, weir.Request{Key: key, Op: weir.Release, ID: id})
				continue
			}
			req := weir.Request{Key: key, Cost: min(model.Cost(r), m.most), ID: id}
			if m.wait > 0 && r.IntN(4) == 0 {
				req.MaxWait = min(model.Wait(r, unit), m.wait)
			}
			switch verb := r.IntN(5); {
			case verb == 0:
				req.Op = weir.Peek
			case verb <= 2 && m.others && req.MaxWait == 0:
				req.Op, req.Cost = weir.TakeUpTo, 1+r.Int64N(20)
			case verb == 3 && req.MaxWait == 0 && m.canForce(t, key):
				req.Op = weir.Force
			}
			got := t.Do(l, req, each...)
			all, granted, want := m.answer(t, req)
			if got.Allowed != all || got.Granted != granted {
				t.Errorf("got %+v, want %d tokens granted, and it allowed: %v, as each rule answers alone", got, granted, all)
			}
			for i := range list {
				t.Equal(each[i], want[i], "rule %d:\ngot   %+v\nalone %+v", i)
			}
			t.StopFailed("history %d of %+v, step %d, %+v", h, m.rules, s, req)
		}
	}
}

// A mix has rules, and for each rule a limiter with this rule alone, on the memory store.
type mix struct {
	c      *Clock
	rules  []weir.Rule
	alone  []*weir.Limiter
	most   int64         // the largest cost that all rules support
	free   int           // a rule without a Cost
	leases bool          // some rule has leases
	others bool          // some rule has no leases
	wait   time.Duration // how far ahead all rules can reserve tokens
}

func (t *T) newMix(r *rand.Rand, list []algorithm.Algorithm) *mix {
	m := &mix{c: NewClock(), rules: make([]weir.Rule, len(list)), most: math.MaxInt64, wait: weir.Never}
	for i, a := range list {
		kind := t.KindOf(a)
		if !kind.Leases {
			m.free, m.others = i, true
		}
		m.leases, m.wait = m.leases || kind.Leases, min(m.wait, t.LongestWait(a))
	}
	for i, a := range list {
		rule := weir.Rule{Name: "r" + strconv.Itoa(i), Algorithm: a}
		switch limit := t.LimitOf(a); {
		case t.KindOf(a).Leases && m.others:
			rule.Cost = 1
		case i != m.free && r.IntN(4) == 0:
			rule.Cost = t.Fitting(a, min(1+r.Int64N(2), limit.Capacity))
		case limit.MaxCost > 0:
			m.most = min(m.most, limit.MaxCost)
		}
		m.rules[i] = rule
		m.alone = append(m.alone, t.Reference(memory.New(nil), m.c, rule))
	}
	return m
}

// canForce reports whether no rule is near its largest debt, even after the clock stepped
// back.
func (m *mix) canForce(t *T, key weir.Key) bool {
	for i, l := range m.alone {
		if res := t.Do(l, weir.Request{Key: key, Op: weir.Peek}); t.LimitOf(m.rules[i].Algorithm).MaxDebt < 1000 || res.ResetAfter > 2*res.Window {
			return false
		}
	}
	return true
}

// release releases a lease. Only the rules with leases change.
func (m *mix) release(t *T, l *weir.Limiter, r weir.Request) {
	held := false
	for i, rule := range m.rules {
		if t.KindOf(rule.Algorithm).Leases {
			held = t.Do(m.alone[i], r).Allowed || held
		}
	}
	if got := t.Do(l, r); got.Allowed != held {
		t.Errorf("%+v, of %+v: got %+v, want it allowed: %v", r, m.rules, got, held)
	}
}

// answer returns whether all rules allow r, the tokens granted, and what each answers.
func (m *mix) answer(t *T, r weir.Request) (all bool, granted int64, each []weir.Result) {
	ask := func(i int, op weir.Op) weir.Result {
		r := r
		if r.Op = op; !t.KindOf(m.rules[i].Algorithm).Leases {
			r.ID = "" // an ID would make a marker
		}
		return t.Do(m.alone[i], r)
	}
	if r.Op == weir.TakeUpTo { // it equals a request for the available tokens
		fewest := min(r.Cost, m.most)
		r.Op, r.Cost = weir.Consume, 1
		for i, rule := range m.rules {
			if res := ask(i, weir.Peek); rule.Cost == 0 {
				fewest = min(fewest, res.Remaining)
			}
		}
		r.Cost = max(fewest, 1)
	}
	all = true
	for i := range m.rules {
		each = append(each, ask(i, weir.Peek))
		all = all && each[i].Allowed || r.Op == weir.Force
	}
	if !all || r.Op == weir.Peek {
		return all, 0, each
	}
	for i := range m.rules {
		each[i] = ask(i, r.Op)
	}
	return all, each[m.free].Granted, each
}
