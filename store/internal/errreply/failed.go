package errreply

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/store"
)

// Failed returns the error of a call for err, which comes from the client of a store. call
// names the store and the call. It is the error of ctx if ctx is done, and otherwise what
// meaning returns for err. If that is nil, err itself says what it means.
func Failed(ctx context.Context, call string, err error, meaning func(error) error) error {
	done := Ended(ctx)
	switch {
	case done != nil && errors.Is(err, done):
		return fmt.Errorf("%s: %w", call, err)
	case done != nil:
		return fmt.Errorf("%s: %w: %w", call, done, err)
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		// A timeout of the client has passed, for example of a dial, not the caller's
		// deadline.
		return fmt.Errorf("%s: %w: %v", call, store.ErrUnavailable, err)
	}
	if means := meaning(err); means != nil {
		return fmt.Errorf("%s: %w: %w", call, means, err)
	}
	return fmt.Errorf("%s: %w", call, err)
}

// Ended returns the error of ctx. If the deadline has passed, it returns
// DeadlineExceeded, even if ctx has no error yet: the timer of the client can fire before
// the timer of ctx.
func Ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}
