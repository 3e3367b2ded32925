package weirhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirhttp"
)

// Retry-After is rounded up, and the request is allowed when it has passed.
func TestDenied(t *testing.T) {
	for _, tt := range []struct {
		name  string
		limit algorithm.Algorithm
		cost  int64
		want  string        // Retry-After
		wait  time.Duration // until the next request
		then  int
	}{
		{"a minute", algorithm.FixedWindow{Limit: 1, Window: time.Minute}, 1, "60", time.Minute, http.StatusNoContent},
		{"one microsecond less", algorithm.FixedWindow{Limit: 1, Window: time.Minute}, 1, "60", time.Minute - time.Microsecond, http.StatusTooManyRequests},
		{"one microsecond more than a second", algorithm.FixedWindow{Limit: 1, Window: time.Second + time.Microsecond}, 1, "2", 2 * time.Second, http.StatusNoContent},
		{"less than a second", algorithm.FixedWindow{Limit: 1, Window: time.Millisecond}, 1, "1", time.Second, http.StatusNoContent},
		{"never", algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 5}, 6, "", time.Hour, http.StatusTooManyRequests},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limit, errs := newMiddleware(t, newLimiter(t, tt.limit), func(r *http.Request) (weir.Request, error) {
					req, err := all(r)
					req.Cost = tt.cost
					return req, err
				}, weirhttp.Options{})
				var next counting
				h := limit(&next)
				w := serve(h, nil)
				if tt.want != "" { // otherwise the first request is denied
					w = serve(h, nil)
				}
				before := next.calls
				if got := w.Header()["Retry-After"]; w.Code != http.StatusTooManyRequests || strings.Join(got, "|") != tt.want {
					t.Errorf("got status %d and Retry-After %q, want 429 and %q", w.Code, got, tt.want)
				}
				if got, want := w.Body.String(), `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429}`+"\n"; got != want {
					t.Errorf("got body %q, want %q", got, want)
				}
				if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
					t.Errorf("got content type %q", got)
				}
				time.Sleep(tt.wait)
				if w := serve(h, nil); w.Code != tt.then || (next.calls > before) != (tt.then == http.StatusNoContent) {
					t.Errorf("got status %d after %v and %d calls of the handler, want %d", w.Code, tt.wait, next.calls, tt.then)
				}
				if len(*errs) > 0 {
					t.Errorf("got errors %v, want none", *errs)
				}
			})
		})
	}
}

// Each kind of error has its status. FailOpen passes on only outages. No text of an error
// reaches the client.
func TestErrors(t *testing.T) {
	secret := errors.New("secret")
	wrap := func(err error) error { return fmt.Errorf("%w: %w", err, secret) }
	unlimited := func(*http.Request) (weir.Request, error) {
		return weir.Request{}, fmt.Errorf("health check: %w", weirhttp.ErrUnlimited)
	}
	of := func(req weir.Request, err error) weirhttp.RequestFunc {
		return func(*http.Request) (weir.Request, error) { return req, err }
	}
	lim := newLimiter(t, algorithm.FixedWindow{Limit: 100, Window: time.Hour})
	leases := newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: time.Hour})
	for _, tt := range []struct {
		name         string
		d            weir.Decider
		request      weirhttp.RequestFunc
		closed, open int // the status without and with FailOpen
		errs         int
	}{
		{"allowed", lim, all, 204, 204, 0},
		{"unlimited", failing(secret), unlimited, 204, 204, 0},
		{"unavailable", failing(wrap(store.ErrUnavailable)), all, 503, 204, 1},
		{"deadline", failing(wrap(context.DeadlineExceeded)), all, 503, 204, 1},
		{"foreign", failing(wrap(store.ErrForeign)), all, 500, 500, 1},
		{"script", failing(wrap(store.ErrScript)), all, 500, 500, 1},
		{"a wrong number of segments", lim, weirhttp.By(weirhttp.Text("a"), weirhttp.Text("b")), 500, 500, 1},
		{"a zero key", lim, of(weir.Request{}, nil), 500, 500, 1},
		{"an empty segment", lim, of(weir.Request{Key: weir.KeyOf("")}, nil), 400, 400, 1},
		{"no key", lim, of(weir.Request{}, wrap(weirhttp.ErrNoKey)), 400, 400, 1},
		{"another error of the RequestFunc", lim, of(weir.Request{}, secret), 500, 500, 1},
		{"an outage of the RequestFunc", lim, of(weir.Request{}, wrap(store.ErrUnavailable)), 500, 500, 1},
		{"a negative cost", lim, of(weir.Request{Key: weir.KeyOf("a"), Cost: -1}, nil), 500, 500, 1},
		{"a peek", lim, of(weir.Request{Key: weir.KeyOf("a"), Op: weir.Peek}, nil), 500, 500, 1},
		{"a reset", lim, of(weir.Request{Key: weir.KeyOf("a"), Op: weir.Reset}, nil), 500, 500, 1},
		{"a lease", leases, all, 204, 204, 0},
	} {
		for _, open := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, fail open %v", tt.name, open), func(t *testing.T) {
				var next counting
				limit, errs := newMiddleware(t, tt.d, tt.request, weirhttp.Options{FailOpen: open})
				w := serve(limit(&next), nil)
				want := tt.closed
				if open {
					want = tt.open
				}
				if w.Code != want || (next.calls == 1) != (want == 204) {
					t.Errorf("got status %d and %d calls of the handler, want %d", w.Code, next.calls, want)
				}
				if len(*errs) != tt.errs {
					t.Errorf("got errors %v, want %d", *errs, tt.errs)
				}
				if body := w.Body.String(); strings.Contains(body, "secret") || strings.Contains(body, "weir") || w.Header().Get("Retry-After") != "" {
					t.Errorf("the answer reveals something: %v %s", w.Header(), body)
				}
			})
		}
	}
}

