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
	{"Turns", "LeakyBucket tells each request when to go, one interval after the one before", leakyBucketTurns},
	{"Thirds", "the turns of a LeakyBucket at three per second do not drift", leakyBucketThirds},
	{"Wait", "MaxWait denies what would have to wait longer in a LeakyBucket, and lengthens no queue", leakyBucketWait},
	{"Carry", "when the rate changes under a live key, LeakyBucket carries the time until the queue is empty over", leakyBucketCarry},
	{"Shared", "LeakyBucket keeps what GCRA keeps, and each takes up the other's key", leakyBucketShared},
	{"History", "LeakyBucket answers as a queue that empties continuously, and leaves what the reference store holds", history(anyLeakyBucket)},
	{"Exact", "LeakyBucket denies 1µs before RetryAfter is over and admits when it is", exact(anyLeakyBucket)},
	{"HotKey", "of many concurrent callers LeakyBucket admits exactly what its queue holds", hotKey(algorithm.LeakyBucket{Rate: algorithm.PerHour(1), Queue: 49}, 50)},
	{"Refill", "on the store's clock LeakyBucket lets a denied caller pass after RetryAfter, not before", refill(algorithm.LeakyBucket{Rate: algorithm.PerSecond(3), Queue: 2})},
	{"Backwards", "a clock that steps back extends no LeakyBucket wait by more than the step, and admits nothing", backwards(fourWait)},
	{"Never", "a cost above what the queue holds is denied by LeakyBucket for ever and changes nothing", neverFits(fourWait)},
	{"Huge", "LeakyBucket is exact at its bounds", huge([]algorithm.Algorithm{
		algorithm.LeakyBucket{Rate: algorithm.PerSecond(1_000_000), Queue: algorithm.MaxSpan - 1},
		algorithm.LeakyBucket{Rate: algorithm.Rate{Count: 1 << 40, Period: time.Hour}, Queue: 1 << 41},
		algorithm.LeakyBucket{Rate: algorithm.PerDay(7), Queue: 1000},
	})},
	{"UpTo", "LeakyBucket takes as many turns as there is room for in its queue", upTo(anyLeakyBucket)},
	{"Refund", "a refund makes LeakyBucket as if the turns had not been taken, once, and inflates nothing later", refunds(anyLeakyBucket)},
	{"Cancel", "of turns that others wait behind LeakyBucket gives back those that nobody is queued after", cancels(algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: 9}, time.Second)},
	{"Refunds", "many refunds of LeakyBucket give together no more than if their requests had never been made", neverMade(anyLeakyBucket)},
}

// turns asks for one turn after the other at the times in at, and checks the delays; a
// negative one is that of a denial, for so long.
func (t *T) turns(a algorithm.Algorithm, at, delays []time.Duration) {
	c := newClock()
	start := c.us
	l, path := t.limiter(c, one(a)), fmt.Sprintf("%+v", a)
	for i := range at {
		c.us = start + at[i].Microseconds()
		got := t.allow(l, 1, path)
		want, retry := delays[i], time.Duration(0)
		if want < 0 {
			want, retry = 0, -want
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
	t.turns(algorithm.LeakyBucket{Rate: algorithm.Every(2 * time.Second)}, // nobody may wait
		[]time.Duration{0, 0, 2*s - us, 2 * s, 3 * s},
		[]time.Duration{0, -2 * s, -us, 0, -1 * s})
}

func leakyBucketThirds(t *T) {
	c := newClock()
	start := c.us
	l := t.limiter(c, one(algorithm.LeakyBucket{Rate: algorithm.PerSecond(3), Queue: 5}))
	for i := int64(0); i < 150; {
		res := t.allow(l, 1, "k")
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
		{0, 0, 1, 24 * s, 0},
		{0, time.Hour, 1, 0, 6 * s}, // the queue is full
		{0, 10 * s, 1, 0, 20 * s},
		{20 * s, 10*s - us, 1, 0, us},
		{0, 10 * s, 1, 10 * s, 0},
		{0, time.Hour, 6, 0, weir.Never},
	} {
		c.advance(step.advance)
		got := t.do(l, weir.Request{Path: []string{"k"}, Cost: step.cost, MaxWait: step.wait})
		if got.Allowed != (step.retry == 0) || got.Delay != step.delay || got.RetryAfter != step.retry {
			t.errorf("step %d, cost %d, waiting up to %v: got %+v, want a Delay of %v and a RetryAfter of %v", i, step.cost, step.wait, got, step.delay, step.retry)
		}
	}
}

func leakyBucketCarry(t *T) {
	c := newClock()
	slow := t.limiter(c, one(algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: 5}))
	fast := t.limiter(c, one(algorithm.LeakyBucket{Rate: algorithm.PerSecond(2), Queue: 7}))
	t.allow(slow, 3, "k") // empty in 3 s
	got := t.allow(fast, 1, "k")
	want := weir.Result{Allowed: true, Granted: 1, Limit: 8, Remaining: 1, ResetAfter: 3500 * time.Millisecond, Delay: 3 * time.Second, Rule: "one"}
	if got != want {
		t.errorf("empty in 3 s, then 1 more at 2 per second:\ngot  %+v\nwant %+v", got, want)
	}
}

func leakyBucketShared(t *T) {
	for i, rate := range []algorithm.Rate{algorithm.PerMinute(10), algorithm.PerSecond(3)} {
		c := newClock()
		path := string(rune('a' + i))
		queue := t.limiter(c, one(algorithm.LeakyBucket{Rate: rate, Queue: 4}))
		cells := t.limiter(c, one(algorithm.GCRA{Rate: rate, Burst: 5}))
		t.allow(queue, 2, path)
		if got := t.allow(cells, 1, path); !got.Allowed || got.Remaining != 2 || got.Delay != 0 {
			t.errorf("2 of 5 queued, then 1 of a GCRA: got %+v, want 2 left", got)
		}
		if got := t.allow(queue, 2, path); !got.Allowed || got.Remaining != 0 || got.Delay <= 0 {
			t.errorf("3 of 5 taken, then 2 queued: got %+v, want none left and a Delay", got)
		}
		if got := t.allow(cells, 1, path); got.Allowed || got.RetryAfter <= 0 {
			t.errorf("5 of 5 taken, then 1 of a GCRA: got %+v, want a denial", got)
		}
	}
}

// anyLeakyBucket returns a random LeakyBucket.
func anyLeakyBucket(r *rand.Rand) algorithm.Algorithm {
	g := anyGCRA(r).(algorithm.GCRA)
	return algorithm.LeakyBucket{Rate: g.Rate, Queue: g.Burst - 1}
}
