package weir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-go/weir/store"
)

// ErrRefused says that what [Limiter.Wait] waits for cannot be had before the
// deadline.
var ErrRefused = errors.New("refused")

// refundTime bounds the refund of a wait that was cancelled.
const refundTime = time.Second

// A Reservation is a decision of [Limiter.Reserve]. If the result is Allowed, its
// tokens are taken, and it is the request's turn when Delay is over.
type Reservation struct {
	Result

	limiter *Limiter
	request Request
	taken   bool // or perhaps so
}

// Reserve decides r as [Limiter.Do] does, and also takes tokens that are there only
// later, in turn: as late as r.MaxWait or, if that is 0, without bound, and not
// after the deadline of ctx. What cannot be had by then is denied at once. Every
// rule's algorithm must be one of those of [Request].MaxWait. An empty r.ID is
// replaced by a random one.
//
// The errors are those of [Limiter.Do]. After [store.ErrUnavailable], or ctx's, tokens
// may have been taken all the same: Cancel gives them back.
func (l *Limiter) Reserve(ctx context.Context, r Request) (Reservation, error) {
	if err := ctx.Err(); err != nil {
		return Reservation{}, err
	}
	if r.MaxWait == 0 {
		r.MaxWait = Never
	}
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		if left < time.Microsecond {
			return Reservation{}, context.DeadlineExceeded
		}
		r.MaxWait = min(r.MaxWait, left)
	}
	if r.ID == "" {
		r.ID = rand.Text()
	}
	r.Path, r.Limits = slices.Clone(r.Path), slices.Clone(r.Limits)
	res, err := l.Do(ctx, r)
	lost := errors.Is(err, store.ErrUnavailable) || err != nil && ctx.Err() != nil
	return Reservation{Result: res, limiter: l, request: r, taken: res.Granted > 0 || lost}, err
}

// Cancel gives the tokens back, once, as [Limiter.Refund] does, and reports
// whether there was anything left to give. What others have reserved since keeps
// its time: only what nobody has reserved behind it can be had again, as long as
// somebody waits. It can be tried again after an error.
func (r *Reservation) Cancel(ctx context.Context) (bool, error) {
	if !r.taken {
		return false, nil
	}
	return r.limiter.refund(ctx, &r.request)
}

// Wait waits until it is the turn of one token for path: it reserves the token with
// one call of the store, and sleeps until it is there. Callers go in the order of
// their reservations. See [Limiter.WaitN].
func (l *Limiter) Wait(ctx context.Context, path ...string) (Result, error) {
	return l.WaitN(ctx, 1, path...)
}

// WaitN waits until it is the turn of cost tokens for path. If the error is nil,
// go ahead. It is [ErrRefused], at once and with nothing taken, if the tokens cannot
// be had before ctx's deadline, or because a queue is full, or ever: the result, a
// denial, tells more. If ctx is done before the turn has come, the tokens are given
// back, see [Reservation.Cancel], in at most a second more, and the error is ctx's,
// joined with that of giving back if it fails. Other errors are those of
// [Limiter.Reserve].
func (l *Limiter) WaitN(ctx context.Context, cost int64, path ...string) (Result, error) {
	r, err := l.Reserve(ctx, Request{Path: path, Cost: cost})
	switch {
	case err != nil && ctx.Err() == nil:
		return Result{}, err
	case err != nil: // what was perhaps taken is given back
	case !r.Allowed && r.RetryAfter == Never:
		return r.Result, fmt.Errorf("weir: %w: there is never room for %d tokens: a rule's limit is lower", ErrRefused, cost)
	case !r.Allowed:
		return r.Result, fmt.Errorf("weir: %w: rule %q has no room for %d tokens before the deadline, or in its queue; it would have %v later", ErrRefused, r.Rule, cost, r.RetryAfter)
	case r.Delay == 0:
		return r.Result, nil
	default:
		timer := time.NewTimer(r.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
			return r.Result, nil
		case <-ctx.Done():
		}
	}
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), refundTime)
	defer cancel()
	if _, err := r.Cancel(back); err != nil {
		return Result{}, errors.Join(ctx.Err(), err)
	}
	return Result{}, ctx.Err()
}
