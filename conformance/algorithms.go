package conformance

import (
	"fmt"
	"math/rand/v2"
	"sort"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
)

// This file holds the checks that every algorithm passes. The file named like an
// algorithm lists its checks, and adds traces of its own.

// A step is one request of a trace, and its answer.
type step struct {
	at      time.Duration // since the start of the trace
	cost    int64         // 0: a Peek of cost 1
	allowed bool
	left    int64
	reset   time.Duration
	retry   time.Duration
}

// trace makes the requests of steps under a, on one key and in virtual time.
func (t *T) trace(a algorithm.Algorithm, steps []step) {
	c := newClock()
	start := c.us
	l, m := t.limiter(c, one(a)), newModel(a)
	for i, s := range steps {
		c.us = start + s.at.Microseconds()
		req := weir.Request{Key: weir.KeyOf(fmt.Sprintf("%+v", a)), Cost: s.cost}
		want := weir.Result{
			Allowed: s.allowed, Remaining: s.left, ResetAfter: s.reset, RetryAfter: s.retry,
			Limit: m.limit(), Window: m.window(), Rule: "one",
		}
		if s.cost == 0 {
			req.Op = weir.Peek
		}
		if want.Granted = s.cost; !s.allowed {
			want.Granted, want.Delay = 0, weir.Never
		}
		if got := t.do(l, req); got != want {
			t.errorf("step %d of %+v, cost %d at %v:\ngot  %+v\nwant %+v", i, a, s.cost, s.at, got, want)
		}
	}
}

// histories runs n random histories through the store and through the models, every few
// of them under other rules. It compares the answers, and what the keys hold in the end
// with what they hold on the reference store.
func (t *T) histories(n, steps, every int, maker func(*rand.Rand) []weir.Rule) {
	r := t.rand()
	c := newClock()
	var p pair
	var rules []weir.Rule
	for h := range n {
		if h%every == 0 { // to make a limiter takes longer than a history
			rules = maker(r)
			p = t.pair(c, rules...)
		}
		*c = *newClock()
		models := make([]model, len(rules))
		name := "history" + strconv.Itoa(h)
		var keys []string
		reserves := true
		for i, rule := range rules {
			models[i] = newModel(rule.Algorithm)
			keys = append(keys, t.keysOf(name, rule.Name, rule.Algorithm)...)
			_, delayed := models[i].(delayed)
			reserves = reserves && delayed
		}
		unit := unitOf(rules[r.IntN(len(rules))].Algorithm)
		each, refEach := make([]weir.Result, len(rules)), make([]weir.Result, len(rules))
		for s := range steps {
			c.advance(anyPause(r, unit))
			req := weir.Request{Key: weir.KeyOf(name), Cost: pick(r, 0, 1, 1, 1, 2, r.Int64N(8))}
			if r.IntN(5) == 0 {
				req.Op = weir.Peek
			}
			if reserves && r.IntN(4) == 0 {
				req.MaxWait = anyWait(r, unit)
			}
			got := t.do(p.lim, req, each...)
			t.do(p.ref, req, refEach...)
			want, wantEach := decide(rules, models, c.us, req)
			if got != want {
				t.errorf("history %d of %+v, step %d, %+v:\ngot  %+v\nwant %+v", h, rules, s, req, got, want)
				return
			}
			for i := range each {
				if each[i] != wantEach[i] {
					t.errorf("history %d of %+v, step %d, %+v, rule %d:\ngot  %+v\nwant %+v", h, rules, s, req, i, each[i], wantEach[i])
					return
				}
			}
		}
		p.same(rules, keys...)
	}
}

// unitOf returns a time in which the state of a changes.
func (t *T) unitOf(a algorithm.Algorithm) time.Duration {
	if s := t.backend.subject; s != nil {
		return s.Unit(a)
	}
	return unitOf(a)
}

// unitOf returns a time in which the state of a built-in algorithm changes.
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

// anyPause returns a random pause: none, a microsecond, about unit, or long. Now and
// then it is negative, and the clock steps back.
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

