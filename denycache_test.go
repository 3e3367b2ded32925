package weir_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// A counter is a wrapper that counts the decisions that reach the store.
type counter struct {
	next weir.Decider
	n    *int
}

func (c counter) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	*c.n++
	return c.next.Decide(ctx, r, each)
}

// cached returns l with a cache of denials, and the number of its decisions that reach the
// store.
func cached(l *weir.Limiter, c *clock, cache weir.DenyCache) (*weir.Limiter, *int) {
	n := new(int)
	cache.Now = c.now
	return l.Wrap(cache.Wrap, func(next weir.Decider) weir.Decider { return counter{next, n} }), n
}

// A limiter with a cache answers random requests as one without does, and asks the store
// less.
func TestDenyCacheSame(t *testing.T) {
	t.Parallel()
	for _, a := range []algorithm.Algorithm{
		algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 4},
		algorithm.TokenBucket{Capacity: 4, Refill: algorithm.PerSecond(3)},
		algorithm.LeakyBucket{Rate: algorithm.PerSecond(3), Queue: 4},
		algorithm.FixedWindow{Limit: 4, Window: time.Second},
		algorithm.SlidingCounter{Limit: 4, Window: time.Second},
		algorithm.SlidingLog{Limit: 4, Window: time.Second},
		algorithm.SlidingBuckets{Width: 100 * time.Millisecond, Spans: []algorithm.Span{{Window: time.Second, Limit: 4}}},
		algorithm.MetadataWindow{Limit: 4, Window: time.Second},
		algorithm.Concurrency{Limit: 2, Lease: time.Second},
	} {
		t.Run(fmt.Sprintf("%T", a), func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			rng := rand.New(rand.NewPCG(seed, 0))
			c := newClock()
			policy := rules(weir.Rule{Name: "a", Algorithm: a}, weir.Rule{Name: "b", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(5), Burst: 5}})
			_, leases := a.(algorithm.Concurrency)
			bare := mustPolicy(t, newStore(c), policy)
			lim, n := cached(mustPolicy(t, newStore(c), policy), c, weir.DenyCache{MaxAge: time.Hour, MaxKeys: 2})
			const steps = 5000
			for step := range steps {
				c.advance(time.Duration(rng.Int64N(300_000)) * time.Microsecond * time.Duration(rng.IntN(2)))
				r := weir.Request{Key: weir.KeyOf(fmt.Sprint("u", rng.IntN(3)))}
				switch {
				case leases:
					r.ID = fmt.Sprint(rng.IntN(4))
					if rng.IntN(4) == 0 {
						r.Op = weir.Release
					}
				case rng.IntN(8) == 0:
					r.Op, r.Cost = weir.TakeUpTo, 1+rng.Int64N(5)
				case rng.IntN(50) == 0:
					r.Op = weir.Reset
				default:
					r.Cost = 1 + rng.Int64N(6)
				}
				all, wantAll := make([]weir.Result, 2), make([]weir.Result, 2)
				want, err := bare.Decide(t.Context(), r, wantAll)
				if err != nil {
					t.Fatal(err)
				}
				got, err := lim.Decide(t.Context(), r, all[:2*rng.IntN(2)])
				got.Remaining, want.Remaining = 0, 0 // the cache has those of the denial
				if leases {                          // whose ID, or its end, can change the rule that denies for the longest time
					got, want = weir.Result{Allowed: got.Allowed}, weir.Result{Allowed: want.Allowed}
					clear(all)
				}
				if err != nil || got != want {
					t.Fatalf("seed %d, step %d, %v: got %+v, %v, want %+v", seed, step, r, got, err, want)
				}
				for i := range all {
					if g, w := all[i], wantAll[i]; g.Rule != "" && (g.Rule != w.Rule || g.Allowed != w.Allowed || g.RetryAfter != w.RetryAfter || g.ResetAfter != w.ResetAfter) {
						t.Fatalf("seed %d, step %d, %v: rule %d: got %+v, want %+v", seed, step, r, i, g, w)
					}
				}
			}
			if *n == steps && !leases {
				t.Errorf("seed %d: all decisions reached the store", seed)
			}
		})
	}
}

