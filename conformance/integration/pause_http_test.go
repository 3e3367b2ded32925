package integration

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/weirhttp"
)

// TestSharedPause checks that a Retry-After that one client saw stops another client,
// which has connections and limiters of its own: it sends nothing until the pause ends.
// Afterwards, both send.
func TestSharedPause(t *testing.T) {
	t.Parallel()
	servers.Need(t)
	a := adapters[0]
	server, _ := a.single(t)
	const pause = time.Second // the shortest that Retry-After can say
	var mu sync.Mutex
	var came []time.Time
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if came = append(came, time.Now()); len(came) == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer service.Close()
	prefix := fmt.Sprintf("weirtest-pause-%x", rand.Uint64())
	var clients [2]*http.Client
	for i := range clients {
		lim, err := weir.NewPolicy(a.store(t, server.Endpoint), weir.Policy{Name: "service", Rules: []weir.Rule{
			{Name: "pace", Algorithm: algorithm.LeakyBucket{Rate: algorithm.PerSecond(1000), Queue: 100}},
			{Name: "pause", Algorithm: algorithm.Pause{}},
		}}, &weir.Options{Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		clients[i] = &http.Client{Transport: &weirhttp.Transport{Limiter: lim, Pauses: lim, Jitter: true}}
	}
	get := func(c *http.Client) {
		res, err := c.Get(service.URL)
		if err != nil {
			t.Error(err)
			return
		}
		_ = res.Body.Close()
	}
	get(clients[0])
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() { get(clients[1-i%2]) })
	}
	wg.Wait()
	if len(came) != 7 {
		t.Errorf("%d requests came, want 7", len(came))
	}
	for _, at := range came[1:] {
		if at.Sub(came[0]) < pause {
			t.Errorf("a request came %v after the server asked for a pause of %v", at.Sub(came[0]), pause)
		}
	}
}
