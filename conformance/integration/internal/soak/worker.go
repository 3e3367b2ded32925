package soak

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/conformance/integration/internal/requests"
)

// A worker is a goroutine of a client that makes one call at a time.
type worker struct {
	*Soak
	member *member
	groups []*group
	paces  []*pace
	random *rand.Rand
}

// run makes random calls until the client stops.
func (w *worker) run() {
	for {
		select {
		case <-w.member.stop:
			return
		default:
		}
		w.still.RLock()
		if n := w.random.IntN(len(w.groups) + 1); n < len(w.groups) {
			g := w.groups[n]
			g.gate.RLock()
			w.ask(g, w.random.IntN(users))
			g.gate.RUnlock()
		} else {
			w.paces[w.random.IntN(len(w.paces))].ask(w)
		}
		w.still.RUnlock()
	}
}

// A call is what a worker asks of a limiter.
type call struct {
	verb    string // in the report; empty means the Op of the request
	request weir.Request
	group   *group
	user    int
	plan    int
	cost    int64 // tokens of each rule without a Cost
	back    int64 // tokens that it asks to refund
	ahead   int64 // tokens of the future that it can consume
	again   bool  // it repeats a call of the same cost, whose outcome is unknown
}

// gives reports whether c is about an earlier decision: Allowed says whether it had an effect.
func (c *call) gives() bool {
	switch c.request.Op {
	case weir.Refund, weir.Settle, weir.Release, weir.Renew:
		return true
	}
	return false
}

// of returns the tokens that c asks of a rule to consume and to refund, if it asks n and back of a
// rule without a Cost. A Settle leaves a rule with a Cost as it is.
func (c *call) of(r *rule, n, back int64) (int64, int64) {
	switch {
	case r.Cost == 0:
		return n, back
	case c.request.Op == weir.Settle:
		return 0, 0
	}
	return min(n, 1) * r.Cost, min(back, 1) * r.Cost
}

// do makes a call, notes it in the ledgers, and judges its answer. It returns false if the
// outcome is unknown.
func (w *worker) do(c call) (weir.Result, bool) {
	marks := w.begin(&c)
	var a requests.Answer
	risky := w.timed(perCall, func(ctx context.Context) {
		a = requests.Call(ctx, w.limiter(w.member, c.group, c.plan), len(c.group.plans[c.plan]), []weir.Request{c.request})[0]
	})
	if op := c.request.Op; op == weir.Refund || op == weir.Settle {
		a.Result.Allowed = a.Result.Allowed || a.Result.Rule != "" // the decision was found, and a rule keeps its tokens
	}
	return w.end(&c, marks, a.Result, a.Err, risky)
}

// bounded is do. It also returns the bounds of the first rule, including the call itself.
func (w *worker) bounded(c call) (res weir.Result, known bool, b bounds) {
	l := c.group.ledgers[0][c.user]
	before := l.begin(0, 0)
	res, known = w.do(c)
	return res, known, l.end(before, effect{})
}

// timed calls f with a context that ends after the time d. It reports whether the client can have
// repeated a call: during a fault, or if the call took long.
func (s *Soak) timed(d time.Duration, f func(ctx context.Context)) (risky bool) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	seq, start := s.faults.Load(), time.Now()
	f(ctx)
	return seq%2 == 1 || seq != s.faults.Load() || time.Since(start) > slow
}

// begin notes in the ledgers that c begins.
func (w *worker) begin(c *call) []mark {
	rules := c.group.plans[c.plan]
	marks := make([]mark, len(rules))
	for i := range rules {
		cost, back := c.of(&rules[i], c.cost, c.back)
		marks[i] = c.group.ledgers[i][c.user].begin(cost, back)
	}
	return marks
}

