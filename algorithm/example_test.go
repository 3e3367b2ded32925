package algorithm_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store/memory"
)

// Each algorithm is a rule by itself, or one of several.
func Example() {
	algorithms := []algorithm.Algorithm{
		algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 20},
		algorithm.TokenBucket{Capacity: 20, Refill: algorithm.PerMinute(600)},
		algorithm.LeakyBucket{Rate: algorithm.PerSecond(10), Queue: 20},
		algorithm.FixedWindow{Limit: 1000, Window: time.Hour},
		algorithm.SlidingCounter{Limit: 1000, Window: time.Hour},
		algorithm.SlidingBuckets{Width: time.Minute, Spans: []algorithm.Span{{Window: time.Hour, Limit: 1000}}},
		algorithm.SlidingLog{Limit: 5, Window: 15 * time.Minute},
		algorithm.Calendar{Limit: 10_000, Every: algorithm.Month, Zone: "Europe/Paris"},
		algorithm.MetadataWindow{Limit: 3, Window: 24 * time.Hour},
		algorithm.Concurrency{Limit: 4, Lease: time.Minute},
		algorithm.Pause{},
	}
	for _, a := range algorithms {
		lim, err := weir.New("api", memory.New(nil), a, nil)
		if err != nil {
			panic(err)
		}
		res, err := lim.Peek(context.Background(), "ann") // consumes nothing
		if err != nil {
			panic(err)
		}
		fmt.Printf("%T: %s: %d left\n", a, algorithm.Words(a), res.Remaining)
	}
	// Output:
	// algorithm.GCRA: 10 tokens per second, burst 20: 20 left
	// algorithm.TokenBucket: a bucket of 20 tokens, refilled at 600 tokens per minute: 20 left
	// algorithm.LeakyBucket: a queue that 10 requests per second leave, and in which up to 20 wait: 21 left
	// algorithm.FixedWindow: 1000 tokens in each window of 1 h: 1000 left
	// algorithm.SlidingCounter: 1000 tokens in any 1 h, estimated: 1000 left
	// algorithm.SlidingBuckets: 1000 tokens in any 1 h: 1000 left
	// algorithm.SlidingLog: 5 tokens in any 15 min: 5 left
	// algorithm.Calendar: 10000 tokens in each month, which starts in Europe/Paris: 10000 left
	// algorithm.MetadataWindow: 3 tokens in each window of 1 d: 3 left
	// algorithm.Concurrency: 4 leases at once, each for up to 1 min: 4 left
	// algorithm.Pause: no limit, unless the key is paused: 9007199254740991 left
}
