package algorithm_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/script"
)

func TestTokenBucketTrace(t *testing.T) {
	t.Parallel()
	const third = 333_334 * us // rounded up
	s := time.Second
	type step struct {
		at           time.Duration
		cost         int64 // 0: a peek of 1
		allowed      bool
		remaining    int64
		reset, retry time.Duration
	}
	for _, tt := range []struct {
		name  string
		limit algorithm.TokenBucket
		steps []step
	}{
		{"one by one", algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(3)}, []step{
			{0, 6, false, 5, 0, never},
			{0, 5, true, 0, 1_666_667 * us, 0},
			{0, 1, false, 0, 1_666_667 * us, third},
			{third - us, 1, false, 0, 1_333_334 * us, us},
			{third, 1, true, 0, 1_666_666 * us, 0},
			{third, 1, false, 0, 1_666_666 * us, third - us},
			{2 * s, 5, true, 0, 1_666_667 * us, 0},
		}},
		{"all at once", algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(3), AtOnce: true}, []step{
			{0, 1, true, 4, s, 0},
			{s - us, 5, false, 4, us, us},
			{s - us, 4, true, 0, s + us, 0}, // 5 are missing, and 3 of them are refilled soon
			{s - us, 1, false, 0, s + us, us},
			{s, 3, true, 0, 2 * s, 0},
			{s, 4, false, 0, 2 * s, 2 * s},
			{2*s - us, 1, false, 0, s + us, us},
			{2 * s, 4, false, 3, s, s},
			{3 * s, 5, true, 0, 2 * s, 0},
			{100*s + 5*us, 1, true, 4, s, 0}, // full again: periods are counted from here
			{101 * s, 0, true, 4, 5 * us, 0},
			{101*s + 5*us, 0, true, 5, 0, 0},
		}},
		{"more tokens than the capacity are refilled", algorithm.TokenBucket{Capacity: 2, Refill: algorithm.PerMinute(100), AtOnce: true}, []step{
			{0, 2, true, 0, 60 * s, 0},
			{59 * s, 1, false, 0, s, s},
			{60 * s, 2, true, 0, 60 * s, 0},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, tt.limit)
			for _, s := range tt.steps {
				want := verdict{Allowed: s.allowed, Limit: tt.limit.Capacity, Remaining: s.remaining, RetryAfter: s.retry, ResetAfter: s.reset}
				if got := b.takeOrPeek(epoch+s.at.Microseconds(), s.cost); got != want {
					t.Errorf("at %v, cost %d: got %+v, want %+v", s.at, s.cost, got, want)
				}
			}
		})
	}
}

// If no clock steps back and no limit changes, a TokenBucket that is not AtOnce gives the
// answers of a GCRA.
func TestTokenBucketIsGCRA(t *testing.T) {
	t.Parallel()
	for i, rate := range []algorithm.Rate{algorithm.PerSecond(10), algorithm.PerSecond(3), algorithm.PerMinute(997), algorithm.PerSecond(7_000_000), algorithm.Every(1500 * time.Nanosecond)} {
		r := rand.New(rand.NewPCG(uint64(i), 3))
		tokens, cells := newBench(t, algorithm.TokenBucket{Capacity: 9, Refill: rate}), newBench(t, algorithm.GCRA{Rate: rate, Burst: 9})
		now := int64(epoch)
		for range 2000 {
			now += r.Int64N(3*max(rate.Period.Microseconds()/rate.Count, 1) + 1)
			cost, wait := 1+r.Int64N(3), time.Duration(0)
			if r.IntN(3) == 0 {
				wait = time.Duration(r.Int64N(3 * int64(rate.Period) / rate.Count))
			}
			got, want := tokens.wait(script.Consume, now, cost, wait), cells.wait(script.Consume, now, cost, wait)
			if got != want {
				t.Fatalf("cost %d, wait %v at %v: got %+v, GCRA says %+v", cost, wait, rate, got, want)
			}
		}
	}
}

// If the limit changes, missing tokens stay missing. Tokens refilled since the period
// began are counted at the new rate.
func TestTokenBucketChangedLimit(t *testing.T) {
	t.Parallel()
	s := time.Second
	b := newBench(t, algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(1)})
	b.take(epoch, 8)
	b.take(epoch+2_500_000, 1) // 7 are missing, and half a token is refilled
	now := int64(epoch + 2_900_000)
	for _, tt := range []struct {
		name string
		to   algorithm.TokenBucket
		want verdict
	}{
		{"the same", algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(1)}, verdict{Allowed: true, Limit: 10, Remaining: 3, ResetAfter: 6100 * time.Millisecond}},
		{"larger", algorithm.TokenBucket{Capacity: 20, Refill: algorithm.PerSecond(1)}, verdict{Allowed: true, Limit: 20, Remaining: 13, ResetAfter: 6100 * time.Millisecond}},
		{"smaller", algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(1)}, verdict{Limit: 5, RetryAfter: 2100 * time.Millisecond, ResetAfter: 6100 * time.Millisecond}},
		{"ten times as fast", algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(10)}, verdict{Allowed: true, Limit: 10, Remaining: 10, ResetAfter: 0}},
		{"twice as fast", algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(2)}, verdict{Allowed: true, Limit: 10, Remaining: 4, ResetAfter: 2600 * time.Millisecond}},
		{"slower", algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerMinute(1)}, verdict{Allowed: true, Limit: 10, Remaining: 3, ResetAfter: 7*time.Minute - 900*time.Millisecond}},
		{"at once", algorithm.TokenBucket{Capacity: 10, Refill: algorithm.Rate{Count: 4, Period: 4 * s}, AtOnce: true}, verdict{Allowed: true, Limit: 10, Remaining: 3, ResetAfter: 7100 * time.Millisecond}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			changed := *b
			changed.t = t
			changed.change(tt.to)
			if got := changed.peek(now, 1); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}
