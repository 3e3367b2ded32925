package conformance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

// tenPerMinute is a limit for checks that need any algorithm.
var tenPerMinute = algorithm.GCRA{Rate: algorithm.PerMinute(10), Burst: 5}

// quarters has 8 buckets and one span.
var quarters = algorithm.SlidingBuckets{Width: 15 * time.Second, Spans: []algorithm.Span{{Window: 2 * time.Minute, Limit: 5}}}

// builtins are the checks of the built-in algorithms.
var builtins = []group{
	builtin("GCRA", Subject{
		New:    anyGCRA,
		refill: func(d time.Duration) algorithm.Algorithm { return algorithm.GCRA{Rate: algorithm.Every(d), Burst: 3} },
		Huge: []algorithm.Algorithm{
			algorithm.GCRA{Rate: algorithm.PerSecond(1_000_000), Burst: algorithm.MaxSpan},
			algorithm.GCRA{Rate: algorithm.PerDay(7), Burst: 1000},
			largest(algorithm.MaxTokens, func(n int64) algorithm.Algorithm {
				return algorithm.GCRA{Rate: algorithm.Rate{Count: 1 << 40, Period: time.Hour}, Burst: n}
			}),
			largest(algorithm.MaxTokens, func(n int64) algorithm.Algorithm {
				return algorithm.GCRA{Rate: algorithm.Rate{Count: algorithm.MaxSpan / 1000, Period: time.Second}, Burst: n}
			}),
			largest(algorithm.MaxTokens, func(n int64) algorithm.Algorithm {
				return algorithm.GCRA{Rate: algorithm.PerSecond(3_000_001), Burst: n}
			}),
		},
	}),
	builtin("FixedWindow", Subject{
		New:    anyFixedWindow,
		refill: func(d time.Duration) algorithm.Algorithm { return algorithm.FixedWindow{Limit: 3, Window: d} },
		Huge: []algorithm.Algorithm{
			algorithm.FixedWindow{Limit: algorithm.MaxTokens, Window: time.Hour},
			algorithm.FixedWindow{Limit: algorithm.MaxTokens, Window: 24 * time.Hour, Aligned: true},
			algorithm.FixedWindow{Limit: algorithm.MaxTokens, Window: algorithm.MaxSpan * time.Microsecond},
		},
	}, "MaxWait"),
	builtin("MetadataWindow", Subject{
		New:    anyMetadataWindow,
		refill: func(d time.Duration) algorithm.Algorithm { return algorithm.MetadataWindow{Limit: 3, Window: d} },
		Huge: []algorithm.Algorithm{
			algorithm.MetadataWindow{Limit: algorithm.MaxLog, Window: algorithm.MaxSpan * time.Microsecond},
		},
		// The times of most of these are in the current window.
		members: []string{
			"x", "m2", "m2 1767225660000000 1", "m1 1767225660000000 1 x", "m2  1767225660000000 1 x", "m2 1767225660000000 -1 x", "m2 1.5 1 x",
			"m2 9007199254740992 1 x", "m2 1767225660000000 9007199254740992 x", " m2 1767225660000000 1 x",
		},
		list: true,
	}, "Refund", "MaxWait").and(check{"Newest", "Entries lists the newest 1000 requests if there are more", checkNewest}),
	builtin("SlidingBuckets", Subject{
		New: anySlidingBuckets,
		refill: func(d time.Duration) algorithm.Algorithm {
			return algorithm.SlidingBuckets{Width: d / 4, Spans: []algorithm.Span{{Window: d, Limit: 3}, {Window: d * 3 / 2, Limit: 100}}}
		},
		Huge: []algorithm.Algorithm{
			algorithm.SlidingBuckets{Width: time.Hour, Spans: []algorithm.Span{{Window: 128 * time.Hour, Limit: algorithm.MaxTokens}}},
			algorithm.SlidingBuckets{Width: time.Minute, Spans: []algorithm.Span{{Window: 128 * time.Minute, Limit: algorithm.MaxTokens - 1}, {Window: time.Minute, Limit: algorithm.MaxTokens - 2}}},
			algorithm.SlidingBuckets{Width: algorithm.MaxSpan / 128 * time.Microsecond, Spans: []algorithm.Span{{Window: algorithm.MaxSpan * time.Microsecond, Limit: 10}}},
		},
	}, "MaxWait"),
	builtin("SlidingCounter", Subject{
		New:    anySlidingCounter,
		refill: func(d time.Duration) algorithm.Algorithm { return algorithm.SlidingCounter{Limit: 3, Window: 2 * d} },
		Huge: []algorithm.Algorithm{
			algorithm.SlidingCounter{Limit: algorithm.MaxCounter, Window: time.Second},
			algorithm.SlidingCounter{Limit: algorithm.MaxCounter, Window: 7_000_001 * time.Microsecond},
			algorithm.SlidingCounter{Limit: 10, Window: algorithm.MaxSpan / 4 * time.Microsecond},
		},
	}, "MaxWait"),
	builtin("SlidingLog", Subject{
		New:    anySlidingLog,
		refill: func(d time.Duration) algorithm.Algorithm { return algorithm.SlidingLog{Limit: 3, Window: d} },
		Huge:   []algorithm.Algorithm{algorithm.SlidingLog{Limit: algorithm.MaxLogTokens, Window: algorithm.MaxSpan * time.Microsecond}},
		members: []string{
			"l3 0000000000000001", "l3", "l3  1 1 1", "l3 -1 1 1 1", "l2 1 1 1 1", "x", " l3 1 1 1 1", "l3 1 1 1.5 1", "l3 1 1 1 1 x", "l3 1 1 1 1 1",
			"l3 9007199254740992 1 1 1", "l3 4503599627370496 1 1 1", "l3 1 8388608 1 1", "l3 1 1 4503599627370496 1", "l3 99999999999999999999999999 1 1 1",
		},
	}, "MaxWait"),
	builtin("TokenBucket", Subject{
		New: anyTokenBucket,
		refill: func(d time.Duration) algorithm.Algorithm {
			return algorithm.TokenBucket{Capacity: 3, Refill: algorithm.Every(d)}
		},
		Huge: []algorithm.Algorithm{
			algorithm.TokenBucket{Capacity: algorithm.MaxSpan, Refill: algorithm.PerSecond(1_000_000)},
			algorithm.TokenBucket{Capacity: algorithm.MaxTokens - 2_000, Refill: algorithm.Rate{Count: 1999, Period: time.Microsecond}},
			algorithm.TokenBucket{Capacity: 1 << 41, Refill: algorithm.Rate{Count: 1 << 40, Period: time.Hour}},
			algorithm.TokenBucket{Capacity: 1 << 41, Refill: algorithm.Rate{Count: 1<<40 + 1, Period: time.Hour}, AtOnce: true},
			algorithm.TokenBucket{Capacity: 100_000, Refill: algorithm.PerDay(104_249)},
		},
	}),
	builtin("LeakyBucket", Subject{
		New: anyLeakyBucket,
		refill: func(d time.Duration) algorithm.Algorithm {
			return algorithm.LeakyBucket{Rate: algorithm.Every(d / 3), Queue: 2}
		},
		Huge: []algorithm.Algorithm{
			algorithm.LeakyBucket{Rate: algorithm.PerSecond(1_000_000), Queue: algorithm.MaxSpan - 1},
			algorithm.LeakyBucket{Rate: algorithm.PerDay(7), Queue: 1000},
			largest(algorithm.MaxTokens-1, func(n int64) algorithm.Algorithm {
				return algorithm.LeakyBucket{Rate: algorithm.Rate{Count: 1 << 40, Period: time.Hour}, Queue: n}
			}),
		},
	}),
	builtin("Concurrency", Subject{
		New:     anyConcurrency,
		refill:  func(d time.Duration) algorithm.Algorithm { return algorithm.Concurrency{Limit: 3, Lease: d} },
		Huge:    []algorithm.Algorithm{algorithm.Concurrency{Limit: algorithm.MaxLog, Lease: algorithm.MaxSpan * time.Microsecond}},
		members: []string{"c2", "c1 a", "l3 1767225600000000 0000001 0 1", "x", " c2 a", "C2 a"},
	}, "Refund", "MaxWait"),
}