// Without OnError, errors are logged, those that clients cause at level Debug.
func TestNoHook(t *testing.T) {
	var out strings.Builder
	was := slog.Default()
	defer slog.SetDefault(was)
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	for _, tt := range []struct {
		err  error
		want int
		log  string
	}{
		{store.ErrUnavailable, 503, `level=ERROR .* error="store unavailable"`},
		{weirhttp.ErrNoKey, 400, `level=DEBUG .* error="weirhttp: the request has no key"`},
	} {
		out.Reset()
		limit, err := weirhttp.New(failing(tt.err), all, nil)
		if err != nil {
			t.Fatal(err)
		}
		w := serve(limit(new(counting)), nil)
		if ok := regexp.MustCompile(tt.log).MatchString(out.String()); w.Code != tt.want || !ok {
			t.Errorf("got status %d and log %q, want %d and %q", w.Code, out.String(), tt.want, tt.log)
		}
	}
}

// A client that has cancelled its request gets no answer and is no error.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx)
	for _, open := range []bool{false, true} {
		var next counting
		limit, errs := newMiddleware(t, newLimiter(t, algorithm.FixedWindow{Limit: 1, Window: time.Hour}), all, weirhttp.Options{
			FailOpen: open, Reject: func(http.ResponseWriter, *http.Request, weirhttp.Rejection) { t.Error("Reject is called") },
		})
		w := serve(limit(&next), r)
		if w.Code != 499 || w.Body.Len() > 0 || next.calls > 0 || len(*errs) > 0 {
			t.Errorf("fail open %v: got status %d, body %q, %d calls, errors %v, want 499 and nothing else", open, w.Code, w.Body, next.calls, *errs)
		}
	}
}

// A decision on a store that hangs takes Timeout, or the request's own deadline.
func TestTimeout(t *testing.T) {
	for _, tt := range []struct {
		name     string
		opts     weirhttp.Options
		deadline time.Duration
		took     time.Duration
		want     int
	}{
		{"fail closed", weirhttp.Options{Timeout: 200 * time.Millisecond}, time.Hour, 200 * time.Millisecond, 503},
		{"fail open", weirhttp.Options{Timeout: 200 * time.Millisecond, FailOpen: true}, time.Hour, 200 * time.Millisecond, 204},
		{"the request's deadline", weirhttp.Options{}, time.Second, time.Second, 503},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lim, err := weir.New("test", hanging{memory.New(nil)}, algorithm.FixedWindow{Limit: 1, Window: time.Hour}, nil)
				if err != nil {
					t.Fatal(err)
				}
				limit, errs := newMiddleware(t, lim, all, tt.opts)
				ctx, cancel := context.WithTimeout(t.Context(), tt.deadline)
				defer cancel()
				start := time.Now()
				w := serve(limit(new(counting)), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
				if took := time.Since(start); w.Code != tt.want || took != tt.took || len(*errs) != 1 {
					t.Errorf("got status %d after %v, errors %v, want %d after %v", w.Code, took, *errs, tt.want, tt.took)
				}
			})
		})
	}
}