// anyWait returns a random MaxWait, in whole microseconds.
func anyWait(r *rand.Rand, unit time.Duration) time.Duration {
	unit = max(unit, time.Microsecond)
	return pick(r, 0, time.Microsecond, unit.Truncate(time.Microsecond), time.Duration(r.Int64N(int64(3*unit))).Truncate(time.Microsecond), time.Hour, weir.Never)
}

// single makes lists of one rule, of a random algorithm.
func single(maker func(*rand.Rand) algorithm.Algorithm) func(*rand.Rand) []weir.Rule {
	return func(r *rand.Rand) []weir.Rule { return []weir.Rule{one(maker(r))} }
}

// asModel checks random histories under one rule against its model.
func asModel(maker func(*rand.Rand) algorithm.Algorithm) func(*T) {
	return func(t *T) { t.histories(t.times(24), 30, 1, single(maker)) }
}

// exact checks that a denied request is denied until 1 µs before its RetryAfter is over,
// and passes when it is over. A request that may wait is no exception.
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
			reserves := t.kindOf(a).Reserves
			key := weir.KeyOf("exact" + strconv.Itoa(h))
			for range 8 {
				c.advance(max(anyPause(r, t.unitOf(a)), 0))
				req := weir.Request{Key: key, Cost: 1 + r.Int64N(3)}
				if reserves && r.IntN(3) == 0 {
					req.MaxWait = anyWait(r, t.unitOf(a))
				}
				res := t.do(l, req)
				if res.Allowed || res.RetryAfter == weir.Never {
					continue
				}
				denials++
				if res.RetryAfter <= 0 {
					t.errorf("%+v: a denial has the RetryAfter %v", a, res.RetryAfter)
				}
				c.advance(res.RetryAfter - time.Microsecond)
				if early := t.do(l, req); early.Allowed || early.RetryAfter != time.Microsecond {
					t.errorf("%+v, %+v: 1µs before a RetryAfter of %v is over: got %+v, want a denial for 1µs more", a, req, res.RetryAfter, early)
				}
				c.advance(time.Microsecond)
				if due := t.do(l, req); !due.Allowed {
					t.errorf("%+v, %+v: after a RetryAfter of %v: got %+v, want it allowed", a, req, res.RetryAfter, due)
				}
			}
		}
	}
}

// fitting returns the largest cost, at most cost, that a can consume at once.
func (t *T) fitting(a algorithm.Algorithm, cost int64) int64 {
	limit, err := a.NewLimit()
	if err != nil {
		t.fatalf("%+v: NewLimit: %v", a, err)
	}
	if limit.MaxCost > 0 && cost <= limit.Capacity {
		return min(cost, limit.MaxCost)
	}
	return cost
}

// neverFits checks that a cost above the capacity is denied with Never, with the right
// numbers, and changes nothing.
func neverFits(a algorithm.Algorithm) func(*T) {
	return func(t *T) { t.neverFits(a, "") }
}

// neverFits uses keys that end in name.
func (t *T) neverFits(a algorithm.Algorithm, name string) {
	c := newClock()
	l := t.limiter(c, one(a))
	key, fresh := "big"+name, "fresh"+name
	limit, reserves := t.peek(l, 1, key).Limit, t.kindOf(a).Reserves
	for used := range 2 {
		if used > 0 {
			t.allow(l, 1, key)
		}
		before := t.peek(l, 1, key)
		for _, req := range []weir.Request{{Cost: limit + 1}, {Cost: 1 << 40}, {Cost: 1<<63 - 1}, {Cost: limit + 1, MaxWait: weir.Never}} {
			if req.Cost <= limit || req.MaxWait > 0 && !reserves {
				continue
			}
			req.Key = weir.KeyOf(key)
			got := t.do(l, req)
			want := before
			want.Allowed, want.RetryAfter, want.Delay = false, weir.Never, weir.Never
			if t.backend.subject != nil && got.Window != want.Window { // the answer may be about another span
				want.Window, want.Limit, want.Remaining = got.Window, got.Limit, got.Remaining
			}
			if t.backend.subject == nil {
				m := newModel(a)
				if used > 0 {
					m.take(c.us, 1)
				}
				want, _ = decide([]weir.Rule{one(a)}, []model{m}, c.us, req)
			}
			if got != want {
				t.errorf("%+v: %+v, with %d tokens consumed:\ngot  %+v\nwant %+v", a, req, used, got, want)
			}
		}
	}
	t.allow(l, limit+1, fresh)
	for _, v := range t.mget(t.keysOf(fresh, "one", a)...) {
		if v.Str() != "" {
			t.errorf("%+v: a cost above the capacity wrote %q", a, v.Str())
		}
	}
}

