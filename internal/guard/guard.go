// Package guard tells whether a caller still waits for a decision, and undoes what a caller
// can no longer use.
package guard

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/store"
)

// Time is the time limit of Undo.
const Time = time.Second

// Undo calls undo with a context that goes on when ctx ends, and that ends after Time.
func Undo[T any](ctx context.Context, undo func(context.Context) (T, error)) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Time)
	defer cancel()
	_, err := undo(ctx)
	return err
}

// MaxPending is the largest number of grants that a process undoes again at once.
const MaxPending = 1024

// delays are the times after the first undo at which Chase sends it again, at the earliest.
var delays = [...]time.Duration{time.Second, 5 * time.Second, 25 * time.Second}

// Pending is the number of grants whose undo is repeated. Dropped counts those whose undo
// was dropped, because MaxPending were pending.
var Pending, Dropped atomic.Int64

// Chase is Undo for a grant whose reply was lost, under an ID that nobody else can use. The
// grant can reach the server after its undo, and the undo can be lost too. So until undo
// reports that it found the grant, Chase repeats it in the background, but not after life.
func Chase(ctx context.Context, life time.Duration, undo func(context.Context) (bool, error)) error {
	start := time.Now()
	try := func() (found bool, err error) {
		err = Undo(ctx, func(ctx context.Context) (_ bool, err error) { found, err = undo(ctx); return })
		return found && err == nil, err
	}
	var again func(i int)
	again = func(i int) {
		if i == len(delays) || delays[i] > life {
			Pending.Add(-1)
			return
		}
		wait := delays[i] + rand.N(min(delays[i]/4, life-delays[i])+1) // so that those of one stall are spread
		time.AfterFunc(wait-time.Since(start), func() {
			if found, _ := try(); found {
				i = len(delays) - 1
			}
			again(i + 1)
		})
	}
	found, err := try()
	switch {
	case found:
	case Pending.Add(1) > MaxPending:
		Pending.Add(-1)
		Dropped.Add(1)
	default:
		again(0)
	}
	return err
}

// ErrUnsent is wrapped by the Degraded of an answer for which the store was not asked.
var ErrUnsent = errors.New("the store was not asked")

// Lost reports whether a request with this error, or a denial with this Degraded, may
// have been granted. ended reports whether its context has ended: the store's timer can
// be too early.
func Lost(err, degraded error, ended bool) bool {
	return Contextual(err) || ended && errors.Is(err, store.ErrUnavailable) || degraded != nil && !errors.Is(degraded, ErrUnsent)
}

// Ended reports whether ctx has ended, or its deadline has passed. A timer can end ctx a
// little later than that.
func Ended(ctx context.Context) bool {
	if ctx.Err() != nil {
		return true
	}
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}

// Unknown reports whether err, the error of a decision, means that the decision is unknown.
func Unknown(err error) bool { return errors.Is(err, store.ErrUnavailable) || Contextual(err) }

// Answered reports whether err, the error of a decision, is an answer of the store. So
// the store works.
func Answered(err error) bool {
	return errors.Is(err, store.ErrForeign) || errors.Is(err, store.ErrScript)
}

// Contextual reports whether err is the error of a context.
func Contextual(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
