package conformance

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

var fivePerMinute = algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerMinute(10)}

var tokenBucketRules = []rule{
	{"Smooth", "the tokens of a TokenBucket come back one by one, evenly spread over the period", tokenBucketSmooth},
	{"AtOnce", "the tokens of a TokenBucket with AtOnce come back together at the end of a period, counted from when the bucket was last full", tokenBucketAtOnce},
	{"Thirds", "TokenBucket at three per second does not drift", tokenBucketThirds},
	{"Carry", "if the limit changes under a live key, the tokens missing in a TokenBucket stay missing", tokenBucketCarry},
	{"Wait", "TokenBucket allows a request whose tokens are there within MaxWait, and tells when", waits(fivePerMinute)},
	{"History", "TokenBucket answers as a plain count of tokens consumed and refilled does, and its keys hold what they hold on the reference store", asModel(anyTokenBucket)},
	{"Exact", "a request denied by TokenBucket is denied until 1µs before RetryAfter is over, and passes when it is over", exact(anyTokenBucket)},
	{"HotKey", "of many concurrent callers, TokenBucket allows exactly the limit", hotKey(algorithm.TokenBucket{Capacity: 50, Refill: algorithm.PerHour(1)}, 50)},
	{"Refill", "on the store's clock, a request denied by TokenBucket passes when RetryAfter is over, and not before", refill(func(d time.Duration) algorithm.Algorithm {
		return algorithm.TokenBucket{Capacity: 3, Refill: algorithm.Every(d)}
	})},
	{"Backwards", "a clock that steps back lengthens no wait for TokenBucket by more than the step, and allows nothing", tokenBucketBackwards},
	{"Never", "TokenBucket denies a cost above Capacity with Never, and it changes nothing", neverFits(fivePerMinute)},
	{"Huge", "TokenBucket is exact at its bounds, and TakeUpTo consumes what it has there", huge([]algorithm.Algorithm{
		algorithm.TokenBucket{Capacity: algorithm.MaxSpan, Refill: algorithm.PerSecond(1_000_000)},
		algorithm.TokenBucket{Capacity: algorithm.MaxTokens - 2_000, Refill: algorithm.Rate{Count: 1999, Period: time.Microsecond}},
		algorithm.TokenBucket{Capacity: 1 << 41, Refill: algorithm.Rate{Count: 1 << 40, Period: time.Hour}},
		algorithm.TokenBucket{Capacity: 1 << 41, Refill: algorithm.Rate{Count: 1<<40 + 1, Period: time.Hour}, AtOnce: true},
		algorithm.TokenBucket{Capacity: 100_000, Refill: algorithm.PerDay(104_249)},
	})},
	{"UpTo", "TakeUpTo consumes as many tokens as TokenBucket has, and keeps the fraction of a token", upTo(anyTokenBucket)},
	{"Refund", "a refund of TokenBucket undoes a request at once, and later makes the bucket no fuller than without the request", refunds(anyTokenBucket)},
	{"Reserve", "TokenBucket reserves tokens within MaxWait, and tells when to go", reserves(anyTokenBucket)},
	{"Cancel", "TokenBucket refunds no tokens on which a later reservation depends", cancels(algorithm.TokenBucket{Capacity: 2, Refill: algorithm.PerSecond(1)}, time.Second)},
	{"Refunds", "many refunds of TokenBucket together refund no more than if their requests had never been made", neverMade(anyTokenBucket)},
}

func tokenBucketSmooth(t *T) {
	s, us := time.Second, time.Microsecond
	t.trace(algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(3)}, []step{
		{0, 6, false, 5, 0, weir.Never},
		{0, 5, true, 0, 1_666_667 * us, 0},
		{333_333 * us, 1, false, 0, 1_333_334 * us, 1 * us},
		{333_334 * us, 1, true, 0, 1_666_666 * us, 0},
		{333_334 * us, 1, false, 0, 1_666_666 * us, 333_333 * us},
		{1 * s, 2, true, 0, 1_666_667 * us, 0},
		{1 * s, 2, false, 0, 1_666_667 * us, 666_667 * us},
		{2_666_666 * us, 0, true, 4, 1 * us, 0},
		{2_666_666 * us, 4, true, 0, 1_333_334 * us, 0},
		{2_666_667 * us, 1, true, 0, 1_666_667 * us, 0},
		{60 * s, 5, true, 0, 1_666_667 * us, 0},
		{60*s + 500_000*us, 1, true, 0, 1_500_000 * us, 0},
	})
}

func tokenBucketAtOnce(t *T) {
	s, us := time.Second, time.Microsecond
	t.trace(algorithm.TokenBucket{Capacity: 5, Refill: algorithm.Rate{Count: 3, Period: 10 * time.Second}, AtOnce: true}, []step{
		{1 * s, 1, true, 4, 10 * s, 0},
		{11*s - us, 5, false, 4, us, us},
		{11*s - us, 4, true, 0, 10*s + us, 0}, // 5 are missing, and 3 are back soon
		{11*s - us, 1, false, 0, 10*s + us, us},
		{11 * s, 3, true, 0, 20 * s, 0},
		{11 * s, 4, false, 0, 20 * s, 20 * s},
		{31*s - us, 4, false, 3, us, us},
		{31 * s, 4, true, 1, 20 * s, 0},
		{60 * s, 5, true, 0, 20 * s, 0}, // full at 51 s: periods are counted from here
		{69 * s, 1, false, 0, 11 * s, 1 * s},
		{70 * s, 1, true, 2, 10 * s, 0},
		{80 * s, 0, true, 5, 0, 0},
	})
}

