// Package redisrate moves a program from redis_rate to weir.
//
// The type Limiter in compat.go has the methods of redis_rate's Limiter over weir, for
// programs that call it in many places. Copy the file, and change the import.
package redisrate

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// A Limit is a rate with a burst.
type Limit struct {
	Rate, Burst int
	Period      time.Duration
}

// IsZero reports whether l is the zero value.
func (l Limit) IsZero() bool { return l == Limit{} }

// String returns the limit as redis_rate writes it, for example "5 req/m (burst 5)".
func (l Limit) String() string {
	period := l.Period.String()
	if unit, ok := map[time.Duration]string{time.Second: "s", time.Minute: "m", time.Hour: "h"}[l.Period]; ok {
		period = unit
	}
	return fmt.Sprintf("%d req/%s (burst %d)", l.Rate, period, l.Burst)
}

// PerSecond returns a limit of rate requests per second, and a burst of the same number.
func PerSecond(rate int) Limit { return Limit{rate, rate, time.Second} }

// PerMinute returns a limit of rate requests per minute, and a burst of the same number.
func PerMinute(rate int) Limit { return Limit{rate, rate, time.Minute} }

// PerHour returns a limit of rate requests per hour, and a burst of the same number.
func PerHour(rate int) Limit { return Limit{rate, rate, time.Hour} }

// A Result is the answer to a request.
type Result struct {
	Limit      Limit
	Allowed    int           // the number of events that may happen now
	Remaining  int           // the number of events that may happen after them
	RetryAfter time.Duration // -1 if the request is allowed
	ResetAfter time.Duration // the time until Remaining is Limit.Burst
}

// A Limiter limits the events of each key, with the limit that the call passes.
type Limiter struct{ lim *weir.Limiter }

// NewLimiter returns a limiter over st, for example goredis.New(rdb).
func NewLimiter(st store.Store) (*Limiter, error) {
	lim, err := weir.New("rate", st, algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1}, nil)
	return &Limiter{lim}, err
}

// Allow is short for AllowN with n = 1.
func (l *Limiter) Allow(ctx context.Context, key string, limit Limit) (*Result, error) {
	return l.AllowN(ctx, key, limit, 1)
}

// AllowN allows n events now, or none. If n is 0, it changes nothing.
func (l *Limiter) AllowN(ctx context.Context, key string, limit Limit, n int) (*Result, error) {
	return l.decide(ctx, weir.Consume, key, limit, n)
}

// AllowAtMost allows as many events now as the limit allows, up to n. If n is 0, it
// changes nothing, and RetryAfter is the time until one is allowed.
func (l *Limiter) AllowAtMost(ctx context.Context, key string, limit Limit, n int) (*Result, error) {
	return l.decide(ctx, weir.TakeUpTo, key, limit, n)
}

// Reset ends the limit of the key.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	return l.lim.Reset(ctx, segment(key))
}

// segment returns the segment of a key. It is never empty, because redis_rate allows an
// empty key.
func segment(key string) string { return "k" + key }

func (l *Limiter) decide(ctx context.Context, op weir.Op, key string, limit Limit, n int) (*Result, error) {
	rate := algorithm.Rate{Count: int64(limit.Rate), Period: limit.Period}
	lim, err := l.lim.With(weir.Rule{Algorithm: algorithm.GCRA{Rate: rate, Burst: int64(limit.Burst)}})
	if err != nil {
		return nil, err
	}
	r := weir.Request{Key: weir.KeyOf(segment(key)), Op: op, Cost: int64(n)}
	if n == 0 {
		r.Op = weir.Peek
	}
	res, err := lim.Decide(ctx, r, nil)
	if err != nil {
		return nil, err
	}
	out := &Result{limit, int(res.Granted), int(res.Remaining), res.RetryAfter, res.ResetAfter}
	if res.Allowed || n == 0 && op == weir.Consume {
		out.RetryAfter = -1
	} else {
		out.Remaining = 0
	}
	return out, nil
}
