package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/explain"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirhttp/admin"
)

func TestNewErrors(t *testing.T) {
	lim := newAPI(t, nil)
	for want, give := range map[string]struct {
		limiters []admin.Limiter
		opts     *admin.Options
	}{
		"there is no limiter":          {},
		"limiter 1 has no Name":        {limiters: []admin.Limiter{{Name: "api", Limiter: lim}, {Limiter: lim}}},
		`the name "a\nb" of limiter 0`: {limiters: []admin.Limiter{{Name: "a\nb", Limiter: lim}}},
		`the name "\xff" of limiter 0`: {limiters: []admin.Limiter{{Name: "\xff", Limiter: lim}}},
		`two limiters are named "api"`: {limiters: []admin.Limiter{{Name: "api", Limiter: lim}, {Name: "api", Limiter: lim}}},
		`limiter "nil": weir: `:        {limiters: []admin.Limiter{{Name: "nil"}}},
		`limiter "zero": weir: `:       {limiters: []admin.Limiter{{Name: "zero", Limiter: new(weir.Limiter)}}},
		"Options.Timeout is -1s":       {limiters: []admin.Limiter{{Name: "api", Limiter: lim}}, opts: &admin.Options{Timeout: -time.Second}},
	} {
		page, err := admin.New(give.limiters, give.opts)
		if err == nil || page != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v: want an error with %q", page, err, want)
		}
	}
}

func TestMethods(t *testing.T) {
	page := newPage(t, admin.Limiter{Name: "api", Limiter: newAPI(t, nil)})
	for _, method := range []string{"PUT", "DELETE", "OPTIONS", "x"} {
		w := httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequest(method, "/", nil))
		if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD, POST" {
			t.Errorf("%s: status %d, Allow %q", method, w.Code, w.Header().Get("Allow"))
		}
	}
	w := httptest.NewRecorder()
	page.ServeHTTP(w, httptest.NewRequest(http.MethodHead, "/", nil))
	if w.Code != http.StatusOK {
		t.Errorf("HEAD: status %d", w.Code)
	}
}

// The page of a key asks for 1 of each unit, and shows amounts with their unit.
func TestUnits(t *testing.T) {
	lim := newPolicy(t, nil, weir.Policy{Name: "llm", Units: []string{"cents"}, Rules: []weir.Rule{
		{Name: "month", Unit: "cents", Algorithm: algorithm.FixedWindow{Limit: 10, Window: time.Hour}},
	}})
	weirtest.Allow(t, lim, weir.Request{Key: weir.KeyOf("ann"), Costs: weir.CostsOf(map[string]int64{"cents": 9})})
	page := newPage(t, admin.Limiter{Name: "llm", Limiter: lim})
	for query, want := range map[string]string{"": "counted in cents", "limiter=llm": "counted in cents", "limiter=llm&key=ann": "1 of 10 cents left"} {
		if text := get(page, query, "").Body.String(); !strings.Contains(text, want) {
			t.Errorf("%q lacks %q:\n%s", query, want, text)
		}
		if text := get(page, query, "application/json").Body.String(); !strings.Contains(text, `"unit": "cents"`) || !strings.Contains(text, want) {
			t.Errorf("%q lacks the unit:\n%s", query, text)
		}
	}
	if _, text := send(t, page, url.Values{"op": {"reset"}, "limiter": {"llm"}, "key": {"ann"}}); !strings.Contains(text, "ll of 10 cents left") {
		t.Errorf("after a reset:\n%s", text)
	}
}

// The stylesheet has a URL of its own, which changes with its text.
func TestStyle(t *testing.T) {
	page := newPage(t, admin.Limiter{Name: "api", Limiter: newAPI(t, nil)})
	for _, l := range links(get(page, "", "").Body.String()) {
		if strings.Contains(l, "style=") {
			if w := get(page, strings.TrimPrefix(l, "?"), ""); w.Code != 200 || w.Header().Get("Content-Type") != "text/css; charset=utf-8" || w.Body.Len() < 1000 {
				t.Errorf("status %d, header %v", w.Code, w.Header())
			}
			return
		}
	}
	t.Error("the page has no stylesheet")
}

func TestJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the time stands still
		lim := newAPI(t, nil)
		consume(t, lim, 12, "acme", "ann")
		page := newPage(t, admin.Limiter{Name: "api", Limiter: lim})
		want := new(bytes.Buffer)
		if doc, err := explain.Explain(t.Context(), lim, "acme", "ann"); err != nil || json.NewEncoder(want).Encode(doc) != nil {
			t.Fatal(err)
		}
		for accept, isJSON := range map[string]bool{
			"application/json": true, "Application/JSON;q=0.9, text/plain": true, "text/plain, application/json": true,
			"application/json, text/html; q=0": true, "application/json;q=0.0": false, "text/html;q=0.1, application/json": false,
			"": false, "*/*": false, "text/html,application/json": false, "application/jsonx": false, "text/html": false,
		} {
			w, wantType, got := get(page, annQuery, accept), "text/html; charset=utf-8", new(bytes.Buffer)
			if isJSON {
				wantType = "application/json"
				if err := json.Compact(got, w.Body.Bytes()); err != nil || got.String() != strings.TrimSpace(want.String()) {
					t.Errorf("%q: got %s, %v, want %s", accept, got, err, want)
				}
			}
			if got := w.Header().Get("Content-Type"); w.Code != http.StatusOK || got != wantType {
				t.Errorf("%q: status %d, %s, want %s", accept, w.Code, got, wantType)
			}
		}
	})
}

func TestJSONOverview(t *testing.T) {
	var top observe.TopDenied
	lim := weirtest.Wrap(t, newSecret(t, nil), top.Wrap)
	consume(t, lim, 6, "192.0.2.1", "hunter2")
	consume(t, weirtest.Wrap(t, weirtest.New(t, memory.New(nil), algorithm.FixedWindow{Limit: 1, Window: time.Hour}), top.Wrap), 2, "another's") // has no such segments
	page := newPage(t, admin.Limiter{Name: "log-in", Limiter: lim, Denied: &top})
	if text := get(page, "", "").Body.String(); strings.Contains(text, "another") {
		t.Errorf("a key of another limiter is on the page:\n%s", text)
	}
	const one = `{"name":"log-in","policy":"log-in",` +
		`"segments":[{"name":"ip"},{"name":"token","secret":true}],` +
		`"rules":[{"name":"attempts","by":["ip","token"],"algorithm":"fixedwindow","words":"5 tokens in each window of 1 h"}],` +
		`"denied":[{"key":["192.0.2.1","%sha256=f52fbd32b2b3b86ff88ef6c490628285f482af15ddcb29541f94bcf526a3f6c7"],"denied":1}]}`
	for query, want := range map[string]string{"": `{"limiters":[` + one + `]}`, "limiter=log-in": one} {
		var got bytes.Buffer
		if err := json.Compact(&got, get(page, query, "application/json").Body.Bytes()); err != nil || got.String() != want {
			t.Errorf("%q: got %s, %v, want %s", query, got.String(), err, want)
		}
	}
}

func TestErrors(t *testing.T) {
	page := newPage(t, admin.Limiter{Name: "api", Limiter: newAPI(t, nil)})
	for query, want := range map[string]struct {
		status int
		text   string
	}{
		"limiter=other":                      {http.StatusNotFound, "no limiter other"},
		"limiter=%3Cscript%3E":               {http.StatusNotFound, "no limiter &lt;script&gt;"},
		"limiter=":                           {http.StatusNotFound, "no limiter &#34;&#34;"},
		"limiter=api&key=acme":               {http.StatusBadRequest, "the key has 1 segments"},
		"limiter=api&key=acme&key=":          {http.StatusBadRequest, "segment &#34;user&#34; is empty"},
		"limiter=api&key=acme&key=ann&key=x": {http.StatusBadRequest, "the key has 3 segments"},
		"limiter=api&sealed=abc":             {http.StatusBadRequest, "type the key again"},
	} {
		w := get(page, query, "")
		if text := w.Body.String(); w.Code != want.status || !strings.Contains(strings.ToLower(text), strings.ToLower(want.text)) || !strings.Contains(text, `role="alert"`) {
			t.Errorf("%s: status %d, want %d and %q:\n%s", query, w.Code, want.status, want.text, text)
		}
		w = get(page, query, "application/json")
		var got struct{ Error string }
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != want.status || got.Error == "" {
			t.Errorf("%s: JSON, status %d, %v: %s", query, w.Code, err, w.Body)
		}
	}
}

