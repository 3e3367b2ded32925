package conformance

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// This file holds the checks of TakeUpTo, Refund and MaxWait, which every algorithm passes
// that supports them. The file named like an algorithm says which of them it runs.

// A pair is two limiters with the same rules: one on the store under test, and one on the
// reference store.
type pair struct {
	*T
	lim, ref  *weir.Limiter
	reference store.Store
}

func (t *T) pair(c *clock, rules ...weir.Rule) pair {
	reference := memory.New(nil)
	return pair{T: t, lim: t.limiter(c, rules...), ref: t.limiterOn(reference, c, rules...), reference: reference}
}

// both makes a request on both stores, and checks that the answers are equal.
func (p pair) both(r weir.Request) weir.Result {
	got, want := p.do(p.lim, r), p.do(p.ref, r)
	if got != want {
		p.errorf("request %+v:\ngot  %+v\nwant %+v, as on the reference store", r, got, want)
	}
	return got
}

// refund refunds the decision with that ID on both stores, and checks that they agree.
func (p pair) refund(id string, key ...string) bool {
	r := weir.Request{Key: weir.KeyOf(key...), ID: id}
	got, err := p.lim.Refund(p.ctx, r)
	if err != nil {
		p.fatalf("Refund: %v", err)
	}
	want, err := p.ref.Refund(p.ctx, r)
	if err != nil {
		p.fatalf("Refund on the reference store: %v", err)
	}
	if got != want {
		p.errorf("Refund %s: got %v, want %v, as on the reference store", id, got, want)
	}
	return got
}

// same checks that keys hold what they hold on the reference store.
func (p pair) same(what any, keys ...string) {
	want, err := p.reference.MGet(p.ctx, keys, nil)
	if err != nil {
		p.fatalf("the reference store: %v", err)
	}
	for i, v := range p.mget(keys...) {
		if v != want[i] {
			p.errorf("%+v: key %q holds %q, on the reference store %q", what, keys[i], v.Str(), want[i].Str())
		}
	}
}

// upTo checks TakeUpTo: it grants as many tokens as the model has, and answers as a
// request for that many would.
func upTo(maker func(*rand.Rand) algorithm.Algorithm) func(*T) {
	return func(t *T) {
		r := t.rand()
		for h := range t.times(8) {
			a := maker(r)
			rules := []weir.Rule{one(a)}
			c, m := newClock(), newModel(a)
			p := t.pair(c, rules...)
			name := "upto" + strconv.Itoa(h)
			for s := range 20 {
				c.advance(anyPause(r, unitOf(a)))
				most := 1 + pick(r, r.Int64N(4), r.Int64N(30), 2*m.limit(), hugeCost)
				want, _ := decide(rules, []model{m}, c.us, upToRequest(a, m, c.us, most))
				got := p.both(weir.Request{Key: weir.KeyOf(name), Op: weir.TakeUpTo, Cost: most})
				if got != want {
					t.errorf("history %d of %+v, step %d, up to %d:\ngot  %+v\nwant %+v", h, a, s, most, got, want)
					return
				}
			}
			p.same(a, t.keysOf(name, "one", a)...)
		}
	}
}

// refunds checks Refund. A refund at once undoes the request. A later one makes the limit
// no fuller than if the request had never been made. A second one does nothing.
func refunds(maker func(*rand.Rand) algorithm.Algorithm) func(*T) {
	return func(t *T) {
		r := t.rand()
		for h, given := 0, 0; given < t.times(16); h++ {
			if h == 1000 {
				t.fatalf("only %d refunds in %d histories refunded anything", given, h)
			}
			a := maker(r)
			c := newClock()
			p := t.pair(c, one(a))
			name := "refund" + strconv.Itoa(h)
			key, twin := weir.KeyOf(name), weir.KeyOf(name+"twin")
			alike := true
			others := func(n int) { // the same requests on both keys
				for range n {
					c.advance(max(anyPause(r, unitOf(a)), 0))
					cost := 1 + r.Int64N(3)
					x, y := p.both(weir.Request{Key: key, Cost: cost}), p.both(weir.Request{Key: twin, Cost: cost})
					alike = alike && x.Allowed == y.Allowed
				}
			}
			peek := func(key weir.Key) weir.Result { return p.both(weir.Request{Key: key, Op: weir.Peek}) }
			others(r.IntN(4))
			start := peek(key)
			req := weir.Request{Key: key, Cost: 1 + r.Int64N(4), Op: pick(r, weir.Consume, weir.TakeUpTo), ID: "it:{" + name}
			took := p.both(req)
			if !took.Allowed {
				continue
			}
			atOnce := r.IntN(3) == 0
			if !atOnce {
				others(r.IntN(4))
				c.advance(max(anyPause(r, unitOf(a)), 0))
			}
			before, without := peek(key), peek(twin)
			gave := p.refund(req.ID, name)
			after := peek(key)
			if gave {
				given++
			}
			switch {
			case atOnce && (!gave || after.Remaining != start.Remaining || after.Allowed != start.Allowed || after.RetryAfter != start.RetryAfter):
				t.errorf("%+v: %d tokens refunded at once (%v):\ngot  %+v\nwant %+v", a, took.Granted, gave, after, start)
			case !gave && after != before:
				t.errorf("%+v: a refund that reports nothing turned\n     %+v\ninto %+v", a, before, after)
			case after.Remaining < before.Remaining || after.ResetAfter > before.ResetAfter:
				t.errorf("%+v: a refund turned\n     %+v\ninto %+v", a, before, after)
			case alike && after.Remaining > max(before.Remaining, without.Remaining):
				t.errorf("%+v: the refund of %d tokens turned\n%+v into\n%+v, and without the request it would be\n%+v", a, took.Granted, before, after, without)
			}
			if p.refund(req.ID, name) || peek(key) != after {
				t.errorf("%+v: a second refund refunded something", a)
			}
			p.same(a, append(t.keysOf(name, "one", a), t.markersOf(req, one(a))...)...)
		}
	}
}

