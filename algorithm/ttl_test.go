package algorithm_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/script"
)

// quantum is the unit to which the end of the state of a key is rounded up.
const quantum = 1 << 20 * us

// A key expires at the end of its state, rounded up to the next multiple of the quantum,
// and then to the millisecond. With the caller's clock, it expires one hour later.
func TestTTL(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		limit algorithm.Algorithm
		ends  time.Duration // of the state, after one request
	}{
		{algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 5}, time.Second},
		{algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 5}, 333_334 * us},
		{algorithm.GCRA{Rate: algorithm.PerSecond(9_000_000), Burst: 5}, us},
		{algorithm.FixedWindow{Limit: 4, Window: time.Second}, time.Second},
		{algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(1)}, time.Second},
		{algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(3)}, 333_334 * us},
		{algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(3), AtOnce: true}, time.Second},
		{algorithm.LeakyBucket{Rate: algorithm.PerSecond(3), Queue: 4}, 333_334 * us},
		{algorithm.FixedWindow{Limit: 4, Window: us}, us},
		{algorithm.FixedWindow{Limit: 4, Window: 1001 * us}, 1001 * us},
		{algorithm.FixedWindow{Limit: 4, Window: time.Hour}, time.Hour},
	} {
		t.Run(fmt.Sprintf("%+v", tt.limit), func(t *testing.T) {
			t.Parallel()
			for _, callers := range []int64{0, epoch - 1e12, epoch + 1e12} {
				b, slack := newBench(t, tt.limit), time.Duration(0)
				now := cmp.Or(callers, int64(epoch))
				if callers != 0 {
					slack = time.Hour
				}
				b.do(script.Consume, epoch, compose.Call{Cost: 1, Now: callers})
				got := b.state.ttl - slack
				if got%time.Millisecond != 0 || got < tt.ends || got > tt.ends+quantum+time.Millisecond {
					t.Errorf("at time %d: TTL %v and %v, want from %v to %v", callers, slack, got, tt.ends, tt.ends+quantum)
				}
				if over := (now + got.Microseconds()) % quantum.Microseconds(); over >= 1000 {
					t.Errorf("at time %d: TTL %v and %v ends %d µs after a multiple of the quantum", callers, slack, got, over)
				}
			}
		})
	}
}

// A key keeps its TTL while the end of its state stays within one quantum, and gets a new
// one otherwise. So it is never missing while it is in use.
func TestKeptTTL(t *testing.T) {
	t.Parallel()
	for _, a := range []algorithm.Algorithm{
		algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 4},
		algorithm.FixedWindow{Limit: 4, Window: time.Second, Aligned: true},
		algorithm.MetadataWindow{Limit: 4, Window: time.Second},
		algorithm.SlidingLog{Limit: 4, Window: time.Second},
		algorithm.SlidingCounter{Limit: 4, Window: time.Second},
		algorithm.TokenBucket{Capacity: 4, Refill: algorithm.PerSecond(3)},
		algorithm.TokenBucket{Capacity: 4, Refill: algorithm.PerSecond(3), AtOnce: true},
		algorithm.LeakyBucket{Rate: algorithm.PerSecond(3), Queue: 3},
	} {
		t.Run(fmt.Sprintf("%+v", a), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(3, 19))
			b := newBench(t, a)
			kept, set := 0, 0
			for now := int64(1); now < 40_000_000; now += r.Int64N(400_000) {
				before := b.state.keys[0].expires
				if v := b.take(now, 1); !v.Allowed {
					continue
				}
				key := &b.state.keys[0]
				if v := b.peek(now, 1); key.expires > 0 && key.set == nil && b.program.Keys(0) == 1 && key.expires < now+v.ResetAfter.Microseconds() {
					t.Fatalf("at %d: the key expires at %d, and is in use for %v", now, key.expires, v.ResetAfter)
				}
				if key.expires == before {
					kept++
				} else {
					set++
				}
			}
			if k, ok := b.limit.Kind.(*contract.MeterKind); set == 0 || ok && k.Absolute && kept == 0 && set > 40 {
				t.Errorf("the TTL was kept %d times, and set %d times", kept, set)
			}
		})
	}
}