// end notes the outcome of c in the ledgers, and judges it.
func (w *worker) end(c *call, marks []mark, res weir.Result, err error, risky bool) (weir.Result, bool) {
	rules := c.group.plans[c.plan]
	if c.verb == "" {
		c.verb = verbOf(c.request)
	}
	known := w.outcome(c.verb, c.group.kind.name, &res, err, risky)
	if known && c.gives() && !res.Allowed && risky && w.member.Repeats > 0 {
		known = false // the client may have repeated a call that had its effect
	}
	repeats := int64(0)
	if risky && c.request.ID == "" { // a call with an ID has its effect once
		repeats = int64(w.member.Repeats)
	}
	all := make([]bounds, len(rules))
	for i := range rules {
		r := &rules[i]
		e := effect{unknown: !known, repeats: repeats}
		e.cost, e.back = c.of(r, c.cost, c.back)
		switch {
		case c.gives() && res.Allowed:
			e.granted = e.cost
			if !r.loose {
				e.refunded = e.back
			}
		case c.gives():
			e.kept = true
		case res.Allowed:
			e.granted, _ = c.of(r, min(res.Granted, c.cost), 0)
			if c.again {
				e.resolved = e.cost
			}
		}
		all[i] = c.group.ledgers[i][c.user].end(marks[i], e)
	}
	if known && !res.Replayed {
		w.judge(c, rules, all, res)
	}
	return res, known
}

// outcome counts a call, and reports whether its outcome is known. It takes the result of a denied
// request from the error.
func (s *worker) outcome(verb, kind string, res *weir.Result, err error, risky bool) bool {
	s.Report.Add(Calls, verbs+verb, limits+kind)
	var denied *weir.DeniedError
	switch {
	case errors.As(err, &denied):
		*res = denied.Result
	case err == nil:
	default:
		s.Report.Add(Unknown)
		if !requests.Lost(err) {
			s.Violate(Failed, "%s: %s of %s: an error that no fault explains: %v", s.member.Name, verb, kind, err)
		} else if !s.faulty.Load() && !risky && s.member.credit.Add(-1) < 0 {
			s.Violate(Failed, "%s: %s of %s failed without a fault: %v", s.member.Name, verb, kind, err)
		}
		return false
	}
	return true
}

// judge checks an answer: never more than the limit, and never fewer.
func (w *worker) judge(c *call, rules []rule, all []bounds, res weir.Result) {
	upTo := c.request.Op == weir.TakeUpTo
	if c.request.Op == weir.Force || c.gives() || c.cost == 0 {
		return
	}
	w.Report.Add(Judged)
	if res.Granted > c.cost || res.Allowed && !upTo && res.Granted != c.cost {
		w.Violate(Answer, "%s: %s of %s: %d tokens were asked for: %+v", w.member.Name, c.verb, c.group.kind.name, c.cost, res)
	}
	for i := range rules {
		got, _ := c.of(&rules[i], res.Granted, 0)
		if limit := rules[i].limit + c.ahead; got > 0 && all[i].low+got > limit {
			w.Violate(More, "%s: %s of %s, rule %q: granted %d, although at least %d of %d were consumed: %+v",
				w.member.Name, c.verb, c.group.kind.name, rules[i].Name, got, all[i].low, limit, res)
		}
	}
	if res.Allowed && (!upTo || res.Granted >= c.cost) {
		return
	}
	i := max(slices.IndexFunc(rules, func(r rule) bool { return r.Name == res.Rule }), 0) // the only rule can have no name
	r := &rules[i]
	next, _ := c.of(r, c.cost, 0)
	if upTo && r.Cost == 0 {
		next = res.Granted + 1
	} else if upTo && res.Allowed {
		return // another rule may have bounded it
	}
	if limit := r.limit + c.ahead; all[i].high+next <= limit {
		w.Violate(Fewer, "%s: %s of %s, rule %q: %d tokens were not granted, although at most %d of %d were consumed: %+v",
			w.member.Name, c.verb, c.group.kind.name, r.Name, next, all[i].high, limit, res)
	}
}

// audit checks a group when no call is under way: what is left is what the ledgers say, and
// can be consumed.
func (s *Soak) audit(m *member, g *group) {
	w := &worker{Soak: s, member: m, random: s.random}
	for user := range users {
		w.peek(g, user, 0)
		if g.takesUpTo() {
			r := weir.Request{Key: g.key(user), Op: weir.TakeUpTo, Cost: 2 * plans[0]}
			w.do(call{request: r, group: g, user: user, cost: r.Cost})
			w.do(call{request: weir.Request{Key: r.Key}, group: g, user: user, cost: 1})
		}
	}
}
