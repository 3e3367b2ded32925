package bench

import (
	"context"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

// BenchmarkTTL compares, on the server's clock, three decisions of one key:
//   - ttl=kept: an allowed one that leaves the key's TTL alone, because the end of the
//     state stays within the same 2^20 µs. That is so if the key was written within the
//     last second or so.
//   - ttl=set: an allowed one that sets a new TTL.
//   - ttl=none: a denied one, which writes nothing.
func BenchmarkTTL(b *testing.B) {
	rdb := connect(b)
	for _, c := range ttlCases {
		b.Run("impl="+c.name, func(b *testing.B) {
			path, cost := []string{"ttl"}, c.first
			r := newWeirAsking(b, rdb, c.name, policy(weir.Rule{Algorithm: c.algorithm}), nil, func() weir.Request {
				return weir.Request{Cost: cost, MaxWait: c.wait}
			})
			b.Cleanup(func() { r.forget(b, path...) })
			scene{remote: r, allowed: c.allowed, key: func(int) []string { return path }, prepare: func(tb testing.TB) {
				r.forget(tb, path...)
				cost = c.first
				if ok, err := r.allow(context.Background(), path...); err != nil || !ok {
					tb.Fatalf("the first request: allowed %v, error %v", ok, err)
				}
				cost = 1
			}}.run(rdb)(b)
		})
	}
}

// A ttlCase is an algorithm, the cost of the first request, and what follows it.
type ttlCase struct {
	name      string
	algorithm algorithm.Algorithm
	first     int64
	wait      time.Duration
	allowed   bool
}

// ttlCases have states that end long after the benchmark.
var ttlCases = func() []ttlCase {
	const queue = window
	fast, slow, never := algorithm.Every(time.Millisecond), algorithm.Every(2*time.Second), algorithm.Every(window)
	return []ttlCase{
		{"gcra/ttl=kept", algorithm.GCRA{Rate: fast, Burst: burst}, 100_000, 0, true},
		{"gcra/ttl=set", algorithm.GCRA{Rate: slow, Burst: burst}, 100, 0, true},
		{"gcra/ttl=none", algorithm.GCRA{Rate: never, Burst: 1}, 1, 0, false},
		{"gcra-fraction/ttl=kept", algorithm.GCRA{Rate: algorithm.PerSecond(3000), Burst: burst}, 300_000, 0, true},
		{"gcra-fraction/ttl=set", algorithm.GCRA{Rate: algorithm.PerMinute(29), Burst: burst / 10}, 100, 0, true},
		{"gcra-fraction/ttl=none", algorithm.GCRA{Rate: algorithm.Rate{Count: 7, Period: window}, Burst: 1}, 1, 0, false},
		{"tokenbucket/ttl=kept", algorithm.TokenBucket{Capacity: burst, Refill: fast}, 100_000, 0, true},
		{"tokenbucket/ttl=set", algorithm.TokenBucket{Capacity: burst, Refill: slow}, 100, 0, true},
		{"tokenbucket/ttl=none", algorithm.TokenBucket{Capacity: 1, Refill: never}, 1, 0, false},
		{"leakybucket/ttl=kept", algorithm.LeakyBucket{Rate: fast, Queue: burst}, 100_000, queue, true},
		{"leakybucket/ttl=set", algorithm.LeakyBucket{Rate: slow, Queue: burst}, 100, queue, true},
		{"leakybucket/ttl=none", algorithm.LeakyBucket{Rate: never, Queue: 1}, 2, queue, false},
		{"fixedwindow/ttl=kept", algorithm.FixedWindow{Limit: burst, Window: window}, 1, 0, true},
		{"fixedwindow/ttl=none", algorithm.FixedWindow{Limit: 1, Window: window}, 1, 0, false},
		{"slidingcounter/ttl=kept", algorithm.SlidingCounter{Limit: burst, Window: window}, 1, 0, true},
		{"slidingcounter/ttl=none", algorithm.SlidingCounter{Limit: 1, Window: window}, 1, 0, false},
	}
}()
