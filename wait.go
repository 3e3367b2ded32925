package weir

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/guard"
)

// A Reservation is an allowed request whose tokens may be available only later: call
// Wait, then go ahead. It is safe for concurrent use, and must not be copied.
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

// Reserve consumes the tokens of r now, even if they will be available only later. If
// that is after r.MaxWait or the deadline of ctx, the error is [ErrDenied]. One of these
// bounds is needed: for any wait, set r.MaxWait to [Never]. Callers go ahead in the order
// of their reservations. If r.ID is empty, Reserve uses a random one. r.Op must be
// [Consume].
//
// After [store.ErrUnavailable], the tokens may have been consumed. If ctx ends or package
// outage denies the request, Reserve refunds them, and repeats the refund as
// [Limiter.TryAcquire] repeats a release. If r has an ID, it does not, because another
// request can use the tokens: call [Limiter.Refund].
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
		if guard.Lost(nil, res.Degraded, false) || res.Replayed { // a client or a wrapper can repeat a call
			_ = turn.giveUp(ctx, nil) // the answer is the denial, even if this fails
		}
		return nil, &DeniedError{res}
	case guard.Lost(err, nil, ctx.Err() != nil):
		return nil, turn.giveUp(ctx, cmp.Or(ctx.Err(), err))
	}
	return nil, err
}

// Wait sleeps until Delay has passed since Reserve returned. If the error is nil, go
// ahead.
//
// If ctx ends first, Wait returns the error of ctx. It refunds the tokens, unless the
// request had an ID: then call Cancel.
func (r *Reservation) Wait(ctx context.Context) error {
	if r == nil || r.limiter == nil {
		return errNoReservation
	}
	if r.state.Load() == cancelled {
		return errCancelled
	}
	err := guard.Sleep(ctx, time.Until(r.turn))
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

// Cancel refunds the reserved tokens, and reports whether anything was refunded: see
// [Limiter.Refund]. Later reservations keep their time, so the turn may stay empty.
// Cancel can be retried after an error. Afterwards, Wait returns an error.
func (r *Reservation) Cancel(ctx context.Context) (bool, error) {
	if r == nil || r.limiter == nil {
		return false, errNoReservation
	}
	r.state.Store(cancelled)
	refund := r.request
	refund.Op = Refund
	res, err := r.limiter.Decide(ctx, refund, nil)
	return res.Allowed, err
}

// giveUp cancels the reservation if Reserve chose its ID, and returns err. If Cancel
// fails, it returns both errors.
func (r *Reservation) giveUp(ctx context.Context, err error) error {
	var failed error
	switch {
	case !r.own:
	case r.turn.IsZero(): // the reply of Reserve is lost
		failed = guard.Chase(ctx, r.limiter.ruleSet.Life(&r.request), r.Cancel)
	default:
		failed = guard.Undo(ctx, r.Cancel)
	}
	if failed != nil {
		return errors.Join(err, failed)
	}
	return err
}

// Wait consumes one token from every rule, as [Limiter.WaitFor] does.
func (l *Limiter) Wait(ctx context.Context, key ...string) (Result, error) {
	return l.WaitN(ctx, 1, key...)
}

// WaitN consumes cost tokens, at least 1, from every rule, as [Limiter.WaitFor] does.
func (l *Limiter) WaitN(ctx context.Context, cost int64, key ...string) (Result, error) {
	if cost < 1 {
		return Result{}, errCost("WaitN", cost)
	}
	return l.WaitFor(ctx, Request{Key: KeyOf(key...), Cost: cost, MaxWait: Never})
}

// WaitFor consumes the tokens of r, and waits until they are available. It calls
// [Limiter.Reserve], whose rules apply to r, and then [Reservation.Wait]. So callers go
// ahead in the order of their calls.
//
// If the tokens will not be available within r.MaxWait and before the deadline of ctx, or
// a queue is full, WaitFor returns [ErrDenied] at once, and consumes nothing. If ctx ends
// during the wait, WaitFor refunds the tokens, unless r has an ID.
//
// While the key is paused, WaitFor sleeps until the pause ends, if that leaves time to
// wait, and then asks again. It can then be denied because of the deadline, and callers
// who slept go ahead in no particular order. A change of the pause has no effect before
// the sleep ends.
func (l *Limiter) WaitFor(ctx context.Context, r Request) (Result, error) {
	may := guard.NewBudget(r.MaxWait)
	for {
		turn, err := l.Reserve(ctx, r)
		if err == nil {
			if err = turn.Wait(ctx); err == nil {
				return turn.Result, nil
			}
			return Result{}, err
		}
		var denied *DeniedError
		if !errors.As(err, &denied) {
			return Result{}, err
		}
		if denied.Result.Type != PauseRule || denied.Result.Degraded != nil {
			return denied.Result, err
		}
		slept, ended := may.Pause(ctx, denied.Result.RetryAfter)
		switch {
		case !slept:
			return denied.Result, err
		case ended != nil:
			return Result{}, ended
		}
		r.MaxWait = may.Left()
	}
}
