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
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirhttp"
)

// counted is a policy that counts a unit, of which a key has 10 in an hour.
var counted = weir.Policy{Units: []string{"bytes"}, Rules: []weir.Rule{{Name: "bytes", Unit: "bytes", Algorithm: algorithm.GCRA{Rate: algorithm.PerHour(10), Burst: 10}}, pauseRule}}

// ofBytes returns a function for WithCosts.
func ofBytes(n int64, err error) func(*http.Request) (weir.Costs, error) {
	return func(*http.Request) (weir.Costs, error) { return weir.CostsOf(map[string]int64{"bytes": n}), err }
}

// Each kind of error has its status. FailOpen passes on only outages. OnError gets every error, and
// no text of an error reaches the client.
func TestErrors(t *testing.T) {
	secret := errors.New("secret")
	wrap := func(err error) error { return fmt.Errorf("%w: %w", err, secret) }
	of := func(err error) weirhttp.RequestFunc {
		return func(*http.Request) (weir.Request, error) { return weir.Request{}, err }
	}
	answers := func(value string, err error) weirhttp.Segment {
		return func(*http.Request) (string, error) { return value, err }
	}
	plan := func(d weir.Decider, err error) func(*http.Request) (weir.Decider, error) {
		return func(*http.Request) (weir.Decider, error) { return d, err }
	}
	text, first, by := weirhttp.Text, weirhttp.FirstOf, weirhttp.By
	lim := newLimiter(t, algorithm.FixedWindow{Limit: 100, Window: time.Hour})
	leases := newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: time.Hour})
	units := func() weir.Decider { return weirtest.NewPolicy(t, memory.New(nil), counted) }
	missing := (*weir.Limiter)(nil)
	for name, tt := range map[string]struct {
		d            weir.Decider
		request      weirhttp.RequestFunc
		plan         func(*http.Request) (weir.Decider, error)
		closed, open int    // the status without and with FailOpen
		says         string // the error
	}{
		"allowed":                     {lim, all, nil, 204, 204, ""},
		"a lease":                     {leases, all, nil, 204, 204, ""},
		"unlimited":                   {failing(secret), of(wrap(weirhttp.ErrUnlimited)), nil, 204, 204, ""},
		"an outage":                   {failing(wrap(store.ErrUnavailable)), all, nil, 503, 204, "store unavailable"},
		"a deadline of the store":     {failing(wrap(context.DeadlineExceeded)), all, nil, 503, 204, "deadline exceeded"},
		"a foreign value":             {failing(wrap(store.ErrForeign)), all, nil, 500, 500, "not a limiter's"},
		"no key":                      {lim, of(wrap(weirhttp.ErrNoKey)), nil, 400, 400, "weirhttp: the request has no key"},
		"an empty segment":            {lim, asking(weir.Request{Key: weir.KeyOf("")}), nil, 400, 400, "weirhttp: the request has no key"},
		"another key than the policy": {lim, by(text("a"), text("b")), nil, 500, 500, "2 segments"},
		"an error of the RequestFunc": {lim, of(secret), nil, 500, 500, "secret"},
		"an outage of something else": {lim, of(wrap(store.ErrUnavailable)), nil, 500, 500, "store unavailable"},
		"a negative cost":             {lim, asking(weir.Request{Cost: -1}), nil, 500, 500, "Cost is -1"},
		"a peek":                      {lim, asking(weir.Request{Op: weir.Peek}), nil, 500, 500, "weirhttp: Request.Op is Peek"},
		"By without a segment":        {lim, by(), nil, 500, 500, "there are 0 segments"},
		"By with nine":                {lim, by(make([]weirhttp.Segment, 9)...), nil, 500, 500, "there are 9 segments"},
		"By with a nil segment":       {lim, by(text("a"), nil), nil, 500, 500, "By: a segment is nil"},
		"an empty segment of By":      {lim, by(text("a"), text("")), nil, 400, 400, "segment 2 of the key is empty"},
		"an error of a segment":       {lim, by(answers("a", secret)), nil, 500, 500, "secret"},
		"FirstOf nothing":             {lim, by(first()), nil, 500, 500, "FirstOf has no segments"},
		"FirstOf nil":                 {lim, by(first(nil)), nil, 500, 500, "FirstOf: a segment is nil"},
		"an error in FirstOf":         {lim, by(first(answers("", secret), text("a"))), nil, 500, 500, "secret"},
		"a pattern without a mux":     {lim, by(weirhttp.Pattern), nil, 500, 500, "the request has no pattern"},
		"5 bytes of 10":               {units(), weirhttp.WithCosts(all, ofBytes(5, nil)), nil, 204, 204, ""},
		"11 bytes of 10":              {units(), weirhttp.WithCosts(all, ofBytes(11, nil)), nil, 429, 429, ""},
		"bytes that are not limited":  {lim, weirhttp.WithCosts(all, ofBytes(7, weirhttp.ErrUnlimited)), nil, 204, 204, ""},
		"no bytes":                    {units(), all, nil, 500, 500, `weirhttp: the request has no Costs: use WithCosts: weir: rule "bytes" counts the unit "bytes"`},
		"a negative number of bytes":  {units(), weirhttp.WithCosts(all, ofBytes(-1, nil)), nil, 500, 500, `has -1 of the unit "bytes"`},
		"an error of the bytes":       {units(), weirhttp.WithCosts(all, ofBytes(1, secret)), nil, 500, 500, "secret"},
		"bytes without a key":         {units(), weirhttp.WithCosts(by(text("")), ofBytes(1, nil)), nil, 400, 400, "segment 1 of the key is empty"},
		"a plan":                      {failing(secret), all, plan(lim, nil), 204, 204, ""},
		"the default of a plan":       {lim, all, plan(nil, nil), 204, 204, ""},
		"a plan without a limit":      {failing(secret), all, plan(failing(secret), weirhttp.ErrUnlimited), 204, 204, ""},
		"an error of a plan":          {lim, all, plan(lim, secret), 500, 500, "secret"},
		"a nil limiter of a plan":     {lim, all, plan(missing, nil), 500, 500, "the Limiter is nil or a zero value"},
	} {
		for _, open := range []bool{false, true} {
			var next counting
			limit, errs := newMiddleware(t, tt.d, tt.request, weirhttp.Options{FailOpen: open, Plan: tt.plan})
			w, want, says := serve(t.Context(), limit(&next)), tt.closed, fmt.Sprint(*errs)
			if open {
				want = tt.open
			}
			if w.Code != want || (next.calls == 1) != (want == 204) {
				t.Errorf("%s, FailOpen %v: got status %d and %d calls of the handler, want %d", name, open, w.Code, next.calls, want)
			}
			if len(*errs) > 1 || (len(*errs) == 1) != (tt.says != "") || !strings.Contains(says, tt.says) || strings.Contains(says, "WithCosts") != strings.Contains(tt.says, "WithCosts") {
				t.Errorf("%s, FailOpen %v: got errors %s, want %q", name, open, says, tt.says)
			}
			if body := w.Body.String(); strings.Contains(body, "secret") || strings.Contains(body, "weir") || want != 429 && w.Header().Get("Retry-After") != "" {
				t.Errorf("%s: the answer reveals something: %v %s", name, w.Header(), body)
			}
		}
	}
}

