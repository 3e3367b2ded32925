package conformance

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

var fourWait = algorithm.LeakyBucket{Rate: algorithm.PerMinute(10), Queue: 4}

var leakyBucketRules = []rule{
	{"Turns", "LeakyBucket tells each request that may wait when to go, one interval after the one before; without MaxWait it allows a request only if it goes at once", leakyBucketTurns},
	{"Thirds", "the turns of a LeakyBucket at three per second do not drift", leakyBucketThirds},
	{"Wait", "LeakyBucket denies a request whose turn is later than MaxWait, and a denial lengthens no queue", leakyBucketWait},
	{"Carry", "if the rate changes under a live key, LeakyBucket keeps the time until the queue is empty", leakyBucketCarry},
	{"History", "LeakyBucket answers as a queue that empties continuously, and its keys hold what they hold on the reference store", asModel(anyLeakyBucket)},
	{"Exact", "a request denied by LeakyBucket is denied until 1µs before RetryAfter is over, and passes when it is over", exact(anyLeakyBucket)},
	{"HotKey", "of many concurrent callers that may wait, LeakyBucket allows exactly what its queue holds", hotKey(algorithm.LeakyBucket{Rate: algorithm.PerHour(1), Queue: 49}, 50)},
	{"Refill", "on the store's clock, a request denied by LeakyBucket passes when RetryAfter is over, and not before", refill(func(d time.Duration) algorithm.Algorithm {
		return algorithm.LeakyBucket{Rate: algorithm.Every(d / 3), Queue: 2}
	})},
	{"Backwards", "a clock that steps back lengthens no wait for LeakyBucket by more than the step, and allows nothing", backwards(fourWait)},
	{"Never", "LeakyBucket denies a cost above Queue+1 with Never, and it changes nothing", neverFits(fourWait)},
	{"Huge", "LeakyBucket is exact at its bounds, and TakeUpTo consumes what it has there", huge([]algorithm.Algorithm{
		algorithm.LeakyBucket{Rate: algorithm.PerSecond(1_000_000), Queue: algorithm.MaxSpan - 1},
		algorithm.LeakyBucket{Rate: algorithm.PerDay(7), Queue: 1000},
		largest(algorithm.MaxTokens-1, func(n int64) algorithm.Algorithm {
			return algorithm.LeakyBucket{Rate: algorithm.Rate{Count: 1 << 40, Period: time.Hour}, Queue: n}
		}),
	})},
	{"UpTo", "TakeUpTo consumes as many turns as the queue of a LeakyBucket has, if nobody waits", upTo(anyLeakyBucket)},
	{"Refund", "a refund of LeakyBucket undoes a request at once, and later makes the queue no shorter than without the request", refunds(anyLeakyBucket)},
	{"Reserve", "LeakyBucket reserves turns within MaxWait, and tells when to go", reserves(anyLeakyBucket)},
	{"Cancel", "LeakyBucket refunds no turn behind which others are queued", cancels(algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: 9}, time.Second)},
	{"Refunds", "many refunds of LeakyBucket together refund no more than if their requests had never been made", neverMade(anyLeakyBucket)},
}

// turns makes one request after the other at the times in at, each of which may wait, and
// checks the delays. A negative delay is a denial with that RetryAfter.
func (t *T) turns(a algorithm.Algorithm, at, delays []time.Duration) {
	c := newClock()
	start := c.us
	l, key := t.limiter(c, one(a)), weir.KeyOf(fmt.Sprintf("turns %+v", a))
	for i := range at {
		c.us = start + at[i].Microseconds()
		got := t.do(l, weir.Request{Key: key, MaxWait: weir.Never})
		want, retry := delays[i], time.Duration(0)
		if want < 0 {
			want, retry = weir.Never, -want
		}
		if got.Allowed != (retry == 0) || got.Delay != want || got.RetryAfter != retry {
			t.errorf("%+v, request %d at %v: got %+v, want a Delay of %v and a RetryAfter of %v", a, i, at[i], got, want, retry)
		}
	}
}

