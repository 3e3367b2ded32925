package weir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// minPoll and maxPoll bound the time between two attempts of Acquire.
	minPoll = 5 * time.Millisecond
	maxPoll = 250 * time.Millisecond
)

// A Lease is one of the leases of an algorithm.Concurrency, with what a request
// consumed from the other rules. [Limiter.TryAcquire] and [Limiter.Acquire] return one.
// It is held until Release, or until the lease time of the rule has passed since it was
// acquired or renewed last. It is safe for concurrent use.
type Lease struct {
	Result // the answer when the lease was acquired

	limiter *Limiter
	request Request
	time    time.Duration // the lease time

	released context.Context // ends when Release is called
	release  context.CancelFunc

	mu    sync.Mutex
	until time.Time // when the lease is over, by this process's clock, or before
}

// TryAcquire acquires a lease with a random ID, if every rule allows the request now. A
// denied request is an error, [ErrDenied]. The error is [ErrUnsupported] if no rule is an
// algorithm.Concurrency. The other errors are those of [Limiter.Decide]. After an outage,
// the lease may be held: it then expires after its time.
func (l *Limiter) TryAcquire(ctx context.Context, key ...string) (*Lease, error) {
	lease, err := l.newLease(key)
	if err != nil {
		return nil, err
	}
	if err := lease.try(ctx); err != nil {
		return nil, err
	}
	return lease, nil
}

// Acquire acquires a lease with a random ID, and waits for it until ctx ends. It asks
// again after RetryAfter, or earlier: a lease can be released at any time. Those who wait
// go in no particular order.
//
// If the request can never pass, the error is [ErrDenied], at once. If ctx ends, it is
// that of ctx, and [ErrDenied] too if the request was denied before. The other errors are
// those of [Limiter.TryAcquire]; Acquire does not wait for the end of an outage.
func (l *Limiter) Acquire(ctx context.Context, key ...string) (*Lease, error) {
	lease, err := l.newLease(key)
	if err != nil {
		return nil, err
	}
	var denied *DeniedError
	for poll := minPoll; ; poll = min(2*poll, maxPoll) {
		err := lease.try(ctx)
		switch {
		case err == nil:
			return lease, nil
		case ctx.Err() != nil && denied != nil:
			return nil, waited(ctx, denied)
		case !errors.As(err, &denied) || denied.Result.RetryAfter == Never:
			return nil, err
		}
		if sleep(ctx, min(denied.Result.RetryAfter, poll)) != nil {
			return nil, waited(ctx, denied)
		}
	}
}

// waited is the error of an Acquire whose context ended after a denial.
func waited(ctx context.Context, denied *DeniedError) error {
	return fail(errors.Join(ctx.Err(), denied), "Acquire: %v: %s", ctx.Err(), denied.text())
}

// newLease returns a lease that is not acquired yet.
func (l *Limiter) newLease(key []string) (*Lease, error) {
	switch {
	case l == nil || l.bound == nil:
		return nil, errNoLimiter
	case l.bound.leases == nil:
		return nil, fail(ErrUnsupported, "Acquire and TryAcquire: no rule holds leases: algorithm.Concurrency does")
	}
	lease := &Lease{limiter: l, request: Request{Key: KeyOf(key...), ID: rand.Text()}, time: l.bound.lease}
	lease.released, lease.release = context.WithCancel(context.Background())
	return lease, nil
}

// try acquires the lease. To ask again for a lease that is held renews it.
func (l *Lease) try(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	start := time.Now()
	res, err := l.limiter.Decide(ctx, l.request, nil)
	switch {
	case err == nil && res.Allowed:
		l.Result = res
		l.extend(start)
		return nil
	case err == nil:
		return &DeniedError{res}
	case ctx.Err() != nil: // the lease may be held
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), refundTime)
		defer cancel()
		_, _ = l.do(back, Release)
	}
	return err
}

func (l *Lease) do(ctx context.Context, op Op) (Result, error) {
	r := l.request
	r.Op = op
	return l.limiter.Decide(ctx, r, nil)
}

// extend notes that the lease was acquired or renewed after start.
func (l *Lease) extend(start time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if until := start.Add(l.time); until.After(l.until) {
		l.until = until
	}
}

// end returns when the lease is over, if it is not renewed.
func (l *Lease) end() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

// ID returns the lease's name, as [Request].ID has it.
func (l *Lease) ID() string {
	if l == nil {
		return ""
	}
	return l.request.ID
}

// Release ends the lease, and reports whether it was held. It ends the lease of nobody
// else, however late it comes. KeepAlive returns. Release can be retried after an error.
// What the request consumed from other rules stays consumed. The errors are those of
// [Limiter.Decide].
func (l *Lease) Release(ctx context.Context) (bool, error) {
	if l == nil || l.limiter == nil {
		return false, errNoLease
	}
	l.release()
	res, err := l.do(ctx, Release)
	return res.Allowed, err
}

// Renew makes the lease last for its full time from now. It consumes nothing from other
// rules. The error is [ErrLeaseLost] if the lease was released or has expired: somebody
// else may hold it. The other errors are those of [Limiter.Decide].
func (l *Lease) Renew(ctx context.Context) error {
	if l == nil || l.limiter == nil {
		return errNoLease
	}
	start := time.Now()
	res, err := l.do(ctx, Renew)
	switch {
	case err != nil:
		return err
	case !res.Allowed:
		return fail(ErrLeaseLost, "the lease was lost: it was released or has expired")
	}
	l.extend(start)
	return nil
}

// KeepAlive renews the lease every third of its time, until ctx ends or Release is
// called. Start it with go. If the lease is lost, KeepAlive calls lost once, with an
// [ErrLeaseLost], and returns. It retries during an outage, until the lease would be over
// by this process's clock. lost can be nil.
func (l *Lease) KeepAlive(ctx context.Context, lost func(error)) {
	err := l.keepAlive(ctx)
	if err != nil && lost != nil {
		lost(err)
	}
}

// keepAlive is KeepAlive, and returns what lost is called with.
func (l *Lease) keepAlive(ctx context.Context) error {
	if l == nil || l.limiter == nil {
		return errNoLease
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.released, cancel)()
	third := max(l.time/3, time.Millisecond)
	wait := third
	for sleep(ctx, wait) == nil {
		end := l.end()
		once, stop := context.WithDeadline(ctx, end)
		err := l.Renew(once)
		stop()
		switch left := time.Until(end); {
		case err == nil:
			wait = third
		case ctx.Err() != nil || l.released.Err() != nil:
			return nil
		case errors.Is(err, ErrLeaseLost):
			return err
		case left <= 0:
			return fmt.Errorf("%w: it could not be renewed: %w", ErrLeaseLost, err)
		default:
			wait = min(max(third/10, time.Millisecond), left)
		}
	}
	return nil
}