// What a remembered denial lasts.
func TestDenyCache(t *testing.T) {
	t.Parallel()
	one := algorithm.FixedWindow{Limit: 1, Window: time.Minute}
	ctx, u := t.Context(), weir.KeyOf("u")
	for name, tt := range map[string]struct {
		wait    time.Duration                // after the denial
		between func(l, other *weir.Limiter) // then
		ask     weir.Request                 // then
		reached bool                         // the store
	}{
		"the same request":        {wait: time.Second, ask: weir.Request{Key: u}},
		"an ID does not matter":   {ask: weir.Request{Key: u, ID: "x"}},
		"MaxAge":                  {wait: 10 * time.Second, ask: weir.Request{Key: u}, reached: true},
		"another key":             {ask: weir.Request{Key: weir.KeyOf("v")}, reached: true},
		"another cost":            {ask: weir.Request{Key: u, Cost: 2}, reached: true},
		"another op":              {ask: weir.Request{Key: u, Op: weir.TakeUpTo}, reached: true},
		"Peek":                    {ask: weir.Request{Key: u, Op: weir.Peek}, reached: true},
		"a reset":                 {between: func(l, _ *weir.Limiter) { _ = l.Reset(ctx, "u") }, ask: weir.Request{Key: u}, reached: true},
		"a refund":                {between: func(l, _ *weir.Limiter) { _, _ = l.Refund(ctx, weir.Request{Key: u, ID: "first"}) }, ask: weir.Request{Key: u}, reached: true},
		"a reset of another key":  {between: func(l, _ *weir.Limiter) { _ = l.Reset(ctx, "v") }, ask: weir.Request{Key: u}},
		"a reset without a cache": {between: func(_, other *weir.Limiter) { _ = other.Reset(ctx, "u") }, ask: weir.Request{Key: u}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClock()
			other := mustNew(t, newStore(c), one)
			l, n := cached(other, c, weir.DenyCache{MaxAge: 10 * time.Second})
			for _, id := range []string{"first", "second"} {
				if _, err := l.Decide(ctx, weir.Request{Key: u, ID: id}, nil); err != nil {
					t.Fatal(err)
				}
			}
			c.advance(tt.wait)
			if tt.between != nil {
				tt.between(l, other)
			}
			before := *n
			if _, err := l.Decide(ctx, tt.ask, nil); err != nil {
				t.Fatal(err)
			}
			if reached := *n > before; reached != tt.reached {
				t.Errorf("it reached the store: %v, want %v", reached, tt.reached)
			}
		})
	}
}