// A panic of the RequestFunc reaches the caller, and the handler is not called.
func TestPanic(t *testing.T) {
	var next counting
	limit, _ := newMiddleware(t, newLimiter(t, algorithm.FixedWindow{Limit: 1, Window: time.Hour}),
		func(*http.Request) (weir.Request, error) { panic("no key") }, weirhttp.Options{FailOpen: true})
	defer func() {
		if p := recover(); p != "no key" || next.calls > 0 {
			t.Errorf("got panic %v and %d calls of the handler, want the panic of the RequestFunc and none", p, next.calls)
		}
	}()
	serve(limit(&next), nil)
}

// Reject can set a status, write without one, flush, or do nothing: the status is never
// 200.
func TestReject(t *testing.T) {
	var got weirhttp.Rejection
	for _, tt := range []struct {
		name   string
		reject func(w http.ResponseWriter)
		want   int
		body   string
	}{
		{"nothing", func(http.ResponseWriter) {}, 429, ""},
		{"a body", func(w http.ResponseWriter) { fmt.Fprint(w, "slow ", "down") }, 429, "slow down"},
		{"a status", func(w http.ResponseWriter) { w.WriteHeader(http.StatusTeapot) }, http.StatusTeapot, ""},
		{"early hints", func(w http.ResponseWriter) { w.WriteHeader(http.StatusEarlyHints) }, 429, ""},
		{"a flush", func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }, 429, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lim, err := weir.New("test", memory.New(nil), algorithm.FixedWindow{Limit: 1, Window: time.Hour}, stopped)
			if err != nil {
				t.Fatal(err)
			}
			limit, _ := newMiddleware(t, lim, all, weirhttp.Options{
				Reject: func(w http.ResponseWriter, _ *http.Request, why weirhttp.Rejection) { got = why; tt.reject(w) },
			})
			srv := httptest.NewServer(limit(new(counting)))
			defer srv.Close()
			for i, want := range []int{204, tt.want} {
				res, err := http.Get(srv.URL)
				if err != nil {
					t.Fatal(err)
				}
				body := make([]byte, 100)
				n, _ := res.Body.Read(body)
				_ = res.Body.Close()
				if res.StatusCode != want || i == 1 && (string(body[:n]) != tt.body || res.Header.Get("Retry-After") != "3600") {
					t.Errorf("request %d: got status %d, body %q, headers %v, want status %d, body %q and Retry-After 3600", i, res.StatusCode, body[:n], res.Header, want, tt.body)
				}
			}
			if got.Status != 429 || got.Err != nil || got.Result.Limit != 1 || !slices.Equal(got.Violated, []string{"fixedwindow"}) {
				t.Errorf("got rejection %+v", got)
			}
		})
	}
}

// Reject can take the connection over, for example to close it without an answer. Nothing
// is written to it then. If the connection cannot be taken over, the answer has its
// status.
func TestRejectHijack(t *testing.T) {
	answers := make(chan error, 1)
	limit, _ := newMiddleware(t, newLimiter(t, algorithm.FixedWindow{Limit: 1, Window: time.Hour}), all, weirhttp.Options{
		Reject: func(w http.ResponseWriter, _ *http.Request, _ weirhttp.Rejection) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				err = conn.Close()
			}
			answers <- err
		},
	})
	h := limit(new(counting))
	over := make(chan bool)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		over <- true
	}))
	defer srv.Close()
	var logged strings.Builder
	srv.Config.ErrorLog = log.New(&logged, "", 0)
	srv.Start()
	serve(h, nil)
	res, err := http.Get(srv.URL)
	if err == nil {
		_ = res.Body.Close()
	}
	<-over
	if hijacked := <-answers; !errors.Is(err, io.EOF) || hijacked != nil || logged.Len() > 0 {
		t.Errorf("got %v, %v, and the log %q, want an EOF and nothing else", err, hijacked, logged.String())
	}
	w := serve(h, nil)
	if hijacked := <-answers; w.Code != 429 || !errors.Is(hijacked, http.ErrNotSupported) {
		t.Errorf("without a connection: got status %d, %v, want 429 and %v", w.Code, hijacked, http.ErrNotSupported)
	}
}

