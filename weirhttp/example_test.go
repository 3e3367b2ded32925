package weirhttp_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirhttp"
)

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })

// stopped stops the clock, so that the examples always print the same. A program passes
// nil.
var stopped = &weir.Options{Clock: func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }}

func ExampleNew() {
	lim, err := weir.New("api", memory.New(nil), algorithm.FixedWindow{Limit: 1, Window: time.Minute}, stopped)
	if err != nil {
		panic(err)
	}
	limit, err := weirhttp.New(lim, weirhttp.By(weirhttp.RemoteIP), &weirhttp.Options{Headers: weirhttp.RateLimitDraft11})
	if err != nil {
		panic(err)
	}
	h := limit(hello) // http.ListenAndServe(":8080", h) serves it
	for range 2 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(w.Code, w.Header().Get("RateLimit"))
		fmt.Print(w.Body)
	}
	// Output:
	// 200 "fixedwindow";r=0;t=60
	// hello
	// 429 "fixedwindow";r=0;t=60
	// {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"violated-policies":["fixedwindow"]}
}

// The segments of a policy have names. Their order in the map does not matter.
func ExampleByName() {
	policy := weir.Policy{
		Name:     "api",
		Segments: []string{"customer", "route"},
		Rules: []weir.Rule{
			{Name: "customer", By: []string{"customer"}, Algorithm: algorithm.FixedWindow{Limit: 1000, Window: time.Hour}},
			{Name: "route", Algorithm: algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(1)}},
		},
	}
	lim, err := weir.NewPolicy(memory.New(nil), policy, nil)
	if err != nil {
		panic(err)
	}
	by, err := weirhttp.ByName(policy.Segments, map[string]weirhttp.Segment{
		"route":    weirhttp.Pattern,
		"customer": weirhttp.BearerToken,
	})
	if err != nil {
		panic(err)
	}
	limit, err := weirhttp.New(lim, by, &weirhttp.Options{Headers: weirhttp.XRateLimit})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /users/{id}", limit(hello))

	r := httptest.NewRequest("GET", "/users/1", nil)
	r.Header.Set("Authorization", "Bearer secret")
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"))

	w = httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("GET", "/users/1", nil)) // without a token
	fmt.Println(w.Code)
	// Output:
	// 200 4
	// 400
}

// Each client behind the company's proxies has an address of its own.
func ExampleClientIP() {
	ip, err := weirhttp.ClientIP(weirhttp.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	if err != nil {
		panic(err)
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.1:4711"
	r.Header.Set("X-Forwarded-For", "192.0.2.66, 203.0.113.7, 10.0.0.2") // the client has written 192.0.2.66
	fmt.Println(ip(r))
	r.Header.Set("X-Forwarded-For", "2001:db8:0:1:2:3:4:5")
	fmt.Println(ip(r))
	// Output:
	// 203.0.113.7 <nil>
	// 2001:db8:0:1::/64 <nil>
}

// A RequestFunc of the program's own: a health check is not limited, and a search costs
// more.
func ExampleRequestFunc() {
	lim, err := weir.New("api", memory.New(nil), algorithm.TokenBucket{Capacity: 20, Refill: algorithm.PerSecond(1)}, stopped)
	if err != nil {
		panic(err)
	}
	byIP := weirhttp.By(weirhttp.RemoteIP)
	request := func(r *http.Request) (weir.Request, error) {
		if r.URL.Path == "/health" {
			return weir.Request{}, weirhttp.ErrUnlimited
		}
		req, err := byIP(r)
		if r.URL.Path == "/search" {
			req.Cost = 5
		}
		return req, err
	}
	limit, err := weirhttp.New(lim, request, &weirhttp.Options{Headers: weirhttp.XRateLimit})
	if err != nil {
		panic(err)
	}
	for _, path := range []string{"/health", "/", "/search"} {
		w := httptest.NewRecorder()
		limit(hello).ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		fmt.Printf("%s %q\n", path, w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// /health ""
	// / "19"
	// /search "14"
}

// At most two requests run at once, and each costs what its handler says: here 4 of an estimate
// of 15.
func ExampleSettle() {
	lim, err := weir.NewPolicy(memory.New(nil), weir.Policy{Name: "reports", Rules: []weir.Rule{
		{Name: "running", Algorithm: algorithm.Concurrency{Limit: 2, Lease: time.Minute}, Cost: 1},
		{Name: "rows", Algorithm: algorithm.FixedWindow{Limit: 20, Window: time.Hour}},
	}}, &weir.Options{Settles: true, Clock: stopped.Clock})
	if err != nil {
		panic(err)
	}
	byIP := weirhttp.By(weirhttp.RemoteIP)
	limit, err := weirhttp.New(lim, func(r *http.Request) (weir.Request, error) {
		req, err := byIP(r)
		req.Cost = 15
		return req, err // without an ID: the middleware makes one, because a rule holds leases
	}, nil)
	if err != nil {
		panic(err)
	}
	h := limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if err := weirhttp.Settle(r.Context(), weir.ActualCost(4)); err != nil {
			fmt.Println(err)
		}
	}))
	for range 3 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 200
	// 429
}

// An answer of the program's own. The status is set already, unless Reject sets another
// one.
func ExampleRejection() {
	lim, err := weir.New("api", memory.New(nil), algorithm.FixedWindow{Limit: 1, Window: time.Minute}, stopped)
	if err != nil {
		panic(err)
	}
	limit, err := weirhttp.New(lim, weirhttp.By(weirhttp.Header("X-API-Key")), &weirhttp.Options{
		Reject: func(w http.ResponseWriter, _ *http.Request, why weirhttp.Rejection) {
			if errors.Is(why.Err, weirhttp.ErrNoKey) {
				w.WriteHeader(http.StatusUnauthorized)
			}
			fmt.Fprintln(w, "sorry:", why.Violated)
		},
	})
	if err != nil {
		panic(err)
	}
	for _, key := range []string{"ann", "ann", ""} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-API-Key", key)
		w := httptest.NewRecorder()
		limit(hello).ServeHTTP(w, r)
		fmt.Print(w.Code, " ", w.Body)
	}
	// Output:
	// 200 hello
	// 429 sorry: [fixedwindow]
	// 401 sorry: []
}

