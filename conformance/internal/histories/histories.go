// Package histories checks random histories of decisions with IDs, whose limits and units
// change in the middle, against a model of the documentation. In half of the histories, an ID
// names a piece of work, with its lease and its bill.
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
	rules []weir.Rule           // without "x", which holds leases, and "p", which pauses keys
	index map[string]int        // of all rules in lim, by name
	place algorithm.Concurrency // of "x"
	lim   *weir.Limiter
	wide  *weir.Limiter // all rules of the history, with wide limits
	one   *weir.Limiter // in a history of work, a single place
	algs  map[string]algorithm.Algorithm
	life  time.Duration // how long markers of rules with a Unit live, at least

	follows, counts bool // a rule has no Cost and no Unit; a rule has a Unit
}

// A seen is what a Peek shows of the rules.
type seen map[string]struct{ used, end int64 }

// Stats counts what histories did.
type Stats struct {
	Steps, Exact, Bounds, Kept, Replayed, Settled, Refunded, Held int

	// Of rules with a Unit: charges, amounts of 0, settlements to less and to more, those
	// after the tokens were refilled, decisions that were not found, and requests that
	// forgot an amount, or repeated another one.
	Counted, Zeros, Less, More, Ended, NotFound, Forgot, Other int

	// Of work: places that were taken, repeats without a place and those that took one,
	// decisions whose bill had ended, requests in a pause, answers that nobody saw, Finishes,
	// and requests without Options.Settles.
	Taken, Full, Again, Anew, Paused, Lost, Finished, Plain int
}

type history struct {
	ctx       context.Context
	st        store.Store
	r         *rand.Rand
	c         *decisions.Clock
	prefix    string
	names     []string
	shared    string // the rule that all users share
	base      map[string]algorithm.Algorithm
	units     map[string]string // of the rules; nil if no limiter has units
	work      bool              // limiters hold leases
	until     map[string]map[string]int64
	placed    weir.Result // the newest answer of the rule that holds leases
	versions  []*version
	states    map[string]*state
	decisions []*decision
	events    []int64
	ids       int
	still     int   // for how many steps the clock stands still
	stepped   int64 // the highest time before a step back
	log       []string
	stats     *Stats
}

