package conformance

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

// This file makes random algorithms, pauses and waits.

// pick returns one of list.
func pick[E any](r *rand.Rand, list ...E) E { return list[r.IntN(len(list))] }

// anyGCRA returns a random GCRA, sometimes with a fraction of a microsecond or a high rate.
func anyGCRA(r *rand.Rand) algorithm.Algorithm {
	return algorithm.GCRA{
		Rate: algorithm.Rate{
			Count:  pick(r, 1, 2, 3, 7, 10, 60, 997, 1000, 3_000_000, 1+r.Int64N(1000)),
			Period: pick(r, time.Microsecond, time.Millisecond, time.Second, time.Minute, time.Hour, 1500*time.Nanosecond, 1+time.Duration(r.Int64N(int64(time.Minute)))),
		},
		Burst: pick(r, 1, 2, 5, 100, 1+r.Int64N(20)),
	}
}

// anyFixedWindow returns a random FixedWindow.
func anyFixedWindow(r *rand.Rand) algorithm.Algorithm {
	return algorithm.FixedWindow{
		Limit:   pick(r, 1, 2, 5, 100, 1+r.Int64N(20)),
		Window:  pick(r, time.Microsecond, 7*time.Microsecond, time.Millisecond, time.Second, time.Minute, 24*time.Hour),
		Aligned: r.IntN(2) == 0,
	}
}

// anySlidingLog returns a random SlidingLog.
func anySlidingLog(r *rand.Rand) algorithm.Algorithm {
	return algorithm.SlidingLog{
		Limit:  pick(r, 1, 2, 5, 100, 1+r.Int64N(20)),
		Window: pick(r, time.Microsecond, 7*time.Microsecond, time.Millisecond, time.Second, time.Minute, 24*time.Hour),
	}
}

// anyMetadataWindow returns a random MetadataWindow.
func anyMetadataWindow(r *rand.Rand) algorithm.Algorithm {
	return algorithm.MetadataWindow(anyFixedWindow(r).(algorithm.FixedWindow))
}

// anySlidingBuckets returns a random SlidingBuckets, sometimes with spans of 1 or 128 buckets.
func anySlidingBuckets(r *rand.Rand) algorithm.Algorithm {
	a := algorithm.SlidingBuckets{Width: pick(r, time.Millisecond, 1500*time.Microsecond, 250*time.Millisecond, time.Second, time.Minute, time.Hour)}
	lengths := r.Perm(pick(r, 1, 3, 6))[:1]
	switch r.IntN(3) {
	case 0:
		lengths = append(lengths, 6+r.IntN(4))
	case 1:
		lengths = append(lengths, 11, 8+r.IntN(3))
	}
	if r.IntN(30) == 0 {
		lengths = append(lengths, algorithm.MaxBuckets-1)
	}
	limit := 1 + r.Int64N(8)
	for _, n := range lengths {
		window := time.Duration(n+1) * a.Width
		if !slices.ContainsFunc(a.Spans, func(s algorithm.Span) bool { return s.Window == window }) {
			a.Spans = append(a.Spans, algorithm.Span{Window: window, Limit: limit})
		}
		limit += r.Int64N(10)
	}
	return a
}

// anySlidingCounter returns a random SlidingCounter.
func anySlidingCounter(r *rand.Rand) algorithm.Algorithm {
	return algorithm.SlidingCounter{
		Limit:  pick(r, 1, 2, 5, 100, 1+r.Int64N(20)),
		Window: pick(r, time.Microsecond, 7*time.Microsecond, time.Millisecond, time.Second, 1_048_577*time.Microsecond, time.Minute, 24*time.Hour),
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

// anyLeakyBucket returns a random LeakyBucket.
func anyLeakyBucket(r *rand.Rand) algorithm.Algorithm {
	g := anyGCRA(r).(algorithm.GCRA)
	return algorithm.LeakyBucket{Rate: g.Rate, Queue: g.Burst - 1}
}

// anyConcurrency returns a random Concurrency.
func anyConcurrency(r *rand.Rand) algorithm.Algorithm {
	return algorithm.Concurrency{
		Limit: pick(r, 1, 2, 3, 5, 1+r.Int64N(7)),
		Lease: pick(r, time.Microsecond, 7*time.Microsecond, time.Millisecond, time.Second, time.Minute, 24*time.Hour),
	}
}

// anyPause returns a random pause: 0, a microsecond, about unit, or long. It is sometimes
// negative, so that the clock steps back.
func anyPause(r *rand.Rand, unit time.Duration) time.Duration {
	unit = max(unit, time.Microsecond)
	switch r.IntN(10) {
	case 0, 1:
		return 0
	case 2:
		return time.Microsecond
	case 3:
		return unit * time.Duration(r.IntN(30))
	case 4:
		return -time.Duration(r.Int64N(int64(2 * unit)))
	}
	return time.Duration(r.Int64N(int64(3 * unit)))
}

// anyWait returns a random MaxWait, in whole microseconds.
func anyWait(r *rand.Rand, unit time.Duration) time.Duration {
	unit = max(unit, time.Microsecond)
	return pick(r, 0, time.Microsecond, unit.Truncate(time.Microsecond), time.Duration(r.Int64N(int64(3*unit))).Truncate(time.Microsecond), time.Hour, weir.Never)
}

// largest returns the algorithm of maker for the largest valid n from 1 to most. The
// algorithm must be valid for 1, and for every n below the largest.
func largest(most int64, maker func(n int64) algorithm.Algorithm) algorithm.Algorithm {
	low, high := int64(1), most
	for low < high {
		middle := low + (high-low+1)/2
		if _, err := maker(middle).NewLimit(); err != nil {
			high = middle - 1
		} else {
			low = middle
		}
	}
	return maker(low)
}
