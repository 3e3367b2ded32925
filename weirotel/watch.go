package weirotel

import (
	"context"
	"errors"
	"reflect"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/weir-go/weir/denycache"
	"github.com/weir-go/weir/outage"
)

// meterOf returns the meter of provider.
func meterOf(provider metric.MeterProvider) (metric.Meter, error) {
	if v := reflect.ValueOf(provider); provider == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errors.New("weirotel: the MeterProvider is nil: pass one, for example otel.GetMeterProvider()")
	}
	return provider.Meter(Scope), nil
}

// with returns the option of a measurement with attrs.
func with(attrs []attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(slices.Clone(attrs)...))
}

// WatchOutage exports the metrics weir.outage and weir.outages of b. Every measurement
// has attrs: name the Breaker there if there are several. The metrics end with Unregister
// of the registration. If provider or b is nil, or provider cannot make an instrument,
// WatchOutage returns an error.
func WatchOutage(provider metric.MeterProvider, b *outage.Breaker, attrs ...attribute.KeyValue) (metric.Registration, error) {
	meter, err := meterOf(provider)
	if err != nil {
		return nil, err
	}
	if b == nil {
		return nil, errors.New("weirotel: the Breaker is nil: pass the one whose Wrap the limiter has")
	}
	down, err1 := meter.Int64ObservableGauge("weir.outage", metric.WithDescription("1 during an outage of the store of rate limiters, otherwise 0."))
	begun, err2 := meter.Int64ObservableCounter("weir.outages",
		metric.WithUnit("{outage}"), metric.WithDescription("Outages of the store of rate limiters that have begun."))
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	set := with(attrs)
	return meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s, now := b.State(), int64(0)
		if s.Down {
			now = 1
		}
		o.ObserveInt64(down, now, set)
		o.ObserveInt64(begun, s.Outages, set)
		return nil
	}, down, begun)
}

// WatchDenyCache exports the metric weir.denycache.answers of c, in the same way as
// [WatchOutage].
func WatchDenyCache(provider metric.MeterProvider, c *denycache.Cache, attrs ...attribute.KeyValue) (metric.Registration, error) {
	meter, err := meterOf(provider)
	if err != nil {
		return nil, err
	}
	if c == nil {
		return nil, errors.New("weirotel: the Cache is nil: pass the one whose Wrap the limiter has")
	}
	answers, err := meter.Int64ObservableCounter("weir.denycache.answers",
		metric.WithUnit("{request}"), metric.WithDescription("Requests to rate limiters that remembered denials answered."))
	if err != nil {
		return nil, err
	}
	set := with(attrs)
	return meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		o.ObserveInt64(answers, c.Answers(), set)
		return nil
	}, answers)
}
