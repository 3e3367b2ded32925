package memory

import "time"

const (
	// anchorFor is how long a clock uses one reading of the wall clock.
	anchorFor = 100 * time.Millisecond

	// anchorError is how far the wall clock and the monotonic clock of an anchor can be apart.
	anchorError = 50 * time.Microsecond
)

// A clock reads the wall clock ten times per second. In between, it reads the monotonic
// clock, which takes half the time. If the wall clock steps, or if the machine sleeps, the
// clock follows after at most anchorFor. Each shard has a clock, so until then a call can read an
// earlier time than a call before it on other keys.
type clock struct {
	anchor time.Time
	wall   int64 // nanoseconds since the epoch at anchor
}

// micros returns the microseconds since the epoch.
func (c *clock) micros() int64 {
	d := time.Since(c.anchor)
	if d >= anchorFor {
		c.anchor = anchor(time.Now)
		c.wall, d = c.anchor.UnixNano(), 0
	}
	return (c.wall + int64(d)) / 1000
}

// anchor returns the time. A thread can be suspended for milliseconds while it reads the wall
// clock and then the monotonic clock. Readings that follow one another at once show that it
// was not suspended. On a very busy machine, anchor returns the last of several readings.
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
