// Package throttled moves a program from throttled to weir.
package throttled

import (
	"net/http"

	"github.com/throttled/throttled/v2"
)

// Before limits each user to 6 requests per minute and a burst of 3.
func Before(store throttled.GCRAStoreCtx, next http.Handler) (http.Handler, error) {
	quota := throttled.RateQuota{MaxRate: throttled.PerMin(6), MaxBurst: 2}
	limiter, err := throttled.NewGCRARateLimiterCtx(store, quota)
	if err != nil {
		return nil, err
	}
	limit := throttled.HTTPRateLimiterCtx{
		RateLimiter: limiter,
		VaryBy:      &throttled.VaryBy{Headers: []string{"X-User"}},
	}
	return limit.RateLimit(next), nil
}
