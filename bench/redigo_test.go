package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	redigoclient "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
	"github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-redisstore"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/goredis"
	"github.com/weir-go/weir/store/redigo"
)

// batch is the number of decisions in a batch of BenchmarkBatch.
const batch = 100

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
	gcra := algorithm.GCRA{Rate: algorithm.PerSecond(perSecond), Burst: burst}
	st := func() store.Store { return redigo.New(newRedigoPool(tb, rdb)) }
	return []*remote{
		newRedigoFloor(newRedigoPool(tb, rdb)),
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
func newRedigoFloor(pool *redigoclient.Pool) *remote {
	lua := redigoclient.NewScript(1, "return 1")
	return &remote{
		name: "floor",
		allow: func(_ context.Context, key ...string) (bool, error) {
			conn := pool.Get()
			defer func() { _ = conn.Close() }()
			n, err := redigoclient.Int(lua.Do(conn, key[0]))
			return n == 1, err
		},
		reset: func(context.Context, ...string) error { return nil },
	}
}

// newWeirRedigo returns a limiter whose name makes its keys as long as the others'.
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
	return &remote{
		name: name,
		allow: func(ctx context.Context, key ...string) (bool, error) {
			_, _, _, ok, err := st.Take(ctx, prefix+key[0])
			return ok, err
		},
		reset: func(ctx context.Context, key ...string) error { return rdb.Del(ctx, prefix+key[0]).Err() },
	}
}

// BenchmarkBatch asks for batch decisions, one after the other and all at once, and
// reports the time of each.
func BenchmarkBatch(b *testing.B) {
	rdb := connect(b)
	for name, st := range batchers(b, rdb) {
		calls := recordBatch(b, st)
		for way, run := range ways(st) {
			b.Run(fmt.Sprintf("store=%s/way=%s", name, way), func(b *testing.B) {
				ctx := context.Background()
				for b.Loop() {
					for i := range calls {
						calls[i].Reply = calls[i].Reply[:0]
					}
					run(ctx, calls)
					for i := range calls {
						if c := &calls[i]; c.Err != nil || !passed(c.Reply) {
							b.Fatalf("call %d: %v, %v", i, c.Reply, c.Err)
						}
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/batch, "ns/decision")
			})
		}
	}
}

// TestWays checks that both ways of BenchmarkBatch decide.
func TestWays(t *testing.T) {
	for name, st := range batchers(t, connect(t)) {
		calls := recordBatch(t, st)
		for way, run := range ways(st) {
			run(t.Context(), calls)
			for i := range calls {
				c := &calls[i]
				if c.Err != nil || !passed(c.Reply) {
					t.Errorf("%s, %s: call %d: %v, %v", name, way, i, c.Reply, c.Err)
				}
				c.Reply = nil
			}
		}
	}
}

// ways returns how a store runs a batch.
func ways(st store.Store) map[string]func(context.Context, []store.Eval) {
	return map[string]func(context.Context, []store.Eval){
		"calls": func(ctx context.Context, calls []store.Eval) {
			for i := range calls {
				c := &calls[i]
				c.Reply, c.Err = st.Eval(ctx, c.Script, c.Keys, c.Args, c.Reply)
			}
		},
		"batch": st.(store.Batcher).EvalBatch,
	}
}

func batchers(tb testing.TB, rdb *redis.Client) map[string]store.Store {
	tb.Helper()
	return map[string]store.Store{"goredis": goredis.New(rdb), "redigo": redigo.New(newRedigoPool(tb, rdb))}
}

// recordBatch returns the calls of a batch of decisions of a GCRA, each on a key of its
// own. The keys are deleted at the end of tb.
func recordBatch(tb testing.TB, st store.Store) []store.Eval {
	tb.Helper()
	tape := &recorder{Store: st}
	gcra := algorithm.GCRA{Rate: algorithm.PerSecond(perSecond), Burst: burst}
	lim, err := weir.New(benchName, st, gcra, nil)
	if err != nil {
		tb.Fatal(err)
	}
	recorded, err := weir.New(benchName, tape, gcra, nil)
	if err != nil {
		tb.Fatal(err)
	}
	for _, key := range someKeys(batch) {
		_, _ = recorded.Allow(tb.Context(), key) // errRecorded
	}
	if len(tape.calls) != batch {
		tb.Fatalf("%d calls were recorded, want %d", len(tape.calls), batch)
	}
	tb.Cleanup(func() {
		for _, key := range someKeys(batch) {
			if err := lim.Reset(context.Background(), key); err != nil {
				tb.Errorf("deleting the state of %q: %v", key, err)
			}
		}
	})
	return tape.calls
}
