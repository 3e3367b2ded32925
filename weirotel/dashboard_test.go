package weirotel_test

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/denycache"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/weirotel"
)

// The dashboard asks only for metrics, labels, outcomes and ops that exist.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Templating struct {
			List []struct{ Name, Query string }
		}
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	metrics := scrape(t)
	if strings.Contains(metrics, "ann") {
		t.Error("a key is in the metrics")
	}
	outcomes := []observe.Outcome{observe.Allowed, observe.Denied, observe.ShadowDenied, observe.DegradedAllowed, observe.DegradedDenied, observe.Unavailable, observe.Canceled, observe.Failed}
	// matches reports whether a value of the label matches the pattern.
	matches := func(label, pattern string) bool {
		re := regexp.MustCompile("^(?:" + pattern + ")$")
		switch label {
		case "weir_outcome":
			return slices.ContainsFunc(outcomes, func(o observe.Outcome) bool { return re.MatchString(string(o)) })
		case "weir_op":
			return slices.ContainsFunc([]weir.Op{weir.Consume, weir.TakeUpTo}, func(op weir.Op) bool { return re.MatchString(op.String()) })
		}
		return false
	}
	names, labels := regexp.MustCompile(`weir_[a-z_]+`), regexp.MustCompile(`(\w+)=~?"([^"]*)"`)
	exists := func(what, text string) {
		for _, name := range names.FindAllString(text, -1) {
			if !strings.Contains(metrics, "\n"+name+"{") && !strings.Contains(metrics, name+"=") {
				t.Errorf("%s asks for %s, which no scrape has", what, name)
			}
		}
	}
	for _, v := range dashboard.Templating.List {
		exists("variable "+v.Name, v.Query)
	}
	for _, p := range dashboard.Panels {
		if len(p.Targets) == 0 {
			t.Errorf("panel %q asks for nothing", p.Title)
		}
		for _, target := range p.Targets {
			if strings.Count(target.Expr, "(") != strings.Count(target.Expr, ")") {
				t.Errorf("panel %q: its parentheses do not match: %s", p.Title, target.Expr)
			}
			exists("panel "+p.Title, target.Expr+" "+target.LegendFormat)
			for _, l := range labels.FindAllStringSubmatch(target.Expr, -1) {
				for alternative := range strings.SplitSeq(l[2], "|") {
					if alternative != "$job" && alternative != "$limiter" && !matches(l[1], alternative) {
						t.Errorf("panel %q asks for %s %q, which does not exist", p.Title, l[1], alternative)
					}
				}
			}
		}
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