// Without OnError, errors are logged, those that clients cause at level Debug.
func TestLog(t *testing.T) {
	var out strings.Builder
	was := slog.Default()
	defer slog.SetDefault(was)
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	for err, want := range map[error]string{
		store.ErrUnavailable: `level=ERROR .* error="store unavailable"`,
		weirhttp.ErrNoKey:    `level=DEBUG .* error="weirhttp: the request has no key"`,
	} {
		out.Reset()
		limit, newErr := weirhttp.New(failing(err), all, nil)
		if newErr != nil {
			t.Fatal(newErr)
		}
		serve(t.Context(), limit(new(counting)))
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("got the log %q, want %q", out.String(), want)
		}
	}
}

// New reports misuse.
func TestNewErrors(t *testing.T) {
	lim := newLimiter(t, algorithm.FixedWindow{Limit: 1, Window: time.Hour})
	for _, tt := range []struct {
		d       weir.Decider
		request weirhttp.RequestFunc
		opts    weirhttp.Options
		want    string
	}{
		{nil, all, weirhttp.Options{}, "the decider is nil"},
		{(*weir.Limiter)(nil), all, weirhttp.Options{}, "the Limiter is nil or a zero value"},
		{lim, nil, weirhttp.Options{}, "the RequestFunc is nil"},
		{lim, weirhttp.WithCosts(all, nil), weirhttp.Options{}, "WithCosts returns nil if a function"},
		{lim, weirhttp.WithCosts(nil, ofBytes(1, nil)), weirhttp.Options{}, "the RequestFunc is nil"},
		{lim, all, weirhttp.Options{Headers: 4}, "Options.Headers is 4"},
		{lim, all, weirhttp.Options{Timeout: -1}, "Options.Timeout is -1ns"},
		{lim, all, weirhttp.Options{LeaseRetryAfter: -1}, "Options.LeaseRetryAfter is -1ns: it must be above 0"},
		{lim, all, weirhttp.Options{LeaseRetryAfter: time.Hour + 1}, "at most 1h0m0s"},
		{lim, all, weirhttp.Options{PartitionKey: func(*http.Request) []byte { return nil }}, "Options.Headers must be RateLimitDraft11"},
	} {
		limit, err := weirhttp.New(tt.d, tt.request, &tt.opts)
		if weirtest.WantError(t, err, nil, "weirhttp", tt.want); limit != nil {
			t.Errorf("%s: got a middleware", tt.want)
		}
	}
	limit, errs := newMiddleware(t, lim, all, weirhttp.Options{LeaseRetryAfter: time.Hour})
	if w := serve(t.Context(), limit(nil)); w.Code != 500 || len(*errs) != 1 {
		t.Errorf("without a handler: got status %d, errors %v, want 500 and one error", w.Code, *errs)
	}
}

