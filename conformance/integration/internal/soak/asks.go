package soak

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/weir-go/weir"
)

// An ask makes a random call on a user's key. The worker holds the gate of the group for reading.
type ask func(w *worker, g *group, user int)

// These are the asks of the kinds. An ask that a list has twice is made twice as often.
var (
	plain      = []ask{allow, allow, allowN, allowN, takeUpTo, peek, many, manyPeeks, reset}
	named      = []ask{consumeID, consumeID, consumeID, takeUpToID, held(again), held(refund), held(refund), held(refund)}
	noDebt     = slices.Concat(plain, named)
	refundable = slices.Concat(plain, named, []ask{force, held(settle), held(settle)})
	reservable = slices.Concat(refundable, []ask{reserve, reserve})
	queued     = []ask{enqueue, enqueue, enqueue, held(refund), held(refund), force, reset}
	listed     = slices.Concat(plain, []ask{force, kept, kept, entries})
	leased     = []ask{tryAcquire, tryAcquire, tryAcquire, acquire, held(renew), held(release), held(release), peek, reset}
)

// These asks differ only in what they request. The last takes turns in the queue of a LeakyBucket.
var (
	many       = batch("DoMany", weir.Consume)
	manyPeeks  = batch("DoMany of peeks", weir.Peek)
	consumeID  = decides("Consume with ID", weir.Request{}, 5, 0)
	takeUpToID = decides("TakeUpTo with ID", weir.Request{Op: weir.TakeUpTo}, 9, 0)
	reserve    = decides("Reserve", weir.Request{MaxWait: ahead * anHour}, 4, ahead)
	enqueue    = decides("Reserve", weir.Request{MaxWait: weir.Never}, 4, 0)
)

func (g *group) takesUpTo() bool { return g.kind.name != "LeakyBucket" && g.kind.name != "Concurrency" }

// limits returns the plan that is in force.
func (g *group) limits() int { return int(g.plan.Load()) }

// name returns a new ID.
func (w *worker) name() string {
	return strconv.FormatUint(w.random.Uint64(), 36) + strconv.FormatUint(w.random.Uint64(), 36)
}

// ofKey makes a call of a verb that has only a key.
func (w *worker) ofKey(c call, f func(l *weir.Limiter, ctx context.Context, key ...string) (weir.Result, error)) {
	w.do(c, func(ctx context.Context, l *weir.Limiter) (weir.Result, error) {
		return f(l, ctx, c.group.segments(c.user)...)
	})
}

// ofCost makes a call of a verb that has a cost and a key.
func (w *worker) ofCost(c call, f func(l *weir.Limiter, ctx context.Context, n int64, key ...string) (weir.Result, error)) {
	w.do(c, func(ctx context.Context, l *weir.Limiter) (weir.Result, error) {
		return f(l, ctx, c.cost, c.group.segments(c.user)...)
	})
}

func allow(w *worker, g *group, user int) {
	w.ofKey(call{verb: "Allow", group: g, user: user, plan: g.limits(), cost: 1}, (*weir.Limiter).Allow)
}

func allowN(w *worker, g *group, user int) {
	w.ofCost(call{verb: "AllowN", group: g, user: user, plan: g.limits(), cost: 1 + w.random.Int64N(5)}, (*weir.Limiter).AllowN)
}

func takeUpTo(w *worker, g *group, user int) {
	w.ofCost(call{verb: "TakeUpTo", group: g, user: user, plan: g.limits(), cost: 1 + w.random.Int64N(9), upTo: true}, (*weir.Limiter).TakeUpTo)
}

// force is rare: in debt, most requests are denied.
func force(w *worker, g *group, user int) {
	if w.random.IntN(8) == 0 {
		w.ofCost(call{verb: "Force", group: g, user: user, plan: g.limits(), cost: 1 + w.random.Int64N(3), free: true}, (*weir.Limiter).Force)
	}
}

func peek(w *worker, g *group, user int) {
	if g.several() {
		w.ofKey(call{verb: "Peek", group: g, user: user, plan: g.limits()}, (*weir.Limiter).Peek)
		return
	}
	w.peekAt(g, user, g.limits())
}

// peekAt peeks at the only rule of g, and judges Remaining.
func (w *worker) peekAt(g *group, user, plan int) {
	limit := g.plans[plan][0].limit
	c := call{verb: "Peek", group: g, user: user, plan: plan}
	res, known, b := w.bounded(c, func(ctx context.Context, l *weir.Limiter) (weir.Result, error) {
		return l.Peek(ctx, g.segments(user)...)
	})
	if !known || b.void {
		return
	}
	w.Report.add(&w.Report.Judged)
	if most, least := max(limit-b.low, 0), max(limit-b.high, 0); res.Remaining > most || res.Remaining < least {
		w.Violate(Answer, "%s: Peek of %s: %d of %d tokens remain, want from %d to %d", w.member.Name, g.kind.name, res.Remaining, limit, least, most)
	}
}

