package integration

import (
	"errors"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
)

// TestWiped deletes or swaps all keys of a server. Each limit is then full again, once: at most
// one more burst is allowed. Nothing is refunded to the new state, an ID is new, a lease is lost,
// and a pause has ended. If a second SWAPDB brings the old state back, it counts again.
func TestWiped(t *testing.T) {
	servers.Need(t)
	server, admin := adapters[0].single(t)
	st := adapters[0].store(t, server.Endpoint)
	const limit = 10
	var limiters []*weir.Limiter
	for name, a := range map[string]algorithm.Algorithm{ // with a string, a sorted set and a list
		"gcra": algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: limit}, "log": algorithm.SlidingLog{Limit: limit, Window: time.Hour},
		"buckets": algorithm.SlidingBuckets{Width: time.Minute, Spans: []algorithm.Span{{Window: time.Hour, Limit: limit}}},
	} {
		limiters = append(limiters, newLimiter(t, st, name, a))
	}
	leases := newLimiter(t, st, "leases", algorithm.Concurrency{Limit: 1, Lease: time.Hour})
	pauses := newLimiter(t, st, "pauses", algorithm.Pause{})
	r := weir.Request{Key: weir.KeyOf("ann")}
	// consume consumes all tokens of each limiter, which must not repeat a decision. No more are left.
	consume := func(when string) {
		t.Helper()
		for _, lim := range limiters {
			for cost, id := range map[int64]string{3: "once", 1: when, limit - 4: ""} {
				res, err := lim.Decide(t.Context(), weir.Request{Key: r.Key, Cost: cost, ID: id}, nil)
				if err != nil || !res.Allowed || res.Replayed {
					t.Errorf("%s: %d tokens with ID %q: got %+v, %v, want them consumed", when, cost, id, res, err)
				}
			}
		}
	}
	exhausted := func(when string) {
		t.Helper()
		for _, lim := range append(limiters, pauses) {
			if res, err := lim.Decide(t.Context(), r, nil); err != nil || res.Allowed {
				t.Errorf("%s: got %+v, %v, want it denied", when, res, err)
			}
		}
	}
	for _, wipe := range [][]any{{"FLUSHALL"}, {"SWAPDB", "0", "1"}} {
		must(t, admin, "FLUSHALL")
		consume("before")
		pause, err1 := pauses.Pause(t.Context(), time.Hour, "ann")
		lease, err2 := leases.TryAcquire(t.Context(), r)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		exhausted("before")

		must(t, admin, wipe...)
		if running, err := pauses.Resume(t.Context(), pause, "ann"); err != nil || running {
			t.Errorf("resume: running is %v, %v, want that the pause has ended", running, err)
		}
		if res, err := pauses.Allow(t.Context(), "ann"); err != nil || !res.Allowed {
			t.Errorf("a paused key: got %+v, %v, want it open again", res, err)
		}
		consume("after")
		for _, lim := range limiters {
			if s, err := lim.Refund(t.Context(), weir.Request{Key: r.Key, ID: "before"}); err != nil || s.Found {
				t.Errorf("a refund to the new state: got %+v, %v, want that nothing is found", s, err)
			}
			if res, err := lim.Decide(t.Context(), r, nil); err != nil || res.Allowed {
				t.Errorf("after one more burst and a refund: got %+v, %v, want it denied", res, err)
			}
		}
		if err := lease.Renew(t.Context()); !errors.Is(err, weir.ErrLeaseLost) {
			t.Errorf("renew a lease: got %v, want %v", err, weir.ErrLeaseLost)
		}
		other, err := leases.TryAcquire(t.Context(), r)
		if err != nil {
			t.Errorf("acquire a lease: %v", err)
		}
		if held, err := lease.Release(t.Context()); err != nil || held {
			t.Errorf("release the lost lease: held is %v, %v", held, err)
		}
		if _, err := leases.TryAcquire(t.Context(), r); !errors.Is(err, weir.ErrDenied) {
			t.Errorf("the release of a lost lease released another: %v", err)
		}
		if wipe[0] == "SWAPDB" {
			must(t, admin, wipe...)
			exhausted("with the old state")
			if err := other.Renew(t.Context()); !errors.Is(err, weir.ErrLeaseLost) {
				t.Errorf("renew a lease of the other state: got %v, want %v", err, weir.ErrLeaseLost)
			}
		}
	}
}
