package conformance

import (
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

var tenPerMinute = algorithm.GCRA{Rate: algorithm.PerMinute(10), Burst: 5}

var gcraChecks = []check{
	{"Vectors", "GCRA answers the public vectors of redis-cell", gcraVectors},
	{"Thirds", "GCRA at three per second keeps thirds of a microsecond, and does not drift", gcraThirds},
	{"Fast", "GCRA is exact above a million per second", gcraFast},
	{"Carry", "if the rate changes under a live key, GCRA keeps the time until the bucket is full, rounded up", gcraCarry},
	{"Cancel", "GCRA refunds no tokens on which a later reservation depends", cancels(algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 2}, time.Second)},
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
	t.drifts(a)
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
	sevenths := algorithm.GCRA{Rate: algorithm.PerSecond(7), Burst: 7}
	a := algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 5}
	t.moves(
		step{at: 0, cost: 1, allowed: true, left: 4, reset: 333_334 * us}.under(a),        // and a third
		step{at: 0, allowed: true, left: 4, reset: 333_334 * us}.under(sevenths),          // and nothing
		step{at: 0, cost: 1, allowed: true, left: 3, reset: 476_192 * us}.under(sevenths), // 142,857 and a seventh more
		step{at: 0, allowed: true, left: 3, reset: 476_192 * us}.under(a),
		step{at: 0, cost: 1, allowed: true, left: 2, reset: 976_192 * us}.under(algorithm.GCRA{Rate: algorithm.PerSecond(2), Burst: 4}),
		step{at: 0, cost: 1, allowed: true, left: 1, reset: 1_309_526 * us}.under(a), // 1,309,525 and a third
	)
}
