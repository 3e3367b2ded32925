package conformance

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store/memory"
)

// This file holds the rules of RunAlgorithm on verbs that a fragment can lack.

// has returns n algorithms to check whose fragment has a verb, as such says, and
// checks that the others refuse it. If there are none, the rule is skipped.
func (t *T) has(n int, verb string, such func(*algorithm.Fragment) bool, use func(l *weir.Limiter) error) []algorithm.Algorithm {
	r := t.rand()
	var list []algorithm.Algorithm
	for range n {
		a := t.draw(r)
		if such(t.fragment(a)) {
			list = append(list, a)
			continue
		}
		if err := use(t.limiter(newClock(), one(a))); !errors.Is(err, weir.ErrUnsupported) {
			t.errorf("%+v has no %s: it returns the error %v, want ErrUnsupported", a, verb, err)
		}
	}
	if len(list) == 0 && !t.failed() {
		t.skipf("algorithm has no %s", verb)
	}
	return list
}

func subjectUpTo(t *T) {
	list := t.has(t.times(32), "TakeUpTo", func(f *algorithm.Fragment) bool { return f.Fit != nil }, func(l *weir.Limiter) error {
		_, err := l.TakeUpTo(t.ctx, 2, "upto")
		return err
	})
	r := t.rand()
	for h, a := range list {
		rules := []weir.Rule{{Name: "a", Algorithm: a}, {Name: "b", Algorithm: anyGCRA(r)}}[:1+h%2]
		if h%4 == 3 {
			rules[0], rules[1] = rules[1], rules[0]
		}
		c := newClock()
		l, ref := t.limiter(c, rules...), t.limiterOn(memory.New(nil), c, rules...)
		path := []string{"upto", strconv.Itoa(h)}
		each := make([]weir.Result, len(rules))
		for s := range 16 {
			c.advance(anyPause(r, t.unitOf(a)))
			t.do(ref, weir.Request{Path: path, Peek: true, Each: each})
			left := int64(8)
			for _, res := range each {
				left = min(left, res.Remaining)
			}
			left = t.fitting(a, max(left, 1)) * min(left, 1)
			most := 1 + r.Int64N(8)
			got := t.do(l, weir.Request{Path: path, Cost: most, UpTo: true})
			want := t.do(ref, weir.Request{Path: path, Cost: max(min(left, most), 1)})
			if got != want {
				t.fatalf("history %d of %+v, step %d, up to %d, where %d remain:\ngot  %+v\nwant %+v", h, rules, s, most, left, got, want)
			}
		}
	}
}

func subjectRefund(t *T) {
	list := t.has(t.times(32), "Refund", func(f *algorithm.Fragment) bool { return f.Charge != nil && f.Refund != nil }, func(l *weir.Limiter) error {
		_, err := l.Refund(t.ctx, "id", "refund")
		return err
	})
	r := t.rand()
	for h, a := range list {
		t.refunds(a, []string{"refund", strconv.Itoa(h)})
		t.refundHistory(r, a, []string{"refunds", strconv.Itoa(h)})
		if t.backend.Keys == nil {
			continue
		}
		for key, ttl := range t.backend.Keys(t.test, t.store, "{refunds:"+strconv.Itoa(h)+"}") {
			if ttl < 0 {
				t.errorf("%+v: %q never expires", a, key)
			}
		}
	}
}

// refund gives back what the decision with that ID took.
func (t *T) refund(l *weir.Limiter, id string, path []string) bool {
	gave, err := l.Refund(t.ctx, id, path...)
	if err != nil {
		t.fatalf("Refund %v: %v", path, err)
	}
	return gave
}

// refunds gives tokens back at once, again, and when it is too late.
func (t *T) refunds(a algorithm.Algorithm, path []string) {
	c := newClock()
	l := t.limiter(c, one(a))
	cost := t.fitting(a, min(2, t.peek(l, 0, path...).Limit))
	before := t.peek(l, 0, path...)
	took := t.do(l, weir.Request{Path: path, Cost: cost, ID: "a"})
	if gave := t.refund(l, "a", path); !gave {
		t.errorf("%+v: of %d tokens that were just taken nothing was given back", a, cost)
	}
	if got := t.peek(l, 0, path...); got.Remaining != before.Remaining || got.ResetAfter > took.ResetAfter {
		t.errorf("%+v: %d tokens are taken and given back:\nbefore %+v\nbehind %+v", a, cost, before, got)
	}
	again := t.peek(l, 0, path...)
	if t.refund(l, "a", path) || t.refund(l, "nobody", path) || t.peek(l, 0, path...) != again {
		t.errorf("%+v: what was given back before, or never taken, is given back: %+v, then %+v", a, again, t.peek(l, 0, path...))
	}
	took = t.do(l, weir.Request{Path: path, Cost: cost, ID: "b"})
	if took.ResetAfter > tooFar {
		return
	}
	c.advance(took.ResetAfter)
	t.do(l, weir.Request{Path: path, Cost: cost})
	late := t.peek(l, 0, path...)
	if gave := t.refund(l, "b", path); gave || t.peek(l, 0, path...) != late {
		t.errorf("%+v: %d tokens that have come back by themselves are given back, %v: %+v, then %+v", a, cost, gave, late, t.peek(l, 0, path...))
	}
}

