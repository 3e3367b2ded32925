package weir

import "context"

// A Settlement says what a [Limiter.Settle], a [Limiter.Refund] or a [Limiter.Finish] did.
type Settlement struct {
	// Found is true if the decision was found. Otherwise it was denied or refunded, or a
	// Refund found no token left to refund, and no rule has changed.
	Found bool

	// Held is true if a Finish ended a lease, or found the decision of a limiter without
	// leases.
	Held bool

	// Cost is what the decision costs now, in tokens of each rule without a Cost or a
	// Unit. After a Settle it is the actual cost, unless a rule is too deep in debt or none
	// could be adjusted. After a Refund it is the most that a rule keeps.
	Cost int64

	// Kept is the name of the first rule, if any, that may still hold tokens of the
	// decision but returned none, because its limit has changed or later reservations
	// need them. It can also be a rule with a Unit in which a Settle did not find the
	// decision.
	Kept string
}

// Refund refunds all tokens that the decision with the Key and the ID of r consumed. It
// can be retried after an error. It ends the ID: if the request is sent again, it makes a
// new decision. To refund a part, use [Limiter.Settle].
//
// A refund never leaves more tokens in a rule than if the request had not been made, with
// the exceptions in docs/reference/algorithms.md. So it returns no tokens that have been
// refilled, and nothing to a key that was reset, evicted or deleted since. An
// algorithm.GCRA, TokenBucket or LeakyBucket may refund less.
//
// A rule may keep its tokens, as [Settlement].Kept says: docs/guide/production.md has the
// conditions. If no rule returns any, nothing changes, and the ID stays.
//
// r.Cost must be 0, or at least the Cost of the decision, and so must each amount of
// r.Costs.
func (l *Limiter) Refund(ctx context.Context, r Request) (Settlement, error) {
	r.Op = Refund
	return l.settle(ctx, r)
}

// Settle makes actual, which can be 0, the cost of the decision with the Key and the ID
// of r, after the work has been done. If the decision consumed more, Settle refunds the
// difference as [Limiter.Refund] does. If it consumed less, Settle consumes the
// difference as [Limiter.Force] does, even past the limit. A rule with a Cost keeps it.
//
// Check that the [Settlement] has Found, and the Cost actual. If the decision was not
// found, and consumed less, use Force for the difference.
//
// Settle can be retried after an error. The ID stays, so the decision can be settled
// again, or refunded. After a Settle that consumed a difference, a later Settle or Refund
// may return only that difference, except in an algorithm.FixedWindow, Calendar or
// SlidingCounter.
//
// If the limiter lacks a rule of the decision, that rule's tokens stay consumed.
//
// One rule must have neither a Cost nor a Unit, and each must support both Refund and
// Force. Rules with a Unit keep what they consumed: see [Limiter.SettleCosts].
func (l *Limiter) Settle(ctx context.Context, r Request, actual int64) (Settlement, error) {
	r.Op, r.Actual = Settle, ActualCost(actual)
	return l.settle(ctx, r)
}

// SettleCosts is [Limiter.Settle] for rules with a Unit. It makes each amount in actual,
// which can be 0, the cost of the decision in the rules that count its unit. All other
// rules keep their cost, unless r.Actual has one for the rules without a Cost or a Unit.
//
// In a rule, the decision is found until its tokens have been refilled and, with
// [Options].Settles, for at least 10 minutes. If it is no longer found in a rule, nothing
// changes there, and Kept is set. To learn the cost in each rule, call [Limiter.Decide]
// with the Op [Settle] and [ActualCosts].
func (l *Limiter) SettleCosts(ctx context.Context, r Request, actual Costs) (Settlement, error) {
	r.Op, r.Actual = Settle, r.Actual.With(actual)
	return l.settle(ctx, r)
}

// Finish ends the work with the Key and the ID of r, in one call. If actual has amounts, it
// settles the decision as [Limiter.Settle] and [Limiter.SettleCosts] do; a cost or a unit
// that actual does not name keeps what it was. If actual is [ActualRefund], it refunds the
// decision as [Limiter.Refund] does, whatever Cost and Costs are. With the zero Actual, it
// changes no cost. Then it releases the lease, even if the decision was not found or a rule
// keeps its tokens. A pause does not matter.
//
// The ID stays, unless the decision is refunded, so a repeat is free: see
// [Limiter.TryAcquire]. Finish can be retried after an error, as long as nobody else can
// have begun work under the ID. If it is the first, and does not find the decision, consume
// with [Force] what the work cost above the estimate; after a retry, do not.
//
// In a limiter without leases, Finish only settles or refunds. In one with leases and
// without [Options].Settles, it is a [Release], and amounts are an [ErrUnsupported].
func (l *Limiter) Finish(ctx context.Context, r Request, actual Actual) (Settlement, error) {
	r.Op, r.Actual = Finish, actual
	res, err := l.Decide(ctx, r, nil)
	return settlement(&res), err
}

// settlement returns what the answer to a Finish says.
func settlement(res *Result) Settlement {
	return Settlement{Found: res.Replayed, Held: res.Allowed, Cost: res.Granted, Kept: res.Rule}
}

// settle makes a Refund or a Settle.
func (l *Limiter) settle(ctx context.Context, r Request) (Settlement, error) {
	res, err := l.Decide(ctx, r, nil)
	return Settlement{Found: res.Allowed || res.Rule != "", Cost: res.Granted, Kept: res.Rule}, err
}
