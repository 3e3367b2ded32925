package memory

import "time"

// anchorFor is how long a clock uses one reading of the wall clock.
const anchorFor = 100 * time.Millisecond

// A clock reads the wall clock ten times per second. In between, it reads the monotonic
// clock, which takes half the time. If the wall clock steps, or if the machine sleeps, the
// clock follows after at most anchorFor.
type clock struct {
	anchor time.Time
	wall   int64 // nanoseconds since the epoch at anchor
}

// micros returns the microseconds since the epoch.
func (c *clock) micros() int64 {
	d := time.Since(c.anchor)
	if d >= anchorFor {
		c.anchor = time.Now()
		c.wall, d = c.anchor.UnixNano(), 0
	}
	return (c.wall + int64(d)) / 1000
}