func tokenBucketThirds(t *T) {
	for _, a := range []algorithm.TokenBucket{
		{Capacity: 2, Refill: algorithm.PerSecond(3)},
		{Capacity: 3, Refill: algorithm.PerSecond(3), AtOnce: true},
	} {
		// A caller who comes back exactly when told gets three tokens every second.
		c := newClock()
		l := t.limiter(c, one(a))
		start := c.us
		key := strconv.FormatInt(a.Capacity, 10)
		t.allow(l, a.Capacity, key)
		for range 150 {
			c.advance(t.peek(l, 1, key).RetryAfter)
			if res := t.allow(l, 1, key); !res.Allowed {
				t.fatalf("%+v: after %d µs: got %+v, want it allowed", a, c.us-start, res)
			}
		}
		if got, want := c.us-start, int64(50_000_000); got != want {
			t.errorf("%+v: 150 tokens at 3 per second took %d µs, want %d", a, got, want)
		}
	}
}

func tokenBucketCarry(t *T) {
	c := newClock()
	ms := time.Millisecond
	old := t.limiter(c, one(algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(1)}))
	t.allow(old, 8, "k")
	c.advance(2500 * ms)
	t.allow(old, 1, "k") // 7 are missing since 2 s
	c.advance(400 * ms)
	for _, tt := range []struct {
		to   algorithm.TokenBucket
		want weir.Result
	}{
		{algorithm.TokenBucket{Capacity: 20, Refill: algorithm.PerSecond(1)}, weir.Result{Allowed: true, Limit: 20, Remaining: 13, ResetAfter: 6100 * ms}},
		{algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(1)}, weir.Result{Limit: 5, RetryAfter: 2100 * ms, ResetAfter: 6100 * ms}},
		{algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerMinute(1)}, weir.Result{Allowed: true, Limit: 10, Remaining: 3, ResetAfter: 7*time.Minute - 900*ms}},
		{algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(2)}, weir.Result{Allowed: true, Limit: 10, Remaining: 4, ResetAfter: 2600 * ms}}, // at 0.9 s of a period that is now half a second
		{algorithm.TokenBucket{Capacity: 10, Refill: algorithm.Rate{Count: 4, Period: 4 * time.Second}, AtOnce: true}, weir.Result{Allowed: true, Limit: 10, Remaining: 3, ResetAfter: 7100 * ms}},
	} {
		tt.want.Rule, tt.want.Window = "one", windowOf(tt.to.Capacity, tt.to.Refill)
		if !tt.want.Allowed {
			tt.want.Delay = weir.Never
		}
		if got := t.peek(t.limiter(c, one(tt.to)), 1, "k"); got != tt.want {
			t.errorf("7 of 10 missing for 0.9 s, at 1 per second, then %+v:\ngot  %+v\nwant %+v", tt.to, got, tt.want)
		}
	}
}

func tokenBucketBackwards(t *T) {
	backwards(fivePerMinute)(t)
	atOnce := fivePerMinute
	atOnce.AtOnce = true
	backwards(atOnce)(t)
}

// waits checks that a request that may wait is allowed if its tokens are there by then,
// and told when to go. a has 5 tokens, and one comes back every 6 seconds.
func waits(a algorithm.Algorithm) func(*T) {
	return func(t *T) {
		s, us := time.Second, time.Microsecond
		c := newClock()
		l := t.limiter(c, one(a))
		t.allow(l, 5, "k")
		for i, step := range []struct {
			advance, wait time.Duration
			cost          int64
			delay, retry  time.Duration
		}{
			{0, 6*s - us, 1, 0, us},
			{0, 6 * s, 1, 6 * s, 0},
			{0, time.Hour, 2, 18 * s, 0},
			{0, time.Hour, 6, 0, weir.Never},
			{0, 0, 1, 0, 24 * s},
			{1 * s, 20 * s, 1, 0, 3 * s},
			{3 * s, 20 * s, 1, 20 * s, 0},
			{20 * s, 6*s - us, 1, 0, us},
			{6 * s, us, 1, 0, 0},
			{0, us, 1, 0, 6*s - us},
		} {
			c.advance(step.advance)
			got := t.do(l, weir.Request{Key: weir.KeyOf("k"), Cost: step.cost, MaxWait: step.wait})
			if step.retry > 0 {
				step.delay = weir.Never
			}
			if got.Allowed != (step.retry == 0) || got.Delay != step.delay || got.RetryAfter != step.retry {
				t.errorf("%+v, step %d, cost %d, waiting up to %v: got %+v, want a Delay of %v and a RetryAfter of %v", a, i, step.cost, step.wait, got, step.delay, step.retry)
			}
		}
	}
}

// anyTokenBucket returns a random TokenBucket.
func anyTokenBucket(r *rand.Rand) algorithm.Algorithm {
	return algorithm.TokenBucket{
		Capacity: pick(r, 1, 2, 5, 100, 1+r.Int64N(20)),
		Refill: algorithm.Rate{
			Count:  pick(r, 1, 2, 3, 7, 10, 60, 997, 3_000_000, 1+r.Int64N(1000)),
			Period: pick(r, time.Microsecond, 7*time.Microsecond, time.Millisecond, time.Second, time.Minute, time.Hour),
		},
		AtOnce: r.IntN(3) == 0,
	}
}