func leakyBucketTurns(t *T) {
	s, us := time.Second, time.Microsecond
	t.turns(algorithm.LeakyBucket{Rate: algorithm.Every(2 * time.Second), Queue: 3},
		[]time.Duration{0, 0, 0, 1 * s, 1 * s, 2*s - us, 2 * s, 7 * s, 30 * s, 31 * s, 40 * s},
		[]time.Duration{0, 2 * s, 4 * s, 5 * s, -1 * s, -us, 6 * s, 3 * s, 0, 1 * s, 0})
	t.turns(algorithm.LeakyBucket{Rate: algorithm.Every(2 * time.Second)}, // nobody can wait
		[]time.Duration{0, 0, 2*s - us, 2 * s, 3 * s},
		[]time.Duration{0, -2 * s, -us, 0, -1 * s})
	t.trace(algorithm.LeakyBucket{Rate: algorithm.Every(2 * time.Second), Queue: 3}, []step{
		{0, 1, true, 0, 2 * s, 0},
		{0, 1, false, 0, 2 * s, 2 * s},
		{1 * s, 1, false, 0, 1 * s, 1 * s},
		{2*s - us, 1, false, 0, us, us},
		{2 * s, 2, true, 0, 4 * s, 0},
		{3 * s, 1, false, 0, 3 * s, 3 * s},
		{6 * s, 4, true, 0, 8 * s, 0},
		{6 * s, 5, false, 0, 8 * s, weir.Never},
		{14 * s, 5, false, 4, 0, weir.Never},
		{14 * s, 0, true, 4, 0, 0},
	})
}

func leakyBucketThirds(t *T) {
	c := newClock()
	start := c.us
	l := t.limiter(c, one(algorithm.LeakyBucket{Rate: algorithm.PerSecond(3), Queue: 5}))
	for i := int64(0); i < 150; {
		res := t.do(l, weir.Request{Key: weir.KeyOf("k"), MaxWait: weir.Never})
		if !res.Allowed {
			c.advance(res.RetryAfter)
			continue
		}
		if got, want := c.us-start+res.Delay.Microseconds(), (i*1_000_000+2)/3; got != want {
			t.fatalf("at 3 per second request %d has its turn at %d µs, want %d", i, got, want)
		}
		i++
	}
}

func leakyBucketWait(t *T) {
	s, us := time.Second, time.Microsecond
	c := newClock()
	l := t.limiter(c, one(fourWait))
	for i, step := range []struct {
		advance, wait time.Duration
		cost          int64
		delay, retry  time.Duration
	}{
		{0, us, 1, 0, 0},
		{0, 6*s - us, 1, 0, us},
		{0, 6 * s, 1, 6 * s, 0},
		{0, time.Hour, 2, 12 * s, 0},
		{0, 0, 1, 0, 24 * s}, // it would have to wait
		{0, 24*s - us, 1, 0, us},
		{0, 24 * s, 1, 24 * s, 0},
		{0, time.Hour, 1, 0, 6 * s}, // the queue is full
		{0, 10 * s, 1, 0, 20 * s},
		{20 * s, 10*s - us, 1, 0, us},
		{0, 10 * s, 1, 10 * s, 0},
		{0, time.Hour, 6, 0, weir.Never},
	} {
		c.advance(step.advance)
		got := t.do(l, weir.Request{Key: weir.KeyOf("k"), Cost: step.cost, MaxWait: step.wait})
		if step.retry > 0 {
			step.delay = weir.Never
		}
		if got.Allowed != (step.retry == 0) || got.Delay != step.delay || got.RetryAfter != step.retry {
			t.errorf("step %d, cost %d, waiting up to %v: got %+v, want a Delay of %v and a RetryAfter of %v", i, step.cost, step.wait, got, step.delay, step.retry)
		}
	}
}

func leakyBucketCarry(t *T) {
	c := newClock()
	slow := t.limiter(c, one(algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: 5}))
	fast := t.limiter(c, one(algorithm.LeakyBucket{Rate: algorithm.PerSecond(2), Queue: 7}))
	t.allow(slow, 3, "k") // the queue is empty in 3 s
	got := t.do(fast, weir.Request{Key: weir.KeyOf("k"), MaxWait: time.Hour})
	want := weir.Result{Allowed: true, Granted: 1, Limit: 8, Window: 4 * time.Second, ResetAfter: 3500 * time.Millisecond, Delay: 3 * time.Second, Rule: "one"}
	if got != want {
		t.errorf("empty in 3 s, then 1 more at 2 per second:\ngot  %+v\nwant %+v", got, want)
	}
}

// anyLeakyBucket returns a random LeakyBucket.
func anyLeakyBucket(r *rand.Rand) algorithm.Algorithm {
	g := anyGCRA(r).(algorithm.GCRA)
	return algorithm.LeakyBucket{Rate: g.Rate, Queue: g.Burst - 1}
}
