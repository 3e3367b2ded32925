package weir

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/weir-go/weir/store"
)

// refundTime bounds the refund of a wait, and the release of a lease, that was
// cancelled.
const refundTime = time.Second

// A Reservation is a request that was allowed, now or later: sleep for Delay, then go
// ahead. [Limiter.Reserve] returns one.
type Reservation struct {
	Result

	limiter *Limiter
	request Request
}

// Reserve consumes the tokens of r, also tokens that will be there only later, at most
// r.MaxWait from now, and not after the deadline of ctx. Callers go in the order of their
// reservations. r.MaxWait can be 0 if ctx has a deadline, and [Never] if any time will do.
// If r.ID is empty, it is replaced by a random one. The algorithms of all rules must be
// among those of [Request].MaxWait.
//
// A denied request is an error, [ErrDenied], and there is no Reservation. The other
// errors are those of [Limiter.Decide], and one without a name if neither r.MaxWait nor
// ctx bounds the time. After [store.ErrUnavailable] or an error of ctx, the tokens may
// have been consumed: a Reservation, whose Delay is Never, then comes with the error, so
// that Cancel can refund them.
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
		return nil, errors.New("weir: Reserve: Request.MaxWait is 0 and the context has no deadline: set how far ahead to reserve, or weir.Never")
	}
	if r.ID == "" {
		r.ID = rand.Text()
	}
	res, err := l.Decide(ctx, r, nil)
	switch {
	case err != nil && (errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil):
		return &Reservation{Result: Result{Delay: Never}, limiter: l, request: r}, err
	case err != nil:
		return nil, err
	case !res.Allowed:
		return nil, &DeniedError{res}
	}
	return &Reservation{Result: res, limiter: l, request: r}, nil
}

// Cancel refunds the reserved tokens once, as [Limiter.Refund] does, and reports whether
// anything was refunded. Later reservations keep their time, so tokens that they depend
// on are not refunded. It can be retried after an error.
func (r *Reservation) Cancel(ctx context.Context) (bool, error) {
	if r == nil || r.limiter == nil {
		return false, errNoReservation
	}
	return r.limiter.Refund(ctx, r.request)
}

// Wait waits for its turn to consume one token: it reserves the token with one call of
// the store, and sleeps until the token is there. See [Limiter.WaitN].
func (l *Limiter) Wait(ctx context.Context, key ...string) (Result, error) {
	return l.WaitN(ctx, 1, key...)
}

// WaitN waits for its turn to consume cost tokens. Callers go in the order of their
// reservations. If the error is nil, go ahead.
//
// If the tokens will not be there before the deadline of ctx, because a queue is full,
// or ever, the error is [ErrDenied], at once. Nothing was consumed, and the Result is the
// denial. If ctx ends during the wait, the tokens are refunded, see [Reservation.Cancel],
// within one second, and the error is that of ctx, joined with that of the refund if it
// fails. A cost below 1 is [ErrInvalidCost]. The other errors are those of
// [Limiter.Reserve].
func (l *Limiter) WaitN(ctx context.Context, cost int64, key ...string) (Result, error) {
	if cost < 1 {
		return Result{}, errCost("WaitN", cost)
	}
	r, err := l.Reserve(ctx, Request{Key: KeyOf(key...), Cost: cost, MaxWait: Never})
	var denied *DeniedError
	switch {
	case errors.As(err, &denied):
		return denied.Result, err
	case r == nil || err != nil && ctx.Err() == nil:
		return Result{}, err
	case err == nil:
		if sleep(ctx, r.Delay) == nil {
			return r.Result, nil
		}
	}
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), refundTime)
	defer cancel()
	if _, err := r.Cancel(back); err != nil {
		return Result{}, errors.Join(ctx.Err(), err)
	}
	return Result{}, ctx.Err()
}

// sleep sleeps for d, and returns the error of ctx if that ends before.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
