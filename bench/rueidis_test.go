package bench

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	rueidisclient "github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislimiter"
	valkeyclient "github.com/valkey-io/valkey-go"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/rueidis"
	"github.com/weir-go/weir/store/valkey"
)

// window is the length of the fixed windows, which outlast any benchmark.
const window = 24 * time.Hour

// BenchmarkRueidis is BenchmarkRedis over rueidis, which sends the commands of
// concurrent callers together, and over its fork valkey-go, beside redis_rate over go-redis.
func BenchmarkRueidis(b *testing.B) {
	rdb := connect(b)
	contenders := append(rueidisRemotes(b, rdb), newRedisRate(rdb, time.Second/perSecond))
	known(b, contenders)
	eachRemote(b, rdb, contenders)
}

// rueidisRemotes returns the contenders over rueidis and valkey-go. None has a pipeline: the
// clients make them.
func rueidisRemotes(tb testing.TB, rdb *redis.Client) []*remote {
	tb.Helper()
	client := newRueidisClient(tb, rdb)
	fork, err := valkeyclient.NewClient(valkeyclient.ClientOption{InitAddress: []string{rdb.Options().Addr}, ForceSingleClient: true, DisableCache: true})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(fork.Close)
	st := rueidis.New(client)
	return []*remote{
		newRueidisFloor(rdb, client),
		newWeirOver(tb, st, "weir-gcra", benchName, gcra, nil),
		newWeirOver(tb, valkey.New(fork), "weir-gcra-valkey", "vlkey", gcra, nil),
		newWeirOver(tb, st, "weir-window", "windw", algorithm.FixedWindow{Limit: burst, Window: window}, nil),
		newWeirOver(tb, st, "weir-window-clock", "clock", algorithm.FixedWindow{Limit: burst, Window: window}, time.Now),
		newRueidisLimiter(tb, rdb, client),
	}
}

// newRueidisClient returns a client of the same server.
func newRueidisClient(tb testing.TB, rdb *redis.Client) rueidisclient.Client {
	tb.Helper()
	client, err := rueidisclient.NewClient(rueidisclient.ClientOption{InitAddress: []string{rdb.Options().Addr}, ForceSingleClient: true, DisableCache: true})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(client.Close)
	return client
}

// newRueidisFloor returns the least that a script costs over rueidis.
func newRueidisFloor(rdb *redis.Client, client rueidisclient.Client) *remote {
	lua := rueidisclient.NewLuaScript("return 1")
	return peer(rdb, "floor", "", func(ctx context.Context, key string) (bool, error) {
		n, err := lua.Exec(ctx, client, []string{key}, nil).AsInt64()
		return n == 1, err
	})
}

// newWeirOver returns a limiter over st, whose name makes its keys as long as the others'.
func newWeirOver(tb testing.TB, st store.Store, name, limiter string, a algorithm.Algorithm, clock func() time.Time, wrappers ...weir.Wrapper) *remote {
	tb.Helper()
	lim := newLimiter(tb, st, weir.Policy{Name: limiter, Rules: []weir.Rule{{Algorithm: a}}}, &weir.Options{Clock: clock})
	lim, err := lim.Wrap(wrappers...)
	if err != nil {
		tb.Fatal(err)
	}
	return &remote{
		name: name,
		allow: func(ctx context.Context, key ...string) (bool, error) {
			res, err := lim.Allow(ctx, key...)
			return res.Allowed, err
		},
		reset: lim.Reset,
	}
}

// newRueidisLimiter returns the fixed window of rueidislimiter. It sends its own clock
// to the server, keeps two keys for each caller, and counts denied requests.
func newRueidisLimiter(tb testing.TB, rdb *redis.Client, client rueidisclient.Client) *remote {
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
	r := peer(rdb, "rueidislimiter", "", func(ctx context.Context, key string) (bool, error) {
		res, err := lim.Allow(ctx, key)
		return res.Allowed, err
	})
	r.reset = func(ctx context.Context, key ...string) error {
		tagged := benchPrefix + ":{" + key[0] + "}"
		return rdb.Del(ctx, tagged, tagged+":ex").Err()
	}
	return r
}
