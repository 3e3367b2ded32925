package integration

import (
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
)

// TestWiped deletes or swaps all keys of a server. Each limit is then full again, once: at most
// one more burst is allowed. Nothing is refunded to the new state, an ID is new, a lease is lost,
// and a pause has ended. If a second SWAPDB brings the old state back, it counts again.
func TestWiped(t *testing.T) {
	notShort(t)
	t.Parallel()
	servers.Need(t)
	for _, a := range adapters {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			progress(t)
			server, admin := a.single(t)
			st := a.store(t, server.Endpoint)
			t.Run("FLUSHALL", func(t *testing.T) {
				wipe := func() { must(t, admin, "FLUSHALL") }
				wiped(t, st, wipe, nil)
				wipedUnderLoad(t, st, wipe)
			})
			t.Run("SWAPDB", func(t *testing.T) {
				swap := func() { must(t, admin, "SWAPDB", "0", "1") }
				wiped(t, st, swap, swap)
			})
		})
	}
}

// wiped makes decisions before and after wipe, and after back, which restores the state of before.
func wiped(t *testing.T, st store.Store, wipe, back func()) {
	const limit = 10
	limiters := map[string]*weir.Limiter{}
	policies := lostPolicies(limit)
	maps.DeleteFunc(policies, func(name string, _ []weir.Rule) bool {
		return name == "several rules" || name == "LeakyBucket" // without a MaxWait, it allows one request
	})
	for name, rules := range policies {
		limiters[name], _ = lostLimiters(t, st, name, rules)
	}
	key := weir.KeyOf("acme", "ann", "10.0.0.7")
	// consume consumes cost tokens, which must be allowed and not be a repetition.
	consume := func(name string, cost int64, id string) {
		t.Helper()
		res, err := limiters[name].Decide(t.Context(), weir.Request{Key: key, Cost: cost, ID: id}, nil)
		if err != nil || !res.Allowed || res.Replayed {
			t.Errorf("%s: %d tokens with ID %q: got %+v, %v, want them consumed", name, cost, id, res, err)
		}
	}
	exhausted := func(when string) {
		t.Helper()
		for name, lim := range limiters {
			if res, err := lim.Decide(t.Context(), weir.Request{Key: key}, nil); err != nil || res.Allowed {
				t.Errorf("%s: %s: got %+v, %v, want it denied", when, name, res, err)
			}
		}
	}
	leases, err := weir.New("wiped leases", st, algorithm.Concurrency{Limit: 1, Lease: time.Hour}, nil)
	if err != nil {
		t.Fatal(err)
	}
	pauses, err := weir.New("wiped pauses", st, algorithm.Pause{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name := range limiters {
		consume(name, 3, "once")
		consume(name, 1, "refunded later")
		consume(name, limit-4, "")
	}
	exhausted("before")
	lease, err := leases.TryAcquire(t.Context(), weir.Request{Key: weir.KeyOf("ann")})
	if err != nil {
		t.Fatal(err)
	}
	pause, err := pauses.Pause(t.Context(), time.Hour, "ann")
	if err != nil {
		t.Fatal(err)
	}

	wipe()
	for name := range limiters {
		consume(name, 3, "once")
		consume(name, limit-3, "")
	}
	exhausted("after one more burst")
	for name, lim := range limiters {
		if s, err := lim.Refund(t.Context(), weir.Request{Key: key, ID: "refunded later"}); err != nil || s.Found {
			t.Errorf("%s: a refund to the new state: got %+v, %v, want that nothing is found", name, s, err)
		}
	}
	exhausted("after the refund")
	if err := lease.Renew(t.Context()); !errors.Is(err, weir.ErrLeaseLost) {
		t.Errorf("renew a lease: got %v, want %v", err, weir.ErrLeaseLost)
	}
	other, err := leases.TryAcquire(t.Context(), weir.Request{Key: weir.KeyOf("ann")})
	if err != nil {
		t.Errorf("acquire a lease: %v", err)
	}
	if held, err := lease.Release(t.Context()); err != nil || held {
		t.Errorf("release the lost lease: held is %v, %v", held, err)
	}
	if _, err := leases.TryAcquire(t.Context(), weir.Request{Key: weir.KeyOf("ann")}); !errors.Is(err, weir.ErrDenied) {
		t.Errorf("the release of a lost lease released another: %v", err)
	}
	if res, err := pauses.Allow(t.Context(), "ann"); err != nil || !res.Allowed {
		t.Errorf("a paused key: got %+v, %v, want it open again", res, err)
	}
	if running, err := pauses.Resume(t.Context(), pause, "ann"); err != nil || running {
		t.Errorf("resume: running is %v, %v, want that the pause has ended", running, err)
	}
	if back == nil {
		return
	}

	back()
	exhausted("with the old state")
	if res, err := pauses.Allow(t.Context(), "ann"); err != nil || res.Allowed {
		t.Errorf("a paused key, with the old state: got %+v, %v, want it denied", res, err)
	}
	if err := other.Renew(t.Context()); !errors.Is(err, weir.ErrLeaseLost) {
		t.Errorf("renew a lease of the other state: got %v, want %v", err, weir.ErrLeaseLost)
	}
}

// wipedUnderLoad wipes the server while callers consume tokens. They get one more burst, exactly.
func wipedUnderLoad(t *testing.T, st store.Store, wipe func()) {
	const limit, callers = 1000, 8
	lim, err := weir.New("wiped under load", st, algorithm.FixedWindow{Limit: limit, Window: 24 * time.Hour}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var allowed atomic.Int64
	var over atomic.Bool
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for {
				late := over.Load()
				res, err := lim.Allow(t.Context(), "ann")
				if err != nil {
					t.Error(err)
					return
				}
				if allowed.Add(res.Granted); !res.Allowed && late {
					return
				}
			}
		})
	}
	await(t, "some tokens to be consumed", func() bool { return allowed.Load() > limit/4 || t.Failed() })
	wipe()
	over.Store(true)
	wg.Wait()
	if n := allowed.Load(); n > 2*limit || n <= limit {
		t.Errorf("%d tokens were allowed, want more than one limit of %d, and at most two", n, limit)
	}
}
