package histories

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/model"
)

// wide is a limit that shows all tokens in use.
const wide = 1 << 20

func pick[E any](r *rand.Rand, list ...E) E { return model.Pick(r, list...) }

var limits = []func(r *rand.Rand) algorithm.Algorithm{
	func(r *rand.Rand) algorithm.Algorithm { return algorithm.GCRA{Rate: rate(r), Burst: size(r)} },
	func(r *rand.Rand) algorithm.Algorithm {
		return algorithm.LeakyBucket{Rate: algorithm.PerSecond(1 + r.Int64N(2)), Queue: size(r)}
	},
	func(r *rand.Rand) algorithm.Algorithm {
		return algorithm.TokenBucket{Refill: rate(r), Capacity: size(r), AtOnce: r.IntN(4) == 0}
	},
	func(r *rand.Rand) algorithm.Algorithm {
		return algorithm.FixedWindow{Limit: size(r), Window: time.Second * time.Duration(1+r.IntN(8)), Aligned: r.IntN(3) == 0}
	},
	func(r *rand.Rand) algorithm.Algorithm {
		return algorithm.SlidingCounter{Limit: size(r), Window: pick[time.Duration](r, 1, 1, 1, 2) * 500 * time.Millisecond}
	},
	func(r *rand.Rand) algorithm.Algorithm {
		return algorithm.SlidingLog{Limit: size(r), Window: time.Second * pick(r, 3, 3, 3, time.Duration(1+r.IntN(6)))}
	},
	func(r *rand.Rand) algorithm.Algorithm {
		n := size(r)
		long := pick[time.Duration](r, 8, 8, 8, 8, 8, 8, 5)
		a := algorithm.SlidingBuckets{Width: 500 * time.Millisecond, Spans: []algorithm.Span{{Window: long * 500 * time.Millisecond, Limit: n + 2}}}
		if r.IntN(2) == 0 {
			a.Spans = append(a.Spans, algorithm.Span{Window: time.Duration(1+r.IntN(4)) * 500 * time.Millisecond, Limit: n})
		}
		return a
	},
}

func size(r *rand.Rand) int64 { return pick(r, 3, 6, 10, 1+r.Int64N(20), 60) }

func rate(r *rand.Rand) algorithm.Rate {
	return algorithm.PerSecond(pick[int64](r, 1, 1, 1, 2, 3, 7))
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

// parts is a common denominator of all intervals, in parts of a microsecond.
const parts = 21

// interval returns T in parts of a microsecond, and its denominator q in microseconds.
func interval(r algorithm.Rate) (t, q int64) {
	t = parts * r.Period.Microseconds() / r.Count
	for q = 1; q*t%parts != 0; q++ {
	}
	return t, q
}

// rateOf returns the rate of a GCRA or a LeakyBucket.
func rateOf(a algorithm.Algorithm) (r algorithm.Rate, ok bool) {
	switch a := a.(type) {
	case algorithm.GCRA:
		return a.Rate, true
	case algorithm.LeakyBucket:
		return a.Rate, true
	}
	return r, false
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
func span(a algorithm.SlidingBuckets) (w time.Duration) {
	for _, s := range a.Spans {
		w = max(w, s.Window)
	}
	return w
}

// phase returns how many tokens are refilled at once.
func phase(a algorithm.TokenBucket) int64 {
	if a.AtOnce {
		return a.Refill.Count
	}
	return 1
}