// hugeCost is more than any capacity, and near the largest integer.
const hugeCost = 1 << 62

// huge checks that numbers near their bounds are as exact as small ones.
func huge(list []algorithm.Algorithm) func(*T) {
	return func(t *T) {
		for i, a := range list {
			c, rules := newClock(), []weir.Rule{one(a)}
			p := t.pair(c, rules...)
			key := "huge" + strconv.Itoa(i)
			m := newModel(a)
			compare := func(req, as weir.Request) {
				want, _ := decide(rules, []model{m}, c.us, as)
				req.Key = weir.KeyOf(key)
				if got := p.both(req); got != want {
					t.errorf("%+v, %+v:\ngot  %+v\nwant %+v", a, req, got, want)
				}
				c.advance(7 * time.Microsecond)
			}
			limit := m.limit()
			for _, cost := range []int64{1, limit / 3, 1, limit / 2, limit} {
				req := weir.Request{Cost: t.fitting(a, cost)}
				compare(req, req)
			}
			compare(weir.Request{Op: weir.Peek}, weir.Request{Op: weir.Peek})
			if longest := t.longestWait(a); longest > 0 {
				for _, cost := range []int64{limit, limit/3 + 1, 1, limit} {
					req := weir.Request{Cost: cost, MaxWait: longest}
					compare(req, req)
				}
				compare(weir.Request{}, weir.Request{})
			}
			t.resetBoth(p, key)
			m = newModel(a)
			compare(weir.Request{}, weir.Request{})
			compare(weir.Request{Op: weir.TakeUpTo, Cost: hugeCost}, upToRequest(a, m, c.us, hugeCost))
			p.same(a, t.keysOf(key, "one", a)...)
			t.resetBoth(p, key)
		}
	}
}

// longestWait returns how far ahead tokens of a can be reserved.
func (t *T) longestWait(a algorithm.Algorithm) time.Duration {
	limit, err := a.NewLimit()
	if err != nil {
		t.fatalf("%+v: NewLimit: %v", a, err)
	}
	if !limit.Kind.Reserves {
		return 0
	}
	return contract.Micros(limit.MaxWait)
}

func (t *T) resetBoth(p pair, key string) {
	for _, l := range []*weir.Limiter{p.lim, p.ref} {
		if err := l.Reset(t.ctx, key); err != nil {
			t.errorf("Reset: %v", err)
		}
	}
}

// upToRequest returns the request that has the same answer as TakeUpTo of most tokens.
func upToRequest(a algorithm.Algorithm, m model, now, most int64) weir.Request {
	if _, log := a.(algorithm.SlidingLog); log {
		most = min(most, algorithm.MaxLogCost)
	}
	most = min(most, m.limit())
	fits := sort.Search(int(most), func(n int) bool { return m.retry(now, int64(n+1), 0) > 0 })
	if fits == 0 {
		return weir.Request{Cost: 1}
	}
	return weir.Request{Cost: int64(fits)}
}

// largest returns the greatest n from 1 to most for which maker's algorithm is valid. It
// must be valid for 1, and for all below the greatest.
func largest(most int64, maker func(n int64) algorithm.Algorithm) algorithm.Algorithm {
	low, high := int64(1), most
	for low < high {
		middle := low + (high-low+1)/2
		if _, err := maker(middle).NewLimit(); err != nil {
			high = middle - 1
		} else {
			low = middle
		}
	}
	return maker(low)
}
