// Package outage answers the requests of a limiter while its store is unavailable or too
// slow:
//
//	out := outage.New(&outage.Options{Fallback: outage.Local, Processes: 10})
//	lim, err = lim.Wrap(out.Wrap)
//
// If the store does not answer within Options.Budget, or returns [store.ErrUnavailable],
// the limiter answers as Options.Fallback says. After Options.Failures consecutive
// failures, which last for at least the budget, it sends only one request in each
// Options.Probe to the store, until the store answers one.
//
// A mistake that lasts, for example a wrong password, is an outage that never ends. With
// Open, there is then no limit at all. So call [weir.Limiter.Ready] when the program
// starts, and set Options.OnChange: the cause is a [store.ErrMisconfigured].
//
// The budget is a deadline of the context, so the client of the store must heed
// deadlines: see docs/guide/outage.md.
//
// # Promise
//
// If the store did not decide, Result.Degraded is not nil, and the decision consumes
// nothing from the store, unless only the reply was lost.
//
// With Local, all processes together allow at most the limit, and the store allows at
// most the limit, so at most twice the limit is allowed. Two things raise this bound:
//   - With Options.Floor, each of N processes allows at least one request, so the limit
//     and N requests are allowed if that is more than twice the limit.
//   - If windows start with a request (a FixedWindow or MetadataWindow that is not
//     Aligned, or a TokenBucket that is AtOnce), the processes can use their shares twice
//     in one window of the store. So less than three times the limit is allowed or, with
//     Floor, the limit and 2 × N requests if that is more.
//
// During an outage:
//   - Consume, TakeUpTo and Peek return the answer of the fallback. If the share of the
//     process denies the request, Degraded is a [weir.ErrDenied] too. RetryAfter is at
//     most the time until the next probe, or [weir.Never] if the cost is above the
//     capacity.
//   - Refund, Settle, Finish, Release and Renew work on decisions and leases that Local made,
//     even after the outage. For all others they return store.ErrUnavailable, and can be
//     retried.
//   - Pause and Resume return store.ErrUnavailable. The pauses in the store are not
//     known, so Open and Local can allow requests of a paused key.
//   - Reset and Force return store.ErrUnavailable. A Force with an ID can be retried.
//   - Misuse and the end of the caller's context are errors, as without an outage.
package outage

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/gate"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A Fallback is what a limiter answers during an outage of its store.
type Fallback uint8

const (
	// Closed denies every request: the limiter fails closed. It is the zero value.
	Closed Fallback = iota

	// Open allows every request: the limiter fails open. Only a request whose cost is
	// above the capacity of a rule is denied.
	Open

	// Local decides in the memory of the process, with a share of each limit: the limit
	// divided by Options.Processes.
	Local
)

// String returns the name of f.
func (f Fallback) String() string {
	names := [...]string{"Closed", "Open", "Local"}
	if int(f) < len(names) {
		return names[f]
	}
	return fmt.Sprintf("Fallback(%d)", uint8(f))
}

// The defaults of [Options].
const (
	DefaultBudget   = 50 * time.Millisecond
	DefaultFailures = 5
	DefaultProbe    = time.Second
	DefaultMaxKeys  = 1 << 17
)