// reset clears a user's limits while no other call of the group is under way. It is rare.
func reset(w *worker, g *group, user int) {
	if w.random.IntN(10) > 0 {
		return
	}
	g.gate.RUnlock()
	defer g.gate.RLock()
	g.gate.Lock()
	defer g.gate.Unlock()
	if g.hit {
		return
	}
	g.forget(user)
	_, known := w.do(call{verb: "Reset", group: g, user: user}, func(ctx context.Context, l *weir.Limiter) (weir.Result, error) {
		err := l.Reset(ctx, g.segments(user)...)
		return weir.Result{Allowed: err == nil}, err
	})
	for i, r := range g.plans[0] {
		if !r.shared {
			g.ledgers[i][user].reset(!known)
		}
	}
}

// batch returns an ask for a request for each user, in one call.
func batch(verb string, op weir.Op) ask {
	return func(w *worker, g *group, _ int) {
		plan := g.limits()
		var requests []weir.Request
		var calls []call
		var marks [][]mark
		for user := range users {
			c := call{verb: verb, group: g, user: user, plan: plan, cost: 1 + w.random.Int64N(3)}
			requests = append(requests, weir.Request{Key: g.key(user), Op: op, Cost: c.cost})
			if op == weir.Peek {
				c.cost = 0
			}
			calls = append(calls, c)
			marks = append(marks, w.begin(&c))
		}
		var answers []weir.Answer
		risky := w.timed(perCall, func(ctx context.Context) { answers = w.limiter(w.member, g, plan).DoMany(ctx, requests) })
		for i, a := range answers {
			w.end(&calls[i], marks[i], a.Result, a.Err, risky)
		}
	}
}

// decides returns an ask for a decision like r, which has an ID, and a cost of at most most. It can
// consume as many tokens as ahead of those that are there only hours later.
func decides(verb string, r weir.Request, most, ahead int64) ask {
	return func(w *worker, g *group, user int) {
		r := r
		r.Key, r.ID, r.Cost = g.key(user), w.name(), 1+w.random.Int64N(most)
		d := &decision{plan: g.limits(), request: r, ahead: ahead}
		c := call{verb: verb, group: g, user: user, plan: d.plan, cost: r.Cost, named: true, upTo: r.Op == weir.TakeUpTo, ahead: ahead}
		res, known := w.do(c, deciding(r))
		if known && !res.Allowed {
			return
		}
		d.held, d.lost = res.Granted, !known
		if known || r.Op == weir.Consume {
			g.hold(user, d)
		}
	}
}

// held returns an ask that uses a random decision of a user, if there is one.
func held(use func(w *worker, g *group, user int, d *decision)) ask {
	return func(w *worker, g *group, user int) {
		if d := g.pick(w.random, user); d != nil {
			use(w, g, user, d)
		}
	}
}

// again repeats a decision. If it was made, it consumes nothing.
func again(w *worker, g *group, user int, d *decision) {
	if d.lease != nil {
		return
	}
	c := call{verb: "a repeated ID", group: g, user: user, plan: d.plan, cost: 0, named: true, free: true}
	if d.lost {
		c.cost, c.again, c.free, c.ahead = d.request.Cost, true, false, d.ahead
	}
	res, known, b := w.bounded(c, deciding(d.request))
	switch {
	case !known:
	case d.lost && !res.Allowed:
		return
	case d.lost:
		d.lost, d.held = false, res.Granted
	case !b.void && (!res.Replayed || res.Granted != d.held):
		w.Violate(Answer, "%s: a repeated decision of %s: got %+v, want it replayed, with Granted %d", w.member.Name, g.kind.name, res, d.held)
	case b.void:
		if !res.Replayed { // a fault has lost the decision, so this is another one
			w.begin(&call{group: g, user: user, plan: d.plan, cost: d.request.Cost})
		}
		return
	}
	g.hold(user, d)
}

// refund refunds a decision.
func refund(w *worker, g *group, user int, d *decision) {
	if d.lost { // it may have been made
		g.hold(user, d)
		return
	}
	r := weir.Request{Key: d.request.Key, ID: d.request.ID}
	w.give(g, user, d, call{verb: "Refund", back: d.held}, func(ctx context.Context, l *weir.Limiter) (bool, error) {
		s, err := l.Refund(ctx, r)
		return s.Found, err
	})
}

// settle gives a decision another cost, once. If that is higher, the decision is not refunded
// later, because a refund would return less.
func settle(w *worker, g *group, user int, d *decision) {
	if d.lost || d.settled || d.request.MaxWait > 0 {
		g.hold(user, d)
		return
	}
	actual := w.random.Int64N(d.held + 2)
	c := call{verb: "Settle", cost: max(actual-d.held, 0), back: max(d.held-actual, 0), unset: true}
	r := weir.Request{Key: d.request.Key, ID: d.request.ID}
	var s weir.Settlement
	ok := w.give(g, user, d, c, func(ctx context.Context, l *weir.Limiter) (_ bool, err error) {
		s, err = l.Settle(ctx, r, actual)
		return s.Found, err
	})
	if ok && actual <= d.held { // a rule whose later reservations depend on the tokens keeps them
		d.held, d.settled = s.Cost, true
		g.hold(user, d)
	}
}

