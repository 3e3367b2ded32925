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

var clockLimits = []algorithm.Algorithm{
	algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 4},
	algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 1},
	algorithm.FixedWindow{Limit: 4, Window: time.Second},
	algorithm.FixedWindow{Limit: 4, Window: time.Second, Aligned: true},
	algorithm.MetadataWindow{Limit: 4, Window: time.Second},
	algorithm.SlidingLog{Limit: 4, Window: time.Second},
	algorithm.SlidingCounter{Limit: 4, Window: time.Second},
	algorithm.TokenBucket{Capacity: 4, Refill: algorithm.PerSecond(3)},
	algorithm.TokenBucket{Capacity: 4, Refill: algorithm.PerSecond(10)},
	algorithm.TokenBucket{Capacity: 4, Refill: algorithm.PerSecond(3), AtOnce: true},
	algorithm.LeakyBucket{Rate: algorithm.PerSecond(3), Queue: 3},
	spans(250*time.Millisecond, algorithm.Span{Window: time.Second, Limit: 4}),
	spans(time.Second, algorithm.Span{Window: 3 * time.Second, Limit: 9}, algorithm.Span{Window: time.Second, Limit: 4}),
}

// If a clock steps back, a wait gets longer by at most the step.
func TestClockStepsBackWaits(t *testing.T) {
	t.Parallel()
	for _, a := range clockLimits {
		t.Run(fmt.Sprintf("%+v", a), func(t *testing.T) {
			t.Parallel()
			for _, step := range []time.Duration{us, time.Millisecond, time.Second, time.Hour, 40 * 365 * 24 * time.Hour} {
				b := newBench(t, a)
				before := b.take(epoch, 1)
				for before.Allowed {
					before = b.take(epoch, 1)
				}
				got := b.peek(epoch-step.Microseconds(), 1)
				if got.Allowed || got.RetryAfter > before.RetryAfter+step || got.ResetAfter > before.ResetAfter+step {
					t.Errorf("a step back of %v makes of %+v: %+v", step, before, got)
				}
				if got.Remaining != 0 {
					t.Errorf("a step back of %v leaves %d", step, got.Remaining)
				}
				if got := b.peek(epoch+before.RetryAfter.Microseconds(), 1); !got.Allowed {
					t.Errorf("the wait outlasts a step back of %v: %+v", step, got)
				}
			}
		})
	}
}

// If a clock steps back, at most as much is allowed as with a clock that instead stands
// still at its latest time.
func TestClockStepsBackAllows(t *testing.T) {
	t.Parallel()
	for i, a := range clockLimits {
		t.Run(fmt.Sprintf("%+v", a), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(uint64(i), 17))
			stepping, standing := newBench(t, a), newBench(t, a)
			keys := len(standing.state.keys)
			for round := range 300 {
				stepping.state, standing.state = newState(epoch, keys), newState(epoch, keys)
				now, highest := int64(epoch), int64(0)
				var got, most int
				for step := range 100 {
					d := r.Int64N(800_000)
					if r.IntN(3) == 0 {
						d = -r.Int64N(2_500_000)
					}
					now += d
					highest = max(highest, now)
					if stepping.take(now, 1).Allowed {
						got++
					}
					if standing.take(highest, 1).Allowed {
						most++
					}
					if got > most {
						t.Fatalf("round %d: after %d steps, %d allowed, and %d by a clock that stands", round, step+1, got, most)
					}
				}
			}
		})
	}
}

// A key expires at the end of its state, rounded up to the next multiple of the quantum,
// and then to the millisecond. With the caller's clock, it expires one hour later.
func TestClockSlack(t *testing.T) {
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
func TestClockKeepsTheTTL(t *testing.T) {
	t.Parallel()
	for _, a := range clockLimits {
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
