package conformance

import (
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

var slidingCounterRules = []rule{
	{"Trace", "of the window before a SlidingCounter, what lies within one window of now counts, rounded up", slidingCounterTrace},
	{"Steps", "the weight of a long window falls in steps of a 2^20th of it", slidingCounterSteps},
	{"Carry", "when Limit or Window changes under a live key, its counts are judged by the new one", slidingCounterCarry},
	{"History", "SlidingCounter answers as plain counts of windows do, and leaves what the reference store holds", history(anySlidingCounter)},
	{"Exact", "SlidingCounter denies 1µs before RetryAfter is over and admits when it is", exact(anySlidingCounter)},
	{"HotKey", "of many concurrent callers SlidingCounter admits exactly the limit", hotKey(algorithm.SlidingCounter{Limit: 50, Window: 24 * time.Hour}, 50)},
	{"Refill", "on the store's clock SlidingCounter lets a denied caller pass after RetryAfter, not before", refill(algorithm.SlidingCounter{Limit: 3, Window: 300 * time.Millisecond})},
	{"Backwards", "a clock that steps back extends no SlidingCounter wait by more than the step, and admits nothing", backwards(algorithm.SlidingCounter{Limit: 3, Window: time.Minute})},
	{"Never", "a cost above Limit is denied by SlidingCounter for ever and changes nothing", neverFits(algorithm.SlidingCounter{Limit: 5, Window: time.Minute})},
	{"Huge", "SlidingCounter is exact at its bounds", huge([]algorithm.Algorithm{
		algorithm.SlidingCounter{Limit: algorithm.MaxCounter, Window: time.Second},
		algorithm.SlidingCounter{Limit: algorithm.MaxCounter, Window: 7_000_001 * time.Microsecond},
		algorithm.SlidingCounter{Limit: 10, Window: algorithm.MaxSpan / 4 * time.Microsecond},
	})},
	{"UpTo", "SlidingCounter takes as many tokens as there is room for, and keeps what is less than one", upTo(anySlidingCounter)},
	{"Refund", "a refund makes SlidingCounter as if the tokens had not been taken, once, and inflates nothing later", refunds(anySlidingCounter)},
	{"Refunds", "many refunds of SlidingCounter give together no more than if their requests had never been made", neverMade(anySlidingCounter)},
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
			t.errorf("%d µs into a window of 2^20 ms, whose predecessor was full: %d left, want %d", past, got, want)
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
	want := weir.Result{Limit: 2, Rule: "one", RetryAfter: 209*time.Second + 150*time.Microsecond, ResetAfter: 239 * time.Second}
	if got != want {
		t.errorf("4 taken of 6 per minute, then 2 per 2 minutes:\ngot  %+v\nwant %+v", got, want)
	}
}

// anySlidingCounter returns a random SlidingCounter.
func anySlidingCounter(r *rand.Rand) algorithm.Algorithm {
	return algorithm.SlidingCounter{
		Limit:  pick(r, 1, 2, 5, 100, 1+r.Int64N(20)),
		Window: pick(r, time.Microsecond, 7*time.Microsecond, time.Millisecond, time.Second, 1_048_577*time.Microsecond, time.Minute, 24*time.Hour),
	}
}
