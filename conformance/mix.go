package conformance

import (
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/lualocals"
	"github.com/weir-go/weir/store/memory"
)

// This file holds the checks of decisions over several rules.

func checkMix(t *T) {
	t.beside(t.times(80), 20, func(r *rand.Rand) []algorithm.Algorithm {
		list := []algorithm.Algorithm{t.draw(r)}
		for range 1 + r.IntN(4) {
			list = append(list, pick(r, anyGCRA, anyFixedWindow, anySlidingCounter, anySlidingLog, t.draw)(r))
		}
		return list
	})
}

// checkSixteen first makes decisions over sixteen equal rules. Then the rules differ, and one
// of them is at its bounds.
func checkSixteen(t *T) {
	huge := t.backend.subject.Huge
	h := 0
	t.beside(t.times(24), 12, func(r *rand.Rand) []algorithm.Algorithm {
		list := make([]algorithm.Algorithm, weir.MaxRules)
		for i := range list {
			if list[i] = list[0]; i == 0 || h > 0 {
				list[i] = t.draw(r)
			}
		}
		if h > 0 && len(huge) > 0 {
			list[len(list)-1] = huge[h%len(huge)]
		}
		h++
		t.compiles(list)
		return list
	})
}

// compiles checks that the scripts of list have no more locals than Lua allows.
func (t *T) compiles(list []algorithm.Algorithm) {
	rules := make([]compose.Rule, len(list))
	for i, a := range list {
		rules[i].Limit = t.limitOf(a)
	}
	p, err := compose.New(rules)
	if err != nil {
		t.fatalf("%d rules: %v", len(list), err)
	}
	for _, v := range p.Verbs() {
		s := p.Script(v)
		if n := lualocals.Of(s); n > lualocals.Max {
			t.fatalf("%s has %d locals at once, and Lua allows %d: put some of them between do and end", s.Name(), n, lualocals.Max)
		}
	}
}

// limiterMix makes decisions over rules with any algorithms. Some rules have a Cost.
func limiterMix(t *T) {
	t.beside(t.times(40), 30, func(r *rand.Rand) []algorithm.Algorithm {
		list := []algorithm.Algorithm{pick(r, anyMetadataWindow, refundable, anyConcurrency, anyConcurrency)(r)}
		for range 1 + r.IntN(3) {
			list = append(list, refundable(r))
		}
		return list
	})
}

// beside runs n random histories, each with the algorithms of maker in random order. It
// compares the answer of each rule with the answer of the rule alone, on the memory store.
// Some rules have a Cost. If only some rules have leases, the Cost of these is 1.
func (t *T) beside(n, steps int, maker func(*rand.Rand) []algorithm.Algorithm) {
	r := t.rand()
	for h := range n {
		list := maker(r)
		unit := t.unitOf(list[0])
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		m := t.newMix(r, list)
		key := weir.KeyOf("beside" + strconv.Itoa(h))
		l := t.limiter(m.c, m.rules...)
		each := make([]weir.Result, len(list))
		for s := range steps {
			m.c.advance(anyPause(r, unit))
			name := ""
			if m.leases {
				name = pick(r, "a", "\x00", "c2 a", strconv.Itoa(s))
			}
			if m.leases && r.IntN(6) == 0 {
				m.release(t, l, weir.Request{Key: key, Op: weir.Release, ID: name})
				continue
			}
			req := weir.Request{Key: key, Cost: min(anyCost(r), m.most), ID: name}
			if m.wait > 0 && r.IntN(4) == 0 {
				req.MaxWait = min(anyWait(r, unit), m.wait)
			}
			switch verb := r.IntN(5); {
			case verb == 0:
				req.Op = weir.Peek
			case verb <= 2 && m.others && req.MaxWait == 0:
				req.Op, req.Cost = weir.TakeUpTo, 1+r.Int64N(20)
			case verb == 3 && req.MaxWait == 0 && m.canForce(t, key):
				req.Op = weir.Force
			}
			got := t.do(l, req, each...)
			all, granted, want := m.answer(t, req)
			if got.Allowed != all || got.Granted != granted {
				t.errorf("got %+v, want %d tokens granted, and it allowed: %v, as each rule answers alone", got, granted, all)
			}
			for i := range list {
				if each[i] != want[i] {
					t.errorf("rule %d:\ngot   %+v\nalone %+v", i, each[i], want[i])
				}
			}
			if t.failed() {
				t.fatalf("history %d of %+v, step %d, %+v", h, m.rules, s, req)
			}
		}
	}
}

// A mix has rules, and for each rule a limiter with this rule alone, on the memory store.
type mix struct {
	c      *clock
	rules  []weir.Rule
	alone  []*weir.Limiter
	most   int64         // the largest cost that all rules support
	free   int           // a rule without a Cost
	leases bool          // some rule has leases
	others bool          // some rule has no leases
	wait   time.Duration // how far ahead all rules can reserve tokens
}

func (t *T) newMix(r *rand.Rand, list []algorithm.Algorithm) *mix {
	m := &mix{c: newClock(), rules: make([]weir.Rule, len(list)), most: math.MaxInt64, wait: weir.Never}
	for i, a := range list {
		kind := t.kindOf(a)
		if !kind.Leases {
			m.free, m.others = i, true
		}
		m.leases, m.wait = m.leases || kind.Leases, min(m.wait, t.longestWait(a))
	}
	for i, a := range list {
		rule := weir.Rule{Name: "r" + strconv.Itoa(i), Algorithm: a}
		switch limit := t.limitOf(a); {
		case t.kindOf(a).Leases && m.others:
			rule.Cost = 1
		case i != m.free && r.IntN(4) == 0:
			rule.Cost = t.fitting(a, min(1+r.Int64N(2), limit.Capacity))
		case limit.MaxCost > 0:
			m.most = min(m.most, limit.MaxCost)
		}
		m.rules[i] = rule
		m.alone = append(m.alone, t.limiterOn(memory.New(nil), m.c, rule))
	}
	return m
}

// canForce reports whether no rule is near its largest debt, also after the clock stepped back.
func (m *mix) canForce(t *T, key weir.Key) bool {
	for i, l := range m.alone {
		if res := t.do(l, weir.Request{Key: key, Op: weir.Peek}); t.limitOf(m.rules[i].Algorithm).MaxDebt < 1000 || res.ResetAfter > 2*res.Window {
			return false
		}
	}
	return true
}

// release releases a lease. Only the rules with leases change.
func (m *mix) release(t *T, l *weir.Limiter, r weir.Request) {
	held := false
	for i, rule := range m.rules {
		if t.kindOf(rule.Algorithm).Leases {
			held = t.do(m.alone[i], r).Allowed || held
		}
	}
	if got := t.do(l, r); got.Allowed != held {
		t.errorf("%+v, of %+v: got %+v, want it allowed: %v", r, m.rules, got, held)
	}
}

// answer returns whether all rules allow r, the tokens granted, and what each answers.
func (m *mix) answer(t *T, r weir.Request) (all bool, granted int64, each []weir.Result) {
	ask := func(i int, op weir.Op) weir.Result {
		r := r
		if r.Op = op; !t.kindOf(m.rules[i].Algorithm).Leases {
			r.ID = "" // an ID would make a marker
		}
		return t.do(m.alone[i], r)
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
