package weir

import (
	"context"
	"errors"
	"time"

	"github.com/weir-go/weir/store"
)

// An Observer is called after every decision of a limiter, for metrics and logs:
//
//	lim = lim.Wrap(weir.Observer(func(ctx context.Context, d weir.Decision) {
//		decisions.WithLabelValues(d.Request.Op.String(), d.Result.Rule, string(d.Outcome())).Inc()
//	}).Wrap)
//
// It is called in the goroutine of the caller, before the caller gets the result. Several
// goroutines can call it at once. Do not use keys as labels of metrics, because there are
// too many keys.
//
// To see only the decisions that reach the store, add the Observer before the other
// wrappers. To see every answer, also those of other wrappers, add it with a later call of
// [Limiter.Wrap], or as the first argument of the call.
//
// An Observer sees the decisions of all verbs. A Wait makes one decision, and a Refund if its
// context ends or if OnOutage denies it. Took does not include the wait. An Acquire makes a
// decision for each attempt, and a Release if it fails and a reply may be lost. A limiter with
// an Observer decides the requests of [Limiter.DoMany] one by one.
type Observer func(ctx context.Context, d Decision)

// A Decision is a request and its answer, as an [Observer] gets them.
type Decision struct {
	Request Request
	Result  Result // zero if Err is not nil
	Err     error
	Took    time.Duration // the time from the request to the answer
}

// An Outcome says in one word how a decision ended. It suits a label of a metric.
type Outcome string

// Outcomes of decisions.
const (
	Allowed         Outcome = "allowed"          // for a Force, Refund, Settle, Release or Reset: done
	Denied          Outcome = "denied"           // for a Refund, Settle or Release: there was nothing to do
	ShadowDenied    Outcome = "shadow_denied"    // allowed, but a shadow rule would have denied: see Rule.Shadow
	DegradedAllowed Outcome = "degraded_allowed" // without the store: see Limiter.OnOutage
	DegradedDenied  Outcome = "degraded_denied"  // without the store
	Unavailable     Outcome = "unavailable"      // store.ErrUnavailable, or the context's deadline passed
	Canceled        Outcome = "canceled"         // the caller's context was canceled
	Failed          Outcome = "failed"           // store.ErrForeign, store.ErrScript, or misuse
)

// Outcome returns how the decision ended.
func (d *Decision) Outcome() Outcome {
	degraded := d.Result.Degraded != nil
	switch err := d.Err; {
	case err == nil && degraded && d.Result.Allowed:
		return DegradedAllowed
	case err == nil && degraded:
		return DegradedDenied
	case err == nil && d.Result.Allowed && errors.Is(d.Result.Shadow, ErrDenied):
		return ShadowDenied
	case err == nil && d.Result.Allowed:
		return Allowed
	case err == nil:
		return Denied
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return Unavailable
	case errors.Is(err, context.Canceled):
		return Canceled
	default:
		return Failed
	}
}

// Wrap returns a [Decider] that passes requests on to next, and calls o after each. It is
// for [Limiter.Wrap]. If o is nil, Wrap returns next.
func (o Observer) Wrap(next Decider) Decider {
	if o == nil || next == nil {
		return next
	}
	return observed{next, o}
}

type observed struct {
	next    Decider
	observe Observer
}

// Decide implements [Decider].
func (o observed) Decide(ctx context.Context, r Request, each []Result) (Result, error) {
	start := time.Now()
	res, err := o.next.Decide(ctx, r, each)
	o.observe(ctx, Decision{Request: r, Result: res, Err: err, Took: time.Since(start)})
	return res, err
}
