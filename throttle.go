package weir

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// A Throttler answers as redis-cell's CL.THROTTLE does: the limit comes with each
// call. Make one with [NewThrottler].
type Throttler struct {
	limiter *Limiter
}

// NewThrottler returns a throttler over st. If opts is nil, the defaults are
// used. The store is not asked anything.
func NewThrottler(st store.Store, opts *Options) (*Throttler, error) {
	// Every call brings its own limit.
	l, err := NewRules(st, []Rule{{Name: "throttle", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1}}}, opts)
	if err != nil {
		return nil, err
	}
	return &Throttler{l}, nil
}

// Throttled is the answer of [Throttler.Throttle], in whole seconds rounded up,
// so that nobody who waits that long comes back too early. (redis-cell rounds
// down.)
type Throttled struct {
	Limited    bool  // denied
	Limit      int64 // max burst + 1
	Remaining  int64 // tokens left
	RetryAfter int64 // seconds until the same call would pass; -1 if it passed, or never will
	ResetAfter int64 // seconds until the bucket is full
}

// Numbers returns the five numbers in redis-cell's order: limited as 0 or 1,
// limit, remaining, retry after, reset after.
func (t Throttled) Numbers() [5]int64 {
	limited := int64(0)
	if t.Limited {
		limited = 1
	}
	return [5]int64{limited, t.Limit, t.Remaining, t.RetryAfter, t.ResetAfter}
}

// Throttle takes quantity tokens of key from a bucket of maxBurst+1 tokens, of
// which count come back per period. Quantity 0 asks and takes nothing, and a
// negative one is [ErrInvalidCost]. The other errors are [ErrInvalidLimit] and
// those of [Limiter.Do].
func (t *Throttler) Throttle(ctx context.Context, key string, maxBurst, count int64, period time.Duration, quantity int64) (Throttled, error) {
	if maxBurst < 0 || maxBurst >= algorithm.MaxTokens {
		return Throttled{}, fmt.Errorf("weir: %w: max burst is %d: it must be from 0 to %d", ErrInvalidLimit, maxBurst, int64(algorithm.MaxTokens-1))
	}
	limit, err := algorithm.GCRA{Rate: algorithm.Rate{Count: count, Period: period}, Burst: maxBurst + 1}.NewLimit()
	if err != nil {
		return Throttled{}, fmt.Errorf("weir: %w", err)
	}
	r, err := t.limiter.Do(ctx, Request{Path: []string{key}, Cost: quantity, Limits: []algorithm.Limit{limit}})
	if err != nil {
		return Throttled{}, err
	}
	out := Throttled{Limited: !r.Allowed, Limit: r.Limit, Remaining: r.Remaining, RetryAfter: -1, ResetAfter: seconds(r.ResetAfter)}
	if !r.Allowed && r.RetryAfter != Never {
		out.RetryAfter = seconds(r.RetryAfter)
	}
	return out, nil
}

// seconds is d in whole seconds, rounded up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
