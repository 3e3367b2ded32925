package algorithm_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
)

// MaxSpan is a time: as a number of microseconds it would be 52 days wherever a time is
// wanted. Numbers that an int of 32 bits does not hold are of type int64, so they are no
// times, and can be formatted there.
func TestTypesOfBounds(t *testing.T) {
	t.Parallel()
	if algorithm.MaxSpan != time.Duration(contract.MaxSpan)*us {
		t.Errorf("MaxSpan is %v, want %d µs", algorithm.MaxSpan, contract.MaxSpan)
	}
	for _, n := range []any{algorithm.MaxTokens, algorithm.MaxLogTokens, algorithm.MaxCounter, contract.MaxTokens, contract.MaxSpan} {
		if _, ok := n.(int64); !ok {
			t.Errorf("%v is of type %T, want int64", n, n)
		}
	}
}

// NewLimit rejects every limit that cannot be counted exactly. The error names the field,
// and says what would be right.
func TestInvalidLimit(t *testing.T) {
	t.Parallel()
	const maxCount = contract.MaxSpan / 1000
	for _, tt := range []struct {
		name  string
		limit algorithm.Algorithm
		says  []string // nil: valid
	}{
		{"zero GCRA", algorithm.GCRA{}, []string{"Rate.Count is 0", "at least 1"}},
		{"no rate", algorithm.GCRA{Burst: 1}, []string{"Rate.Count is 0", "at least 1"}},
		{"negative count", algorithm.GCRA{Rate: algorithm.PerSecond(-3), Burst: 1}, []string{"Rate.Count is -3", "at least 1"}},
		{"least count", algorithm.GCRA{Rate: algorithm.PerSecond(math.MinInt64), Burst: 1}, []string{"Rate.Count is -9223372036854775808", "at least 1"}},
		{"no period", algorithm.GCRA{Rate: algorithm.Rate{Count: 1}, Burst: 1}, []string{"Rate.Period is 0", "at least 1 ns"}},
		{"negative period", algorithm.GCRA{Rate: algorithm.Every(-time.Second), Burst: 1}, []string{"Rate.Period is -1000000000 ns", "at least 1 ns"}},
		{"largest count", algorithm.GCRA{Rate: algorithm.PerSecond(maxCount), Burst: 1}, nil},
		{"count too large", algorithm.GCRA{Rate: algorithm.PerSecond(maxCount + 1), Burst: 1}, []string{"Rate.Count is 4503599627371", "at most 4503599627370"}},
		{"greatest count", algorithm.GCRA{Rate: algorithm.PerSecond(math.MaxInt64), Burst: 1}, []string{"Rate.Count is", "at most"}},
		{"shortest period", algorithm.GCRA{Rate: algorithm.Every(1), Burst: 1}, nil},
		{"shortest period, largest count", algorithm.GCRA{Rate: algorithm.Rate{Count: maxCount, Period: 1}, Burst: algorithm.MaxTokens - 1000*maxCount}, nil},
		{"shortest period, largest count, burst too large", algorithm.GCRA{Rate: algorithm.Rate{Count: maxCount, Period: 1}, Burst: algorithm.MaxTokens - 1000*maxCount + 1}, []string{"GCRA.Burst is 4503599627370992", "at most 4503599627370991", "counted exactly"}},
		{"largest burst of fractions", algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 9_007_199_254}, nil},
		{"burst of fractions too large", algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 9_007_199_255}, []string{"GCRA.Burst is 9007199255", "at 3 per 1s", "at most 9007199254"}},
		{"no burst is exact", algorithm.GCRA{Rate: algorithm.Rate{Count: 1009, Period: math.MaxInt64}, Burst: 1}, []string{"GCRA.Rate is 1009 per", "too fine", "whole microseconds"}},

		{"no burst", algorithm.GCRA{Rate: algorithm.PerSecond(1)}, []string{"GCRA.Burst is 0", "from 1 to 9007199254740991"}},
		{"negative burst", algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: -1}, []string{"GCRA.Burst is -1", "from 1 to"}},
		{"burst too large", algorithm.GCRA{Rate: algorithm.Every(1), Burst: algorithm.MaxTokens + 1}, []string{"GCRA.Burst is 9007199254740992", "from 1 to"}},
		{"greatest burst", algorithm.GCRA{Rate: algorithm.Every(1), Burst: math.MaxInt64}, []string{"GCRA.Burst is", "from 1 to"}},

		{"fills in MaxSpan", algorithm.GCRA{Rate: algorithm.Every(maxSpan), Burst: 1}, nil},
		{"fills in a nanosecond more", algorithm.GCRA{Rate: algorithm.Every(maxSpan + 1), Burst: 1}, []string{"GCRA.Rate is 1 per", "too fine"}},
		{"fills in a microsecond more", algorithm.GCRA{Rate: algorithm.Every(maxSpan + us), Burst: 1}, []string{"Burst 1", "142 years", "lower Burst"}},
		{"fills in MaxSpan, two tokens", algorithm.GCRA{Rate: algorithm.Every(maxSpan / 2), Burst: 2}, nil},
		{"fills in more, two tokens", algorithm.GCRA{Rate: algorithm.Every(maxSpan/2 + us), Burst: 2}, []string{"Burst 2", "142 years"}},
		{"fills in MaxSpan, one a microsecond", algorithm.GCRA{Rate: algorithm.Every(us), Burst: contract.MaxSpan}, nil},
		{"fills in more, one a microsecond", algorithm.GCRA{Rate: algorithm.Every(us), Burst: contract.MaxSpan + 1}, []string{"142 years", "raise Rate"}},
		{"product beyond 64 bits", algorithm.GCRA{Rate: algorithm.Every(math.MaxInt64), Burst: algorithm.MaxTokens}, []string{"142 years"}},
		{"product of 2^64 and little", algorithm.GCRA{Rate: algorithm.Every(1 << 32), Burst: 1 << 32}, []string{"142 years"}},

		{"zero SlidingLog", algorithm.SlidingLog{}, []string{"SlidingLog.Limit is 0", "from 1 to 4503599627370495"}},
		{"log too long", algorithm.SlidingLog{Limit: algorithm.MaxLogTokens + 1, Window: time.Second}, []string{"SlidingLog.Limit is 4503599627370496", "from 1 to 4503599627370495"}},
		{"log without window", algorithm.SlidingLog{Limit: 1}, []string{"SlidingLog.Window is 0s", "from 1µs"}},
		{"log of nanoseconds", algorithm.SlidingLog{Limit: 1, Window: 1001}, []string{"SlidingLog.Window is 1.001µs", "from 1µs"}},
		{"longest log", algorithm.SlidingLog{Limit: algorithm.MaxLogTokens, Window: maxSpan}, nil},

		{"zero SlidingCounter", algorithm.SlidingCounter{}, []string{"SlidingCounter.Limit is 0", "from 1 to 4294967296"}},
		{"counter too large", algorithm.SlidingCounter{Limit: algorithm.MaxCounter + 1, Window: time.Second}, []string{"SlidingCounter.Limit is 4294967297", "from 1 to 4294967296"}},
		{"counter without window", algorithm.SlidingCounter{Limit: 1}, []string{"SlidingCounter.Window is 0s", "from 1µs"}},
		{"longest counter", algorithm.SlidingCounter{Limit: algorithm.MaxCounter, Window: maxSpan / 4}, nil},
		{"counter too long", algorithm.SlidingCounter{Limit: 1, Window: maxSpan/4 + us}, []string{"SlidingCounter.Window is", "at most"}},

		{"zero TokenBucket", algorithm.TokenBucket{}, []string{"Rate.Count is 0", "at least 1"}},
		{"no capacity", algorithm.TokenBucket{Refill: algorithm.PerSecond(1)}, []string{"TokenBucket.Capacity is 0", "from 1 to 9007199254740991"}},
		{"capacity too large", algorithm.TokenBucket{Capacity: algorithm.MaxTokens + 1, Refill: algorithm.PerSecond(1)}, []string{"TokenBucket.Capacity is 9007199254740992", "from 1 to"}},
		{"capacity with a period too large", algorithm.TokenBucket{Capacity: algorithm.MaxTokens - 2, Refill: algorithm.PerSecond(3_000_000)}, []string{"with 3 tokens in a period of 1 µs", "at most 9007199254740988"}},
		{"largest capacity, filled slowly", algorithm.TokenBucket{Capacity: algorithm.MaxTokens, Refill: algorithm.PerSecond(1)}, []string{"142 years", "lower Capacity or raise Refill"}},
		{"largest capacity with a period", algorithm.TokenBucket{Capacity: algorithm.MaxTokens - 3, Refill: algorithm.PerSecond(3_000_000)}, nil},
		{"bucket fills in MaxSpan", algorithm.TokenBucket{Capacity: 2, Refill: algorithm.Every(maxSpan / 2)}, nil},
		{"bucket fills in more", algorithm.TokenBucket{Capacity: 2, Refill: algorithm.Every(maxSpan/2 + us)}, []string{"Capacity 2", "142 years", "lower Capacity or raise Refill"}},
		{"bucket fills at once in MaxSpan", algorithm.TokenBucket{Capacity: 2, Refill: algorithm.Rate{Count: 2, Period: maxSpan}, AtOnce: true}, nil},
		{"bucket fills at once in more", algorithm.TokenBucket{Capacity: 3, Refill: algorithm.Rate{Count: 2, Period: maxSpan}, AtOnce: true}, []string{"Capacity 3", "142 years"}},
		{"finest a day", algorithm.TokenBucket{Capacity: 1, Refill: algorithm.PerDay(104_249)}, nil},
		{"too fine a day", algorithm.TokenBucket{Capacity: 1, Refill: algorithm.PerDay(104_251)}, []string{"TokenBucket.Refill is 104251 per 24h0m0s", "too fine", "Count up to 104249", "GCRA"}},
		{"too fine a day, at once", algorithm.TokenBucket{Capacity: 1, Refill: algorithm.PerDay(104_251), AtOnce: true}, nil},
		{"a million a day", algorithm.TokenBucket{Capacity: 1, Refill: algorithm.PerDay(1_000_000)}, nil},
		{"too fine a nanosecond", algorithm.TokenBucket{Capacity: 1, Refill: algorithm.Every(100*24*time.Hour + 1)}, []string{"too fine", "whole microseconds", "GCRA"}},
		{"nanoseconds", algorithm.TokenBucket{Capacity: 1, Refill: algorithm.Every(1001)}, nil},
		{"nanoseconds at once", algorithm.TokenBucket{Capacity: 1, Refill: algorithm.Every(1001), AtOnce: true}, []string{"TokenBucket.Refill.Period is 1.001µs", "from 1µs"}},

		{"zero LeakyBucket", algorithm.LeakyBucket{}, []string{"Rate.Count is 0", "at least 1"}},
		{"no queue", algorithm.LeakyBucket{Rate: algorithm.PerSecond(1)}, nil},
		{"negative queue", algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: -1}, []string{"LeakyBucket.Queue is -1", "from 0 to 9007199254740990"}},
		{"longest queue", algorithm.LeakyBucket{Rate: algorithm.Every(1), Queue: algorithm.MaxTokens - 1001}, nil},
		{"queue beyond what is exact", algorithm.LeakyBucket{Rate: algorithm.Every(1), Queue: algorithm.MaxTokens - 1000}, []string{"LeakyBucket with Queue 9007199254739991", "counted exactly", "lower Queue"}},
		{"queue too long", algorithm.LeakyBucket{Rate: algorithm.Every(1), Queue: algorithm.MaxTokens}, []string{"LeakyBucket.Queue is 9007199254740991", "from 0 to"}},
		{"empties in MaxSpan", algorithm.LeakyBucket{Rate: algorithm.Every(maxSpan / 2), Queue: 1}, nil},
		{"empties in more", algorithm.LeakyBucket{Rate: algorithm.Every(maxSpan/2 + us), Queue: 1}, []string{"LeakyBucket with Queue 1", "142 years", "lower Queue or raise Rate"}},
		{"zero Concurrency", algorithm.Concurrency{}, []string{"Concurrency.Limit is 0", "from 1 to 1000000"}},
		{"too many leases", algorithm.Concurrency{Limit: algorithm.MaxLog + 1, Lease: time.Second}, []string{"Concurrency.Limit is 1000001", "from 1 to 1000000"}},
		{"no lease", algorithm.Concurrency{Limit: 1}, []string{"Concurrency.Lease is 0s", "from 1µs"}},
		{"a lease of nanoseconds", algorithm.Concurrency{Limit: 1, Lease: 1001}, []string{"Concurrency.Lease is 1.001µs", "from 1µs"}},
		{"longest lease", algorithm.Concurrency{Limit: algorithm.MaxLog, Lease: maxSpan}, nil},

		{"zero MetadataWindow", algorithm.MetadataWindow{}, []string{"MetadataWindow.Limit is 0", "from 1 to 1000000"}},
		{"metadata of too many", algorithm.MetadataWindow{Limit: algorithm.MaxLog + 1, Window: time.Second}, []string{"MetadataWindow.Limit is 1000001", "from 1 to 1000000"}},
		{"metadata without window", algorithm.MetadataWindow{Limit: 1}, []string{"MetadataWindow.Window is 0s", "from 1µs"}},
		{"metadata of the longest window", algorithm.MetadataWindow{Limit: algorithm.MaxLog, Window: maxSpan, Aligned: true}, nil},

		{"zero FixedWindow", algorithm.FixedWindow{}, []string{"FixedWindow.Limit is 0", "from 1 to 9007199254740991"}},
		{"negative limit", algorithm.FixedWindow{Limit: -1, Window: time.Second}, []string{"FixedWindow.Limit is -1", "from 1 to"}},
		{"largest limit", algorithm.FixedWindow{Limit: algorithm.MaxTokens, Window: time.Second}, nil},
		{"limit too large", algorithm.FixedWindow{Limit: algorithm.MaxTokens + 1, Window: time.Second}, []string{"FixedWindow.Limit is 9007199254740992", "from 1 to"}},
		{"no window", algorithm.FixedWindow{Limit: 1}, []string{"FixedWindow.Window is 0s", "from 1µs"}},
		{"negative window", algorithm.FixedWindow{Limit: 1, Window: -time.Second}, []string{"FixedWindow.Window is -1s", "from 1µs"}},
		{"least window", algorithm.FixedWindow{Limit: 1, Window: math.MinInt64}, []string{"FixedWindow.Window is", "from 1µs"}},
		{"window of nanoseconds", algorithm.FixedWindow{Limit: 1, Window: 999}, []string{"FixedWindow.Window is 999ns", "from 1µs"}},
		{"window of a part", algorithm.FixedWindow{Limit: 1, Window: time.Second + 1}, []string{"FixedWindow.Window is 1.000000001s", "whole number of microseconds"}},
		{"shortest window", algorithm.FixedWindow{Limit: 1, Window: us}, nil},
		{"longest window", algorithm.FixedWindow{Limit: 1, Window: maxSpan}, nil},
		{"window too long", algorithm.FixedWindow{Limit: 1, Window: maxSpan + us}, []string{"FixedWindow.Window is", maxSpan.String()}},
		{"greatest window", algorithm.FixedWindow{Limit: 1, Window: math.MaxInt64}, []string{"FixedWindow.Window is", maxSpan.String()}},
		{"aligned", algorithm.FixedWindow{Limit: 1, Window: maxSpan + us, Aligned: true}, []string{"FixedWindow.Window is"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l, err := tt.limit.NewLimit()
			if tt.says == nil {
				if err != nil || l == nil {
					t.Errorf("NewLimit of %+v = %v, %v, want a limit", tt.limit, l, err)
				}
				return
			}
			if l != nil || !errors.Is(err, algorithm.ErrInvalidLimit) {
				t.Fatalf("NewLimit of %+v = %v, %v, want ErrInvalidLimit", tt.limit, l, err)
			}
			for _, s := range tt.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("error %q does not say %q", err, s)
				}
			}
		})
	}
}

