// Package weirotel records the decisions of limiters with OpenTelemetry: metrics of every
// decision, and attributes of the span in its context.
//
//	observer, err := weirotel.New(otel.GetMeterProvider(), attribute.String("weir.limiter", "api"))
//	if err != nil {
//		return err
//	}
//	lim, err = lim.Wrap(observer.Wrap)
//
// The metrics are:
//
//	weir.decisions           counter    decisions, by weir.op, weir.rule and weir.outcome
//	weir.decision.duration   histogram  seconds that a decision took, by weir.op and weir.outcome
//	weir.near_limit          counter    allowed requests that left the rule at most a fifth of its limit, by weir.rule
//	weir.shadow_denied       counter    requests that a shadow rule would have denied, by weir.rule, the shadow rule
//
// A Peek counts only as a decision, not as a request.
//
// The rule of a denied request has the longest RetryAfter, and the rule of an allowed
// request has the fewest tokens left: see [weir.Result]. For a Refund or a Settle, it is
// Kept of the [weir.Settlement]. For a Release, a Pause, a Resume, a Reset or a failed
// decision, weir.rule is empty. See [observe.Outcome] for the outcomes.
//
// The metric weir.near_limit looks at this rule only. It says little about an
// algorithm.LeakyBucket, which most allowed requests leave without a token, and about a
// limit below 5, where it counts only the requests that leave no token. If rules count
// units, watch those with large amounts by their denials: a rule that counts requests
// nearly always has the fewest tokens left.
//
// A span that is recorded gets the attributes weir.op, weir.outcome, weir.rule,
// weir.limit and weir.remaining, and the amount of each unit in Request.Costs, for
// example weir.costs.input. If a request makes several decisions, the span shows the last
// one that is not a Refund, a Settle, a Release, a Renew, a Pause, a Resume or a Reset.
// The metrics have neither costs nor amounts.
//
// The file dashboard.json beside this package is a Grafana dashboard of these metrics, as
// Prometheus stores them. Import it, and choose the data source. It tells limiters apart
// by the attribute weir.limiter.
//
// [WatchOutage] and [WatchDenyCache] add metrics that are read when they are exported:
//
//	weir.outage            gauge    1 during an outage of the store, otherwise 0
//	weir.outages           counter  outages that have begun
//	weir.denycache.answers counter  requests that remembered denials answered; weir.decisions counts them as denied
//
// No attribute holds a key: keys can be secret, and there are too many of them.
package weirotel

import (
	"context"
	"errors"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/observe"
)

// Scope is the name of the instrumentation scope.
const Scope = "github.com/weir-go/weir/weirotel"

// New returns an observer that records decisions with instruments of provider. Every
// measurement has attrs too: name the limiter in weir.limiter, if there are several. If
// provider is nil, or cannot make an instrument, New returns an error.
func New(provider metric.MeterProvider, attrs ...attribute.KeyValue) (observe.Observer, error) {
	meter, err := meterOf(provider)
	if err != nil {
		return nil, err
	}
	decisions, err1 := meter.Int64Counter("weir.decisions",
		metric.WithUnit("{decision}"), metric.WithDescription("Decisions of rate limiters."))
	duration, err2 := meter.Float64Histogram("weir.decision.duration",
		metric.WithUnit("s"), metric.WithDescription("Time that a decision of a rate limiter took."),
		metric.WithExplicitBucketBoundaries(.00001, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 2.5, 5, 10))
	near, err3 := meter.Int64Counter("weir.near_limit",
		metric.WithUnit("{request}"), metric.WithDescription("Allowed requests that left a rule at most a fifth of its limit."))
	shadow, err4 := meter.Int64Counter("weir.shadow_denied",
		metric.WithUnit("{request}"), metric.WithDescription("Requests that a shadow rule would have denied."))
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	r := &recorder{decisions: decisions, duration: duration, near: near, shadow: shadow, attrs: slices.Clone(attrs)}
	return r.observe, nil
}

type recorder struct {
	decisions metric.Int64Counter
	duration  metric.Float64Histogram
	near      metric.Int64Counter
	shadow    metric.Int64Counter
	attrs     []attribute.KeyValue
	sets      sync.Map // of labels, to *sets
}

// labels tell measurements apart. There are few of them.
type labels struct {
	op      weir.Op
	outcome observe.Outcome
	rule    string
}

// sets are the attributes of each instrument.
type sets struct{ decisions, duration, rule metric.MeasurementOption }

func (r *recorder) observe(ctx context.Context, d observe.Decision) {
	l := labels{d.Request.Op, d.Outcome(), d.Result.Rule}
	s := r.set(l)
	r.decisions.Add(ctx, 1, s.decisions)
	r.duration.Record(ctx, d.Took.Seconds(), s.duration)
	if l.op == weir.Consume || l.op == weir.TakeUpTo {
		if nearLimit(l, &d.Result) {
			r.near.Add(ctx, 1, s.rule)
		}
		var denied *weir.DeniedError
		if errors.As(d.Result.Shadow, &denied) {
			r.shadow.Add(ctx, 1, r.set(labels{l.op, l.outcome, denied.Result.Rule}).rule)
		}
	}
	switch l.op {
	case weir.Refund, weir.Settle, weir.Finish, weir.Release, weir.Renew, weir.Pause, weir.Resume, weir.Reset: // they say nothing about the limit
		return
	}
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(
			attribute.String("weir.op", l.op.String()),
			attribute.String("weir.outcome", string(l.outcome)),
			attribute.String("weir.rule", l.rule),
			attribute.Int64("weir.limit", d.Result.Limit),
			attribute.Int64("weir.remaining", d.Result.Remaining))
		for unit, amount := range d.Request.Costs.All() {
			span.SetAttributes(attribute.Int64("weir.costs."+unit, amount))
		}
	}
}

// nearLimit reports whether an allowed request left at most a fifth of the limit.
func nearLimit(l labels, res *weir.Result) bool {
	return (l.outcome == observe.Allowed || l.outcome == observe.ShadowDenied) && res.Remaining <= res.Limit/5
}

func (r *recorder) set(l labels) *sets {
	if s, ok := r.sets.Load(l); ok {
		return s.(*sets)
	}
	op, outcome, rule := attribute.String("weir.op", l.op.String()), attribute.String("weir.outcome", string(l.outcome)), attribute.String("weir.rule", l.rule)
	with := func(attrs ...attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(append(attrs, r.attrs...)...))
	}
	s, _ := r.sets.LoadOrStore(l, &sets{with(op, outcome, rule), with(op, outcome), with(rule)})
	return s.(*sets)
}
