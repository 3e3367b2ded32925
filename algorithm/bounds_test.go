package algorithm_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/model"
	"github.com/weir-go/weir/internal/script"
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
	const maxCount, s, ms = contract.MaxSpan / 1000, time.Second, time.Millisecond
	many := make([]algorithm.Span, algorithm.MaxSpans+1)
	for i := range many {
		many[i] = algorithm.Span{Window: time.Duration(i+1) * s, Limit: 1}
	}
	for _, tt := range []struct {
		limit algorithm.Algorithm
		says  []string // nil: valid
	}{
		{algorithm.GCRA{}, []string{"Rate.Count is 0", "at least 1"}},
		{algorithm.GCRA{Rate: algorithm.PerSecond(-3), Burst: 1}, []string{"Rate.Count is -3", "at least 1"}},
		{algorithm.GCRA{Rate: algorithm.Rate{Count: 1}, Burst: 1}, []string{"Rate.Period is 0", "at least 1 ns"}},
		{algorithm.GCRA{Rate: algorithm.PerSecond(maxCount), Burst: 1}, nil},
		{algorithm.GCRA{Rate: algorithm.PerSecond(maxCount + 1), Burst: 1}, []string{"Rate.Count is 4503599627371", "at most 4503599627370"}},
		{algorithm.GCRA{Rate: algorithm.Rate{Count: maxCount, Period: 1}, Burst: algorithm.MaxTokens - 1000*maxCount + 1}, []string{"GCRA.Burst is 4503599627370992", "at most 4503599627370991", "counted exactly"}},
		{algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 9_007_199_254}, nil},
		{algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 9_007_199_255}, []string{"GCRA.Burst is 9007199255", "at 3 per 1s", "at most 9007199254"}},
		{algorithm.GCRA{Rate: algorithm.Rate{Count: 1009, Period: math.MaxInt64}, Burst: 1}, []string{"GCRA.Rate is 1009 per", "too fine", "whole microseconds"}},
		{algorithm.GCRA{Rate: algorithm.PerSecond(1)}, []string{"GCRA.Burst is 0", "from 1 to 9007199254740991"}},
		{algorithm.GCRA{Rate: algorithm.Every(1), Burst: algorithm.MaxTokens + 1}, []string{"GCRA.Burst is 9007199254740992", "from 1 to"}},
		{algorithm.GCRA{Rate: algorithm.Every(maxSpan), Burst: 1}, nil},
		{algorithm.GCRA{Rate: algorithm.Every(maxSpan + 1), Burst: 1}, []string{"GCRA.Rate is 1 per", "too fine"}},
		{algorithm.GCRA{Rate: algorithm.Every(maxSpan + us), Burst: 1}, []string{"Burst 1", "142 years", "lower Burst"}},
		{algorithm.GCRA{Rate: algorithm.Every(us), Burst: contract.MaxSpan}, nil},
		{algorithm.GCRA{Rate: algorithm.Every(us), Burst: contract.MaxSpan + 1}, []string{"142 years", "raise Rate"}},
		{algorithm.GCRA{Rate: algorithm.Every(math.MaxInt64), Burst: algorithm.MaxTokens}, []string{"142 years"}},
		{algorithm.GCRA{Rate: algorithm.Every(1 << 32), Burst: 1 << 32}, []string{"142 years"}},
		{algorithm.SlidingLog{}, []string{"SlidingLog.Limit is 0", "from 1 to 4503599627370495"}},
		{algorithm.SlidingLog{Limit: algorithm.MaxLogTokens + 1, Window: time.Second}, []string{"SlidingLog.Limit is 4503599627370496", "from 1 to 4503599627370495"}},
		{algorithm.SlidingCounter{}, []string{"SlidingCounter.Limit is 0", "from 1 to 4294967296"}},
		{algorithm.SlidingCounter{Limit: algorithm.MaxCounter + 1, Window: time.Second}, []string{"SlidingCounter.Limit is 4294967297", "from 1 to 4294967296"}},
		{algorithm.SlidingCounter{Limit: 1, Window: maxSpan/4 + us}, []string{"SlidingCounter.Window is", "at most"}},
		{algorithm.TokenBucket{}, []string{"Rate.Count is 0", "at least 1"}},
		{algorithm.TokenBucket{Refill: algorithm.PerSecond(1)}, []string{"TokenBucket.Capacity is 0", "from 1 to 9007199254740991"}},
		{algorithm.TokenBucket{Capacity: algorithm.MaxTokens + 1, Refill: algorithm.PerSecond(1)}, []string{"TokenBucket.Capacity is 9007199254740992", "from 1 to"}},
		{algorithm.TokenBucket{Capacity: algorithm.MaxTokens - 2, Refill: algorithm.PerSecond(3_000_000)}, []string{"with 3 tokens in a period of 1 µs", "at most 9007199254740988"}},
		{algorithm.TokenBucket{Capacity: algorithm.MaxTokens, Refill: algorithm.PerSecond(1)}, []string{"142 years", "lower Capacity or raise Refill"}},
		{algorithm.TokenBucket{Capacity: 2, Refill: algorithm.Every(maxSpan/2 + us)}, []string{"Capacity 2", "142 years", "lower Capacity or raise Refill"}},
		{algorithm.TokenBucket{Capacity: 2, Refill: algorithm.Rate{Count: 2, Period: maxSpan}, AtOnce: true}, nil},
		{algorithm.TokenBucket{Capacity: 3, Refill: algorithm.Rate{Count: 2, Period: maxSpan}, AtOnce: true}, []string{"Capacity 3", "142 years"}},
		{algorithm.TokenBucket{Capacity: 1, Refill: algorithm.PerDay(104_249)}, nil},
		{algorithm.TokenBucket{Capacity: 1, Refill: algorithm.PerDay(104_251)}, []string{"TokenBucket.Refill is 104251 per 24h0m0s", "too fine", "Count up to 104249", "GCRA"}},
		{algorithm.TokenBucket{Capacity: 1, Refill: algorithm.PerDay(104_251), AtOnce: true}, nil},
		{algorithm.TokenBucket{Capacity: 1, Refill: algorithm.Every(100*24*time.Hour + 1)}, []string{"too fine", "whole microseconds", "GCRA"}},
		{algorithm.TokenBucket{Capacity: 1, Refill: algorithm.Every(1001), AtOnce: true}, []string{"TokenBucket.Refill.Period is 1.001µs", "from 1µs"}},
		{algorithm.LeakyBucket{Rate: algorithm.PerSecond(1)}, nil},
		{algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: -1}, []string{"LeakyBucket.Queue is -1", "from 0 to 9007199254740990"}},
		{algorithm.LeakyBucket{Rate: algorithm.Every(1), Queue: algorithm.MaxTokens - 1001}, nil},
		{algorithm.LeakyBucket{Rate: algorithm.Every(1), Queue: algorithm.MaxTokens - 1000}, []string{"LeakyBucket with Queue 9007199254739991", "counted exactly", "lower Queue"}},
		{algorithm.LeakyBucket{Rate: algorithm.Every(1), Queue: algorithm.MaxTokens}, []string{"LeakyBucket.Queue is 9007199254740991", "from 0 to"}},
		{algorithm.LeakyBucket{Rate: algorithm.Every(maxSpan/2 + us), Queue: 1}, []string{"LeakyBucket with Queue 1", "142 years", "lower Queue or raise Rate"}},
		{algorithm.Concurrency{}, []string{"Concurrency.Limit is 0", "from 1 to 1000000"}},
		{algorithm.Concurrency{Limit: algorithm.MaxLog + 1, Lease: time.Second}, []string{"Concurrency.Limit is 1000001", "from 1 to 1000000"}},
		{algorithm.Concurrency{Limit: 1}, []string{"Concurrency.Lease is 0s", "from 1µs"}},
		{algorithm.MetadataWindow{}, []string{"MetadataWindow.Limit is 0", "from 1 to 1000000"}},
		{algorithm.MetadataWindow{Limit: algorithm.MaxLog + 1, Window: time.Second}, []string{"MetadataWindow.Limit is 1000001", "from 1 to 1000000"}},
		{algorithm.FixedWindow{}, []string{"FixedWindow.Limit is 0", "from 1 to 9007199254740991"}},
		{algorithm.FixedWindow{Limit: 1}, []string{"FixedWindow.Window is 0s", "from 1µs"}},
		{algorithm.FixedWindow{Limit: 1, Window: time.Second + 1}, []string{"FixedWindow.Window is 1.000000001s", "whole number of microseconds"}},
		{algorithm.FixedWindow{Limit: 1, Window: us}, nil},
		{algorithm.FixedWindow{Limit: 1, Window: maxSpan}, nil},
		{algorithm.FixedWindow{Limit: 1, Window: maxSpan + us}, []string{"FixedWindow.Window is", maxSpan.String()}},

		{spans(s, many[0], many[2], many[1]), nil},
		{spans(s, many[:algorithm.MaxSpans]...), nil},
		{spans(s, many...), []string{"Spans has 9", "from 1 to 8"}},
		{spans(s), []string{"Spans has 0", "from 1 to 8"}},
		{spans(s, many[0], algorithm.Span{Window: 2 * s}), []string{"Spans[1].Limit is 0", "from 1 to 9007199254740991"}},
		{spans(s, algorithm.Span{Window: s, Limit: algorithm.MaxTokens}), nil},
		{spans(s, many[0], many[1], algorithm.Span{Window: s, Limit: 7}), []string{"Spans[0] and Spans[2] have the same Window, 1s"}},
		{spans(0, many[0], many[1]), []string{"Width is 0s", "15.625ms would be valid"}},
		{spans(s+1, algorithm.Span{Window: 2 * s, Limit: 1}), []string{"Width is 1.000000001s", "whole microseconds", "1s would be valid"}},
		{spans(ms, algorithm.Span{Window: 128 * ms, Limit: 1}), nil},
		{spans(ms/2, algorithm.Span{Window: 10 * ms, Limit: 1}), []string{"Width is 500µs", "at least 1ms", "1ms would be valid"}},
		{spans(s, algorithm.Span{Window: 129 * s, Limit: 1}), []string{"Width is 1s", "at most 128 buckets", "1.03"}},
		{spans(time.Minute, algorithm.Span{Window: 24 * time.Hour, Limit: 1}), []string{"11m15s would be valid"}},
		{spans(3*s, many[0], many[9-1]), []string{"Width is 3s", "1s would be valid"}},
		{spans(2*s, many[0]), []string{"Width is 2s", "1s would be valid"}},
		{spans(s, many[0], algorithm.Span{Window: 129 * s, Limit: 1}), []string{"no width is valid"}},
		{spans(maxSpan/128, algorithm.Span{Window: maxSpan, Limit: 1}), nil},

		{algorithm.Calendar{Every: algorithm.Day}, []string{"Calendar.Limit is 0: it must be from 1 to 9007199254740991"}},
		{algorithm.Calendar{Limit: 1}, []string{`Calendar.Every is "": it must be algorithm.Day, Week, Month, Quarter or Year`}},
		{algorithm.Calendar{Limit: 1, Every: algorithm.Day, Zone: "Europe/Berln"}, []string{`Calendar.Zone is "Europe/Berln": unknown time zone Europe/Berln: it must be a name of the IANA database, for example "Europe/Berlin"`}},
		{algorithm.Calendar{Limit: 1, Every: algorithm.Day, Zone: "Local"}, []string{`Calendar.Zone is "Local": it must name a time zone, for example "Europe/Berlin", because`}},
		{algorithm.Calendar{Limit: 1, Every: algorithm.Day, Day: 1}, []string{"Calendar.Day is 1: it must be 0, because every day is a period"}},
		{algorithm.Calendar{Limit: 1, Every: algorithm.Day, Month: 1}, []string{`Calendar.Month is 1: it must be 0, because it applies only to a quarter or a year, and Calendar.Every is "day"`}},
		{algorithm.Calendar{Limit: 1, Every: algorithm.Week}, []string{"Calendar.Day is 0: it must be the day on which a week starts, from 1 (Monday) to 7 (Sunday)"}},
		{algorithm.Calendar{Limit: 1, Every: algorithm.Week, Day: 8}, []string{"Calendar.Day is 8: it must be the day on which a week starts"}},
		{algorithm.Calendar{Limit: 1, Every: algorithm.Week, Day: -1}, []string{"Calendar.Day is -1: it must be the day on which a week starts"}},
		{algorithm.Calendar{Limit: 1, Every: algorithm.Month, Day: 32}, []string{"Calendar.Day is 32: it must be the day of the month on which a month starts, from 1 to 31, or 0 for the first day"}},
		{algorithm.Calendar{Limit: 1, Every: algorithm.Month, Month: 4}, []string{`Calendar.Month is 4: it must be 0, because it applies only to a quarter or a year, and Calendar.Every is "month"`}},
		{algorithm.Calendar{Limit: 1, Every: algorithm.Year, Month: 13}, []string{"Calendar.Month is 13: it must be the month in which a year starts, from 1 to 12, or 0 for January"}},
		{algorithm.Calendar{Limit: 1, Every: algorithm.Day, At: 6}, []string{"Calendar.At is 6ns: it must be a time of day, in whole microseconds, from 0 to below 24h: 6*time.Hour is six o'clock"}},
		{algorithm.Calendar{Limit: 5, Every: algorithm.Day, Carry: 6}, []string{"Calendar.Carry is 6: it must be from 0 to 5"}},
		{algorithm.Calendar{Limit: 5, Every: algorithm.Day, Carry: -1}, []string{"Calendar.Carry is -1: it must be from 0 to 5"}},
		{algorithm.Calendar{Limit: algorithm.MaxTokens - 1, Every: algorithm.Day, Carry: 2}, []string{"Calendar.Carry is 2: it must be from 0 to 1"}},
		{algorithm.Calendar{Limit: 1, Every: algorithm.Day, At: 24 * time.Hour}, []string{"Calendar.At is 24h0m0s: it must be"}},
	} {
		l, err := tt.limit.NewLimit()
		switch {
		case tt.says == nil && (err != nil || l == nil):
			t.Errorf("NewLimit of %+v = %v, %v, want a limit", tt.limit, l, err)
		case tt.says != nil && (l != nil || !errors.Is(err, algorithm.ErrInvalidLimit)):
			t.Errorf("NewLimit of %+v = %v, %v, want ErrInvalidLimit", tt.limit, l, err)
		}
		for _, s := range tt.says {
			if !strings.Contains(fmt.Sprint(err), s) {
				t.Errorf("%+v: error %q does not say %q", tt.limit, err, s)
			}
		}
		if text, ok := strings.CutSuffix(fmt.Sprint(err), " would be valid"); ok {
			other := tt.limit.(algorithm.SlidingBuckets)
			if other.Width, err = time.ParseDuration(text[strings.LastIndex(text, " ")+1:]); err == nil {
				_, err = other.NewLimit()
			}
			if err != nil {
				t.Errorf("%+v: %s, but %v", tt.limit, text, err)
			}
		}
	}
}