// Options are the settings of a [Breaker]. The zero value denies every request during an
// outage, and has the default budget.
type Options struct {
	// Fallback is the answer without the store. The zero value is Closed.
	Fallback Fallback

	// Processes is the number of processes that share the limits, at least 1. If more
	// processes run, they can together allow more than the limit. Only Local uses it, and
	// needs it. Breaker.SetProcesses changes it.
	Processes int

	// Floor is for plans whose limit is small. With it, a share of Local is never less
	// than one request, which is one token or the Cost of the rule. So N processes
	// together allow at most N requests or the limit, whichever is more. Without Floor,
	// Wrap and With return an error for such a limit. Only Local uses it.
	//
	// The bound holds for the time in which the limit is refilled, Result.Window, which
	// is short for a high rate with a small burst: N processes together allow N times the
	// rate of a GCRA with a Burst of 1. Give such a limit a burst of at least N requests,
	// so that its rate is divided by N.
	Floor bool

	// MaxKeys is the largest number of keys that Local holds in memory, at least one for
	// each caller and rule. If all are in use, requests that need a new key are denied. 0
	// means DefaultMaxKeys, 131,072, which use 32 MiB, or more if keys are longer than 71
	// bytes or hold sorted sets. Only Local uses it.
	MaxKeys int

	// Budget is the longest time that one decision of the store can take. 0 means
	// DefaultBudget, 50 ms. Choose it shorter than the deadlines of the callers: a call
	// whose deadline passes before the budget ends does not count as a failure of the
	// store.
	Budget time.Duration

	// Failures is the number of consecutive failures after which the limiter sends only
	// probes to the store. 0 means DefaultFailures, 5. If it is above 1, the failures
	// must also last for at least Budget. Otherwise, at many requests per second, the loss
	// of one master of a cluster would by chance look like the loss of all.
	Failures int

	// Probe is the time between two probes, at least Budget. A probe is one request of a
	// caller that is sent to the store during an outage. 0 means DefaultProbe, 1 s, or
	// Budget if that is longer.
	Probe time.Duration

	// OnChange is called when an outage begins and when it ends, for a line in a log or
	// an alert. An outage begins when as many calls as Failures have failed, and ends
	// when the store answers. Only requests notice that, so without requests there is no
	// call.
	//
	// The calls come in order, and one at a time. Each is made in the goroutine of a
	// request, before the caller gets the answer, so it must return soon. No lock is
	// held: it can use the limiter and the Breaker.
	OnChange func(State)
}

// A Breaker is a circuit breaker for a store, with a fallback. Make one with [New].
// Limiters over one store can share it. It is safe for concurrent use.
type Breaker struct {
	opts    Options // with the defaults
	invalid error   // the error of Wrap if the Options are not valid
	circuit circuit
	local   *memory.Store // holds the state of the shares; nil unless Fallback is Local
	used    atomic.Bool   // a share has decided a request
	store   gate.OneStore
	shares  shares
}

// New returns a Breaker. If opts is nil, the defaults are used. If a field is not valid,
// [Breaker.Wrap] returns an error that names it.
func New(opts *Options) *Breaker {
	b := new(Breaker)
	if opts != nil {
		b.opts = *opts
	}
	if b.invalid = b.opts.complete(); b.invalid != nil {
		return b
	}
	b.circuit.init(b.opts.Failures, b.opts.Budget, b.opts.Probe)
	b.circuit.onChange = b.opts.OnChange
	if b.opts.Fallback == Local {
		b.shares.n.Store(int64(b.opts.Processes))
		b.local = memory.New(&memory.Options{MaxKeys: b.opts.MaxKeys, NoEviction: true})
	}
	return b
}

