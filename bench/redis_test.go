package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/goredis"
)

const remoteKeys = 1000

// depth is how many decisions a pipeline holds.
const depth = 64

// A remote is a limiter that keeps its state on a server, or the floor, which
// keeps none.
type remote struct {
	name string

	// allow decides, in one round trip.
	allow func(ctx context.Context, key string) (allowed bool, err error)

	// queue adds to a pipeline the call that allow sends, and flush sends it. It
	// returns how many requests were allowed.
	queue func(ctx context.Context, key string) error
	flush func(ctx context.Context) (allowed int, err error)

	// reset forgets a key.
	reset func(ctx context.Context, key string) error
}

// remotes returns the contenders, their scripts loaded. The keys are forgotten at
// the end of tb.
func remotes(tb testing.TB, rdb *redis.Client) []*remote {
	tb.Helper()
	contenders := []*remote{
		newFloor(rdb),
		newWeirRedis(tb, rdb, "weir-gcra", "weir-bench", nil),
		newWeirRedis(tb, rdb, "weir-gcra-clock", "weir-clock", time.Now),
		newRedisRate(rdb),
	}
	known(tb, contenders)
	return contenders
}

// known warms the contenders, and makes them forget their keys at the end of tb.
func known(tb testing.TB, contenders []*remote) {
	tb.Helper()
	for _, r := range contenders {
		r.warm(tb)
	}
	tb.Cleanup(func() {
		ctx := context.Background()
		for _, r := range contenders {
			for _, key := range someKeys(remoteKeys) {
				if err := r.reset(ctx, key); err != nil {
					tb.Errorf("%s: forgetting %q: %v", r.name, key, err)
					return
				}
			}
		}
	})
}

// warm makes someKeys(remoteKeys) known, and the script.
func (r *remote) warm(tb testing.TB) {
	tb.Helper()
	ctx := context.Background()
	for _, key := range someKeys(remoteKeys) {
		if ok, err := r.allow(ctx, key); err != nil || !ok {
			tb.Fatalf("%s: a request for %q: allowed %v, error %v", r.name, key, ok, err)
		}
	}
}

// BenchmarkRedis asks for random keys, each caller one after the other, and
// reports the server's time for each as server-µs/op.
func BenchmarkRedis(b *testing.B) {
	rdb := connect(b)
	contenders := remotes(b, rdb)
	for _, callers := range []int{1, 32} {
		for _, r := range contenders {
			b.Run(fmt.Sprintf("impl=%s/callers=%d", r.name, callers), func(b *testing.B) { r.bench(b, rdb, callers) })
		}
	}
}

