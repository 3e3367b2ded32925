package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"expvar"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
)

// A site is a gateway in front of a fake provider.
type site struct {
	*testing.T
	*gateway
	clock    *weirtest.Clock
	store    *weirtest.Hooked
	url      string
	calls    int                                          // of the store
	provider func(w http.ResponseWriter, r *http.Request) // answers the next calls
	asked    []*http.Request                              // by the provider
	ended    chan struct{}                                // gets a value when a call has ended
	mu       sync.Mutex
}

func newSite(t *testing.T) *site {
	s := &site{T: t, clock: weirtest.NewClock(), ended: make(chan struct{}, 100), provider: stream}
	s.store = &weirtest.Hooked{Store: weirtest.NewStore(s.clock), Before: func(context.Context, *store.Script) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.calls++
		return nil
	}}
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		for _, want := range []string{`"max_tokens":600,`, `"n":1,`, `"stream_options":{"include_usage":true}`} {
			if err != nil || !strings.Contains(string(text), want) {
				t.Errorf("the provider got %s, %v, want %s", text, err, want)
			}
		}
		s.mu.Lock()
		s.asked = append(s.asked, r)
		answer := s.provider
		s.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(provider.Close)
	target, err := url.Parse(provider.URL)
	if err != nil {
		t.Fatal(err)
	}
	if s.gateway, err = newGateway(s.store, target, "secret"); err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { s.ended <- struct{}{} }()
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	s.url = proxy.URL + "/v1/chat/completions"
	return s
}

// stream answers with 8 tokens of input and 12 of output, in events.
func stream(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, event+`data: {"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":12,"total_tokens":20}}`+"\n\ndata: [DONE]\n\n")
}

const (
	event = `data: {"choices":[{"delta":{"content":"\ndata: {\"usage\":{}}"}}],"usage":null}` + "\n\n"
	body  = `{"model": "any", "stream": true, "max_tokens": 600, "n": 9, "messages": [{"role": "user", "content": "Hi"}]}`
)

// send sends a call of a user, with an Idempotency-Key unless once is empty.
func (s *site) send(ctx context.Context, user, once string) *http.Response {
	s.Helper()
	r, err := http.NewRequestWithContext(ctx, "POST", s.url, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer key-of-"+user)
	r.Header.Set("Idempotency-Key", once)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	return res
}

// want sends a call, waits for its end, and fails the test unless the status is code.
func (s *site) want(code int, user, once string) (*http.Response, string) {
	s.Helper()
	res := s.send(s.Context(), user, once)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != code {
		s.Fatalf("got %d %s, %v, want %d", res.StatusCode, text, err, code)
	}
	<-s.ended
	return res, string(text)
}

// A state is the free places of ann, and the tokens that she and her team have consumed.
type state struct{ places, requests, input, output, microcents int64 }

var estimate = state{4, 1, int64(len(body))/3 + 1, 600, (int64(len(body))/3+1)*inputPrice + 600*outputPrice}

func peek(t *testing.T, lim *weir.Limiter) state {
	t.Helper()
	var each [6]weir.Result
	r := weir.Request{Op: weir.Peek, Key: users["key-of-ann"], Costs: usage{}.costs()}
	if _, err := lim.Decide(t.Context(), r, each[:]); err != nil {
		t.Fatal(err)
	}
	used := func(i int) int64 { return each[i].Limit - each[i].Remaining }
	return state{each[0].Remaining, used(1), used(2), used(3), used(4)}
}

// left fails the test unless ann and her team have consumed want.
func (s *site) left(want state) {
	s.Helper()
	if got := peek(s.T, s.lim); got != want {
		s.Errorf("got %+v, want %+v", got, want)
	}
}

// A call is settled at the usage in the last event, in two round trips.
func TestStream(t *testing.T) {
	s := newSite(t)
	if _, text := s.want(200, "ann", ""); !strings.HasSuffix(text, "data: [DONE]\n\n") {
		t.Errorf("got %q", text)
	}
	if s.calls != 2 {
		t.Errorf("%d round trips, want 2", s.calls)
	}
	s.left(state{4, 1, 8, 12, 8*inputPrice + 12*outputPrice})
	if auth := s.asked[0].Header.Get("Authorization"); auth != "Bearer secret" {
		t.Errorf("the provider got %q", auth)
	}
	if n, _ := decisions.Get("Finish  allowed").(*expvar.Int); n == nil || n.Value() == 0 {
		t.Errorf("the metrics are %v", decisions)
	}
	s.provider = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip") // as the client accepts it
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, `{"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}`)
		_ = z.Close()
	}
	s.want(200, "ann", "")
	s.left(state{4, 2, 9, 14, 9*inputPrice + 14*outputPrice})
}

