package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A fragile is a store that can be away.
type fragile struct {
	store.Store
	away atomic.Bool
}

func (f *fragile) Eval(ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	if f.away.Load() {
		return reply, fmt.Errorf("no connection: %w", store.ErrUnavailable)
	}
	return f.Store.Eval(ctx, s, keys, args, reply)
}

// A service is somebody else's: it notes when it was asked.
type service struct {
	mu    sync.Mutex
	asked []time.Time
}

func (s *service) RoundTrip(*http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, time.Now())
	return &http.Response{StatusCode: 200, Status: "200 OK", Body: io.NopCloser(strings.NewReader("1.08"))}, nil
}

// try calls f with the handler over a store in virtual time. Requests that ask makes come
// from one address.
func try(t *testing.T, f func(t *testing.T, st *fragile, out *service, ask func(method, path, key string, form url.Values) *httptest.ResponseRecorder)) {
	synctest.Test(t, func(t *testing.T) {
		st, out := &fragile{Store: memory.New(nil)}, new(service)
		handler, err := newHandler(st, out)
		if err != nil {
			t.Fatal(err)
		}
		f(t, st, out, func(method, path, key string, form url.Values) *httptest.ResponseRecorder {
			r := httptest.NewRequest(method, path, strings.NewReader(form.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("X-API-Key", key)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			return w
		})
	})
}

// want fails t if the status is not code.
func want(t *testing.T, w *httptest.ResponseRecorder, code int) {
	t.Helper()
	if w.Code != code {
		t.Fatalf("got status %d, want %d: %s", w.Code, code, w.Body)
	}
}

// A customer has the limit of the plan. An unknown key has none.
func TestPlans(t *testing.T) {
	try(t, func(t *testing.T, _ *fragile, _ *service, ask func(string, string, string, url.Values) *httptest.ResponseRecorder) {
		for range 10 {
			want(t, ask("GET", "/items", "key-of-ann", nil), 200)
		}
		w := ask("GET", "/items", "key-of-ann", nil)
		want(t, w, 429)
		if after := w.Header().Get("Retry-After"); after != "6" {
			t.Errorf("got Retry-After %q, want 6", after)
		}
		for range 1000 {
			want(t, ask("GET", "/items", "key-of-bob", nil), 200)
		}
		want(t, ask("GET", "/items", "key-of-bob", nil), 429)
		want(t, ask("GET", "/items", "a-guess", nil), 400)
		time.Sleep(6 * time.Second)
		want(t, ask("GET", "/items", "key-of-ann", nil), 200)
	})
}

// Five wrong passwords stop an account, and a right one clears them.
func TestLogin(t *testing.T) {
	try(t, func(t *testing.T, st *fragile, _ *service, ask func(string, string, string, url.Values) *httptest.ResponseRecorder) {
		wrong, right := url.Values{"account": {"ann"}, "password": {"guess"}}, url.Values{"account": {"ann"}, "password": {"secret"}}
		for range 4 {
			want(t, ask("POST", "/login", "", wrong), 401)
		}
		want(t, ask("POST", "/login", "", right), 200)
		for range 5 {
			want(t, ask("POST", "/login", "", wrong), 401)
		}
		w := ask("POST", "/login", "", right)
		want(t, w, 429)
		if w.Header().Get("RateLimit") != "" {
			t.Error("an attacker sees how many attempts are left")
		}
		time.Sleep(15 * time.Minute)
		want(t, ask("POST", "/login", "", right), 200)
		want(t, ask("POST", "/login", "", nil), 400) // no account
		st.away.Store(true)
		want(t, ask("POST", "/login", "", right), 503) // nobody logs in
	})
}

// Guesses at an account are limited from all addresses together, however it is spelled. No API
// key is in the store.
func TestSecrets(t *testing.T) {
	st := memory.New(nil)
	handler, err := newHandler(st, nil)
	if err != nil {
		t.Fatal(err)
	}
	guesses := 0
	for i := range 20 {
		for _, account := range []string{"ann", " Ann"} {
			r := httptest.NewRequest("POST", "/login?"+url.Values{"account": {account}, "password": {"guess"}}.Encode(), nil)
			r.RemoteAddr = fmt.Sprintf("198.51.100.%d:1", i)
			w := httptest.NewRecorder()
			if handler.ServeHTTP(w, r); w.Code == 401 {
				guesses++
			}
		}
	}
	if guesses != 5 {
		t.Errorf("%d guesses from 20 addresses, want 5", guesses)
	}
	r := httptest.NewRequest("GET", "/items", nil)
	r.Header.Set("X-API-Key", "key-of-bob")
	handler.ServeHTTP(httptest.NewRecorder(), r)
	for key := range st.All() {
		if strings.Contains(key, "key-of-bob") {
			t.Errorf("an API key is in the store: %s", key)
		}
	}
}

// Twenty callers ask the other service, which gets at most five requests in any second.
func TestRates(t *testing.T) {
	try(t, func(t *testing.T, _ *fragile, out *service, ask func(string, string, string, url.Values) *httptest.ResponseRecorder) {
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { want(t, ask("GET", "/rates", "key-of-bob", nil), 200) })
		}
		wg.Wait()
		if len(out.asked) != 20 {
			t.Fatalf("the service was asked %d times, want 20", len(out.asked))
		}
		for i, at := range out.asked[5:] {
			if gap := at.Sub(out.asked[i]); gap < time.Second {
				t.Errorf("6 requests in %v: the service allows 5 in a second", gap)
			}
		}
	})
}

// While the store is away, the API goes on with a share of the limit, and the metrics say so.
func TestOutage(t *testing.T) {
	try(t, func(t *testing.T, st *fragile, _ *service, ask func(string, string, string, url.Values) *httptest.ResponseRecorder) {
		outcomes.Init()
		st.away.Store(true)
		for range 10 / processes {
			want(t, ask("GET", "/items", "key-of-ann", nil), 200)
		}
		want(t, ask("GET", "/items", "key-of-ann", nil), 429)
		st.away.Store(false)
		time.Sleep(time.Second) // the store is asked again
		want(t, ask("GET", "/items", "key-of-ann", nil), 200)
		metrics := ask("GET", "/metrics", "", nil).Body.String()
		for _, want := range []string{`"api tokenbucket degraded_allowed": 5`, `"api tokenbucket degraded_denied": 1`, `"api tokenbucket allowed": 1`} {
			if !strings.Contains(metrics, want) {
				t.Errorf("no %s in %s", want, metrics)
			}
		}
		st.away.Store(true)
		want(t, ask("GET", "/rates", "key-of-bob", nil), 503)
	})
}

// A mistake in a limit is found when the server starts.
func TestUnfit(t *testing.T) {
	if _, err := newHandler(nil, nil); err == nil || errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v, want an error of the nil store", err)
	}
}
