package weir

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/guard"
	"github.com/weir-go/weir/internal/sleep"
	"github.com/weir-go/weir/store"
)

const (
	// minPoll and maxPoll are the bounds of the time between two attempts of Acquire.
	minPoll = 5 * time.Millisecond
	maxPoll = 250 * time.Millisecond

	// minRenewal is how long KeepAlive waits for a renewal, at least.
	minRenewal = time.Second
)

// A Lease allows its holder to run under an algorithm.Concurrency until Release is
// called, or until its lease time has passed since the last renewal. It is safe for
// concurrent use.
type Lease struct {
	Result // the answer when the lease was acquired

	limiter *Limiter
	request Request
	time    time.Duration // the lease time
	lost    int           // the tries whose reply is lost: the store may have acquired the lease

	released context.Context // ends when Release is called
	release  context.CancelFunc

	mu    sync.Mutex
	until time.Time // when the lease expires, by this process's clock; it can expire a little later
}

var errNoLease = errors.New("weir: the Lease is nil or a zero value: Limiter.Acquire and TryAcquire return one")

// TryAcquire acquires a lease with a random ID, if every rule allows the request now.
// Otherwise the error is [ErrDenied]. One rule must be an algorithm.Concurrency.
//
// After [store.ErrUnavailable], the store may hold the lease until it expires, so choose
// a short lease time, and use [Lease.KeepAlive]. If ctx ends or package outage denies the
// request, TryAcquire releases any lease that the store may have granted, within one
// second. If that fails or finds nothing, the lease may still be granted later, so this
// process repeats the release about 1 s, 5 s and 25 s later.
func (l *Limiter) TryAcquire(ctx context.Context, key ...string) (*Lease, error) {
	lease, err := l.newLease(key)
	if err != nil {
		return nil, err
	}
	if err := lease.try(ctx); err != nil {
		return nil, lease.giveUp(ctx, err)
	}
	return lease, nil
}

// Acquire is [Limiter.TryAcquire], but waits for a lease until ctx ends. It repeats a
// denied request after 5 ms to 250 ms. Waiting callers get leases in no particular order.
//
// If ctx ends, the error is that of ctx, and also an [ErrDenied] if the request was
// denied. Acquire returns at once if the request can never be allowed, or fails during an
// outage.
func (l *Limiter) Acquire(ctx context.Context, key ...string) (held *Lease, err error) {
	lease, err := l.newLease(key)
	if err != nil {
		return nil, err
	}
	defer func() {
		if held == nil {
			err = lease.giveUp(ctx, err)
		}
	}()
	var denied *DeniedError
	for poll := minPoll; ; poll = min(2*poll, maxPoll) {
		err := lease.try(ctx)
		again := errors.As(err, &denied)
		switch {
		case err == nil:
			return lease, nil
		case denied != nil && guard.Ended(ctx) && (again || !errors.Is(err, store.ErrUnavailable)):
			return nil, waited(ctx, denied)
		case !again || denied.Result.RetryAfter == Never:
			return nil, err
		}
		pause := poll
		if after := denied.Result.RetryAfter; after > 0 { // a wrapper can leave it out
			pause = min(pause, after)
		}
		if sleep.For(ctx, pause) != nil {
			return nil, waited(ctx, denied)
		}
	}
}

// waited returns the error of an Acquire whose context ended after a denied request. The
// client of the store can notice the deadline of ctx a moment before ctx does.
func waited(ctx context.Context, denied *DeniedError) error {
	err := cmp.Or(ctx.Err(), context.DeadlineExceeded)
	return fail(errors.Join(err, denied), "Acquire: %v: %s", err, denied.text())
}

// newLease returns a lease with a random ID, which is not acquired yet.
func (l *Limiter) newLease(key []string) (*Lease, error) {
	switch {
	case l == nil || l.bound == nil:
		return nil, errNoLimiter
	case l.bound.leases == nil:
		return nil, fail(ErrUnsupported, "Acquire and TryAcquire: no rule holds leases: a rule must be an algorithm.Concurrency")
	}
	lease := &Lease{limiter: l, request: Request{Key: KeyOf(key...), ID: rand.Text()}, time: l.bound.lease}
	lease.released, lease.release = context.WithCancel(context.Background())
	return lease, nil
}

