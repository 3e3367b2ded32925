package algorithm_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
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

// A clock that steps back makes nobody wait longer than the step besides.
func TestClockStepsBackWaits(t *testing.T) {
	t.Parallel()
	for _, a := range clockLimits {
		t.Run(fmt.Sprintf("%+v", a), func(t *testing.T) {
			t.Parallel()
			for _, step := range []time.Duration{us, time.Millisecond, time.Second, time.Hour, 40 * 365 * 24 * time.Hour} {
				b := newRing(t, a)
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

// A clock that steps back admits, at any moment, no more than one that stood still
// at its highest reading instead.
func TestClockStepsBackAdmits(t *testing.T) {
	t.Parallel()
	for i, a := range clockLimits {
		t.Run(fmt.Sprintf("%+v", a), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(uint64(i), 17))
			stepping, standing := newRing(t, a), newRing(t, a)
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
						t.Fatalf("round %d: after %d steps, %d admitted, and %d by a clock that stands", round, step+1, got, most)
					}
				}
			}
		})
	}
}

// At the caller's time, a key lives one hour longer than at the store's.
func TestClockSlack(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		limit algorithm.Algorithm
		want  time.Duration
	}{
		{algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 5}, time.Second + time.Millisecond},
		{algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 5}, 334 * time.Millisecond},
		{algorithm.GCRA{Rate: algorithm.PerSecond(9_000_000), Burst: 5}, time.Millisecond},
		{algorithm.FixedWindow{Limit: 4, Window: time.Second}, time.Second},
		{algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(1)}, time.Second + time.Millisecond},
		{algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(3)}, 334 * time.Millisecond},
		{algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(3), AtOnce: true}, time.Second + time.Millisecond},
		{algorithm.LeakyBucket{Rate: algorithm.PerSecond(3), Queue: 4}, 334 * time.Millisecond},
		{algorithm.FixedWindow{Limit: 4, Window: us}, time.Millisecond},
		{algorithm.FixedWindow{Limit: 4, Window: 1001 * us}, 2 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%+v", tt.limit), func(t *testing.T) {
			t.Parallel()
			l := mustLimit(t, tt.limit)
			p := mustCompose(t, l.Fragment())
			for _, now := range []int64{0, epoch - 1e12, epoch + 1e12} {
				s, want := newState(epoch, 1), tt.want
				if now != 0 {
					want += time.Hour
				}
				run(t, p, p.Decide, s, now, []algorithm.Limit{l}, []int64{1})
				if s.ttl != want {
					t.Errorf("at time %d: TTL %v, want %v", now, s.ttl, want)
				}
			}
		})
	}
}
