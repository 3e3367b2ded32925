package weir_test

import (
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
)

// lanesOf returns a whole limit of 10 tokens, and a lane that keeps 4 of them.
func lanesOf(t *testing.T, c *weirtest.Clock, of func(n int64) algorithm.Algorithm) (whole, lane *weir.Limiter) {
	whole = weirtest.New(t, weirtest.NewStore(c), of(10))
	return whole, weirtest.With(t, whole, weir.Rule{Algorithm: of(6)})
}

// reserving has the algorithms whose tokens can be reserved, at 1 per second.
var reserving = map[string]func(n int64) algorithm.Algorithm{
	"GCRA": func(n int64) algorithm.Algorithm {
		return algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: n}
	},
	"TokenBucket": func(n int64) algorithm.Algorithm {
		return algorithm.TokenBucket{Capacity: n, Refill: algorithm.PerSecond(1)}
	},
	"AtOnce": func(n int64) algorithm.Algorithm {
		return algorithm.TokenBucket{Capacity: n, Refill: algorithm.Rate{Count: 2, Period: 2 * time.Second}, AtOnce: true}
	},
	"LeakyBucket": func(n int64) algorithm.Algorithm {
		return algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: n - 1}
	},
}

// A lane whose requests wait books what is refilled while they wait, out of the tokens that it
// keeps. A LeakyBucket keeps places in its queue, however long they wait.
func TestLaneWaits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		algorithm  string
		wait       time.Duration
		lane, left int
	}{
		{"GCRA", 0, 6, 4},
		{"GCRA", 999 * time.Millisecond, 6, 4},
		{"GCRA", 2 * time.Second, 8, 2},
		{"GCRA", 4 * time.Second, 10, 0},
		{"GCRA", time.Hour, 100, 0},
		{"TokenBucket", 0, 6, 4},
		{"TokenBucket", 2 * time.Second, 8, 2},
		{"TokenBucket", time.Hour, 100, 0},
		{"AtOnce", time.Second, 6, 4},
		{"AtOnce", 2 * time.Second, 8, 2},
		{"LeakyBucket", 2 * time.Second, 3, 7},
		{"LeakyBucket", time.Hour, 6, 4},
	} {
		whole, lane := lanesOf(t, weirtest.NewClock(), reserving[tt.algorithm])
		count := func(l *weir.Limiter, wait time.Duration) (n int) {
			for n < 100 && weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf("u"), MaxWait: wait}).Allowed {
				n++
			}
			return n
		}
		got, wait := count(lane, tt.wait), time.Duration(0)
		if tt.algorithm == "LeakyBucket" {
			wait = time.Hour
		}
		if left := count(whole, wait); got != tt.lane || left != tt.left {
			t.Errorf("%s, MaxWait %v: the lane consumed %d, and left %d, want %d and %d", tt.algorithm, tt.wait, got, left, tt.lane, tt.left)
		}
	}
}

// While the whole limit uses tokens that a lane keeps, only the whole limit can refund a
// decision of the lane in full.
func TestLaneRefunds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		algorithm string
		byWhole   bool
		want      int64 // the tokens left
	}{
		{"GCRA", false, 1},
		{"GCRA", true, 5},
		{"TokenBucket", false, 1},
		{"TokenBucket", true, 5},
		{"AtOnce", false, 1},
		{"AtOnce", true, 5},
	} {
		whole, lane := lanesOf(t, weirtest.NewClock(), reserving[tt.algorithm])
		r := weir.Request{Key: weir.KeyOf("u"), Cost: 4, ID: "job"}
		weirtest.Allow(t, lane, r)
		weirtest.Allow(t, whole, weir.Request{Key: r.Key, Cost: 5})
		by := lane
		if tt.byWhole {
			by = whole
		}
		if _, err := by.Refund(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if got := weirtest.Left(t, whole, "u").Remaining; got != tt.want {
			t.Errorf("%s, refunded by the whole limit %v: %d tokens are left, want %d", tt.algorithm, tt.byWhole, got, tt.want)
		}
	}
}