// A panic of the RequestFunc reaches the caller, and the handler is not called.
func TestPanic(t *testing.T) {
	var next counting
	limit, _ := newMiddleware(t, failing(nil), func(*http.Request) (weir.Request, error) { panic("no key") }, weirhttp.Options{FailOpen: true})
	defer func() {
		if p := recover(); p != "no key" || next.calls > 0 {
			t.Errorf("got panic %v and %d calls of the handler, want the panic of the RequestFunc and none", p, next.calls)
		}
	}()
	serve(t.Context(), limit(&next))
}

// Reject can set a status, write without one, flush, or do nothing: the status is never 200. It
// can take the connection over, to close it without an answer.
func TestReject(t *testing.T) {
	var got weirhttp.Rejection
	var hijacked error
	hijack := func(w http.ResponseWriter) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if hijacked = err; err == nil {
			_ = conn.Close()
		}
	}
	for name, tt := range map[string]struct {
		reject func(w http.ResponseWriter)
		want   int // 0 means no answer
		body   string
	}{
		"nothing":      {func(http.ResponseWriter) {}, 429, ""},
		"a body":       {func(w http.ResponseWriter) { fmt.Fprint(w, "slow ", "down") }, 429, "slow down"},
		"a status":     {func(w http.ResponseWriter) { w.WriteHeader(http.StatusTeapot) }, http.StatusTeapot, ""},
		"early hints":  {func(w http.ResponseWriter) { w.WriteHeader(http.StatusEarlyHints) }, 429, ""},
		"a flush":      {func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }, 429, ""},
		"a connection": {hijack, 0, ""},
	} {
		limit, _ := newMiddleware(t, newLimiter(t, algorithm.FixedWindow{Limit: 1, Window: time.Hour}), all, weirhttp.Options{
			Reject: func(w http.ResponseWriter, _ *http.Request, why weirhttp.Rejection) { got = why; tt.reject(w) },
		})
		h, over := limit(new(counting)), make(chan bool)
		var logged strings.Builder
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r)
			close(over)
		}))
		srv.Config.ErrorLog = log.New(&logged, "", 0)
		srv.Start()
		serve(t.Context(), h) // takes the only token
		res, err := http.Get(srv.URL)
		<-over
		if tt.want == 0 {
			if !errors.Is(err, io.EOF) || hijacked != nil {
				t.Errorf("%s: got %v, %v, want an EOF", name, err, hijacked)
			}
			if w := serve(t.Context(), h); w.Code != 429 || !errors.Is(hijacked, http.ErrNotSupported) {
				t.Errorf("without a connection: got status %d, %v, want 429 and ErrNotSupported", w.Code, hijacked)
			}
		} else if err != nil {
			t.Fatal(err)
		} else if body, err := io.ReadAll(res.Body); err != nil || res.StatusCode != tt.want || string(body) != tt.body || res.Header.Get("Retry-After") == "" {
			t.Errorf("%s: got status %d, body %q, headers %v, %v, want %+v", name, res.StatusCode, body, res.Header, err, tt)
		}
		srv.Close()
		if got.Status != 429 || got.Err != nil || got.Result.Limit != 1 || !slices.Equal(got.Violated, []string{"fixedwindow"}) || logged.Len() > 0 {
			t.Errorf("%s: got rejection %+v, and the log %q", name, got, logged.String())
		}
	}
}

// 32 clients of a real server on 127.0.0.1 get exactly the limit, and no error.
func TestServer(t *testing.T) {
	const clients, requests, most = 32, 20, 300
	limit, _ := newMiddleware(t, newLimiter(t, algorithm.FixedWindow{Limit: most, Window: 24 * time.Hour}), weirhttp.By(weirhttp.RemoteIP), weirhttp.Options{
		Headers: weirhttp.RateLimitDraft11,
		OnError: func(_ *http.Request, err error) { t.Error(err) },
	})
	var calls, allowed, denied atomic.Int64
	srv := httptest.NewServer(limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) })))
	defer srv.Close()
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for range requests {
				res, err := srv.Client().Get(srv.URL)
				if err != nil {
					t.Error(err)
					return
				}
				_ = res.Body.Close()
				if res.StatusCode == 200 && res.Header.Get("RateLimit") != "" {
					allowed.Add(1)
				} else if res.StatusCode == 429 && res.Header.Get("Retry-After") != "" {
					denied.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if got, want := [...]int64{calls.Load(), allowed.Load(), denied.Load()}, [...]int64{most, most, clients*requests - most}; got != want {
		t.Errorf("got %d calls of the handler, allowed and denied requests, want %d", got, want)
	}
}
