package algorithm_test

import (
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
)

// Under a limit that reaches further than the one before, a key lives as long as that
// one needs from its first decision on.
func TestTTLGrowsWithTheLimit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ short, long algorithm.Algorithm }{
		{algorithm.SlidingLog{Limit: 10, Window: 200 * time.Millisecond}, algorithm.SlidingLog{Limit: 10, Window: time.Hour}},
		{algorithm.SlidingCounter{Limit: 10, Window: 200 * time.Millisecond}, algorithm.SlidingCounter{Limit: 10, Window: time.Hour}},
		{algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(50)}, algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerHour(1)}},
		{algorithm.GCRA{Rate: algorithm.PerSecond(50), Burst: 10}, algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 10}},
	} {
		short, long := newBench(t, tt.short), newBench(t, tt.long)
		long.state = short.state
		short.take(epoch, 1)
		if v := long.take(epoch+1000, 1); !v.Allowed || long.state.ttl < v.ResetAfter {
			t.Errorf("%+v after %+v: got %+v, kept for %v", tt.long, tt.short, v, long.state.ttl)
		}
	}
}

// A refund leaves a key the time that it has, whatever limit it is judged by.
func TestRefundKeepsTheTTL(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ short, long algorithm.Algorithm }{
		{algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(1)}, algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerHour(1)}},
		{algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 10}, algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 10}},
		{algorithm.FixedWindow{Limit: 10, Window: time.Second}, algorithm.FixedWindow{Limit: 10, Window: time.Hour}},
	} {
		short, long := newBench(t, tt.short), newBench(t, tt.long)
		short.state = long.state
		long.take(epoch, 3)
		was, v := long.charge(epoch, algorithm.Request{Cost: 2})
		expires := long.state.keys[0].expires
		if gave := short.refund(epoch, was); !v.Allowed || !gave || long.state.keys[0].expires != expires {
			t.Errorf("%+v, refunded by %+v: gave back %v, and expires at %d, not %d", tt.long, tt.short, gave, long.state.keys[0].expires, expires)
		}
	}
}
