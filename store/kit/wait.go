package kit

import (
	"context"
	"math/rand/v2"
	"time"
)

// Wait waits before attempt n of something that another process prevents, for example by
// a lock. n counts from 1. The wait is random, so that processes do not wait in step, and
// doubles up to most. Wait returns the error of ctx if ctx ends first.
func Wait(ctx context.Context, n int, least, most time.Duration) error {
	d := min(least<<min(n-1, 20), most)
	timer := time.NewTimer(d/2 + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
