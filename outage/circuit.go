package outage

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/failure"
	"github.com/weir-go/weir/internal/guard"
)

// A circuit says which calls may ask the store. It is closed at first, and all may. A
// number of consecutive failures opens it. Then only one call in each interval may, the
// probe. The first answer of the store closes it.
//
// The failures must also span some time. Otherwise, the loss of one node of a cluster
// would open the circuit: at a high rate of calls, some failures follow one another by
// chance.
//
// The state has a generation, which changes when the circuit closes. A failure counts
// only in the generation in which its call began. So calls that hung while the store came
// back do not open the circuit again.
type circuit struct {
	failures int           // how many open the circuit
	span     time.Duration // how long they last, at least
	interval time.Duration // between two probes
	born     time.Time     // times are measured from here

	state   atomic.Uint64                 // the generation, shifted by stateBits, and failing and open
	cause   atomic.Pointer[failure.Error] // the last failure that counted, as an ErrUnsent
	answers atomic.Int64                  // how many requests were answered without the store

	onChange func(State) // can be nil

	mu     sync.Mutex
	due    int64 // when the next probe may begin, if the circuit is open
	failed int   // consecutive failures
	first  int64 // when the first of them ended
	before int64 // answers before it
	probes int64 // how many probes have begun
	probe  int64 // the number of the probe that has not ended; 0 if there is none
	began  int64 // when it began

	outage  outage  // the last one
	changes []State // for onChange
	telling bool    // a goroutine calls onChange
}

// An outage is what a circuit keeps of an outage.
type outage struct {
	number       int64 // how many outages have begun
	began, ended int64
	before       int64          // answers before it began
	answers      int64          // in the outage, when it ended
	cause        *failure.Error // when it was last described
}

const (
	failing   = 1 << iota // there was a failure since the last answer
	open                  // the circuit is open
	stateBits = iota
)

// lostProbe is the number of intervals after which a probe that has not ended is lost.
// Then another probe may begin, in case the first never ends.
const lostProbe = 10

// maxInterval is the longest interval, 14 years. So no sum of times overflows.
const maxInterval = weir.Never / (2 * lostProbe)

// A ticket allows one call to ask the store.
type ticket struct {
	generation uint64
	probe      int64 // the number of the probe; 0 if the call is no probe
}

func (c *circuit) init(failures int, span, interval time.Duration) {
	c.failures, c.span, c.interval, c.born = failures, span, min(interval, maxInterval), time.Now()
}

// now returns the time since c was made.
func (c *circuit) now() int64 { return int64(time.Since(c.born)) }

// isOpen reports whether c is open.
func (c *circuit) isOpen() bool { return c.state.Load()&open != 0 }

// enter reports whether a call may ask the store. The caller must then call exit.
func (c *circuit) enter() (ticket, bool) {
	if s := c.state.Load(); s&open == 0 {
		return ticket{generation: s >> stateBits}, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.state.Load()
	if s&open == 0 { // it has closed just now
		return ticket{generation: s >> stateBits}, true
	}
	now := c.now()
	if now < c.due {
		return ticket{}, false
	}
	c.due = now + int64(c.interval)
	if c.probe != 0 && now-c.began < lostProbe*int64(c.interval) {
		return ticket{}, false
	}
	c.probes++
	c.probe, c.began = c.probes, now
	return ticket{s >> stateBits, c.probe}, true
}

// exit ends the call of t, even if it said nothing about the store or panicked.
func (c *circuit) exit(t ticket) {
	if t.probe == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.probe == t.probe {
		c.probe = 0
	}
}

// succeed records an answer of the store.
func (c *circuit) succeed() {
	if c.state.Load()&(failing|open) != 0 && c.close() {
		c.tell()
	}
}

// close closes c. It reports whether c was open.
func (c *circuit) close() (ended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.state.Load()
	generation := s >> stateBits
	if ended = s&open != 0; ended {
		generation++
		c.ends()
	}
	c.failed = 0
	c.state.Store(generation << stateBits)
	if ended {
		c.note()
	}
	return ended
}

// fail records that the call of t failed because of cause.
func (c *circuit) fail(t ticket, cause *failure.Error) {
	if c.count(t, cause) {
		c.tell()
	}
}

// count counts the failure. It reports whether c has opened.
func (c *circuit) count(t ticket, cause *failure.Error) (began bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.state.Load()
	generation := s >> stateBits
	if t.generation != generation {
		return false
	}
	c.cause.Store(&failure.Error{Text: cause.Text, Is: errors.Join(cause.Is, guard.ErrUnsent)})
	if s&open != 0 { // the next probe is due already
		return false
	}
	now := c.now()
	if c.failed++; c.failed == 1 {
		c.first, c.before = now, c.answers.Load()
	}
	if c.failed < c.failures || c.failures > 1 && now-c.first < int64(c.span) {
		c.state.Store(generation<<stateBits | failing)
		return false
	}
	c.due = now + int64(c.interval)
	c.state.Store(generation<<stateBits | failing | open)
	c.begins()
	return true
}

// wait returns the time until the next probe, in whole microseconds. If c is closed, it
// returns the interval.
func (c *circuit) wait() time.Duration {
	left := c.interval
	if c.isOpen() {
		c.mu.Lock()
		left = max(time.Duration(c.due-c.now()), 1)
		c.mu.Unlock()
	}
	return (left + time.Microsecond - 1).Truncate(time.Microsecond)
}
