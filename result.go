package weir

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"unsafe"

	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/store"
)

// result turns the reply to q into a result. If each is not empty, it also stores the
// result of each rule. s holds the buffer for the integers of the reply.
func (b *ruleSet) result(q *query, s *buffers, reply []store.Value, each []Result, res *Result) error {
	p := q.Program
	s.flat = slices.Grow(s.flat, p.MaxReply())
	o, err := p.Parse(q.Verb, reply, s.flat)
	if err != nil {
		return fmt.Errorf("weir: %w", err)
	}
	if len(each) > 0 {
		clear(each[:len(b.rules)])
	}
	switch q.op {
	case Reset:
		res.Allowed = true
		return nil
	case Refund, Settle, Finish, Release, Pause, Resume:
		if o.TooLittle {
			what := ""
			if b.can.any(counts) {
				what = " or of a unit in Request.Costs"
			}
			return fail(ErrInvalidCost, "Refund: Request.Cost is %d: the decision asked for more of it%s: pass the decision's request, to refund all of it; to refund a part, use Settle", q.Call.Cost, what)
		}
		if res.Allowed, res.Granted = o.Allowed, o.Granted; q.Verb.Finishes() {
			res.Allowed, res.Replayed = o.Freed || o.Allowed && b.leases == nil, o.Allowed
		}
		if !b.can.follows && b.can.any(counts) { // the markers of rules with a Cost have one
			res.Granted = 0
		}
		if o.Kept > 0 {
			res.Rule = q.group.rules[bits.TrailingZeros64(uint64(o.Kept))].name
		}
		if len(each) > 0 && len(b.space.units) > 0 && q.Verb.Adjusts() {
			for i := range b.rules {
				n, ok := o.Cost(i)
				each[i] = Result{Allowed: ok, Granted: n, Rule: b.rules[i].name, Type: b.rules[i].limit.Kind.Type()}
			}
		}
		return nil
	}
	switch {
	case o.OtherCost:
		return b.errOtherCost(q, &o)
	case !o.Replayed && o.Granted > q.Call.Cost:
		return fmt.Errorf("weir: %w: %s granted %d tokens: at most %d were requested", store.ErrScript, p.Name(), o.Granted, q.Call.Cost)
	}
	s.answers = s.answers[:0]
	for i := range q.group.rules {
		s.answers = append(s.answers, p.Result(i, q.Verb, &o, &q.Call))
	}
	return b.combine(q, &o, s.answers, each, res)
}

// errOtherCost is the error of a request whose ID names an earlier decision, which asked
// for another cost.
func (b *ruleSet) errOtherCost(q *query, o *compose.Reply) error {
	what, cost := "cost", q.Call.Cost
	if o.Other > 0 {
		r := &b.rules[o.Other-1]
		if r.unit == 0 {
			return fmt.Errorf("weir: %w: the reply names an amount of rule %q, which counts no unit", store.ErrScript, r.name)
		}
		what, cost = fmt.Sprintf("amount of the unit %q", b.unitOf(r)), q.Call.Amounts[r.unit-1]
	}
	return fail(ErrInvalidCost, "%v: the %s is %d, and Request.ID names a decision that asked for %d: repeat the request of that decision, or use another ID", q.op, what, cost, o.Asked)
}

// combine makes one result from the answers of all rules.
func (b *ruleSet) combine(q *query, o *compose.Reply, answers []compose.Result, each []Result, res *Result) error {
	allowed := o.Allowed
	if o.Replayed {
		allowed = !slices.ContainsFunc(answers, func(a compose.Result) bool { return !a.Allowed })
	}
	shown := compose.Shown{Allowed: allowed}
	for n, r := range q.group.rules {
		a := &answers[n]
		if allowed && !a.Allowed {
			return fmt.Errorf("weir: %w: the script allowed the request, but its reply says that rule %q denies it", store.ErrScript, r.name)
		}
		if q.op == Renew || !allowed {
			a.Granted = 0
		}
		a.Replayed = o.Replayed
		left := a.Remaining
		if allowed && r.has(pauses) {
			left = math.MaxInt64
		}
		shown.Add(n, left, a.RetryAfter, a.Delay)
		shown.Grant(r.costBy == CostRequest && !b.can.any(counts), a.Granted)
		if len(each) > 0 {
			*composed(&each[r.index]) = *a
		}
	}
	a := &answers[shown.Rule]
	if !allowed && a.Allowed {
		return fmt.Errorf("weir: %w: the script denied the request, but its reply says that every rule allows it", store.ErrScript)
	}
	*composed(res) = *a
	if allowed {
		res.Delay = shown.Delay
	}
	if n, ok := shown.Granted(); ok {
		res.Granted = n
	}
	return nil
}

// composed returns res as the Result that package compose writes. Their fields are the same:
// if they were not, the conversion would not compile.
func composed(res *Result) *compose.Result { return (*compose.Result)(res) }

// composedList returns each as Results of package compose.
func composedList(each []Result) []compose.Result {
	if len(each) == 0 {
		return nil
	}
	return unsafe.Slice(composed(&each[0]), len(each))
}
