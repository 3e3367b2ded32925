package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	many bool // a decision is not one EVALSHA

	// allow decides, in one EVALSHA unless many is set.
	allow func(ctx context.Context, key ...string) (allowed bool, err error)

	// queue adds to a pipeline the call that allow sends. flush sends the pipeline,
	// and returns how many requests were allowed. Both are nil in remotes that only
	// decide one by one.
	queue func(ctx context.Context, key ...string) error
	flush func(ctx context.Context) (allowed int, err error)

	// reset deletes the state of a key.
	reset func(ctx context.Context, key ...string) error
}

// remotes returns the contenders that can be asked in pipelines, with their scripts
// loaded. Their keys are deleted at the end of tb.
func remotes(tb testing.TB, rdb *redis.Client) []*remote {
	tb.Helper()
	rule := weir.Rule{Algorithm: gcra}
	contenders := []*remote{
		newFloor(rdb),
		newWeirRedis(tb, rdb, "weir-bucket", weir.Policy{Name: "buckt", Rules: []weir.Rule{{Algorithm: tokenBucket}}}, nil),
		newWeirRedis(tb, rdb, "weir-gcra", policy(rule), nil),
		newWeirRedis(tb, rdb, "weir-gcra-clock", weir.Policy{Name: "clock", Rules: []weir.Rule{rule}}, time.Now),
		newRedisRate(rdb, time.Second/perSecond),
	}
	known(tb, contenders)
	return contenders
}

// others returns the contenders that are asked one by one. FixedWindow is compared with
// ulule.
func others(tb testing.TB, rdb *redis.Client) []*remote {
	tb.Helper()
	window := weir.Policy{Name: "windw", Rules: []weir.Rule{{Algorithm: algorithm.FixedWindow{Limit: burst, Window: window}}}}
	contenders := []*remote{
		newWeirRedis(tb, rdb, "weir-window", window, nil),
		newThrottledRedis(tb, rdb, time.Second/perSecond),
		newUluleRedis(tb, rdb),
	}
	known(tb, contenders)
	return contenders
}

// known makes the contenders' keys known, and deletes them at the end of tb.
func known(tb testing.TB, contenders []*remote) {
	tb.Helper()
	for _, r := range contenders {
		r.warm(tb)
	}
	tb.Cleanup(func() {
		for _, r := range contenders {
			each(tb, someKeys(remoteKeys), func(key string) error {
				if err := r.reset(context.Background(), key); err != nil {
					return fmt.Errorf("%s: deleting the state of %q: %w", r.name, key, err)
				}
				return nil
			})
		}
	})
}

// each calls f for each key, from several goroutines. An error fails tb.
func each(tb testing.TB, keys []string, f func(key string) error) {
	tb.Helper()
	const callers = 32
	errs := make([]error, callers)
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := c; i < len(keys) && errs[c] == nil; i += callers {
				errs[c] = f(keys[i])
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		tb.Fatal(err)
	}
}

// forget resets keys.
func (r *remote) forget(tb testing.TB, keys ...string) {
	tb.Helper()
	for _, key := range keys {
		if err := r.reset(context.Background(), key); err != nil {
			tb.Fatalf("%s: deleting the state of %q: %v", r.name, key, err)
		}
	}
}

// warm asks once for each of someKeys(remoteKeys). It makes the script known too.
func (r *remote) warm(tb testing.TB) {
	tb.Helper()
	keys := someKeys(remoteKeys)
	ask := func(key string) error {
		if ok, err := r.allow(context.Background(), key); err != nil || !ok {
			return fmt.Errorf("%s: a request for %q: allowed %v, error %w", r.name, key, ok, err)
		}
		return nil
	}
	if err := ask(keys[0]); err != nil {
		tb.Fatal(err)
	}
	each(tb, keys[1:], ask)
}

// BenchmarkRedis asks for random keys, each caller one after the other, and reports
// what each decision costs the server.
func BenchmarkRedis(b *testing.B) {
	rdb := connect(b)
	eachRemote(b, rdb, append(remotes(b, rdb), others(b, rdb)...))
}

// eachRemote asks as one caller and as 32 callers at once, the contenders in turn.
func eachRemote(b *testing.B, rdb *redis.Client, contenders []*remote) {
	for _, callers := range []int{1, 32} {
		for _, r := range contenders {
			b.Run(fmt.Sprintf("impl=%s/callers=%d", r.name, callers), r.bench(callers, rdb))
		}
	}
}

// bench returns a benchmark of random keys, for which each caller asks one after the other.
func (r *remote) bench(callers int, nodes ...*redis.Client) func(*testing.B) {
	draws, warm := drawKeys(remoteKeys), false
	return func(b *testing.B) {
		if !warm { // it is called again with more and more decisions
			r.warm(b)
			warm = true
		}
		r.run(b, callers, draws, nodes)
	}
}

func (r *remote) run(b *testing.B, callers int, draws draws, nodes []*redis.Client) {
	b.ReportAllocs()
	m := startMeter(b, nodes...)
	fromCallers(b, callers, func(i int) error {
		ok, err := r.allow(context.Background(), draws.at(i))
		if err == nil && !ok {
			err = errors.New("it was denied")
		}
		return err
	})
	if r.many {
		m.reportAny(b, b.N)
	} else {
		m.report(b, b.N)
	}
}

