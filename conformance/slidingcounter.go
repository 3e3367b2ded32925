package conformance

import (
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

var slidingCounterChecks = []check{
	{"Trace", "SlidingCounter counts the part of the window before that lies within one Window of now, rounded up", slidingCounterTrace},
	{"Steps", "the weight of a long window falls in steps of a 2^20th of it", slidingCounterSteps},
	{"Carry", "if Limit or Window changes under a live key, the new limit judges the counts", slidingCounterCarry},
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
	s := time.Second
	a := algorithm.SlidingCounter{Limit: 6, Window: time.Minute}
	t.moves(
		step{at: 0, cost: 4, allowed: true, left: 2, reset: 120 * s}.under(a),
		// A quarter is left of 4 within 90 s of the next window, by steps of 115 µs.
		step{at: 1 * s, reset: 239 * s, retry: 209*s + 150*time.Microsecond}.under(algorithm.SlidingCounter{Limit: 2, Window: 2 * time.Minute}),
	)
}
