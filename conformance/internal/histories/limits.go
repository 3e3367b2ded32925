package histories

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/model"
)

// wide is a limit that shows all tokens in use.
const wide = 1 << 20

func pick[E any](r *rand.Rand, list ...E) E { return model.Pick(r, list...) }

// The sizes of all limits, and of queues, whose tokens take whole microseconds.
var (
	small  = model.Sizes{Limit: size, Rate: rate, Window: window}
	queues = model.Sizes{Limit: size, Rate: func(r *rand.Rand) algorithm.Rate { return algorithm.PerSecond(1 + r.Int64N(2)) }}
)

var limits = []model.Maker{small.GCRA, queues.LeakyBucket, small.TokenBucket, small.FixedWindow, small.SlidingCounter, small.SlidingLog, buckets}

// buckets returns a SlidingBuckets whose longest span is mostly the same.
func buckets(r *rand.Rand) algorithm.Algorithm {
	n := size(r)
	long := pick[time.Duration](r, 8, 8, 8, 8, 8, 8, 5)
	a := algorithm.SlidingBuckets{Width: 500 * time.Millisecond, Spans: []algorithm.Span{{Window: long * 500 * time.Millisecond, Limit: n + 2}}}
	if r.IntN(2) == 0 {
		a.Spans = append(a.Spans, algorithm.Span{Window: time.Duration(1+r.IntN(4)) * 500 * time.Millisecond, Limit: n})
	}
	return a
}

func size(r *rand.Rand) int64 { return pick(r, 3, 6, 10, 1+r.Int64N(20), 60) }

func rate(r *rand.Rand) algorithm.Rate {
	return algorithm.PerSecond(pick[int64](r, 1, 1, 1, 2, 3, 7))
}

func window(r *rand.Rand) time.Duration {
	return time.Second * pick(r, 3, 3, 3, time.Duration(1+r.IntN(6)))
}

// like returns another limit of the same algorithm, and the limit of a that shows all tokens.
func like(r *rand.Rand, a algorithm.Algorithm) algorithm.Algorithm {
	for {
		if b := pick(r, limits...)(r); fmt.Sprintf("%T", a) == fmt.Sprintf("%T", b) {
			return b
		}
	}
}

func widest(a algorithm.Algorithm) algorithm.Algorithm {
	switch a := a.(type) {
	case algorithm.GCRA:
		a.Burst = wide
		return a
	case algorithm.LeakyBucket:
		a.Queue = wide - 1
		return a
	case algorithm.TokenBucket:
		a.Capacity = wide
		return a
	case algorithm.FixedWindow:
		a.Limit = wide
		return a
	case algorithm.SlidingCounter:
		a.Limit = wide
		return a
	case algorithm.SlidingLog:
		a.Limit = wide
		return a
	case algorithm.SlidingBuckets:
		return algorithm.SlidingBuckets{Width: a.Width, Spans: []algorithm.Span{{Window: span(a), Limit: wide}}}
	}
	panic(a)
}

// fits reports whether a decision under a can be adjusted under b.
func fits(a, b algorithm.Algorithm) bool {
	switch a := a.(type) {
	case algorithm.GCRA:
		return a.Rate == b.(algorithm.GCRA).Rate
	case algorithm.LeakyBucket:
		return a.Rate == b.(algorithm.LeakyBucket).Rate
	case algorithm.TokenBucket:
		b := b.(algorithm.TokenBucket)
		return a.Refill == b.Refill && a.AtOnce == b.AtOnce
	case algorithm.SlidingCounter:
		return a.Window == b.(algorithm.SlidingCounter).Window
	case algorithm.SlidingBuckets:
		b := b.(algorithm.SlidingBuckets)
		return a.Width == b.Width && span(a) == span(b)
	}
	return true
}

// lasts reports whether a decision under a lasts as long as its marker under limits that cannot
// adjust it.
func lasts(a algorithm.Algorithm) bool {
	switch a.(type) {
	case algorithm.TokenBucket, algorithm.SlidingCounter:
		return true
	}
	return false
}

// span returns the longest window of a.
func span(a algorithm.SlidingBuckets) time.Duration { return slices.MaxFunc(a.Spans, longer).Window }

func longer(a, b algorithm.Span) int { return cmp.Compare(a.Window, b.Window) }

// phase returns how many tokens are refilled at once.
func phase(a algorithm.TokenBucket) int64 {
	if a.AtOnce {
		return a.Refill.Count
	}
	return 1
}