// fromCallers measures b.N requests from as many callers, each of which makes one after the
// other.
func fromCallers(b *testing.B, callers int, request func(i int) error) {
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
				if err := request(i); err != nil {
					b.Errorf("request %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
}

// BenchmarkServer asks for random keys in pipelines of depth calls, so that the
// server is busy with scripts, and reports its time for each as server-µs/op. Do not
// compare the time of the clients here.
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
			key:     func(i int) []string { return []string{draws.at(i)} },
		}.run(rdb))
	}
}

// peer returns a remote of another limiter, which is asked one by one. It keeps the state of a key
// under prefix and the key.
func peer(rdb *redis.Client, name, prefix string, allow func(ctx context.Context, key string) (bool, error)) *remote {
	return &remote{
		name:  name,
		allow: func(ctx context.Context, key ...string) (bool, error) { return allow(ctx, key[0]) },
		reset: func(ctx context.Context, key ...string) error { return rdb.Del(ctx, prefix+key[0]).Err() },
	}
}

// pipelined makes r a remote that can be asked in pipelines. queue adds a script to a pipeline, and
// allowed judges its reply.
func (r *remote) pipelined(pipe redis.Pipeliner, queue func(ctx context.Context, key string) error, allowed func(reply any) bool) *remote {
	r.queue = func(ctx context.Context, key ...string) error { return queue(ctx, key[0]) }
	r.flush = func(ctx context.Context) (n int, err error) {
		cmds, err := pipe.Exec(ctx)
		for _, cmd := range cmds {
			if allowed(cmd.(*redis.Cmd).Val()) {
				n++
			}
		}
		return n, err
	}
	return r
}

var floorScript = redis.NewScript("return 1")

// newFloor returns the least that a script costs: one that does nothing.
func newFloor(rdb *redis.Client) *remote {
	pipe := rdb.Pipeline()
	return peer(rdb, "floor", "", func(ctx context.Context, key string) (bool, error) {
		n, err := floorScript.Run(ctx, rdb, []string{key}).Int64()
		return n == 1, err
	}).pipelined(pipe, func(ctx context.Context, key string) error {
		return pipe.EvalSha(ctx, floorScript.Hash(), []string{key}).Err()
	}, func(reply any) bool { return reply == int64(1) })
}

// benchName is the name of the limiters, whose keys in the server then begin with
// "weir:bench:". Those of other limiters begin with benchPrefix, so that all keys are
// about as long: a server takes longer over longer ones.
const (
	benchName   = "bench"
	benchPrefix = "weir-bench"
)

// policy returns a policy of keys of one segment.
func policy(rules ...weir.Rule) weir.Policy { return weir.Policy{Name: benchName, Rules: rules} }

func newLimiter(tb testing.TB, st store.Store, p weir.Policy, opts *weir.Options) *weir.Limiter {
	tb.Helper()
	lim, err := weir.NewPolicy(st, p, opts)
	if err != nil {
		tb.Fatal(err)
	}
	return lim
}

// newWeirRedis returns a remote for a policy.
func newWeirRedis(tb testing.TB, rdb *redis.Client, name string, p weir.Policy, clock func() time.Time) *remote {
	tb.Helper()
	return newWeirAsking(tb, rdb, name, p, clock, func() weir.Request { return weir.Request{} })
}

// newWeirAsking is newWeirRedis for requests that ask makes. They have no key yet.
func newWeirAsking(tb testing.TB, rdb *redis.Client, name string, p weir.Policy, clock func() time.Time, ask func() weir.Request) *remote {
	tb.Helper()
	st := goredis.New(rdb)
	tape := &recorder{Store: st}
	opts := &weir.Options{Clock: clock}
	lim, recorded := newLimiter(tb, st, p, opts), newLimiter(tb, tape, p, opts)
	request := func(key []string) weir.Request {
		r := ask()
		r.Key = weir.KeyOf(key...)
		return r
	}
	return &remote{
		name: name,
		allow: func(ctx context.Context, key ...string) (bool, error) {
			res, err := lim.Decide(ctx, request(key), nil)
			return res.Allowed, err
		},
		queue: func(ctx context.Context, key ...string) error {
			if _, err := recorded.Decide(ctx, request(key), nil); !errors.Is(err, errRecorded) {
				return fmt.Errorf("recording a call: %w", err)
			}
			return nil
		},
		flush: func(ctx context.Context) (int, error) { return tape.flush(ctx, st) },
		reset: lim.Reset,
	}
}

// A recorder is a store that runs nothing. It keeps the calls for a batch.
type recorder struct {
	store.Store
	calls []store.Eval
}

var errRecorded = errors.New("the call was recorded")

func (r *recorder) Eval(_ context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	r.calls = append(r.calls, store.Eval{Script: script, Keys: append([]string(nil), keys...), Args: append([]store.Arg(nil), args...)})
	return reply, errRecorded
}

// flush sends the calls to st, and counts the allowed ones.
func (r *recorder) flush(ctx context.Context, st store.Batcher) (allowed int, err error) {
	calls := r.calls
	r.calls = r.calls[:0]
	st.EvalBatch(ctx, calls)
	for _, c := range calls {
		if c.Err != nil {
			return allowed, c.Err
		}
		if passed(c.Reply) {
			allowed++
		}
	}
	return allowed, nil
}

// passed reports whether the reply of a server says that the request was allowed. The
// reply is one string that begins with 1 or 0.
func passed(reply []store.Value) bool {
	return len(reply) == 1 && strings.HasPrefix(reply[0].Str(), "1;")
}
