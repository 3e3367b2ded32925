package patterns

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/weir-go/weir/algorithm/rediscell"
	"github.com/weir-go/weir/store"
)

// Throttle makes the decision of redis-cell's command CL.THROTTLE user123 15 30 60. If a call
// is denied, it prints the headers of an HTTP response.
func Throttle(ctx context.Context, w io.Writer, st store.Store) error {
	clock, opts := virtual()

	throttler, err := rediscell.New("requests", st, opts)
	if err != nil {
		return err
	}

	for _, call := range []struct {
		at       time.Duration
		quantity int64
	}{
		{0, 1}, {0, 15}, {0, 1}, {1500 * time.Millisecond, 0}, {2 * time.Second, 1}, {3 * time.Second, 17},
	} {
		clock.at(call.at)
		t, err := throttler.Throttle(ctx, "user123", 15, 30, time.Minute, call.quantity)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "at %v, quantity %d: %d\n", call.at, call.quantity, t.Numbers())
		if t.Limited {
			fmt.Fprintf(w, "  X-RateLimit-Limit: %d\n  X-RateLimit-Remaining: %d\n  X-RateLimit-Reset: %d\n", t.Limit, t.Remaining, t.ResetAfter)
			if t.RetryAfter >= 0 {
				fmt.Fprintf(w, "  Retry-After: %d\n", t.RetryAfter)
			}
		}
	}
	return nil
}