// deepest are limits with their MaxDebt.
var deepest = []struct {
	limit algorithm.Algorithm
	debt  int64
}{
	{algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 5}, 4_503_599_622}, // 2^52-1 µs
	{algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 5}, 9_007_199_249}, // 2^53-1-3 parts of a third of a microsecond
	{algorithm.GCRA{Rate: algorithm.PerSecond(1_000_000), Burst: 1}, 1<<52 - 2},
	{algorithm.GCRA{Rate: algorithm.Rate{Count: contract.MaxSpan / 1000, Period: 1}, Burst: 1}, algorithm.MaxTokens - 1000*(contract.MaxSpan/1000) - 1},
	{algorithm.GCRA{Rate: algorithm.PerDay(1), Burst: 10}, 52_114},
	{algorithm.GCRA{Rate: algorithm.Every(maxSpan), Burst: 1}, 0},
	{algorithm.GCRA{Rate: algorithm.PerDay(1_000_003), Burst: 100_000}, 10_000_000},     // 100 * Burst
	{algorithm.GCRA{Rate: algorithm.PerDay(1_000_003), Burst: 1000}, 103_249},           // 2^53-1-1000003 parts
	{algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 9_007_199_254}, 4_503_599_620}, // in 2^52-1000 µs, less 8
	{algorithm.GCRA{Rate: algorithm.Every(1<<51 + 1), Burst: 3}, 300},
	{algorithm.LeakyBucket{Rate: algorithm.PerDay(1_000_003), Queue: 99_999}, 10_000_000},
	{algorithm.LeakyBucket{Rate: algorithm.PerSecond(3), Queue: 4}, 9_007_199_249},
	{algorithm.LeakyBucket{Rate: algorithm.PerSecond(10), Queue: 0}, 45_035_996_272},
	{algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(3)}, 13_510_798_877},                         // in 2^52 µs
	{algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(1_500_000_000)}, algorithm.MaxTokens - 1505}, // 1500 in a microsecond
	{algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerDay(7), AtOnce: true}, 364_863},
	{algorithm.TokenBucket{Capacity: contract.MaxSpan, Refill: algorithm.Every(us)}, 0},
	{algorithm.FixedWindow{Limit: 5, Window: maxSpan}, algorithm.MaxTokens - 5},
	{algorithm.MetadataWindow{Limit: 5, Window: maxSpan}, algorithm.MaxLog},
	{algorithm.SlidingCounter{Limit: 5, Window: time.Hour}, 1<<33 - 6},
	{algorithm.SlidingCounter{Limit: algorithm.MaxCounter, Window: maxSpan / 4}, 1<<32 - 1},
	{algorithm.SlidingLog{Limit: 5, Window: time.Second}, 1<<52 - 6},
	{algorithm.SlidingLog{Limit: algorithm.MaxLogTokens, Window: maxSpan}, 0},
	{spans(time.Second, algorithm.Span{Window: 5 * time.Second, Limit: 9}, algorithm.Span{Window: 2 * time.Second, Limit: 5}), algorithm.MaxTokens - 9},
	{spans(maxSpan/128, algorithm.Span{Window: maxSpan, Limit: 1 << 52}), algorithm.MaxTokens - 1<<52},
}

