package bench

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-chi/httprate"
	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
)

// newThrottledMemory returns throttled's GCRA in a map that never removes a key.
func newThrottledMemory(tb testing.TB) func(string) bool {
	st, err := memstore.NewCtx(0)
	if err != nil {
		tb.Fatal(err)
	}
	lim := newThrottledLimiter(tb, st, time.Second/perSecond)
	ctx := context.Background()
	return func(key string) bool {
		limited, _, err := lim.RateLimitCtx(ctx, key, 1)
		return err == nil && !limited
	}
}

// newThrottledLimiter returns a limiter that refills a token in each period.
func newThrottledLimiter(tb testing.TB, st throttled.GCRAStoreCtx, period time.Duration) *throttled.GCRARateLimiterCtx {
	tb.Helper()
	quota := throttled.RateQuota{MaxRate: throttled.PerDuration(1, period), MaxBurst: burstOf(period) - 1}
	lim, err := throttled.NewGCRARateLimiterCtx(st, quota)
	if err != nil {
		tb.Fatal(err)
	}
	lim.SetMaxCASAttemptsLimit(1000) // the default fails under contention
	return lim
}

// newUluleMemory returns ulule's fixed window. It counts denied requests too.
func newUluleMemory(testing.TB) func(string) bool {
	lim := limiter.New(ululememory.NewStore(), limiter.Rate{Limit: burst, Period: window})
	ctx := context.Background()
	return func(key string) bool {
		res, err := lim.Get(ctx, key)
		return err == nil && !res.Reached
	}
}

// newHTTPRate returns the counter of httprate: an estimate from two fixed windows, as of a
// SlidingCounter. Its header fields are off, but it formats their numbers.
func newHTTPRate(testing.TB) func(string) bool {
	lim := httprate.NewRateLimiter(burst, window, httprate.WithResponseHeaders(httprate.ResponseHeaders{}))
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
	return func(key string) bool { return !lim.OnLimit(w, r, key) }
}

// newThrottledRedis returns throttled's GCRA. A decision on a known key is TIME and GET,
// and then a script that compares and swaps, so two round trips.
func newThrottledRedis(tb testing.TB, rdb *redis.Client, period time.Duration) *remote {
	tb.Helper()
	const prefix = "weir-thrtl:"
	st, err := goredisstore.NewCtx(rdb, prefix)
	if err != nil {
		tb.Fatal(err)
	}
	lim := newThrottledLimiter(tb, st, period)
	r := peer(rdb, "throttled", prefix, func(ctx context.Context, key string) (bool, error) {
		limited, _, err := lim.RateLimitCtx(ctx, key, 1)
		return !limited, err
	})
	r.many = true
	return r
}

// newUluleRedis returns ulule's fixed window, which is a script. It counts denied requests.
func newUluleRedis(tb testing.TB, rdb *redis.Client) *remote {
	tb.Helper()
	st, err := ululeredis.NewStoreWithOptions(rdb, limiter.StoreOptions{Prefix: "weir-ulule"})
	if err != nil {
		tb.Fatal(err)
	}
	lim := limiter.New(st, limiter.Rate{Limit: burst, Period: window})
	return peer(rdb, "ulule", "weir-ulule:", func(ctx context.Context, key string) (bool, error) {
		res, err := lim.Get(ctx, key)
		return err == nil && !res.Reached, err
	})
}

// newRedisRate returns a limiter that refills a token in each period.
func newRedisRate(rdb *redis.Client, period time.Duration) *remote {
	pipe := rdb.Pipeline()
	lim, queued := redis_rate.NewLimiter(rdb), redis_rate.NewLimiter(deferred{pipe})
	limit := redis_rate.Limit{Rate: 1, Period: period, Burst: burstOf(period)}
	const prefix = benchPrefix + ":"
	r := peer(rdb, "redis_rate", prefix, func(ctx context.Context, key string) (bool, error) {
		res, err := lim.Allow(ctx, prefix+key, limit)
		return err == nil && res.Allowed == 1, err
	}).pipelined(pipe, func(ctx context.Context, key string) error {
		_, err := queued.Allow(ctx, prefix+key, limit)
		return err
	}, func(reply any) bool {
		values, ok := reply.([]any)
		return ok && values[0] == int64(1)
	})
	r.reset = func(ctx context.Context, key ...string) error { return lim.Reset(ctx, prefix+key[0]) }
	return r
}

// A deferred is a pipeline that redis_rate can use. The replies of its scripts come
// later, so each caller is told that it was allowed.
type deferred struct{ redis.Pipeliner }

func (d deferred) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	d.Pipeliner.EvalSha(ctx, sha, keys, args...)
	return redis.NewCmdResult([]any{int64(1), int64(1), "-1", "0"}, nil)
}
