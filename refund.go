package weir

import "context"

// Refund refunds the tokens that a decision consumed, and reports whether anything was
// refunded. r.Key and r.ID must be the Key and the ID of the decision. Refund is
// idempotent: a second refund of a decision refunds nothing, so it can be retried after an
// error.
//
// A refund ends the ID: if the decision's request is sent again, it makes a new decision.
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
//   - A limiter with other limits, for example of another plan, refunds nothing.
//   - An algorithm.GCRA or TokenBucket can refund fewer tokens than were consumed, if
//     several decisions for a key are open at once, and are not refunded in reverse order.
//     Other algorithms except LeakyBucket refund all of them.
//
// There are two exceptions:
//   - If the refunded request started a window or a refill period, that window or period still
//     ends at the same time. Without the request, it would have started later. So tokens can be
//     available earlier than without the request, by at most the length of the window or period.
//   - If a limiter with other limits decided for the key after the decision, an
//     algorithm.TokenBucket or SlidingCounter can refund tokens that have been refilled already,
//     at most those of the decision.
//
// The errors are:
//   - [ErrInvalidKey] if r.ID is empty.
//   - [ErrInvalidCost] if r.Cost is not 0, and lower than what the decision asked for.
//     Nothing is refunded.
//   - [ErrUnsupported] if the algorithm of a rule cannot refund, or holds leases.
//   - the errors of [Limiter.Decide].
func (l *Limiter) Refund(ctx context.Context, r Request) (bool, error) {
	r.Op = Refund
	res, err := l.Decide(ctx, r, nil)
	return res.Allowed, err
}

// Settle makes actual the cost of a decision, after the work has been done, and reports whether
// the decision was found. r.Key and r.ID must be the Key and the ID of the decision. Settle
// ignores the other fields of r. actual can be 0.
//
// If the decision consumed more than actual, Settle refunds the difference, under the conditions
// of [Limiter.Refund]. If it consumed less, Settle consumes the difference, also past the limit:
// see [Limiter.Force]. A rule with a Cost keeps it.
//
// Settle is idempotent, so it can be retried after an error. The ID stays: a repeat of the
// decision is still recognized, and the decision can be settled again with another cost, or
// refunded. After a Settle to more, it is often unknown which of the earlier tokens have been
// refilled. A later Settle or Refund then returns only tokens that this Settle added.
//
// If Settle returns false, nothing has changed. The decision was denied or refunded, or all its
// tokens have been refilled. If actual is above the cost, use [Limiter.Force] for the difference.
//
// The errors are:
//   - [ErrInvalidKey] if r.ID is empty.
//   - [ErrInvalidCost] if actual is negative, or above the bound of [Limiter.Force].
//   - [ErrUnsupported] if the algorithm of a rule cannot refund, cannot be in debt, or holds
//     leases, or if every rule has a Cost.
//   - the errors of [Limiter.Decide].
func (l *Limiter) Settle(ctx context.Context, r Request, actual int64) (bool, error) {
	r.Op, r.Actual = Settle, ActualCost(actual)
	res, err := l.Decide(ctx, r, nil)
	return res.Allowed, err
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
