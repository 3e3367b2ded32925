package weir

import "context"

// A Settlement says what a [Limiter.Settle] or a [Limiter.Refund] did.
type Settlement struct {
	// Found is true if the decision was found. Otherwise nothing has changed: it was
	// denied or refunded, or no token was left to refund.
	Found bool

	// Cost is what the decision costs now, in tokens of each rule without a Cost: after a
	// Settle the actual cost, or less if a rule is too deep in debt; after a Refund the
	// most that such a rule keeps. If no rule could be adjusted, it is the earlier cost.
	Cost int64

	// Kept is the name of the first rule, if any, that may still hold tokens of the
	// decision, but returned none: its limit has changed since, or later reservations or
	// a debt depend on the tokens.
	Kept string
}

// Refund refunds all tokens that the decision with the Key and the ID of r consumed. It
// is idempotent, so it can be retried after an error. It ends the ID: if the request is
// sent again, it makes a new decision. To refund a part, use [Limiter.Settle].
//
// A refund never leaves more tokens in a rule than if the request had not been made. So
// it does not return tokens that have been refilled, or whose window has expired, and
// nothing to a key that was reset, evicted or deleted after the decision. An
// algorithm.GCRA, TokenBucket or LeakyBucket can refund less if it made other decisions
// for the key in between.
//
// A rule may keep its tokens until they are refilled, as [Settlement].Kept says. If one
// does, and no rule returns any, nothing changes: Cost is the earlier cost, the ID stays,
// and a repeat consumes nothing. docs/guide/production.md has the conditions, and
// docs/reference/algorithms.md three exceptions to the bound.
//
// r.Cost must be 0, or at least the Cost of the decision. Other fields of r are ignored.
func (l *Limiter) Refund(ctx context.Context, r Request) (Settlement, error) {
	r.Op = Refund
	return l.settlement(ctx, r)
}

// Settle makes actual the cost of the decision with the Key and the ID of r, after the
// work has been done. actual can be 0. If the decision consumed more, Settle refunds the
// difference, as far as [Limiter.Refund] can. If it consumed less, Settle consumes the
// difference even past the limit, as [Limiter.Force] does. A rule with a Cost keeps it.
//
// Check that the [Settlement] has Found and the Cost actual. If the decision was not
// found, and had consumed less than actual, use Force for the difference.
//
// Settle can be retried after an error. The ID stays, so the decision can be settled
// again, or refunded. If a Settle has consumed a difference, a later Settle or Refund may
// return only that difference, although its Settlement has the Cost asked for. The window
// of an algorithm.FixedWindow, Calendar or SlidingCounter returns all.
//
// If the limiter lacks a rule of the decision, that rule's tokens stay consumed. The Granted
// of a repeated decision is then the cost of one of its rules.
//
// One rule must have no Cost, and each must support both Refund and Force.
func (l *Limiter) Settle(ctx context.Context, r Request, actual int64) (Settlement, error) {
	r.Op, r.Actual = Settle, ActualCost(actual)
	return l.settlement(ctx, r)
}

// settlement makes a Refund or a Settle.
func (l *Limiter) settlement(ctx context.Context, r Request) (Settlement, error) {
	res, err := l.Decide(ctx, r, nil)
	return Settlement{Found: res.Allowed || res.Rule != "", Cost: res.Granted, Kept: res.Rule}, err
}

// Reset clears the rules identified by the full key, atomically. To clear one with fewer
// segments in By, which other keys share, select it with [Limiter.Only]. The error is
// [ErrInvalidRule] if no rule is identified by the full key.
func (l *Limiter) Reset(ctx context.Context, key ...string) error {
	_, err := l.Decide(ctx, Request{Key: KeyOf(key...), Op: Reset}, nil)
	return err
}
