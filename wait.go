package weir

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/guard"
	"github.com/weir-go/weir/internal/sleep"
	"github.com/weir-go/weir/store"
)

// A Reservation is an allowed request, whose tokens may be available only later. Call Wait,
// then go ahead. [Limiter.Reserve] returns one. It is for one request. It is safe for concurrent
// use, and must not be copied. Wait and Cancel of a nil or zero Reservation return an error.
type Reservation struct {
	Result // the answer to the request

	limiter *Limiter
	request Request
	own     bool      // Reserve made the ID, so nobody else can use the tokens
	turn    time.Time // when the tokens are available
	state   atomic.Int32
}

// The states of a Reservation.
const (
	pending   int32 = iota
	gone            // a Wait has returned nil
	cancelled       // Cancel was called, or a Wait has refunded the tokens
)

var errCancelled = errors.New("weir: the reservation was cancelled, or its context ended during Wait: make another one with Limiter.Reserve")
var errNoReservation = errors.New("weir: the Reservation is nil or a zero value: Limiter.Reserve returns one")

// Reserve consumes the tokens of r now, even if they will be available only later. They
// must be available within r.MaxWait and before the deadline of ctx, otherwise the
// request is denied. Callers go ahead in the order of their reservations. If ctx has a
// deadline, r.MaxWait can be 0: then only the deadline limits the wait. If any wait is
// acceptable, set r.MaxWait to [Never]. If r.ID is empty, Reserve uses a random ID. The
// algorithm of every rule must support [Request].MaxWait.
//
// If Reserve returns an error, the Reservation is nil. The errors are:
//   - [ErrDenied] if the request is denied.
//   - [ErrUnsupported] if r.Op is not Consume.
//   - another error if r.MaxWait is 0 and ctx has no deadline.
//   - the error of ctx if ctx ends before the answer arrives.
//   - the errors of [Limiter.Decide]. After [store.ErrUnavailable], the tokens may have been
//     consumed. To be able to refund them, set r.ID.
//
// If ctx ends before the answer arrives, or if package outage denies the request, the store
// may have reserved the tokens. If r.ID is empty, Reserve then tries to refund them, which takes
// at most one second. If that fails after ctx has ended, the error joins both errors with
// [errors.Join]. If r has an ID, another request can use the tokens, so Reserve does not refund
// them. To refund them, call [Limiter.Refund] with r.
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
	own := r.ID == ""
	if own {
		r.ID = rand.Text()
	}
	turn := &Reservation{limiter: l, request: r, own: own}
	res, err := l.Decide(ctx, r, nil)
	switch {
	case err == nil && res.Allowed:
		turn.Result, turn.turn = res, time.Now().Add(res.Delay)
		return turn, nil
	case err == nil:
		if res.Degraded != nil || res.Replayed { // a client or a wrapper can repeat a call
			_ = turn.giveUp(ctx, nil) // the answer is the denial, even if this fails
		}
		return nil, &DeniedError{res}
	case guard.Contextual(err), errors.Is(err, store.ErrUnavailable) && ctx.Err() != nil:
		// The timer of the store can be earlier than the timer of ctx.
		return nil, turn.giveUp(ctx, cmp.Or(ctx.Err(), err))
	}
	return nil, err
}

// Wait sleeps until Delay has passed since Reserve returned. If the error is nil, go ahead:
// the tokens are available. If they are available at once, ctx makes no difference.
//
// If ctx ends before the tokens are available, Wait returns the error of ctx. If the request had
// no ID, Wait also tries to refund the tokens, which takes at most one second. If that fails,
// the error joins both errors with [errors.Join]. If the request had an ID, another request can
// use the tokens: call Cancel to refund them.
//
// If the reservation was cancelled, by Cancel or by another Wait, Wait returns another error.
// Cancel does not wake a Wait that sleeps.
func (r *Reservation) Wait(ctx context.Context) error {
	if r == nil || r.limiter == nil {
		return errNoReservation
	}
	if r.state.Load() == cancelled {
		return errCancelled
	}
	err := sleep.For(ctx, time.Until(r.turn))
	switch {
	case err != nil && r.own && r.state.CompareAndSwap(pending, cancelled):
		return r.giveUp(ctx, err)
	case err != nil: // another Wait went ahead, or refunded the tokens, or another request can use them
		return err
	case r.state.CompareAndSwap(pending, gone), r.state.Load() == gone:
		return nil
	}
	return errCancelled
}

// Cancel refunds the reserved tokens, and reports whether anything was refunded. See
// [Limiter.Refund]. Later reservations keep their time, so tokens that they depend on
// are not refunded, and turns in the middle stay empty. Cancel is idempotent: it can be
// retried after an error. After Cancel, Wait returns an error, even if the refund failed.
func (r *Reservation) Cancel(ctx context.Context) (bool, error) {
	if r == nil || r.limiter == nil {
		return false, errNoReservation
	}
	r.state.Store(cancelled)
	s, err := r.limiter.Refund(ctx, r.request)
	return s.Found, err
}

// giveUp cancels the reservation if Reserve chose its ID, and returns err. If Cancel fails, it
// returns both errors.
func (r *Reservation) giveUp(ctx context.Context, err error) error {
	if r.own {
		if failed := guard.Undo(ctx, r.Cancel); failed != nil {
			return errors.Join(err, failed)
		}
	}
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
// denied. If ctx ends during the wait, or if package outage denies the request, the tokens may
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
	if err == nil {
		err = r.Wait(ctx)
	}
	var denied *DeniedError
	switch {
	case err == nil:
		return r.Result, nil
	case errors.As(err, &denied):
		return denied.Result, err
	}
	return Result{}, err
}
