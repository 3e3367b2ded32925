package conformance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weir-go/weir/algorithm"
)

// builtins are the checks of the built-in algorithms: those of any algorithm, and those of
// their own, which the file named like the algorithm holds.
var builtins = []group{
	builtin("GCRA", gcraChecks, Subject{
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
	builtin("FixedWindow", fixedWindowChecks, Subject{
		New:    anyFixedWindow,
		refill: func(d time.Duration) algorithm.Algorithm { return algorithm.FixedWindow{Limit: 3, Window: d} },
		Huge: []algorithm.Algorithm{
			algorithm.FixedWindow{Limit: algorithm.MaxTokens, Window: time.Hour},
			algorithm.FixedWindow{Limit: algorithm.MaxTokens, Window: 24 * time.Hour, Aligned: true},
			algorithm.FixedWindow{Limit: algorithm.MaxTokens, Window: algorithm.MaxSpan * time.Microsecond},
		},
	}, "MaxWait"),
	builtin("MetadataWindow", metadataWindowChecks, Subject{
		New:    anyMetadataWindow,
		refill: func(d time.Duration) algorithm.Algorithm { return algorithm.MetadataWindow{Limit: 3, Window: d} },
		Huge: []algorithm.Algorithm{
			algorithm.MetadataWindow{Limit: algorithm.MaxLog, Window: algorithm.MaxSpan * time.Microsecond},
		},
		members: metadataWindowMembers, list: true,
	}, "Refund", "MaxWait"),
	builtin("SlidingBuckets", slidingBucketsChecks, Subject{
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
	builtin("SlidingCounter", slidingCounterChecks, Subject{
		New: anySlidingCounter,
		refill: func(d time.Duration) algorithm.Algorithm {
			return algorithm.SlidingCounter{Limit: 3, Window: 2 * d}
		},
		Huge: []algorithm.Algorithm{
			algorithm.SlidingCounter{Limit: algorithm.MaxCounter, Window: time.Second},
			algorithm.SlidingCounter{Limit: algorithm.MaxCounter, Window: 7_000_001 * time.Microsecond},
			algorithm.SlidingCounter{Limit: 10, Window: algorithm.MaxSpan / 4 * time.Microsecond},
		},
	}, "MaxWait"),
	builtin("SlidingLog", slidingLogChecks, Subject{
		New:     anySlidingLog,
		refill:  func(d time.Duration) algorithm.Algorithm { return algorithm.SlidingLog{Limit: 3, Window: d} },
		Huge:    []algorithm.Algorithm{algorithm.SlidingLog{Limit: algorithm.MaxLog, Window: algorithm.MaxSpan * time.Microsecond}},
		members: slidingLogMembers,
	}, "MaxWait"),
	builtin("TokenBucket", tokenBucketChecks, Subject{
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
	builtin("LeakyBucket", leakyBucketChecks, Subject{
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
	builtin("Concurrency", concurrencyChecks, Subject{
		New:     func(r *rand.Rand) algorithm.Algorithm { return anyConcurrency(r) },
		refill:  func(d time.Duration) algorithm.Algorithm { return algorithm.Concurrency{Limit: 3, Lease: d} },
		Huge:    []algorithm.Algorithm{algorithm.Concurrency{Limit: algorithm.MaxLog, Lease: algorithm.MaxSpan * time.Microsecond}},
		members: concurrencyMembers,
	}, "Refund", "MaxWait"),
}

// builtin returns the checks of a built-in algorithm. lacks names those of any algorithm
// that are about verbs which it does not have. own replaces checks of the same name.
func builtin(name string, own []check, s Subject, lacks ...string) group {
	s.Unit, s.builtin = unitOf, true
	g := group{name: name, subject: &s, checks: slices.Clone(own)}
	for _, c := range append(slices.Clone(algorithmChecks), check{"Refill", "on the store's clock, a denied request passes when RetryAfter is over, and not before", checkRefill}) {
		if !slices.Contains(lacks, c.name) && !slices.ContainsFunc(own, func(o check) bool { return o.name == c.name }) {
			g.checks = append(g.checks, c)
		}
	}
	return g
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
