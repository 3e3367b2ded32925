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

// This file holds the rules on verbs that every algorithm keeps which has them; the
// files named like an algorithm say which of them it runs.

// A pair is the same rules on the store under test and on the reference store.
type pair struct {
	*T
	lim, ref  *weir.Limiter
	reference store.Store
}

func (t *T) pair(c *clock, rules ...weir.Rule) pair {
	reference := memory.New(nil)
	return pair{T: t, lim: t.limiter(c, rules...), ref: t.limiterOn(reference, c, rules...), reference: reference}
}

// both asks both stores for r, and checks that they answer alike.
func (p pair) both(r weir.Request) weir.Result {
	got, want := p.do(p.lim, r), p.do(p.ref, r)
	if got != want {
		p.errorf("request %+v:\ngot  %+v\nwant %+v, as on the reference store", r, got, want)
	}
	return got
}

// refund gives back the decision id on both stores, and checks that they agree.
func (p pair) refund(id string, path ...string) bool {
	got, err := p.lim.Refund(p.ctx, id, path...)
	if err != nil {
		p.fatalf("Refund: %v", err)
	}
	want, err := p.ref.Refund(p.ctx, id, path...)
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

// upTo checks TakeUpTo: it grants the most that the model has room for, and answers
// as a request for that many would.
func upTo(maker func(*rand.Rand) algorithm.Algorithm) func(*T) {
	return func(t *T) {
		r := t.rand()
		for h := range t.times(8) {
			a := maker(r)
			c, m := newClock(), newModel(a)
			p := t.pair(c, one(a))
			tag := "upto" + strconv.Itoa(h)
			for s := range 20 {
				c.advance(anyPause(r, unitOf(a)))
				most := 1 + pick(r, r.Int64N(4), r.Int64N(30), 2*m.limit())
				cost := min(most, m.limit(), 200) // the models are slow
				for ; cost > 0 && m.room(c.us, cost) > 0; cost-- {
				}
				if cost == 200 {
					most = 200
				}
				want, _ := decide([]string{"one"}, []model{m}, c.us, []int64{max(cost, 1)}, max(cost, 1), cost > 0)
				if got := p.both(weir.Request{Path: []string{tag}, Cost: most, UpTo: true}); got != want {
					t.errorf("history %d of %+v, step %d, up to %d:\ngot  %+v\nwant %+v", h, a, s, most, got, want)
					return
				}
			}
			p.same(a, t.keysOf(tag, "one", a)...)
		}
	}
}

// refunds checks Refund: at once it makes everything as before; later it gives no
// more than if the request had never been made; and it gives once.
func refunds(maker func(*rand.Rand) algorithm.Algorithm) func(*T) {
	return func(t *T) {
		r := t.rand()
		for h, given := 0, 0; given < t.times(16); h++ {
			if h == 1000 {
				t.fatalf("only %d refunds in %d histories gave anything", given, h)
			}
			a := maker(r)
			c := newClock()
			p := t.pair(c, one(a))
			tag := "refund" + strconv.Itoa(h)
			path, twin := []string{tag}, []string{tag + "twin"}
			alike := true
			others := func(n int) {
				for range n {
					c.advance(max(anyPause(r, unitOf(a)), 0))
					cost := 1 + r.Int64N(3)
					x, y := p.both(weir.Request{Path: path, Cost: cost}), p.both(weir.Request{Path: twin, Cost: cost})
					alike = alike && x.Allowed == y.Allowed
				}
			}
			ask := func(path []string) weir.Result {
				return p.both(weir.Request{Path: path, Cost: 1, Peek: true})
			}
			others(r.IntN(4))
			start := ask(path)
			taken := p.both(weir.Request{Path: path, Cost: 1 + r.Int64N(4), UpTo: r.IntN(2) == 0, ID: "it:{" + tag})
			if !taken.Allowed {
				continue
			}
			atOnce := r.IntN(3) == 0
			if !atOnce {
				others(r.IntN(4))
				c.advance(max(anyPause(r, unitOf(a)), 0))
			}
			before, without := ask(path), ask(twin)
			gave := p.refund("it:{"+tag, path...)
			after := ask(path)
			if gave {
				given++
			}
			switch {
			case atOnce && (!gave || after.Remaining != start.Remaining || after.Allowed != start.Allowed || after.RetryAfter != start.RetryAfter):
				t.errorf("%+v: %d tokens given back at once (%v):\ngot  %+v\nwant %+v", a, taken.Granted, gave, after, start)
			case !gave && after != before:
				t.errorf("%+v: a refund that gave nothing made\n     %+v\nout of %+v", a, after, before)
			case after.Remaining < before.Remaining || after.ResetAfter > before.ResetAfter:
				t.errorf("%+v: a refund made\n     %+v\nout of %+v", a, after, before)
			case alike && after.Remaining > max(before.Remaining, without.Remaining):
				t.errorf("%+v: %d tokens given back made\n%+v out of\n%+v, and without them it would have been\n%+v", a, taken.Granted, after, before, without)
			}
			if p.refund("it:{"+tag, path...) || ask(path) != after {
				t.errorf("%+v: a second refund gave something", a)
			}
			p.same(a, append(t.keysOf(tag, "one", a), t.key(tag, "one:%id=it%3A%7B"+tag))...)
		}
	}
}

// reserves checks MaxWait: what the model has room for within that time is taken at
// once, and told when to go.
func reserves(maker func(*rand.Rand) algorithm.Algorithm) func(*T) {
	return func(t *T) {
		r := t.rand()
		for h := range t.times(16) {
			a := maker(r)
			c, m := newClock(), newModel(a)
			p := t.pair(c, one(a))
			tag := "reserve" + strconv.Itoa(h)
			for s := range 20 {
				c.advance(anyPause(r, unitOf(a)/2))
				req := weir.Request{Path: []string{tag}, Cost: 1 + r.Int64N(3), Peek: r.IntN(5) == 0}
				req.MaxWait = pick(r, 0, time.Microsecond, time.Duration(r.Int64N(int64(3*max(unitOf(a), time.Microsecond)))).Truncate(time.Microsecond), time.Hour, weir.Never)
				room := m.room(c.us, req.Cost)
				want := weir.Result{Limit: m.limit(), Rule: "one"}
				switch {
				case room == weir.Never:
					want.RetryAfter = room
				case room > req.MaxWait:
					want.RetryAfter = room - req.MaxWait
				default:
					want.Allowed, want.Delay = true, room
					if !req.Peek {
						want.Granted = req.Cost
						m.take(c.us, req.Cost)
					}
				}
				want.Remaining, want.ResetAfter = m.left(c.us)
				if got := p.both(req); got != want {
					t.errorf("history %d of %+v, step %d, cost %d within %v:\ngot  %+v\nwant %+v", h, a, s, req.Cost, req.MaxWait, got, want)
					return
				}
			}
			p.same(a, t.keysOf(tag, "one", a)...)
		}
	}
}

// cancels checks what a refund gives back of tokens that others are queued behind: a
// newcomer is let in no earlier than at the time of the last who waits, one token on.
// Of a, one token comes back every interval.
func cancels(a algorithm.Algorithm, interval time.Duration) func(*T) {
	return func(t *T) {
		c := newClock()
		p := t.pair(c, one(a))
		reserve := func(id string) time.Duration {
			res := p.both(weir.Request{Path: []string{"q"}, Cost: 1, MaxWait: time.Hour, ID: id})
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
				t.errorf("%+v: the refund of %s gave something: %v, want %v", a, id, got, want)
			}
		}
		for i := 0; ; i++ {
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

// phase is how many tokens of a come back sooner or later by when its period began,
// which may be with a request that was given back.
func phase(a algorithm.Algorithm) int64 {
	switch b, ok := a.(algorithm.TokenBucket); {
	case ok && b.AtOnce:
		return b.Refill.Count
	case ok:
		return 1
	}
	return 0
}

// neverMade checks many refunds on one key: together they give no more than if the
// requests had never been made, which are replayed without them; and that of the
// newest, at once, gives all.
func neverMade(maker func(*rand.Rand) algorithm.Algorithm) func(*T) {
	type request struct {
		at, cost int64
		id       string
		gone     bool // given back
	}
	return func(t *T) {
		r := t.rand()
		for h := range t.times(32) {
			a := maker(r)
			c := newClock()
			p := t.pair(c, one(a))
			path := []string{"never" + strconv.Itoa(h)}
			var made []request
			for s := range 16 {
				c.advance(max(anyPause(r, unitOf(a)/2), 0))
				if refunds := r.IntN(3) == 0 && len(made) > 0; refunds {
					n := r.IntN(len(made))
					if p.refund(made[n].id, path...) {
						made[n].gone = true
					}
				} else if cost := 1 + r.Int64N(4); p.both(weir.Request{Path: path, Cost: cost, ID: strconv.Itoa(s)}).Allowed {
					made = append(made, request{at: c.us, cost: cost, id: strconv.Itoa(s)})
				}
				now := c.us
				without := t.limiterOn(memory.New(nil), c, one(a))
				for _, m := range made {
					if c.us = m.at; !m.gone {
						t.do(without, weir.Request{Path: path, Cost: m.cost})
					}
				}
				c.us = now
				got, want := p.both(weir.Request{Path: path, Cost: 1, Peek: true}), t.peek(without, 1, path...)
				if got.Remaining > want.Remaining+phase(a) {
					t.errorf("history %d of %+v, step %d, after %+v:\n%d are left, and %d if what was given back had never been taken", h, a, s, made, got.Remaining, want.Remaining)
					return
				}
			}
			p.same(a, append(t.keysOf(path[0], "one", a), t.key(path[0], "one:%refunds"))...)
		}
	}
}
