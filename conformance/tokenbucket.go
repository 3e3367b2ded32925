package conformance

import (
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

var tokenBucketChecks = []check{
	{"Smooth", "the tokens of a TokenBucket come back one by one, evenly spread over the period", tokenBucketSmooth},
	{"AtOnce", "the tokens of a TokenBucket with AtOnce come back together at the end of a period, counted from when the bucket was last full", tokenBucketAtOnce},
	{"Thirds", "TokenBucket at three per second does not drift", tokenBucketThirds},
	{"Carry", "if the limit changes under a live key, the tokens missing in a TokenBucket stay missing", tokenBucketCarry},
	{"Cancel", "TokenBucket refunds no tokens on which a later reservation depends", cancels(algorithm.TokenBucket{Capacity: 2, Refill: algorithm.PerSecond(1)}, time.Second)},
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
	t.drifts(algorithm.TokenBucket{Capacity: 2, Refill: algorithm.PerSecond(3)}, algorithm.TokenBucket{Capacity: 3, Refill: algorithm.PerSecond(3), AtOnce: true})
}

func tokenBucketCarry(t *T) {
	ms := time.Millisecond
	a := algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(1)}
	t.moves(
		step{at: 0, cost: 8, allowed: true, left: 2, reset: 8000 * ms}.under(a),
		step{at: 2500 * ms, cost: 1, allowed: true, left: 3, reset: 6500 * ms}.under(a), // 7 are missing since 2 s
		step{at: 2900 * ms, allowed: true, left: 13, reset: 6100 * ms}.under(algorithm.TokenBucket{Capacity: 20, Refill: algorithm.PerSecond(1)}),
		step{at: 2900 * ms, left: 0, reset: 6100 * ms, retry: 2100 * ms}.under(algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(1)}),
		step{at: 2900 * ms, allowed: true, left: 3, reset: 7*time.Minute - 900*ms}.under(algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerMinute(1)}),
		// At 0.9 s of a period that is now half a second.
		step{at: 2900 * ms, allowed: true, left: 4, reset: 2600 * ms}.under(algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(2)}),
		step{at: 2900 * ms, allowed: true, left: 3, reset: 7100 * ms}.under(algorithm.TokenBucket{Capacity: 10, Refill: algorithm.Rate{Count: 4, Period: 4 * time.Second}, AtOnce: true}),
	)
}
