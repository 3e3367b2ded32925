package weir

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A Fallback is what a limiter answers during an outage of its store.
type Fallback uint8

const (
	// FailClosed denies every request. It is the zero value.
	FailClosed Fallback = iota

	// FailOpen allows every request. Only a request whose cost is above the capacity
	// of a rule is denied.
	FailOpen

	// FailLocal decides in the memory of the process, with a share of each limit: the
	// limit divided by Outage.Processes.
	FailLocal
)

// String returns the name of f.
func (f Fallback) String() string {
	names := [...]string{"FailClosed", "FailOpen", "FailLocal"}
	if int(f) < len(names) {
		return names[f]
	}
	return fmt.Sprintf("Fallback(%d)", uint8(f))
}

// The defaults of an [Outage].
const (
	DefaultOutageBudget   = 50 * time.Millisecond
	DefaultOutageFailures = 5
	DefaultOutageProbe    = time.Second
	DefaultOutageKeys     = 1 << 17
)

// An Outage says what a limiter answers while its store is unavailable or too slow: see
// [Limiter.OnOutage]. The zero value denies every request, and has the default budget.
type Outage struct {
	// Fallback is the answer without the store. The zero value is FailClosed.
	Fallback Fallback

	// Processes is the number of processes that share the limits, at least 1. FailLocal
	// needs it. With any other Fallback, it must be 0. If more processes run, they can
	// together allow more than the limit.
	Processes int

	// MaxKeys is the largest number of keys that FailLocal holds in memory. A caller has
	// at least one key for each rule. If all MaxKeys keys are in use, requests that need a
	// new key are denied. 0 means DefaultOutageKeys, 131,072. That many keys use 32 MiB, or
	// more if keys are longer than 71 bytes or hold sorted sets. With any other Fallback,
	// MaxKeys must be 0.
	MaxKeys int

	// Budget is the longest time that one decision of the store can take. 0 means
	// DefaultOutageBudget, 50 ms. Choose it shorter than the deadlines of the callers. If a
	// caller's deadline passes before the budget ends, the call does not count as a failure
	// of the store.
	Budget time.Duration

	// Failures is the number of consecutive failures after which the limiter sends only
	// probes to the store. 0 means DefaultOutageFailures, 5. If it is above 1, the failures
	// must also last for at least Budget. Otherwise, the loss of one master of a cluster
	// would look like the loss of all: at many requests per second, some failures follow one
	// another by chance.
	Failures int

	// Probe is the time between two probes. A probe is one request of a caller that is
	// sent to the store during an outage. 0 means DefaultOutageProbe, 1 s, or Budget if
	// that is longer. Any other Probe must be at least Budget.
	Probe time.Duration
}

// OnOutage returns a limiter that answers by itself, as o says, if the store does not
// answer within o.Budget or returns [store.ErrUnavailable]. After o.Failures consecutive
// failures, which last for at least o.Budget, it sends only one request in each o.Probe to
// the store. The first answer of the store ends the outage. The budget is a deadline of the context, so the client of the
// store must heed deadlines: see docs/guide/outage.md.
//
// Result.Degraded is not nil if the store did not decide. After the outage, such a decision
// consumes nothing from the store. But if only the store's reply was lost, the request has
// consumed its tokens there. With FailLocal, all processes together allow at most the limit,
// and the store allows at most the limit. So at most twice the limit is allowed.
// There is one exception: windows that start with a request, because a FixedWindow or
// MetadataWindow is not Aligned, or because a TokenBucket is AtOnce. Then less than three
// times the limit is allowed in one window of the store.
//
// During an outage:
//   - Consume, TakeUpTo and Peek return the answer of o.Fallback. The RetryAfter of a
//     denied request is at most the time until the next probe. It is [Never] only if the
//     cost is above the capacity.
//   - Refund, Settle, Release and Renew work on decisions and leases that FailLocal made. For
//     all others they return store.ErrUnavailable, and can be retried.
//   - Reset and Force return store.ErrUnavailable. A Force with an ID can be retried: it
//     consumes its tokens once.
//   - Misuse is an error, as it is without OnOutage. If the caller's context ends, its
//     error is returned.
//
// A lease that FailLocal gave stays in the process: Renew and Release find it there,
// also after the outage.
//
// Call OnOutage once, and before Wrap, so that the other wrappers see these answers. The
// limiters that With, Only and Wrap return share the state of the outage with the limiter.
// If With sets a limit below o.Processes, one process has no share of that limit: FailLocal
// then denies the requests.
//
// OnOutage returns an error:
//   - if a field of o is not valid.
//   - if the limiter is already the result of OnOutage, or of Prefetch.
//   - if the store is a [store.DeadlineChecker], and says that its client ignores deadlines.
//   - with FailLocal, if the limit of a rule divided by o.Processes is less than one token,
//     or less than the rule's Cost.
//   - with FailLocal, if the algorithm of a rule is not of package algorithm, and holds
//     leases or has a largest cost. Such a limit cannot be divided.
func (l *Limiter) OnOutage(o Outage) (*Limiter, error) {
	if l == nil || l.bound == nil {
		return nil, errNoLimiter
	}
	for _, w := range l.wrappers {
		if w.outage != nil {
			return nil, errors.New("weir: OnOutage: the limiter is already the result of OnOutage: call OnOutage once, on the limiter of New or NewPolicy")
		}
	}
	if l.cached {
		return nil, errors.New("weir: OnOutage: the limiter has a DenyCache, whose answers would be taken for those of the store: call OnOutage first, and Wrap on its result")
	}
	if l.prefetcher() != nil {
		return nil, errors.New("weir: OnOutage: the limiter is the result of Prefetch: call OnOutage first, and Prefetch on its result")
	}
	if err := o.complete(); err != nil {
		return nil, err
	}
	if c, ok := l.bound.store.(store.DeadlineChecker); ok {
		if err := c.CheckDeadline(); err != nil {
			return nil, fmt.Errorf("weir: OnOutage: Outage.Budget has no effect: %w", err)
		}
	}
	shared := &outage{Outage: o}
	shared.breaker.init(o.Failures, o.Budget, o.Probe)
	if o.Fallback == FailLocal {
		shared.store = memory.New(&memory.Options{MaxKeys: o.MaxKeys, NoEviction: true})
		if _, err := shared.shareOf(l.bound); err != nil {
			return nil, err
		}
	}
	wrappers := append(l.wrappers[:len(l.wrappers):len(l.wrappers)], wrapper{outage: shared})
	return newLimiter(l.bound, wrappers), nil
}

