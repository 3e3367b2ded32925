package outage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/guard"
	"github.com/weir-go/weir/internal/prose"
	"github.com/weir-go/weir/store"
)

// A decider is the Decider of a limiter in a Breaker.
type decider struct {
	*Breaker
	lim   *weir.Limiter
	next  weir.Decider
	rules []weir.RuleInfo       // without the shadow rules
	units bool                  // a rule counts a unit
	share atomic.Pointer[share] // nil unless the Fallback is Local
	last  atomic.Pointer[degradations]
}

// Unwrap returns the next Decider, for [weir.Find].
func (d *decider) Unwrap() weir.Decider { return d.next }

// Decide implements [weir.Decider].
func (d *decider) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	switch r.Op {
	case weir.Consume, weir.Peek, weir.TakeUpTo:
		res, cause, err := d.ask(ctx, &r, each)
		if cause != nil {
			return d.answer(ctx, &r, each, cause)
		}
		return res, err
	case weir.Renew:
		return d.renew(ctx, &r, each)
	case weir.Refund, weir.Settle, weir.Finish, weir.Release:
		return d.undo(ctx, &r, each)
	}
	res, cause, err := d.ask(ctx, &r, each)
	switch {
	case cause != nil:
		return weir.Result{}, cause
	case err == nil && r.Op == weir.Reset:
		_, _ = d.decideLocally(ctx, &r, nil)
	}
	return res, err
}

// ask sends r to the next Decider. If the store did not decide, cause says why, and r is
// valid.
func (d *decider) ask(ctx context.Context, r *weir.Request, each []weir.Result) (res weir.Result, cause *prose.Error, err error) {
	open := d.circuit.isOpen()
	if open {
		// Neither misuse nor a caller who has gone may take the place of a probe.
		if err := d.lim.Check(*r, each); err != nil {
			return weir.Result{}, nil, err
		}
		if err := ctx.Err(); err != nil {
			return weir.Result{}, nil, fmt.Errorf("outage: %w", err)
		}
	}
	res, cause, err = d.try(ctx, r, each)
	if cause != nil && !open {
		if err := d.lim.Check(*r, each); err != nil {
			return weir.Result{}, nil, err
		}
	}
	return res, cause, err
}

// try is ask for a request that may not be valid.
func (d *decider) try(ctx context.Context, r *weir.Request, each []weir.Result) (res weir.Result, cause *prose.Error, err error) {
	t, ok := d.circuit.enter()
	if !ok {
		return weir.Result{}, d.circuit.cause.Load(), nil
	}
	defer d.circuit.exit(t)
	short, cancel := d.within(ctx)
	defer cancel()
	res, err = d.next.Decide(short, *r, each)
	cause, answered, err := d.judge(ctx, short, err)
	switch {
	case cause != nil:
		d.circuit.fail(t, cause)
	case answered:
		d.circuit.succeed()
	}
	if answered { // even if the answer came too late
		return res, nil, err
	}
	return weir.Result{}, cause, err
}

// within returns ctx with the budget.
func (d *decider) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d.opts.Budget {
		return ctx, func() {} // this saves the allocations of a context
	}
	return context.WithTimeout(ctx, d.opts.Budget)
}

// judge says what err, from the next Decider, means. ctx is the caller's context, and
// short is ctx with the budget.
//
// cause is not nil if the call failed: the store was unavailable, or took longer than the
// budget. answered reports whether the store answered. If neither holds, the call says
// nothing about the store. If there is no cause, the error is for the caller.
func (d *decider) judge(ctx, short context.Context, err error) (cause *prose.Error, answered bool, _ error) {
	down := errors.Is(err, store.ErrUnavailable)
	over := short.Err() != nil || errors.Is(err, context.DeadlineExceeded)
	switch {
	case err == nil && !over, guard.Answered(err):
		return nil, true, err
	case err != nil && !down && !guard.Contextual(err): // misuse
		return nil, false, err
	case guard.Ended(ctx) && err == nil:
		return nil, true, nil
	case guard.Ended(ctx):
		return nil, false, callersError(ctx, err)
	case down:
		is := store.ErrUnavailable
		if errors.Is(err, store.ErrMisconfigured) {
			is = errMisconfigured
		}
		return prose.Errorf(is, "outage: the store did not decide: %s", plain(err)), false, nil
	case over && short != ctx:
		text := fmt.Sprintf("outage: the store did not decide within the budget of %v", d.opts.Budget)
		if end, _ := short.Deadline(); time.Since(end) > d.opts.Budget {
			text += fmt.Sprintf(": the call took %v: check that the store's client heeds deadlines", (d.opts.Budget + time.Since(end)).Round(time.Millisecond))
		}
		return &prose.Error{Text: text, Is: store.ErrUnavailable}, err == nil, nil
	}
	return nil, false, err // the error of another context, which a wrapper made
}

// errMisconfigured is what a cause wraps if somebody must correct a setting.
var errMisconfigured = fmt.Errorf("%w: %w", store.ErrUnavailable, store.ErrMisconfigured)

// callersError returns err as the error of ctx, which has ended.
func callersError(ctx context.Context, err error) error {
	if guard.Contextual(err) {
		return err
	}
	return fmt.Errorf("outage: %w: %w", cmp.Or(ctx.Err(), context.DeadlineExceeded), err)
}

const manyPerBudget = 100 // the largest number of requests that are sent at once within one budget

// DecideMany implements [weir.ManyDecider]. While the store works, it sends requests that
// only consume and peek in batches, if the next Decider takes batches. Otherwise each
// request has its own budget.
func (d *decider) DecideMany(ctx context.Context, requests []weir.Request, answers []weir.Answer) {
	_, together := d.next.(weir.ManyDecider)
	for n := 0; len(requests) > 0; requests, answers = requests[n:], answers[n:] {
		n = min(len(requests), manyPerBudget)
		plain := together && !slices.ContainsFunc(requests[:n], func(r weir.Request) bool { return r.Op > weir.TakeUpTo })
		if plain && !d.circuit.isOpen() && d.batch(ctx, requests[:n], answers[:n]) {
			continue
		}
		for i, r := range requests[:n] {
			answers[i].Result, answers[i].Err = d.Decide(ctx, r, nil)
		}
	}
}

// batch decides requests in one batch. It returns false if the circuit has just opened.
func (d *decider) batch(ctx context.Context, requests []weir.Request, answers []weir.Answer) bool {
	t, ok := d.circuit.enter()
	if !ok {
		return false
	}
	defer d.circuit.exit(t)
	short, cancel := d.within(ctx)
	defer cancel()
	weir.DecideMany(short, d.next, requests, answers)
	var failed *prose.Error
	works := false
	for i := range answers {
		cause, answered, err := d.judge(ctx, short, answers[i].Err)
		works = works || answered && cause == nil
		if answers[i].Err = err; cause == nil {
			continue
		}
		failed = cause
		if !answered {
			answers[i].Result, answers[i].Err = d.degraded(cause).other.Decide(ctx, requests[i], nil)
		}
	}
	switch {
	case works: // even if a node of a cluster does not
		d.circuit.succeed()
	case failed != nil:
		d.circuit.fail(t, failed)
	}
	return true
}
