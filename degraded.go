package weir

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/failure"
	"github.com/weir-go/weir/internal/guard"
	"github.com/weir-go/weir/store"
)

// A degraded is the Decider of Limiter.OnOutage.
type degraded struct {
	*outage
	bound *bound
	next  Decider

	once  sync.Once
	share *bound // nil if a rule has no share
}

// Decide implements [Decider].
func (d *degraded) Decide(ctx context.Context, r Request, each []Result) (Result, error) {
	switch r.Op {
	case Consume, Peek, TakeUpTo:
		res, cause, err := d.ask(ctx, &r, each)
		if cause != nil {
			return d.answer(ctx, &r, each, cause)
		}
		return res, err
	case Renew:
		return d.renew(ctx, &r, each)
	case Refund, Settle, Release:
		return d.undo(ctx, &r, each)
	}
	res, cause, err := d.ask(ctx, &r, each)
	switch {
	case cause != nil:
		return Result{}, cause
	case err == nil && r.Op == Reset:
		_, _ = d.local(ctx, &r, nil)
	}
	return res, err
}

// ask sends r to the next Decider. If the store did not decide, cause says why.
func (d *degraded) ask(ctx context.Context, r *Request, each []Result) (res Result, cause *failure.Error, err error) {
	if d.breaker.isOpen() {
		// Neither misuse nor a caller who has gone may take the place of a probe.
		var q query
		if err := d.bound.check(&q, r, len(each)); err != nil {
			return Result{}, nil, err
		}
		if err := ctx.Err(); err != nil {
			return Result{}, nil, fmt.Errorf("weir: %w", err)
		}
	}
	t, ok := d.breaker.enter()
	if !ok {
		return Result{}, d.breaker.cause.Load(), nil
	}
	defer d.breaker.exit(t)
	short, cancel := d.within(ctx)
	defer cancel()
	res, err = d.next.Decide(short, *r, each)
	cause, answered, err := d.judge(ctx, short, err)
	switch {
	case cause != nil:
		d.breaker.fail(t, cause)
	case answered:
		d.breaker.succeed()
	}
	if answered { // also if the answer came too late
		return res, nil, err
	}
	return Result{}, cause, err
}

// within returns ctx with the budget.
func (d *degraded) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d.Budget {
		return ctx, func() {} // this saves the allocations of a context
	}
	return context.WithTimeout(ctx, d.Budget)
}

// judge says what err means, which the next Decider returned. ctx is the caller's context,
// and short is ctx with the budget.
//
// cause is not nil if the call failed: the store was unavailable, or took longer than the
// budget. answered reports whether the store answered. If neither holds, the call says
// nothing about the store. The error is for the caller; it is nil if cause is not.
func (d *degraded) judge(ctx, short context.Context, err error) (cause *failure.Error, answered bool, _ error) {
	down := errors.Is(err, store.ErrUnavailable)
	over := short.Err() != nil || errors.Is(err, context.DeadlineExceeded)
	switch {
	case err == nil && !over, errors.Is(err, store.ErrForeign), errors.Is(err, store.ErrScript):
		return nil, true, err
	case err != nil && !down && !guard.Contextual(err): // misuse
		return nil, false, err
	case guard.Ended(ctx) && err == nil:
		return nil, true, nil
	case guard.Ended(ctx):
		return nil, false, callersError(ctx, err)
	case down:
		return failure.New(store.ErrUnavailable, "weir: the store did not decide: %s", plain(err)), false, nil
	case over && short != ctx:
		text := fmt.Sprintf("the store did not decide within the budget of %v", d.Budget)
		if end, _ := short.Deadline(); time.Since(end) > d.Budget {
			text += fmt.Sprintf(": the call took %v: check that the store's client heeds deadlines", (d.Budget + time.Since(end)).Round(time.Millisecond))
		}
		return failure.New(store.ErrUnavailable, "weir: %s", text), err == nil, nil
	}
	return nil, false, err // the error of another context, which a wrapper made
}

// callersError returns err as the error of ctx, which has ended.
func callersError(ctx context.Context, err error) error {
	if guard.Contextual(err) {
		return err
	}
	why := ctx.Err()
	if why == nil {
		why = context.DeadlineExceeded
	}
	return fmt.Errorf("weir: %w: %w", why, err)
}
