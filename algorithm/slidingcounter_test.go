package algorithm_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
)

// On random traffic, below the limit and above it, a SlidingCounter differs little from
// the exact count. docs/reference/algorithms.md has these figures.
func TestSlidingCounterError(t *testing.T) {
	t.Parallel()
	const limit, window = 100, int64(10_000_000)
	requests := 200_000
	if testing.Short() {
		requests = 20_000
	}
	for _, load := range []float64{0.9, 1.5} {
		r := rand.New(rand.NewPCG(1, 2))
		b := newBench(t, algorithm.SlidingCounter{Limit: limit, Window: time.Duration(window) * us})
		var taken []int64 // the times of the tokens in the window that ends now
		sum, worst, denied := 0.0, 0, 0
		now := int64(epoch)
		for range requests {
			now += int64(r.ExpFloat64() * float64(window) / limit / load)
			for len(taken) > 0 && taken[0] <= now-window {
				taken = taken[1:]
			}
			v := b.take(now, 1)
			used := int(limit - v.Remaining)
			if v.Allowed {
				taken = append(taken, now)
			} else {
				denied++
			}
			sum += math.Abs(float64(used - len(taken)))
			worst = max(worst, len(taken))
		}
		mean := sum / float64(requests) / limit
		t.Logf("at %v of the limit: %.1f %% denied; the count is off by %.1f %% of the limit on average; at most %d of %d in a window",
			load, 100*float64(denied)/float64(requests), 100*mean, worst, limit)
		if mean > 0.1 || worst > limit*5/4 {
			t.Errorf("at %v of the limit: off by %v, and %d of %d in a window", load, mean, worst, limit)
		}
	}
}

// A refund returns tokens to the window in which they were consumed, while that window
// counts.
func TestSlidingCounterRefund(t *testing.T) {
	t.Parallel()
	const second = 1_000_000
	for _, tt := range []struct {
		name  string
		after int64
		gave  bool
		left  int64 // tokens left after the refund
	}{
		{"in its window", second - 1, true, 8},
		{"as the next window starts", second, true, 8},
		{"in the next window", second + second/2, true, 9},
		{"as the next window ends", 2*second - 1, true, 9},
		{"after the next window", 2 * second, false, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, algorithm.SlidingCounter{Limit: 10, Window: time.Second})
			b.take(epoch, 2)
			was, _ := b.charge(epoch, 3, 0)
			if gave := b.refund(epoch+tt.after, was); gave != tt.gave {
				t.Errorf("refunded: %v, want %v", gave, tt.gave)
			}
			if got := b.peek(epoch+tt.after, 1); got.Remaining != tt.left {
				t.Errorf("%d are left, want %d", got.Remaining, tt.left)
			}
		})
	}
}

// If the window of a decision no longer counts, a refund refunds nothing, even if the key
// was not written after the decision.
func TestSlidingCounterRefundTooLate(t *testing.T) {
	t.Parallel()
	const second = 1_000_000
	b := newBench(t, algorithm.SlidingCounter{Limit: 10, Window: time.Second})
	was, _ := b.charge(epoch, 3, 0)
	b.take(epoch+second, 1) // the key now holds two counts
	for _, tt := range []struct {
		after int64
		gave  bool
	}{{2 * second, false}, {3*second - 1, false}, {2*second - 1, true}} {
		if gave := b.refund(epoch+tt.after, was); gave != tt.gave {
			t.Errorf("after %d µs: refunded %v, want %v", tt.after, gave, tt.gave)
		}
	}
}

// A missing key has no state, even if the clock is less than one window after 1970.
func TestSlidingCounterEarly(t *testing.T) {
	t.Parallel()
	b := newBench(t, algorithm.SlidingCounter{Limit: 10, Window: time.Hour})
	if got, want := b.peek(1, 1), (verdict{Allowed: true, Limit: 10, Remaining: 10}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := b.take(1, 4); got.Remaining != 6 || got.ResetAfter != 2*time.Hour-us {
		t.Errorf("got %+v", got)
	}
}
