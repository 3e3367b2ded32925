package weirhttp_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/weirhttp"
)

// 32 clients of a real server on 127.0.0.1 get exactly the limit, and no error.
func TestServer(t *testing.T) {
	const clients, requests, limitOf = 32, 20, 300
	lim := newLimiter(t, algorithm.FixedWindow{Limit: limitOf, Window: 24 * time.Hour})
	limit, err := weirhttp.New(lim, weirhttp.By(weirhttp.RemoteIP), &weirhttp.Options{
		Headers: weirhttp.RateLimitDraft11,
		OnError: func(_ *http.Request, err error) { t.Error(err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	srv := httptest.NewServer(limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		_, _ = io.WriteString(w, "hello")
	})))
	defer srv.Close()
	var allowed, denied atomic.Int64
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for range requests {
				res, err := srv.Client().Get(srv.URL)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
				switch {
				case res.StatusCode == http.StatusOK && res.Header.Get("RateLimit") != "":
					allowed.Add(1)
				case res.StatusCode == http.StatusTooManyRequests && res.Header.Get("Retry-After") != "":
					denied.Add(1)
				default:
					t.Errorf("got %v", res)
				}
			}
		})
	}
	wg.Wait()
	if calls.Load() != limitOf || allowed.Load() != limitOf || denied.Load() != clients*requests-limitOf {
		t.Errorf("%d calls of the handler, %d allowed and %d denied, want %d, %[4]d and %d", calls.Load(), allowed.Load(), denied.Load(), limitOf, clients*requests-limitOf)
	}
}

// 32 requests at once of a client with a concurrency limit of 4 to a real server never
// run more than 4 at a time, and all of them succeed.
func TestServerLeases(t *testing.T) {
	const atOnce = 4
	var running, most atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := running.Add(1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		_, _ = io.WriteString(w, "hello")
		running.Add(-1)
	}))
	defer srv.Close()
	leases := newLimiter(t, algorithm.Concurrency{Limit: atOnce, Lease: time.Hour})
	client := &http.Client{Transport: &weirhttp.Transport{Leases: leases, Base: srv.Client().Transport}}
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			res, err := client.Get(srv.URL)
			if err != nil {
				t.Error(err)
				return
			}
			if body, err := io.ReadAll(res.Body); err != nil || string(body) != "hello" {
				t.Errorf("got %q, %v", body, err)
			}
			_ = res.Body.Close()
		})
	}
	wg.Wait()
	if n := most.Load(); n > atOnce {
		t.Errorf("%d requests ran at once, want at most %d", n, atOnce)
	}
	if res, err := leases.Peek(t.Context(), "127.0.0.1"); err != nil || res.Remaining != atOnce {
		t.Errorf("got %+v, %v, want all leases to be free", res, err)
	}
}

// A RequestFunc that panics ends the connection, and the handler does not run.
func TestServerPanic(t *testing.T) {
	limit, err := weirhttp.New(newLimiter(t, algorithm.FixedWindow{Limit: 1, Window: time.Hour}),
		func(*http.Request) (weir.Request, error) { panic("no key") }, &weirhttp.Options{FailOpen: true})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler runs") })))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.Start()
	defer srv.Close()
	res, err := srv.Client().Post(srv.URL, "text/plain", nil) // a GET would be sent again
	if err == nil {
		_ = res.Body.Close()
		t.Errorf("got status %d, want a closed connection", res.StatusCode)
	}
}

// A client that hangs up during the decision: its handler does not run, and it is no
// error.
func TestServerHangUp(t *testing.T) {
	asked, answered := make(chan struct{}), make(chan error, 1)
	d := deciderFunc(func(ctx context.Context, _ weir.Request, _ []weir.Result) (weir.Result, error) {
		close(asked)
		<-ctx.Done()
		answered <- ctx.Err()
		return weir.Result{}, ctx.Err()
	})
	limit, err := weirhttp.New(d, all, &weirhttp.Options{FailOpen: true, OnError: func(_ *http.Request, err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler runs") })))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := srv.Client().Do(r)
	if err == nil {
		_ = res.Body.Close()
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the client got %v, want context.Canceled", err)
	}
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Errorf("the decider got %v, want context.Canceled", err)
	}
	srv.Close() // waits for the handler
}
