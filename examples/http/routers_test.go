package routers_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	routers "github.com/weir-go/weir/examples/http"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirhttp"
)

func newLimit(by weirhttp.Segment, opts *weir.Options) (routers.Middleware, error) {
	lim, err := weir.New("api", memory.New(nil), algorithm.FixedWindow{Limit: 1, Window: time.Minute}, opts)
	if err != nil {
		return nil, err
	}
	return weirhttp.New(lim, weirhttp.By(by), &weirhttp.Options{Headers: weirhttp.RateLimitDraft11})
}

var all = []struct {
	name   string
	router func(routers.Middleware) http.Handler
}{{"chi", routers.Chi}, {"gin", routers.Gin}, {"echo", routers.Echo}}

func Example() {
	// The clock is stopped, so that the example always prints the same. A program passes nil.
	stopped := &weir.Options{Clock: func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }}
	for _, r := range all {
		limit, err := newLimit(weirhttp.RemoteIP, stopped)
		if err != nil {
			panic(err)
		}
		h := r.router(limit)
		for range 2 {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/users/7", nil))
			fmt.Println(r.name, w.Code, w.Header().Get("RateLimit"), strings.SplitAfter(w.Body.String(), ",")[0])
		}
	}
	// Output:
	// chi 200 "fixedwindow";r=0;t=60 user 7
	// chi 429 "fixedwindow";r=0;t=60 {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",
	// gin 200 "fixedwindow";r=0;t=60 user 7
	// gin 429 "fixedwindow";r=0;t=60 {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",
	// echo 200 "fixedwindow";r=0;t=60 user 7
	// echo 429 "fixedwindow";r=0;t=60 {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",
}

// A denied request reaches no handler, and is allowed a minute later.
func TestRouters(t *testing.T) {
	for _, r := range all {
		t.Run(r.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limit, err := newLimit(weirhttp.RemoteIP, nil)
				if err != nil {
					t.Fatal(err)
				}
				h := r.router(limit)
				for i, want := range []int{200, 429, 429, 200} {
					if i == 3 {
						time.Sleep(time.Minute)
					}
					w := httptest.NewRecorder()
					h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/users/7", nil))
					if w.Code != want || (w.Body.String() == "user 7") != (want == 200) {
						t.Errorf("request %d: got status %d and %q, want %d", i, w.Code, w.Body, want)
					}
				}
			})
		})
	}
}

// With chi, the pattern is known to a middleware of the route, and not to one of the router.
func TestChiPattern(t *testing.T) {
	limit, err := newLimit(weirhttp.Pattern, nil)
	if err != nil {
		t.Fatal(err)
	}
	hello := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }
	inside, outside := chi.NewRouter(), chi.NewRouter()
	inside.With(limit).Get("/users/{id}", hello)
	outside.Use(limit)
	outside.Get("/users/{id}", hello)
	for _, tt := range []struct {
		name string
		h    http.Handler
		path string
		want int
	}{{"of the route", inside, "/users/1", 200}, {"of the route", inside, "/users/2", 429}, {"of the router", outside, "/users/1", 500}} {
		w := httptest.NewRecorder()
		tt.h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, tt.path, nil))
		if w.Code != tt.want {
			t.Errorf("a middleware %s: got status %d, want %d", tt.name, w.Code, tt.want)
		}
	}
}
