package weir

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/failure"
)

// A breaker says which calls may ask the store. It is closed at first: all may. After a
// number of consecutive failures it opens: then one call in each interval may, a probe. The
// first answer of the store closes it.
//
// The failures must also span some time. Otherwise, the loss of one node of a cluster would
// open the breaker: at a high rate of calls, some failures follow one another by chance.
//
// The state has a generation, which changes when the breaker closes. A failure counts only in
// the generation in which its call began. So calls that hung while the store came back do not
// open the breaker again.
type breaker struct {
	failures int           // how many open the breaker
	span     time.Duration // how long they last, at least
	interval time.Duration // between two probes
	born     time.Time     // times are measured from here

	state atomic.Uint64                 // the generation, shifted by stateBits, and failing and open
	cause atomic.Pointer[failure.Error] // the last failure that counted

	mu     sync.Mutex
	due    int64 // when the next probe may begin, if the breaker is open
	failed int   // consecutive failures
	first  int64 // when the first of them ended
	probes int64 // how many probes have begun
	probe  int64 // the number of the probe that has not ended; 0 if there is none
	began  int64 // when it began
}

const (
	failing   = 1 << iota // there was a failure since the last answer
	open                  // the breaker is open
	stateBits = iota
)

// lostProbe is the number of intervals after which a probe that has not ended is lost. Then
// another probe may begin, in case that the first one never ends.
const lostProbe = 10

// maxInterval is the longest interval, 14 years. So no sum of times overflows.
const maxInterval = Never / (2 * lostProbe)

// A ticket allows one call to ask the store.
type ticket struct {
	generation uint64
	probe      int64 // the number of the probe; 0 if the call is no probe
}

func (b *breaker) init(failures int, span, interval time.Duration) {
	b.failures, b.span, b.interval, b.born = failures, span, min(interval, maxInterval), time.Now()
}

// now returns the time since b was made.
func (b *breaker) now() int64 { return int64(time.Since(b.born)) }

// isOpen reports whether b is open.
func (b *breaker) isOpen() bool { return b.state.Load()&open != 0 }

// enter reports whether a call may ask the store. The caller must then call exit.
func (b *breaker) enter() (ticket, bool) {
	if s := b.state.Load(); s&open == 0 {
		return ticket{generation: s >> stateBits}, true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.state.Load()
	if s&open == 0 { // it has closed just now
		return ticket{generation: s >> stateBits}, true
	}
	now := b.now()
	if now < b.due {
		return ticket{}, false
	}
	b.due = now + int64(b.interval)
	if b.probe != 0 && now-b.began < lostProbe*int64(b.interval) {
		return ticket{}, false
	}
	b.probes++
	b.probe, b.began = b.probes, now
	return ticket{s >> stateBits, b.probe}, true
}

// exit ends the call of t, also if it said nothing about the store or panicked.
func (b *breaker) exit(t ticket) {
	if t.probe == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.probe == t.probe {
		b.probe = 0
	}
}

// succeed records an answer of the store.
func (b *breaker) succeed() {
	if b.state.Load()&(failing|open) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.state.Load()
	generation := s >> stateBits
	if s&open != 0 {
		generation++
	}
	b.failed = 0
	b.state.Store(generation << stateBits)
}

// fail records that the call of t failed because of cause.
func (b *breaker) fail(t ticket, cause *failure.Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.state.Load()
	generation := s >> stateBits
	if t.generation != generation {
		return
	}
	b.cause.Store(cause)
	if s&open != 0 { // the next probe is due already
		return
	}
	now := b.now()
	if b.failed++; b.failed == 1 {
		b.first = now
	}
	if b.failed < b.failures || b.failures > 1 && now-b.first < int64(b.span) {
		b.state.Store(generation<<stateBits | failing)
		return
	}
	b.due = now + int64(b.interval)
	b.state.Store(generation<<stateBits | failing | open)
}

// wait returns the time until the next probe, in whole microseconds. If b is closed, it
// returns the interval.
func (b *breaker) wait() time.Duration {
	left := b.interval
	if b.isOpen() {
		b.mu.Lock()
		left = max(time.Duration(b.due-b.now()), 1)
		b.mu.Unlock()
	}
	return (left + time.Microsecond - 1).Truncate(time.Microsecond)
}
