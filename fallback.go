package weir

import (
	"context"
	"errors"
	"time"

	"github.com/weir-go/weir/internal/failure"
	"github.com/weir-go/weir/store"
)

// This file has what a degraded answers if the store did not decide.

// answer answers r, which consumes or peeks. cause says why the store did not decide.
func (d *degraded) answer(ctx context.Context, r *Request, each []Result, cause *failure.Error) (res Result, err error) {
	var q query
	if err := d.bound.check(&q, r, len(each)); err != nil {
		return Result{}, err
	}
	if d.Fallback != FailLocal || d.never(&q) || d.shares() == nil {
		return d.fixed(&q, each, cause), nil
	}
	d.used.Store(true)
	err = d.shares().decide(ctx, r, each, &res)
	if errors.Is(err, store.ErrUnavailable) { // the process's store is full
		return d.fixed(&q, each, cause), nil
	}
	if err != nil {
		return Result{}, err
	}
	wait := d.breaker.wait()
	res.degrade(cause, wait)
	if len(each) > 0 {
		for i := range d.bound.rules {
			each[i].degrade(cause, wait)
		}
	}
	return res, nil
}

// degrade marks a result of FailLocal. After wait, the store may decide again: then the
// request may be allowed.
func (res *Result) degrade(cause *failure.Error, wait time.Duration) {
	res.Degraded = cause
	if !res.Allowed {
		res.RetryAfter = min(res.RetryAfter, wait)
	}
}

// cost returns what q consumes from r, at least.
func (r *rule) costOf(q *query) int64 {
	switch {
	case r.cost > 0:
		return r.cost
	case q.op == TakeUpTo:
		return 1
	}
	return q.Call.Cost
}

// never reports whether q can never be allowed, whatever the store holds.
func (d *degraded) never(q *query) bool {
	for i := range d.bound.rules {
		if r := &d.bound.rules[i]; r.costOf(q) > r.limit.Capacity {
			return true
		}
	}
	return false
}

// fixed answers q without counting: FailOpen allows it, and the others deny it.
func (d *degraded) fixed(q *query, each []Result, cause *failure.Error) (res Result) {
	rules := d.bound.rules
	open := d.Fallback == FailOpen
	wait := d.breaker.wait()
	allowed := open && !d.never(q)
	most := q.Call.Cost
	for i := range rules {
		if r := &rules[i]; r.cost == 0 && q.op == TakeUpTo {
			most = min(most, r.limit.Capacity)
		}
	}
	granted := int64(-1)
	for i := range rules {
		r := &rules[i]
		one := Result{Allowed: open, Rule: r.name, Limit: r.limit.Capacity, Window: r.limit.Window, Degraded: cause}
		if !open {
			one.RetryAfter = wait
		}
		if r.costOf(q) > r.limit.Capacity {
			one.Allowed, one.RetryAfter = false, Never
		}
		if !one.Allowed {
			one.Delay = Never
		}
		if allowed && q.op != Peek {
			if one.Granted = r.cost; r.cost == 0 {
				one.Granted, granted = most, most
			}
		}
		if len(each) > 0 {
			each[i] = one
		}
		if i == 0 || one.RetryAfter > res.RetryAfter {
			res = one
		}
	}
	if granted >= 0 {
		res.Granted = granted
	}
	return res
}

// shares returns the rules of the process's share. It makes them when they are needed, so
// that Limiter.With stays cheap. It returns nil if a rule has no share.
func (d *degraded) shares() *bound {
	if d.store != nil {
		d.once.Do(func() { d.share, _ = d.shareOf(d.bound) })
	}
	return d.share
}

// local lets the process's share decide r, if it has decided anything before.
func (d *degraded) local(ctx context.Context, r *Request, each []Result) (res Result, err error) {
	if d.used.Load() && d.shares() != nil {
		err = d.shares().decide(ctx, r, each, &res)
	}
	return res, err
}

// renew renews a lease where it is held. A lease that the process's share gave stays there,
// also after the outage.
func (d *degraded) renew(ctx context.Context, r *Request, each []Result) (Result, error) {
	if res, err := d.local(ctx, r, each); err == nil && res.Allowed {
		res.Degraded = errLocalLease
		return res, nil
	}
	res, cause, err := d.ask(ctx, r, each)
	if cause != nil {
		return Result{}, cause
	}
	return res, err
}

// errLocalLease is the Degraded of a lease that the store does not hold.
var errLocalLease = failure.New(store.ErrUnavailable, "weir: the lease was acquired during an outage: the process holds it, and the store does not know it")

// undo refunds, settles or releases r wherever it was decided. If the store's answer was lost, that
// can be in the store and in the process.
func (d *degraded) undo(ctx context.Context, r *Request, each []Result) (Result, error) {
	here, err := d.local(ctx, r, nil)
	if errors.Is(err, ErrInvalidCost) && r.Op != Settle { // a share has a lower bound
		return Result{}, err
	}
	res, cause, err := d.ask(ctx, r, each)
	switch {
	case cause != nil && here.Allowed:
		if len(each) > 0 {
			clear(each[:len(d.bound.rules)])
		}
		return Result{Allowed: true, Granted: here.Granted, Degraded: cause}, nil
	case cause != nil:
		return Result{}, cause
	}
	if err == nil && !res.Allowed {
		res.Allowed, res.Granted = here.Allowed, here.Granted
	}
	return res, err
}