// complete checks o, and replaces zero values by the defaults.
func (o *Outage) complete() error {
	local := o.Fallback == FailLocal
	switch {
	case o.Fallback > FailLocal:
		return fmt.Errorf("weir: Outage.Fallback is %v: it must be FailClosed, FailOpen or FailLocal", o.Fallback)
	case local && o.Processes < 1:
		return fmt.Errorf("weir: Outage.Processes is %d: it must be the number of processes that share the limits, at least 1", o.Processes)
	case !local && o.Processes != 0:
		return fmt.Errorf("weir: Outage.Processes is %d and Fallback is %v: only FailLocal uses Processes: set Fallback to FailLocal, or leave Processes out", o.Processes, o.Fallback)
	case !local && o.MaxKeys != 0:
		return fmt.Errorf("weir: Outage.MaxKeys is %d and Fallback is %v: only FailLocal uses MaxKeys: set Fallback to FailLocal, or leave MaxKeys out", o.MaxKeys, o.Fallback)
	case o.MaxKeys < 0:
		return fmt.Errorf("weir: Outage.MaxKeys is %d: it must be at least 1, or 0 for the default of %d", o.MaxKeys, DefaultOutageKeys)
	case o.Budget < 0:
		return fmt.Errorf("weir: Outage.Budget is %v: it must be above 0, or 0 for the default of %v", o.Budget, DefaultOutageBudget)
	case o.Failures < 0:
		return fmt.Errorf("weir: Outage.Failures is %d: it must be at least 1, or 0 for the default of %d", o.Failures, DefaultOutageFailures)
	case o.Probe < 0:
		return fmt.Errorf("weir: Outage.Probe is %v: it must be above 0, or 0 for the default of %v", o.Probe, DefaultOutageProbe)
	}
	o.MaxKeys = cmp.Or(o.MaxKeys, DefaultOutageKeys)
	o.Budget = cmp.Or(o.Budget, DefaultOutageBudget)
	o.Failures = cmp.Or(o.Failures, DefaultOutageFailures)
	o.Probe = cmp.Or(o.Probe, max(DefaultOutageProbe, o.Budget))
	if o.Probe < o.Budget {
		return fmt.Errorf("weir: Outage.Probe is %v and Budget is %v: Probe must be at least Budget, so that a probe has ended when the next one starts", o.Probe, o.Budget)
	}
	return nil
}

// An outage is the part of OnOutage that the limiters of With, Only and Wrap share.
type outage struct {
	Outage
	breaker breaker
	store   *memory.Store // holds the state of the shares; nil unless Fallback is FailLocal
	used    atomic.Bool   // the store has decided a request
}

// around returns the Decider that answers for b, whose requests go to next.
func (o *outage) around(b *bound, next Decider) *degraded {
	return &degraded{outage: o, bound: b, next: next}
}
