package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/explain"
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
	for _, method := range []string{"PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "x"} {
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
	if _, err := lim.Decide(t.Context(), weir.Request{Key: weir.KeyOf("ann"), Costs: weir.CostsOf(map[string]int64{"cents": 9})}, nil); err != nil {
		t.Fatal(err)
	}
	page := newPage(t, admin.Limiter{Name: "llm", Limiter: lim})
	for query, want := range map[string]string{"": "counted in cents", "limiter=llm": "counted in cents", "limiter=llm&key=ann": "1 of 10 cents left"} {
		if text := get(page, query, "").Body.String(); !strings.Contains(text, want) {
			t.Errorf("%q lacks %q:\n%s", query, want, text)
		}
		if text := get(page, query, "application/json").Body.String(); !strings.Contains(text, `"unit": "cents"`) || !strings.Contains(text, want) {
			t.Errorf("%q lacks the unit:\n%s", query, text)
		}
	}
	if w := post(page, url.Values{"op": {"reset"}, "limiter": {"llm"}, "key": {"ann"}}); w.Code != http.StatusSeeOther || !strings.Contains(get(page, "limiter=llm&key=ann", "").Body.String(), "ll of 10 cents left") {
		t.Errorf("after a reset: status %d", w.Code)
	}
}

// Every answer has the headers that keep scripts, frames and caches away.
func TestHeaders(t *testing.T) {
	page := newPage(t, admin.Limiter{Name: "api", Limiter: newAPI(t, nil)})
	for name, w := range map[string]*httptest.ResponseRecorder{
		"overview": get(page, "", ""),
		"limiter":  get(page, "limiter=api", ""),
		"key":      get(page, "limiter=api&key=acme&key=ann", ""),
		"json":     get(page, "limiter=api&key=acme&key=ann", "application/json"),
		"error":    get(page, "limiter=other", ""),
		"change":   post(page, url.Values{"op": {"reset"}, "limiter": {"api"}, "key": {"acme", "ann"}}),
	} {
		h := w.Header()
		if p := h.Get("Content-Security-Policy"); !strings.Contains(p, "default-src 'none'") || strings.Contains(p, "unsafe") || strings.Contains(p, "script-src") ||
			!strings.Contains(p, "frame-ancestors 'none'") || !strings.Contains(p, "form-action 'self'") || !strings.Contains(p, "base-uri 'none'") {
			t.Errorf("%s: Content-Security-Policy %q", name, p)
		}
		for field, want := range map[string]string{"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin", "Vary": "Accept"} {
			if got := h.Get(field); got != want {
				t.Errorf("%s: %s is %q, want %q", name, field, got, want)
			}
		}
	}
}

