package model

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weir-go/weir/algorithm"
)

// Unit returns a time in which the state of a built-in algorithm changes.
func Unit(a algorithm.Algorithm) time.Duration {
	switch a := a.(type) {
	case algorithm.Concurrency:
		return a.Lease / time.Duration(min(a.Limit, 4))
	case algorithm.SlidingBuckets:
		return a.Width
	}
	limit, err := a.NewLimit()
	if err != nil {
		panic(err)
	}
	n := int64(4)
	switch a.(type) {
	case algorithm.GCRA, algorithm.TokenBucket, algorithm.LeakyBucket:
		n = limit.Capacity
	case algorithm.SlidingLog, algorithm.SlidingCounter:
		n = min(limit.Capacity, n)
	}
	return limit.Window / time.Duration(n)
}

// Pick returns one of list.
func Pick[E any](r *rand.Rand, list ...E) E { return list[r.IntN(len(list))] }

// A Maker makes a random algorithm.
type Maker = func(*rand.Rand) algorithm.Algorithm

// Sizes are the sizes of random algorithms. Its methods are their makers.
type Sizes struct {
	Limit  func(*rand.Rand) int64
	Window func(*rand.Rand) time.Duration
	Width  func(*rand.Rand) time.Duration // of the buckets of a SlidingBuckets
	Rate   func(*rand.Rand) algorithm.Rate
}

// Usual has small limits, windows from a microsecond to a day, and all kinds of rates.
var Usual = Sizes{
	Limit: func(r *rand.Rand) int64 { return Pick(r, 1, 2, 5, 100, 1+r.Int64N(20)) },
	Window: func(r *rand.Rand) time.Duration {
		return Pick(r, time.Microsecond, 7*time.Microsecond, time.Millisecond, time.Second, 1_048_577*time.Microsecond, time.Minute, 24*time.Hour)
	},
	Width: func(r *rand.Rand) time.Duration {
		return Pick(r, time.Millisecond, 1500*time.Microsecond, 250*time.Millisecond, time.Second, time.Minute, time.Hour)
	},
	Rate: func(r *rand.Rand) algorithm.Rate {
		return algorithm.Rate{
			Count:  Pick(r, 1, 2, 3, 7, 10, 60, 997, 1000, 3_000_000, 1+r.Int64N(1000)),
			Period: Pick(r, time.Microsecond, time.Millisecond, time.Second, time.Minute, time.Hour, 24*time.Hour, 1500*time.Nanosecond, 1+time.Duration(r.Int64N(int64(time.Minute)))),
		}
	},
}

// Wide is Usual with a sixth of all numbers anywhere within their bounds.
var Wide = Sizes{
	Limit: func(r *rand.Rand) int64 {
		if r.IntN(6) == 0 {
			return 1 + r.Int64N(1<<(1+r.IntN(53)))
		}
		return 1 + r.Int64N(12)
	},
	Window: func(r *rand.Rand) time.Duration {
		if r.IntN(6) == 0 {
			return time.Duration(1+r.Int64N(1<<(1+r.IntN(52)))) * time.Microsecond
		}
		return Usual.Window(r)
	},
	Width: Usual.Width,
	Rate: func(r *rand.Rand) algorithm.Rate {
		if r.IntN(6) == 0 {
			return algorithm.Rate{Count: 1 + r.Int64N(1<<(1+r.IntN(42))), Period: time.Duration(1 + r.Int64N(1<<(1+r.IntN(62))))}
		}
		return Usual.Rate(r)
	},
}

// All returns the makers of all algorithms that have a model.
func (s Sizes) All() []Maker { return append(s.AllRefundable(), s.MetadataWindow, s.Concurrency) }

// AllRefundable returns the makers of the algorithms whose decisions can be refunded.
func (s Sizes) AllRefundable() []Maker {
	return []Maker{s.GCRA, s.FixedWindow, s.Calendar, s.SlidingBuckets, s.SlidingCounter, s.SlidingLog, s.TokenBucket, s.LeakyBucket}
}

// Refundable returns a random algorithm whose decisions can be refunded.
func (s Sizes) Refundable(r *rand.Rand) algorithm.Algorithm { return Pick(r, s.AllRefundable()...)(r) }

// valid returns the first valid algorithm that make returns.
func valid[A algorithm.Algorithm](make func() A) algorithm.Algorithm {
	for {
		a := make()
		if _, err := a.NewLimit(); err == nil {
			return a
		}
	}
}

