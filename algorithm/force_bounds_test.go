package algorithm_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
)

// deepest are limits with their MaxDebt.
var deepest = []struct {
	limit algorithm.Algorithm
	debt  int64
}{
	{algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 5}, 4_503_599_622}, // 2^52-1 µs
	{algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 5}, 9_007_199_249}, // 2^53-1-3 parts of a third of a microsecond
	{algorithm.GCRA{Rate: algorithm.PerSecond(1_000_000), Burst: 1}, 1<<52 - 2},
	{algorithm.GCRA{Rate: algorithm.Rate{Count: algorithm.MaxSpan / 1000, Period: 1}, Burst: 1}, algorithm.MaxTokens - 1000*(algorithm.MaxSpan/1000) - 1},
	{algorithm.GCRA{Rate: algorithm.PerDay(1), Burst: 10}, 52_114},
	{algorithm.GCRA{Rate: algorithm.Every(maxSpan), Burst: 1}, 0},
	{algorithm.LeakyBucket{Rate: algorithm.PerSecond(3), Queue: 4}, 9_007_199_249},
	{algorithm.LeakyBucket{Rate: algorithm.PerSecond(10), Queue: 0}, 45_035_996_272},
	{algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(3)}, 13_510_798_877},                         // in 2^52 µs
	{algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(1_500_000_000)}, algorithm.MaxTokens - 1505}, // 1500 in a microsecond
	{algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerDay(7), AtOnce: true}, 364_863},
	{algorithm.TokenBucket{Capacity: algorithm.MaxSpan, Refill: algorithm.Every(us)}, 0},
	{algorithm.FixedWindow{Limit: 5, Window: maxSpan}, algorithm.MaxTokens - 5},
	{algorithm.MetadataWindow{Limit: 5, Window: maxSpan}, algorithm.MaxLog},
	{algorithm.SlidingCounter{Limit: 5, Window: time.Hour}, 1<<33 - 6},
	{algorithm.SlidingCounter{Limit: algorithm.MaxCounter, Window: maxSpan / 4}, 1<<32 - 1},
	{algorithm.SlidingLog{Limit: 5, Window: time.Second}, 1<<52 - 6},
	{algorithm.SlidingLog{Limit: algorithm.MaxLogTokens, Window: maxSpan}, 0},
	{spans(time.Second, algorithm.Span{Window: 5 * time.Second, Limit: 9}, algorithm.Span{Window: 2 * time.Second, Limit: 5}), algorithm.MaxTokens - 9},
	{spans(maxSpan/128, algorithm.Span{Window: maxSpan, Limit: 1 << 52}), algorithm.MaxTokens - 1<<52},
}

// A limit can go into debt by MaxDebt, at any time that a store's clock can show. No integer
// reaches 2^53, RetryAfter is exact, and the key lives until ResetAfter.
func TestDeepestDebt(t *testing.T) {
	t.Parallel()
	for _, tt := range deepest {
		for _, now := range []int64{1, epoch, 1<<52 - 1} {
			t.Run(fmt.Sprintf("%+v, %d", tt.limit, now), func(t *testing.T) {
				t.Parallel()
				b := newBench(t, tt.limit)
				all := b.limit.Capacity + tt.debt
				if b.limit.MaxDebt != tt.debt {
					t.Fatalf("MaxDebt is %d, want %d", b.limit.MaxDebt, tt.debt)
				}
				sum, _ := b.force(now, 1)
				for range 3 { // the first is cut to MaxDebt if a LeakyBucket is not empty
					n, _ := b.force(now, algorithm.MaxTokens)
					sum += n
				}
				if sum != all {
					t.Errorf("forces consumed %d, want %d", sum, all)
				}
				b.integers()
				for _, cost := range []int64{1, b.limit.Capacity} {
					v := b.take(now, cost)
					if v.Allowed || v.Remaining != 0 || v.RetryAfter <= 0 || v.ResetAfter < v.RetryAfter || v.ResetAfter > 2*maxSpan {
						t.Errorf("in debt: got %+v", v)
					}
					if b.state.ttl < v.ResetAfter {
						t.Errorf("the key lives for %v, and the debt for %v", b.state.ttl, v.ResetAfter)
					}
					b.checkExact(now, cost, 0, v)
				}
			})
		}
	}
}
