package redisrate

import (
	"math"
	"net/http"
	"strconv"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

// Before limits each user to the requests per minute of the user's plan, with redis_rate.
func Before(rdb *redis.Client, perMinute func(*http.Request) int, next http.Handler) http.Handler {
	limiter := redis_rate.NewLimiter(rdb)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit := redis_rate.PerMinute(perMinute(r))
		res, err := limiter.Allow(r.Context(), r.Header.Get("X-User"), limit)
		if err != nil {
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("X-RateLimit-Remaining", strconv.Itoa(res.Remaining))
		if res.Allowed == 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(res.RetryAfter.Seconds()))))
			http.Error(w, "slow down", http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	})
}
