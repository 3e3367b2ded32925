package outage

import "time"

// A State says whether there is an outage, as a [Breaker] sees it.
type State struct {
	// Down is true during an outage: only probes are sent to the store.
	Down bool

	// Outages is the number of outages that have begun. If it is 0, the fields below are
	// zero.
	Outages int64

	// Cause says why the store did not decide. It is a store.ErrUnavailable, and a
	// store.ErrMisconfigured too if the outage lasts until somebody corrects a setting.
	Cause error

	// Began is the time of the first failure of the outage, or of the last outage if Down
	// is false.
	Began time.Time

	// Lasted is the time from Began until now, or until the outage ended.
	Lasted time.Duration

	// Answers is the number of requests that the fallback answered in this time.
	Answers int64
}

// State returns the state of b. If b is nil or a zero value, it returns the zero State.
func (b *Breaker) State() State {
	if b == nil {
		return State{}
	}
	c := &b.circuit
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.describe()
}

// describe returns the state of c, whose lock is held.
func (c *circuit) describe() State {
	s := c.last
	if s.Down = c.isOpen(); s.Down {
		s.Cause, s.Lasted, s.Answers = c.cause.Load(), time.Since(s.Began), c.answers.Load()-c.before
	}
	return s
}

// note puts the state of c into the queue for Options.OnChange. The lock of c is held.
func (c *circuit) note() {
	if c.onChange != nil {
		c.changes = append(c.changes, c.describe())
	}
}

// tell calls Options.OnChange for the states in the queue, one after the other, unless
// another goroutine does so. The lock of c is not held.
func (c *circuit) tell() {
	if c.onChange == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.telling {
		return
	}
	c.telling = true
	defer func() { c.telling = false }() // even if OnChange panics
	for len(c.changes) > 0 {
		s := c.changes[0]
		c.changes = c.changes[1:]
		func() {
			c.mu.Unlock()
			defer c.mu.Lock()
			c.onChange(s)
		}()
	}
}
