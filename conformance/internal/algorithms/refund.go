package algorithms

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/internal/decisions"
	"github.com/weir-go/weir/internal/model"
	"github.com/weir-go/weir/store/memory"
)

func checkRefund(t *T) {
	r := t.Rand()
	for h, a := range t.has(t.Times(48), "Refund", t.refundable, weir.Request{Op: weir.Refund, ID: "id"}) {
		name := "refund" + strconv.Itoa(h)
		t.refunds(a, name+"once")
		t.refundBehind(a, name+"behind")
		t.refundSettled(a, name+"settled")
		for i := range 4 {
			t.refundHistory(r, a, name+"."+strconv.Itoa(i), i%2 == 1)
		}
		for key, ttl := range t.KeysLike(name) {
			if ttl < 0 {
				t.Errorf("%+v: %q never expires", a, key)
			}
		}
	}
}

// refunds refunds a decision at once, again, after its tokens were refilled, and after a
// Reset.
func (t *T) refunds(a algorithm.Algorithm, name string) {
	c := decisions.NewClock()
	l := t.Limiter(c, decisions.One(a))
	key := weir.KeyOf(name)
	before := t.Peek(l, 1, name)
	cost := t.Fitting(a, min(2, before.Limit))
	took := t.Do(l, weir.Request{Key: key, Cost: cost, ID: "a"})
	if gave := t.Refund(l, "a", name); !gave {
		t.Errorf("%+v: %d tokens were just consumed, and none was refunded", a, cost)
	}
	if got := t.Peek(l, 1, name); got.Remaining != before.Remaining || got.ResetAfter > took.ResetAfter {
		t.Errorf("%+v: %d tokens are consumed and refunded:\nbefore %+v\nafter  %+v", a, cost, before, got)
	}
	again := t.Peek(l, 1, name)
	if t.Refund(l, "a", name) || t.Refund(l, "nobody", name) || t.Peek(l, 1, name) != again {
		t.Errorf("%+v: a second refund, or the refund of an unknown decision, changes the limit: %+v, then %+v", a, again, t.Peek(l, 1, name))
	}
	if t.LimitOf(a).MaxDebt > 0 { // the refund of a debt leaves what was consumed before
		force := weir.Request{Key: key, Op: weir.Force, Cost: t.Fitting(a, before.Limit)}
		full := t.Do(l, force)
		force.Cost, force.ID = cost, "debt"
		t.Do(l, force)
		if got := t.Peek(l, 1, name); !t.Refund(l, "debt", name) || got.Allowed || t.Peek(l, 1, name).Remaining != full.Remaining {
			t.Errorf("%+v: a Force of %d tokens past the limit, which was refunded, turned\n     %+v\ninto %+v", a, cost, full, t.Peek(l, 1, name))
		}
		t.Reset(l, name)
	}
	unchanged := func(id, what string) {
		before := t.Peek(l, 1, name)
		if gave := t.Refund(l, id, name); gave || t.Peek(l, 1, name) != before {
			t.Errorf("%+v: %s are refunded, %v: %+v, then %+v", a, what, gave, before, t.Peek(l, 1, name))
		}
	}
	for _, gone := range []struct {
		what string
		now  func()
	}{
		{"reset", func() { t.Reset(l, name) }},
		{"deleted", func() { t.Delete(t.Store, t.KeysOf(name, "one", a)...) }},
	} {
		t.Do(l, weir.Request{Key: key, Cost: cost, ID: "b"})
		gone.now()
		unchanged("b", "tokens of a missing key, which was "+gone.what)
		t.Do(l, weir.Request{Key: key, Cost: cost, ID: "b"})
		gone.now()
		t.Do(l, weir.Request{Key: key, Cost: cost, ID: "after it was " + gone.what})
		unchanged("b", "tokens of a key that was "+gone.what)
		t.Reset(l, name)
	}
	t.sameInstant(l, key, cost)
	unchanged("behind", "tokens of a key that was reset, and written again by the same IDs at the same instant,")
	t.Reset(l, name)
	if took = t.Do(l, weir.Request{Key: key, Cost: cost, ID: "c"}); took.ResetAfter > tooFar {
		return
	}
	c.Advance(took.ResetAfter)
	t.Do(l, weir.Request{Key: key, Cost: cost})
	unchanged("c", "tokens that have been refilled")
}

