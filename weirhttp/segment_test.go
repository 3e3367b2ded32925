package weirhttp_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirhttp"
)

func sha(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) }

// The key has the segments in the policy's order, whatever the order of the map.
func TestByName(t *testing.T) {
	text := weirhttp.Text
	by, err := weirhttp.ByName([]string{"tenant", "user", "route"}, map[string]weirhttp.Segment{"route": text("c"), "tenant": text("a"), "user": text("b")})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	if req, err := by(r); err != nil || req != (weir.Request{Key: weir.KeyOf("a", "b", "c")}) {
		t.Errorf("got %+v, %v, want the key a, b, c", req, err)
	}
	by, err = weirhttp.ByName(nil, map[string]weirhttp.Segment{"key": text("a")})
	if err != nil {
		t.Fatal(err)
	}
	if req, err := by(r); err != nil || req.Key != weir.KeyOf("a") {
		t.Errorf("without names: got %+v, %v, want the key a", req, err)
	}
	for _, tt := range []struct {
		names    []string
		segments map[string]weirhttp.Segment
		want     string
	}{
		{[]string{"ip", "user"}, map[string]weirhttp.Segment{"ip": text("a")}, `the segment "user" is missing or nil`},
		{[]string{"ip"}, map[string]weirhttp.Segment{"ip": nil}, `the segment "ip" is missing or nil`},
		{[]string{"ip"}, map[string]weirhttp.Segment{"ip": text("a"), "id": text("b")}, `the policy has no segment "id"`},
		{[]string{"ip", "ip"}, map[string]weirhttp.Segment{"ip": text("a")}, `the name "ip" is given twice`},
		{[]string{}, nil, "there are 0 names"},
		{make([]string, 9), nil, "there are 9 names"},
	} {
		by, err := weirhttp.ByName(tt.names, tt.segments)
		if by != nil || err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "weirhttp: ") {
			t.Errorf("%q: got error %v, want %q", tt.names, err, tt.want)
		}
	}
}

// WithCosts adds amounts to the requests of any RequestFunc. Without them, no request is
// passed on, and the error says what to do.
func TestWithCosts(t *testing.T) {
	lim := weirtest.NewPolicy(t, memory.New(nil), counted)
	secret := errors.New("secret")
	for _, tt := range []struct {
		name    string
		request weirhttp.RequestFunc
		want    int
		is      error
		says    string
	}{
		{"7 of 10", weirhttp.WithCosts(all, ofBytes(7, nil)), 204, nil, ""},
		{"7 of 3", weirhttp.WithCosts(all, ofBytes(7, nil)), 429, nil, ""},
		{"3 of 3", weirhttp.WithCosts(all, ofBytes(3, nil)), 204, nil, ""},
		{"nothing", weirhttp.WithCosts(all, ofBytes(0, nil)), 204, nil, ""},
		{"By alone", all, 500, weir.ErrInvalidCost, `weirhttp: the request has no Costs: use WithCosts: weir: rule "bytes" counts the unit "bytes"`},
		{"a negative amount", weirhttp.WithCosts(all, ofBytes(-1, nil)), 500, weir.ErrInvalidCost, `has -1 of the unit "bytes"`},
		{"an error of costs", weirhttp.WithCosts(all, ofBytes(1, secret)), 500, secret, ""},
		{"no key", weirhttp.WithCosts(weirhttp.By(weirhttp.Text("")), ofBytes(1, nil)), 400, weirhttp.ErrNoKey, ""},
		{"not limited", weirhttp.WithCosts(all, ofBytes(0, weirhttp.ErrUnlimited)), 204, nil, ""},
	} {
		limit, errs := newMiddleware(t, lim, tt.request, weirhttp.Options{FailOpen: true})
		if w := serve(limit(new(counting)), nil); w.Code != tt.want {
			t.Errorf("%s: got status %d, want %d", tt.name, w.Code, tt.want)
		}
		if err := errors.Join(*errs...); !errors.Is(err, tt.is) || tt.is != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: got error %v, want %v: %s", tt.name, err, tt.is, tt.says)
		}
	}
}

// By reports misuse with each request, and never as an ErrNoKey or an ErrUnlimited.
func TestBy(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for name, by := range map[string]weirhttp.RequestFunc{
		"there are 0 segments":         weirhttp.By(),
		"there are 9 segments":         weirhttp.By(make([]weirhttp.Segment, 9)...),
		"a segment is nil":             weirhttp.By(weirhttp.Text("a"), nil),
		"FirstOf: a segment is nil":    weirhttp.By(weirhttp.FirstOf(nil)),
		"FirstOf has no segments":      weirhttp.By(weirhttp.FirstOf()),
		"the request has no pattern":   weirhttp.By(weirhttp.Pattern),
		"an error of the user's own":   weirhttp.By(func(*http.Request) (string, error) { return "a", errors.New("an error of the user's own") }),
		"of the user's own in FirstOf": weirhttp.By(weirhttp.FirstOf(func(*http.Request) (string, error) { return "", errors.New("of the user's own in FirstOf") }, weirhttp.Text("a"))),
	} {
		req, err := by(r)
		if req != (weir.Request{}) || err == nil || !strings.Contains(err.Error(), name) || errors.Is(err, weirhttp.ErrNoKey) || errors.Is(err, weirhttp.ErrUnlimited) {
			t.Errorf("%s: got %+v, %v", name, req, err)
		}
	}
	if _, err := weirhttp.By(weirhttp.Text("a"), weirhttp.Text(""))(r); !errors.Is(err, weirhttp.ErrNoKey) || !strings.Contains(err.Error(), "segment 2") {
		t.Errorf("an empty segment: got %v, want an ErrNoKey that names segment 2", err)
	}
	segments := []weirhttp.Segment{weirhttp.Text("a")}
	by := weirhttp.By(segments...)
	segments[0] = nil
	if req, err := by(r); err != nil || req.Key != weir.KeyOf("a") {
		t.Errorf("after a change of the caller's slice: got %+v, %v, want the key a", req, err)
	}
}

