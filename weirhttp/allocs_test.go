package weirhttp_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/weirhttp"
)

// A discard is a ResponseWriter that keeps only the header.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

// A setup is a middleware whose cost is measured.
type setup struct {
	name  string
	h     http.Handler
	r     *http.Request
	limit float64 // allocations
}

func setups(t testing.TB) []setup {
	lim := newLimiter(t, algorithm.GCRA{Rate: algorithm.PerSecond(1_000_000), Burst: 1 << 32})
	proxies, err := weirhttp.ClientIP(weirhttp.Proxies{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	with := func(request weirhttp.RequestFunc, opts weirhttp.Options) http.Handler {
		limit, _ := newMiddleware(t, lim, request, opts)
		return limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	}
	handler := func(by weirhttp.Segment, headers weirhttp.Dialect) http.Handler {
		return with(weirhttp.By(by), weirhttp.Options{Headers: headers})
	}
	plan := weirhttp.Options{Plan: func(*http.Request) (weir.Decider, error) { return lim, nil }}
	request := func(addr string) *http.Request {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = addr
		r.Header.Set("X-Forwarded-For", "198.51.100.1, 203.0.113.7")
		r.Header.Set("Authorization", "Bearer a-token-of-usual-length-0123456789")
		return r
	}
	v4, v6 := request("192.0.2.1:1234"), request("[2001:db8::1]:1234")
	return []setup{
		{"bare", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), v4, 0},
		{"IPv4", handler(weirhttp.RemoteIP, weirhttp.NoHeaders), v4, 0},
		{"IPv6", handler(weirhttp.RemoteIP, weirhttp.NoHeaders), v6, 2},
		{"proxy", handler(proxies, weirhttp.NoHeaders), v4, 0},
		{"token", handler(weirhttp.BearerToken, weirhttp.NoHeaders), v4, 2},
		{"plan", with(all, plan), v4, 0},
		{"ID", with(asking(weir.Request{ID: "work"}), weirhttp.Options{}), v4, 2}, // the markers' keys, and the request with a context for Settle
		{"draft", handler(weirhttp.RemoteIP, weirhttp.RateLimitDraft11), v4, 4},
		{"X-RateLimit", handler(weirhttp.RemoteIP, weirhttp.XRateLimit), v4, 5},
	}
}

// Without header fields, a decision on the memory store adds at most two allocations to a
// handler. Each header field adds two: its text, and its list.
func TestAllocations(t *testing.T) {
	if weirtest.Race {
		t.Skip("the race detector allocates")
	}
	for _, s := range setups(t) {
		t.Run(s.name, func(t *testing.T) {
			w := &discard{make(http.Header)}
			got := testing.AllocsPerRun(1000, func() {
				clear(w.header)
				s.h.ServeHTTP(w, s.r)
			})
			if got > s.limit {
				t.Errorf("%v allocations, want at most %v", got, s.limit)
			}
			t.Logf("%v allocations", got)
		})
	}
}

func BenchmarkMiddleware(b *testing.B) {
	for _, s := range setups(b) {
		b.Run(s.name, func(b *testing.B) {
			w := &discard{make(http.Header)}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				s.h.ServeHTTP(w, s.r)
			}
		})
	}
}