// builtin returns the checks of a built-in algorithm: algorithmChecks and Refill. lacks are
// the names of checks that it leaves out, because the algorithm does not support the verb.
func builtin(name string, s Subject, lacks ...string) group {
	s.Unit, s.builtin = unitOf, true
	checks := slices.DeleteFunc(slices.Clone(algorithmChecks), func(c check) bool { return slices.Contains(lacks, c.name) })
	refill := check{"Refill", "on the store's clock, a denied request is allowed at RetryAfter, and not before", checkRefill}
	return group{name: name, subject: &s, checks: append(checks, refill)}
}

// and returns g with one more check.
func (g group) and(c check) group {
	g.checks = append(g.checks, c)
	return g
}

// checkNewest makes a few more requests than Entries lists.
func checkNewest(t *T) {
	l := t.limiter(newClock(), one(algorithm.MetadataWindow{Limit: 5000, Window: time.Hour}))
	calls := algorithm.MaxEntries + 3
	if t.backend.Brief {
		calls = 30
	}
	var all []weir.Entry
	for i := range calls {
		e := weir.Entry{Cost: int64(1 + i%3), Metadata: strconv.Itoa(i)}
		all = append(all, e)
		t.do(l, weir.Request{Key: weir.KeyOf("many"), Cost: e.Cost, Metadata: e.Metadata})
		if n := len(all); n < calls && n != algorithm.MaxEntries && n != algorithm.MaxEntries+1 {
			continue
		}
		if got := t.entries(l, "many"); !slices.Equal(got, all[max(len(all)-algorithm.MaxEntries, 0):]) {
			t.errorf("%d requests: got %d entries, the first of which is %+v, want the newest %d", len(all), len(got), slices.Concat(got, all)[0], algorithm.MaxEntries)
		}
	}
}

// unitOf returns a time in which the state of a built-in algorithm changes.
func unitOf(a algorithm.Algorithm) time.Duration {
	switch a := a.(type) {
	case algorithm.GCRA:
		return a.Rate.Period / time.Duration(a.Rate.Count)
	case algorithm.FixedWindow:
		return a.Window / 4
	case algorithm.MetadataWindow:
		return a.Window / 4
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

// refundable makes a random algorithm whose decisions can be refunded.
func refundable(r *rand.Rand) algorithm.Algorithm {
	return pick(r, anyGCRA, anyFixedWindow, anySlidingBuckets, anySlidingCounter, anySlidingLog, anyTokenBucket, anyLeakyBucket)(r)
}