// The page works at any path: every link that it shows leads to an answer of the page.
func TestPrefix(t *testing.T) {
	var top observe.TopDenied
	lim, err := newAPI(t, nil).Wrap(top.Wrap)
	if err != nil {
		t.Fatal(err)
	}
	consume(t, lim, 12, "acme", "ann")
	page := newPage(t, admin.Limiter{Name: "api", Limiter: lim, Denied: &top})
	mux := http.NewServeMux()
	mux.Handle("/exact", page)
	mux.Handle("/sub/path/", page)
	mux.Handle("/ops/limits/", http.StripPrefix("/ops/limits", page))
	mux.Handle("/bare", http.StripPrefix("/bare", page))
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	for _, path := range []string{"/exact", "/sub/path/", "/sub/path/deeper/still", "/ops/limits/", "/bare"} {
		seen := map[string]bool{}
		var follow func(from *url.URL, to string)
		follow = func(from *url.URL, to string) {
			target, err := from.Parse(to)
			if err != nil {
				t.Fatal(err)
			}
			if target.Scheme != "http" || seen[target.String()] {
				return
			}
			seen[target.String()] = true
			res, err := http.Get(target.String())
			if err != nil {
				t.Fatal(err)
			}
			text := body(t, res)
			if res.StatusCode != http.StatusOK || target.Path != path {
				t.Errorf("%s leads to %s, status %d", from, target, res.StatusCode)
			}
			for _, to := range links(text) {
				follow(target, to)
			}
			for _, f := range forms(text) {
				if f.method != "post" {
					continue
				}
				action, err := target.Parse(f.action)
				if err != nil {
					t.Fatal(err)
				}
				res, err := http.PostForm(action.String(), f.values)
				if err != nil {
					t.Fatal(err)
				}
				text := body(t, res)
				if u := res.Request.URL; res.StatusCode != http.StatusOK || u.Path != path || !strings.Contains(text, "You have reset") {
					t.Errorf("the button %q of %s leads to %s, status %d:\n%s", f.button, target, u, res.StatusCode, text)
				}
			}
		}
		base, err := url.Parse(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		follow(base, path)
		if len(seen) != 5 { // the overview by two URLs, the limiter, the key, the stylesheet
			t.Errorf("%s: %d pages: %v", path, len(seen), seen)
		}
	}
}

func TestStyle(t *testing.T) {
	page := newPage(t, admin.Limiter{Name: "api", Limiter: newAPI(t, nil)})
	for _, l := range links(get(page, "", "").Body.String()) {
		if !strings.Contains(l, "style=") {
			continue
		}
		w := get(page, strings.TrimPrefix(l, "?"), "")
		if h := w.Header(); w.Code != http.StatusOK || h.Get("Content-Type") != "text/css; charset=utf-8" || !strings.Contains(h.Get("Cache-Control"), "immutable") {
			t.Errorf("status %d, header %v", w.Code, h)
		}
		return
	}
	t.Error("the page has no stylesheet")
}

func TestJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the time stands still
		lim := newAPI(t, nil)
		consume(t, lim, 12, "acme", "ann")
		page := newPage(t, admin.Limiter{Name: "api", Limiter: lim})
		doc, err := explain.Explain(t.Context(), lim, "acme", "ann")
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		const query = "limiter=api&key=acme&key=ann"
		for accept, isJSON := range map[string]bool{
			"application/json": true, "Application/JSON;q=0.9, text/plain": true, "text/plain, application/json": true,
			"application/json, text/html; q=0": true, "application/json;q=0.0": false, "text/html;q=0.1, application/json": false,
			"": false, "*/*": false, "text/html,application/json": false, "application/jsonx": false, "text/html": false,
		} {
			w := get(page, query, accept)
			if w.Code != http.StatusOK {
				t.Fatalf("%q: status %d: %s", accept, w.Code, w.Body)
			}
			if !isJSON {
				if got := w.Header().Get("Content-Type"); got != "text/html; charset=utf-8" {
					t.Errorf("%q: %s", accept, got)
				}
				continue
			}
			var got explain.Document
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatalf("%q: %v: %s", accept, err, w.Body)
			}
			text, err := json.Marshal(got)
			if err != nil || string(text) != string(want) {
				t.Errorf("%q: got %s, want %s", accept, text, want)
			}
			if got := w.Header().Get("Content-Type"); got != "application/json" {
				t.Errorf("%q: %s", accept, got)
			}
		}
	})
}

