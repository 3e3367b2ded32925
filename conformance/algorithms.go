package conformance

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store/memory"
)

// This file holds the rules that every algorithm keeps; the files named like an
// algorithm say which of them it runs, and add its own traces.

// A step of a trace: at a time since its start a request is made.
type step struct {
	at      time.Duration
	cost    int64
	allowed bool
	left    int64
	reset   time.Duration
	retry   time.Duration
}

// trace runs steps through a on one key, in virtual time.
func (t *T) trace(a algorithm.Algorithm, steps []step) {
	c := newClock()
	start := c.us
	l := t.limiter(c, one(a))
	for i, s := range steps {
		c.us = start + s.at.Microseconds()
		got := t.allow(l, s.cost, "trace", fmt.Sprintf("%+v", a))
		got.Granted, got.Limit, got.Rule, got.Span = 0, 0, "", 0
		want := weir.Result{Allowed: s.allowed, Remaining: s.left, ResetAfter: s.reset, RetryAfter: s.retry}
		if got != want {
			t.errorf("step %d of %+v, cost %d at %v:\ngot  %+v\nwant %+v", i, a, s.cost, s.at, got, want)
		}
	}
}

// histories runs n random histories, every few of them under other rules,
// through the store and through the models, and compares the answers, and what
// the keys then hold with what they hold on the reference store.
func (t *T) histories(n, steps, every int, maker func(*rand.Rand) []weir.Rule) {
	r := t.rand()
	var rules []weir.Rule
	var lim, ref *weir.Limiter
	c := newClock()
	reference := memory.New(nil)
	for h := range n {
		if h%every == 0 { // a limiter takes longer to make than a history
			rules = maker(r)
			lim, ref = t.limiter(c, rules...), t.limiterOn(reference, c, rules...)
		}
		*c = *newClock()
		models := make([]model, len(rules))
		names := make([]string, len(rules))
		var keys []string
		path := []string{"history", strconv.Itoa(h)}
		for i, rule := range rules {
			models[i], names[i] = newModel(rule.Algorithm), rule.Name
			keys = append(keys, t.keysOf("history:"+strconv.Itoa(h), rule.Name, rule.Algorithm)...)
		}
		unit := unitOf(rules[r.IntN(len(rules))].Algorithm)
		each, costs := make([]weir.Result, len(rules)), make([]int64, len(rules))
		for s := range steps {
			c.advance(anyPause(r, unit))
			req := weir.Request{Path: path, Cost: pick(r, 0, 1, 1, 1, 2, r.Int64N(8)), Peek: r.IntN(5) == 0, Each: each}
			for i, rule := range rules {
				if costs[i] = rule.Cost; rule.Cost == 0 {
					costs[i] = req.Cost
				}
			}
			got := t.do(lim, req)
			want, wantEach := decide(names, models, c.us, costs, req.Cost, req.Cost > 0 && !req.Peek)
			if got != want {
				t.errorf("history %d of %+v, step %d, cost %d, peek %v:\ngot  %+v\nwant %+v", h, rules, s, req.Cost, req.Peek, got, want)
				return
			}
			for i := range each {
				if each[i] != wantEach[i] {
					t.errorf("history %d of %+v, step %d, cost %d, peek %v, rule %d:\ngot  %+v\nwant %+v", h, rules, s, req.Cost, req.Peek, i, each[i], wantEach[i])
					return
				}
			}
			t.do(ref, weir.Request{Path: path, Cost: req.Cost, Peek: req.Peek})
		}
		want, err := reference.MGet(t.ctx, keys, nil)
		if err != nil {
			t.fatalf("the reference store: %v", err)
		}
		for i, v := range t.mget(keys...) {
			if v != want[i] {
				t.errorf("history %d of %+v: key %q holds %q, on the reference store %q", h, rules, keys[i], v.Str(), want[i].Str())
			}
		}
	}
}

