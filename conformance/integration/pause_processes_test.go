package integration

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/weirhttp"
)

// The variables tell another process of TestPauseProcesses what to use.
const (
	pauseRedis   = "WEIR_PAUSE_REDIS"
	pausePrefix  = "WEIR_PAUSE_PREFIX"
	pauseService = "WEIR_PAUSE_SERVICE"
)

// TestPauseProcesses checks that a Retry-After that another process saw stops this process
// within one round trip to the store: its next request finds the pause, in the one call that it
// makes. It sends nothing until the pause ends.
func TestPauseProcesses(t *testing.T) {
	if service := os.Getenv(pauseService); service != "" {
		e := servers.Endpoint{Kind: servers.Single, Addrs: []string{os.Getenv(pauseRedis)}}
		c, _, calls := pauseClient(t, e, os.Getenv(pausePrefix), 0)
		for in := bufio.NewScanner(os.Stdin); in.Scan(); { // a line is a request
			before := calls.Load()
			fmt.Printf("pid %d: %s, %d calls of the store\n", os.Getpid(), get(t.Context(), c, service), calls.Load()-before)
		}
		return
	}
	t.Parallel()
	servers.Need(t)
	for name, wait := range map[string]string{"1 s": "1", "an hour": "3600"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			progress(t)
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
			prefix := fmt.Sprintf("weirtest-pause-%x", rand.Uint64())
			ask := pauseProcess(t, server.Endpoint.Addrs[0], prefix, service.URL)
			patient, lim, _ := pauseClient(t, server.Endpoint, prefix, 0)

			// The decision of the first request, and the pause that the answer asks for.
			if got := ask(); !strings.HasSuffix(got, ": 429 Too Many Requests, 2 calls of the store") {
				t.Fatalf("the other process: %s", got)
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
			hasty, _, calls := pauseClient(t, server.Endpoint, prefix, time.Millisecond)
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
func pauseClient(t *testing.T, e servers.Endpoint, prefix string, maxWait time.Duration) (c *http.Client, lim *weir.Limiter, calls *atomic.Int64) {
	t.Helper()
	calls = new(atomic.Int64)
	lim, err := weir.NewPolicy(counted{adapters[0].once(t, e), calls, new(atomic.Int64)}, weir.Policy{Name: "service", Segments: []string{"host"}, Rules: []weir.Rule{
		{Name: "pace", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1000), Burst: 100}},
		{Name: "pause", Algorithm: algorithm.Pause{}},
	}}, &weir.Options{Prefix: prefix})
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

// pauseProcess starts another process, which has a client of its own. The function sends a request
// there, and returns what the process says of it.
func pauseProcess(t *testing.T, redis, prefix, service string) func() string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestPauseProcesses$")
	cmd.Env = append(os.Environ(), pauseRedis+"="+redis, pausePrefix+"="+prefix, pauseService+"="+service)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	lines := bufio.NewReader(out)
	return func() string {
		if _, err := io.WriteString(in, "\n"); err != nil {
			t.Fatal(err)
		}
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("%q, %v", line, err)
		}
		return strings.TrimSpace(line)
	}
}
