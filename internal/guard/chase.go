package guard

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// MaxPending is the largest number of grants that Chase undoes again, in a process.
const MaxPending = 1024

// delays are the times after the first undo at which Chase sends it again, at the
// earliest.
var delays = [...]time.Duration{time.Second, 5 * time.Second, 25 * time.Second}

var pending, dropped atomic.Int64

// Dropped returns how many grants Chase did not undo again, because MaxPending others
// were pending.
func Dropped() int64 { return dropped.Load() }

// A chase undoes a grant until it is found.
type chase struct {
	ctx   context.Context
	undo  func(context.Context) (bool, error)
	start time.Time
	life  time.Duration
}

// Chase is Undo for a grant whose reply was lost, and which nobody can use, because this
// process made its ID. The grant can reach the server after its undo, and the undo can be
// lost too. So Chase repeats undo in the background until it reports that it found the
// grant, but not later than life: by then, the grant has ended.
func Chase(ctx context.Context, life time.Duration, undo func(context.Context) (bool, error)) error {
	c := &chase{ctx, undo, time.Now(), life}
	found, err := within(ctx, undo)
	switch {
	case found && err == nil, life < delays[0]:
	case pending.Add(1) > MaxPending:
		pending.Add(-1)
		dropped.Add(1)
	default:
		c.again(0)
	}
	return err
}

// again starts the timer for repetition i, or ends c.
func (c *chase) again(i int) {
	if i == len(delays) || delays[i] > c.life {
		pending.Add(-1)
		return
	}
	wait := delays[i] + rand.N(min(delays[i]/4, c.life-delays[i])+1) // so that those of one stall are spread
	time.AfterFunc(wait-time.Since(c.start), func() {
		if found, err := within(c.ctx, c.undo); found && err == nil {
			i = len(delays) - 1
		}
		c.again(i + 1)
	})
}
