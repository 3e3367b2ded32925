// Package random makes random algorithms, pauses and waits.
package random

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
	_ "time/tzdata" // wherever the checks run

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

// Unit returns a time in which the state of a built-in algorithm changes.
func Unit(a algorithm.Algorithm) time.Duration {
	switch a := a.(type) {
	case algorithm.GCRA:
		return a.Rate.Period / time.Duration(a.Rate.Count)
	case algorithm.FixedWindow:
		return a.Window / 4
	case algorithm.MetadataWindow:
		return a.Window / 4
	case algorithm.Calendar:
		return map[algorithm.Period]time.Duration{algorithm.Day: 1, algorithm.Week: 7, algorithm.Month: 30, algorithm.Quarter: 91, algorithm.Year: 365}[a.Every] * 6 * time.Hour
	case algorithm.SlidingLog:
		return a.Window / time.Duration(min(a.Limit, 4))
	case algorithm.SlidingCounter:
		return a.Window / time.Duration(min(a.Limit, 4))
	case algorithm.Concurrency:
		return a.Lease / time.Duration(min(a.Limit, 4))
	case algorithm.SlidingBuckets:
		return a.Width
	case algorithm.TokenBucket:
		return a.Refill.Period / time.Duration(a.Refill.Count)
	case algorithm.LeakyBucket:
		return a.Rate.Period / time.Duration(a.Rate.Count)
	}
	panic(fmt.Sprintf("conformance: no unit of %T", a))
}

// Refundable makes a random algorithm whose decisions can be refunded.
func Refundable(r *rand.Rand) algorithm.Algorithm {
	return Pick(r, GCRA, FixedWindow, Calendar, SlidingBuckets, SlidingCounter, SlidingLog, TokenBucket, LeakyBucket)(r)
}

// Pick returns one of list.
func Pick[E any](r *rand.Rand, list ...E) E { return list[r.IntN(len(list))] }

// limit returns a random number of tokens, mostly small.
func limit(r *rand.Rand) int64 { return Pick(r, 1, 2, 5, 100, 1+r.Int64N(20)) }

// window returns a random time from a microsecond to a day.
func window(r *rand.Rand) time.Duration {
	return Pick(r, time.Microsecond, 7*time.Microsecond, time.Millisecond, time.Second, time.Minute, 24*time.Hour)
}

// GCRA returns a random GCRA, sometimes with a fraction of a microsecond or a high rate.
func GCRA(r *rand.Rand) algorithm.Algorithm {
	return algorithm.GCRA{
		Rate: algorithm.Rate{
			Count:  Pick(r, 1, 2, 3, 7, 10, 60, 997, 1000, 3_000_000, 1+r.Int64N(1000)),
			Period: Pick(r, time.Microsecond, time.Millisecond, time.Second, time.Minute, time.Hour, 1500*time.Nanosecond, 1+time.Duration(r.Int64N(int64(time.Minute)))),
		},
		Burst: limit(r),
	}
}

// FixedWindow returns a random FixedWindow.
func FixedWindow(r *rand.Rand) algorithm.Algorithm {
	return algorithm.FixedWindow{
		Limit:   limit(r),
		Window:  window(r),
		Aligned: r.IntN(2) == 0,
	}
}

// Calendar returns a random Calendar. Some of its zones change their clocks.
func Calendar(r *rand.Rand) algorithm.Algorithm {
	c := algorithm.Calendar{
		Limit: limit(r),
		Every: Pick(r, algorithm.Day, algorithm.Day, algorithm.Week, algorithm.Month, algorithm.Quarter, algorithm.Year),
		Zone:  Pick(r, "", "Europe/Berlin", "America/Havana", "Africa/Cairo", "Asia/Kathmandu", "Pacific/Apia"),
		At:    Pick(r, 0, 0, 6*time.Hour, time.Duration(r.Int64N(24*3600*1e6))*time.Microsecond),
	}
	switch c.Every {
	case algorithm.Week:
		c.Day = 1 + r.IntN(7)
	case algorithm.Quarter, algorithm.Year:
		c.Month = time.Month(r.IntN(13))
		fallthrough
	case algorithm.Month:
		c.Day = Pick(r, 0, 31, r.IntN(32))
	}
	return c
}

// SlidingLog returns a random SlidingLog.
func SlidingLog(r *rand.Rand) algorithm.Algorithm {
	return algorithm.SlidingLog{Limit: limit(r), Window: window(r)}
}

// MetadataWindow returns a random MetadataWindow.
func MetadataWindow(r *rand.Rand) algorithm.Algorithm {
	return algorithm.MetadataWindow(FixedWindow(r).(algorithm.FixedWindow))
}

// SlidingBuckets returns a random SlidingBuckets, sometimes with spans of 1 or 128 buckets.
func SlidingBuckets(r *rand.Rand) algorithm.Algorithm {
	a := algorithm.SlidingBuckets{Width: Pick(r, time.Millisecond, 1500*time.Microsecond, 250*time.Millisecond, time.Second, time.Minute, time.Hour)}
	lengths := r.Perm(Pick(r, 1, 3, 6))[:1]
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

// SlidingCounter returns a random SlidingCounter.
func SlidingCounter(r *rand.Rand) algorithm.Algorithm {
	return algorithm.SlidingCounter{
		Limit:  limit(r),
		Window: Pick(r, time.Microsecond, 7*time.Microsecond, time.Millisecond, time.Second, 1_048_577*time.Microsecond, time.Minute, 24*time.Hour),
	}
}

// TokenBucket returns a random TokenBucket.
func TokenBucket(r *rand.Rand) algorithm.Algorithm {
	return algorithm.TokenBucket{
		Capacity: limit(r),
		Refill: algorithm.Rate{
			Count:  Pick(r, 1, 2, 3, 7, 10, 60, 997, 3_000_000, 1+r.Int64N(1000)),
			Period: Pick(r, time.Microsecond, 7*time.Microsecond, time.Millisecond, time.Second, time.Minute, time.Hour),
		},
		AtOnce: r.IntN(3) == 0,
	}
}

// LeakyBucket returns a random LeakyBucket.
func LeakyBucket(r *rand.Rand) algorithm.Algorithm {
	g := GCRA(r).(algorithm.GCRA)
	return algorithm.LeakyBucket{Rate: g.Rate, Queue: g.Burst - 1}
}

// Concurrency returns a random Concurrency.
func Concurrency(r *rand.Rand) algorithm.Algorithm {
	return algorithm.Concurrency{Limit: Pick(r, 1, 2, 3, 5, 1+r.Int64N(7)), Lease: window(r)}
}

// Pause returns a random pause: 0, a microsecond, about unit, or long. It is sometimes
// negative, so that the clock steps back.
func Pause(r *rand.Rand, unit time.Duration) time.Duration {
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

// Wait returns a random MaxWait, in whole microseconds.
func Wait(r *rand.Rand, unit time.Duration) time.Duration {
	unit = max(unit, time.Microsecond)
	return Pick(r, 0, time.Microsecond, unit.Truncate(time.Microsecond), time.Duration(r.Int64N(int64(3*unit))).Truncate(time.Microsecond), time.Hour, weir.Never)
}

// Cost returns a small cost, which is sometimes too large to be allowed.
func Cost(r *rand.Rand) int64 { return Pick(r, 0, 1, 1, 1, 2, r.Int64N(8)) }
