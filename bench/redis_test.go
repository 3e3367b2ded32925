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
	allow func(ctx context.Context, path ...string) (allowed bool, err error)

	// queue adds to a pipeline the call that allow sends, and flush sends it. It
	// returns how many requests were allowed.
	queue func(ctx context.Context, path ...string) error
	flush func(ctx context.Context) (allowed int, err error)

	// reset forgets a path. Most remotes know paths of one segment only: a key.
	reset func(ctx context.Context, path ...string) error
}

// remotes returns the contenders, their scripts loaded. The keys are forgotten at
// the end of tb.
func remotes(tb testing.TB, rdb *redis.Client) []*remote {
	tb.Helper()
	gcra := weir.Rule{Name: "gcra", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(perSecond), Burst: burst}}
	contenders := []*remote{
		newFloor(rdb),
		newWeirRedis(tb, rdb, "weir-gcra", weir.Options{}, gcra),
		newWeirRedis(tb, rdb, "weir-gcra-clock", weir.Options{Prefix: "weir-clock", Clock: time.Now}, gcra),
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
		for _, r := range contenders {
			r.forget(tb, someKeys(remoteKeys))
		}
	})
}

// forget resets every key, with what follows it in the path.
func (r *remote) forget(tb testing.TB, keys []string, rest ...string) {
	tb.Helper()
	for _, key := range keys {
		if err := r.reset(context.Background(), append([]string{key}, rest...)...); err != nil {
			tb.Fatalf("%s: forgetting %q: %v", r.name, key, err)
		}
	}
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
	benchServer(b, rdb, remotes(b, rdb))
}

// benchServer is BenchmarkServer of contenders.
func benchServer(b *testing.B, rdb *redis.Client, contenders []*remote) {
	draws := drawKeys(remoteKeys)
	for _, r := range contenders {
		b.Run("impl="+r.name, scene{
			remote:  r,
			allowed: true,
			prepare: r.warm,
			path:    func(i int) []string { return []string{draws.at(i)} },
		}.run(rdb))
	}
}

// TestRemotesAllow checks that every contender allows what the benchmarks ask, one
// by one and in a pipeline.
func TestRemotesAllow(t *testing.T) {
	for _, r := range remotes(t, connect(t)) {
		t.Run(r.name, func(t *testing.T) {
			for range 2 {
				r.askAll(t, depth, true, func(i int) []string { return []string{someKeys(depth)[i]} })
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
		allow: func(ctx context.Context, path ...string) (bool, error) {
			n, err := floorScript.Run(ctx, rdb, path).Int64()
			return n == 1, err
		},
		queue: func(ctx context.Context, path ...string) error {
			return pipe.EvalSha(ctx, floorScript.Hash(), path).Err()
		},
		flush: func(ctx context.Context) (int, error) {
			cmds, err := pipe.Exec(ctx)
			return len(cmds), err
		},
		reset: func(context.Context, ...string) error { return nil },
	}
}

// benchPrefix begins the keys of all that have no other prefix, so that all keys
// are about as long: a server takes longer over longer ones.
const benchPrefix = "weir-bench"

// newWeirRedis makes a limiter of rules, which have names.
func newWeirRedis(tb testing.TB, rdb *redis.Client, name string, opts weir.Options, rules ...weir.Rule) *remote {
	tb.Helper()
	ask := func(path []string) weir.Request { return weir.Request{Path: path, Cost: 1} }
	return newWeirAsking(tb, rdb, name, opts, ask, rules...)
}

// newWeirAsking is newWeirRedis for requests that ask makes.
func newWeirAsking(tb testing.TB, rdb *redis.Client, name string, opts weir.Options, ask func(path []string) weir.Request, rules ...weir.Rule) *remote {
	tb.Helper()
	st := goredis.New(rdb)
	tape := &recorder{Store: st}
	if opts.Prefix == "" {
		opts.Prefix = benchPrefix
	}
	newLimiter := func(st store.Store) *weir.Limiter {
		lim, err := weir.NewRules(st, rules, &opts)
		if err != nil {
			tb.Fatal(err)
		}
		return lim
	}
	lim, recorded := newLimiter(st), newLimiter(tape)
	return &remote{
		name: name,
		allow: func(ctx context.Context, path ...string) (bool, error) {
			res, err := lim.Do(ctx, ask(path))
			return res.Allowed, err
		},
		queue: func(ctx context.Context, path ...string) error {
			if _, err := recorded.Do(ctx, ask(path)); !errors.Is(err, errRecorded) {
				return fmt.Errorf("recording a call: %w", err)
			}
			return nil
		},
		flush: func(ctx context.Context) (int, error) { return tape.flush(ctx, st) },
		reset: func(ctx context.Context, path ...string) error {
			for _, rule := range rules {
				if err := lim.ResetRule(ctx, rule.Name, path...); err != nil {
					return err
				}
			}
			return nil
		},
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

// flush sends the calls to st, and counts those that every rule allowed.
func (r *recorder) flush(ctx context.Context, st store.Batcher) (allowed int, err error) {
	calls := r.calls
	r.calls = r.calls[:0]
	st.EvalBatch(ctx, calls)
	for _, c := range calls {
		if c.Err != nil {
			return allowed, c.Err
		}
		allowed += int(c.Reply[0].Int())
	}
	return allowed, nil
}

func newRedisRate(rdb *redis.Client) *remote {
	pipe := rdb.Pipeline()
	lim, queued := redis_rate.NewLimiter(rdb), redis_rate.NewLimiter(deferred{pipe})
	limit := redis_rate.Limit{Rate: perSecond, Period: time.Second, Burst: burst}
	const prefix = benchPrefix + ":"
	return &remote{
		name: "redis_rate",
		allow: func(ctx context.Context, path ...string) (bool, error) {
			res, err := lim.Allow(ctx, prefix+path[0], limit)
			return err == nil && res.Allowed == 1, err
		},
		queue: func(ctx context.Context, path ...string) error {
			_, err := queued.Allow(ctx, prefix+path[0], limit)
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
		reset: func(ctx context.Context, path ...string) error { return lim.Reset(ctx, prefix+path[0]) },
	}
}

// A deferred is a pipeline that redis_rate can use: the replies of its scripts
// come later, and until then each caller is told that it was allowed.
type deferred struct{ redis.Pipeliner }

func (d deferred) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	d.Pipeliner.EvalSha(ctx, sha, keys, args...)
	return redis.NewCmdResult([]any{int64(1), int64(1), "-1", "0"}, nil)
}
