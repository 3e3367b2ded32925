package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	rueidisclient "github.com/redis/rueidis"
	"github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-redisstore"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/bench/internal/server"
)

// slow is the period of a rate under which no key expires while others are added.
const slow = time.Hour

// hoarders are limiters whose state in a server is compared.
var hoarders = []struct {
	name string
	make func(testing.TB, *redis.Client) *remote
}{
	{"weir-bucket", func(tb testing.TB, rdb *redis.Client) *remote {
		bucket := algorithm.TokenBucket{Refill: algorithm.Every(slow), Capacity: int64(burstOf(slow))}
		return newWeirRedis(tb, rdb, "weir-bucket", policy(weir.Rule{Algorithm: bucket}), nil)
	}},
	{"redis_rate", func(_ testing.TB, rdb *redis.Client) *remote { return newRedisRate(rdb, slow) }},
	{"throttled", func(tb testing.TB, rdb *redis.Client) *remote { return newThrottledRedis(tb, rdb, slow) }},
	{"ulule", newUluleRedis},
	{"redisstore", func(tb testing.TB, rdb *redis.Client) *remote {
		return newRedisstore(tb, rdb, "redisstore", func(c *redisstore.Config) (limiter.Store, error) {
			return redisstore.NewWithPool(c, newRedigoPool(tb, rdb))
		})
	}},
	{"rueidislimiter", func(tb testing.TB, rdb *redis.Client) *remote {
		client, err := rueidisclient.NewClient(rueidisOptions(rdb))
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(client.Close)
		return newRueidisLimiter(tb, client)
	}},
}

// BenchmarkPeerBytes is BenchmarkBytes of limiters with one rule, each asked once for each
// caller, on the server's clock.
func BenchmarkPeerBytes(b *testing.B) {
	for _, c := range hoarders {
		b.Run("impl="+c.name, func(b *testing.B) {
			var bytes float64
			for b.Loop() {
				bytes = hoard(b, c.make)
			}
			b.ReportMetric(bytes, "bytes/key")
			b.ReportMetric(0, "ns/op") // hides the time
		})
	}
}

// hoard returns how much a new server's used_memory grows for each caller.
func hoard(tb testing.TB, make func(testing.TB, *redis.Client) *remote) float64 {
	tb.Helper()
	s := newServer(tb, server.Options{})
	defer s.Stop()
	meter, rdb := newClient(s.Addr), newClient(s.Addr)
	defer func() { _ = meter.Close() }()
	defer func() { _ = rdb.Close() }()
	before := usedMemory(tb, meter)
	r := make(tb, rdb)
	var names []string
	for i := range callers() {
		names = append(names, user(i))
	}
	each(tb, names, func(key string) error {
		if ok, err := r.allow(context.Background(), key); err != nil || !ok {
			return fmt.Errorf("%s: a request for %q: allowed %v, error %w", r.name, key, ok, err)
		}
		return nil
	})
	return float64(usedMemory(tb, meter)-before) / float64(len(names))
}