// Run runs the history of seed. The keys begin with prefix.
func Run(ctx context.Context, st store.Store, prefix string, seed uint64, stats *Stats) (err error) {
	h := &history{
		ctx: ctx, st: st, r: rand.New(rand.NewPCG(seed, 30)), c: decisions.NewClock(), prefix: prefix,
		base: map[string]algorithm.Algorithm{}, states: map[string]*state{}, until: map[string]map[string]int64{}, stats: stats,
	}
	h.c.Micros += h.r.Int64N(5_000_000)
	defer func() {
		if err != nil {
			err = fmt.Errorf("seed %d: %w\n%s", seed, err, strings.Join(h.log, "\n"))
		}
	}()
	if h.r.IntN(3) > 0 {
		h.units = map[string]string{}
	}
	for _, name := range []string{"a", "b", "c", "d"}[:1+h.r.IntN(4)] {
		h.names = append(h.names, name)
		if h.units != nil {
			h.units[name] = pick(h.r, "", "", "u", "u", "v", "w")
		}
		h.base[name] = pick(h.r, limits...)(h.r)
	}
	if len(h.names) > 1 && h.r.IntN(3) == 0 {
		h.shared = "b"
	}
	h.work = h.r.IntN(2) == 0
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
		last := h.versions[len(h.versions)-1]
		v.rules, v.index = slices.Clone(last.rules), last.index
	} else {
		for _, i := range h.r.Perm(len(h.names)) {
			if len(v.rules) == 0 || h.names[i] == h.shared || h.r.IntN(6) > 0 {
				v.rules = append(v.rules, weir.Rule{Name: h.names[i], By: h.by(h.names[i]), Unit: h.units[h.names[i]]})
				if last := &v.rules[len(v.rules)-1]; h.units != nil && h.r.IntN(5) == 0 {
					last.Unit = pick(h.r, "", "u", "v", "w")
				}
			}
		}
	}
	for i := range v.rules {
		r := &v.rules[i]
		if r.Algorithm = h.base[r.Name]; h.r.IntN(3) == 0 {
			r.Algorithm = like(h.r, r.Algorithm)
		}
		if i > 0 && r.Unit == "" && h.r.IntN(5) == 0 {
			r.Cost = 1
		}
		v.algs[r.Name] = r.Algorithm
	}
	p := weir.Policy{Name: suite.Name, Segments: []string{"tenant", "user"}, Rules: h.join(v)}
	if h.units != nil {
		for _, i := range h.r.Perm(len(units)) {
			p.Units = append(p.Units, units[i])
		}
		p.Units = append([]string{"new"}[:h.r.IntN(2)], p.Units...)
	}
	opts := &weir.Options{Prefix: h.prefix, Clock: h.c.Now}
	var err error
	if plan {
		last := h.versions[len(h.versions)-1]
		v.life = last.life
		v.lim, err = last.lim.With(p.Rules...)
	} else {
		settles := *opts
		if settles.Settles = h.r.IntN(2) == 0 || h.work && h.r.IntN(4) > 0; settles.Settles {
			v.life = 10 * time.Minute
		}
		v.lim, err = weir.NewPolicy(h.st, p, &settles)
	}
	if err != nil {
		return err
	}
	v.index = map[string]int{}
	for i, r := range v.lim.Rules() {
		v.index[r.Name] = i
	}
	for i := range v.rules { // With keeps a Cost
		v.rules[i].Cost = v.lim.Rules()[v.index[v.rules[i].Name]].Cost
	}
	if v.life > 0 {
		v.life = max(10*time.Minute, v.place.Lease)
	}
	for _, r := range v.rules {
		v.counts, v.follows = v.counts || r.Unit != "", v.follows || follows(r)
	}
	p.Rules = nil
	for _, name := range h.names {
		p.Rules = append(p.Rules, weir.Rule{Name: name, By: h.by(name), Algorithm: widest(v.algs[name])})
	}
	if h.work {
		p.Rules = append(p.Rules, placesRule(manyPlaces, time.Second))
	}
	if v.wide, err = weir.NewPolicy(h.st, p, opts); err == nil && h.work {
		if v.one, err = v.wide.Only("x"); err == nil {
			v.one, err = v.one.With(placesRule(1, time.Second))
		}
	}
	h.versions = append(h.versions, v)
	h.log = append(h.log, fmt.Sprintf("version %d, plan %v, units %v, life %v: %+v, %+v of %v", len(h.versions)-1, plan, p.Units, v.life, v.rules, v.place, v.index))
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
	if h.work {
		err = h.seePlaces(v, user, each[len(h.names)].Remaining)
	}
	return got, err
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
	if !known {
		d = nil
	}
	var want map[string]int64 // how many tokens more; nil if only the model's bounds count
	switch op := h.r.IntN(20); {
	case h.work && h.r.IntN(4) == 0:
		want, err = map[string]int64{}, h.keep(v, user, d, say)
	case known && (op < 4 || h.work && op > 16):
		want, err = h.repeat(v, user, d, before, say)
	case known && op < 9:
		err = h.settle(v, user, d, say)
	case known && op < 12:
		err = h.refund(v, user, d, say)
	case op == 12:
		if err = v.lim.Reset(h.ctx, "t", user); h.allShared(v) {
			err, want = nil, map[string]int64{}
		} else {
			if v.places() {
				clear(h.ends("x", user))
			}
			if v.pauses() {
				clear(h.ends("p", user))
			}
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
		want, err = h.decide(v, user, nil, before, say)
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
	for _, d := range []*decision{d, h.last()} {
		if d != nil && d.Key == key(user) {
			h.end(d, after)
		}
	}
	return nil
}

// end notes when the new marks of d end.
func (h *history) end(d *decision, after seen) {
	for id, m := range d.marks {
		if m.end >= 0 {
			continue
		}
		if m.end = after[id[:1]].end; m.until > 0 {
			m.until = max(m.until, m.end)
			h.events = append(h.events, m.until)
		}
	}
}

func (h *history) last() *decision {
	if len(h.decisions) == 0 {
		return nil
	}
	return h.decisions[len(h.decisions)-1]
}

func (h *history) allShared(v *version) bool {
	return len(v.index) == len(v.rules) && !slices.ContainsFunc(v.rules, func(r weir.Rule) bool { return r.Name != h.shared })
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
			if at := pick(h.r, h.events...) + h.r.Int64N(3) - 1; at > was && (at < was+20e6 || h.r.IntN(4) == 0) {
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
		h.c.Micros += pick(h.r, h.r.Int64N(10e6), h.r.Int64N(10e6), h.r.Int64N(10e6), 1e6, 30e6, 540e6, 660e6)
	default:
		h.c.Micros += h.r.Int64N(1e6)
	}
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
	return want, h.took(v, &r, free, res.Allowed)
}
