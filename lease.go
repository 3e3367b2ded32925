package weir

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/guard"
	"github.com/weir-go/weir/store"
)

const (
	// minPoll and maxPoll are the bounds of the time between two attempts of Acquire.
	minPoll = 5 * time.Millisecond
	maxPoll = 250 * time.Millisecond

	// minRenewal is how long KeepAlive waits for a renewal, at least.
	minRenewal = time.Second
)

// A Lease allows its holder to run under an algorithm.Concurrency until Finish or Release
// is called, or until its lease time has passed since the last renewal. It is safe for
// concurrent use.
type Lease struct {
	Result // the answer when the lease was acquired

	limiter *Limiter
	request Request
	own     bool          // nobody else can use the ID
	time    time.Duration // the lease time
	lost    int           // the tries whose reply is lost: the store may have acquired the lease

	released context.Context // ends when Release or Finish is called
	release  context.CancelFunc
	finished atomic.Bool // a Finish has succeeded

	mu    sync.Mutex
	until time.Time // when the lease expires, by this process's clock; it can expire a little later
}

var errNoLease = errors.New("weir: the Lease is nil or a zero value: Limiter.Acquire and TryAcquire return one")

// TryAcquire makes the decision that r asks for, and returns its lease, if every rule
// allows it now. Otherwise the error is [ErrDenied]. One rule must be an
// algorithm.Concurrency, and r.Op must be [Consume]. If r.ID is empty, TryAcquire uses a
// random one.
//
// With [Options].Settles, the ID names a piece of work: its lease, and its bill, which is
// what the other rules have consumed. Call [Lease.Finish] at its end. All who use the ID
// share both, and whoever finishes the work ends it for all. While the bill is kept, a
// repeat is free: it renews the lease, or takes one again, and is denied with
// [Result].Replayed if none is free. Who is denied can ask again, or leave it.
//
// After [store.ErrUnavailable], the store may hold the lease until it expires, so choose
// a short lease time, and use [Lease.KeepAlive]. If ctx ends or package outage denies the
// request, TryAcquire undoes what the store may have granted, within one second: it
// refunds the bill, and releases the lease. If that fails or finds nothing, the request
// may still be granted later, so this process repeats the undo about 1 s, 5 s and 25 s
// later. If r has an ID, it undoes nothing, because another request can use the lease.
func (l *Limiter) TryAcquire(ctx context.Context, r Request) (*Lease, error) {
	lease, err := l.newLease(r)
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
func (l *Limiter) Acquire(ctx context.Context, r Request) (held *Lease, err error) {
	lease, err := l.newLease(r)
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
		if guard.Sleep(ctx, pause) != nil {
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

// newLease returns a lease for r, which is not acquired yet.
func (l *Limiter) newLease(r Request) (*Lease, error) {
	switch {
	case l == nil || l.ruleSet == nil:
		return nil, errNoLimiter
	case l.ruleSet.leases == nil:
		return nil, fail(ErrUnsupported, "Acquire and TryAcquire: no rule holds leases: a rule must be an algorithm.Concurrency")
	case r.Op != Consume:
		return nil, fail(ErrUnsupported, "Acquire and TryAcquire: Request.Op is %v: it must be Consume", r.Op)
	}
	lease := &Lease{limiter: l, request: r, own: r.ID == "", time: l.ruleSet.lease}
	if lease.own {
		lease.request.ID = rand.Text()
	}
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
	if guard.Lost(err, res.Degraded, ctx.Err() != nil) || err == nil && !res.Allowed && res.Replayed { // a client or a wrapper can repeat a call
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

// giveUp undoes what the store may have granted to a try whose reply is lost, and returns
// err. If that fails, and err is no denial, it returns both errors.
func (l *Lease) giveUp(ctx context.Context, err error) error {
	if l.lost == 0 || !l.own {
		return err
	}
	l.release()
	undo := l.request
	undo.Op, undo.Actual = l.limiter.ruleSet.Undo()
	failed := guard.Chase(ctx, l.limiter.ruleSet.Life(&l.request), func(ctx context.Context) (bool, error) {
		res, err := l.limiter.Decide(ctx, undo, nil)
		return (res.Allowed || res.Replayed) && l.lost == 1, err // each of several tries can still be granted
	})
	if _, denied := err.(*DeniedError); failed == nil || denied {
		return err
	}
	return errors.Join(err, failed)
}

// LeaseTime returns the shortest lease time of the rules and shadow rules, or [Never] if none
// holds leases.
func (l *Limiter) LeaseTime() time.Duration {
	if l == nil || l.ruleSet == nil {
		return Never
	}
	return l.ruleSet.renews
}

// Undo returns the Op and the Actual of a request that undoes a decision with a lease.
// Package gate finds it with Find.
func (b *ruleSet) Undo() (Op, Actual) {
	if b.all.program.Bills() {
		return Finish, ActualRefund()
	}
	return Release, Actual{}
}

// Life returns how long what r is granted can stay. Package gate finds it with Find.
func (b *ruleSet) Life(r *Request) (life time.Duration) {
	if b.all.program.Bills() {
		return Never
	}
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

// ID returns the [Request].ID, which names the lease.
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
	if l.finished.Load() {
		return false, nil
	}
	res, err := l.do(ctx, Release)
	return res.Allowed, err
}

// Finish ends the work: it gives the decision the actual cost, as [Limiter.Finish] does,
// and releases the lease, in one call. It makes KeepAlive return. The zero Actual means
// that the work costs what the decision has consumed, and [ActualRefund] that it costs
// nothing.
//
// Finish can be retried after an error, as long as nobody else can have begun work under
// the ID. After a Finish that the store has made, the Lease sends nothing more: Finish and
// Release return false, and Renew an [ErrLeaseLost].
func (l *Lease) Finish(ctx context.Context, actual Actual) (Settlement, error) {
	if l == nil || l.limiter == nil {
		return Settlement{}, errNoLease
	}
	r := l.request
	r.Op, r.Actual = Finish, actual
	if err := l.limiter.Check(r, nil); err != nil {
		return Settlement{}, err // the lease is still held
	}
	l.release()
	if l.finished.Load() {
		return Settlement{}, nil
	}
	res, err := l.limiter.Decide(ctx, r, nil)
	if err == nil && res.Degraded == nil {
		l.finished.Store(true)
	}
	return settlement(&res), err
}

// Renew starts the full lease time again, or returns [ErrLeaseLost]. It consumes nothing
// from other rules.
func (l *Lease) Renew(ctx context.Context) error {
	if l == nil || l.limiter == nil {
		return errNoLease
	}
	if l.finished.Load() {
		return errLeaseLost
	}
	start := time.Now()
	res, err := l.do(ctx, Renew)
	switch {
	case err != nil:
		return err
	case !res.Allowed:
		return errLeaseLost
	}
	l.extend(start)
	return nil
}

var errLeaseLost = fail(ErrLeaseLost, "the lease is lost: it was released or has expired: acquire another")

// KeepAlive renews the lease whenever a third of the lease time has passed, until ctx
// ends, or Release or Finish is called. Start it in a goroutine.
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
		return max(time.Until(l.end())-l.time+l.limiter.ruleSet.renews/3, time.Millisecond)
	}
	for wait := due(); guard.Sleep(ctx, wait) == nil; {
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
