package weir

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/weir-go/weir/internal/sleep"
	"github.com/weir-go/weir/store"
)

// refundTime is the time limit of a refund after a cancelled wait, and of a release after
// a cancelled acquire.
const refundTime = time.Second

// A Reservation is an allowed request, whose tokens may be available only later. Sleep
// for Delay, then go ahead. [Limiter.Reserve] returns one. Cancel of a nil or zero
// Reservation returns an error.
type Reservation struct {
	Result // the answer to the request

	limiter *Limiter
	request Request
}

// Reserve consumes the tokens of r now, even if they will be available only later. They
// must be available within r.MaxWait and before the deadline of ctx, otherwise the
// request is denied. Callers go ahead in the order of their reservations. If ctx has a
// deadline, r.MaxWait can be 0: then only the deadline limits the wait. If any wait is
// acceptable, set r.MaxWait to [Never]. If r.ID is empty, Reserve uses a random ID. The
// algorithm of every rule must support [Request].MaxWait.
//
// The errors are:
//   - [ErrDenied] if the request is denied.
//   - [ErrUnsupported] if r.Op is not Consume.
//   - another error if r.MaxWait is 0 and ctx has no deadline.
//   - the errors of [Limiter.Decide].
//
// If Reserve returns an error, the Reservation is nil and nothing was consumed, with three
// exceptions, in which the tokens are or may be consumed. The Reservation is then not nil:
// its Delay is Never, and its Cancel refunds the tokens.
//   - The store returned [store.ErrUnavailable], or ctx ended during the call.
//   - [Limiter.OnOutage] denied the request.
//   - The request repeats a reservation whose tokens will not be available in time.
func (l *Limiter) Reserve(ctx context.Context, r Request) (*Reservation, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if r.Op != Consume {
		return nil, fail(ErrUnsupported, "Reserve: Request.Op is %v: it must be Consume", r.Op)
	}
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		if left < time.Microsecond {
			return nil, context.DeadlineExceeded
		}
		if r.MaxWait == 0 || r.MaxWait > left {
			r.MaxWait = left
		}
	} else if r.MaxWait == 0 {
		return nil, errors.New("weir: Reserve: Request.MaxWait is 0 and the context has no deadline: set MaxWait, for example to weir.Never")
	}
	if r.ID == "" {
		r.ID = rand.Text()
	}
	res, err := l.Decide(ctx, r, nil)
	switch {
	case err != nil && (errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil):
		return &Reservation{Result: Result{Delay: Never}, limiter: l, request: r}, err
	case err != nil:
		return nil, err
	case !res.Allowed && res.Degraded == nil && !res.Replayed:
		return nil, &DeniedError{res}
	case !res.Allowed:
		return &Reservation{Result: res, limiter: l, request: r}, &DeniedError{res}
	}
	return &Reservation{Result: res, limiter: l, request: r}, nil
}

// Cancel refunds the reserved tokens, and reports whether anything was refunded. See
// [Limiter.Refund]. Later reservations keep their time, so tokens that they depend on
// are not refunded. Cancel is idempotent: it can be retried after an error.
func (r *Reservation) Cancel(ctx context.Context) (bool, error) {
	if r == nil || r.limiter == nil {
		return false, errNoReservation
	}
	return r.limiter.Refund(ctx, r.request)
}

// giveUp is Cancel. It goes on if ctx ends, and takes at most refundTime.
func (r *Reservation) giveUp(ctx context.Context) error {
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), refundTime)
	defer cancel()
	_, err := r.Cancel(back)
	return err
}

// Wait consumes one token from every rule, and waits until these tokens are available.
// It is short for [Limiter.WaitN] with cost 1.
func (l *Limiter) Wait(ctx context.Context, key ...string) (Result, error) {
	return l.WaitN(ctx, 1, key...)
}

// WaitN consumes cost tokens from every rule, and waits until they are available. It
// reserves the tokens with one call of the store, and then sleeps. Callers go ahead in
// the order of their reservations. If the error is nil, go ahead.
//
// If the tokens cannot be available before the deadline of ctx, WaitN returns
// [ErrDenied] at once, and consumes nothing. The Result says why the request was
// denied. If ctx ends during the wait, or if [Limiter.OnOutage] denies the request, the tokens may
// be reserved. WaitN then refunds them, which takes at most one second: see [Reservation.Cancel].
//
// The errors are:
//   - [ErrDenied] if the tokens will not be available in time, or never, or if the
//     queue of an algorithm.LeakyBucket is full.
//   - the error of ctx if ctx ends. If the refund fails, the error is both errors,
//     joined with [errors.Join].
//   - [ErrInvalidCost] if cost is below 1.
//   - the errors of [Limiter.Reserve]. After [store.ErrUnavailable], the tokens may have been
//     consumed.
func (l *Limiter) WaitN(ctx context.Context, cost int64, key ...string) (Result, error) {
	if cost < 1 {
		return Result{}, errCost("WaitN", cost)
	}
	r, err := l.Reserve(ctx, Request{Key: KeyOf(key...), Cost: cost, MaxWait: Never})
	var denied *DeniedError
	switch {
	case errors.As(err, &denied):
		if r != nil { // the store may have reserved the tokens, for nobody else
			_ = r.giveUp(ctx)
		}
		return denied.Result, err
	case r == nil || err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded):
		return Result{}, err
	case err == nil:
		if err = sleep.For(ctx, r.Delay); err == nil {
			return r.Result, nil
		}
	case ctx.Err() != nil:
		err = ctx.Err()
	}
	if failed := r.giveUp(ctx); failed != nil {
		return Result{}, errors.Join(err, failed)
	}
	return Result{}, err
}