// complete checks o, and replaces zero values by the defaults.
func (o *Options) complete() error {
	local := o.Fallback == Local
	switch {
	case o.Fallback > Local:
		return fmt.Errorf("outage: Options.Fallback is %v: it must be Closed, Open or Local", o.Fallback)
	case local && o.Processes < 1:
		return fmt.Errorf("outage: Options.Processes is %d: it must be the number of processes that share the limits, at least 1", o.Processes)
	case !local && o.Processes != 0:
		return fmt.Errorf("outage: Options.Processes is %d and Fallback is %v: only Local uses Processes: set Fallback to Local, or leave Processes out", o.Processes, o.Fallback)
	case !local && o.Floor:
		return fmt.Errorf("outage: Options.Floor is true and Fallback is %v: only Local uses Floor: set Fallback to Local, or leave Floor out", o.Fallback)
	case !local && o.MaxKeys != 0:
		return fmt.Errorf("outage: Options.MaxKeys is %d and Fallback is %v: only Local uses MaxKeys: set Fallback to Local, or leave MaxKeys out", o.MaxKeys, o.Fallback)
	case o.MaxKeys < 0:
		return fmt.Errorf("outage: Options.MaxKeys is %d: it must be at least 1, or 0 for the default of %d", o.MaxKeys, DefaultMaxKeys)
	case o.Budget < 0:
		return fmt.Errorf("outage: Options.Budget is %v: it must be above 0, or 0 for the default of %v", o.Budget, DefaultBudget)
	case o.Failures < 0:
		return fmt.Errorf("outage: Options.Failures is %d: it must be at least 1, or 0 for the default of %d", o.Failures, DefaultFailures)
	case o.Probe < 0:
		return fmt.Errorf("outage: Options.Probe is %v: it must be above 0, or 0 for the default of %v", o.Probe, DefaultProbe)
	}
	o.MaxKeys = cmp.Or(o.MaxKeys, DefaultMaxKeys)
	o.Budget = cmp.Or(o.Budget, DefaultBudget)
	o.Failures = cmp.Or(o.Failures, DefaultFailures)
	o.Probe = cmp.Or(o.Probe, max(DefaultProbe, o.Budget))
	if o.Probe < o.Budget {
		return fmt.Errorf("outage: Options.Probe is %v and Budget is %v: Probe must be at least Budget, so that a probe has ended when the next one starts", o.Probe, o.Budget)
	}
	return nil
}

// Wrap is a [weir.Wrapper]. Pass it to [weir.Limiter.Wrap] as the last argument of the
// first call, so that the other wrappers see the answers of the fallback too. Only
// wrappers that pass on every request, such as an observer, can follow it. The limiters
// that With and Only return share the state of the outage.
//
// Wrap returns an error:
//   - if a field of the Options is not valid.
//   - if next has a Breaker, or answers some requests itself: see [weir.StandIn].
//   - if the Breaker already stands around a limiter over another store.
//   - if the store is a [store.DeadlineChecker], and says that its client ignores
//     deadlines, or that a dead server looks slow.
//   - with Local, if a rule has no share: see [weir.Limiter.Share].
func (b *Breaker) Wrap(lim *weir.Limiter, next weir.Decider) (weir.Decider, error) {
	switch {
	case b == nil, b.invalid == nil && b.opts.Budget == 0:
		return nil, errors.New("outage: the Breaker is nil or a zero value: make one with New")
	case b.invalid != nil:
		return nil, b.invalid
	}
	if _, twice := weir.Find[*decider](next); twice {
		return nil, errors.New("outage: the limiter already has a Breaker: wrap it in one, once")
	}
	if inner, ok := weir.Find[weir.StandIn](next); ok {
		return nil, fmt.Errorf("outage: the limiter has a %T inside the Breaker, whose answers would be taken for those of the store: give Limiter.Wrap the Breaker last, in its first call", inner)
	}
	st := lim.Store()
	if c, ok := st.(store.DeadlineChecker); ok {
		if err := c.CheckDeadline(); err != nil {
			return nil, fmt.Errorf("outage: the client of the store does not suit Options.Budget: %w", err)
		}
	}
	d := &decider{Breaker: b, lim: lim, next: next}
	for _, r := range lim.Rules() {
		if !r.Shadow {
			d.rules, d.units = append(d.rules, r), d.units || r.CostBy == weir.CostUnit
		}
	}
	b.shares.mu.Lock()
	defer b.shares.mu.Unlock()
	if err := d.makeShare(); err != nil {
		return nil, err
	}
	if !b.store.Is(st) {
		return nil, errors.New("outage: the Breaker already stands around a limiter over another store: make a Breaker for each store")
	}
	d.boundShares()
	return d, nil
}

// plain returns the text of err without the name of package weir.
func plain(err error) string { return strings.TrimPrefix(err.Error(), "weir: ") }