func TestHeaders(t *testing.T) {
	for _, tt := range []struct {
		segment weirhttp.Segment
		name    string
		values  []string
		want    string // what is hashed; empty means ErrNoKey
	}{
		{weirhttp.Header("x-api-key"), "X-Api-Key", []string{"secret"}, "secret"},
		{weirhttp.Header("X-API-Key"), "X-Api-Key", []string{" secret\t"}, "secret"},
		{weirhttp.Header("X-API-Key"), "X-Api-Key", []string{"\x00é"}, "\x00é"},
		{weirhttp.Header("X-API-Key"), "X-Api-Key", nil, ""},
		{weirhttp.Header("X-API-Key"), "X-Api-Key", []string{""}, ""},
		{weirhttp.Header("X-API-Key"), "X-Api-Key", []string{" "}, ""},
		{weirhttp.Header("X-API-Key"), "X-Api-Key", []string{"a", "secret"}, ""},
		{weirhttp.BearerToken, "Authorization", []string{"Bearer secret"}, "secret"},
		{weirhttp.BearerToken, "Authorization", []string{"bEARER   secret "}, "secret"},
		{weirhttp.BearerToken, "Authorization", []string{"Bearer \tsecret"}, "secret"},
		{weirhttp.BearerToken, "Authorization", []string{"Bearer"}, ""},
		{weirhttp.BearerToken, "Authorization", []string{"Bearer "}, ""},
		{weirhttp.BearerToken, "Authorization", []string{"Bearer a b"}, ""},
		{weirhttp.BearerToken, "Authorization", []string{"Bearer a,b"}, ""},
		{weirhttp.BearerToken, "Authorization", []string{"Basic secret"}, ""},
		{weirhttp.BearerToken, "Authorization", []string{"Bearer a", "Bearer b"}, ""},
		{weirhttp.BearerToken, "Authorization", nil, ""},
	} {
		got, err := tt.segment(from("192.0.2.1:1", tt.name, tt.values...))
		switch {
		case len(tt.values) > 1 && !strings.Contains(err.Error(), "is there 2 times"):
			t.Errorf("%s %q: got %v, want the number of values", tt.name, tt.values, err)
		case tt.want == "":
			if got != "" || !errors.Is(err, weirhttp.ErrNoKey) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s %q: got %q, %v, want an ErrNoKey without the value", tt.name, tt.values, got, err)
			}
		case got != sha(tt.want) || err != nil:
			t.Errorf("%s %q: got %q, %v, want the hash of %q", tt.name, tt.values, got, err, tt.want)
		}
	}
}

func TestFirstOf(t *testing.T) {
	empty := func(*http.Request) (string, error) { return "", nil }
	first := weirhttp.FirstOf(empty, weirhttp.Header("X-API-Key"), weirhttp.RemoteIP)
	if got, err := first(from("192.0.2.1:1", "X-API-Key", "secret")); got != sha("secret") || err != nil {
		t.Errorf("got %q, %v, want the hash of the API key", got, err)
	}
	if got, err := first(from("192.0.2.1:1", "X-API-Key")); got != "192.0.2.1" || err != nil {
		t.Errorf("got %q, %v, want the address", got, err)
	}
	// The handler could read the API key: the client must not be limited by its address.
	for _, values := range [][]string{{"secret", "secret"}, {"secret", ""}} {
		if got, err := first(from("192.0.2.1:1", "X-Api-Key", values...)); got != "" || !errors.Is(err, weirhttp.ErrNoKey) {
			t.Errorf("%q: got %q, %v, want an ErrNoKey", values, got, err)
		}
	}
	if got, err := first(from("@", "X-API-Key")); got != "" || !errors.Is(err, weirhttp.ErrNoKey) {
		t.Errorf("got %q, %v, want an ErrNoKey", got, err)
	}
}

// All requests of a route share a limit; another route has its own.
func TestPattern(t *testing.T) {
	limit, errs := newMiddleware(t, newLimiter(t, algorithm.FixedWindow{Limit: 1, Window: time.Hour}), weirhttp.By(weirhttp.Pattern), weirhttp.Options{})
	mux := http.NewServeMux()
	mux.Handle("GET /users/{id}", limit(new(counting)))
	mux.Handle("GET /posts/{id}", limit(new(counting)))
	for path, want := range map[string]int{"/users/1": 204, "/posts/1": 204} {
		if w := serve(mux, httptest.NewRequest(http.MethodGet, path, nil)); w.Code != want {
			t.Errorf("%s: got status %d, want %d", path, w.Code, want)
		}
	}
	if w := serve(mux, httptest.NewRequest(http.MethodGet, "/users/2", nil)); w.Code != 429 || len(*errs) > 0 {
		t.Errorf("another user: got status %d, errors %v, want 429", w.Code, *errs)
	}
	if w := serve(limit(mux), nil); w.Code != 500 || len(*errs) != 1 {
		t.Errorf("around the mux: got status %d, errors %v, want 500 and an error", w.Code, *errs)
	}
}
