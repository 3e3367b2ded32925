package weirhttp_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirhttp"
)

// If all leases are held, the client is told the time of another rule that denies, or
// else a short time. It is not told when a lease expires, unless that is sooner.
func TestLeaseRetryAfter(t *testing.T) {
	running := weir.Rule{Name: "running", Algorithm: algorithm.Concurrency{Limit: 1, Lease: time.Hour}}
	short := weir.Rule{Name: "running", Algorithm: algorithm.Concurrency{Limit: 1, Lease: 1500 * time.Millisecond}}
	rate := weir.Rule{Name: "rate", Algorithm: algorithm.FixedWindow{Limit: 1, Window: 20 * time.Second}}
	left := weir.Rule{Name: "left", Algorithm: algorithm.FixedWindow{Limit: 9, Window: time.Minute}}
	other := weir.Rule{Name: "other", Algorithm: weirtest.Windowless(rate.Algorithm, 0)}
	pause := weir.Rule{Name: "pause", Algorithm: algorithm.Pause{}}
	for _, tt := range []struct {
		name  string
		rules []weir.Rule
		hint  time.Duration
		bare  bool // the Decider is no limiter
		want  string
	}{
		{"alone", []weir.Rule{running}, 0, false, "1"},
		{"alone, with an option", []weir.Rule{running}, 2500 * time.Millisecond, false, "3"},
		{"alone, and the lease expires sooner", []weir.Rule{short}, time.Minute, false, "2"},
		{"another rule allows", []weir.Rule{running, left}, 0, false, "1"},
		{"other rules deny", []weir.Rule{rate, running, pause}, 0, false, "20"},
		{"a pause denies", []weir.Rule{pause, running}, 0, false, "7"},
		{"a rule without a window", []weir.Rule{running, other}, 0, false, "20"},
		{"a rule without a window, without its limiter", []weir.Rule{running, other}, 0, true, "20"},
	} {
		synctest.Test(t, func(t *testing.T) {
			lim, err := weir.NewPolicy(memory.New(nil), weir.Policy{Name: "test", Rules: tt.rules}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := lim.Acquire(t.Context(), weir.Request{Key: weir.KeyOf("all")}); err != nil {
				t.Fatal(err)
			}
			_, _ = lim.Pause(t.Context(), 7*time.Second, "all") // ErrUnsupported without a Pause
			d := weir.Decider(lim)
			if tt.bare {
				d = deciderFunc(lim.Decide)
			}
			limit, _ := newMiddleware(t, d, all, weirhttp.Options{LeaseRetryAfter: tt.hint})
			if w := serve(limit(new(counting)), nil); w.Code != 429 || w.Header().Get("Retry-After") != tt.want {
				t.Errorf("%s: got %d, Retry-After %q, want 429 and %q", tt.name, w.Code, w.Header().Get("Retry-After"), tt.want)
			}
		})
	}
	for _, tt := range []struct {
		res  weir.Result
		want string
	}{
		{weir.Result{Allowed: true}, ""},
		{weir.Result{RetryAfter: time.Hour}, "1"},
		{weir.Result{RetryAfter: weir.Never}, ""},
		{weir.Result{Degraded: weir.ErrDenied, RetryAfter: 5 * time.Second}, "1"},
		{weir.Result{Degraded: store.ErrUnavailable, RetryAfter: 5 * time.Second}, "5"}, // until the store is asked again
	} {
		limit, _ := newMiddleware(t, deciderFunc(func(context.Context, weir.Request, []weir.Result) (weir.Result, error) {
			tt.res.Type, tt.res.Rule, tt.res.Limit, tt.res.ResetAfter = weir.LeaseRule, "running", 2, time.Hour
			return tt.res, nil
		}), all, weirhttp.Options{Headers: weirhttp.XRateLimit})
		h := serve(limit(new(counting)), nil).Header()
		if got := h.Get("Retry-After"); got != tt.want || h.Get("X-RateLimit-Limit") != "2" || h.Get("X-RateLimit-Reset") != "" {
			t.Errorf("%+v: got %v, want Retry-After %q and no Reset", tt.res, h, tt.want)
		}
	}
}
