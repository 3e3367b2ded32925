package denycache_test

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
	"github.com/weir-go/weir/denycache"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/observe"
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

// cached returns l with a cache of denials, and the number of its decisions that reach
// the store.
func cached(t testing.TB, l *weir.Limiter, c *weirtest.Clock, cache denycache.Options) (*weir.Limiter, *int) {
	n := new(int)
	cache.Now = c.Now
	return weirtest.Wrap(t, l, denycache.New(&cache).Wrap, counting(n)), n
}

// counting returns a wrapper that adds the decisions that reach the store to n.
func counting(n *int) weir.Wrapper {
	return weirtest.Around(func(next weir.Decider) counter { return counter{next, n} })
}

// wantError is weirtest.WantError for the errors of this package.
func wantError(t testing.TB, err, want error, says string) {
	t.Helper()
	weirtest.WantError(t, err, want, "denycache", says)
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
			c := weirtest.NewClock()
			policy := weirtest.Rules(weir.Rule{Name: "a", Algorithm: a}, weir.Rule{Name: "b", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(5), Burst: 5}})
			_, leases := a.(algorithm.Concurrency)
			bare := weirtest.NewPolicy(t, weirtest.NewStore(c), policy)
			lim, n := cached(t, weirtest.NewPolicy(t, weirtest.NewStore(c), policy), c, denycache.Options{MaxAge: time.Hour, MaxKeys: 2})
			const steps = 5000
			for step := range steps {
				c.Advance(time.Duration(rng.Int64N(300_000)) * time.Microsecond * time.Duration(rng.IntN(2)))
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
			c := weirtest.NewClock()
			other := weirtest.New(t, weirtest.NewStore(c), one)
			l, n := cached(t, other, c, denycache.Options{MaxAge: 10 * time.Second})
			for _, id := range []string{"first", "second"} {
				if _, err := l.Decide(ctx, weir.Request{Key: u, ID: id}, nil); err != nil {
					t.Fatal(err)
				}
			}
			c.Advance(tt.wait)
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
	c := weirtest.NewClock()
	l, n := cached(t, weirtest.New(t, weirtest.NewStore(c), algorithm.FixedWindow{Limit: 1, Window: time.Minute}), c, denycache.Options{})
	for range 2 {
		_, err := l.AllowN(t.Context(), 1, "u", "too", "many")
		weirtest.WantError(t, err, weir.ErrInvalidKey, "weir", "segments")
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
	c.Advance(-time.Millisecond)
	if _, _ = l.Allow(t.Context(), "u"); *n != 9 {
		t.Errorf("%d decisions reached the store, want 9: the clock went back", *n)
	}
}

// A denial without the store is not remembered: the store may be back any time.
func TestDenyCacheOutage(t *testing.T) {
	t.Parallel()
	n := new(int)
	l := weirtest.Wrap(t, weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), weirtest.PerSecond), denycache.New(nil).Wrap, counting(n),
		weirtest.Around(func(weir.Decider) localDenier { return localDenier{} }))
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

// A field out of range is an error of Wrap. So is a second Cache, even if other wrappers
// are in between.
func TestDenyCacheMisuse(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), weirtest.PerSecond)
	observer := observe.Observer(func(context.Context, observe.Decision) {})
	once := weirtest.Wrap(t, l, observer.Wrap, weirtest.Pass, denycache.New(nil).Wrap)
	for _, tt := range []struct {
		says  string
		l     *weir.Limiter
		cache *denycache.Cache
	}{
		{"Options.MaxAge is -1s: it must be positive, or 0 for 1s", l, denycache.New(&denycache.Options{MaxAge: -time.Second})},
		{"Options.MaxKeys is -1: it must be from 1 to 16777216, or 0 for 4096", l, denycache.New(&denycache.Options{MaxKeys: -1})},
		{"from 1 to 16777216", l, denycache.New(&denycache.Options{MaxKeys: 1 << 30})},
		{"make one with New", l, nil},
		{"make one with New", l, new(denycache.Cache)},
		{"already has a Cache: wrap it in one, once", once, denycache.New(nil)},
	} {
		got, err := tt.l.Wrap(tt.cache.Wrap)
		if got != nil {
			t.Errorf("%s: got a limiter", tt.says)
		}
		wantError(t, err, nil, tt.says)
	}
}

