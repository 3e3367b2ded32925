package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"
	"golang.org/x/time/rate"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store/memory"
)

// A local is a limiter in the memory of the process.
type local struct {
	name string
	make func(testing.TB) func(key string) (allowed bool)
}

var locals = []local{
	{"weir-bucket", weirLocal(tokenBucket)}, // which README.md recommends, and which is compared with most peers
	{"weir-gcra", weirLocal(gcra)},
	{"weir-window", weirLocal(algorithm.FixedWindow{Limit: burst, Window: window})},
	{"weir-counter", weirLocal(algorithm.SlidingCounter{Limit: burst, Window: window})},
	{"weir-four", weirLocal(four...)}, // does four times what the others do
	{"xtimerate-syncmap", newXTimeRate},
	{"sethvargo-memorystore", newMemoryStore},
	{"throttled", newThrottledMemory},
	{"ulule", newUluleMemory},
	{"httprate", newHTTPRate},
}

var keyCounts = []int{1, 1000, 100_000}

// BenchmarkMemory asks for random keys, all known, from one goroutine.
func BenchmarkMemory(b *testing.B) {
	eachLocal(b, func(b *testing.B, allow func(string) bool, draws draws) {
		b.ReportAllocs()
		denied := 0
		for i := 0; b.Loop(); i++ {
			if !allow(draws.at(i)) {
				denied++
			}
		}
		if denied > 0 {
			b.Fatalf("%d requests were denied", denied)
		}
	})
}

// BenchmarkMemoryParallel is [BenchmarkMemory] from GOMAXPROCS goroutines.
func BenchmarkMemoryParallel(b *testing.B) {
	eachLocal(b, func(b *testing.B, allow func(string) bool, draws draws) {
		b.ReportAllocs()
		var denied atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			for i := rand.IntN(drawn); pb.Next(); i++ {
				if !allow(draws.at(i)) {
					denied.Add(1)
				}
			}
		})
		// throttled denies a request now and then, if all goroutines ask for the same key.
		if n := denied.Load(); n > 1 && n > int64(b.N/1000) {
			b.Errorf("%d of %d requests were denied", n, b.N)
		}
	})
}

// eachLocal runs f for every limiter and number of keys, the limiters in turn.
// Each starts with all keys known.
func eachLocal(b *testing.B, f func(b *testing.B, allow func(string) bool, draws draws)) {
	for _, keys := range keyCounts {
		draws := drawKeys(keys)
		for _, l := range locals {
			b.Run(fmt.Sprintf("impl=%s/keys=%d", l.name, keys), func(b *testing.B) {
				allow := l.make(b)
				for _, key := range someKeys(keys) {
					allow(key)
				}
				b.ResetTimer()
				f(b, allow, draws)
			})
		}
	}
}

// The algorithms of most benchmarks refill a token in each second.
var (
	gcra        = algorithm.GCRA{Rate: algorithm.PerSecond(perSecond), Burst: burst}
	tokenBucket = algorithm.TokenBucket{Capacity: burst, Refill: algorithm.PerSecond(perSecond)}
	four        = []algorithm.Algorithm{gcra, algorithm.FixedWindow{Limit: burst, Window: window}, algorithm.SlidingCounter{Limit: burst, Window: window}, tokenBucket}
)

// weirLocal makes limiters with a rule for each algorithm.
func weirLocal(algorithms ...algorithm.Algorithm) func(testing.TB) func(string) bool {
	var rules []weir.Rule
	for i, a := range algorithms {
		rules = append(rules, weir.Rule{Algorithm: a})
		if len(algorithms) > 1 {
			rules[i].Name = fmt.Sprint("rule", i)
		}
	}
	return func(tb testing.TB) func(string) bool { return newLocal(tb, rules...) }
}

func newLocal(tb testing.TB, rules ...weir.Rule) func(string) bool {
	tb.Helper()
	lim := newLimiter(tb, memory.New(nil), policy(rules...), nil)
	ctx := context.Background()
	return func(key string) bool {
		res, err := lim.Allow(ctx, key)
		return err == nil && res.Allowed
	}
}

func newXTimeRate(testing.TB) func(string) bool {
	var limiters sync.Map
	return func(key string) bool {
		lim, ok := limiters.Load(key)
		if !ok {
			lim, _ = limiters.LoadOrStore(key, rate.NewLimiter(perSecond, burst))
		}
		return lim.(*rate.Limiter).Allow()
	}
}

// newMemoryStore has the burst as the tokens of one interval, which is as long
// as the rate takes to give them back: it knows no burst beside a rate.
func newMemoryStore(tb testing.TB) func(string) bool {
	st, err := memorystore.New(&memorystore.Config{Tokens: burst, Interval: burst / perSecond * time.Second})
	if err != nil {
		tb.Fatal(err)
	}
	ctx := context.Background()
	tb.Cleanup(func() { _ = st.Close(ctx) })
	return func(key string) bool {
		_, _, _, ok, err := st.Take(ctx, key)
		return err == nil && ok
	}
}
