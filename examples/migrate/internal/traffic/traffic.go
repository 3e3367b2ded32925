// Package traffic plays a recorded traffic through two programs, and compares the answer
// to each request with the answer that the recording has.
package traffic

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A Row is a recorded request. If After is empty, both programs answer Before.
type Row struct {
	At            time.Duration // since the start
	Key           string
	Before, After string
}

// Play sends each request to both programs. Pass moves the clocks of both.
func Play(t *testing.T, rows []Row, pass func(time.Duration), before, after func(key string) string) {
	t.Helper()
	var now time.Duration
	for i, row := range rows {
		pass(row.At - now)
		now = row.At
		if row.After == "" {
			row.After = row.Before
		}
		if got := before(row.Key); got != row.Before {
			t.Errorf("request %d at %v by %q: before: got %q, want %q", i, row.At, row.Key, got, row.Before)
		}
		if got := after(row.Key); got != row.After {
			t.Errorf("request %d at %v by %q: after: got %q, want %q", i, row.At, row.Key, got, row.After)
		}
	}
}

// Ask returns a function that sends h a request whose field X-User is the key, and so is
// the address of the connection. The answer has the status and the fields of the limit:
// Limit, Remaining, Reset and Retry-After. A dash stands for a field that is not set.
func Ask(h http.Handler) func(key string) string {
	return func(key string) string {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-User", key)
		r.RemoteAddr = key
		if net.ParseIP(key) != nil {
			r.RemoteAddr = net.JoinHostPort(key, "1234")
		}
		h.ServeHTTP(w, r)
		answer := fmt.Sprint(w.Code)
		for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After"} {
			value := w.Header().Get(name)
			if value == "" {
				value = "-"
			}
			answer += " " + value
		}
		return answer
	}
}

// OK is a handler that answers 200.
var OK = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
