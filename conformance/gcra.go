package conformance

import (
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

var tenPerMinute = algorithm.GCRA{Rate: algorithm.PerMinute(10), Burst: 5}

var gcraRules = []rule{
	{"Vectors", "GCRA answers the public redis-cell vectors", gcraVectors},
	{"Thirds", "GCRA at three per second keeps the third of a microsecond, and does not drift", gcraThirds},
	{"Fast", "GCRA works above a million per second", gcraFast},
	{"Carry", "when the rate changes under a live key, GCRA carries the time until full over, rounded up", gcraCarry},
	{"History", "GCRA answers as a bucket that fills continuously, and leaves what the reference store holds", history(anyGCRA)},
	{"Exact", "GCRA denies 1µs before RetryAfter is over and admits when it is", exact(anyGCRA)},
	{"HotKey", "of many concurrent callers GCRA admits exactly the limit", hotKey(algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 50}, 50)},
	{"Refill", "on the store's clock GCRA lets a denied caller pass after RetryAfter, not before", refill(algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 3})},
	{"Backwards", "a clock that steps back extends no GCRA wait by more than the step, and admits nothing", backwards(tenPerMinute)},
	{"Never", "a cost above Burst is denied by GCRA for ever and changes nothing", neverFits(tenPerMinute)},
	{"Huge", "GCRA is exact at its bounds", huge([]algorithm.Algorithm{
		algorithm.GCRA{Rate: algorithm.PerSecond(1_000_000), Burst: algorithm.MaxSpan},
		algorithm.GCRA{Rate: algorithm.Rate{Count: 1 << 40, Period: time.Hour}, Burst: 1 << 41},
		algorithm.GCRA{Rate: algorithm.PerDay(7), Burst: 1000},
	})},
	{"UpTo", "GCRA takes as many tokens as there is room for, and keeps what is less than one", upTo(anyGCRA)},
	{"Refund", "a refund makes GCRA as if the tokens had not been taken, once, and inflates nothing later", refunds(anyGCRA)},
	{"Reserve", "GCRA takes tokens ahead of time within MaxWait, and tells when to go", reserves(anyGCRA)},
	{"Cancel", "of tokens that others wait behind GCRA gives back those that nobody has reserved after", cancels(algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 2}, time.Second)},
	{"Refunds", "many refunds of GCRA give together no more than if their requests had never been made", neverMade(anyGCRA)},
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

	// Whoever comes back exactly when told takes three tokens every second.
	c := newClock()
	l := t.limiter(c, one(a))
	start := c.us
	t.allow(l, 2, "day")
	for range 300 {
		c.advance(t.peek(l, 1, "day").RetryAfter)
		if res := t.allow(l, 1, "day"); !res.Allowed {
			t.fatalf("after %v: got %+v, want it to pass", time.Duration(c.us-start)*us, res)
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
		t.errorf("carried over to 7 per second: ResetAfter is %v, want %v", got, want)
	}
	if got, want := t.allow(sevenths, 1, "k").ResetAfter, 476_192*us; got != want { // 142,857 and a seventh more
		t.errorf("and one token taken: ResetAfter is %v, want %v", got, want)
	}
	if got, want := t.peek(thirds, 1, "k").ResetAfter, 476_192*us; got != want {
		t.errorf("carried back to 3 per second: ResetAfter is %v, want %v", got, want)
	}
	whole := t.limiter(c, one(algorithm.GCRA{Rate: algorithm.PerSecond(2), Burst: 4}))
	if got, want := t.allow(whole, 1, "k").ResetAfter, 976_192*us; got != want {
		t.errorf("and one token taken at 2 per second: ResetAfter is %v, want %v", got, want)
	}
	if got, want := t.allow(thirds, 1, "k").ResetAfter, 1_309_526*us; got != want { // 1,309,525 and a third
		t.errorf("and one at 3 per second: ResetAfter is %v, want %v", got, want)
	}
}
