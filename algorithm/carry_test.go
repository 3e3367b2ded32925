package algorithm_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/script"
)

// Carry says how long a caller waits that has just consumed all tokens of a limit, if the
// limit changes. The check Algorithm/Carry of package conformance tries random changes.
func TestCarry(t *testing.T) {
	t.Parallel()
	minute, second := algorithm.PerMinute(1), algorithm.PerSecond(1)
	for _, tt := range []struct {
		from, to algorithm.Algorithm
		exact    bool
		wait     time.Duration
	}{
		{algorithm.GCRA{Rate: algorithm.PerHour(60), Burst: 60}, algorithm.GCRA{Rate: algorithm.PerSecond(100), Burst: 100}, false, time.Hour - 990*time.Millisecond},
		{algorithm.GCRA{Rate: algorithm.PerMinute(60), Burst: 5}, algorithm.GCRA{Rate: second, Burst: 6}, true, 0},
		{algorithm.GCRA{Rate: second, Burst: 5}, algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 5}, false, 3_666_667 * us},
		{algorithm.GCRA{Rate: second, Burst: 60}, algorithm.GCRA{Rate: minute, Burst: 1}, false, time.Minute},
		{algorithm.LeakyBucket{Rate: minute, Queue: 4}, algorithm.LeakyBucket{Rate: second, Queue: 9}, false, 5 * time.Minute},
		{algorithm.LeakyBucket{Rate: minute, Queue: 4}, algorithm.LeakyBucket{Rate: minute, Queue: 9}, true, 5 * time.Minute},
		{algorithm.TokenBucket{Refill: algorithm.PerHour(60), Capacity: 60}, algorithm.TokenBucket{Refill: algorithm.PerSecond(100), Capacity: 100}, true, 0},
		{algorithm.TokenBucket{Refill: second, Capacity: 60}, algorithm.TokenBucket{Refill: minute, Capacity: 10}, true, 51 * time.Minute},
		{algorithm.FixedWindow{Limit: 5, Window: time.Hour}, algorithm.FixedWindow{Limit: 5, Window: time.Minute}, true, time.Hour},
		{algorithm.MetadataWindow{Limit: 5, Window: time.Hour}, algorithm.MetadataWindow{Limit: 6, Window: time.Minute}, true, 0},
		{algorithm.Calendar{Limit: 5, Every: algorithm.Day}, algorithm.Calendar{Limit: 4, Every: algorithm.Month}, true, 24 * time.Hour},
		{algorithm.Calendar{Limit: 5, Every: algorithm.Day, Carry: 2}, algorithm.Calendar{Limit: 7, Every: algorithm.Month}, true, 24 * time.Hour},
		{algorithm.Calendar{Limit: 5, Every: algorithm.Day}, algorithm.Calendar{Limit: 5, Every: algorithm.Day, Carry: 1}, true, 0},
		{algorithm.SlidingLog{Limit: 5, Window: time.Hour}, algorithm.SlidingLog{Limit: 4, Window: time.Minute}, true, time.Minute},
		{algorithm.SlidingLog{Limit: 5, Window: time.Hour}, algorithm.SlidingLog{Limit: 6, Window: time.Hour}, true, 0},
		{algorithm.SlidingCounter{Limit: 8, Window: time.Minute}, algorithm.SlidingCounter{Limit: 4, Window: time.Minute}, true, 97_500_016 * us},
		{algorithm.SlidingCounter{Limit: 8, Window: time.Minute}, algorithm.SlidingCounter{Limit: 9, Window: time.Second}, false, 0},
		{spans(time.Second, algorithm.Span{Window: time.Minute, Limit: 3}), spans(time.Second, algorithm.Span{Window: 9 * time.Second, Limit: 9}, algorithm.Span{Window: time.Minute, Limit: 3}), true, time.Minute},
		{spans(time.Second, algorithm.Span{Window: 5 * time.Second, Limit: 3}), spans(time.Second, algorithm.Span{Window: 4 * time.Second, Limit: 4}, algorithm.Span{Window: 5 * time.Second, Limit: 4}), true, 0},
		{algorithm.Concurrency{Limit: 3, Lease: time.Hour}, algorithm.Concurrency{Limit: 2, Lease: time.Second}, true, time.Hour},
		{algorithm.Concurrency{Limit: 3, Lease: time.Hour}, algorithm.Concurrency{Limit: 4, Lease: time.Second}, true, 0},
	} {
		from, to := mustLimit(t, tt.from), mustLimit(t, tt.to)
		if got := from.Carry(to); got.Exact != tt.exact || got.Wait != tt.wait || got.Text == "" {
			t.Errorf("%+v becomes %+v: Carry returns %+v, want %v and %v", tt.from, tt.to, got, tt.exact, tt.wait)
		}
		b := newBench(t, tt.from)
		n, cost := int64(1), b.limit.Capacity
		if b.limit.MaxCost > 0 {
			n, cost = cost, 1
		}
		for i := range n {
			if _, v := b.do(script.Consume, epoch, compose.Call{Cost: cost, Text: strconv.FormatInt(i, 10)}); !v.Allowed {
				t.Fatalf("%+v: %+v", tt.from, v)
			}
		}
		if b.use(to); b.peek(epoch, 1).RetryAfter != tt.wait {
			t.Errorf("%+v becomes %+v: got %+v, want a RetryAfter of %v", tt.from, tt.to, b.peek(epoch, 1), tt.wait)
		}
		for _, other := range []algorithm.Algorithm{algorithm.Pause{}, algorithm.GCRA{Rate: second, Burst: 1}} {
			from.Carry(mustLimit(t, other)) // whatever it says, it does not panic
		}
	}
}

// A caller that consumes each token as soon as it can may wait longer than after a burst, but
// no longer than Carry says.
func TestCarryOfGreed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		from, to algorithm.Algorithm
		pace     int64 // the shortest time between two requests
	}{
		{algorithm.TokenBucket{Refill: algorithm.PerMinute(997), Capacity: 5}, algorithm.TokenBucket{Refill: algorithm.PerSecond(1), Capacity: 5}, 0},
		{algorithm.TokenBucket{Refill: algorithm.PerMinute(11), Capacity: 5}, algorithm.TokenBucket{Refill: algorithm.PerHour(4), Capacity: 5, AtOnce: true}, 0},
		{algorithm.SlidingCounter{Limit: 8, Window: time.Minute}, algorithm.SlidingCounter{Limit: 9, Window: time.Hour}, 0},
		{algorithm.SlidingLog{Limit: 3, Window: time.Minute}, algorithm.SlidingLog{Limit: 4, Window: time.Hour}, 7_000_000},
		{spans(time.Second, algorithm.Span{Window: time.Minute, Limit: 3}), spans(2*time.Second, algorithm.Span{Window: time.Minute, Limit: 1}), 10_000_000},
	} {
		b, from, to := newBench(t, tt.from), mustLimit(t, tt.from), mustLimit(t, tt.to)
		longest, says := time.Duration(0), from.Carry(to).Wait
		for now, end := int64(epoch), int64(epoch+10*60_000_000); now < end; {
			b.use(from)
			v := b.take(now, 1)
			b.use(to)
			longest = max(longest, b.peek(now, 1).RetryAfter)
			now += max(v.RetryAfter.Microseconds(), tt.pace)
		}
		if longest > says || longest < says*2/3 {
			t.Errorf("%+v becomes %+v: the longest RetryAfter is %v, and Carry says %v", tt.from, tt.to, longest, says)
		}
	}
}
