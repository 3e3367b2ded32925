package soak

import (
	"context"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/conformance/integration/internal/requests"
)

// ask makes a random request for a user's key. The worker holds the gate of the group for reading.
func (w *worker) ask(g *group, user int) {
	switch n := w.random.IntN(12); {
	case n == 0 && g.takesUpTo():
		w.many(g)
		return
	case n == 1 && g.kind.name == "MetadataWindow":
		w.entries(g, user)
		return
	}
	var d *decision // the request is about it
	about := false
	s := requests.Source{
		Rand: w.random, Rare: 10, MaxWait: g.wait,
		NewID: func(r weir.Request) weir.Request {
			r.ID = strconv.FormatUint(w.random.Uint64(), 36) + strconv.FormatUint(w.random.Uint64(), 36)
			return r
		},
		Recent: func(weir.Key) (r weir.Request) {
			if d, about = g.pick(user), true; d != nil {
				r = d.request
			}
			return r
		},
	}
	r := g.asks[w.random.IntN(len(g.asks))](&s, g.key(user))
	switch {
	case about && d == nil:
	case about:
		w.use(g, user, d, r)
	case r.Op == weir.Reset:
		w.reset(g, user)
	case r.Op == weir.Peek:
		w.peek(g, user, g.limits())
	default:
		w.decide(g, user, r)
	}
}

// limits returns the current plan.
func (g *group) limits() int { return int(g.plan.Load()) }

func (g *group) takesUpTo() bool { return !g.queues() && !g.leases() }
func (g *group) queues() bool    { return g.kind.name == "LeakyBucket" }
func (g *group) leases() bool    { return g.kind.name == "Concurrency" }

// wait returns the MaxWait of a reservation: a queue has turns, and other limits have the tokens of
// later hours.
func (g *group) wait() time.Duration {
	if g.queues() {
		return weir.Never
	}
	return ahead * anHour
}

// verbOf names r in the report.
func verbOf(r weir.Request) string {
	switch {
	case r.MaxWait > 0:
		return "Reserve"
	case r.Metadata != "":
		return "Consume with metadata"
	case r.ID != "" && (r.Op == weir.Consume || r.Op == weir.TakeUpTo):
		return r.Op.String() + " with ID"
	}
	return r.Op.String()
}

// peek peeks at a key, and judges Remaining if g has one rule.
func (w *worker) peek(g *group, user, plan int) {
	r := weir.Request{Key: g.key(user), Op: weir.Peek}
	res, known, b := w.bounded(call{group: g, user: user, plan: plan, request: r})
	if !known || g.several() || g.queues() {
		return
	}
	limit := g.plans[plan][0].limit
	w.Report.Add(Judged)
	if most, least := max(limit-b.low, 0), max(limit-b.high, 0); res.Remaining > most || res.Remaining < least {
		w.Violate(Answer, "%s: Peek of %s: %d of %d tokens remain, want from %d to %d", w.member.Name, g.kind.name, res.Remaining, limit, least, most)
	}
}

// reset clears a user's limits while no other call of the group is under way.
func (w *worker) reset(g *group, user int) {
	g.gate.RUnlock()
	defer g.gate.RLock()
	g.gate.Lock()
	defer g.gate.Unlock()
	g.forget(user)
	_, known := w.do(call{group: g, user: user, request: weir.Request{Key: g.key(user), Op: weir.Reset}})
	for i, r := range g.plans[0] {
		if !r.shared {
			g.ledgers[i][user].reset(!known)
		}
	}
}

// many makes a request for each user, in one call.
func (w *worker) many(g *group) {
	plan, op, verb := g.limits(), weir.Consume, "DoMany"
	if w.random.IntN(2) == 0 {
		op, verb = weir.Peek, "DoMany of peeks"
	}
	var all []weir.Request
	var calls []call
	var marks [][]mark
	for user := range users {
		r := weir.Request{Key: g.key(user), Op: op, Cost: 1 + w.random.Int64N(3)}
		c := call{verb: verb, group: g, user: user, plan: plan, request: r, cost: r.Cost}
		if op == weir.Peek {
			c.cost = 0
		}
		all, calls, marks = append(all, r), append(calls, c), append(marks, w.begin(&c))
	}
	var answers []requests.Answer
	risky := w.timed(perCall, func(ctx context.Context) {
		answers = requests.Call(ctx, w.limiter(w.member, g, plan), len(g.plans[plan]), all)
	})
	for i, a := range answers {
		w.end(&calls[i], marks[i], a.Result, a.Err, risky)
	}
}

