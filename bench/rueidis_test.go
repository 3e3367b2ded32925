package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	rueidisclient "github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislimiter"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store/rueidis"
)

// window is the length of the fixed windows, which outlast any benchmark.
const window = 24 * time.Hour

// BenchmarkRueidis is BenchmarkRedis over rueidis, which sends the commands of
// concurrent callers together, beside redis_rate over go-redis.
func BenchmarkRueidis(b *testing.B) {
	rdb := connect(b)
	contenders := append(rueidisRemotes(b, rdb), newRedisRate(rdb))
	known(b, contenders)
	for _, callers := range []int{1, 32} {
		for _, r := range contenders {
			b.Run(fmt.Sprintf("impl=%s/callers=%d", r.name, callers), func(b *testing.B) { r.bench(b, rdb, callers) })
		}
	}
}

// rueidisRemotes returns the contenders over rueidis. None has a pipeline: the
// client makes them.
func rueidisRemotes(tb testing.TB, rdb *redis.Client) []*remote {
	tb.Helper()
	opts := rueidisclient.ClientOption{InitAddress: []string{rdb.Options().Addr}, ForceSingleClient: true, DisableCache: true}
	client, err := rueidisclient.NewClient(opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(client.Close)
	return []*remote{
		newRueidisFloor(client),
		newWeirRueidis(tb, client, "weir-gcra", benchName, algorithm.GCRA{Rate: algorithm.PerSecond(perSecond), Burst: burst}, nil),
		newWeirRueidis(tb, client, "weir-window", "windw", algorithm.FixedWindow{Limit: burst, Window: window}, nil),
		newWeirRueidis(tb, client, "weir-window-clock", "clock", algorithm.FixedWindow{Limit: burst, Window: window}, time.Now),
		newRueidisLimiter(tb, client),
	}
}

// newRueidisFloor returns the least that a script costs over rueidis.
func newRueidisFloor(client rueidisclient.Client) *remote {
	lua := rueidisclient.NewLuaScript("return 1")
	return &remote{
		name: "floor",
		allow: func(ctx context.Context, key ...string) (bool, error) {
			n, err := lua.Exec(ctx, client, key[:1], nil).AsInt64()
			return n == 1, err
		},
		reset: func(context.Context, ...string) error { return nil },
	}
}

// newWeirRueidis returns a limiter whose name makes its keys as long as the others'.
func newWeirRueidis(tb testing.TB, client rueidisclient.Client, name, limiter string, a algorithm.Algorithm, clock func() time.Time) *remote {
	tb.Helper()
	lim, err := weir.New(limiter, rueidis.New(client), a, &weir.Options{Clock: clock})
	if err != nil {
		tb.Fatal(err)
	}
	return &remote{
		name: name,
		allow: func(ctx context.Context, key ...string) (bool, error) {
			res, err := lim.Allow(ctx, key...)
			return res.Allowed, err
		},
		reset: func(ctx context.Context, key ...string) error { return lim.Reset(ctx, key...) },
	}
}

// newRueidisLimiter returns the fixed window of rueidislimiter. It sends its own clock
// to the server, keeps two keys for each caller, and counts denied requests.
func newRueidisLimiter(tb testing.TB, client rueidisclient.Client) *remote {
	tb.Helper()
	lim, err := rueidislimiter.NewRateLimiter(rueidislimiter.RateLimiterOption{
		ClientBuilder: func(rueidisclient.ClientOption) (rueidisclient.Client, error) { return client, nil },
		KeyPrefix:     benchPrefix,
		Limit:         burst,
		Window:        window,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return &remote{
		name: "rueidislimiter",
		allow: func(ctx context.Context, key ...string) (bool, error) {
			res, err := lim.Allow(ctx, key[0])
			return res.Allowed, err
		},
		reset: func(ctx context.Context, key ...string) error {
			tagged := benchPrefix + ":{" + key[0] + "}"
			return client.Do(ctx, client.B().Del().Key(tagged, tagged+":ex").Build()).Error()
		},
	}
}
