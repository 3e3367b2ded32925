package algorithms

import (
	"slices"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/conformance/internal/decisions"
	"github.com/weir-go/weir/internal/model"
)

// BuiltIn are the built-in algorithms.
var BuiltIn = []*Subject{
	{
		Name:   "GCRA",
		New:    model.Usual.GCRA,
		refill: func(d time.Duration) algorithm.Algorithm { return algorithm.GCRA{Rate: algorithm.Every(d), Burst: 3} },
		Huge: []algorithm.Algorithm{
			algorithm.GCRA{Rate: algorithm.PerSecond(1_000_000), Burst: contract.MaxSpan},
			algorithm.GCRA{Rate: algorithm.PerDay(7), Burst: 1000},
			largest(algorithm.MaxTokens, func(n int64) algorithm.Algorithm {
				return algorithm.GCRA{Rate: algorithm.Rate{Count: 1 << 40, Period: time.Hour}, Burst: n}
			}),
			largest(algorithm.MaxTokens, func(n int64) algorithm.Algorithm {
				return algorithm.GCRA{Rate: algorithm.Rate{Count: contract.MaxSpan / 1000, Period: time.Second}, Burst: n}
			}),
			largest(algorithm.MaxTokens, func(n int64) algorithm.Algorithm {
				return algorithm.GCRA{Rate: algorithm.PerSecond(3_000_001), Burst: n}
			}),
			algorithm.GCRA{Rate: algorithm.PerDay(1_000_003), Burst: 100_000},
		},
	},
	{
		Name:   "FixedWindow",
		New:    model.Usual.FixedWindow,
		refill: func(d time.Duration) algorithm.Algorithm { return algorithm.FixedWindow{Limit: 3, Window: d} },
		Huge: []algorithm.Algorithm{
			algorithm.FixedWindow{Limit: algorithm.MaxTokens, Window: time.Hour},
			algorithm.FixedWindow{Limit: algorithm.MaxTokens, Window: 24 * time.Hour, Aligned: true},
			algorithm.FixedWindow{Limit: algorithm.MaxTokens, Window: algorithm.MaxSpan},
		},
		lacks: []string{"MaxWait"},
	},
	{
		Name: "Calendar",
		New:  model.Usual.Calendar,
		Huge: []algorithm.Algorithm{
			algorithm.Calendar{Limit: algorithm.MaxTokens, Every: algorithm.Day},
			algorithm.Calendar{Limit: 1 << 52, Every: algorithm.Month, Zone: "Europe/Berlin", Carry: 1<<52 - 1},
			algorithm.Calendar{Limit: algorithm.MaxTokens, Every: algorithm.Year, Zone: "Europe/Berlin", Month: time.December, Day: 31, At: 24*time.Hour - time.Microsecond},
		},
		lacks: []string{"MaxWait"},
	},
	{
		Name:   "MetadataWindow",
		New:    model.Usual.MetadataWindow,
		refill: func(d time.Duration) algorithm.Algorithm { return algorithm.MetadataWindow{Limit: 3, Window: d} },
		Huge: []algorithm.Algorithm{
			algorithm.MetadataWindow{Limit: algorithm.MaxLog, Window: algorithm.MaxSpan},
		},
		// The times of most of these are in the current window.
		members: []string{
			"x", "m2", "m2 1767225660000000 1", "m1 1767225660000000 1 x", "m2  1767225660000000 1 x", "m2 1767225660000000 -1 x", "m2 1.5 1 x",
			"m2 9007199254740992 1 x", "m2 1767225660000000 9007199254740992 x", " m2 1767225660000000 1 x",
		},
		list:  true,
		lacks: []string{"Refund", "MaxWait", "Units"},
	},
	{
		Name: "SlidingBuckets",
		New:  model.Usual.SlidingBuckets,
		refill: func(d time.Duration) algorithm.Algorithm {
			return algorithm.SlidingBuckets{Width: d / 4, Spans: []algorithm.Span{{Window: d, Limit: 3}, {Window: d * 3 / 2, Limit: 100}}}
		},
		Huge: []algorithm.Algorithm{
			algorithm.SlidingBuckets{Width: time.Hour, Spans: []algorithm.Span{{Window: 128 * time.Hour, Limit: algorithm.MaxTokens}}},
			algorithm.SlidingBuckets{Width: time.Minute, Spans: []algorithm.Span{{Window: 128 * time.Minute, Limit: algorithm.MaxTokens - 1}, {Window: time.Minute, Limit: algorithm.MaxTokens - 2}}},
			algorithm.SlidingBuckets{Width: algorithm.MaxSpan / 128, Spans: []algorithm.Span{{Window: algorithm.MaxSpan, Limit: 10}}},
		},
		lacks: []string{"MaxWait"},
	},
	{
		Name:   "SlidingCounter",
		New:    model.Usual.SlidingCounter,
		refill: func(d time.Duration) algorithm.Algorithm { return algorithm.SlidingCounter{Limit: 3, Window: 2 * d} },
		Huge: []algorithm.Algorithm{
			algorithm.SlidingCounter{Limit: algorithm.MaxCounter, Window: time.Second},
			algorithm.SlidingCounter{Limit: algorithm.MaxCounter, Window: 7_000_001 * time.Microsecond},
			algorithm.SlidingCounter{Limit: 10, Window: algorithm.MaxSpan / 4},
		},
		lacks: []string{"MaxWait"},
	},
	{
		Name:   "SlidingLog",
		New:    model.Usual.SlidingLog,
		refill: func(d time.Duration) algorithm.Algorithm { return algorithm.SlidingLog{Limit: 3, Window: d} },
		Huge:   []algorithm.Algorithm{algorithm.SlidingLog{Limit: algorithm.MaxLogTokens, Window: algorithm.MaxSpan}},
		members: []string{
			"l3 0000000000000001", "l3", "l3  1 1 1", "l3 -1 1 1 1", "l2 1 1 1 1", "x", " l3 1 1 1 1", "l3 1 1 1.5 1", "l3 1 1 1 1 x", "l3 1 1 1 1 1",
			"l3 9007199254740992 1 1 1", "l3 4503599627370496 1 1 1", "l3 1 8388608 1 1", "l3 1 1 4503599627370496 1", "l3 99999999999999999999999999 1 1 1",
		},
		lacks: []string{"MaxWait"},
	},
	{
		Name: "TokenBucket",
		New:  model.Usual.TokenBucket,
		refill: func(d time.Duration) algorithm.Algorithm {
			return algorithm.TokenBucket{Capacity: 3, Refill: algorithm.Every(d)}
		},
		Huge: []algorithm.Algorithm{
			algorithm.TokenBucket{Capacity: contract.MaxSpan, Refill: algorithm.PerSecond(1_000_000)},
			algorithm.TokenBucket{Capacity: algorithm.MaxTokens - 2_000, Refill: algorithm.Rate{Count: 1999, Period: time.Microsecond}},
			algorithm.TokenBucket{Capacity: 1 << 41, Refill: algorithm.Rate{Count: 1 << 40, Period: time.Hour}},
			algorithm.TokenBucket{Capacity: 1 << 41, Refill: algorithm.Rate{Count: 1<<40 + 1, Period: time.Hour}, AtOnce: true},
			algorithm.TokenBucket{Capacity: 100_000, Refill: algorithm.PerDay(104_249)},
		},
	},
	{
		Name: "LeakyBucket",
		New:  model.Usual.LeakyBucket,
		refill: func(d time.Duration) algorithm.Algorithm {
			return algorithm.LeakyBucket{Rate: algorithm.Every(d / 3), Queue: 2}
		},
		Huge: []algorithm.Algorithm{
			algorithm.LeakyBucket{Rate: algorithm.PerSecond(1_000_000), Queue: contract.MaxSpan - 1},
			algorithm.LeakyBucket{Rate: algorithm.PerDay(7), Queue: 1000},
			largest(algorithm.MaxTokens-1, func(n int64) algorithm.Algorithm {
				return algorithm.LeakyBucket{Rate: algorithm.Rate{Count: 1 << 40, Period: time.Hour}, Queue: n}
			}),
			algorithm.LeakyBucket{Rate: algorithm.PerDay(1_000_003), Queue: 99_999},
		},
	},
	{
		Name:    "Concurrency",
		New:     model.Usual.Concurrency,
		refill:  func(d time.Duration) algorithm.Algorithm { return algorithm.Concurrency{Limit: 3, Lease: d} },
		Huge:    []algorithm.Algorithm{algorithm.Concurrency{Limit: algorithm.MaxLog, Lease: algorithm.MaxSpan}},
		members: []string{"c2", "c1 a", "l3 1767225600000000 0000001 0 1", "x", " c2 a", "C2 a"},
		lacks:   []string{"Refund", "MaxWait", "Units"},
	},
}

// checkNewest makes a few more requests than Entries lists.
func checkNewest(t *T) {
	l := t.Limiter(decisions.NewClock(), decisions.One(algorithm.MetadataWindow{Limit: 5000, Window: time.Hour}))
	calls := algorithm.MaxEntries + 3
	if t.Brief {
		calls = 30
	}
	var all []weir.Entry
	for i := range calls {
		e := weir.Entry{Cost: int64(1 + i%3), Metadata: strconv.Itoa(i)}
		all = append(all, e)
		t.Do(l, weir.Request{Key: weir.KeyOf("many"), Cost: e.Cost, Metadata: e.Metadata})
		if n := len(all); n < calls && n != algorithm.MaxEntries && n != algorithm.MaxEntries+1 {
			continue
		}
		if got := t.Entries(l, "many"); !slices.Equal(got, all[max(len(all)-algorithm.MaxEntries, 0):]) {
			t.Errorf("%d requests: got %d entries, the first of which is %+v, want the newest %d", len(all), len(got), slices.Concat(got, all)[0], algorithm.MaxEntries)
		}
	}
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