// If the provider asks for it, the team waits. The rejected call costs nothing.
func TestPause(t *testing.T) {
	s := newSite(t)
	s.provider = func(w http.ResponseWriter, _ *http.Request) {
		for _, field := range []string{"Retry-After: 20", "Retry-After-Ms: 19500", "X-Ratelimit-Remaining-Requests: 0", "X-Ratelimit-Reset-Requests: 19.5s"} {
			name, value, _ := strings.Cut(field, ": ")
			w.Header().Set(name, value)
		}
		http.Error(w, `{"error": {"code": "rate_limit_exceeded"}}`, http.StatusTooManyRequests)
	}
	s.want(429, "ann", "a")
	s.left(state{places: 4})
	s.provider = stream
	if res, _ := s.want(429, "bob", ""); res.Header.Get("Retry-After") != "20" || len(s.asked) != 1 {
		t.Errorf("got %v, and the provider got %d calls", res.Header, len(s.asked))
	}
	s.clock.Advance(20 * time.Second)
	s.want(200, "ann", "a")
	s.provider = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "86400") // a mistake of the provider must not stop the team for a day
		w.WriteHeader(http.StatusTooManyRequests)
	}
	s.want(429, "ann", "b")
	if res, _ := s.want(429, "bob", ""); res.Header.Get("Retry-After") != "600" {
		t.Errorf("got %v", res.Header)
	}
}

// A call that failed at the provider costs nothing, and can be repeated. A call that the provider
// rejects costs a request.
func TestError(t *testing.T) {
	s := newSite(t)
	s.provider = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }
	s.want(500, "ann", "a")
	s.left(state{places: 4})
	s.provider = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }
	s.want(404, "ann", "a")
	s.want(409, "ann", "a")
	s.left(state{places: 4, requests: 1})
	s.provider = func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }
	s.want(502, "ann", "b") // it may have done the work
	want := estimate
	want.requests++
	s.left(want)
}

// If the client leaves, the estimate stays, until the usage is known.
func TestLeave(t *testing.T) {
	s := newSite(t)
	s.provider = func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, event)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	ctx, leave := context.WithCancel(t.Context())
	res := s.send(ctx, "ann", "a")
	if _, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if got := peek(t, s.lim); got.places != 3 {
		t.Errorf("got %+v, want 3 places", got)
	}
	leave()
	<-s.ended
	s.left(estimate)
	s.want(409, "ann", "a")
	for _, known := range []bool{false, true, true} {
		tick := make(chan time.Time, 1)
		tick <- time.Time{}
		close(tick)
		s.sweep(t.Context(), tick, func(id string) (usage, bool) {
			return usage{8, 3}, known && id == s.asked[0].Header.Get("X-Client-Request-Id")
		})
		if !known {
			s.left(estimate)
		}
	}
	s.left(state{4, 1, 8, 3, 8*inputPrice + 3*outputPrice})
}

// A call runs once. If the reply of the store is lost, the retry is free.
func TestRetry(t *testing.T) {
	s := newSite(t)
	s.store.Lose = fmt.Errorf("lost: %w", store.ErrUnavailable)
	s.want(503, "ann", "a")
	s.store.Lose = nil
	got := peek(t, s.lim)
	got.places++ // the lease is held until it expires
	if got != estimate {
		t.Errorf("got %+v, want %+v", got, estimate)
	}
	s.want(200, "ann", "a")
	s.want(409, "ann", "a")
	s.left(state{4, 1, 8, 12, 8*inputPrice + 12*outputPrice})
	s.want(200, "bob", "a")
	if len(s.asked) != 2 {
		t.Errorf("the provider got %d calls, want 2", len(s.asked))
	}
}

// At most four calls of a user run at once.
func TestParallel(t *testing.T) {
	s := newSite(t)
	begun, end := make(chan struct{}), make(chan struct{})
	s.provider = func(w http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-end
		stream(w, r)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { s.want(200, "ann", "") })
		<-begun
	}
	if res, _ := s.want(429, "ann", ""); res.Header.Get("Retry-After") != "1" {
		t.Errorf("got %v", res.Header)
	}
	close(end)
	wg.Wait()
	s.left(state{4, 4, 32, 48, 32*inputPrice + 48*outputPrice})
}