// sameInstant makes a decision, and a second one with the ID "behind". Then it resets key, and
// makes the first decision again, with the same ID and at the same instant.
func (t *T) sameInstant(l *weir.Limiter, key weir.Key, cost int64) {
	first := weir.Request{Key: key, Cost: 1, ID: "first"}
	behind := weir.Request{Key: key, Cost: cost, ID: "behind"}
	t.Do(l, first)
	t.Do(l, behind)
	t.Do(l, weir.Request{Key: key, Op: weir.Reset})
	t.Do(l, weir.Request{Key: key, Op: weir.Refund, ID: first.ID})
	t.Do(l, first)
}

// jump returns the largest number of tokens of a that are refilled at one instant, after
// all were consumed at one instant. A refund does not move the period of an algorithm. So
// this number of tokens may be refilled earlier than without the refunded request.
func (t *T) jump(a algorithm.Algorithm) int64 {
	c := decisions.NewClock()
	l := t.Reference(memory.New(nil), c, decisions.One(a))
	most := int64(1)
	left := t.Allow(l, t.Fitting(a, t.Peek(l, 1, "jump").Limit), "jump").Remaining
	for range smallLimit {
		next := t.Do(l, weir.Request{Key: weir.KeyOf("jump"), Op: weir.Peek, Cost: left + 1})
		if next.RetryAfter == weir.Never || next.RetryAfter == 0 {
			break
		}
		c.Advance(next.RetryAfter)
		now := t.Peek(l, 1, "jump").Remaining
		most, left = max(most, now-left), now
	}
	return most
}

// A history is a list of allowed requests, some of which were refunded. A Settle to more is a
// request too.
type history []pastRequest

type pastRequest struct {
	at    int64
	req   weir.Request // without the ID
	id    string
	fresh bool // the limit was fully reset
	gone  bool // it was refunded
}

// of returns the indices of the requests of the decision id.
func (h history) of(id string) (list []int) {
	for i, p := range h {
		if p.id == id && id != "" {
			list = append(list, i)
		}
	}
	return list
}

// without returns what a answers to r at c, if the refunded requests were never made.
func (t *T) without(a algorithm.Algorithm, c *decisions.Clock, past history, r weir.Request) weir.Result {
	l := t.Reference(memory.New(nil), c, decisions.One(a))
	now := c.Micros
	for _, p := range past {
		if c.Micros = p.at; !p.gone {
			t.Do(l, p.req)
		}
	}
	c.Micros = now
	return t.Do(l, r)
}

// refundBehind refunds the first of two decisions at once. It refunds the second one when
// most of its tokens have been refilled and consumed again. Only the rest is refunded.
func (t *T) refundBehind(a algorithm.Algorithm, name string) {
	c := decisions.NewClock()
	p := t.Pair(c, decisions.One(a))
	peek := weir.Request{Key: weir.KeyOf(name), Op: weir.Peek}
	cost := t.Fitting(a, max(p.Both(peek).Limit/3, 1))
	var past history
	consume := func(id string) bool {
		req := weir.Request{Key: peek.Key, Cost: cost, ID: id, MaxWait: t.patience(a)}
		past = append(past, pastRequest{at: c.Micros, req: req})
		return p.Both(req).Allowed
	}
	if !consume("first") || !consume("second") {
		return
	}
	past[0].gone = p.Refund("first", name)
	reset := p.Both(peek).ResetAfter
	if reset < 2*time.Microsecond || reset > tooFar {
		return
	}
	c.Advance(reset - time.Microsecond)
	if !consume("third") {
		return
	}
	before := p.Both(peek)
	past[1].gone = p.Refund("second", name)
	after := p.Both(peek)
	if most := t.without(a, c, past, peek).Remaining; after.Remaining > max(before.Remaining, most) {
		t.Errorf("%+v: a refund of %d tokens, most of which had been refilled, turned\n     %+v\ninto %+v, and without the refunded requests %d tokens were left", a, cost, before, after, most)
	}
}

// refundSettled consumes all tokens by one decision, waits for the next token, settles
// the decision at one token more, and refunds it. No more tokens are then left than
// without it.
func (t *T) refundSettled(a algorithm.Algorithm, name string) {
	c := decisions.NewClock()
	p, key := t.Pair(c, decisions.One(a)), weir.KeyOf(name)
	all := weir.Request{Key: key, Cost: t.Fitting(a, t.LimitOf(a).Capacity), ID: "all"}
	peek := weir.Request{Key: key, Op: weir.Peek}
	if t.LimitOf(a).MaxDebt == 0 || !p.Both(all).Allowed || p.Both(peek).RetryAfter > tooFar {
		return
	}
	c.Advance(p.Both(peek).RetryAfter)
	some := weir.Request{Key: key, Op: weir.TakeUpTo, Cost: max(p.Both(peek).Remaining/2, 1)}
	past := history{{at: c.Micros, req: some}}
	p.Both(some)
	p.Both(weir.Request{Key: key, Op: weir.Settle, ID: "all", Actual: weir.ActualCost(all.Cost + 1)})
	p.Refund("all", name)
	if after, most := p.Both(peek), t.without(a, c, past, peek); after.Remaining > most.Remaining {
		t.Errorf("%+v: a decision was settled at one token more, and refunded: got %+v, want at most the tokens without it: %+v", a, after, most)
	}
}