// decide makes a decision. If it has an ID and consumed tokens, it can be used later.
func (w *worker) decide(g *group, user int, r weir.Request) {
	if g.queues() && r.Op == weir.Consume {
		r.MaxWait = g.wait() // while others wait, it would be denied
	}
	d := &decision{plan: g.limits(), request: r}
	if r.MaxWait > 0 && !g.queues() {
		d.ahead = ahead
	}
	res, known := w.do(call{group: g, user: user, plan: d.plan, request: r, cost: max(r.Cost, 1), ahead: d.ahead})
	if d.held, d.lost = res.Granted, !known; r.ID != "" && (known && res.Allowed || d.lost && r.Op == weir.Consume && !g.leases()) {
		g.hold(user, d)
	}
}

// use makes a request about an earlier decision, which nobody else uses meanwhile. If the reply of
// the decision was lost, it may have been made, so it is only repeated.
func (w *worker) use(g *group, user int, d *decision, r weir.Request) {
	r.Key, r.Cost = d.request.Key, 0
	c := call{group: g, user: user, plan: d.plan, request: r}
	switch {
	case (r.Op == weir.Consume || r.Op == weir.TakeUpTo) && !g.leases():
		w.again(g, user, d)
		return
	case r.Op == weir.Consume, d.lost, r.Op == weir.Settle && (d.settled || d.request.MaxWait > 0):
		g.hold(user, d)
		return
	case r.Op == weir.Settle:
		actual, _ := r.Actual.Cost()
		c.cost, c.back = max(actual-d.held, 0), max(d.held-actual, 0)
	case r.Op != weir.Renew:
		c.back = d.held
	}
	res, known := w.do(c)
	if loose := len(g.plans[0]) == 1 && g.plans[0][0].loose; known && !res.Allowed && !loose && (d.held > 0 || r.Op != weir.Refund) {
		w.Violate(Answer, "%s: %v of %s: the decision, of %d tokens, was not found", w.member.Name, r.Op, g.kind.name, d.held)
	}
	switch actual, _ := r.Actual.Cost(); {
	case r.Op == weir.Renew:
		g.hold(user, d)
	case r.Op == weir.Settle && known && res.Allowed && actual <= d.held: // after a higher cost, a refund would return less
		d.held, d.settled = res.Granted, true // a rule whose later reservations depend on the tokens keeps them
		g.hold(user, d)
	}
}

// again repeats a decision. If it was made, it consumes nothing.
func (w *worker) again(g *group, user int, d *decision) {
	c := call{verb: "a repeated ID", group: g, user: user, plan: d.plan, request: d.request}
	if d.lost {
		c.cost, c.again, c.ahead = max(d.request.Cost, 1), true, d.ahead
	}
	res, known := w.do(c)
	switch {
	case !known:
	case d.lost && !res.Allowed:
		return
	case d.lost:
		d.lost, d.held = false, res.Granted
	case !res.Replayed || res.Granted != d.held:
		w.Violate(Answer, "%s: a repeated decision of %s: got %+v, want it replayed, with Granted %d", w.member.Name, g.kind.name, res, d.held)
	}
	g.hold(user, d)
}

// entries lists the entries of a MetadataWindow, whose costs are the tokens consumed.
func (w *worker) entries(g *group, user int) {
	var sum int64
	l := g.ledgers[0][user]
	before := l.begin(0, 0)
	var err error
	risky := w.timed(perCall, func(ctx context.Context) {
		var list []weir.Entry
		list, err = w.limiter(w.member, g, 0).Entries(ctx, g.segments(user)...)
		for _, e := range list {
			sum += e.Cost
		}
	})
	known := w.outcome("Entries", g.kind.name, &weir.Result{Allowed: true}, err, risky)
	if b := l.end(before, effect{}); known && (sum < b.low || sum > b.high) {
		w.Violate(Answer, "%s: Entries of %s: the entries have %d tokens, want from %d to %d", w.member.Name, g.kind.name, sum, b.low, b.high)
	}
}
