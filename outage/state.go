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
	return b.circuit.look()
}

// look returns the state of c.
func (c *circuit) look() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.describe()
}

// describe returns the state of c, whose lock is held.
func (c *circuit) describe() State {
	o := &c.outage
	s := State{Down: c.isOpen(), Outages: o.number}
	if s.Outages == 0 {
		return s
	}
	ended, answers := o.ended, o.answers
	if s.Down {
		ended, answers = c.now(), c.answers.Load()-o.before
		o.cause = c.cause.Load()
	}
	s.Cause, s.Began = o.cause, c.born.Add(time.Duration(o.began))
	s.Lasted, s.Answers = time.Duration(ended-o.began), answers
	return s
}

// begins notes that an outage begins. The lock of c is held.
func (c *circuit) begins() {
	c.outage.number++
	c.outage.began, c.outage.before = c.first, c.before
	c.note()
}

// ends notes that an outage ends. The lock of c is held, and c is open.
func (c *circuit) ends() {
	s := c.describe()
	c.outage.ended, c.outage.answers = c.outage.began+int64(s.Lasted), s.Answers
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
		c.unlocked(func() { c.onChange(s) })
	}
}

// unlocked calls f without the lock of c, which is held.
func (c *circuit) unlocked(f func()) {
	c.mu.Unlock()
	defer c.mu.Lock()
	f()
}
