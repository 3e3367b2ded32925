package main

import (
	"expvar"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/store/memory"
)

// Many clients at once, over real connections, get no error, and the store allows exactly the
// limit. Its clock stands still, so no token is refilled meanwhile.
func TestLoad(t *testing.T) {
	const clients, each, limit = 32, 100, 1000
	at := time.Now()
	handler, err := newHandler(memory.New(&memory.Options{Now: func() time.Time { return at }}), nil)
	if err != nil {
		t.Fatal(err)
	}
	outcomes.Init()
	server := httptest.NewServer(handler)
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	defer client.CloseIdleConnections()
	statuses := map[int]*atomic.Int64{200: new(atomic.Int64), 429: new(atomic.Int64), 503: new(atomic.Int64)}
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for range each {
				r, err := http.NewRequest("GET", server.URL+"/items", nil)
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("X-API-Key", "key-of-bob")
				res, err := client.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				body, err := io.ReadAll(res.Body)
				_ = res.Body.Close()
				n := statuses[res.StatusCode]
				if err != nil || n == nil || res.StatusCode == 200 && string(body) != "some items\n" {
					t.Errorf("got %d, %q, %v", res.StatusCode, body, err)
					return
				}
				n.Add(1)
			}
		})
	}
	wg.Wait()
	count := func(o observe.Outcome) int64 {
		if n, ok := outcomes.Get("api tokenbucket " + string(o)).(*expvar.Int); ok {
			return n.Value()
		}
		return 0
	}
	if got := count(observe.Allowed); got != limit {
		t.Errorf("the store allowed %d requests, want %d", got, limit)
	}
	// If the machine is so busy that a decision takes 50 ms, the process decides some requests.
	ok, denied, unknown := count(observe.Allowed)+count(observe.DegradedAllowed), count(observe.Denied), count(observe.DegradedDenied)
	over := statuses[429].Load() - denied // the share of the process
	if statuses[200].Load() != ok || over < 0 || over+statuses[503].Load() != unknown || ok+denied+unknown != clients*each {
		t.Errorf("status 200: %d, 429: %d, 503: %d; outcomes: %v", statuses[200].Load(), statuses[429].Load(), statuses[503].Load(), outcomes)
	}
}
