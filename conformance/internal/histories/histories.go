// Package histories checks random histories of decisions with IDs, whose limits change in the
// middle, against a model of the documentation.
package histories

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/internal/decisions"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/store"
)

// A version is a limiter as one process has it.
type version struct {
	rules []weir.Rule
	lim   *weir.Limiter
	wide  *weir.Limiter // all rules of the history, with wide limits
	algs  map[string]algorithm.Algorithm
}

// A seen is what a Peek shows of the rules.
type seen map[string]struct{ used, end int64 }

// Stats counts what histories did.
type Stats struct{ Steps, Exact, Bounds, Kept, Replayed, Settled, Refunded, Held int }

type history struct {
	ctx       context.Context
	st        store.Store
	r         *rand.Rand
	c         *decisions.Clock
	prefix    string
	names     []string
	shared    string // the rule that all users share
	base      map[string]algorithm.Algorithm
	versions  []*version
	states    map[string]*state
	decisions []*decision
	events    []int64
	still     int   // for how many steps the clock stands still
	stepped   int64 // the highest time before a step back
	log       []string
	stats     *Stats
}

// Run runs the history of seed. The keys begin with prefix.
func Run(ctx context.Context, st store.Store, prefix string, seed uint64, stats *Stats) (err error) {
	h := &history{
		ctx: ctx, st: st, r: rand.New(rand.NewPCG(seed, 30)), c: decisions.NewClock(), prefix: prefix,
		base: map[string]algorithm.Algorithm{}, states: map[string]*state{}, stats: stats,
	}
	h.c.Micros += h.r.Int64N(5_000_000)
	defer func() {
		if err != nil {
			err = fmt.Errorf("seed %d: %w\n%s", seed, err, strings.Join(h.log, "\n"))
		}
	}()
	for _, name := range []string{"a", "b", "c"}[:1+h.r.IntN(3)] {
		h.names = append(h.names, name)
		h.base[name] = pick(h.r, limits...)(h.r)
	}
	if len(h.names) > 1 && h.r.IntN(3) == 0 {
		h.shared = "b"
	}
	for range 2 + h.r.IntN(3) {
		if err := h.deploy(); err != nil {
			return err
		}
	}
	for range 12 + h.r.IntN(20) {
		h.stats.Steps++
		if err := h.step(); errors.Is(err, errUnknown) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// deploy adds a version: some of the rules, with other limits, in another order. It can be a
// plan of the version before.
func (h *history) deploy() error {
	v := &version{algs: maps.Clone(h.base)}
	plan := len(h.versions) > 0 && h.r.IntN(3) == 0
	if plan {
		v.rules = slices.Clone(h.versions[len(h.versions)-1].rules)
	} else {
		for _, i := range h.r.Perm(len(h.names)) {
			if len(v.rules) == 0 || h.names[i] == h.shared || h.r.IntN(6) > 0 {
				v.rules = append(v.rules, weir.Rule{Name: h.names[i], By: h.by(h.names[i])})
			}
		}
	}
	for i := range v.rules {
		r := &v.rules[i]
		if r.Algorithm = h.base[r.Name]; h.r.IntN(3) == 0 {
			r.Algorithm = like(h.r, r.Algorithm)
		}
		if i > 0 && h.r.IntN(5) == 0 {
			r.Cost = 1
		}
		v.algs[r.Name] = r.Algorithm
	}
	p := weir.Policy{Name: suite.Name, Segments: []string{"tenant", "user"}, Rules: v.rules}
	opts := &weir.Options{Prefix: h.prefix, Clock: h.c.Now}
	var err error
	if plan {
		v.lim, err = h.versions[len(h.versions)-1].lim.With(v.rules...)
	} else {
		v.lim, err = weir.NewPolicy(h.st, p, opts)
	}
	if err != nil {
		return err
	}
	if plan { // With keeps a Cost
		for i, r := range v.lim.Rules() {
			v.rules[i].Cost = r.Cost
		}
	}
	p.Rules = nil
	for _, name := range h.names {
		p.Rules = append(p.Rules, weir.Rule{Name: name, By: h.by(name), Algorithm: widest(v.algs[name])})
	}
	v.wide, err = weir.NewPolicy(h.st, p, opts)
	h.versions = append(h.versions, v)
	h.log = append(h.log, fmt.Sprintf("version %d, plan %v: %+v", len(h.versions)-1, plan, v.rules))
	return err
}

func (h *history) by(name string) []string {
	if name == h.shared {
		return []string{"tenant"}
	}
	return nil
}

// state returns the state of a rule for a user.
func (h *history) state(name, user string) *state {
	if name == h.shared {
		user = ""
	}
	s := h.states[name+user]
	if s == nil {
		s = new(state)
		h.states[name+user] = s
	}
	return s
}

// see peeks at all rules, and compares them with the model.
func (h *history) see(v *version, user string) (seen, error) {
	each, err := h.peek(v, key(user))
	if err != nil {
		return nil, err
	}
	got := seen{}
	for i, name := range h.names {
		n := wide - each[i].Remaining
		if r, ok := v.algs[name].(algorithm.LeakyBucket); ok { // its Remaining is 0
			t := r.Rate.Period / time.Duration(r.Rate.Count)
			n = int64((each[i].ResetAfter + t - 1) / t)
		}
		got[name] = struct{ used, end int64 }{n, h.c.Micros + each[i].ResetAfter.Microseconds()}
		lo, hi := h.state(name, user).used(h.c.Micros, v.algs[name])
		if n < lo || n > hi {
			return got, fmt.Errorf("at %d µs: rule %s of %s, %+v: %d tokens in use, want from %d to %d", h.c.Micros-decisions.NewClock().Micros, name, user, v.algs[name], n, lo, hi)
		}
		if lo == hi {
			h.stats.Exact++
		} else {
			h.stats.Bounds++
		}
	}
	return got, nil
}

func key(user string) weir.Key { return weir.KeyOf("t", user) }

// step makes one step.
func (h *history) step() error {
	h.pause()
	i := h.r.IntN(len(h.versions))
	v, user := h.versions[i], pick(h.r, "ann", "ann", "bob")
	var d *decision
	if len(h.decisions) > 0 {
		d = h.decisions[len(h.decisions)-1-min(h.r.IntN(len(h.decisions)), h.r.IntN(5))]
		if h.r.IntN(4) > 0 {
			user = d.Key.Segments()[1]
		}
	}
	before, err := h.see(v, user)
	if err != nil {
		return err
	}
	say := func(format string, args ...any) {
		h.log = append(h.log, fmt.Sprintf("%8d µs, version %d, %s: ", h.c.Micros-decisions.NewClock().Micros, i, user)+fmt.Sprintf(format, args...))
	}
	known := d != nil && d.Key == key(user)
	var want map[string]int64 // how many tokens more; nil if only the model's bounds count
	switch op := h.r.IntN(20); {
	case known && op < 4:
		want, err = h.repeat(v, d, say)
	case known && op < 9:
		err = h.settle(v, user, d, say)
	case known && op < 12:
		err = h.refund(v, user, d, say)
	case op == 12:
		if err = v.lim.Reset(h.ctx, "t", user); h.allShared(v) {
			err, want = nil, map[string]int64{}
		} else {
			for _, r := range v.rules {
				if r.Name != h.shared {
					h.state(r.Name, user).clear(r.Algorithm)
				}
			}
		}
		say("reset: %v", err)
	case op == 13:
		err = h.evict(v, user, d, known, say)
	default:
		want, err = h.decide(v, user, say)
	}
	if err != nil {
		return err
	}
	after, err := h.see(v, user)
	if err != nil {
		return err
	}
	for _, name := range h.names {
		if got := after[name].used - before[name].used; want != nil && got != want[name] {
			return fmt.Errorf("rule %s consumed %d tokens, want %d", name, got, want[name])
		}
		h.events = append(h.events, after[name].end)
	}
	if known && d != nil {
		for name, m := range d.marks {
			if m.end < 0 {
				m.end = after[name].end
			}
		}
	}
	if d := h.last(); d != nil {
		for name, m := range d.marks {
			if m.end < 0 {
				m.end = after[name].end
			}
		}
	}
	return nil
}

func (h *history) last() *decision {
	if len(h.decisions) == 0 {
		return nil
	}
	return h.decisions[len(h.decisions)-1]
}

func (h *history) allShared(v *version) bool {
	return !slices.ContainsFunc(v.rules, func(r weir.Rule) bool { return r.Name != h.shared })
}

// pause moves the clock, sometimes back, and sometimes to an instant at which a state ends.
func (h *history) pause() {
	was := h.c.Micros
	if h.still > 0 {
		h.still--
		return
	}
	switch h.r.IntN(12) {
	case 0, 1, 2, 3:
		h.still = h.r.IntN(5)
	case 4:
		if len(h.events) > 0 {
			if at := pick(h.r, h.events...) + h.r.Int64N(3) - 1; at > was && at < was+20e6 {
				h.c.Micros = at
			}
		}
	case 5:
		if h.r.IntN(2) == 0 {
			h.c.Micros -= h.r.Int64N(4e6)
			h.stepped = max(h.stepped, was)
			for _, s := range h.states {
				s.stepBack()
			}
		}
	case 6:
		h.c.Micros += h.r.Int64N(10e6)
	default:
		h.c.Micros += h.r.Int64N(1e6)
	}
}

// decide makes a new decision.
func (h *history) decide(v *version, user string, say func(string, ...any)) (map[string]int64, error) {
	r := weir.Request{Key: key(user), Op: pick(h.r, weir.Consume, weir.Consume, weir.TakeUpTo, weir.Force), Cost: pick(h.r, 1, 1, 2, 1+h.r.Int64N(9))}
	if h.r.IntN(5) > 0 {
		r.ID = fmt.Sprint("id", len(h.decisions))
	}
	res, err := v.lim.Decide(h.ctx, r, nil)
	say("%v %d %q: allowed %v, granted %d, %v", r.Op, r.Cost, r.ID, res.Allowed, res.Granted, err)
	if err != nil {
		return nil, err
	}
	if res.Replayed || res.Allowed && r.Op != weir.TakeUpTo && res.Granted != r.Cost {
		return nil, fmt.Errorf("got %+v", res)
	}
	want, d := map[string]int64{}, &decision{Request: r, at: h.c.Micros, total: res.Granted, marks: map[string]*mark{}}
	for _, rule := range v.rules {
		n := res.Granted
		if rule.Cost > 0 && res.Allowed {
			n = rule.Cost
		}
		if n == 0 {
			continue
		}
		want[rule.Name] = n
		s := h.state(rule.Name, user)
		c := s.consume(h.c.Micros, rule.Algorithm, d, n)
		d.marks[rule.Name] = &mark{own: rule.Cost > 0, spent: n, total: res.Granted, a: rule.Algorithm, end: -1, parts: []part{{c, n, true}}, count: [3]int64{s.edge, s.count, s.before}, version: s.version, consumed: s.consumed}
	}
	if res.Allowed && r.ID != "" {
		h.decisions = append(h.decisions, d)
	}
	return want, nil
}
