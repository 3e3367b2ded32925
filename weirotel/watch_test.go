package weirotel_test

import (
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/denycache"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/weirotel"
)

// The state of an outage, and the answers of a cache, are exported until they are
// unregistered.
func TestWatch(t *testing.T) {
	reader := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	out, cache, st := outage.New(&outage.Options{Failures: 1, Budget: time.Minute}), denycache.New(nil), weirtest.NewFaulty()
	lim := weirtest.Wrap(t, weirtest.New(t, st, algorithm.FixedWindow{Limit: 1, Window: time.Hour}), cache.Wrap, out.Wrap)
	name := attribute.String("weir.limiter", "api")
	watched, err := weirotel.WatchOutage(provider, out, name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := weirotel.WatchDenyCache(provider, cache, name); err != nil {
		t.Fatal(err)
	}
	allow := func(key string) {
		if _, err := lim.Allow(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	wantLines(t, collect(t, reader), "weir.denycache.answers {request} weir.limiter=api 0", "weir.outage  weir.limiter=api 0", "weir.outages {outage} weir.limiter=api 0")
	for range 4 { // one is allowed, the store denies one, and the cache two
		allow("ann")
	}
	st.Set(weirtest.Down)
	allow("bob")
	wantLines(t, collect(t, reader), "weir.denycache.answers {request} weir.limiter=api 2", "weir.outage  weir.limiter=api 1", "weir.outages {outage} weir.limiter=api 1")
	if err := watched.Unregister(); err != nil {
		t.Fatal(err)
	}
	wantLines(t, collect(t, reader), "weir.denycache.answers {request} weir.limiter=api 2")
}

// A mistake is an error that says what to pass.
func TestErrors(t *testing.T) {
	provider, none := sdk.NewMeterProvider(), (*sdk.MeterProvider)(nil)
	for says, f := range map[string]func() (any, error){
		"the Breaker is nil":                func() (any, error) { return weirotel.WatchOutage(provider, nil) },
		"the Cache is nil":                  func() (any, error) { return weirotel.WatchDenyCache(provider, nil) },
		"the MeterProvider is nil":          func() (any, error) { return weirotel.WatchOutage(nil, outage.New(nil)) },
		"MeterProvider is nil: pass":        func() (any, error) { return weirotel.WatchDenyCache(none, denycache.New(nil)) },
		"for example otel.GetMeterProvider": func() (any, error) { return weirotel.New(nil) },
		"otel.GetMeterProvider()":           func() (any, error) { return weirotel.New(none) },
	} {
		_, err := f()
		weirtest.WantError(t, err, nil, "weirotel", says)
	}
}
