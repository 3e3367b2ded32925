package denycache_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/denycache"
	"github.com/weir-go/weir/internal/weirtest"
)

// A counter is a wrapper that counts the decisions that reach the store, a batch as one.
type counter struct {
	next weir.Decider
	n    *int
}

func (c counter) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	*c.n++
	return c.next.Decide(ctx, r, each)
}

func (c counter) DecideMany(ctx context.Context, requests []weir.Request, answers []weir.Answer) {
	*c.n++
	weir.DecideMany(ctx, c.next, requests, answers)
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
// less. Those of a DoMany without a remembered denial are one batch.
func TestSame(t *testing.T) {
	t.Parallel()
	var unasked atomic.Int64 // batches that did not reach the store, with any algorithm: they are rare
	t.Cleanup(func() {
		if unasked.Load() == 0 {
			t.Error("every batch reached the store")
		}
	})
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
			rng, c := rand.New(rand.NewPCG(seed, 0)), weirtest.NewClock()
			policy := weirtest.Rules(weir.Rule{Name: "a", Algorithm: a}, weir.Rule{Name: "b", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(5), Burst: 5}})
			_, leases := a.(algorithm.Concurrency)
			bare := weirtest.NewPolicy(t, weirtest.NewStore(c), policy)
			lim, n := cached(t, weirtest.NewPolicy(t, weirtest.NewStore(c), policy), c, denycache.Options{MaxAge: time.Hour, MaxKeys: 16})
			saved, many := 0, [2]int{}
			for step := range 5000 {
				c.Advance(time.Duration(rng.Int64N(60_000)) * time.Microsecond * time.Duration(rng.IntN(2)))
				requests := make([]weir.Request, 1+rng.IntN(2)*rng.IntN(3))
				for i := range requests {
					r := weir.Request{Key: weir.KeyOf(fmt.Sprint("u", (step+i)%3))}
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
					case rng.IntN(50) == 0:
						r.Cost = -1
					default:
						r.Cost = 1 + 2*rng.Int64N(3)
					}
					requests[i] = r
				}
				before, all, answers := *n, make([]weir.Result, 2), make([]weir.Answer, 1)
				if len(requests) > 1 {
					answers = lim.DoMany(t.Context(), requests)
					many[min(*n-before, 1)]++
				} else {
					answers[0].Result, answers[0].Err = lim.Decide(t.Context(), requests[0], all[:2*rng.IntN(2)])
				}
				if *n > before+1 {
					t.Fatalf("seed %d, step %d: %d batches", seed, step, *n-before)
				}
				saved += 1 - (*n - before)
				for i, r := range requests {
					wantAll := make([]weir.Result, 2)
					want, err := bare.Decide(t.Context(), r, wantAll)
					got := answers[i].Result
					got.Remaining, want.Remaining = 0, 0 // the cache has those of the denial
					if leases {                          // whose ID, or its end, can change the rule that denies for the longest time
						got, want = weir.Result{Allowed: got.Allowed}, weir.Result{Allowed: want.Allowed}
						clear(all)
					}
					if got != want || (err == nil) != (answers[i].Err == nil) {
						t.Fatalf("seed %d, step %d, %v: got %+v, %v, want %+v, %v", seed, step, r, got, answers[i].Err, want, err)
					}
					for i := range all {
						if g, w := all[i], wantAll[i]; g.Rule != "" && (g.Rule != w.Rule || g.Allowed != w.Allowed || g.RetryAfter != w.RetryAfter || g.ResetAfter != w.ResetAfter) {
							t.Fatalf("seed %d, step %d, %v: rule %d: got %+v, want %+v", seed, step, r, i, g, w)
						}
					}
				}
			}
			unasked.Add(int64(many[0]))
			if !leases && (saved < 20 || many[1] == 0) {
				t.Errorf("seed %d: %d calls were saved, and %d batches reached the store", seed, saved, many[1])
			}
		})
	}
}

// Every result of a remembered denial agrees with itself: a rule that denies has a time
// to wait, and a rule that is not full has a time until it is.
func TestAgrees(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	l, n := cached(t, weirtest.NewPolicy(t, weirtest.NewStore(c), weirtest.Rules(
		weir.Rule{Name: "fast", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 1}},
		weir.Rule{Name: "medium", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(5), Burst: 2}},
		weir.Rule{Name: "slow", Algorithm: weirtest.Window(1, time.Minute)},
	)), c, denycache.Options{MaxAge: time.Hour})
	each := make([]weir.Result, 3)
	for _, r := range []weir.Request{{Key: weir.KeyOf("u")}, {Key: weir.KeyOf("v"), Cost: 3}} {
		weirtest.Decide(t, l, weir.Request{Key: r.Key})
		*n = 0
		const steps = 300
		for step := range steps {
			res := weirtest.Decide(t, l, r, each[:3*(step%2)]...)
			for _, one := range append([]weir.Result{res}, each[:3*(step%2)]...) {
				if res.Allowed || !one.Allowed && one.RetryAfter <= 0 || one.ResetAfter <= 0 && one.Remaining < one.Limit {
					t.Fatalf("%v, step %d: %+v contradicts itself", r, step, one)
				}
			}
			c.Advance(time.Millisecond)
		}
		if *n > 6 {
			t.Errorf("%v: %d of %d decisions reached the store, want at most 6", r, *n, steps)
		}
	}
}

