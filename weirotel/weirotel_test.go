package weirotel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirotel"
)

// observed returns a limiter of two rules with an observer over provider: 10 tokens, and
// 20 of the whole tenant. A shadow rule has 8 tokens.
func observed(t testing.TB, provider metric.MeterProvider) *weir.Limiter {
	t.Helper()
	lim := weirtest.NewPolicy(t, memory.New(nil), weir.Policy{
		Segments: []string{"tenant", "user"},
		Rules: []weir.Rule{
			{Name: "user", Algorithm: algorithm.FixedWindow{Limit: 10, Window: time.Hour}},
			{Name: "tenant", By: []string{"tenant"}, Algorithm: algorithm.FixedWindow{Limit: 20, Window: time.Hour}},
			{Name: "next", Algorithm: algorithm.FixedWindow{Limit: 8, Window: time.Hour}, Shadow: true},
		},
	})
	observer, err := weirotel.New(provider, attribute.String("weir.limiter", "api"))
	if err != nil {
		t.Fatal(err)
	}
	return weirtest.Wrap(t, lim, observer.Wrap)
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

// collect returns what is exported, in sorted lines: the name and the unit of a metric, attributes, and a
// value or a count.
func collect(t *testing.T, reader sdk.Reader) []string {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	if len(all.ScopeMetrics) != 1 || all.ScopeMetrics[0].Scope.Name != weirotel.Scope {
		t.Fatalf("got scopes %+v", all.ScopeMetrics)
	}
	var got []string
	for _, m := range all.ScopeMetrics[0].Metrics {
		add := func(set attribute.Set, value any) {
			got = append(got, fmt.Sprint(m.Name, " ", m.Unit, list(set), " ", value))
		}
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				add(p.Attributes, p.Value)
			}
		case metricdata.Gauge[int64]:
			for _, p := range data.DataPoints {
				add(p.Attributes, p.Value)
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				add(p.Attributes, p.Count)
			}
		}
	}
	slices.Sort(got)
	return got
}

func list(set attribute.Set) (text string) {
	for _, kv := range set.ToSlice() {
		text += " " + string(kv.Key) + "=" + kv.Value.Emit()
	}
	return text
}

func wantLines(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The metrics have the documented names, units, attributes and values.
func TestMetrics(t *testing.T) {
	reader := sdk.NewManualReader()
	use(t, observed(t, sdk.NewMeterProvider(sdk.WithReader(reader))))
	wantLines(t, collect(t, reader),
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
		"weir.shadow_denied {request} weir.limiter=api weir.rule=next 4")
}

// Every outcome of the store is counted, by many goroutines at once. An observer keeps its attributes,
// even if the caller reuses the slice.
func TestConcurrent(t *testing.T) {
	reader, attrs := sdk.NewManualReader(), []attribute.KeyValue{attribute.String("weir.limiter", "api")}
	observer, err := weirotel.New(sdk.NewMeterProvider(sdk.WithReader(reader)), attrs...)
	if err != nil {
		t.Fatal(err)
	}
	attrs[0] = attribute.String("weir.limiter", "login")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 100 {
				observer(context.Background(), observe.Decision{Err: []error{store.ErrUnavailable, context.Canceled}[i%2]})
			}
		})
	}
	wg.Wait()
	wantLines(t, collect(t, reader),
		"weir.decision.duration s weir.limiter=api weir.op=Consume weir.outcome=canceled 400",
		"weir.decision.duration s weir.limiter=api weir.op=Consume weir.outcome=unavailable 400",
		"weir.decisions {decision} weir.limiter=api weir.op=Consume weir.outcome=canceled weir.rule= 400",
		"weir.decisions {decision} weir.limiter=api weir.op=Consume weir.outcome=unavailable weir.rule= 400")
}

// The span of the request shows the decision and the amount of each unit, even if it was refunded
// later.
func TestSpan(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tracer := trace.NewTracerProvider(trace.WithSpanProcessor(spans)).Tracer("t")
	ctx, first := tracer.Start(t.Context(), "request")
	lim, r := observed(t, noop.NewMeterProvider()), weir.Request{Key: weir.KeyOf("acme", "ann"), ID: "1"}
	if _, err := lim.Decide(ctx, r, nil); err != nil {
		t.Fatal(err)
	}
	if refunded, err := lim.Refund(ctx, r); err != nil || !refunded.Found {
		t.Fatal(refunded, err)
	}
	observer, err := weirotel.New(noop.NewMeterProvider())
	if err != nil {
		t.Fatal(err)
	}
	units, second := tracer.Start(t.Context(), "units")
	observer(units, observe.Decision{Request: weir.Request{Costs: weir.CostsOf(map[string]int64{"input": 3, "output": 0})}})
	first.End()
	second.End()
	for i, want := range []string{
		" weir.limit=10 weir.op=Consume weir.outcome=allowed weir.remaining=9 weir.rule=user",
		" weir.costs.input=3 weir.costs.output=0 weir.limit=0 weir.op=Consume weir.outcome=denied weir.remaining=0 weir.rule=",
	} {
		if got := list(attribute.NewSet(spans.Ended()[i].Attributes()...)); got != want {
			t.Errorf("got %s, want %s", got, want)
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
