package guard

import (
	"context"
	"math"
	"time"
)

// Sleep sleeps for d. If ctx ends before, it returns the error of ctx.
func Sleep(ctx context.Context, d time.Duration) error {
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

// A Budget is the time for which a request may wait in all.
type Budget struct {
	Until   time.Time // not used if Endless
	Endless bool      // only the context ends the wait
	Jitter  float64   // from 0, below 1: of a tenth of a pause, how much a sleep is longer
}

// NewBudget returns the Budget of a request with this MaxWait. 0 means no end.
func NewBudget(maxWait time.Duration) Budget {
	return Budget{Until: time.Now().Add(maxWait), Endless: maxWait == 0 || maxWait == math.MaxInt64}
}

// Left returns the MaxWait that is left. It is at least 1 µs: a MaxWait of 0 has another
// meaning.
func (b *Budget) Left() time.Duration {
	if b.Endless {
		return math.MaxInt64
	}
	return max(time.Until(b.Until), time.Microsecond)
}

// Pause sleeps until the end of a pause that lasts for d. If d is 0, or the request may
// not wait longer than d, Pause returns false at once. The error is that of ctx.
func (b *Budget) Pause(ctx context.Context, d time.Duration) (bool, error) {
	left := b.Left()
	if deadline, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(deadline))
	}
	if d <= 0 || d >= left {
		return false, nil
	}
	return true, Sleep(ctx, d+time.Duration(b.Jitter*float64(min(d/10, left-d))))
}
