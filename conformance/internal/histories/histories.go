// Package histories checks random histories of decisions with IDs, whose limits and units
// change in the middle, against a model of the documentation. In half of the histories, an ID
// names a piece of work, with its lease and its bill.
package histories

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/internal/decisions"
	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/store"
)

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

// peek returns the result of each rule under a wide limit, in the order of h.names, and then that
// of the rule that holds leases.
func (h *history) peek(v *version, key weir.Key) ([]weir.Result, error) {
	each := make([]weir.Result, len(h.names)+1)
	_, err := v.wide.Decide(h.ctx, weir.Request{Key: key, Op: weir.Peek}, each)
	return each, err
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
	p := weir.Policy{Name: suite.Name, Segments: []string{"tenant", "user"}, Units: units}
	for _, n := range h.names {
		p.Rules = append(p.Rules, weir.Rule{Name: n, By: h.by(n), Unit: h.units[n], Algorithm: widest(h.base[n])})
	}
	var err error
	keys := decisions.Markers(func(st store.Store) {
		var l *weir.Limiter
		if l, err = weir.NewPolicy(st, p, &weir.Options{Prefix: h.prefix, Clock: h.c.Now}); err == nil {
			_, err = l.Decide(h.ctx, weir.Request{Key: d.Key, ID: d.ID, Costs: h.amounts(weir.Costs{}, math.MaxInt)}, nil)
		}
	})
	return slices.DeleteFunc(keys, func(k string) bool { return !strings.Contains(k, "}:"+name+".") }), err
}