// try acquires the lease. If the store already holds it, try renews it.
func (l *Lease) try(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	start := time.Now()
	res, err := l.limiter.Decide(ctx, l.request, nil)
	if guard.Lost(err, res.Degraded, ctx.Err() != nil) {
		l.lost++
	}
	switch {
	case err == nil && res.Allowed:
		l.Result = res
		l.extend(start)
		return nil
	case err == nil:
		return &DeniedError{res}
	}
	return err
}

// giveUp releases any lease that the store may have granted to a try whose reply is lost,
// and returns err. If that fails, and err is no denial, it returns both errors.
func (l *Lease) giveUp(ctx context.Context, err error) error {
	if l.lost == 0 {
		return err
	}
	failed := guard.Chase(ctx, l.limiter.bound.Life(&l.request), func(ctx context.Context) (bool, error) {
		found, err := l.Release(ctx)
		return found && l.lost == 1, err // each of several tries can still be granted
	})
	if _, denied := err.(*DeniedError); failed == nil || denied {
		return err
	}
	return errors.Join(err, failed)
}

// Life returns how long what r is granted can stay. Package gate finds it with Find.
func (b *bound) Life(r *Request) (life time.Duration) {
	for _, rule := range b.every() {
		if rule.has(leases) {
			life = max(life, rule.limit.Lease)
		} else if b.leases == nil && !rule.has(pauses) {
			life = max(life, cmp.Or(rule.limit.Window, Never))
		}
	}
	return min(life, Never-r.MaxWait) + r.MaxWait
}

func (l *Lease) do(ctx context.Context, op Op) (Result, error) {
	r := l.request
	r.Op = op
	return l.limiter.Decide(ctx, r, nil)
}

// extend records that the lease was acquired or renewed after start.
func (l *Lease) extend(start time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if until := start.Add(l.time); until.After(l.until) {
		l.until = until
	}
}

// end returns when the lease expires, unless it is renewed.
func (l *Lease) end() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

// ID returns the name of the lease, its [Request].ID.
func (l *Lease) ID() string {
	if l == nil {
		return ""
	}
	return l.request.ID
}

// Release releases the lease, and reports whether it was held. It makes KeepAlive return.
// Tokens of other rules stay consumed. Release can be retried after an error.
func (l *Lease) Release(ctx context.Context) (bool, error) {
	if l == nil || l.limiter == nil {
		return false, errNoLease
	}
	l.release()
	res, err := l.do(ctx, Release)
	return res.Allowed, err
}

// Renew starts the full lease time again, or returns [ErrLeaseLost]. It consumes nothing
// from other rules.
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
		return fail(ErrLeaseLost, "the lease is lost: it was released or has expired: acquire another")
	}
	l.extend(start)
	return nil
}

// KeepAlive renews the lease whenever a third of the lease time has passed, until ctx
// ends or Release is called. Start it in a goroutine.
//
// A renewal that fails, or takes too long, is retried until the lease expires by this
// process's clock. If the lease is lost, KeepAlive calls lost, unless it is nil, with an
// [ErrLeaseLost], and returns.
func (l *Lease) KeepAlive(ctx context.Context, lost func(error)) {
	err := l.keepAlive(ctx)
	if err != nil && lost != nil {
		lost(err)
	}
}

// keepAlive is KeepAlive. It returns the error for lost, or nil.
func (l *Lease) keepAlive(ctx context.Context) error {
	if l == nil || l.limiter == nil {
		return errNoLease
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.released, cancel)()
	third := max(l.time/3, time.Millisecond)
	due := func() time.Duration { // until a third after the last renewal began
		return max(time.Until(l.end())-l.time+l.limiter.bound.renews/3, time.Millisecond)
	}
	for wait := due(); sleep.For(ctx, wait) == nil; {
		end, limit := l.end(), time.Now().Add(max(third, minRenewal)) // a call that hangs must leave time for a retry
		if limit.After(end) {
			limit = end
		}
		once, stop := context.WithDeadline(ctx, limit)
		err := l.Renew(once)
		stop()
		switch left := time.Until(l.end()); {
		case err == nil:
			wait = due()
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
