package bench

import (
	"context"
	"testing"
	"time"

	redigoclient "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
	"github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-redisstore"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/redigo"
)

// BenchmarkRedigo is BenchmarkRedis over redigo.
func BenchmarkRedigo(b *testing.B) {
	rdb := connect(b)
	contenders := redigoRemotes(b, rdb)
	known(b, contenders)
	eachRemote(b, rdb, contenders)
}

// redigoRemotes returns the contenders over redigo, each with a pool of its own.
func redigoRemotes(tb testing.TB, rdb *redis.Client) []*remote {
	tb.Helper()
	st := func() store.Store { return redigo.New(newRedigoPool(tb, rdb)) }
	return []*remote{
		newRedigoFloor(rdb, newRedigoPool(tb, rdb)),
		newWeirOver(tb, st(), "weir-bucket", "buckt", tokenBucket, nil),
		newWeirOver(tb, st(), "weir-gcra", benchName, gcra, nil),
		newWeirOver(tb, st(), "weir-gcra-clock", "clock", gcra, time.Now),
		newRedisstore(tb, rdb, "redisstore", func(c *redisstore.Config) (limiter.Store, error) {
			return redisstore.NewWithPool(c, newRedigoPool(tb, rdb))
		}),
		newRedisstore(tb, rdb, "redisstore-new", func(c *redisstore.Config) (limiter.Store, error) {
			c.Dial = func() (redigoclient.Conn, error) { return redigoclient.Dial("tcp", rdb.Options().Addr) }
			return redisstore.New(c)
		}),
	}
}

// newRedigoPool returns a pool that keeps as many connections as there are callers.
func newRedigoPool(tb testing.TB, rdb *redis.Client) *redigoclient.Pool {
	tb.Helper()
	addr := rdb.Options().Addr
	pool := &redigoclient.Pool{
		MaxIdle: 32,
		DialContext: func(ctx context.Context) (redigoclient.Conn, error) {
			return redigoclient.DialContext(ctx, "tcp", addr)
		},
	}
	tb.Cleanup(func() { _ = pool.Close() })
	return pool
}

// newRedigoFloor returns the least that a script costs over redigo.
func newRedigoFloor(rdb *redis.Client, pool *redigoclient.Pool) *remote {
	lua := redigoclient.NewScript(1, "return 1")
	return peer(rdb, "floor", "", func(_ context.Context, key string) (bool, error) {
		conn := pool.Get()
		defer func() { _ = conn.Close() }()
		n, err := redigoclient.Int(lua.Do(conn, key))
		return n == 1, err
	})
}

// newRedisstore returns go-limiter's token bucket on Redis, which sends its own clock
// to the server. The pool that redisstore.New makes keeps no connection, so each
// decision makes one.
func newRedisstore(tb testing.TB, rdb *redis.Client, name string, open func(*redisstore.Config) (limiter.Store, error)) *remote {
	tb.Helper()
	const prefix = benchPrefix + ":"
	st, err := open(&redisstore.Config{Tokens: burst, Interval: window})
	if err != nil {
		tb.Fatal(err)
	}
	return peer(rdb, name, prefix, func(ctx context.Context, key string) (bool, error) {
		_, _, _, ok, err := st.Take(ctx, prefix+key)
		return ok, err
	})
}
