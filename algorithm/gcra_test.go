package algorithm_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
)

// The answers are those of redis-cell for max_burst 4 and 1 per second, exact to the
// microsecond.
func TestGCRATrace(t *testing.T) {
	t.Parallel()
	b := newBench(t, algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 5})
	ms := time.Millisecond
	for _, tt := range []struct {
		at           int64 // milliseconds
		cost         int64 // 0: a peek of 1
		allowed      bool
		remaining    int64
		reset, retry time.Duration
	}{
		{0, 6, false, 5, 0, never},
		{0, 1, true, 4, 1000 * ms, 0},
		{0, 1, true, 3, 2000 * ms, 0},
		{0, 1, true, 2, 3000 * ms, 0},
		{0, 1, true, 1, 4000 * ms, 0},
		{0, 1, true, 0, 5000 * ms, 0},
		{0, 1, false, 0, 5000 * ms, 1000 * ms},
		{3000, 1, true, 2, 3000 * ms, 0},
		{3100, 1, true, 1, 3900 * ms, 0},
		{4000, 1, true, 1, 4000 * ms, 0},
		{8000, 1, true, 4, 1000 * ms, 0},
		{9500, 1, true, 4, 1000 * ms, 0},
		{9500, 0, true, 4, 1000 * ms, 0},
		{9500, 2, true, 2, 3000 * ms, 0},
		{9500, 5, false, 2, 3000 * ms, 3000 * ms},
		{15000, 6, false, 5, 0, never},
	} {
		want := verdict{Allowed: tt.allowed, Limit: 5, Remaining: tt.remaining, RetryAfter: tt.retry, ResetAfter: tt.reset}
		if got := b.takeOrPeek(epoch+tt.at*1000, tt.cost); got != want {
			t.Errorf("at %d ms, cost %d: got %+v, want %+v", tt.at, tt.cost, got, want)
		}
	}
}

// A caller who retries at each RetryAfter gets exactly the tokens of the rate in a day.
// No caller gets more.
func TestGCRANoDrift(t *testing.T) {
	t.Parallel()
	const burst = 7
	for _, tt := range []struct {
		rate algorithm.Rate
		span time.Duration
		want int64
	}{
		{algorithm.PerSecond(3), 24 * time.Hour, 259_200 + burst},
		{algorithm.PerMinute(7), 7 * 24 * time.Hour, 70_560 + burst},
		{algorithm.PerDay(86_401), 24 * time.Hour, 86_401 + burst},
		{algorithm.Rate{Count: 1_000_003, Period: 7 * 24 * time.Hour}, 24 * time.Hour, 1_000_003/7 + burst},
		{algorithm.PerSecond(1_500_000), 40 * time.Millisecond, 60_000 + burst},
		{algorithm.PerSecond(7_000_000), 10 * time.Millisecond, 70_000 + burst},
	} {
		t.Run(fmt.Sprintf("%d per %v", tt.rate.Count, tt.rate.Period), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, algorithm.GCRA{Rate: tt.rate, Burst: burst})
			if got := b.admits(tt.span); got != tt.want {
				t.Errorf("%v allowed %d, want %d", tt.span, got, tt.want)
			}
		})
	}
}

