package golimiter_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/examples/migrate/golimiter"
	"github.com/weir-go/weir/examples/migrate/internal/traffic"
	"github.com/weir-go/weir/store/memory"
)

// go-limiter reads the machine's clock, so all requests are in one window of an hour, and
// their times are not compared.
func TestTraffic(t *testing.T) {
	before, store, err := golimiter.Before(traffic.OK)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close(t.Context())
	after, err := golimiter.After(traffic.OK)
	if err != nil {
		t.Fatal(err)
	}
	// withoutTimes leaves only the status, Limit and Remaining.
	withoutTimes := func(h http.Handler) func(string) string {
		ask := traffic.Ask(h)
		return func(key string) string { return strings.Join(strings.Fields(ask(key))[:3], " ") }
	}
	traffic.Play(t, []traffic.Row{
		{Key: "192.0.2.1", Before: "200 3 2"},
		{Key: "192.0.2.1", Before: "200 3 1"},
		{Key: "192.0.2.2", Before: "200 3 2"},
		{Key: "192.0.2.1", Before: "200 3 0"},
		{Key: "192.0.2.1", Before: "429 3 0"},
		{Key: "2001:db8::1", Before: "200 3 2"},
		{Key: "2001:db8::2", Before: "200 3 2", After: "200 3 1"},
		{Key: "no address", Before: "500 - -", After: "400 - -"},
	}, func(time.Duration) {}, withoutTimes(before), withoutTimes(after))

	for _, name := range []string{"X-RateLimit-Reset", "Retry-After"} {
		if got := header(before, name); !isDate(got) {
			t.Errorf("before: %s is %q, want a date", name, got)
		}
		if got := header(after, name); strings.Trim(got, "0123456789") != "" || got == "" {
			t.Errorf("after: %s is %q, want a number", name, got)
		}
	}
}

// header returns a field of the answer to 192.0.2.1, which is denied.
func header(h http.Handler, name string) string {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "192.0.2.1:1234"
	h.ServeHTTP(w, r)
	return w.Header().Get(name)
}

func isDate(s string) bool {
	_, err := time.Parse(time.RFC1123, s)
	return err == nil
}

// The windows of go-limiter follow each other from the first request of a key. With weir,
// the next window starts with a request.
func TestWindows(t *testing.T) {
	const window = time.Microsecond
	before, err := memorystore.New(&memorystore.Config{Tokens: 3, Interval: window})
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close(t.Context())
	_, _, first, _, err := before.Take(t.Context(), "ann")
	if err != nil {
		t.Fatal(err)
	}
	for next := first; next == first; {
		if _, _, next, _, err = before.Take(t.Context(), "ann"); err != nil {
			t.Fatal(err)
		}
		if (next-first)%uint64(window) != 0 {
			t.Errorf("before: a window ends %d ns after another: want a multiple of %v", next-first, window)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		after, err := weir.New("api", memory.New(nil), algorithm.FixedWindow{Limit: 3, Window: time.Hour}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			res, err := after.Allow(t.Context(), "ann")
			if err != nil || res.ResetAfter != time.Hour {
				t.Errorf("after: got %+v, %v: want a window of an hour", res, err)
			}
			time.Sleep(90 * time.Minute)
		}
	})
}
