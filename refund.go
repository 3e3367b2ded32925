package weir

import "context"

// Refund refunds the decision that was made for r, and reports whether anything was
// refunded. It uses r.Key and r.ID, which must be those of the decision. It is
// idempotent: a second refund of a decision refunds nothing, so it can be retried
// after an error.
//
// A refund returns at most what the decision still holds, and never makes a rule fuller
// than if the request had never been made:
//   - Tokens that have already been refilled, or that belong to an expired window, are
//     not refunded.
//   - A key that was reset, evicted or deleted since the decision gets nothing.
//   - A refund by a limiter under other limits, for example another plan, finds no
//     decision, and refunds nothing.
//   - If the request started a window or a refill period, that window or period keeps
//     its end. Tokens can then return earlier than without the request, by at most its
//     length.
//
// The errors are:
//   - [ErrInvalidKey] if r.ID is empty.
//   - [ErrUnsupported] if the algorithm of a rule cannot refund, or holds leases.
//   - those of [Limiter.Decide].
func (l *Limiter) Refund(ctx context.Context, r Request) (bool, error) {
	r.Op = Refund
	res, err := l.Decide(ctx, r, nil)
	return res.Allowed, err
}

// Reset clears the rules that the full key identifies, in one step. Rules that are by
// fewer segments limit others too, and are left alone: to reset such a rule, make a
// limiter of it with [Limiter.Only]. If the limiter has no other rules, the error is
// [ErrInvalidRule].
//
// A key that holds a value that is not a limiter's is not deleted: the error is
// [store.ErrForeign], and nothing is cleared. The other errors are those of
// [Limiter.Decide].
func (l *Limiter) Reset(ctx context.Context, key ...string) error {
	_, err := l.Decide(ctx, Request{Key: KeyOf(key...), Op: Reset}, nil)
	return err
}