func TestJSONOverview(t *testing.T) {
	var top observe.TopDenied
	lim, err := newSecret(t, nil).Wrap(top.Wrap)
	if err != nil {
		t.Fatal(err)
	}
	consume(t, lim, 6, "192.0.2.1", "hunter2")
	page := newPage(t, admin.Limiter{Name: "log-in", Limiter: lim, Denied: &top})
	const one = `{"name":"log-in","policy":"log-in",` +
		`"segments":[{"name":"ip"},{"name":"token","secret":true}],` +
		`"rules":[{"name":"attempts","by":["ip","token"],"algorithm":"fixedwindow","words":"5 tokens in each window of 1 h"}],` +
		`"denied":[{"key":["192.0.2.1","%sha256=f52fbd32b2b3b86ff88ef6c490628285f482af15ddcb29541f94bcf526a3f6c7"],"denied":1}]}`
	for query, want := range map[string]string{"": `{"limiters":[` + one + `]}`, "limiter=log-in": one} {
		var got any
		if err := json.Unmarshal(get(page, query, "application/json").Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		var wanted any
		if err := json.Unmarshal([]byte(want), &wanted); err != nil {
			t.Fatal(err)
		}
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(wanted)
		if string(a) != string(b) {
			t.Errorf("%q: got %s, want %s", query, a, b)
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

// An away is a store that answers nothing.
type away struct {
	store.Store

	eval func(ctx context.Context) error
}

func (s away) Eval(ctx context.Context, _ *store.Script, _ []string, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
	return reply, s.eval(ctx)
}

func (s away) MGet(ctx context.Context, _ []string, values []store.Value) ([]store.Value, error) {
	return values, s.eval(ctx)
}

// The pages without a key do not call the store. The page of a key says that the store is
// away, and has a form to try again.
func TestStoreAway(t *testing.T) {
	calls := 0
	page := newPage(t, admin.Limiter{Name: "api", Limiter: newAPI(t, away{eval: func(context.Context) error {
		calls++
		return errors.Join(store.ErrUnavailable, errors.New("connection refused"))
	}})})
	for _, query := range []string{"", "limiter=api"} {
		if w := get(page, query, ""); w.Code != http.StatusOK || calls != 0 {
			t.Errorf("%q: status %d, %d calls of the store", query, w.Code, calls)
		}
	}
	w := get(page, "limiter=api&key=acme&key=ann", "")
	text := w.Body.String()
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(text, "The store is not available.") || !strings.Contains(text, "connection refused") {
		t.Errorf("status %d:\n%s", w.Code, text)
	}
	if f := button(t, text, "Show this key"); f.values.Get("key") != "acme" {
		t.Errorf("the form is not filled in: %v", f)
	}
	w = post(page, url.Values{"op": {"reset"}, "limiter": {"api"}, "key": {"acme", "ann"}})
	if text := w.Body.String(); w.Code != http.StatusServiceUnavailable || !strings.Contains(text, "The change may have been made") {
		t.Errorf("reset: status %d:\n%s", w.Code, text)
	}
}

// The page answers in time, even if the store ignores its context.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		lim := newAPI(t, away{eval: func(context.Context) error { <-release; return nil }})
		page, err := admin.New([]admin.Limiter{{Name: "api", Limiter: lim}}, &admin.Options{Timeout: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		w := get(page, "limiter=api&key=acme&key=ann", "")
		if took := time.Since(start); w.Code != http.StatusServiceUnavailable || took != 3*time.Second || !strings.Contains(w.Body.String(), "did not answer within 3s") {
			t.Errorf("status %d after %v:\n%s", w.Code, took, w.Body)
		}
		start = time.Now()
		w = post(newPage(t, admin.Limiter{Name: "api", Limiter: lim}), url.Values{"op": {"reset"}, "limiter": {"api"}, "key": {"acme", "ann"}})
		if took := time.Since(start); w.Code != http.StatusServiceUnavailable || took != admin.DefaultTimeout {
			t.Errorf("reset: status %d after %v:\n%s", w.Code, took, w.Body)
		}
	})
}

// A panic of a store ends no process.
func TestPanic(t *testing.T) {
	page := newPage(t, admin.Limiter{Name: "api", Limiter: newAPI(t, away{eval: func(context.Context) error { panic("a defect") }})})
	if w := get(page, "limiter=api&key=acme&key=ann", ""); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "a defect") {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}

func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := true
		st := memory.New(nil)
		out := outage.New(&outage.Options{Fallback: outage.Open, Failures: 1})
		lim, err := newAPI(t, switched{st, &broken}).Wrap(out.Wrap)
		if err != nil {
			t.Fatal(err)
		}
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
		consume(t, lim, 3, "acme", "ann")
		time.Sleep(10 * time.Second)
		want("The store has been away for 10 s", "connection refused", "answered 3 requests")
		if text := get(page, "", "application/json").Body.String(); !strings.Contains(text, `"down": true`) {
			t.Errorf("JSON: %s", text)
		}
		broken = false
		consume(t, lim, 1, "acme", "ann")
		want("no outage", "lasted 10 s")
	})
}

// A switched is a store that is away while broken is true.
type switched struct {
	store.Store

	broken *bool
}

func (s switched) Eval(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	if *s.broken {
		return reply, errors.Join(store.ErrUnavailable, errors.New("connection refused"))
	}
	return s.Store.Eval(ctx, script, keys, args, reply)
}