// A wrapper can deny a request without the results of the rules. What an outer handler
// has said about the length of its own body does not hold for the answer.
func TestRejectAlone(t *testing.T) {
	denied := deciderFunc(func(context.Context, weir.Request, []weir.Result) (weir.Result, error) {
		return weir.Result{Rule: "cache"}, nil
	})
	limit, _ := newMiddleware(t, denied, all, weirhttp.Options{Headers: weirhttp.XRateLimit})
	w := httptest.NewRecorder()
	w.Header().Set("Content-Length", "3")
	limit(new(counting)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if got, ok := w.Header()["Content-Length"]; ok {
		t.Errorf("got Content-Length %q, want none", got)
	}
	if !strings.Contains(w.Body.String(), `"violated-policies":["cache"]`) || w.Header().Get("Retry-After") != "1" {
		t.Errorf("got %v %s, want the rule cache and Retry-After 1", w.Header(), w.Body)
	}
}

// Plan chooses the decider.
func TestPlan(t *testing.T) {
	free := newLimiter(t, algorithm.FixedWindow{Limit: 1, Window: time.Hour})
	pro, err := free.With(weir.Rule{Algorithm: algorithm.FixedWindow{Limit: 5, Window: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	var missing *weir.Limiter
	for _, tt := range []struct {
		name  string
		d     weir.Decider
		err   error
		want  int
		limit string
	}{
		{"pro", pro, nil, 204, "5"},
		{"none", nil, nil, 204, "1"},
		{"a nil Limiter", missing, nil, 500, ""},
		{"unlimited", nil, weirhttp.ErrUnlimited, 204, ""},
		{"unlimited with a decider", pro, weirhttp.ErrUnlimited, 204, ""},
		{"an error", pro, errors.New("no such plan"), 500, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			limit, _ := newMiddleware(t, free, weirhttp.By(weirhttp.Text(tt.name)), weirhttp.Options{
				Headers: weirhttp.XRateLimit,
				Plan:    func(*http.Request) (weir.Decider, error) { return tt.d, tt.err },
			})
			w := serve(limit(new(counting)), nil)
			if got := w.Header().Get("X-RateLimit-Limit"); w.Code != tt.want || got != tt.limit {
				t.Errorf("got status %d and limit %q, want %d and %q", w.Code, got, tt.want, tt.limit)
			}
		})
	}
}

// New reports misuse.
func TestNewErrors(t *testing.T) {
	lim := newLimiter(t, algorithm.FixedWindow{Limit: 1, Window: time.Hour})
	var nilLimiter *weir.Limiter
	for _, tt := range []struct {
		d       weir.Decider
		request weirhttp.RequestFunc
		opts    weirhttp.Options
		want    string
	}{
		{nil, all, weirhttp.Options{}, "the decider is nil"},
		{nilLimiter, all, weirhttp.Options{}, "the Limiter is nil or a zero value"},
		{new(weir.Limiter), all, weirhttp.Options{}, "the Limiter is nil or a zero value"},
		{lim, nil, weirhttp.Options{}, "the RequestFunc is nil"},
		{lim, weirhttp.WithCosts(all, nil), weirhttp.Options{}, "WithCosts returns nil if a function"},
		{lim, weirhttp.WithCosts(nil, ofBytes(1, nil)), weirhttp.Options{}, "the RequestFunc is nil"},
		{lim, all, weirhttp.Options{Headers: 9}, "Options.Headers is 9"},
		{lim, all, weirhttp.Options{Timeout: -1}, "Options.Timeout is -1ns"},
		{lim, all, weirhttp.Options{LeaseRetryAfter: -1}, "Options.LeaseRetryAfter is -1ns: it must be above 0"},
		{lim, all, weirhttp.Options{LeaseRetryAfter: time.Hour + 1}, "at most 1h0m0s"},
		{lim, all, weirhttp.Options{PartitionKey: func(*http.Request) []byte { return nil }}, "Options.Headers must be RateLimitDraft11"},
	} {
		limit, err := weirhttp.New(tt.d, tt.request, &tt.opts)
		if limit != nil || err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "weirhttp: ") {
			t.Errorf("got error %v, want %q", err, tt.want)
		}
	}
	limit, errs := newMiddleware(t, lim, all, weirhttp.Options{})
	if w := serve(limit(nil), nil); w.Code != 500 || len(*errs) != 1 {
		t.Errorf("without a handler: got status %d, errors %v, want 500 and one error", w.Code, *errs)
	}
}
