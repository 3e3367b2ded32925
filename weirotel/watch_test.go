package weirotel_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/denycache"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirotel"
)

// A switched is a store that can be away.
type switched struct {
	store.Store
	away bool
}

func (s *switched) Eval(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	if s.away {
		return reply, store.ErrUnavailable
	}
	return s.Store.Eval(ctx, script, keys, args, reply)
}

// The state of an outage, and the answers of a cache, are exported until they are
// unregistered.
func TestWatch(t *testing.T) {
	reader := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	out, cache := outage.New(&outage.Options{Failures: 1, Budget: time.Minute}), denycache.New(nil)
	st := &switched{Store: memory.New(nil)}
	lim, err := weir.New("t", st, algorithm.FixedWindow{Limit: 1, Window: time.Hour}, nil)
	if err == nil {
		lim, err = lim.Wrap(cache.Wrap, out.Wrap)
	}
	if err != nil {
		t.Fatal(err)
	}
	name := attribute.String("weir.limiter", "api")
	watched, err := weirotel.WatchOutage(provider, out, name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := weirotel.WatchDenyCache(provider, cache, name); err != nil {
		t.Fatal(err)
	}
	want := func(want ...string) {
		t.Helper()
		var all metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		var got []string
		add := func(name string, points []metricdata.DataPoint[int64]) {
			for _, p := range points {
				limiter, _ := p.Attributes.Value("weir.limiter")
				got = append(got, fmt.Sprint(name, " ", limiter.AsString(), " ", p.Value))
			}
		}
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				switch data := m.Data.(type) {
				case metricdata.Gauge[int64]:
					add(m.Name, data.DataPoints)
				case metricdata.Sum[int64]:
					add(m.Name, data.DataPoints)
				}
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	allow := func(key string) {
		if _, err := lim.Allow(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	want("weir.denycache.answers api 0", "weir.outage api 0", "weir.outages api 0")
	for range 4 { // one is allowed, the store denies one, and the cache two
		allow("ann")
	}
	st.away = true
	allow("bob")
	want("weir.denycache.answers api 2", "weir.outage api 1", "weir.outages api 1")
	if err := watched.Unregister(); err != nil {
		t.Fatal(err)
	}
	want("weir.denycache.answers api 2")
}

// A mistake is an error when the watch begins.
func TestWatchErrors(t *testing.T) {
	t.Parallel()
	provider := sdk.NewMeterProvider()
	var none *sdk.MeterProvider
	for says, watch := range map[string]func() (metric.Registration, error){
		"the Breaker is nil":       func() (metric.Registration, error) { return weirotel.WatchOutage(provider, nil) },
		"the Cache is nil":         func() (metric.Registration, error) { return weirotel.WatchDenyCache(provider, nil) },
		"the MeterProvider is nil": func() (metric.Registration, error) { return weirotel.WatchOutage(nil, outage.New(nil)) },
		"MeterProvider is nil":     func() (metric.Registration, error) { return weirotel.WatchDenyCache(none, denycache.New(nil)) },
	} {
		if r, err := watch(); r != nil || err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, %v, want an error that says %q", r, err, says)
		}
	}
}
