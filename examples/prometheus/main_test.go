package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/observe"
)

// TestPage checks that docs/guide/prometheus.md shows lines of main.go, and alerts.yml.
func TestPage(t *testing.T) {
	page := read(t, "../../docs/guide/prometheus.md")
	_, lines, _ := strings.Cut(page, "```golang\n")
	lines, _, _ = strings.Cut(lines, "```")
	if lines == "" || !strings.Contains(read(t, "main.go"), lines) {
		t.Errorf("main.go does not have these lines of the page:\n%s", lines)
	}
	if !strings.Contains(page, "```yaml\n"+read(t, "alerts.yml")+"```\n") {
		t.Error("the page does not show alerts.yml as it is")
	}
}

// TestAlerts makes an allowed and a denied request, and checks that the alert rules ask
// only for metrics, labels, outcomes and ops that a scrape can have.
func TestAlerts(t *testing.T) {
	server, err := newServer()
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		server.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w
	}
	for range 1000 { // more than the burst of 20, and than a slow machine refills
		if get("/").Code == http.StatusTooManyRequests {
			break
		}
	}
	metrics := get("/metrics").Body.String()
	if !strings.Contains(metrics, `weir_outcome="denied"`) || !strings.Contains(metrics, `weir_limiter="api"`) {
		t.Errorf("no denied request in\n%s", metrics)
	}
	rules := read(t, "alerts.yml")
	for _, name := range regexp.MustCompile(`\bweir_[a-z_]+`).FindAllString(rules, -1) {
		if !strings.Contains(metrics, "\n"+name+"{") && !strings.Contains(metrics, name+"=") {
			t.Errorf("the rules ask for %s, which no scrape has", name)
		}
	}
	known := map[string][]string{"weir_op": {weir.Consume.String(), weir.TakeUpTo.String()}}
	for _, o := range []observe.Outcome{observe.Denied, observe.DegradedAllowed, observe.DegradedDenied, observe.Unavailable, observe.Failed} {
		known["weir_outcome"] = append(known["weir_outcome"], string(o))
	}
	for _, l := range regexp.MustCompile(`(\w+)=~?"([^"]*)"`).FindAllStringSubmatch(rules, -1) {
		for value := range strings.SplitSeq(l[2], "|") {
			if !slices.Contains(known[l[1]], value) {
				t.Errorf("the rules ask for %s %q, which does not exist", l[1], value)
			}
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