// bench asks for random keys, each caller one after the other.
func (r *remote) bench(b *testing.B, rdb *redis.Client, callers int) {
	draws := drawKeys(remoteKeys)
	b.ReportAllocs()
	r.warm(b)
	m := startMeter(b, rdb)
	ctx := context.Background()
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range callers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= b.N {
					return
				}
				if ok, err := r.allow(ctx, draws.at(i)); err != nil || !ok {
					b.Errorf("request %d: allowed %v, error %v", i, ok, err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	m.report(b, b.N)
}

// BenchmarkServer asks for random keys in pipelines of depth calls, so that the
// server is busy with scripts, and reports its time for each as server-µs/op. The
// time of the clients is not to be compared here.
func BenchmarkServer(b *testing.B) {
	rdb := connect(b)
	contenders := remotes(b, rdb)
	draws := drawKeys(remoteKeys)
	for _, r := range contenders {
		b.Run("impl="+r.name, func(b *testing.B) {
			ctx := context.Background()
			flush := func(want int) {
				if got, err := r.flush(ctx); err != nil || got != want {
					b.Fatalf("%d of %d requests were allowed, error %v", got, want, err)
				}
			}
			r.warm(b)
			m := startMeter(b, rdb)
			asked := 0
			for b.Loop() {
				if err := r.queue(ctx, draws.at(asked)); err != nil {
					b.Fatal(err)
				}
				if asked++; asked%depth == 0 {
					flush(depth)
				}
			}
			if rest := asked % depth; rest > 0 {
				flush(rest)
			}
			m.report(b, asked)
		})
	}
}

// TestRemotesAllow checks that every contender allows what the benchmarks ask, one
// by one and in a pipeline.
func TestRemotesAllow(t *testing.T) {
	ctx := context.Background()
	for _, r := range remotes(t, connect(t)) {
		t.Run(r.name, func(t *testing.T) {
			for range 2 {
				for _, key := range someKeys(depth) {
					if err := r.queue(ctx, key); err != nil {
						t.Fatal(err)
					}
				}
				if got, err := r.flush(ctx); err != nil || got != depth {
					t.Errorf("%d of %d requests were allowed, error %v", got, depth, err)
				}
			}
		})
	}
}

var floorScript = redis.NewScript("return 1")

// newFloor returns the least that a script costs: one that does nothing.
func newFloor(rdb *redis.Client) *remote {
	pipe := rdb.Pipeline()
	return &remote{
		name: "floor",
		allow: func(ctx context.Context, key string) (bool, error) {
			n, err := floorScript.Run(ctx, rdb, []string{key}).Int64()
			return n == 1, err
		},
		queue: func(ctx context.Context, key string) error {
			return pipe.EvalSha(ctx, floorScript.Hash(), []string{key}).Err()
		},
		flush: func(ctx context.Context) (int, error) {
			cmds, err := pipe.Exec(ctx)
			return len(cmds), err
		},
		reset: func(context.Context, string) error { return nil },
	}
}

// newWeirRedis has a prefix, like newRedisRate, that makes all keys about as
// long: a server takes longer over longer ones.
func newWeirRedis(tb testing.TB, rdb *redis.Client, name, prefix string, clock func() time.Time) *remote {
	tb.Helper()
	st := goredis.New(rdb)
	tape := &recorder{Store: st}
	opts := &weir.Options{Prefix: prefix, Clock: clock}
	newLimiter := func(st store.Store) *weir.Limiter {
		lim, err := weir.NewRules(st, []weir.Rule{{Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(perSecond), Burst: burst}}}, opts)
		if err != nil {
			tb.Fatal(err)
		}
		return lim
	}
	lim, recorded := newLimiter(st), newLimiter(tape)
	return &remote{
		name: name,
		allow: func(ctx context.Context, key string) (bool, error) {
			res, err := lim.Allow(ctx, key)
			return res.Allowed, err
		},
		queue: func(ctx context.Context, key string) error {
			if _, err := recorded.Allow(ctx, key); !errors.Is(err, errRecorded) {
				return fmt.Errorf("recording a call: %w", err)
			}
			return nil
		},
		flush: func(ctx context.Context) (int, error) {
			allowed := 0
			st.EvalBatch(ctx, tape.calls)
			for _, c := range tape.calls {
				if c.Err != nil {
					return allowed, c.Err
				}
				allowed += int(c.Reply[0].Int()) // 1 if every rule allowed
			}
			tape.calls = tape.calls[:0]
			return allowed, nil
		},
		reset: func(ctx context.Context, key string) error { return lim.Reset(ctx, key) },
	}
}

// A recorder is a store that runs nothing and keeps what it was to run, for a batch.
type recorder struct {
	store.Store
	calls []store.Eval
}

var errRecorded = errors.New("the call was recorded")

func (r *recorder) Eval(_ context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	r.calls = append(r.calls, store.Eval{Script: script, Keys: append([]string(nil), keys...), Args: append([]store.Arg(nil), args...)})
	return reply, errRecorded
}

func newRedisRate(rdb *redis.Client) *remote {
	pipe := rdb.Pipeline()
	lim, queued := redis_rate.NewLimiter(rdb), redis_rate.NewLimiter(deferred{pipe})
	limit := redis_rate.Limit{Rate: perSecond, Period: time.Second, Burst: burst}
	const prefix = "weir-bench:"
	return &remote{
		name: "redis_rate",
		allow: func(ctx context.Context, key string) (bool, error) {
			res, err := lim.Allow(ctx, prefix+key, limit)
			return err == nil && res.Allowed == 1, err
		},
		queue: func(ctx context.Context, key string) error {
			_, err := queued.Allow(ctx, prefix+key, limit)
			return err
		},
		flush: func(ctx context.Context) (int, error) {
			cmds, err := pipe.Exec(ctx)
			if err != nil {
				return 0, err
			}
			allowed := 0
			for _, cmd := range cmds {
				if reply, err := cmd.(*redis.Cmd).Slice(); err == nil && reply[0] == int64(1) {
					allowed++
				}
			}
			return allowed, nil
		},
		reset: func(ctx context.Context, key string) error { return lim.Reset(ctx, prefix+key) },
	}
}

// A deferred is a pipeline that redis_rate can use: the replies of its scripts
// come later, and until then each caller is told that it was allowed.
type deferred struct{ redis.Pipeliner }

func (d deferred) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	d.Pipeliner.EvalSha(ctx, sha, keys, args...)
	return redis.NewCmdResult([]any{int64(1), int64(1), "-1", "0"}, nil)
}