// GCRA returns a random GCRA.
func (s Sizes) GCRA(r *rand.Rand) algorithm.Algorithm {
	return valid(func() algorithm.GCRA { return algorithm.GCRA{Rate: s.Rate(r), Burst: s.Limit(r)} })
}

// LeakyBucket returns a random LeakyBucket.
func (s Sizes) LeakyBucket(r *rand.Rand) algorithm.Algorithm {
	return valid(func() algorithm.LeakyBucket { return algorithm.LeakyBucket{Rate: s.Rate(r), Queue: s.Limit(r) - 1} })
}

// TokenBucket returns a random TokenBucket.
func (s Sizes) TokenBucket(r *rand.Rand) algorithm.Algorithm {
	return valid(func() algorithm.TokenBucket {
		return algorithm.TokenBucket{Capacity: s.Limit(r), Refill: s.Rate(r), AtOnce: r.IntN(3) == 0}
	})
}

// FixedWindow returns a random FixedWindow.
func (s Sizes) FixedWindow(r *rand.Rand) algorithm.Algorithm {
	return valid(func() algorithm.FixedWindow {
		return algorithm.FixedWindow{Limit: s.Limit(r), Window: s.Window(r), Aligned: r.IntN(2) == 0}
	})
}

// MetadataWindow returns a random MetadataWindow.
func (s Sizes) MetadataWindow(r *rand.Rand) algorithm.Algorithm {
	return valid(func() algorithm.MetadataWindow {
		return algorithm.MetadataWindow(s.FixedWindow(r).(algorithm.FixedWindow))
	})
}

// SlidingCounter returns a random SlidingCounter.
func (s Sizes) SlidingCounter(r *rand.Rand) algorithm.Algorithm {
	return valid(func() algorithm.SlidingCounter {
		return algorithm.SlidingCounter{Limit: s.Limit(r), Window: s.Window(r)}
	})
}

// SlidingLog returns a random SlidingLog.
func (s Sizes) SlidingLog(r *rand.Rand) algorithm.Algorithm {
	return valid(func() algorithm.SlidingLog { return algorithm.SlidingLog{Limit: s.Limit(r), Window: s.Window(r)} })
}

// Concurrency returns a random Concurrency with a low limit.
func (s Sizes) Concurrency(r *rand.Rand) algorithm.Algorithm {
	return algorithm.Concurrency{Limit: Pick(r, 1, 2, 3, 5, 1+r.Int64N(7)), Lease: s.Window(r)}
}

// SlidingBuckets returns a random SlidingBuckets, sometimes with spans of 1 or 128 buckets.
func (s Sizes) SlidingBuckets(r *rand.Rand) algorithm.Algorithm {
	a := algorithm.SlidingBuckets{Width: s.Width(r)}
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

// Calendar returns a random Calendar. Some of its zones change their clocks.
func (s Sizes) Calendar(r *rand.Rand) algorithm.Algorithm {
	c := s.CalendarIn(r, Pick(r, "", "Europe/Berlin", "America/Havana", "Africa/Cairo", "Asia/Kathmandu", "Pacific/Apia"))
	c.Carry = Pick(r, 0, 1, r.Int64N(c.Limit)+1) % (min(c.Limit, algorithm.MaxTokens-c.Limit) + 1)
	return c
}

// CalendarIn returns a random Calendar without a Carry in a zone.
func (s Sizes) CalendarIn(r *rand.Rand, zone string) algorithm.Calendar {
	c := algorithm.Calendar{
		Limit: s.Limit(r),
		Every: Pick(r, algorithm.Day, algorithm.Day, algorithm.Week, algorithm.Month, algorithm.Quarter, algorithm.Year),
		Zone:  zone,
		At:    Pick(r, 0, 0, 6*time.Hour, 30*time.Minute*time.Duration(r.IntN(48)), time.Duration(r.Int64N(24*3600*1e6))*time.Microsecond),
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

// Pause returns a random pause: 0, a microsecond, about unit, or long. It is sometimes
// negative, so that the clock steps back.
func Pause(r *rand.Rand, unit time.Duration) time.Duration {
	unit = min(max(unit, time.Microsecond), algorithm.MaxSpan/32)
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
	unit = min(max(unit, time.Microsecond), algorithm.MaxSpan/32)
	return Pick(r, 0, time.Microsecond, unit.Truncate(time.Microsecond), time.Duration(r.Int64N(int64(3*unit))).Truncate(time.Microsecond), time.Hour, algorithm.Never)
}

// Cost returns a small cost, which is sometimes too large to be allowed.
func Cost(r *rand.Rand) int64 { return Pick(r, 0, 1, 1, 1, 2, r.Int64N(8)) }
