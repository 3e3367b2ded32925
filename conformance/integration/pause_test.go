package integration

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/weirhttp"
)

// TestPauseProcesses checks that a Retry-After that one client saw stops another client, which has
// connections and a limiter of its own, within one round trip to the store: its next request finds
// the pause, in the one call that it makes. It sends nothing until the pause ends.
func TestPauseProcesses(t *testing.T) {
	servers.Need(t)
	for name, wait := range map[string]string{"1 s": "1", "an hour": "3600"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, _ := adapters[0].single(t)
			var mu sync.Mutex
			var came []time.Time
			service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				if came = append(came, time.Now()); len(came) == 1 {
					w.Header().Set("Retry-After", wait)
					w.WriteHeader(http.StatusTooManyRequests)
				}
			}))
			defer service.Close()
			arrivals := func() []time.Time {
				mu.Lock()
				defer mu.Unlock()
				return slices.Clone(came)
			}
			first, _, calls := pauseClient(t, server.Endpoint, 0)
			patient, lim, _ := pauseClient(t, server.Endpoint, 0)

			// The decision of the first request, and the pause that the answer asks for.
			if got := get(t.Context(), first, service.URL); got != "429 Too Many Requests" || calls.Load() != 2 {
				t.Fatalf("the first request: %s, after %d calls of the store", got, calls.Load())
			}
			if wait == "1" {
				if got := get(t.Context(), patient, service.URL); got != "200 OK" {
					t.Errorf("a request that waits: %s", got)
				}
				if came := arrivals(); len(came) != 2 || came[1].Sub(came[0]) < time.Second {
					t.Errorf("requests came at %v, want two, at least a second apart", came)
				}
				return
			}
			hasty, _, calls := pauseClient(t, server.Endpoint, time.Millisecond)
			for i := range int64(3) {
				if got := get(t.Context(), hasty, service.URL); got != "paused" || calls.Load() != i+1 {
					t.Errorf("a request that may not wait: %s, after %d calls of the store, want a pause after %d", got, calls.Load(), i+1)
				}
			}
			if n := len(arrivals()); n != 1 {
				t.Errorf("%d requests came before the pause ended, want the first only", n)
			}
			// The end of the pause, before its time.
			if ok, err := lim.Resume(t.Context(), weirhttp.PauseID, "127.0.0.1"); !ok || err != nil {
				t.Fatalf("Resume: %v, %v", ok, err)
			}
			if got := get(t.Context(), hasty, service.URL); got != "200 OK" || len(arrivals()) != 2 {
				t.Errorf("after the pause: %s, and %d requests came, want 2", got, len(arrivals()))
			}
		})
	}
}

// pauseClient returns a client whose requests wait at most maxWait, and its limiter. A maxWait of
// 0 means no bound. calls counts the calls of its store.
func pauseClient(t *testing.T, e servers.Endpoint, maxWait time.Duration) (c *http.Client, lim *weir.Limiter, calls *atomic.Int64) {
	t.Helper()
	calls = new(atomic.Int64)
	lim, err := weir.NewPolicy(counted{adapters[0].once(t, e), calls, new(atomic.Int64)}, weir.Policy{Name: "service", Segments: []string{"host"}, Rules: []weir.Rule{
		{Name: "pace", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1000), Burst: 100}},
		{Name: "pause", Algorithm: algorithm.Pause{}},
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Transport: &weirhttp.Transport{Limiter: lim, Pauses: lim, Request: func(r *http.Request) (weir.Request, error) {
		return weir.Request{Key: weir.KeyOf(r.URL.Hostname()), MaxWait: maxWait}, nil
	}}}, lim, calls
}

// get sends a request. It returns the status, "paused", or the error.
func get(ctx context.Context, c *http.Client, url string) string {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err.Error()
	}
	res, err := c.Do(r)
	switch {
	case errors.Is(err, weirhttp.ErrPaused):
		return "paused"
	case err != nil:
		return err.Error()
	}
	_ = res.Body.Close()
	return res.Status
}