// off returns how many tokens of MaxDebt rounding can take away.
func off(l *contract.Limit) int64 {
	if len(l.Args) == 3 && l.Capacity+l.MaxDebt > algorithm.MaxTokens/l.Args[0].Int() { // a GCRA with fractions
		return 4
	}
	return 0
}

// A limit can go into debt by MaxDebt, at any time that a store's clock can show. No
// integer reaches 2^53, RetryAfter is exact, and the key lives until ResetAfter.
func TestDeepestDebt(t *testing.T) {
	t.Parallel()
	for _, tt := range deepest {
		for _, now := range []int64{1, epoch, 1<<52 - 1} {
			t.Run(fmt.Sprintf("%+v, %d", tt.limit, now), func(t *testing.T) {
				t.Parallel()
				b := newBench(t, tt.limit)
				all := b.limit.Capacity + tt.debt
				if b.limit.MaxDebt != tt.debt {
					t.Fatalf("MaxDebt is %d, want %d", b.limit.MaxDebt, tt.debt)
				}
				sum, _ := b.force(now, 1)
				for range 3 { // the first is cut to MaxDebt if a LeakyBucket is not empty
					n, _ := b.force(now, algorithm.MaxTokens)
					sum += n
				}
				if sum > all || sum < all-off(b.limit) {
					t.Errorf("forces consumed %d, want %d", sum, all)
				}
				b.integers()
				for _, cost := range []int64{1, b.limit.Capacity} {
					v := b.take(now, cost)
					if v.Allowed || v.Remaining != 0 || v.RetryAfter <= 0 || v.ResetAfter < v.RetryAfter || v.ResetAfter > 2*maxSpan {
						t.Errorf("in debt: got %+v", v)
					}
					if b.state.ttl < v.ResetAfter {
						t.Errorf("the key lives for %v, and the debt for %v", b.state.ttl, v.ResetAfter)
					}
					b.checkExact(now, cost, 0, v)
				}
			})
		}
	}
}

