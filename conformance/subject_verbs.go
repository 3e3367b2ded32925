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

// This file holds the checks of RunAlgorithm of TakeUpTo, and of what a kind need not
// support: Refund and MaxWait.

// has returns those of n algorithms to check that support a verb, and checks that the
// others return ErrUnsupported. If all do, the check is skipped.
func (t *T) has(n int, verb string, such func(algorithm.Algorithm) bool, use func(l *weir.Limiter) error) []algorithm.Algorithm {
	r := t.rand()
	var list []algorithm.Algorithm
	for range n {
		a := t.draw(r)
		if such(a) {
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
	r := t.rand()
	for h := range t.times(32) {
		a := t.draw(r)
		rules := []weir.Rule{{Name: "a", Algorithm: a}, {Name: "b", Algorithm: anyGCRA(r)}}[:1+h%2]
		if h%4 == 3 {
			rules[0], rules[1] = rules[1], rules[0]
		}
		c := newClock()
		l, ref := t.limiter(c, rules...), t.limiterOn(memory.New(nil), c, rules...)
		key := weir.KeyOf("upto" + strconv.Itoa(h))
		each := make([]weir.Result, len(rules))
		for s := range 16 {
			c.advance(anyPause(r, t.unitOf(a)))
			t.do(ref, weir.Request{Key: key, Op: weir.Peek}, each...)
			left := int64(8)
			for _, res := range each {
				left = min(left, res.Remaining)
			}
			left = t.fitting(a, max(left, 1)) * min(left, 1)
			most := 1 + r.Int64N(8)
			got := t.do(l, weir.Request{Key: key, Op: weir.TakeUpTo, Cost: most})
			want := t.do(ref, weir.Request{Key: key, Cost: max(min(left, most), 1)})
			if got != want {
				t.fatalf("history %d of %+v, step %d, up to %d with %d left:\ngot  %+v\nwant %+v", h, rules, s, most, left, got, want)
			}
		}
	}
}

func subjectRefund(t *T) {
	list := t.has(t.times(32), "Refund", t.refundable, func(l *weir.Limiter) error {
		_, err := l.Refund(t.ctx, weir.Request{Key: weir.KeyOf("refund"), ID: "id"})
		return err
	})
	r := t.rand()
	for h, a := range list {
		t.refunds(a, "refund"+strconv.Itoa(h))
		name := "refunds" + strconv.Itoa(h)
		t.refundHistory(r, a, name)
		t.refundBehind(a, "behind"+strconv.Itoa(h))
		for i := range 2 {
			t.refundQueue(r, a, "queue"+strconv.Itoa(2*h+i))
		}
		if t.backend.Keys == nil {
			continue
		}
		for key, ttl := range t.keysLike(name) {
			if ttl < 0 {
				t.errorf("%+v: %q never expires", a, key)
			}
		}
	}
}

// refund refunds the decision with that ID, and reports whether anything was refunded.
func (t *T) refund(l *weir.Limiter, id, key string) bool {
	gave, err := l.Refund(t.ctx, weir.Request{Key: weir.KeyOf(key), ID: id})
	if err != nil {
		t.fatalf("Refund %v: %v", key, err)
	}
	return gave
}

// refunds refunds a decision at once, a second time, too late, and after a Reset.
func (t *T) refunds(a algorithm.Algorithm, name string) {
	c := newClock()
	l := t.limiter(c, one(a))
	key := weir.KeyOf(name)
	before := t.peek(l, 1, name)
	cost := t.fitting(a, min(2, before.Limit))
	took := t.do(l, weir.Request{Key: key, Cost: cost, ID: "a"})
	if gave := t.refund(l, "a", name); !gave {
		t.errorf("%+v: of %d tokens that were just consumed nothing was refunded", a, cost)
	}
	if got := t.peek(l, 1, name); got.Remaining != before.Remaining || got.ResetAfter > took.ResetAfter {
		t.errorf("%+v: %d tokens are consumed and refunded:\nbefore %+v\nafter  %+v", a, cost, before, got)
	}
	again := t.peek(l, 1, name)
	if t.refund(l, "a", name) || t.refund(l, "nobody", name) || t.peek(l, 1, name) != again {
		t.errorf("%+v: a second refund, or one of a decision that was not made, refunds something: %+v, then %+v", a, again, t.peek(l, 1, name))
	}
	unchanged := func(id, what string) {
		before := t.peek(l, 1, name)
		if gave := t.refund(l, id, name); gave || t.peek(l, 1, name) != before {
			t.errorf("%+v: %s are refunded, %v: %+v, then %+v", a, what, gave, before, t.peek(l, 1, name))
		}
	}
	t.do(l, weir.Request{Key: key, Cost: cost, ID: "b"})
	t.reset(l, name)
	t.do(l, weir.Request{Key: key, Cost: cost})
	unchanged("b", "tokens of a key that was reset")
	t.reset(l, name)
	if took = t.do(l, weir.Request{Key: key, Cost: cost, ID: "c"}); took.ResetAfter > tooFar {
		return
	}
	c.advance(took.ResetAfter)
	t.do(l, weir.Request{Key: key, Cost: cost})
	unchanged("c", "tokens that have come back by themselves")
}

// refundHistory compares a random history with that on the memory store.
func (t *T) refundHistory(r *rand.Rand, a algorithm.Algorithm, name string) {
	c := newClock()
	p := t.pair(c, one(a))
	granted := map[string]int64{}
	var markers []string
	queue := t.patience(a) > 0 // Remaining is none or all
	peek := weir.Request{Key: weir.KeyOf(name), Op: weir.Peek}
	for s := range 20 {
		c.advance(anyPause(r, t.unitOf(a)))
		id := "id" + strconv.Itoa(r.IntN(s+1))
		if r.IntN(3) > 0 {
			id = "id" + strconv.Itoa(s)
			req := t.request(r, a, 1+r.Int64N(4), name)
			req.ID = id
			granted[id] = p.both(req).Granted
			markers = append(markers, t.markersOf(req, one(a))...)
			continue
		}
		before := p.both(peek)
		gave := p.refund(id, name)
		got := p.both(peek)
		if back := got.Remaining - before.Remaining; back < 0 || back > granted[id] && !queue || got.Remaining > got.Limit || back > 0 && !gave {
			t.errorf("%+v, step %d: Refund, of %d tokens, reports %v:\nbefore %+v\nafter  %+v", a, s, granted[id], gave, before, got)
		}
		granted[id] = 0
		if t.failed() {
			return
		}
	}
	p.same(a, append(t.keysOf(name, "one", a), markers...)...)
}

// jump returns the most tokens of a that come back at one instant after all were consumed
// at one instant. A refund does not move the period of an algorithm, so a refund can let
// that many come back earlier than if the request had never been made.
func (t *T) jump(a algorithm.Algorithm) int64 {
	c := newClock()
	l := t.limiterOn(memory.New(nil), c, one(a))
	most := int64(1)
	left := t.allow(l, t.fitting(a, t.peek(l, 1, "jump").Limit), "jump").Remaining
	for range smallLimit {
		next := t.do(l, weir.Request{Key: weir.KeyOf("jump"), Op: weir.Peek, Cost: left + 1})
		if next.RetryAfter == weir.Never || next.RetryAfter == 0 {
			break
		}
		c.advance(next.RetryAfter)
		now := t.peek(l, 1, "jump").Remaining
		most, left = max(most, now-left), now
	}
	return most
}

// A history is a list of allowed requests, some of which were refunded.
type history []pastRequest

type pastRequest struct {
	at   int64
	req  weir.Request
	gone bool // it was refunded
}

// without returns what a answers to r at c, if the refunded requests were never made.
func (t *T) without(a algorithm.Algorithm, c *clock, past history, r weir.Request) weir.Result {
	l := t.limiterOn(memory.New(nil), c, one(a))
	now := c.us
	for _, p := range past {
		if c.us = p.at; !p.gone {
			t.do(l, p.req)
		}
	}
	c.us = now
	return t.do(l, r)
}

// refundBehind refunds the first of two decisions at once, and the second one when it has
// almost come back by itself and others have consumed as much. Only the rest is refunded.
func (t *T) refundBehind(a algorithm.Algorithm, name string) {
	c := newClock()
	p := t.pair(c, one(a))
	peek := weir.Request{Key: weir.KeyOf(name), Op: weir.Peek}
	cost := t.fitting(a, max(p.both(peek).Limit/3, 1))
	var past history
	consume := func(id string) bool {
		req := weir.Request{Key: peek.Key, Cost: cost, ID: id, MaxWait: t.patience(a)}
		past = append(past, pastRequest{at: c.us, req: req})
		return p.both(req).Allowed
	}
	if !consume("first") || !consume("second") {
		return
	}
	past[0].gone = p.refund("first", name)
	reset := p.both(peek).ResetAfter
	if reset < 2*time.Microsecond || reset > tooFar {
		return
	}
	c.advance(reset - time.Microsecond)
	if !consume("third") {
		return
	}
	before := p.both(peek)
	past[1].gone = p.refund("second", name)
	after := p.both(peek)
	if most := t.without(a, c, past, peek).Remaining; after.Remaining > max(before.Remaining, most) {
		t.errorf("%+v: a refund of %d tokens, most of which had come back, turned\n     %+v\ninto %+v, and without the refunded requests %d tokens were left", a, cost, before, after, most)
	}
}

// refundQueue refunds decisions of a limit that is just used up, or of which some tokens
// are reserved, in any order and at the instants at which something changes. It compares
// the answers with those on the memory store, and with a history in which the refunded
// requests were never made.
func (t *T) refundQueue(r *rand.Rand, a algorithm.Algorithm, name string) {
	c := newClock()
	p := t.pair(c, one(a))
	next := weir.Request{Key: weir.KeyOf(name), Op: weir.Peek}
	limit := p.both(next).Limit
	reserves := t.kindOf(a).Reserves
	if reserves {
		next.MaxWait = weir.Never
	}
	var past history
	var markers []string
	events, turn := []int64{c.us}, c.us // turn is that of the request made last
	consume := func(cost int64) {
		req := t.request(r, a, max(min(cost, limit), 1), name)
		req.ID, req.MaxWait = "id"+strconv.Itoa(len(markers)), next.MaxWait
		markers = append(markers, t.markersOf(req, one(a))...)
		res := p.both(req)
		if !res.Allowed {
			return
		}
		past = append(past, pastRequest{at: c.us, req: req})
		turn = c.us + res.Delay.Microseconds()
		events = append(events, turn, c.us+res.ResetAfter.Microseconds())
	}
	parts := 1 + r.Int64N(4)
	for part := range parts {
		consume(limit*(part+1)/parts - limit*part/parts)
	}
	for range r.IntN(4) {
		consume(1)
	}
	first := true
	jump := t.jump(a)
	for s := range 16 {
		switch at := pick(r, turn, pick(r, events...)) + r.Int64N(3) - 1; {
		case r.IntN(3) == 0:
			c.advance(max(anyPause(r, t.unitOf(a)), 0))
		case r.IntN(2) == 0 && at > c.us && at-c.us < tooFar.Microseconds():
			c.us = at
		}
		if r.IntN(3) == 0 || len(past) == 0 {
			consume(pick(r, 1, 2, limit/3, limit/2))
			continue
		}
		m := &past[r.IntN(len(past))]
		before := p.both(next)
		if p.refund(m.req.ID, name) {
			m.gone = true
		}
		after := p.both(next)
		most := t.without(a, c, past, next).Remaining
		if !first {
			most += jump
		}
		if after.Remaining > max(before.Remaining, most) {
			t.errorf("%+v, step %d: a refund turned\n     %+v\ninto %+v, and without the refunded requests at most %d tokens were left", a, s, before, after, most)
		}
		first = first && !m.gone
		if t.failed() {
			return
		}
	}
	p.same(a, append(t.keysOf(name, "one", a), markers...)...)
}

func subjectMaxWait(t *T) {
	reserves := func(a algorithm.Algorithm) bool { return t.kindOf(a).Reserves }
	list := t.has(t.times(32), "MaxWait", reserves, func(l *weir.Limiter) error {
		_, err := l.Decide(t.ctx, weir.Request{Key: weir.KeyOf("wait"), MaxWait: time.Hour}, nil)
		return err
	})
	r := t.rand()
	waited := 0
	for h := 0; h < len(list) || waited == 0 && h < 500; h++ {
		a := list[h%len(list)]
		if h >= len(list) {
			if a = t.draw(r); !reserves(a) {
				continue
			}
		}
		waited += t.maxWait(r, a, "wait"+strconv.Itoa(h))
		if t.failed() {
			return
		}
	}
	if waited == 0 {
		t.fatalf("no request ever had to wait")
	}
}

// maxWait makes requests that may wait, and returns how many had to.
func (t *T) maxWait(r *rand.Rand, a algorithm.Algorithm, name string) (waited int) {
	c := newClock()
	p := t.pair(c, one(a))
	p.both(weir.Request{Key: weir.KeyOf(name), Cost: pick(r, 1, t.peek(p.lim, 1, name).Limit)}) // so that the next has to wait
	for s := range 12 {
		unit := max(t.unitOf(a), time.Microsecond)
		c.advance(max(anyPause(r, unit), 0) / 8)
		req := t.request(r, a, 1+r.Int64N(3), name)
		req.Op = weir.Peek
		plain := t.do(p.lim, req)
		req.MaxWait = pick(r, time.Duration(1+r.IntN(8))*unit, weir.Never)
		got := t.do(p.lim, req)
		d := got.Delay
		switch {
		case !got.Allowed:
			if d != weir.Never || plain.Allowed || got.RetryAfter <= 0 || got.RetryAfter > plain.RetryAfter {
				t.errorf("%+v, step %d: without MaxWait got %+v, and with a MaxWait of %v %+v", a, s, plain, req.MaxWait, got)
			}
		case d < 0 || d > req.MaxWait || plain.Allowed && d > 0:
			t.errorf("%+v, step %d: without MaxWait got %+v, and with a MaxWait of %v %+v", a, s, plain, req.MaxWait, got)
		case !plain.Allowed && d != plain.RetryAfter:
			t.errorf("%+v, step %d: denied for %v, and with a MaxWait of %v its turn comes in %v", a, s, plain.RetryAfter, req.MaxWait, d)
		case d > time.Microsecond:
			waited++
			short := req
			short.MaxWait = d - time.Microsecond
			if res := t.do(p.lim, short); res.Allowed || res.RetryAfter != time.Microsecond {
				t.errorf("%+v, step %d: its turn comes in %v, and with a MaxWait of 1µs less: got %+v, want a denial for 1µs", a, s, d, res)
			}
			req.MaxWait = d
		}
		req.Op = weir.Consume
		if took := p.both(req); took.Allowed != got.Allowed || took.Delay != d {
			t.errorf("%+v, step %d, MaxWait %v:\ngot            %+v\nPeek answered  %+v", a, s, req.MaxWait, took, got)
		}
		if t.failed() {
			return waited
		}
	}
	return waited
}