// A refunding is a history with refunds on one key.
type refunding struct {
	*T
	decisions.Pair
	a      algorithm.Algorithm
	c      *decisions.Clock
	name   string
	limit  int64
	force  weir.Op      // Force, or Consume if a cannot be in debt
	next   weir.Request // a Peek
	past   history      // since the key was reset or deleted
	ids    []string
	costs  map[string]int64 // of the decisions, by ID
	undone bool             // something was refunded or settled
	marks  []string
	events []int64 // when the state changes
}

// refundHistory makes requests and refunds them in any order, at the instants at which
// the state changes, and resets and deletes the key. It compares the answers with the
// memory store's, and with a history in which the refunded requests were never made. If
// full is true, all tokens are consumed first, or more are reserved.
func (t *T) refundHistory(r *rand.Rand, a algorithm.Algorithm, name string, full bool) {
	c := decisions.NewClock()
	h := &refunding{T: t, Pair: t.Pair(c, decisions.One(a)), a: a, c: c, name: name, next: weir.Request{Key: weir.KeyOf(name), Op: weir.Peek}, events: []int64{c.Micros}, costs: map[string]int64{}}
	if h.limit = h.Both(h.next).Limit; t.LimitOf(a).MaxDebt >= 1000 {
		h.force = weir.Force
	}
	if t.KindOf(a).Reserves {
		h.next.MaxWait = weir.Never
	}
	if full {
		parts := 1 + r.Int64N(4)
		for part := range parts {
			h.consume(r, h.limit*(part+1)/parts-h.limit*part/parts, h.next.MaxWait)
		}
		for range r.IntN(4) {
			h.consume(r, 1, h.next.MaxWait)
		}
	}
	jump := t.jump(a)
	for s := range 20 {
		switch at := model.Pick(r, h.events[len(h.events)-1], model.Pick(r, h.events...)) + r.Int64N(3) - 1; {
		case r.IntN(3) == 0:
			c.Advance(max(model.Pause(r, t.Unit(a)/2), 0))
		case r.IntN(2) == 0 && at > c.Micros && at-c.Micros < tooFar.Microseconds():
			c.Micros = at
		}
		before := h.Do(h.Ref, h.next)
		switch verb := r.IntN(24); {
		case verb == 0:
			h.Both(weir.Request{Key: h.next.Key, Op: weir.Reset})
			h.past, h.undone = nil, false
		case verb == 1:
			t.Delete(t.Store, t.KeysOf(name, "one", a)...)
			t.Delete(h.Reference, t.KeysOf(name, "one", a)...)
			h.past, h.undone = nil, false
		case verb < 7 && len(h.ids) > 0 && h.force == weir.Force:
			h.settleOne(model.Pick(r, h.ids...), model.Pick(r, 0, r.Int64N(5), r.Int64N(h.limit+4)))
		case verb < 14 && len(h.ids) > 0:
			h.refundOne(model.Pick(r, h.ids...), before, jump)
		case full:
			h.consume(r, model.Pick(r, 1, 2, h.limit/3, h.limit/2), h.next.MaxWait)
		case t.KindOf(a).Reserves && r.IntN(3) == 0:
			h.consume(r, 1+r.Int64N(4), model.Wait(r, t.Unit(a)))
		default:
			h.consume(r, 1+r.Int64N(4), 0)
		}
		t.StopFailed("%+v, step %d, after %+v", a, s, h.past)
	}
	h.Same(a, append(t.KeysOf(name, "one", a), h.marks...)...)
}

