package algorithm_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/script"
)

// reserving are limits of 10 tokens that can be reserved ahead of time, each with the
// approximate number of microseconds in which one token is refilled.
var reserving = []struct {
	limit algorithm.Algorithm
	one   int64
}{
	{algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(3)}, 333_333},
	{algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(10)}, 100_000},
	{algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(3), AtOnce: true}, 333_333},
	{algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(300_000)}, 3},
	{algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 10}, 333_333},
	{algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 10}, 100_000},
	{algorithm.LeakyBucket{Rate: algorithm.PerSecond(3), Queue: 9}, 333_333},
	{algorithm.LeakyBucket{Rate: algorithm.PerSecond(10), Queue: 9}, 100_000},
}

// For any wait of a caller, no time and no count reaches 2^53.
func TestLongestWait(t *testing.T) {
	t.Parallel()
	for _, a := range []algorithm.Algorithm{
		algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(3)},
		algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(3), AtOnce: true},
		algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(4_000_000_000)},
		algorithm.TokenBucket{Capacity: 1 << 52, Refill: algorithm.PerSecond(1_000_000_000)},
		algorithm.TokenBucket{Capacity: 1, Refill: algorithm.Every(maxSpan)},
		algorithm.TokenBucket{Capacity: algorithm.MaxTokens - 1000, Refill: algorithm.PerSecond(1_000_000_000)},
		algorithm.TokenBucket{Capacity: algorithm.MaxTokens - 1000, Refill: algorithm.Rate{Count: 1000, Period: us}, AtOnce: true},
		algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 10},
		algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 10},
		algorithm.GCRA{Rate: algorithm.Every(us), Burst: contract.MaxSpan},
		algorithm.GCRA{Rate: algorithm.Every(maxSpan), Burst: 1},
		algorithm.LeakyBucket{Rate: algorithm.PerSecond(3), Queue: 9},
		algorithm.LeakyBucket{Rate: algorithm.Every(us), Queue: contract.MaxSpan - 1},
	} {
		t.Run(fmt.Sprintf("%+v", a), func(t *testing.T) {
			t.Parallel()
			b, allowed := newBench(t, a), 0
			for range 100 {
				v := b.wait(script.Consume, 1<<52-1, b.limit.Capacity, 1<<63-1)
				if !v.Allowed {
					break
				}
				allowed++
			}
			if b.integers(); allowed == 0 {
				t.Errorf("nothing was allowed")
			}
			if v := b.peek(1<<52-1, 1); v.ResetAfter > 2*maxSpan {
				t.Errorf("full after %v", v.ResetAfter)
			}
		})
	}
}

// The longest wait is never negative. A bucket that fills in exactly MaxSpan can be used,
// but no caller can wait for it.
func TestNoWait(t *testing.T) {
	t.Parallel()
	for _, a := range []algorithm.Algorithm{
		algorithm.GCRA{Rate: algorithm.Every(us), Burst: contract.MaxSpan},
		algorithm.LeakyBucket{Rate: algorithm.Every(us), Queue: contract.MaxSpan - 1},
		algorithm.TokenBucket{Capacity: contract.MaxSpan, Refill: algorithm.Every(us)},
	} {
		b := newBench(t, a)
		if b.limit.MaxWait != 0 {
			t.Errorf("%+v: MaxWait is %d, want 0", a, b.limit.MaxWait)
		}
		if v := b.wait(script.Consume, epoch, 1, time.Hour); !v.Allowed {
			t.Errorf("%+v: got %+v", a, v)
		}
	}
}