// reserves checks MaxWait: what the model has within that time is consumed at once, and
// Delay tells when to go.
func reserves(maker func(*rand.Rand) algorithm.Algorithm) func(*T) {
	return func(t *T) {
		r := t.rand()
		for h := range t.times(16) {
			a := maker(r)
			rules := []weir.Rule{one(a)}
			c, m := newClock(), newModel(a)
			p := t.pair(c, rules...)
			name := "reserve" + strconv.Itoa(h)
			for s := range 20 {
				c.advance(anyPause(r, unitOf(a)/2))
				req := weir.Request{Key: weir.KeyOf(name), Cost: 1 + r.Int64N(3), MaxWait: anyWait(r, unitOf(a))}
				if r.IntN(5) == 0 {
					req.Op = weir.Peek
				}
				want, _ := decide(rules, []model{m}, c.us, req)
				if got := p.both(req); got != want {
					t.errorf("history %d of %+v, step %d, cost %d within %v:\ngot  %+v\nwant %+v", h, a, s, req.Cost, req.MaxWait, got, want)
					return
				}
			}
			p.same(a, t.keysOf(name, "one", a)...)
		}
	}
}

// cancels checks what is refunded of tokens that others are queued behind: the next
// caller goes no earlier than one token after the last who waits. Of a, one token comes
// back every interval.
func cancels(a algorithm.Algorithm, interval time.Duration) func(*T) {
	return func(t *T) {
		c := newClock()
		p := t.pair(c, one(a))
		reserve := func(id string) time.Duration {
			res := p.both(weir.Request{Key: weir.KeyOf("q"), MaxWait: time.Hour, ID: id})
			if !res.Allowed {
				t.errorf("%+v: %s got %+v", a, id, res)
			}
			return res.Delay
		}
		want := func(id string, delay time.Duration) {
			if got := reserve(id); got != delay {
				t.errorf("%+v: %s goes after %v, want %v", a, id, got, delay)
			}
		}
		gives := func(id string, want bool) {
			if got := p.refund(id, "q"); got != want {
				t.errorf("%+v: the refund of %s refunded something: %v, want %v", a, id, got, want)
			}
		}
		for i := range 100 {
			if reserve("now"+strconv.Itoa(i)) > 0 { // the first to wait, for one interval
				break
			}
		}
		want("b", 2*interval)
		want("c", 3*interval)
		gives("b", false) // c keeps its time
		want("d", 4*interval)
		gives("d", true) // the last
		want("e", 4*interval)
		c.advance(4 * interval)
		gives("e", true) // its turn has come, and nobody waits behind it
		gives("e", false)
		want("f", 0)
	}
}

// phase returns how many tokens of a can come back earlier because of when its period
// began. A refund does not move the period, so it may have begun with a request that was
// refunded.
func phase(a algorithm.Algorithm) int64 {
	switch b, ok := a.(algorithm.TokenBucket); {
	case ok && b.AtOnce:
		return b.Refill.Count
	case ok:
		return 1
	}
	return 0
}

// fixesWindow reports whether a request that finds a fully reset decides when windows
// begin and end. A refund does not move the window, so what follows its refund cannot be
// compared with a history without the request.
func fixesWindow(a algorithm.Algorithm) bool {
	f, ok := a.(algorithm.FixedWindow)
	return ok && !f.Aligned
}

// neverMade checks many refunds on one key. Together they refund no more than if their
// requests had never been made, which a replay of all others tells.
func neverMade(maker func(*rand.Rand) algorithm.Algorithm) func(*T) {
	return func(t *T) {
		r := t.rand()
		for h := range t.times(32) {
			a := maker(r)
			c := newClock()
			p := t.pair(c, one(a))
			_, reserves := newModel(a).(delayed)
			name := "never" + strconv.Itoa(h)
			key := weir.KeyOf(name)
			next := weir.Request{Key: key, Op: weir.Peek}
			if reserves {
				next.MaxWait = weir.Never
			}
			var past history
			var first []bool // the limit was fully reset
			var markers []string
			for s := range 16 {
				c.advance(max(anyPause(r, unitOf(a)/2), 0))
				req := weir.Request{Key: key, Cost: 1 + r.Int64N(4), ID: strconv.Itoa(s)}
				if reserves && r.IntN(3) == 0 {
					req.MaxWait = anyWait(r, unitOf(a))
				}
				if r.IntN(3) == 0 && len(past) > 0 {
					i := r.IntN(len(past))
					if !(first[i] && fixesWindow(a)) && p.refund(past[i].req.ID, name) {
						past[i].gone = true
					}
				} else if fresh := p.both(next).ResetAfter == 0; p.both(req).Allowed {
					past, first = append(past, pastRequest{at: c.us, req: req}), append(first, fresh)
					markers = append(markers, t.markersOf(req, one(a))...)
				}
				got, want := p.both(next), t.without(a, c, past, next)
				if got.Remaining > want.Remaining+phase(a) || phase(a) == 0 && got.Delay < want.Delay {
					t.errorf("history %d of %+v, step %d, after %+v:\ngot  %+v\nwant %+v, as if the refunded requests had never been made", h, a, s, past, got, want)
					return
				}
			}
			p.same(a, append(t.keysOf(name, "one", a), markers...)...)
		}
	}
}
