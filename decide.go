package weir

import "context"

// Allow consumes one token from every rule, if all rules allow the request. Errors: see
// [Limiter.Decide].
func (l *Limiter) Allow(ctx context.Context, key ...string) (res Result, err error) {
	var r Request
	r.Key.set(key)
	err = l.decide(ctx, &r, nil, &res)
	return res, err
}

// AllowN consumes cost tokens from every rule, if all rules allow the request. If cost is
// below 1, the error is [ErrInvalidCost]. Other errors: see [Limiter.Decide].
func (l *Limiter) AllowN(ctx context.Context, cost int64, key ...string) (res Result, err error) {
	if cost < 1 {
		return Result{}, errCost("AllowN", cost)
	}
	r := Request{Cost: cost}
	r.Key.set(key)
	err = l.decide(ctx, &r, nil, &res)
	return res, err
}

// Peek reports whether [Limiter.Allow] would allow a request, and changes nothing.
// Remaining is the number of tokens left now, and Granted is 0. Errors: see
// [Limiter.Decide].
func (l *Limiter) Peek(ctx context.Context, key ...string) (res Result, err error) {
	r := Request{Op: Peek}
	r.Key.set(key)
	err = l.decide(ctx, &r, nil, &res)
	return res, err
}

// TakeUpTo consumes as many tokens as all rules allow, up to most. Result.Granted is the
// number of tokens consumed. If it is 0, the request is denied, and RetryAfter is the
// time until one token can be consumed. If any token is granted, a rule with a Cost
// consumes exactly its Cost.
//
// The errors are:
//   - [ErrInvalidCost] if most is below 1.
//   - [ErrUnsupported] if every rule has a Cost, or if a rule without a Cost is an
//     algorithm.Concurrency.
//   - the errors of [Limiter.Decide].
func (l *Limiter) TakeUpTo(ctx context.Context, most int64, key ...string) (res Result, err error) {
	if most < 1 {
		return Result{}, errCost("TakeUpTo", most)
	}
	r := Request{Op: TakeUpTo, Cost: most}
	r.Key.set(key)
	err = l.decide(ctx, &r, nil, &res)
	return res, err
}

// Force consumes cost tokens from every rule, even if a rule would deny the request. It
// is for work that has already happened. The result is always allowed. A rule can then be
// in debt: its Remaining is 0, and requests are denied until the debt has been refilled.
// RetryAfter is exact. A rule with a Cost consumes its Cost.
//
// A debt has a bound. For algorithm.GCRA, TokenBucket and LeakyBucket, it is at least 100
// times the limit if the limit is refilled within a year and is at most 2^45 tokens.
// docs/reference/algorithms.md has the bounds of all algorithms. If earlier debt leaves
// less than cost, Force consumes what is left, and Result.Granted is lower than cost.
//
// The errors are:
//   - [ErrInvalidCost] if cost is below 1, or above the bound.
//   - [ErrUnsupported] if a rule cannot be in debt, for example an algorithm.Concurrency.
//   - the errors of [Limiter.Decide].
func (l *Limiter) Force(ctx context.Context, cost int64, key ...string) (res Result, err error) {
	if cost < 1 {
		return Result{}, errCost("Force", cost)
	}
	r := Request{Op: Force, Cost: cost}
	r.Key.set(key)
	err = l.decide(ctx, &r, nil, &res)
	return res, err
}

// DoMany decides many requests. It decides each request like [Limiter.Decide],
// independently of the others. The answers are in the order of requests. If two requests
// have the same key, either of them can be decided first.
//
// DoMany uses the first of these ways that is possible:
//   - If a wrapper of the limiter is no [ManyDecider], DoMany decides the requests one by
//     one.
//   - If every request is a Peek, and MGet can read the state of all rules, DoMany calls
//     MGet of the store once. It also calls Time once if there is no Options.Clock.
//   - If the store is a [store.Batcher], DoMany sends all requests in one batch.
//   - Otherwise DoMany decides the requests one by one.
//
// MGet cannot read the state of algorithm.SlidingLog, Concurrency, MetadataWindow and
// Pause. MGet can read the keys of different requests at different instants. If a key
// holds a list or a sorted set, MGet treats it as missing.
//
// A batch is held in memory: pass thousands of requests at once, not millions.
func (l *Limiter) DoMany(ctx context.Context, requests []Request) []Answer {
	answers := make([]Answer, len(requests))
	if l != nil && l.bound != nil {
		DecideMany(ctx, l.outer, requests, answers)
		return answers
	}
	for i := range answers {
		answers[i].Err = errNoLimiter
	}
	return answers
}
