package conformance

import (
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

// threeSpans has the spans of the published recipe of counters per second.
var threeSpans = algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{
	{Window: time.Second, Limit: 1000}, {Window: 10 * time.Second, Limit: 5000}, {Window: 15 * time.Second, Limit: 7000},
}}

// quarters has 8 buckets and one span.
var quarters = algorithm.SlidingBuckets{Width: 15 * time.Second, Spans: []algorithm.Span{{Window: 2 * time.Minute, Limit: 5}}}

var slidingBucketsChecks = []check{
	{"Spans", "SlidingBuckets limits every span at once, and Window and Limit are those of the span that denies for the longest time", slidingBucketsSpans},
	{"Edges", "a span of SlidingBuckets slides by whole buckets", slidingBucketsEdges},
	{"Carry", "if limits change under a live key, SlidingBuckets keeps its counts", slidingBucketsCarry},
}

func slidingBucketsSpans(t *T) {
	s, s10, s15 := time.Second, 10*time.Second, 15*time.Second
	c := newClock()
	start := c.us // the first bucket is that of key 0
	l := t.limiter(c, one(threeSpans))
	for i, step := range []struct {
		at      time.Duration
		cost    int64
		allowed bool
		span    time.Duration
		limit   int64
		left    int64
		reset   time.Duration
		retry   time.Duration
	}{
		{0, 1, true, s, 1000, 999, s15, 0},
		{s / 2, 999, true, s, 1000, 0, 14*s + s/2, 0},
		{s / 2, 1, false, s, 1000, 0, 14*s + s/2, s / 2}, // a burst
		{1 * s, 1000, true, s, 1000, 0, s15, 0},
		{2 * s, 1000, true, s, 1000, 0, s15, 0},
		{3 * s, 1000, true, s, 1000, 0, s15, 0},
		{4 * s, 1000, true, s, 1000, 0, s15, 0},
		{5 * s, 1, false, s10, 5000, 0, 14 * s, 5 * s},
		{9 * s, 0, false, s10, 5000, 0, 10 * s, 1 * s},
		{9 * s, 1001, false, s, 1000, 1000, 10 * s, weir.Never}, // the span of 10 s denies for a second
		{10*s - time.Microsecond, 1, false, s10, 5000, 0, 9*s + time.Microsecond, time.Microsecond},
		{10 * s, 500, true, s, 1000, 500, s15, 0},
		{10 * s, 501, false, s, 1000, 500, s15, 1 * s},
		{10 * s, 500, true, s, 1000, 0, s15, 0},
		{11 * s, 999, true, s, 1000, 1, s15, 0},
		{12 * s, 2, false, s15, 7000, 1, 14 * s, 3 * s},
		{12 * s, 1, true, s15, 7000, 0, s15, 0},
		{12 * s, 1, false, s15, 7000, 0, s15, 3 * s},
		{15 * s, 1000, true, s, 1000, 0, 15 * s, 0}, // what was counted at 0 s has left, and its key with it
		{15 * s, 1, false, s, 1000, 0, 15 * s, s},
		{16*s - time.Microsecond, 2, false, s, 1000, 0, 14*s + time.Microsecond, time.Microsecond},
		{100 * s, 1, true, s, 1000, 999, s15, 0},
		{100 * s, 1000, false, s, 1000, 999, s15, 1 * s},
	} {
		c.us = start + step.at.Microseconds()
		want := weir.Result{
			Allowed: step.allowed, Limit: step.limit, Remaining: step.left,
			RetryAfter: step.retry, ResetAfter: step.reset, Rule: "one", Window: step.span,
		}
		if want.Granted = step.cost; !step.allowed {
			want.Granted, want.Delay = 0, weir.Never
		}
		req := weir.Request{Key: weir.KeyOf("spans"), Cost: step.cost}
		if step.cost == 0 {
			req.Op = weir.Peek
		}
		if got := t.do(l, req); got != want {
			t.errorf("step %d, cost %d at %v:\ngot  %+v\nwant %+v", i, step.cost, step.at, got, want)
		}
	}
}

func slidingBucketsEdges(t *T) {
	s, us := time.Second, time.Microsecond
	t.trace(algorithm.SlidingBuckets{Width: 2 * s, Spans: []algorithm.Span{{Window: 6 * s, Limit: 4}}}, []step{
		{1 * s, 1, true, 3, 5 * s, 0},
		{2*s - us, 1, true, 2, 4*s + us, 0},
		{5 * s, 2, true, 0, 5 * s, 0},
		{6*s - us, 1, false, 0, 4*s + us, us},
		{6 * s, 2, true, 0, 6 * s, 0}, // 4 have passed in the 5 s since 1 s, and 2 now
		{8 * s, 1, false, 0, 4 * s, 2 * s},
		{10*s - us, 3, false, 0, 2*s + us, 2*s + us},
		{10 * s, 3, false, 2, 2 * s, 2 * s},
		{10 * s, 2, true, 0, 6 * s, 0},
		{16*s - us, 4, false, 2, us, us},
		{16 * s, 4, true, 0, 6 * s, 0},
		{22 * s, 5, false, 4, 0, weir.Never},
	})
}

func slidingBucketsCarry(t *T) {
	s := time.Second
	t.moves(
		step{at: 0, cost: 4, allowed: true, left: 1, reset: 120 * s}.under(quarters),
		step{at: 1 * s, reset: 119 * s, retry: 119 * s}.under(algorithm.SlidingBuckets{Width: quarters.Width, Spans: []algorithm.Span{
			{Window: time.Minute, Limit: 3}, {Window: quarters.Spans[0].Window, Limit: 2},
		}}),
		step{at: 1 * s, cost: 1, allowed: true, left: 0, reset: 119 * s}.under(quarters),
	)
}