// Limits at the bounds are counted exactly, at any time that a store's clock can show.
func TestLimitsAtTheBounds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		limit algorithm.Algorithm
		burst int64
		wait  time.Duration // RetryAfter of one token when the limit is used up, without MaxWait
		reset time.Duration // ResetAfter when the limit is used up
	}{
		{"one in MaxSpan", algorithm.GCRA{Rate: algorithm.Every(maxSpan), Burst: 1}, 1, maxSpan, maxSpan},
		{"one a microsecond, full in MaxSpan", algorithm.GCRA{Rate: algorithm.Every(us), Burst: contract.MaxSpan}, contract.MaxSpan, us, maxSpan},
		{"largest capacity at the highest rate", algorithm.GCRA{Rate: algorithm.Rate{Count: contract.MaxSpan / 1000, Period: 1}, Burst: 4503599627370991}, 4503599627370991, us, 2 * us},
		{"largest capacity of fractions", algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 9_007_199_254}, 9_007_199_254, 333_334 * us, 3_002_399_751_333_334 * us},
		{"bucket full in MaxSpan", algorithm.TokenBucket{Capacity: contract.MaxSpan, Refill: algorithm.Every(us)}, contract.MaxSpan, us, maxSpan},
		{"bucket of most at once", algorithm.TokenBucket{Capacity: algorithm.MaxTokens - 2, Refill: algorithm.Rate{Count: 2, Period: us}, AtOnce: true}, algorithm.MaxTokens - 2, us, maxSpan - us},
		{"bucket of one at once in MaxSpan", algorithm.TokenBucket{Capacity: 7, Refill: algorithm.Rate{Count: 7, Period: maxSpan}, AtOnce: true}, 7, maxSpan, maxSpan},
		{"queue empty in MaxSpan", algorithm.LeakyBucket{Rate: algorithm.Every(us), Queue: contract.MaxSpan - 1}, contract.MaxSpan, maxSpan, maxSpan},
		{"most in the longest window", algorithm.FixedWindow{Limit: algorithm.MaxTokens, Window: maxSpan}, algorithm.MaxTokens, maxSpan, maxSpan},
	} {
		for _, now := range []int64{1, epoch, 1<<52 - 1} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, tt.limit)
				if got := b.take(now, min(tt.burst+1, algorithm.MaxTokens+1)); got.Allowed || got.RetryAfter != never || got.Remaining != tt.burst {
					t.Errorf("more than all: got %+v", got)
				}
				if got := b.take(now, tt.burst); !got.Allowed || got.Remaining != 0 || got.ResetAfter != tt.reset {
					t.Errorf("all: got %+v, want it allowed, and full after %v", got, tt.reset)
				}
				if got := b.take(now, 1); got.Allowed || got.RetryAfter != tt.wait {
					t.Errorf("one more: got %+v, want a wait of %v", got, tt.wait)
				}
				b.integers()
			})
		}
	}
}