// keysOf are the keys of a rule called name over a, for the path in tag.
func (t *T) keysOf(tag, name string, a algorithm.Algorithm) []string {
	limit, err := a.NewLimit()
	if err != nil {
		t.fatalf("NewLimit: %v", err)
	}
	key := t.key(tag, name)
	n := limit.Fragment().Keys
	if n <= 1 {
		return []string{key}
	}
	keys := make([]string, n)
	for i := range keys {
		keys[i] = key + ":" + strconv.Itoa(i)
	}
	return keys
}

// unitOf is a time in which something happens to a.
func (t *T) unitOf(a algorithm.Algorithm) time.Duration {
	if s := t.backend.subject; s != nil {
		return s.Unit(a)
	}
	return unitOf(a)
}

// unitOf is a time in which something happens to a built-in algorithm.
func unitOf(a algorithm.Algorithm) time.Duration {
	switch a := a.(type) {
	case algorithm.GCRA:
		return a.Rate.Period / time.Duration(a.Rate.Count)
	case algorithm.FixedWindow:
		return a.Window / 4
	case algorithm.MetadataWindow:
		return a.Window / 4
	case algorithm.SlidingLog:
		return a.Window / time.Duration(min(a.Limit, 4))
	case algorithm.SlidingCounter:
		return a.Window / time.Duration(min(a.Limit, 4))
	case algorithm.Concurrency:
		return a.Lease / time.Duration(min(a.Limit, 4))
	case algorithm.SlidingBuckets:
		return a.Width
	case algorithm.TokenBucket:
		return a.Refill.Period / time.Duration(a.Refill.Count)
	case algorithm.LeakyBucket:
		return a.Rate.Period / time.Duration(a.Rate.Count)
	}
	panic(fmt.Sprintf("conformance: no unit of %T", a))
}

// anyPause is none, a microsecond, about unit, or long; now and then the clock
// steps back.
func anyPause(r *rand.Rand, unit time.Duration) time.Duration {
	unit = max(unit, time.Microsecond)
	switch r.IntN(10) {
	case 0, 1:
		return 0
	case 2:
		return time.Microsecond
	case 3:
		return unit * time.Duration(r.IntN(30))
	case 4:
		return -time.Duration(r.Int64N(int64(2 * unit)))
	}
	return time.Duration(r.Int64N(int64(3 * unit)))
}

// single makes rule lists of one random algorithm.
func single(maker func(*rand.Rand) algorithm.Algorithm) func(*rand.Rand) []weir.Rule {
	return func(r *rand.Rand) []weir.Rule { return []weir.Rule{one(maker(r))} }
}

func history(maker func(*rand.Rand) algorithm.Algorithm) func(*T) {
	return func(t *T) { t.histories(t.times(24), 30, 1, single(maker)) }
}

// exact checks that a request that is denied is denied one microsecond before
// RetryAfter is over and passes when it is.
func exact(maker func(*rand.Rand) algorithm.Algorithm) func(*T) {
	return func(t *T) {
		r := t.rand()
		for h, denials := 0, 0; denials < t.times(40); h++ {
			if h == 600 {
				t.fatalf("only %d denials in %d histories", denials, h)
			}
			a := maker(r)
			c := newClock()
			l := t.limiter(c, one(a))
			path := []string{"exact", strconv.Itoa(h)}
			for range 8 {
				c.advance(max(anyPause(r, t.unitOf(a)), 0))
				req := weir.Request{Path: path, Cost: 1 + r.Int64N(3)}
				res := t.do(l, req)
				if res.Allowed || res.RetryAfter == weir.Never {
					continue
				}
				denials++
				if res.RetryAfter <= 0 {
					t.errorf("%+v: denied, and to come back in %v", a, res.RetryAfter)
				}
				c.advance(res.RetryAfter - time.Microsecond)
				if early := t.do(l, req); early.Allowed || early.RetryAfter != time.Microsecond {
					t.errorf("%+v, cost %d: 1µs before a RetryAfter of %v: got %+v, want a denial for 1µs more", a, req.Cost, res.RetryAfter, early)
				}
				c.advance(time.Microsecond)
				if due := t.do(l, req); !due.Allowed {
					t.errorf("%+v, cost %d: after a RetryAfter of %v: got %+v, want it to pass", a, req.Cost, res.RetryAfter, due)
				}
			}
		}
	}
}