// A GCRA, a LeakyBucket and a TokenBucket of at most 2^45 tokens, which are refilled
// within a year, can go into debt by at least 100 times as many.
func TestDebtOfAHundredLimits(t *testing.T) {
	t.Parallel()
	r, all := rand.New(rand.NewPCG(1, 7)), model.Wide
	for range 3000 {
		a := model.Pick(r, all.GCRA, all.LeakyBucket, all.TokenBucket)(r)
		if l := mustLimit(t, a); l.Capacity <= 1<<45 && l.Window <= 365*24*time.Hour && l.MaxDebt < 100*l.Capacity {
			t.Errorf("%+v: MaxDebt is %d, want %d or more", a, l.MaxDebt, 100*l.Capacity)
		}
	}
}

// A debt that is too deep to be exact is charged and refunded to within 8 µs, never in
// the caller's favor.
func TestDeepDebt(t *testing.T) {
	t.Parallel()
	a := algorithm.GCRA{Rate: algorithm.PerDay(1_000_003), Burst: 100_000}
	const day = 24 * 3600 * 1_000_000
	micros := func(n int64) int64 { return (n*day + 1_000_002) / 1_000_003 } // the time of n tokens
	b := newBench(t, a)
	for _, cost := range []int64{50_000, 60_000, 200_000} {
		if n, _ := b.force(epoch, cost); n != cost {
			t.Errorf("a Force of %d consumed %d", cost, n)
		}
	}
	before := b.peek(epoch, 1).ResetAfter.Microseconds()
	if want := micros(310_000); before < want || before > want+4 {
		t.Errorf("310000 tokens are missing, and refilled after %d µs, want %d", before, want)
	}
	n, mark := b.force(epoch, 5_000_000)
	if n != 5_000_000 {
		t.Fatalf("a Force of 5000000 consumed %d", n)
	}
	if !b.part(epoch, &mark, 4_000_000) {
		t.Error("nothing was refunded")
	}
	if got, want := b.peek(epoch, 1).ResetAfter.Microseconds(), before+micros(1_000_000); got < want-1 || got > want+8 {
		t.Errorf("4000000 of 5000000 tokens were refunded, and all are refilled after %d µs, want %d", got, want)
	}
	if !b.part(epoch+day/1000, &mark, 1_000_000) {
		t.Error("nothing was refunded")
	}
	if got, want := b.peek(epoch+day/1000, 1).ResetAfter.Microseconds(), before-day/1000; got < want || got > want+8 {
		t.Errorf("all were refunded, and all are refilled after %d µs, want %d", got, want)
	}
}

