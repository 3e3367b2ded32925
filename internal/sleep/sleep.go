// Package sleep sleeps until a context ends.
package sleep

import (
	"context"
	"time"
)

// For sleeps for d. If ctx ends before, it returns the error of ctx.
func For(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		select {
		case <-timer.C: // ctx did not end before
			return nil
		default:
			return ctx.Err()
		}
	}
}