// refundHistory compares a random history with that on the memory store.
func (t *T) refundHistory(r *rand.Rand, a algorithm.Algorithm, path []string) {
	c := newClock()
	l, ref := t.limiter(c, one(a)), t.limiterOn(memory.New(nil), c, one(a))
	granted := map[string]int64{}
	for s := range 20 {
		c.advance(anyPause(r, t.unitOf(a)))
		id := "id" + strconv.Itoa(r.IntN(s+1))
		if r.IntN(3) > 0 {
			id = "id" + strconv.Itoa(s)
			req := t.request(r, a, 1+r.Int64N(4), path...)
			req.ID = id
			got, want := t.do(l, req), t.do(ref, req)
			if got != want {
				t.fatalf("%+v, step %d, cost %d:\ngot                 %+v\non the memory store %+v", a, s, req.Cost, got, want)
			}
			granted[id] = got.Granted
			continue
		}
		before := t.peek(l, 0, path...)
		gave, want := t.refund(l, id, path), t.refund(ref, id, path)
		got := t.peek(l, 0, path...)
		if ref := t.peek(ref, 0, path...); gave != want || got != ref {
			t.fatalf("%+v, step %d: Refund reports %v, and then\ngot                 %+v\non the memory store %v, %+v", a, s, gave, got, want, ref)
		}
		if back := got.Remaining - before.Remaining; back < 0 || back > granted[id] || got.Remaining > got.Limit || back > 0 && !gave {
			t.fatalf("%+v, step %d: Refund, of %d tokens, reports %v:\nbefore %+v\nbehind %+v", a, s, granted[id], gave, before, got)
		}
		granted[id] = 0
	}
}

func subjectMaxWait(t *T) {
	list := t.has(t.times(32), "MaxWait", func(f *algorithm.Fragment) bool { return f.Reserves }, func(l *weir.Limiter) error {
		_, err := l.Do(t.ctx, weir.Request{Path: []string{"wait"}, Cost: 1, MaxWait: time.Hour})
		return err
	})
	r := t.rand()
	waited := 0
	for h := 0; h < len(list) || waited == 0 && h < 500; h++ {
		a := list[h%len(list)]
		if h >= len(list) {
			if a = t.draw(r); !t.fragment(a).Reserves {
				continue
			}
		}
		c := newClock()
		l, ref := t.limiter(c, one(a)), t.limiterOn(memory.New(nil), c, one(a))
		path := []string{"wait", strconv.Itoa(h)}
		full := pick(r, 1, t.peek(l, 1, path...).Limit)
		t.allow(l, full, path...) // somebody has to wait
		t.allow(ref, full, path...)
		for s := range 12 {
			unit := max(t.unitOf(a), time.Microsecond)
			c.advance(max(anyPause(r, unit), 0) / 8)
			req := t.request(r, a, 1+r.Int64N(3), path...)
			req.Peek = true
			plain := t.do(l, req)
			req.MaxWait = pick(r, time.Duration(1+r.IntN(8))*unit, weir.Never)
			got := t.do(l, req)
			d := got.Delay
			switch {
			case d < 0 || d > req.MaxWait || !got.Allowed && d != 0:
				t.errorf("%+v, step %d, MaxWait %v: got %+v", a, s, req.MaxWait, got)
			case !plain.Allowed && got.Allowed && d != plain.RetryAfter:
				t.errorf("%+v, step %d: denied for %v, and with a MaxWait of %v its turn comes in %v", a, s, plain.RetryAfter, req.MaxWait, d)
			case d > time.Microsecond:
				waited++
				short := req
				short.MaxWait = d - time.Microsecond
				if res := t.do(l, short); res.Allowed || res.RetryAfter != time.Microsecond {
					t.errorf("%+v, step %d: its turn comes in %v, and with a MaxWait of 1µs less: got %+v, want a denial for 1µs", a, s, d, res)
				}
				req.MaxWait = d
			}
			req.Peek = false
			took, want := t.do(l, req), t.do(ref, req)
			if took != want || took.Allowed != got.Allowed || took.Delay != d {
				t.errorf("%+v, step %d, MaxWait %v:\ngot                 %+v\non the memory store %+v\nPeek said           %+v", a, s, req.MaxWait, took, want, got)
			}
			if t.failed() {
				return
			}
		}
	}
	if waited == 0 {
		t.fatalf("nobody ever had to wait")
	}
}
