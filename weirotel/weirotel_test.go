package weirotel_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/denycache"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirotel"
)

// observed returns a limiter of two rules with an observer over provider: 10 tokens, and
// 20 of the whole tenant. A shadow rule has 8 tokens.
func observed(t testing.TB, provider metric.MeterProvider) *weir.Limiter {
	t.Helper()
	lim, err := weir.NewPolicy(memory.New(nil), weir.Policy{
		Name:     "t",
		Segments: []string{"tenant", "user"},
		Rules: []weir.Rule{
			{Name: "user", Algorithm: algorithm.FixedWindow{Limit: 10, Window: time.Hour}},
			{Name: "tenant", By: []string{"tenant"}, Algorithm: algorithm.FixedWindow{Limit: 20, Window: time.Hour}},
			{Name: "next", Algorithm: algorithm.FixedWindow{Limit: 8, Window: time.Hour}, Shadow: true},
		},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	observer, err := weirotel.New(provider, attribute.String("weir.limiter", "api"))
	if err != nil {
		t.Fatal(err)
	}
	if lim, err = lim.Wrap(observer.Wrap); err != nil {
		t.Fatal(err)
	}
	return lim
}

// use makes 12 requests of one user, of which 10 are allowed, two Peeks, and a mistake.
func use(t testing.TB, lim *weir.Limiter) {
	t.Helper()
	for range 12 {
		if _, err := lim.Allow(t.Context(), "acme", "ann"); err != nil {
			t.Fatal(err)
		}
	}
	for _, user := range []string{"ann", "bob"} {
		if _, err := lim.Peek(t.Context(), "acme", user); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := lim.Allow(t.Context(), "acme"); !errors.Is(err, weir.ErrInvalidKey) {
		t.Fatal(err)
	}
}

// The metrics have the documented names, units, attributes and values.
func TestMetrics(t *testing.T) {
	reader := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	use(t, observed(t, provider))

	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	if len(all.ScopeMetrics) != 1 || all.ScopeMetrics[0].Scope.Name != weirotel.Scope {
		t.Fatalf("got scopes %+v", all.ScopeMetrics)
	}
	var got []string
	for _, m := range all.ScopeMetrics[0].Metrics {
		name := m.Name + " " + m.Unit
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				got = append(got, fmt.Sprint(name, " ", list(p.Attributes), " ", p.Value))
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				got = append(got, fmt.Sprint(name, " ", list(p.Attributes), " ", p.Count))
				if p.Sum <= 0 {
					t.Errorf("%s: the sum is %v s", name, p.Sum)
				}
			}
		}
	}
	want := []string{
		"weir.decision.duration s weir.limiter=api weir.op=Consume weir.outcome=allowed 8",
		"weir.decision.duration s weir.limiter=api weir.op=Consume weir.outcome=denied 2",
		"weir.decision.duration s weir.limiter=api weir.op=Consume weir.outcome=failed 1",
		"weir.decision.duration s weir.limiter=api weir.op=Consume weir.outcome=shadow_denied 2",
		"weir.decision.duration s weir.limiter=api weir.op=Peek weir.outcome=allowed 1",
		"weir.decision.duration s weir.limiter=api weir.op=Peek weir.outcome=denied 1",
		"weir.decisions {decision} weir.limiter=api weir.op=Consume weir.outcome=allowed weir.rule=user 8",
		"weir.decisions {decision} weir.limiter=api weir.op=Consume weir.outcome=denied weir.rule=user 2",
		"weir.decisions {decision} weir.limiter=api weir.op=Consume weir.outcome=failed weir.rule= 1",
		"weir.decisions {decision} weir.limiter=api weir.op=Consume weir.outcome=shadow_denied weir.rule=user 2",
		"weir.decisions {decision} weir.limiter=api weir.op=Peek weir.outcome=allowed weir.rule=user 1",
		"weir.decisions {decision} weir.limiter=api weir.op=Peek weir.outcome=denied weir.rule=user 1",
		"weir.near_limit {request} weir.limiter=api weir.rule=user 3", // with 2, 1 and 0 tokens left
		"weir.shadow_denied {request} weir.limiter=api weir.rule=next 4",
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func list(set attribute.Set) string {
	var all []string
	for _, kv := range set.ToSlice() {
		all = append(all, string(kv.Key)+"="+kv.Value.Emit())
	}
	return strings.Join(all, " ")
}

// A scrape of the Prometheus exporter has the metrics under the names that Prometheus
// gives them.
func TestPrometheus(t *testing.T) {
	got := scrape(t)
	for _, want := range []string{
		`weir_decisions_total\{.*weir_op="Consume",weir_outcome="denied",weir_rule="user"\} 2`,
		`weir_decision_duration_seconds_bucket\{.*weir_op="Peek",weir_outcome="allowed",le="\+Inf"\} 1`,
		`weir_near_limit_total\{.*weir_rule="user"\} 3`,
		`\nweir_outage\{.*weir_limiter="api"\} 0`,
		`\nweir_outages_total\{.*weir_limiter="api"\} 0`,
		`\nweir_denycache_answers_total\{.*\} 0`,
	} {
		if !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	if strings.Contains(got, "ann") {
		t.Error("a key is in the metrics")
	}
}

// scrape makes decisions, and returns what the Prometheus exporter says of them, of a
// Breaker and of a Cache.
func scrape(t *testing.T) string {
	registry := prometheus.NewRegistry()
	e, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		t.Fatal(err)
	}
	provider := sdk.NewMeterProvider(sdk.WithReader(e))
	use(t, observed(t, provider))
	if _, err := weirotel.WatchOutage(provider, outage.New(nil), attribute.String("weir.limiter", "api")); err != nil {
		t.Fatal(err)
	}
	if _, err := weirotel.WatchDenyCache(provider, denycache.New(nil)); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// The span of the request shows the decision, even if it was refunded later.
func TestSpan(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tracer := trace.NewTracerProvider(trace.WithSpanProcessor(spans)).Tracer("t")
	ctx, span := tracer.Start(t.Context(), "request")
	lim, r := observed(t, noop.NewMeterProvider()), weir.Request{Key: weir.KeyOf("acme", "ann"), ID: "1"}
	if _, err := lim.Decide(ctx, r, nil); err != nil {
		t.Fatal(err)
	}
	if refunded, err := lim.Refund(ctx, r); err != nil || !refunded.Found {
		t.Fatal(refunded, err)
	}
	span.End()
	got := list(attribute.NewSet(spans.Ended()[0].Attributes()...))
	if want := "weir.limit=10 weir.op=Consume weir.outcome=allowed weir.remaining=9 weir.rule=user"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A span shows the amount of each unit.
func TestSpanOfUnits(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	ctx, span := trace.NewTracerProvider(trace.WithSpanProcessor(spans)).Tracer("t").Start(t.Context(), "request")
	observer, err := weirotel.New(noop.NewMeterProvider())
	if err != nil {
		t.Fatal(err)
	}
	observer(ctx, observe.Decision{Request: weir.Request{Costs: weir.CostsOf(map[string]int64{"input": 3, "output": 0})}})
	span.End()
	got := list(attribute.NewSet(spans.Ended()[0].Attributes()...))
	if want := "weir.costs.input=3 weir.costs.output=0 weir.limit=0 "; !strings.HasPrefix(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Every outcome of the store is counted, by many goroutines at once.
func TestConcurrent(t *testing.T) {
	reader := sdk.NewManualReader()
	observer, err := weirotel.New(sdk.NewMeterProvider(sdk.WithReader(reader)))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 100 {
				observer(context.Background(), observe.Decision{Err: []error{store.ErrUnavailable, context.Canceled}[i%2]})
			}
		})
	}
	wg.Wait()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	counted := map[string]int64{}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if data, ok := m.Data.(metricdata.Sum[int64]); ok {
			for _, p := range data.DataPoints {
				outcome, _ := p.Attributes.Value("weir.outcome")
				counted[outcome.Emit()] += p.Value
			}
		}
	}
	if counted["unavailable"] != 400 || counted["canceled"] != 400 || len(counted) != 2 {
		t.Errorf("got %v, want 400 of each", counted)
	}
}

// An observer keeps its attributes, even if the caller reuses the slice.
func TestAttrs(t *testing.T) {
	reader := sdk.NewManualReader()
	attrs := []attribute.KeyValue{attribute.String("weir.limiter", "api")}
	observer, err := weirotel.New(sdk.NewMeterProvider(sdk.WithReader(reader)), attrs...)
	if err != nil {
		t.Fatal(err)
	}
	attrs[0] = attribute.String("weir.limiter", "login")
	observer(t.Context(), observe.Decision{})
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if data, ok := m.Data.(metricdata.Sum[int64]); ok {
			if got := list(data.DataPoints[0].Attributes); !strings.HasPrefix(got, "weir.limiter=api ") {
				t.Errorf("%s: got %s", m.Name, got)
			}
		}
	}
}

// A nil provider is an error that says what to pass.
func TestNil(t *testing.T) {
	for _, provider := range []metric.MeterProvider{nil, (*sdk.MeterProvider)(nil)} {
		if _, err := weirotel.New(provider); err == nil || !strings.Contains(err.Error(), "otel.GetMeterProvider()") {
			t.Errorf("%T: got %v", provider, err)
		}
	}
}

func BenchmarkObserver(b *testing.B) {
	observer, err := weirotel.New(sdk.NewMeterProvider(sdk.WithReader(sdk.NewManualReader())))
	if err != nil {
		b.Fatal(err)
	}
	d := observe.Decision{Result: weir.Result{Allowed: true, Rule: "user", Limit: 10, Remaining: 9}, Took: time.Millisecond}
	b.ReportAllocs()
	for b.Loop() {
		observer(b.Context(), d)
	}
}
