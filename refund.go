package weir

import "context"

// A Settlement says what a [Limiter.Settle] or a [Limiter.Refund] did.
type Settlement struct {
	// Found is true if the decision was found. If it is false, nothing has changed: the
	// decision was denied or refunded, or all its tokens have been refilled. For a Refund,
	// it is also false if no token was left to refund, for example after a Reset.
	Found bool

	// Cost is what the decision costs now, in tokens of each rule without a Cost. After a
	// Settle it is the actual cost, unless a rule has reached its largest debt, which
	// [Limiter.Force] explains, or no rule could be adjusted. After a Refund it is 0,
	// unless no rule could be adjusted.
	Cost int64

	// Kept is the name of the first rule, in the order of Policy.Rules, that could not be
	// adjusted because its limit has changed since the decision. That rule keeps what it
	// had consumed. Kept is empty if there is no such rule.
	Kept string
}

// Refund refunds the tokens that a decision consumed. r.Key and r.ID must be the Key and the
// ID of the decision. Refund is idempotent: a second refund of a decision refunds nothing, so
// it can be retried after an error.
//
// A refund ends the ID for the rules of this limiter: if the decision's request is sent again,
// it makes a new decision.
//
// Refund always refunds the whole decision. So r.Cost must be 0, or at least what the decision
// asked for, or consumed as a TakeUpTo. If the actual cost is smaller, use [Limiter.Settle]. Refund
// ignores the other fields of r.
//
// A refund never leaves more tokens in a rule than if the request had not been made:
//   - Tokens that have already been refilled, or that belong to an expired window, are
//     not refunded.
//   - If a key was reset, evicted or deleted after the decision, nothing is refunded to
//     that key.
//   - An algorithm.GCRA or TokenBucket can refund fewer tokens than were consumed, if
//     several decisions for a key are open at once, and are not refunded in reverse order,
//     or if several have been refunded before. Other algorithms except LeakyBucket refund
//     all of them.
//
// There are these exceptions:
//   - If the refunded request started a window or a refill period, that window or period still
//     ends at the same time. Without the request, it would have started later. So tokens can be
//     available earlier than without the request, by at most the length of the window or period.
//   - If a limiter with other limits decided for the key after the decision, an
//     algorithm.TokenBucket or SlidingCounter can refund tokens that have been refilled already,
//     at most those of the decision.
//   - If the clock has stepped back since the decision, tokens that had been refilled before
//     the step can be refunded, at most those of the decision.
//
// The limits may have changed since the decision, for example because the caller has
// another plan, or because a process with other limits decided. An algorithm.FixedWindow,
// Calendar or SlidingLog can be adjusted under every limit. A GCRA or LeakyBucket can be
// adjusted if its Rate is the same, a TokenBucket if its Refill and AtOnce are the same, a
// SlidingCounter if its Window is the same, and a SlidingBuckets if its Width and its
// longest Window are the same. A rule cannot be adjusted if it had a Cost and has none
// now, or the reverse. If no rule can be adjusted, nothing changes, and the ID stays.
// Otherwise a rule that cannot be adjusted keeps its tokens until they are refilled,
// because the refund ends the ID. A limiter that cannot adjust a TokenBucket or
// SlidingCounter can find its decision for a second after it has ended, and with
// Options.Clock for an hour.
//
// The errors are:
//   - [ErrInvalidKey] if r.ID is empty.
//   - [ErrInvalidCost] if r.Cost is not 0, and lower than what the decision asked for.
//     Nothing is refunded.
//   - [ErrUnsupported] if the algorithm of a rule cannot refund, or holds leases.
//   - the errors of [Limiter.Decide].
func (l *Limiter) Refund(ctx context.Context, r Request) (Settlement, error) {
	r.Op = Refund
	return l.settlement(ctx, r)
}

// Settle makes actual the cost of a decision, after the work has been done. r.Key and r.ID must
// be the Key and the ID of the decision. Settle ignores the other fields of r. actual can be 0.
//
// If the decision consumed more than actual, Settle refunds the difference, under the conditions
// of [Limiter.Refund]. If it consumed less, Settle consumes the difference, even past the limit:
// see [Limiter.Force]. A rule with a Cost keeps it. A rule that was added after the decision, or
// that has refilled its tokens, consumes only the difference to the cost that the other rules know.
//
// Check Found, and that the Cost of the Settlement is actual. If Cost is another, a rule would
// be too deep in debt, or no rule could be adjusted. If the decision was not found and
// actual is above the cost, use [Limiter.Force] for the difference.
//
// Settle is idempotent, so it can be retried after an error. The ID stays: a repeat of the
// decision is still recognized, and the decision can be settled again with another cost, or
// refunded. After a Settle to more, it is often unknown which of the earlier tokens have been
// refilled. A later Settle or Refund then returns only tokens that this Settle added, although
// its Settlement has the Cost that was asked for. A further Settle to more consumes the
// difference to that Cost.
//
// The errors are:
//   - [ErrInvalidKey] if r.ID is empty.
//   - [ErrInvalidCost] if actual is negative, or above the bound of [Limiter.Force].
//   - [ErrUnsupported] if the algorithm of a rule cannot refund, cannot be in debt, or holds
//     leases, or if every rule has a Cost.
//   - the errors of [Limiter.Decide].
func (l *Limiter) Settle(ctx context.Context, r Request, actual int64) (Settlement, error) {
	r.Op, r.Actual = Settle, ActualCost(actual)
	return l.settlement(ctx, r)
}

// settlement makes a Refund or a Settle.
func (l *Limiter) settlement(ctx context.Context, r Request) (Settlement, error) {
	res, err := l.Decide(ctx, r, nil)
	return Settlement{Found: res.Allowed || res.Rule != "", Cost: res.Granted, Kept: res.Rule}, err
}

// Reset clears the rules identified by the full key, atomically. It does not clear a rule
// with fewer segments in By, because other keys share its limit. To reset such a rule,
// select it with [Limiter.Only].
//
// The errors are:
//   - [ErrInvalidRule] if no rule is identified by the full key.
//   - [store.ErrForeign] if a key holds a value that no limiter wrote. Nothing is
//     cleared.
//   - the errors of [Limiter.Decide].
func (l *Limiter) Reset(ctx context.Context, key ...string) error {
	_, err := l.Decide(ctx, Request{Key: KeyOf(key...), Op: Reset}, nil)
	return err
}