// give makes a call that has an effect on a decision that was surely made. It returns whether
// it had.
func (w *worker) give(g *group, user int, d *decision, c call, f func(context.Context, *weir.Limiter) (bool, error)) bool {
	c.group, c.user, c.plan, c.named, c.gives = g, user, d.plan, true, true
	res, known, b := w.bounded(c, func(ctx context.Context, l *weir.Limiter) (weir.Result, error) {
		ok, err := f(ctx, l)
		return weir.Result{Allowed: ok}, err
	})
	if loose := len(g.plans[0]) == 1 && g.plans[0][0].loose; known && !b.void && !res.Allowed && !loose && (d.held > 0 || c.verb != "Refund") {
		w.Violate(Answer, "%s: %s of %s: the decision, of %d tokens, was not found", w.member.Name, c.verb, g.kind.name, d.held)
	}
	return known && res.Allowed
}

// kept consumes tokens, with metadata.
func kept(w *worker, g *group, user int) {
	r := weir.Request{Key: g.key(user), Cost: 1 + w.random.Int64N(3), Metadata: w.name()}
	w.do(call{verb: "Consume with metadata", group: g, user: user, plan: g.limits(), cost: r.Cost}, deciding(r))
}

// entries lists the entries of a MetadataWindow, whose costs are the tokens consumed.
func entries(w *worker, g *group, user int) {
	var sum int64
	_, known, b := w.bounded(call{verb: "Entries", group: g, user: user}, func(ctx context.Context, l *weir.Limiter) (weir.Result, error) {
		list, err := l.Entries(ctx, g.segments(user)...)
		for _, e := range list {
			sum += e.Cost
		}
		return weir.Result{Allowed: err == nil}, err
	})
	if known && !b.void && (sum < b.low || sum > b.high) {
		w.Violate(Answer, "%s: Entries of %s: the entries have %d tokens, want from %d to %d", w.member.Name, g.kind.name, sum, b.low, b.high)
	}
}

// tryAcquire acquires a lease, of the users but the last.
func tryAcquire(w *worker, g *group, user int) {
	w.lease(g, user%(users-1), "TryAcquire", func(ctx context.Context, l *weir.Limiter) (*weir.Lease, error) {
		return l.TryAcquire(ctx, g.segments(user%(users-1))...)
	})
}

// acquire waits a moment for a lease of the last user. If its context ends during an attempt,
// nobody knows its outcome. So what the last user holds is known less exactly.
func acquire(w *worker, g *group, _ int) {
	if w.random.IntN(4) > 0 {
		return
	}
	user := users - 1
	w.lease(g, user, "Acquire", func(ctx context.Context, l *weir.Limiter) (*weir.Lease, error) {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		return l.Acquire(ctx, g.segments(user)...)
	})
}

func (w *worker) lease(g *group, user int, verb string, f func(context.Context, *weir.Limiter) (*weir.Lease, error)) {
	plan := g.limits()
	c := call{verb: verb, group: g, user: user, plan: plan, cost: 1, named: true, brief: verb == "Acquire"}
	var lease *weir.Lease
	res, known := w.do(c, func(ctx context.Context, l *weir.Limiter) (weir.Result, error) {
		var err error
		if lease, err = f(ctx, l); err != nil {
			return weir.Result{}, err
		}
		return lease.Result, nil
	})
	if known && res.Allowed && lease != nil {
		g.hold(user, &decision{plan: plan, held: 1, lease: lease, owner: w.member})
	}
}

// renew renews a lease, which consumes nothing.
func renew(w *worker, g *group, user int, d *decision) {
	w.give(g, user, d, call{verb: "Renew"}, func(ctx context.Context, l *weir.Limiter) (bool, error) {
		if d.owner != w.member { // a client that knows the ID, also if the owner has left
			res, err := l.Decide(ctx, weir.Request{Key: g.key(user), Op: weir.Renew, ID: d.lease.ID()}, nil)
			return res.Allowed, err
		}
		err := d.lease.Renew(ctx)
		if errors.Is(err, weir.ErrLeaseLost) {
			return false, nil
		}
		return true, err
	})
	g.hold(user, d)
}

// release releases a lease.
func release(w *worker, g *group, user int, d *decision) {
	w.give(g, user, d, call{verb: "Release", back: 1}, func(ctx context.Context, l *weir.Limiter) (bool, error) {
		if d.owner != w.member {
			res, err := l.Decide(ctx, weir.Request{Key: g.key(user), Op: weir.Release, ID: d.lease.ID()}, nil)
			return res.Allowed, err
		}
		return d.lease.Release(ctx)
	})
}
