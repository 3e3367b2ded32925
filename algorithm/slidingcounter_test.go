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
