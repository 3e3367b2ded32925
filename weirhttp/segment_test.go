package weirhttp_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/weirhttp"
)

// The key has the segments in the policy's order, and By keeps them.
func TestByName(t *testing.T) {
	text, r := weirhttp.Text, httptest.NewRequest(http.MethodGet, "/", nil)
	by, err := weirhttp.ByName([]string{"tenant", "user"}, map[string]weirhttp.Segment{"user": text("b"), "tenant": text("a")})
	if err != nil {
		t.Fatal(err)
	}
	if req, err := by(r); err != nil || req != (weir.Request{Key: weir.KeyOf("a", "b")}) {
		t.Errorf("got %+v, %v, want the key a, b", req, err)
	}
	by, err = weirhttp.ByName([]string{"user"}, map[string]weirhttp.Segment{"user": nil})
	if weirtest.WantError(t, err, nil, "weirhttp", `the segment "user" is missing or nil`); by != nil {
		t.Error("got a RequestFunc, want nil")
	}
	segments := []weirhttp.Segment{text("a")}
	by = weirhttp.By(segments...)
	segments[0] = nil
	if req, err := by(r); err != nil || req.Key != weir.KeyOf("a") {
		t.Errorf("after a change of the caller's slice: got %+v, %v, want the key a", req, err)
	}
}

// The segments read the fields of a request. FirstOf does not look further after a field that is
// there twice: the handler could read it, so the client must not be limited by its address.
func TestSegments(t *testing.T) {
	empty := func(*http.Request) (string, error) { return "", nil }
	key := weirhttp.Header("x-api-key")
	first := weirhttp.FirstOf(empty, key, weirhttp.RemoteIP)
	secret := fmt.Sprintf("%x", sha256.Sum256([]byte("secret")))
	for _, tt := range []struct {
		segment    weirhttp.Segment
		addr, name string
		values     []string
		want       string // empty means ErrNoKey
	}{
		{key, "@", "X-API-Key", []string{" secret"}, secret},
		{key, "@", "X-API-Key", []string{"secret", "secret"}, ""},
		{key, "@", "X-Key", []string{"secret"}, ""},
		{weirhttp.BearerToken, "@", "Authorization", []string{"bearer secret"}, secret},
		{weirhttp.BearerToken, "@", "Authorization", []string{"Basic secret"}, ""},
		{first, "192.0.2.1:1", "X-API-Key", []string{"secret"}, secret},
		{first, "192.0.2.1:1", "X-API-Key", nil, "192.0.2.1"},
		{first, "192.0.2.1:1", "X-API-Key", []string{"secret", ""}, ""},
		{first, "@", "X-API-Key", nil, ""},
		{weirhttp.FirstOf(key, empty), "@", "X-API-Key", nil, ""},
		{weirhttp.Text("all"), "@", "X-API-Key", nil, "all"},
	} {
		got, err := tt.segment(from(tt.addr, tt.name, tt.values...))
		if got != tt.want || errors.Is(err, weirhttp.ErrNoKey) != (tt.want == "") || (err == nil) != (tt.want != "") {
			t.Errorf("%s, %s %q: got %q, %v, want %q", tt.addr, tt.name, tt.values, got, err, tt.want)
		}
	}
}

// All requests of a route share a limit; another route has its own.
func TestPattern(t *testing.T) {
	limit, _ := newMiddleware(t, newLimiter(t, algorithm.FixedWindow{Limit: 1, Window: time.Hour}), weirhttp.By(weirhttp.Pattern), weirhttp.Options{})
	mux := http.NewServeMux()
	mux.Handle("GET /users/{id}", limit(new(counting)))
	mux.Handle("GET /posts/{id}", limit(new(counting)))
	for i, path := range []string{"/users/1", "/posts/1", "/users/2"} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if want := []int{204, 204, 429}[i]; w.Code != want {
			t.Errorf("%s: got status %d, want %d", path, w.Code, want)
		}
	}
}
