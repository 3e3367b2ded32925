package algorithm_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
)

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
	r := rand.New(rand.NewPCG(1, 7))
	valid := 0
	for range 20_000 {
		rate := algorithm.Rate{Count: 1 + r.Int64N(1<<r.IntN(43)), Period: time.Duration(1 + r.Int64N(1<<r.IntN(60)))}
		n := 1 + r.Int64N(1<<r.IntN(53))
		for _, a := range []algorithm.Algorithm{
			algorithm.GCRA{Rate: rate, Burst: n}, algorithm.LeakyBucket{Rate: rate, Queue: n - 1},
			algorithm.TokenBucket{Capacity: n, Refill: rate}, algorithm.TokenBucket{Capacity: n, Refill: rate, AtOnce: true},
		} {
			l, err := a.NewLimit()
			if err != nil {
				continue
			}
			valid++
			if l.Capacity <= 1<<45 && l.Window <= 365*24*time.Hour && l.MaxDebt < 100*l.Capacity {
				t.Errorf("%+v: MaxDebt is %d, want %d or more", a, l.MaxDebt, 100*l.Capacity)
			}
		}
	}
	if valid < 10_000 {
		t.Errorf("only %d limits are valid", valid)
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