// The longest wait is never negative. A bucket that fills in exactly MaxSpan can be used,
// but no caller can wait for it.
func TestNoWait(t *testing.T) {
	t.Parallel()
	for _, a := range []algorithm.Algorithm{
		algorithm.GCRA{Rate: algorithm.Every(us), Burst: contract.MaxSpan},
		algorithm.LeakyBucket{Rate: algorithm.Every(us), Queue: contract.MaxSpan - 1},
		algorithm.TokenBucket{Capacity: contract.MaxSpan, Refill: algorithm.Every(us)},
	} {
		b := newBench(t, a)
		if b.limit.MaxWait != 0 {
			t.Errorf("%+v: MaxWait is %d, want 0", a, b.limit.MaxWait)
		}
		if v := b.wait(script.Consume, epoch, 1, time.Hour); !v.Allowed {
			t.Errorf("%+v: got %+v", a, v)
		}
	}
}

// A new lease removes leases that have expired, so the set does not grow.
func TestExpiredLeases(t *testing.T) {
	t.Parallel()
	b := newBench(t, algorithm.Concurrency{Limit: 3, Lease: 10 * time.Second})
	for i, at := range []int64{0, 5, 12, 16} {
		b.lease(script.Consume, epoch+at*time.Second.Microseconds(), fmt.Sprint(i))
		if got, want := len(b.state.keys[0].set), min(i+1, 2); got != want {
			t.Errorf("after %d s, the set has %d leases, want the %d that live", at, got, want)
		}
	}
}
