package conformance

import (
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

var tenPerMinute = algorithm.GCRA{Rate: algorithm.PerMinute(10), Burst: 5}

var gcraRules = []rule{
	{"Vectors", "GCRA answers the public vectors of redis-cell", gcraVectors},
	{"Thirds", "GCRA at three per second keeps thirds of a microsecond, and does not drift", gcraThirds},
	{"Fast", "GCRA is exact above a million per second", gcraFast},
	{"Carry", "if the rate changes under a live key, GCRA keeps the time until the bucket is full, rounded up", gcraCarry},
	{"History", "GCRA answers as a bucket that fills continuously, and its keys hold what they hold on the reference store", asModel(anyGCRA)},
	{"Exact", "a request denied by GCRA is denied until 1µs before RetryAfter is over, and passes when it is over", exact(anyGCRA)},
	{"HotKey", "of many concurrent callers, GCRA allows exactly the limit", hotKey(algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 50}, 50)},
	{"Refill", "on the store's clock, a request denied by GCRA passes when RetryAfter is over, and not before", refill(func(d time.Duration) algorithm.Algorithm {
		return algorithm.GCRA{Rate: algorithm.Every(d), Burst: 3}
	})},
	{"Backwards", "a clock that steps back lengthens no wait for GCRA by more than the step, and allows nothing", backwards(tenPerMinute)},
	{"Never", "GCRA denies a cost above Burst with Never, and it changes nothing", neverFits(tenPerMinute)},
	{"Huge", "GCRA is exact at its bounds, and TakeUpTo consumes what it has there", huge([]algorithm.Algorithm{
		algorithm.GCRA{Rate: algorithm.PerSecond(1_000_000), Burst: algorithm.MaxSpan},
		algorithm.GCRA{Rate: algorithm.PerDay(7), Burst: 1000},
		largest(algorithm.MaxTokens, func(n int64) algorithm.Algorithm {
			return algorithm.GCRA{Rate: algorithm.Rate{Count: 1 << 40, Period: time.Hour}, Burst: n}
		}),
		largest(algorithm.MaxTokens, func(n int64) algorithm.Algorithm {
			return algorithm.GCRA{Rate: algorithm.PerSecond(3_000_001), Burst: n}
		}),
	})},
	{"UpTo", "TakeUpTo consumes as many tokens as GCRA has, and keeps the fraction of a token", upTo(anyGCRA)},
	{"Refund", "a refund of GCRA undoes a request at once, and later makes the bucket no fuller than without the request", refunds(anyGCRA)},
	{"Reserve", "GCRA reserves tokens within MaxWait, and tells when to go", reserves(anyGCRA)},
	{"Cancel", "GCRA refunds no tokens on which a later reservation depends", cancels(algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 2}, time.Second)},
	{"Refunds", "many refunds of GCRA together refund no more than if their requests had never been made", neverMade(anyGCRA)},
}

func gcraVectors(t *T) {
	const never = weir.Never
	s, ms := time.Second, time.Millisecond
	t.trace(algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 5}, []step{
		{0, 6, false, 5, 0, never},
		{0, 1, true, 4, 1 * s, 0},
		{0, 1, true, 3, 2 * s, 0},
		{0, 1, true, 2, 3 * s, 0},
		{0, 1, true, 1, 4 * s, 0},
		{0, 1, true, 0, 5 * s, 0},
		{0, 1, false, 0, 5 * s, 1 * s},
		{3000 * ms, 1, true, 2, 3 * s, 0},
		{3100 * ms, 1, true, 1, 3900 * ms, 0},
		{4000 * ms, 1, true, 1, 4 * s, 0},
		{8000 * ms, 1, true, 4, 1 * s, 0},
		{9500 * ms, 1, true, 4, 1 * s, 0},
		{9500 * ms, 0, true, 4, 1 * s, 0},
		{9500 * ms, 2, true, 2, 3 * s, 0},
		{9500 * ms, 5, false, 2, 3 * s, 3 * s},
		{15000 * ms, 6, false, 5, 0, never},
	})
}