// hotKey lets many callers ask for one key at once, on the store's own clock,
// and checks that exactly the limit passes: the limit is such that nothing
// comes back meanwhile.
func hotKey(a algorithm.Algorithm, limit int64) func(*T) {
	return func(t *T) {
		if admitted, asked := t.hot(a, limit); admitted != limit {
			t.errorf("%d tokens asked for at once: %d admitted, want exactly %d", asked, admitted, limit)
		}
	}
}

// hot lets many callers ask for one key at once until it has nothing left, and
// returns how many tokens were admitted and asked for. It ends the rule when an
// answer makes no sense.
func (t *T) hot(a algorithm.Algorithm, limit int64) (admitted, asked int64) {
	const workers = 8
	l := t.limiter(nil, one(a))
	most := t.fitting(a, 3)
	var took, wanted atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		r := rand.New(rand.NewPCG(t.seed, uint64(w)))
		t.goes(&wg, func() {
			for wanted.Load() < 2*limit {
				cost := 1 + r.Int64N(most)
				res, err := l.AllowN(t.ctx, cost, "hot")
				if err != nil {
					t.errorf("AllowN: %v", err)
					return
				}
				wanted.Add(cost)
				took.Add(res.Granted)
				if want := map[bool]int64{true: cost}[res.Allowed]; res.Granted != want {
					t.errorf("cost %d: got %+v", cost, res)
				}
			}
		})
	}
	wg.Wait()
	if t.failed() {
		panic(stop{})
	}
	// What two or three tokens found no room for, single ones take.
	for range 3 {
		took.Add(t.allow(l, 1, "hot").Granted)
	}
	if err := l.Reset(t.ctx, "hot"); err != nil {
		t.errorf("Reset: %v", err)
	}
	return took.Load(), wanted.Load()
}

// fitting is the largest cost, at most cost, that a takes at once.
func (t *T) fitting(a algorithm.Algorithm, cost int64) int64 {
	limit, err := a.NewLimit()
	if err != nil {
		t.fatalf("%+v: NewLimit: %v", a, err)
	}
	c, ok := limit.(algorithm.RequestChecker)
	for ok && cost > 1 && c.CheckRequest(algorithm.Request{Cost: cost}) != nil {
		cost -= (cost + 1) / 2
	}
	return cost
}

// refill checks on the store's own clock that a denied request passes when its
// RetryAfter is over, and not before. It really waits, as that clock is real. The
// limit is taken at once, so that a slow store is denied before it comes back.
func refill(a algorithm.Algorithm) func(*T) {
	return func(t *T) {
		l := t.limiter(nil, one(a))
		limit := t.peek(l, 1, "refill").Limit
		var denied weir.Result
		var before time.Time
		for try := 0; ; try++ {
			t.allow(l, limit, "refill")
			before = t.time()
			if denied = t.allow(l, 1, "refill"); !denied.Allowed {
				break
			}
			if try == 20 {
				t.fatalf("%+v: 20 times nobody was denied behind a request for all of it", a)
			}
		}
		t.passesWhenDue(a, denied, before, func() weir.Result { return t.allow(l, 1, "refill") })
	}
}

// passesWhenDue asks a until it allows what it denied soon after before, and checks
// that this is not before RetryAfter was over.
func (t *T) passesWhenDue(a algorithm.Algorithm, denied weir.Result, before time.Time, ask func() weir.Result) {
	for {
		res := ask()
		waited := t.time().Sub(before)
		if res.Allowed {
			if waited+skew < denied.RetryAfter {
				t.errorf("%+v: passed %v after a denial for %v", a, waited, denied.RetryAfter)
			}
			return
		}
		if waited > 20*time.Second {
			t.fatalf("%+v: still denied %v after a denial for %v", a, waited, denied.RetryAfter)
		}
		time.Sleep(res.RetryAfter / 8)
	}
}

