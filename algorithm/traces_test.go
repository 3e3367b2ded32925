package algorithm_test

import (
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/script"
)

// Each algorithm answers as its documentation says. FuzzModels has random histories; the traces
// of a GCRA and of a change of limits are TestThrottleTrace of package rediscell and TestCarry.
func TestTraces(t *testing.T) {
	t.Parallel()
	const d, s, ms, third = 24 * time.Hour, time.Second, time.Millisecond, 333_334 * us
	yes := func(left int64, reset time.Duration) verdict {
		return verdict{Allowed: true, Remaining: left, ResetAfter: reset}
	}
	later := func(delay, reset time.Duration) verdict {
		return verdict{Allowed: true, ResetAfter: reset, Delay: delay}
	}
	no := func(left int64, reset, retry time.Duration) verdict {
		return verdict{Remaining: left, ResetAfter: reset, RetryAfter: retry}
	}
	of := func(limit int64, v verdict) verdict { v.Limit = limit; return v }
	type step struct {
		at   time.Duration
		cost int64 // 0: a peek of 1
		wait time.Duration
		want verdict // a Limit of 0 is the capacity
	}
	for _, tt := range []struct {
		name  string
		limit algorithm.Algorithm
		steps []step
	}{
		{"a window starts with its first request", algorithm.FixedWindow{Limit: 3, Window: s}, []step{
			{0, 0, 0, yes(3, 0)},
			{0, 4, 0, no(3, 0, never)},
			{0, 1, 0, yes(2, s)},
			{600 * ms, 1, 0, yes(1, 400*ms)},
			{600 * ms, 2, 0, no(1, 400*ms, 400*ms)},
			{s, 0, 0, yes(3, 0)},
			{1700 * ms, 3, 0, yes(0, s)},
			{2 * s, 1, 0, no(0, 700*ms, 700*ms)},
		}},
		{"an aligned window starts at a multiple", algorithm.FixedWindow{Limit: 3, Window: s, Aligned: true}, []step{
			{400 * ms, 3, 0, yes(0, 600*ms)},
			{s - us, 1, 0, no(0, us, us)},
			{s, 3, 0, yes(0, s)},
		}},
		{"the rest of a day carries over", algorithm.Calendar{Limit: 5, Every: algorithm.Day, Carry: 2}, []step{
			{0, 0, 0, yes(7, 0)}, // never used
			{0, 8, 0, no(7, 0, never)},
			{0, 5, 0, yes(2, d)},
			{d, 6, 0, yes(1, 2*d)},
			{d, 2, 0, no(1, 2*d, d)},
			{d, 7, 0, no(1, 2*d, 2*d)}, // the next day opens with 6
			{2*d - us, 2, 0, no(1, d+us, us)},
			{2 * d, 6, 0, yes(0, 2*d)},
			{3 * d, 6, 0, no(5, d, d)},
			{3 * d, 5, 0, yes(0, 2*d)},
			{2 * d, 1, 0, no(0, 3*d, 2*d)}, // the clock stepped back
			{5*d - us, 0, 0, yes(5, us)},
			{5 * d, 7, 0, yes(0, 2*d)},
			{99 * d, 7, 0, yes(0, 2*d)},
		}},
		{"tokens are refilled one by one", algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(3)}, []step{
			{0, 6, 0, no(5, 0, never)},
			{0, 5, 0, yes(0, 1_666_667*us)},
			{0, 1, 0, no(0, 1_666_667*us, third)},
			{third - us, 1, 0, no(0, 1_333_334*us, us)},
			{third, 1, 0, yes(0, 1_666_666*us)},
			{third, 1, 500 * ms, later(third-us, 2*s)},
		}},
		{"tokens are refilled at once", algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(3), AtOnce: true}, []step{
			{0, 1, 0, yes(4, s)},
			{s - us, 4, 0, yes(0, s+us)}, // 5 are missing, and 3 of them are refilled soon
			{s - us, 1, 0, no(0, s+us, us)},
			{s, 3, 0, yes(0, 2*s)},
			{2 * s, 4, 0, no(3, s, s)},
			{100*s + 5*us, 1, 0, yes(4, s)}, // full again: periods are counted from here
			{101 * s, 0, 0, yes(4, 5*us)},
		}},
		{"more tokens than the capacity are refilled", algorithm.TokenBucket{Capacity: 2, Refill: algorithm.PerMinute(100), AtOnce: true}, []step{
			{0, 2, 0, yes(0, 60*s)},
			{59 * s, 1, 0, no(0, s, s)},
			{60 * s, 2, 0, yes(0, 60*s)},
		}},
		{"requests leave a queue one after another", algorithm.LeakyBucket{Rate: algorithm.PerSecond(2), Queue: 3}, []step{
			{0, 5, time.Hour, no(4, 0, never)},
			{0, 1, 0, yes(0, 500*ms)},
			{0, 1, 0, no(0, 500*ms, 500*ms)}, // a request leaves now, so the next is denied without MaxWait
			{0, 1, 500*ms - us, no(0, 500*ms, us)},
			{0, 1, 500 * ms, later(500*ms, s)},
			{100 * ms, 2, time.Hour, later(900*ms, 1900*ms)},
			{100 * ms, 1, time.Hour, no(0, 1900*ms, 400*ms)}, // the queue has no turn until then
			{100 * ms, 1, 300 * ms, no(0, 1900*ms, 1600*ms)},
			{500 * ms, 1, time.Hour, later(1500*ms, 2*s)},
			{2500 * ms, 1, 0, yes(0, 500*ms)},
			{3 * s, 4, 0, yes(0, 2*s)},
		}},
		{"a counter estimates with the window before", algorithm.SlidingCounter{Limit: 4, Window: s}, []step{
			{500 * ms, 4, 0, yes(0, 1500*ms)},
			{s, 1, 0, no(0, s, 250*ms)},
			{1250 * ms, 2, 0, no(1, 750*ms, 250*ms)},
			{1250 * ms, 1, 0, yes(0, 1750*ms)},
			{1500 * ms, 1, 0, yes(0, 1500*ms)},
			{3 * s, 4, 0, yes(0, 2*s)},
		}},
		{"tokens leave a log a window later", algorithm.SlidingLog{Limit: 3, Window: 10 * s}, []step{
			{0, 1, 0, yes(2, 10*s)},
			{4 * s, 2, 0, yes(0, 10*s)},
			{5 * s, 1, 0, no(0, 9*s, 5*s)},
			{5 * s, 2, 0, no(0, 9*s, 9*s)},
			{10*s - us, 1, 0, no(0, 4*s+us, us)},
			{10 * s, 1, 0, yes(0, 10*s)},
			{2 * s, 1, 0, no(0, 18*s, 12*s)}, // the clock stepped back
		}},
		{"the answer is about one of the spans", spans(s, algorithm.Span{Window: s, Limit: 3}, algorithm.Span{Window: 4 * s, Limit: 6}, algorithm.Span{Window: 2 * s, Limit: 5}), []step{
			{0, 2, 0, yes(1, 4*s)},
			{s / 2, 4, 0, no(1, 7*s/2, never)},
			{s, 3, 0, yes(0, 4*s)},
			{s, 2, 0, of(6, no(1, 4*s, 3*s))}, // all three deny
			{s, 1, 0, no(0, 4*s, s)},          // two spans have the same wait
			{2 * s, 1, 0, of(6, yes(0, 4*s))},
			{4 * s, 1, 0, of(6, yes(1, 4*s))},
			{3 * s, 2, 0, of(6, no(1, 5*s, 2*s))}, // the clock stepped back
			{8 * s, 1, 0, yes(2, 4*s)},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, tt.limit)
			for i, step := range tt.steps {
				verb, now := script.Consume, epoch+step.at.Microseconds()
				if step.cost == 0 {
					verb, step.cost = script.Peek, 1
				}
				if step.want.Limit == 0 {
					step.want.Limit = b.limit.Capacity
				}
				if got := b.wait(verb, now, step.cost, step.wait); got != step.want {
					t.Errorf("step %d, cost %d at %v:\ngot  %+v\nwant %+v", i, step.cost, step.at, got, step.want)
				}
			}
		})
	}
}

// A caller who retries at each RetryAfter gets exactly the tokens of the rate. No caller gets
// more.
func TestNoDrift(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		rate algorithm.Rate
		span time.Duration
		want int64
	}{
		{algorithm.PerSecond(3), 2 * time.Hour, 21_600},
		{algorithm.Rate{Count: 1_000_003, Period: 7 * 24 * time.Hour}, 2 * time.Hour, 1_000_003 / 84},
		{algorithm.PerSecond(7_000_000), 2 * time.Millisecond, 14_000},
	} {
		const burst = 7
		b, got, end := newBench(t, algorithm.GCRA{Rate: tt.rate, Burst: burst}), int64(0), epoch+tt.span.Microseconds()
		for now := int64(epoch); now <= end; {
			v := b.take(now, 1)
			if v.Allowed {
				got++
			}
			now += v.RetryAfter.Microseconds()
		}
		if got != tt.want+burst {
			t.Errorf("%d per %v: %v allowed %d, want %d", tt.rate.Count, tt.rate.Period, tt.span, got, tt.want+burst)
		}
	}
}
