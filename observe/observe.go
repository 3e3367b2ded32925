// Package observe counts and logs the decisions of a limiter:
//
//	lim, err = lim.Wrap(observe.Observer(func(ctx context.Context, d observe.Decision) {
//		decisions.WithLabelValues(d.Request.Op.String(), d.Result.Rule, string(d.Outcome())).Inc()
//	}).Wrap)
//
// [TopDenied] shows the keys that are denied most often.
package observe

import (
	"context"
	"errors"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/guard"
	"github.com/weir-go/weir/store"
)

// An Observer is called after every decision of a limiter, for metrics and logs. It is
// called in the goroutine of the caller, before the caller gets the result, and several
// goroutines can call it at once. Do not use keys as labels of metrics, because there are
// too many keys.
//
// To see every answer, including those of other wrappers, make the Observer the first
// argument of [weir.Limiter.Wrap]. To see only the decisions that reach the store, make
// it the last.
//
// An Observer sees the decisions of all verbs. A Wait makes one decision, and then a
// Refund if its context ends or if an outage denies it. Took does not include the wait.
// While its key is paused, the decision is a denial, and the Wait makes another one
// later. An Acquire makes a decision for each attempt. If it fails, and a reply may have
// been lost, it also makes one or more Releases. Decisions that a DoMany makes together
// have the same Took.
type Observer func(ctx context.Context, d Decision)

// A Decision is a request and its answer, as an [Observer] gets them.
type Decision struct {
	Request weir.Request // Costs.String lists its amounts by unit
	Result  weir.Result  // zero if Err is not nil
	Err     error
	Took    time.Duration // the time from the request to the answer
}

// DroppedUndos returns how many undos this process did not repeat, because it was already
// repeating 1,024: see [weir.Limiter.TryAcquire].
func DroppedUndos() int64 { return guard.Dropped.Load() }

// An Outcome says in one word how a decision ended. It suits a label of a metric.
type Outcome string

// Outcomes of decisions.
const (
	Allowed         Outcome = "allowed"          // for a Force, Refund, Settle, Finish, Release, Pause, Resume or Reset: done
	Denied          Outcome = "denied"           // for a Refund, Settle, Finish, Release or Resume: nothing was done
	ShadowDenied    Outcome = "shadow_denied"    // allowed, but a shadow rule would have denied: see weir.Rule.Shadow
	DegradedAllowed Outcome = "degraded_allowed" // without the store: see package outage
	DegradedDenied  Outcome = "degraded_denied"  // without the store
	Unavailable     Outcome = "unavailable"      // store.ErrUnavailable, or the context's deadline passed
	Canceled        Outcome = "canceled"         // the caller's context was canceled
	Failed          Outcome = "failed"           // store.ErrForeign, store.ErrScript, or misuse
)

// Outcome returns how the decision ended.
func (d *Decision) Outcome() Outcome {
	degraded := d.Result.Degraded != nil
	allowed := d.Result.Allowed || d.Request.Op == weir.Finish && d.Result.Replayed
	switch err := d.Err; {
	case err == nil && degraded && allowed:
		return DegradedAllowed
	case err == nil && degraded:
		return DegradedDenied
	case err == nil && allowed && errors.Is(d.Result.Shadow, weir.ErrDenied):
		return ShadowDenied
	case err == nil && allowed:
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

// Wrap is a [weir.Wrapper], which calls o after each decision. If o is nil, Wrap returns
// an error.
func (o Observer) Wrap(_ *weir.Limiter, next weir.Decider) (weir.Decider, error) {
	if o == nil {
		return nil, errors.New("observe: the Observer is nil: convert a function to an Observer")
	}
	if _, together := next.(weir.ManyDecider); together {
		return manyDecider{decider{next, o}}, nil
	}
	return decider{next, o}, nil
}

// A decider is the Decider of a limiter with an Observer.
type decider struct {
	next    weir.Decider
	observe Observer
}

// Unwrap returns the next Decider, for [weir.Find].
func (d decider) Unwrap() weir.Decider { return d.next }

// Decide implements [weir.Decider].
func (d decider) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	start := time.Now()
	res, err := d.next.Decide(ctx, r, each)
	d.observe(ctx, Decision{Request: r, Result: res, Err: err, Took: time.Since(start)})
	return res, err
}

// A manyDecider is the Decider of a limiter with an Observer around a [weir.ManyDecider].
type manyDecider struct{ decider }

// DecideMany implements [weir.ManyDecider].
func (d manyDecider) DecideMany(ctx context.Context, requests []weir.Request, answers []weir.Answer) {
	start := time.Now()
	weir.DecideMany(ctx, d.next, requests, answers)
	took := time.Since(start)
	for i, r := range requests {
		d.observe(ctx, Decision{Request: r, Result: answers[i].Result, Err: answers[i].Err, Took: took})
	}
}