// backwards checks what a clock that steps back may do: extend a wait by no
// more than the step, and admit no more than if it had stood still.
func backwards(a algorithm.Algorithm) func(*T) {
	return func(t *T) {
		t.backwards(a, "back", time.Microsecond, 300*time.Millisecond, 5*time.Second, time.Hour)
	}
}

func (t *T) backwards(a algorithm.Algorithm, name string, steps ...time.Duration) {
	for i, back := range steps {
		c := newClock()
		l := t.limiter(c, one(a))
		path := []string{name, strconv.Itoa(i)}
		var still time.Duration
		for full := t.allow(l, 1, path...); ; full = t.allow(l, 1, path...) {
			if still = full.RetryAfter; !full.Allowed {
				break
			}
		}
		c.advance(-back)
		if res := t.allow(l, 1, path...); res.Allowed || still != weir.Never && res.RetryAfter > still+back {
			t.errorf("%+v: a full limit, denied for %v; the clock steps back by %v: got %+v", a, still, back, res)
		}
		if still == weir.Never {
			continue
		}
		c.advance(back + still - time.Microsecond)
		if res := t.allow(l, 1, path...); res.Allowed {
			t.errorf("%+v: the step back by %v shortened the wait of %v", a, back, still)
		}
		c.advance(time.Microsecond)
		if res := t.allow(l, 1, path...); !res.Allowed {
			t.errorf("%+v: the step back by %v made the wait of %v longer once undone: %+v", a, back, still, res)
		}
	}
}

// neverFits checks that a cost above the capacity is denied for ever, with true
// numbers, and changes nothing.
func neverFits(a algorithm.Algorithm) func(*T) {
	return func(t *T) { t.neverFits(a, "") }
}

// neverFits uses paths that end in name.
func (t *T) neverFits(a algorithm.Algorithm, name string) {
	c := newClock()
	l := t.limiter(c, one(a))
	limit := t.peek(l, 1, "big"+name).Limit
	for _, taken := range []int64{0, 1} {
		before := t.allow(l, taken, "big"+name)
		for _, cost := range []int64{limit + 1, 1 << 40, 1<<63 - 1} {
			if cost <= limit {
				continue
			}
			got := t.allow(l, cost, "big"+name)
			want := weir.Result{Limit: limit, Remaining: limit - taken, RetryAfter: weir.Never, ResetAfter: before.ResetAfter, Rule: "one", Span: before.Span}
			if t.backend.subject != nil && got.Span != want.Span { // a denial may be about another
				want.Span, want.Limit, want.Remaining = got.Span, got.Limit, got.Remaining
			}
			if got != want {
				t.errorf("%+v: cost %d with %d taken:\ngot  %+v\nwant %+v", a, cost, taken, got, want)
			}
		}
	}
	t.allow(l, limit+1, "fresh"+name)
	for _, v := range t.mget(t.keysOf("fresh"+name, "one", a)...) {
		if v.Str() != "" {
			t.errorf("%+v: a cost above the capacity wrote %q", a, v.Str())
		}
	}
}

// huge checks that numbers near the bounds come back as exact as small ones.
func huge(list []algorithm.Algorithm) func(*T) {
	return func(t *T) {
		for i, a := range list {
			c := newClock()
			l := t.limiter(c, one(a))
			m := newModel(a)
			path := []string{"huge", strconv.Itoa(i)}
			for s, cost := range []int64{1, m.limit() / 3, 1, m.limit() / 2, m.limit(), 0} {
				c.advance(7 * time.Microsecond)
				got := t.allow(l, cost, path...)
				want, _ := decide([]string{"one"}, []model{m}, c.us, []int64{cost}, cost, cost > 0)
				if got != want {
					t.errorf("%+v, step %d, cost %d:\ngot  %+v\nwant %+v", a, s, cost, got, want)
				}
			}
			if err := l.Reset(t.ctx, path...); err != nil {
				t.errorf("Reset: %v", err)
			}
		}
	}
}
