// Package guard tells whether a caller still waits for a decision, and undoes what a caller
// can no longer use.
package guard

import (
	"context"
	"errors"
	"time"

	"github.com/weir-go/weir/store"
)

// Time is the time limit of Undo.
const Time = time.Second

// Undo calls undo with a context that goes on when ctx ends, and that ends after Time.
func Undo[T any](ctx context.Context, undo func(context.Context) (T, error)) error {
	_, err := within(ctx, undo)
	return err
}

func within[T any](ctx context.Context, undo func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Time)
	defer cancel()
	return undo(ctx)
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

// ErrUnsent is wrapped by the Degraded of an answer for which the store was not asked.
var ErrUnsent = errors.New("the store was not asked")

// Lost reports whether the store may have granted a request that was denied with this
// Degraded.
func Lost(degraded error) bool { return degraded != nil && !errors.Is(degraded, ErrUnsent) }

// Contextual reports whether err is the error of a context.
func Contextual(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