// The pages without a key do not call the store. The page of a key answers in time, even if the store
// ignores its context, says what is wrong, and has a form to try again. A panic ends no process.
func TestStoreAway(t *testing.T) {
	for name, tt := range map[string]struct {
		eval   func(release chan struct{}) error
		status int
		took   time.Duration
		text   string
		change string // what the page says after a reset
	}{
		"away":   {func(chan struct{}) error { return fmt.Errorf("%w: refused", store.ErrUnavailable) }, 503, 0, "The store is not available.", "refused. The change may have been made"},
		"slow":   {func(release chan struct{}) error { <-release; return nil }, 503, 2 * time.Second, "did not answer within 2s", "The change may have been made"},
		"broken": {func(chan struct{}) error { panic("a defect") }, 500, 0, "The store has answered with an error.", "a defect"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var calls atomic.Int64
			release := make(chan struct{})
			defer close(release)
			st := &weirtest.Hooked{Store: memory.New(nil), Before: func(context.Context, *store.Script) error { calls.Add(1); return tt.eval(release) }}
			page := newPage(t, admin.Limiter{Name: "api", Limiter: newAPI(t, st)})
			for _, query := range []string{"", "limiter=api"} {
				if w := get(page, query, ""); w.Code != http.StatusOK || calls.Load() != 0 {
					t.Errorf("%s, %q: status %d, %d calls of the store", name, query, w.Code, calls.Load())
				}
			}
			start := time.Now()
			w := get(page, annQuery, "")
			text := w.Body.String()
			if took := time.Since(start); w.Code != tt.status || took != tt.took || !strings.Contains(text, tt.text) || button(t, text, "Show this key").values.Get("key") != "acme" {
				t.Errorf("%s: status %d after %v:\n%s", name, w.Code, took, text)
			}
			w = post(page, url.Values{"op": {"reset"}, "limiter": {"api"}, "key": {"acme", "ann"}})
			if text := w.Body.String(); w.Code != tt.status || !strings.Contains(text, tt.change) {
				t.Errorf("%s: reset: status %d:\n%s", name, w.Code, text)
			}
		})
	}
}

// Options.Timeout is the longest wait for the store.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		st.Set(weirtest.Slow) // answers after 2 s, whatever the context does
		page, err := admin.New([]admin.Limiter{{Name: "api", Limiter: newAPI(t, st)}}, &admin.Options{Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if w := get(page, annQuery, ""); w.Code != 503 || time.Since(start) != time.Second {
			t.Errorf("status %d after %v", w.Code, time.Since(start))
		}
		time.Sleep(time.Minute)
	})
}

func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		out := outage.New(&outage.Options{Fallback: outage.Open, Failures: 1})
		lim := weirtest.Wrap(t, newAPI(t, st), out.Wrap)
		page := newPage(t, admin.Limiter{Name: "api", Limiter: lim, Outage: out})
		want := func(texts ...string) {
			t.Helper()
			for _, query := range []string{"", "limiter=api"} {
				page := get(page, query, "").Body.String()
				for _, text := range texts {
					if !strings.Contains(page, text) {
						t.Errorf("%q has no %q:\n%s", query, text, page)
					}
				}
			}
		}
		want("no outage", "There has been no outage")
		st.Set(weirtest.Down)
		consume(t, lim, 3, "acme", "ann")
		time.Sleep(10 * time.Second)
		want("The store has been away for 10 s", "faulty", "answered 3 requests")
		if text := get(page, "", "application/json").Body.String(); !strings.Contains(text, `"down": true`) || !strings.Contains(text, `"cause": "`) {
			t.Errorf("JSON: %s", text)
		}
		st.Set(weirtest.Up)
		consume(t, lim, 1, "acme", "ann")
		want("no outage", "lasted 10 s")
	})
}