// consume makes a request, usually with an ID, so that it can be refunded.
func (h *refunding) consume(r *rand.Rand, cost int64, wait time.Duration) {
	fresh := h.Do(h.Ref, h.next).ResetAfter == 0
	req := h.request(r, h.a, max(min(cost, h.limit), 1), h.name)
	if req.MaxWait = wait; r.IntN(4) > 0 {
		req.ID = "id" + strconv.Itoa(len(h.ids))
		h.ids = append(h.ids, req.ID)
		h.marks = append(h.marks, h.MarkersOf(req, decisions.One(h.a))...)
	}
	made := req
	if wait == 0 && r.IntN(3) == 0 {
		made.Op = model.Pick(r, weir.TakeUpTo, h.force)
	}
	res := h.Both(made)
	if !res.Allowed {
		return
	}
	if made.ID != "" {
		before, got := h.Both(h.next), h.Both(made)
		if !got.Allowed || !got.Replayed || got.Granted != res.Granted || got.Delay != res.Delay || h.Both(h.next) != before {
			h.Errorf("%+v is repeated at once:\nfirst %+v\nthen  %+v\nand a peek turned from %+v into %+v", made, res, got, before, h.Both(h.next))
		}
	}
	if req.Cost, req.ID = res.Granted, ""; made.Op == weir.Force {
		req.Op = made.Op
	}
	h.costs[made.ID] = res.Granted
	h.past = append(h.past, pastRequest{at: h.c.Micros, req: req, id: made.ID, fresh: fresh})
	h.events = append(h.events, h.c.Micros+res.ResetAfter.Microseconds(), h.c.Micros+res.Delay.Microseconds())
}

// refundOne refunds the decision id. Then there must not be more tokens than before, or than if
// the refunded requests had never been made. After an earlier refund, slack more are allowed.
func (h *refunding) refundOne(id string, before weir.Result, slack int64) {
	at := h.past.of(id)
	if len(at) > 0 && h.past[at[0]].fresh && fixesWindow(h.a) {
		return
	}
	if !h.undone {
		slack = 0
	}
	refund := weir.Request{Key: weir.KeyOf(h.name), ID: id, Op: weir.Refund}
	res := h.Both(refund)
	after, again := h.Both(h.next), res
	if again.Allowed = false; res.Allowed || res.Rule == "" {
		again = weir.Result{}
	} else if res.Granted != h.costs[id] {
		h.Errorf("a refund of %s: got %+v, want that it costs %d", id, res, h.costs[id])
	}
	if got := h.Both(refund); got != again {
		h.Errorf("a second refund of %s: got %+v and then %+v", id, res, got)
	}
	gave := res.Allowed
	switch {
	case gave && !slices.ContainsFunc(at, func(i int) bool { return !h.past[i].gone }):
		h.Errorf("the refund of %s refunded something, although that was refunded, or the key was reset or deleted since", id)
	case gave:
		h.undone = true
		for _, i := range at {
			h.past[i].gone = true
		}
	case after != before:
		h.Errorf("a refund of %s that reports nothing turned\n     %+v\ninto %+v", id, before, after)
	}
	most := h.without(h.a, h.c, h.past, h.next).Remaining + slack
	if after.Remaining < before.Remaining || after.Remaining > max(before.Remaining, most) || after.ResetAfter > before.ResetAfter {
		h.Errorf("a refund of %s turned\n     %+v\ninto %+v, and without the refunded requests at most %d tokens were left", id, before, after, most)
	}
}

// settleOne settles the decision id, twice, and settles it in the history too.
func (h *refunding) settleOne(id string, actual int64) {
	at := h.past.of(id)
	if len(at) > 0 && h.past[at[0]].fresh && fixesWindow(h.a) {
		return
	}
	r := weir.Request{Key: h.next.Key, Op: weir.Settle, ID: id, Actual: weir.ActualCost(actual)}
	fresh := h.Do(h.Ref, h.next).ResetAfter == 0 // after a reset, a Settle to more starts the window
	then, res, before := h.Both(h.next), h.Both(r), h.Both(h.next)
	if res.Rule != "" && before == then { // the rule keeps its tokens
		actual = h.costs[id]
	}
	if again := h.Both(r); again != res || h.Both(h.next) != before || res.Allowed && res.Granted != actual {
		h.Errorf("%+v: got %+v and then %+v, want the cost %d twice, and that the second changes nothing", r, res, again, actual)
	}
	if !res.Allowed || res.Rule != "" {
		return
	}
	more := actual - h.costs[id]
	h.undone, h.costs[id] = true, actual
	if more > 0 {
		req := weir.Request{Key: h.next.Key, Op: weir.Force, Cost: more}
		h.past = append(h.past, pastRequest{at: h.c.Micros, req: req, id: id, fresh: fresh})
	}
	for _, i := range slices.Backward(at) {
		if p := &h.past[i]; more < 0 && !p.gone {
			back := min(-more, p.req.Cost)
			more, p.req.Cost, p.gone = more+back, p.req.Cost-back, back == p.req.Cost
		}
	}
}

// fixesWindow reports whether the first request after a full reset of a decides when windows
// begin and end. A refund does not move the window, so after the refund the answers cannot be
// compared with a history without the request.
func fixesWindow(a algorithm.Algorithm) bool {
	f, ok := a.(algorithm.FixedWindow)
	return ok && !f.Aligned
}
