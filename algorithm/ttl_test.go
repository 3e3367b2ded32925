package algorithm_test

import (
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
)

// If a limit needs a longer TTL than the limit before, the key gets that TTL with the
// first decision.
func TestTTLGrowsWithTheLimit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ short, long algorithm.Algorithm }{
		{algorithm.SlidingLog{Limit: 10, Window: 200 * time.Millisecond}, algorithm.SlidingLog{Limit: 10, Window: time.Hour}},
		{algorithm.SlidingCounter{Limit: 10, Window: 200 * time.Millisecond}, algorithm.SlidingCounter{Limit: 10, Window: time.Hour}},
		{algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(50)}, algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerHour(1)}},
		{algorithm.GCRA{Rate: algorithm.PerSecond(50), Burst: 10}, algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 10}},
	} {
		b := newBench(t, tt.short)
		b.take(epoch, 1)
		b.change(tt.long)
		if v := b.take(epoch+1000, 1); !v.Allowed || b.state.ttl < v.ResetAfter {
			t.Errorf("%+v after %+v: got %+v, kept for %v", tt.long, tt.short, v, b.state.ttl)
		}
	}
}

// A refund keeps the TTL of the key, under any limit.
func TestRefundKeepsTheTTL(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ short, long algorithm.Algorithm }{
		{algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerHour(1)}, algorithm.TokenBucket{Capacity: 20, Refill: algorithm.PerHour(1)}},
		{algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 10}, algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 20}},
		{algorithm.FixedWindow{Limit: 10, Window: time.Second}, algorithm.FixedWindow{Limit: 10, Window: time.Hour}},
		{algorithm.SlidingCounter{Limit: 10, Window: time.Hour}, algorithm.SlidingCounter{Limit: 20, Window: time.Hour}},
		{algorithm.SlidingLog{Limit: 10, Window: time.Second}, algorithm.SlidingLog{Limit: 10, Window: time.Hour}},
	} {
		b := newBench(t, tt.long)
		b.take(epoch, 3)
		was, v := b.charge(epoch, 2, 0)
		if _, log := tt.long.(algorithm.SlidingLog); log {
			b.take(epoch, 1) // the refund then changes entries
		}
		expires := b.state.keys[0].expires
		b.change(tt.short)
		if gave := b.refund(epoch, was); !v.Allowed || !gave || b.state.keys[0].expires != expires {
			t.Errorf("%+v, refunded by %+v: refunded %v, and the key expires at %d, not %d", tt.long, tt.short, gave, b.state.keys[0].expires, expires)
		}
	}
}
