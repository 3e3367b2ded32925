package memory

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/store"
)

const (
	// anchorFor is how long a clock uses one reading of the wall clock.
	anchorFor = 100 * time.Millisecond

	// anchorError is how far the wall clock and the monotonic clock of an anchor can be
	// apart.
	anchorError = 50 * time.Microsecond
)

// A clock reads the wall clock ten times per second. In between, it reads the monotonic
// clock, which takes half the time. If the wall clock steps, or if the machine sleeps,
// the clock follows after at most anchorFor. Each shard has a clock, so until then a call
// can read an earlier time than a call before it on other keys.
type clock struct {
	now    func() time.Time // Options.Now; nil means the system clock
	anchor time.Time
	wall   int64 // nanoseconds since the epoch at anchor
}

// micros returns the microseconds since the epoch. The caller holds the lock of the
// shard.
func (c *clock) micros() (int64, error) {
	var now int64
	if c.now == nil {
		d := time.Since(c.anchor)
		if d >= anchorFor {
			c.anchor = anchor(time.Now)
			c.wall, d = c.anchor.UnixNano(), 0
		}
		now = (c.wall + int64(d)) / 1000
	} else {
		now = c.now().UnixMicro()
	}
	if now < 1 || now >= maxNow {
		return now, errClock(now)
	}
	return now, nil
}

func errClock(now int64) error {
	return fmt.Errorf("%w: the clock reads %v: it must read later than 1970 and earlier than 2112", store.ErrUnavailable, time.UnixMicro(now))
}

// anchor returns the time. A thread can be suspended for milliseconds while it reads the
// wall clock and then the monotonic clock. Readings that follow one another at once show
// that it was not suspended. On a very busy machine, anchor returns the last of several
// readings.
func anchor(now func() time.Time) time.Time {
	t := now()
	for range 10 {
		before := t
		if t = now(); t.Sub(before) <= anchorError {
			break
		}
	}
	return t
}
