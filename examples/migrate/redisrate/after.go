package redisrate

import (
	"errors"
	"math"
	"net/http"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store/goredis"
)

// perMinute is redis_rate.PerMinute: the burst is the whole limit of a minute.
func perMinute(n int) algorithm.GCRA {
	return algorithm.GCRA{Rate: algorithm.PerMinute(int64(n)), Burst: int64(n)}
}

// After is Before with weir.
func After(rdb *redis.Client, plan func(*http.Request) int, next http.Handler) (http.Handler, error) {
	limiter, err := weir.New("api", goredis.New(rdb), perMinute(10), nil)
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limited, err := limiter.With(weir.Rule{Algorithm: perMinute(plan(r))})
		if err != nil {
			http.Error(w, "the plan has no valid limit", http.StatusInternalServerError)
			return
		}
		res, err := limited.Allow(r.Context(), r.Header.Get("X-User"))
		switch {
		case errors.Is(err, weir.ErrInvalidKey): // redis_rate allows an empty key
			http.Error(w, "who are you?", http.StatusBadRequest)
			return
		case err != nil:
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("X-RateLimit-Remaining", strconv.FormatInt(res.Remaining, 10))
		if !res.Allowed {
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(res.RetryAfter.Seconds()))))
			http.Error(w, "slow down", http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	}), nil
}