// The slice each can be longer than the rules, and hold anything. If it is too short, the
// limiter says so, even for a key whose denial is remembered.
func TestEach(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	l, n := cached(t, weirtest.NewPolicy(t, weirtest.NewStore(c), weirtest.Rules(
		weir.Rule{Name: "a", Algorithm: weirtest.Window(1, time.Minute)},
		weir.Rule{Name: "b", Algorithm: weirtest.Window(2, time.Minute)},
	)), c, denycache.Options{})
	stale := []weir.Result{{Rule: "x"}, {Rule: "y"}, {Rule: "z"}}
	for i, tt := range []struct{ each, reached int }{
		{0, 1}, {0, 2}, {0, 2}, // allowed, denied, and remembered without results of each rule
		{3, 3}, {3, 3}, {2, 3}, {0, 3}, {4, 3},
		{1, 4}, // an error, which forgets
		{2, 5}, {2, 5},
	} {
		each := append(stale, weir.Result{})[:tt.each]
		_, err := l.Decide(t.Context(), weir.Request{Key: weir.KeyOf("u")}, each)
		if wrong := tt.each == 1; err != nil != wrong || *n != tt.reached {
			t.Fatalf("step %d: %d decisions reached the store, want %d; %v", i, *n, tt.reached, err)
		}
		if tt.each >= 2 && (each[0].Rule != "a" || each[0].Allowed || each[1].Rule != "b" || !each[1].Allowed) {
			t.Errorf("step %d: got %+v", i, each)
		}
	}
}

// A field out of range is an error of Wrap, and its bounds are not. So is a second Cache,
// even if other wrappers are in between.
func TestMisuse(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), weirtest.PerSecond)
	for _, tt := range []struct {
		says  string
		cache *denycache.Cache
	}{
		{"Options.MaxAge is -1s: it must be positive, or 0 for 1s", denycache.New(&denycache.Options{MaxAge: -time.Second})},
		{"Options.MaxAge is -1ns", denycache.New(&denycache.Options{MaxAge: -1})},
		{"Options.MaxKeys is -1: it must be from 1 to 16777216, or 0 for 4096", denycache.New(&denycache.Options{MaxKeys: -1})},
		{"from 1 to 16777216", denycache.New(&denycache.Options{MaxKeys: 1<<24 + 1})},
		{"make one with New", nil},
		{"make one with New", new(denycache.Cache)},
	} {
		got, err := l.Wrap(tt.cache.Wrap)
		if got != nil || tt.cache.Answers() != 0 {
			t.Errorf("%s: got a limiter", tt.says)
		}
		wantError(t, err, nil, tt.says)
	}
	for _, cache := range []denycache.Options{{MaxKeys: 1 << 24}, {MaxAge: weir.Never}, {MaxKeys: 1, MaxAge: 1}} {
		once := weirtest.Wrap(t, l, weirtest.Pass, denycache.New(&cache).Wrap)
		weirtest.Allow(t, once, weir.Request{Key: weir.KeyOf("u")})
		_, err := weirtest.Wrap(t, once, weirtest.Pass).Wrap(denycache.New(nil).Wrap)
		wantError(t, err, nil, "already has a Cache: wrap it in one, once")
	}
}

// The limiters of one Cache, and those of With and Only, remember denials of their own,
// but MaxKeys counts them all. The only place is the last limiter's. Answers counts what
// the store did not see.
func TestOwn(t *testing.T) {
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
		if *n != i+1 || cache.Answers() != int64(i+1) {
			t.Errorf("limiter %d: %d decisions reached the store, and %d did not, want %d", i, *n, cache.Answers(), i+1)
		}
	}
	if weirtest.Decide(t, one, weir.Request{Key: weir.KeyOf("u")}); *n != 5 {
		t.Errorf("a denial was remembered beside the one of another limiter, with MaxKeys 1: %d decisions reached the store, want 5", *n)
	}
}

// Many goroutines share a cache, and together are allowed the limit.
func TestConcurrent(t *testing.T) {
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
func TestAllocs(t *testing.T) {
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