func gcraThirds(t *T) {
	us := time.Microsecond
	a := algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 2}
	t.trace(a, []step{
		{0, 2, true, 0, 666_667 * us, 0},
		{333_333 * us, 1, false, 0, 333_334 * us, 1 * us},
		{333_334 * us, 1, true, 0, 666_666 * us, 0},
		{666_666 * us, 1, false, 0, 333_334 * us, 1 * us},
		{666_667 * us, 1, true, 0, 666_667 * us, 0},
		{1_000_000 * us, 1, true, 0, 666_667 * us, 0},
	})

	// A caller who comes back exactly when told gets three tokens every second.
	c := newClock()
	l := t.limiter(c, one(a))
	start := c.us
	t.allow(l, 2, "day")
	for range 300 {
		c.advance(t.peek(l, 1, "day").RetryAfter)
		if res := t.allow(l, 1, "day"); !res.Allowed {
			t.fatalf("after %v: got %+v, want it allowed", time.Duration(c.us-start)*us, res)
		}
	}
	if got, want := c.us-start, int64(100_000_000); got != want {
		t.errorf("300 tokens at 3 per second took %d µs, want %d", got, want)
	}
}

func gcraFast(t *T) {
	us := time.Microsecond
	t.trace(algorithm.GCRA{Rate: algorithm.PerSecond(4_000_000), Burst: 10}, []step{
		{0, 10, true, 0, 3 * us, 0}, // 2.5 µs to fill
		{0, 1, false, 0, 3 * us, 1 * us},
		{1 * us, 4, true, 0, 3 * us, 0},
		{1 * us, 1, false, 0, 3 * us, 1 * us},
		{3 * us, 8, true, 0, 3 * us, 0},
		{10 * us, 10, true, 0, 3 * us, 0},
		{13 * us, 11, false, 10, 0, weir.Never},
		{20 * us, 1, true, 9, 1 * us, 0}, // a quarter
		{20 * us, 1, true, 8, 1 * us, 0},
		{20 * us, 1, true, 7, 1 * us, 0},
		{20 * us, 1, true, 6, 1 * us, 0},
		{20 * us, 1, true, 5, 2 * us, 0},
	})
}

func gcraCarry(t *T) {
	us := time.Microsecond
	c := newClock()
	thirds := t.limiter(c, one(algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 5}))
	sevenths := t.limiter(c, one(algorithm.GCRA{Rate: algorithm.PerSecond(7), Burst: 7}))
	if got, want := t.allow(thirds, 1, "k").ResetAfter, 333_334*us; got != want { // and a third
		t.errorf("at 3 per second, one token: ResetAfter is %v, want %v", got, want)
	}
	if got, want := t.peek(sevenths, 1, "k").ResetAfter, 333_334*us; got != want { // and nothing
		t.errorf("then at 7 per second: ResetAfter is %v, want %v", got, want)
	}
	if got, want := t.allow(sevenths, 1, "k").ResetAfter, 476_192*us; got != want { // 142,857 and a seventh more
		t.errorf("and one token consumed: ResetAfter is %v, want %v", got, want)
	}
	if got, want := t.peek(thirds, 1, "k").ResetAfter, 476_192*us; got != want {
		t.errorf("then at 3 per second again: ResetAfter is %v, want %v", got, want)
	}
	whole := t.limiter(c, one(algorithm.GCRA{Rate: algorithm.PerSecond(2), Burst: 4}))
	if got, want := t.allow(whole, 1, "k").ResetAfter, 976_192*us; got != want {
		t.errorf("and one token consumed at 2 per second: ResetAfter is %v, want %v", got, want)
	}
	if got, want := t.allow(thirds, 1, "k").ResetAfter, 1_309_526*us; got != want { // 1,309,525 and a third
		t.errorf("and one at 3 per second: ResetAfter is %v, want %v", got, want)
	}
}