// The limiters of one Cache, and those of With and Only, remember denials of their own, but
// MaxKeys counts them all. The only place is the last limiter's.
func TestDenyCacheOwn(t *testing.T) {
	t.Parallel()
	c, n := weirtest.NewClock(), new(int)
	cache := denycache.New(&denycache.Options{Now: c.Now, MaxKeys: 1})
	l := weirtest.NewPolicy(t, weirtest.NewStore(c), weirtest.Rules(weir.Rule{Name: "a", Algorithm: weirtest.Window(1, time.Minute)}))
	one, two := weirtest.Wrap(t, l, cache.Wrap, counting(n)), weirtest.Wrap(t, l, cache.Wrap, counting(n))
	weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
	for i, l := range []*weir.Limiter{one, two, weirtest.With(t, one), weirtest.Only(t, one, "a")} {
		for range 2 {
			if res := weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf("u")}); res.Allowed {
				t.Errorf("limiter %d: got %+v", i, res)
			}
		}
		if *n != i+1 {
			t.Errorf("limiter %d: %d decisions reached the store, want %d", i, *n, i+1)
		}
	}
	if weirtest.Decide(t, one, weir.Request{Key: weir.KeyOf("u")}); *n != 5 {
		t.Errorf("a denial was remembered beside the one of another limiter, with MaxKeys 1: %d decisions reached the store, want 5", *n)
	}
}

// Many goroutines share a cache, and together are allowed the limit.
func TestDenyCacheConcurrent(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), algorithm.FixedWindow{Limit: 100, Window: time.Minute})
	l = weirtest.Wrap(t, l, denycache.New(&denycache.Options{MaxKeys: 4}).Wrap)
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
	l := weirtest.Wrap(t, weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), algorithm.FixedWindow{Limit: 1, Window: time.Hour}), denycache.New(&denycache.Options{MaxAge: time.Hour}).Wrap)
	ctx := t.Context()
	ask := func() {
		if _, err := l.Allow(ctx, "u"); err != nil {
			t.Fatal(err)
		}
	}
	ask()
	ask()
	if weirtest.Race {
		t.Skip("the race detector allocates")
	}
	if n := testing.AllocsPerRun(100, ask); n != 0 {
		t.Errorf("got %v allocations, want 0", n)
	}
}

func BenchmarkDenyCache(b *testing.B) {
	l := weirtest.Wrap(b, weirtest.New(b, weirtest.NewStore(weirtest.NewClock()), algorithm.FixedWindow{Limit: 1, Window: time.Hour}), denycache.New(&denycache.Options{MaxAge: time.Hour}).Wrap)
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
	c    *weirtest.Clock
}

func (s distant) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	s.c.Advance(time.Second)
	res, err := s.next.Decide(ctx, r, each)
	s.c.Advance(time.Second)
	return res, err
}

// A denial is remembered from before the decision, so never for too long.
func TestDenyCacheSlow(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	n := new(int)
	l := weirtest.Wrap(t, weirtest.New(t, weirtest.NewStore(c), algorithm.FixedWindow{Limit: 1, Window: time.Minute}),
		denycache.New(&denycache.Options{MaxAge: 5 * time.Second, Now: c.Now}).Wrap, counting(n),
		weirtest.Around(func(next weir.Decider) distant { return distant{next, c} }))
	for i, want := range []int{1, 2, 2, 3} {
		if _, err := l.Allow(t.Context(), "u"); err != nil {
			t.Fatal(err)
		}
		if *n != want {
			t.Fatalf("request %d: %d decisions reached the store, want %d", i, *n, want)
		}
		if i > 0 {
			c.Advance(1500 * time.Millisecond)
		}
	}
}

// A Cache passes a Force on, and forgets the denial, whose RetryAfter is now too short.
func TestDenyCacheForce(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	l := weirtest.Wrap(t, weirtest.New(t, weirtest.NewStore(c), weirtest.PerSecond), denycache.New(&denycache.Options{Now: c.Now}).Wrap)
	weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf("k"), Cost: 5})
	one := weir.Request{Key: weir.KeyOf("k")}
	if res := weirtest.Decide(t, l, one); res.Allowed || res.RetryAfter != time.Second {
		t.Fatalf("got %+v, want it denied for a second", res)
	}
	if res, err := l.Force(t.Context(), 3, "k"); err != nil || !res.Allowed || res.Granted != 3 {
		t.Errorf("Force: got %+v, %v", res, err)
	}
	if res := weirtest.Decide(t, l, one); res.Allowed || res.RetryAfter != 4*time.Second {
		t.Errorf("got %+v, want it denied for 4 s", res)
	}
}
