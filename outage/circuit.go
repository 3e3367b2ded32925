package outage

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/guard"
	"github.com/weir-go/weir/internal/prose"
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

	state   atomic.Uint64               // the generation, shifted by stateBits, and failing and open
	cause   atomic.Pointer[prose.Error] // the last failure that counted, as an ErrUnsent
	answers atomic.Int64                // how many requests were answered without the store

	onChange func(State) // can be nil

	mu     sync.Mutex
	due    int64 // when the next probe may begin, if the circuit is open
	failed int   // consecutive failures; no more are counted if the circuit is open
	first  int64 // when the first of them ended
	before int64 // answers before it
	probe  int64 // when the probe that has not ended began; 0 if there is none

	last    State   // at the end of the last outage, or at the beginning of this one
	changes []State // for onChange
	telling bool    // a goroutine calls onChange
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
	probe      int64 // when the probe began; 0 if the call is no probe
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
	if c.probe != 0 && now-c.probe < lostProbe*int64(c.interval) {
		return ticket{}, false
	}
	c.probe = now // no other probe begins at that time
	return ticket{s >> stateBits, now}, true
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

// succeed records an answer of the store, which closes c.
func (c *circuit) succeed() {
	if c.state.Load()&(failing|open) == 0 {
		return
	}
	defer c.tell() // without the lock
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.state.Load()
	generation := s >> stateBits
	ended := s&open != 0
	if ended {
		generation++
		c.last = c.describe()
	}
	c.failed = 0
	if c.state.Store(generation << stateBits); ended {
		c.note()
	}
}

// fail records that the call of t failed because of cause.
func (c *circuit) fail(t ticket, cause *prose.Error) {
	defer c.tell() // without the lock
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.state.Load()
	generation := s >> stateBits
	if t.generation != generation {
		return
	}
	c.cause.Store(&prose.Error{Text: cause.Text, Is: errors.Join(cause.Is, guard.ErrUnsent)})
	if s&open != 0 { // the next probe is due already
		return
	}
	now := c.now()
	if c.failed++; c.failed == 1 {
		c.first, c.before = now, c.answers.Load()
	}
	if c.failed < c.failures || c.failures > 1 && now-c.first < int64(c.span) {
		c.state.Store(generation<<stateBits | failing)
		return
	}
	c.due = now + int64(c.interval)
	c.last = State{Outages: c.last.Outages + 1, Began: c.born.Add(time.Duration(c.first))}
	c.state.Store(generation<<stateBits | failing | open)
	c.note()
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
