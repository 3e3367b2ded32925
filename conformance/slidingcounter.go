package conformance

import (
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

var slidingCounterRules = []rule{
	{"Trace", "SlidingCounter counts the part of the window before that lies within one Window of now, rounded up", slidingCounterTrace},
	{"Steps", "the weight of a long window falls in steps of a 2^20th of it", slidingCounterSteps},
	{"Carry", "if Limit or Window changes under a live key, the new limit judges the counts", slidingCounterCarry},
	{"History", "SlidingCounter answers as plain counts of windows do, and its keys hold what they hold on the reference store", asModel(anySlidingCounter)},
	{"Exact", "a request denied by SlidingCounter is denied until 1µs before RetryAfter is over, and passes when it is over", exact(anySlidingCounter)},
	{"HotKey", "of many concurrent callers, SlidingCounter allows exactly the limit", hotKey(algorithm.SlidingCounter{Limit: 50, Window: 24 * time.Hour}, 50)},
	{"Refill", "on the store's clock, a request denied by SlidingCounter passes when RetryAfter is over, and not before", refill(func(d time.Duration) algorithm.Algorithm {
		return algorithm.SlidingCounter{Limit: 3, Window: 2 * d}
	})},
	{"Backwards", "a clock that steps back lengthens no wait for SlidingCounter by more than the step, and allows nothing", backwards(algorithm.SlidingCounter{Limit: 3, Window: time.Minute})},
	{"Never", "SlidingCounter denies a cost above Limit with Never, and it changes nothing", neverFits(algorithm.SlidingCounter{Limit: 5, Window: time.Minute})},
	{"Huge", "SlidingCounter is exact at its bounds, and TakeUpTo consumes what it has there", huge([]algorithm.Algorithm{
		algorithm.SlidingCounter{Limit: algorithm.MaxCounter, Window: time.Second},
		algorithm.SlidingCounter{Limit: algorithm.MaxCounter, Window: 7_000_001 * time.Microsecond},
		algorithm.SlidingCounter{Limit: 10, Window: algorithm.MaxSpan / 4 * time.Microsecond},
	})},
	{"UpTo", "TakeUpTo consumes as many tokens as SlidingCounter has", upTo(anySlidingCounter)},
	{"Refund", "a refund of SlidingCounter undoes a request at once, and later makes it no fuller than without the request", refunds(anySlidingCounter)},
	{"Refunds", "many refunds of SlidingCounter together refund no more than if their requests had never been made", neverMade(anySlidingCounter)},
}

func slidingCounterTrace(t *T) {
	s, us := time.Second, time.Microsecond
	t.trace(algorithm.SlidingCounter{Limit: 8, Window: 10 * time.Second}, []step{
		{1 * s, 8, true, 0, 19 * s, 0},
		{2 * s, 1, false, 0, 18 * s, 9250 * time.Millisecond}, // 7/8 of the window before
		{10 * s, 1, false, 0, 10 * s, 1250 * time.Millisecond},
		{11250*time.Millisecond - us, 1, false, 0, 8750*time.Millisecond + us, us},
		{11250 * time.Millisecond, 1, true, 0, 18750 * time.Millisecond, 0},
		{15 * s, 4, false, 3, 15 * s, 1250 * time.Millisecond},
		{15 * s, 3, true, 0, 15 * s, 0},
		{15 * s, 9, false, 0, 15 * s, weir.Never},
		{20 * s, 4, true, 0, 20 * s, 0},
		{29*s + 999_999*us, 3, true, 0, 10*s + us, 0},
		{30 * s, 1, true, 0, 20 * s, 0},
		{60 * s, 0, true, 8, 0, 0},
	})
}

func slidingCounterSteps(t *T) {
	c := newClock()
	const window = 1 << 20 * 1000 * time.Microsecond
	start := c.us + (window.Microseconds() - c.us%window.Microseconds())
	l := t.limiter(c, one(algorithm.SlidingCounter{Limit: 1 << 20, Window: window}))
	c.us = start
	t.allow(l, 1<<20, "k")
	for _, past := range []int64{0, 1, 999, 1000, 1999, 2000, 1<<20*1000 - 1} {
		c.us = start + window.Microseconds() + past
		if got, want := t.peek(l, 1, "k").Remaining, past/1000; got != want {
			t.errorf("%d µs into a window of 2^20 ms, with the window before used up: %d left, want %d", past, got, want)
		}
	}
}

func slidingCounterCarry(t *T) {
	c := newClock()
	minute := t.limiter(c, one(algorithm.SlidingCounter{Limit: 6, Window: time.Minute}))
	small := t.limiter(c, one(algorithm.SlidingCounter{Limit: 2, Window: 2 * time.Minute}))
	t.allow(minute, 4, "k")
	c.advance(time.Second)
	got := t.peek(small, 1, "k")
	// A quarter is left of 4 within 90 s of the next window, by steps of 115 µs.
	want := weir.Result{Limit: 2, Window: 2 * time.Minute, Rule: "one", Delay: weir.Never, RetryAfter: 209*time.Second + 150*time.Microsecond, ResetAfter: 239 * time.Second}
	if got != want {
		t.errorf("4 consumed of 6 per minute, then 2 per 2 minutes:\ngot  %+v\nwant %+v", got, want)
	}
}

// anySlidingCounter returns a random SlidingCounter.
func anySlidingCounter(r *rand.Rand) algorithm.Algorithm {
	return algorithm.SlidingCounter{
		Limit:  pick(r, 1, 2, 5, 100, 1+r.Int64N(20)),
		Window: pick(r, time.Microsecond, 7*time.Microsecond, time.Millisecond, time.Second, 1_048_577*time.Microsecond, time.Minute, 24*time.Hour),
	}
}