func ExampleTransport() {
	server := httptest.NewServer(hello)
	defer server.Close()

	lim, err := weir.New("calls", memory.New(nil), algorithm.LeakyBucket{Rate: algorithm.PerMinute(1), Queue: 10}, nil)
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: &weirhttp.Transport{Limiter: lim}, Timeout: 10 * time.Second}
	for range 2 {
		res, err := client.Get(server.URL)
		if err != nil {
			fmt.Println("denied:", errors.Is(err, weir.ErrDenied)) // the turn would come after the time-out
			continue
		}
		fmt.Println(res.StatusCode)
		_ = res.Body.Close()
	}
	// Output:
	// 200
	// denied: true
}

// OpenAI sends durations such as 6m0s, for requests and for tokens.
func ExampleTransport_durations() {
	t := &weirhttp.Transport{RetryAfter: func(res *http.Response) (longest time.Duration) {
		for _, what := range []string{"Requests", "Tokens"} {
			if res.Header.Get("X-Ratelimit-Remaining-"+what) == "0" {
				reset, _ := time.ParseDuration(res.Header.Get("X-Ratelimit-Reset-" + what))
				longest = max(longest, reset)
			}
		}
		return longest
	}}
	h := http.Header{}
	h.Set("X-RateLimit-Remaining-Tokens", "0")
	h.Set("X-RateLimit-Reset-Tokens", "6m0s")
	fmt.Println(t.RetryAfter(&http.Response{Header: h}))
	// Output: 6m0s
}

// Anthropic sends times of RFC 3339.
func ExampleTransport_times() {
	t := &weirhttp.Transport{RetryAfter: func(res *http.Response) (longest time.Duration) {
		for _, what := range []string{"Requests", "Tokens"} {
			if res.Header.Get("Anthropic-Ratelimit-"+what+"-Remaining") == "0" {
				reset, _ := time.Parse(time.RFC3339, res.Header.Get("Anthropic-Ratelimit-"+what+"-Reset"))
				longest = max(longest, time.Until(reset)) // without a valid reset, it is negative
			}
		}
		return longest
	}}
	h := http.Header{}
	h.Set("Anthropic-RateLimit-Requests-Remaining", "0")
	h.Set("Anthropic-RateLimit-Requests-Reset", time.Now().Add(90*time.Second).Format(time.RFC3339))
	fmt.Println(t.RetryAfter(&http.Response{Header: h}).Round(10 * time.Second))
	// Output: 1m30s
}

func ExampleIPSegment() {
	segment, err := weirhttp.IPSegment("2001:db8:1:2:3::4", 0)
	if err != nil {
		panic(err)
	}
	fmt.Println(segment) // the key of everyone in the client's network
	// Output: 2001:db8:1:2::/64
}