// If the rate changes, the time until the bucket is full stays. A fraction of a
// microsecond is rounded up.
func TestGCRAChangedLimit(t *testing.T) {
	t.Parallel()
	b := newBench(t, algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 3})
	b.take(epoch, 1) // full again in a third of a second
	for _, tt := range []struct {
		name string
		to   algorithm.GCRA
		want verdict
	}{
		{"the same", algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 3}, verdict{Allowed: true, Limit: 3, Remaining: 2, ResetAfter: 333334 * us}},
		{"same denominator", algorithm.GCRA{Rate: algorithm.Rate{Count: 3, Period: 2 * time.Second}, Burst: 3}, verdict{Allowed: true, Limit: 3, Remaining: 2, ResetAfter: 333334 * us}},
		{"slower", algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 3}, verdict{Allowed: true, Limit: 3, Remaining: 2, ResetAfter: 333334 * us}},
		{"faster", algorithm.GCRA{Rate: algorithm.PerSecond(300), Burst: 3}, verdict{Limit: 3, ResetAfter: 333334 * us, RetryAfter: 326667 * us}},
		{"faster, whole", algorithm.GCRA{Rate: algorithm.PerSecond(100), Burst: 3}, verdict{Limit: 3, ResetAfter: 333334 * us, RetryAfter: 313334 * us}},
		{"another denominator", algorithm.GCRA{Rate: algorithm.PerSecond(7), Burst: 3}, verdict{Limit: 3, ResetAfter: 333334 * us, RetryAfter: 47620 * us}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			changed := *b
			changed.t = t
			changed.change(tt.to)
			if got := changed.peek(epoch, 1); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestRates(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		got, want algorithm.Rate
	}{
		{"PerSecond", algorithm.PerSecond(2), algorithm.Rate{Count: 2, Period: time.Second}},
		{"PerMinute", algorithm.PerMinute(3), algorithm.Rate{Count: 3, Period: time.Minute}},
		{"PerHour", algorithm.PerHour(4), algorithm.Rate{Count: 4, Period: time.Hour}},
		{"PerDay", algorithm.PerDay(5), algorithm.Rate{Count: 5, Period: 24 * time.Hour}},
		{"Every", algorithm.Every(6 * time.Millisecond), algorithm.Rate{Count: 1, Period: 6 * time.Millisecond}},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, tt.got, tt.want)
		}
	}
}

// TakeUpTo never consumes more tokens than there are, however far the clock steps back,
// and however short the interval is.
func TestGCRAUpToAtTheBounds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		limit algorithm.GCRA
		ahead int64 // how far TAT is after now
		want  int64 // tokens consumed of 2^53-1 requested
	}{
		{"a billion parts, 9 h ahead", algorithm.GCRA{Rate: algorithm.Rate{Count: 997_000_003, Period: 7 * time.Second}, Burst: 1}, 9 * 3600e6, 0},
		{"a billion parts, years ahead", algorithm.GCRA{Rate: algorithm.Rate{Count: 997_000_003, Period: 7 * time.Second}, Burst: 1}, 1 << 51, 0},
		{"whole, years ahead", algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 5}, 1 << 51, 0},
		{"one of five", algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 5}, 1_333_333, 1},
		{"none of five, by a part", algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 5}, 1_333_334, 0},
		{"all", algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 5}, 0, 5},
		{"the most that is exact", algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 9_007_199_254}, 0, 9_007_199_254},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, tt.limit)
			if tt.ahead > 0 {
				b = holding(t, tt.limit, store.Nums{Tag: b.limit.Kind.Common().Tag, Len: 1, N: [store.MaxNums]int64{epoch + tt.ahead}})
			}
			if n, _ := b.do(script.UpTo, epoch, compose.Call{Cost: algorithm.MaxTokens}); n != tt.want {
				t.Errorf("%d tokens, want %d", n, tt.want)
			}
		})
	}
}

// Both kinds of GCRA use the same key: the interval can be whole under one limit, and a
// fraction under the next.
func TestGCRAKindsShareKeys(t *testing.T) {
	t.Parallel()
	whole, third := algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 5}, algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 9}
	b := newBench(t, third)
	if other := mustLimit(t, whole).Kind.Common(); other == b.limit.Kind.Common() || other.Tag != b.limit.Kind.Common().Tag || other.Name != b.limit.Kind.Common().Name {
		t.Fatalf("kinds %+v and %+v", other, b.limit.Kind)
	}
	for i, tt := range []struct {
		limit algorithm.GCRA
		want  string
	}{
		{third, "g2 1767225600333333 1 3"},
		{whole, "g2 1767225601333334"},
		{third, "g2 1767225601666667 1 3"},
		{third, "g2 1767225602000000 2 3"},
		{whole, "g2 1767225603000001"},
	} {
		b.change(tt.limit)
		b.take(epoch, 1)
		if got := b.state.keys[0].nums.String(); got != tt.want {
			t.Errorf("request %d: the key holds %s, want %s", i, got, tt.want)
		}
	}
}
