package memory

import (
	"fmt"
	"sync/atomic"
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
// the clock follows after at most anchorFor.
type clock struct {
	now func() time.Time       // Options.Now; nil means the system clock
	at  atomic.Pointer[anchor] // never nil
}

// An anchor is a reading of the wall clock.
type anchor struct {
	time time.Time
	wall int64 // nanoseconds since the epoch at time
}

// micros returns the microseconds since the epoch. The caller holds the locks of the
// shards that it reads at that time. So a call reads an earlier time than a previous call
// on the same key only if the wall clock stepped back between two anchors.
func (c *clock) micros() (int64, error) {
	var now int64
	if c.now == nil {
		a := c.at.Load()
		d := time.Since(a.time)
		if d >= anchorFor {
			a, d = c.renew(a)
		}
		now = (a.wall + int64(d)) / 1000
	} else {
		now = c.now().UnixMicro()
	}
	if now < 1 || now >= maxNow {
		return now, errClock(now)
	}
	return now, nil
}

// renew replaces old, and returns the anchor that is in use then, with the time since. Of
// several calls, one sets the anchor for all.
func (c *clock) renew(old *anchor) (*anchor, time.Duration) {
	t := reading(time.Now)
	c.at.CompareAndSwap(old, &anchor{t, t.UnixNano()})
	a := c.at.Load()
	return a, time.Since(a.time)
}

func errClock(now int64) error {
	return fmt.Errorf("%w: the clock reads %v: it must read later than 1970 and earlier than 2112", store.ErrUnavailable, time.UnixMicro(now))
}

// reading returns the time. A thread can be suspended for milliseconds while it reads the
// wall clock and then the monotonic clock. Readings that follow one another at once show
// that it was not suspended. On a very busy machine, reading returns the last of several
// readings.
func reading(now func() time.Time) time.Time {
	t := now()
	for range 10 {
		before := t
		if t = now(); t.Sub(before) <= anchorError {
			break
		}
	}
	return t
}
