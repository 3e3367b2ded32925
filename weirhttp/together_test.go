package weirhttp_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/weirhttp"
)

// A Transport that is faster than a limited server sends no request that the server
// denies: it heeds the fields of the last answer. Without the fields, it heeds
// Retry-After.
func TestTogether(t *testing.T) {
	const minute = time.Minute
	for _, tt := range []struct {
		name    string
		headers weirhttp.Dialect
		want    []int
		times   []time.Duration
	}{
		{"RateLimit", weirhttp.RateLimitDraft11, []int{204, 204, 204, 204, 204}, []time.Duration{0, 0, minute, minute, 2 * minute}},
		{"Retry-After", weirhttp.NoHeaders, []int{204, 204, 429, 204, 204}, []time.Duration{0, 0, 0, minute, minute}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limit, _ := newMiddleware(t, newLimiter(t, algorithm.FixedWindow{Limit: 2, Window: minute}), all, weirhttp.Options{Headers: tt.headers})
				h := limit(new(counting))
				var codes []int
				s := &service{start: time.Now(), answer: func(_ int, r *http.Request) (*http.Response, error) {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					codes = append(codes, w.Code)
					return w.Result(), nil
				}}
				rt := &weirhttp.Transport{Limiter: newLimiter(t, algorithm.GCRA{Rate: algorithm.PerSecond(1000), Burst: 1000}), Base: s}
				for range tt.want {
					if err := send(t.Context(), t, rt, "http://a.test"); err != nil {
						t.Error(err)
					}
				}
				if !slices.Equal(codes, tt.want) || !slices.Equal(s.times, tt.times) {
					t.Errorf("got statuses %v at %v, want %v at %v", codes, s.times, tt.want, tt.times)
				}
			})
		})
	}
}
