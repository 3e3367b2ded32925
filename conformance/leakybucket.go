package conformance

import (
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

var leakyBucketChecks = []check{
	{"Turns", "LeakyBucket tells each request that may wait when to go, one interval after the one before; without MaxWait it allows a request only if it goes at once", leakyBucketTurns},
	{"Thirds", "the turns of a LeakyBucket at three per second do not drift", leakyBucketThirds},
	{"Carry", "if the rate changes under a live key, LeakyBucket keeps the time until the queue is empty", leakyBucketCarry},
	{"Cancel", "LeakyBucket refunds no turn behind which others are queued", cancels(algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: 9}, time.Second)},
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

func leakyBucketCarry(t *T) {
	a := algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: 5}
	t.moves(
		step{at: 0, cost: 3, allowed: true, left: 0, reset: 3 * time.Second}.under(a),
		step{at: 0, cost: 1, allowed: true, left: 0, reset: 3500 * time.Millisecond}.
			under(algorithm.LeakyBucket{Rate: algorithm.PerSecond(2), Queue: 7}).within(time.Hour, 3*time.Second),
	)
}