// Errors, outages among them, are not remembered, and a clock that goes back forgets.
func TestDenyCacheForgets(t *testing.T) {
	t.Parallel()
	c := newClock()
	l, n := cached(mustNew(t, newStore(c), algorithm.FixedWindow{Limit: 1, Window: time.Minute}), c, weir.DenyCache{})
	for range 2 {
		_, err := l.AllowN(t.Context(), 1, "u", "too", "many")
		wantError(t, err, weir.ErrInvalidKey, "segments")
	}
	long := strings.Repeat("x", 2000)
	for range 4 {
		for _, key := range []string{"u", long} {
			if _, err := l.Allow(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	if *n != 2+2+4 { // the errors, the first two of u, and all of the long key
		t.Errorf("%d decisions reached the store, want 8", *n)
	}
	c.advance(-time.Millisecond)
	if _, _ = l.Allow(t.Context(), "u"); *n != 9 {
		t.Errorf("%d decisions reached the store, want 9: the clock went back", *n)
	}
}

// A denial without the store is not remembered: the store may be back any time.
func TestDenyCacheOutage(t *testing.T) {
	t.Parallel()
	n := new(int)
	l := mustNew(t, newStore(newClock()), perSecond).Wrap(weir.DenyCache{}.Wrap, func(weir.Decider) weir.Decider {
		return counter{localDenier{}, n}
	})
	for want := range 3 {
		if _, err := l.Allow(t.Context(), "u"); err != nil || *n != want+1 {
			t.Errorf("%v: %d requests were passed on, want %d", err, *n, want+1)
		}
	}
}

// A localDenier denies every request without the store.
type localDenier struct{}

func (localDenier) Decide(context.Context, weir.Request, []weir.Result) (weir.Result, error) {
	return weir.Result{Rule: "r", Window: time.Second, RetryAfter: time.Second, Degraded: store.ErrUnavailable}, nil
}

// A field out of range is an error of every decision.
func TestDenyCacheMisuse(t *testing.T) {
	t.Parallel()
	l := mustNew(t, newStore(newClock()), perSecond)
	for field, cache := range map[string]weir.DenyCache{
		"DenyCache.MaxAge is -1s": {MaxAge: -time.Second},
		"DenyCache.MaxKeys is -1": {MaxKeys: -1},
		"from 1 to 16777216":      {MaxKeys: 1 << 30},
		"Limiter.Wrap":            {},
	} {
		wrap := cache.Wrap
		if field == "Limiter.Wrap" {
			wrap = func(weir.Decider) weir.Decider { return cache.Wrap(nil) }
		}
		_, err := l.Wrap(wrap).Allow(t.Context(), "u")
		wantError(t, err, nil, field)
	}
}

// Many goroutines share a cache, and together are allowed the limit.
func TestDenyCacheConcurrent(t *testing.T) {
	t.Parallel()
	l := mustNew(t, newStore(newClock()), algorithm.FixedWindow{Limit: 100, Window: time.Minute}).Wrap(weir.DenyCache{MaxKeys: 4}.Wrap)
	var mu sync.Mutex
	allowed := map[string]int{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 2000 {
				key := fmt.Sprint("u", i%8)
				res, err := l.Allow(t.Context(), key)
				if err != nil {
					t.Error(err)
				}
				if res.Allowed {
					mu.Lock()
					allowed[key]++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	for key, n := range allowed {
		if n != 100 {
			t.Errorf("%s: %d allowed, want 100", key, n)
		}
	}
}

// A remembered denial allocates nothing.
func TestDenyCacheAllocs(t *testing.T) {
	l := mustNew(t, newStore(newClock()), algorithm.FixedWindow{Limit: 1, Window: time.Hour}).Wrap(weir.DenyCache{MaxAge: time.Hour}.Wrap)
	ctx := t.Context()
	ask := func() {
		if _, err := l.Allow(ctx, "u"); err != nil {
			t.Fatal(err)
		}
	}
	ask()
	ask()
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	if n := testing.AllocsPerRun(100, ask); n != 0 {
		t.Errorf("got %v allocations, want 0", n)
	}
}

func BenchmarkDenyCache(b *testing.B) {
	l := mustNew(b, newStore(newClock()), algorithm.FixedWindow{Limit: 1, Window: time.Hour}).Wrap(weir.DenyCache{MaxAge: time.Hour}.Wrap)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Allow(ctx, "u"); err != nil && !errors.Is(err, context.Canceled) {
			b.Fatal(err)
		}
	}
}

// A distant is a wrapper whose decisions take two seconds.
type distant struct {
	next weir.Decider
	c    *clock
}

func (s distant) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	s.c.advance(time.Second)
	res, err := s.next.Decide(ctx, r, each)
	s.c.advance(time.Second)
	return res, err
}

// A denial is remembered from before the decision, so never for too long.
func TestDenyCacheSlow(t *testing.T) {
	t.Parallel()
	c := newClock()
	n := new(int)
	l := mustNew(t, newStore(c), algorithm.FixedWindow{Limit: 1, Window: time.Minute}).Wrap(
		weir.DenyCache{MaxAge: 5 * time.Second, Now: c.now}.Wrap,
		func(next weir.Decider) weir.Decider { return counter{distant{next, c}, n} })
	for i, want := range []int{1, 2, 2, 3} {
		if _, err := l.Allow(t.Context(), "u"); err != nil {
			t.Fatal(err)
		}
		if *n != want {
			t.Fatalf("request %d: %d decisions reached the store, want %d", i, *n, want)
		}
		if i > 0 {
			c.advance(1500 * time.Millisecond)
		}
	}
}
