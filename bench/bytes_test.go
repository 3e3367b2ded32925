package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-redisstore"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/bench/internal/server"
	"github.com/weir-go/weir/rediscell"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/goredis"
)

// A footprint is the state that each caller of a limiter leaves on a server.
type footprint struct {
	name  string
	calls int           // of each caller, one after the other
	step  time.Duration // between two calls, also of different callers
	new   newAsker
}

// callers returns how many callers leave their state. With -short it is a quarter: a hash
// table is then as full.
func callers() int {
	if testing.Short() {
		return 25_000
	}
	return 100_000
}

// A newAsker returns a function that asks for a caller.
type newAsker func(st store.Store, opts *weir.Options) (asker, error)

type asker func(ctx context.Context, caller string) error

var footprints = []footprint{
	{"gcra", 1, time.Millisecond, one(algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 10})},
	{"fixedwindow", 1, time.Millisecond, one(algorithm.FixedWindow{Limit: 10, Window: time.Second})},
	{"metadatawindow/entries=3", 3, time.Millisecond, metadata},
	{"metadatawindow/entries=10", 10, time.Millisecond, metadata},
	{"slidingcounter", 1, time.Millisecond, one(algorithm.SlidingCounter{Limit: 10, Window: time.Second})},
	{"tokenbucket", 1, time.Millisecond, one(algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(10)})},
	{"leakybucket", 1, time.Millisecond, one(algorithm.LeakyBucket{Rate: algorithm.PerSecond(10), Queue: 9})},
	{"slidingbuckets/used=1", 1, time.Second, one(threeSpans)},
	{"slidingbuckets/used=15", 15, time.Second, one(threeSpans)},
	{"slidinglog/entries=3", 3, time.Millisecond, one(tokens)},
	{"slidinglog/entries=20", 20, time.Millisecond, one(tokens)},
	{"concurrency/leases=3", 3, time.Millisecond, leases()},
	{"concurrency/leases=20", 20, time.Millisecond, leases()},
	{"pause/pauses=1", 1, time.Millisecond, pauses()},
	{"pause/pauses=3", 3, time.Millisecond, pauses()},
	{"consumer/entries=1", 1, 2 * time.Second, consumer},
	{"consumer/entries=2", 2, 2 * time.Second, consumer},
	{"consumer/entries=3", 3, 2 * time.Second, consumer},
	{"consumer/entries=6", 14, 4 * time.Second, consumer}, // three live, the others not yet removed
	{"throttle", 1, time.Millisecond, throttle},
}

var tokens = algorithm.SlidingLog{Limit: 20, Window: time.Second}

var threeSpans = algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{
	{Window: time.Second, Limit: 1000}, {Window: 10 * time.Second, Limit: 5000}, {Window: 15 * time.Second, Limit: 7000},
}}

// one is a limiter with one rule.
func one(a algorithm.Algorithm) newAsker {
	return asking(a, func(string) weir.Request { return weir.Request{} })
}

// metadata is a limiter that keeps the caller, 11 bytes, as metadata.
func metadata(st store.Store, opts *weir.Options) (asker, error) {
	return asking(algorithm.MetadataWindow{Limit: 10, Window: time.Second}, func(caller string) weir.Request {
		return weir.Request{Metadata: caller}
	})(st, opts)
}

// leases is a limiter whose calls hold a lease each, with names of 16 bytes.
func leases() newAsker {
	calls := 0
	return asking(algorithm.Concurrency{Limit: 20, Lease: 24 * time.Hour}, func(string) weir.Request {
		calls++
		return weir.Request{ID: fmt.Sprintf("%016x", calls)}
	})
}

func pauses() newAsker {
	return asking(algorithm.Pause{}, func(string) weir.Request {
		return weir.Request{Op: weir.Pause, ID: rand.Text(), For: 24 * time.Hour}
	})
}

// asking is a limiter with one rule, whose requests request makes without their keys.
func asking(a algorithm.Algorithm, request func(caller string) weir.Request) newAsker {
	return func(st store.Store, opts *weir.Options) (asker, error) {
		lim, err := weir.New(benchName, st, a, opts)
		return func(ctx context.Context, caller string) error {
			r := request(caller)
			r.Key = weir.KeyOf(caller)
			_, err := lim.Decide(ctx, r, nil)
			return err
		}, err
	}
}

// consumer is a limiter of one resource, whose consumers are the callers. A call every
// two seconds is as many as the resource allows.
func consumer(st store.Store, opts *weir.Options) (asker, error) {
	lim, err := weir.NewPolicy(st, weir.Policy{
		Name:     benchName,
		Segments: []string{"resource", "consumer"},
		Rules: []weir.Rule{
			{Name: "global", By: []string{"resource"}, Algorithm: algorithm.SlidingLog{Limit: 5, Window: 10 * time.Second}},
			{Name: "consumer", Algorithm: algorithm.SlidingLog{Limit: 3, Window: 10 * time.Second}},
		},
	}, opts)
	return func(ctx context.Context, caller string) error {
		_, err := lim.Allow(ctx, "calc", caller)
		return err
	}, err
}

func throttle(st store.Store, opts *weir.Options) (asker, error) {
	throttler, err := rediscell.New(benchName, st, opts)
	return func(ctx context.Context, caller string) error {
		_, err := throttler.Throttle(ctx, caller, 15, 30, time.Minute, 1)
		return err
	}, err
}

// BenchmarkBytes reports how much a new server's used_memory grows for each caller, as
// bytes/key. The limiter has a caller's clock, so the keys live for an hour longer than
// the state.
func BenchmarkBytes(b *testing.B) {
	for _, f := range footprints {
		benchBytes(b, "state="+f.name, f.calls, true, f.record)
	}
}

// slow is the period of a rate under which no key expires while others are added.
const slow = time.Hour

// peerFootprints are limiters with one rule, on the server's clock.
var peerFootprints = []struct {
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
		return newRueidisLimiter(tb, rdb, newRueidisClient(tb, rdb))
	}},
}

// BenchmarkPeerBytes is BenchmarkBytes of limiters that are compared.
func BenchmarkPeerBytes(b *testing.B) {
	for _, p := range peerFootprints {
		benchBytes(b, "impl="+p.name, 1, false, func(tb testing.TB, rdb *redis.Client) (ask func(string), done func()) {
			r := p.make(tb, rdb)
			return func(caller string) {
				if ok, err := r.allow(context.Background(), caller); err != nil || !ok {
					tb.Fatalf("%s: a request for %q: allowed %v, error %v", r.name, caller, ok, err)
				}
			}, func() {}
		})
	}
}

// benchBytes asks for each caller a number of times. start returns what asks, and what sends
// requests that were not sent yet. If known is true, the memory of the script does not count.
func benchBytes(b *testing.B, name string, calls int, known bool, start func(testing.TB, *redis.Client) (ask func(caller string), done func())) {
	b.Run(name, func(b *testing.B) {
		var bytes float64
		for b.Loop() {
			s := newServer(b, server.Options{}) // a hash table keeps its size when keys are deleted
			meter, rdb := newClient(s.Addr), newClient(s.Addr)
			if known {
				ask, done := start(b, rdb)
				ask("first")
				done()
			}
			before := usedMemory(b, meter)
			ask, done := start(b, rdb)
			for i := range callers() {
				for range calls {
					ask(user(i))
				}
			}
			done()
			bytes = float64(usedMemory(b, meter)-before) / float64(callers())
			_, _ = meter.Close(), rdb.Close()
			s.Stop()
		}
		b.ReportMetric(bytes, "bytes/key")
		b.ReportMetric(0, "ns/op") // hides the time
	})
}

// record starts a limiter whose calls are sent in pipelines.
func (f footprint) record(tb testing.TB, rdb *redis.Client) (ask func(caller string), done func()) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	st := goredis.New(rdb)
	tape := &recorder{Store: st}
	decide, err := f.new(tape, &weir.Options{Clock: func() time.Time { return now }})
	if err != nil {
		tb.Fatal(err)
	}
	done = func() {
		n := len(tape.calls)
		if allowed, err := tape.flush(context.Background(), st); err != nil || allowed != n {
			tb.Fatalf("%d of %d calls were allowed, error %v", allowed, n, err)
		}
	}
	return func(caller string) {
		now = now.Add(f.step)
		if err := decide(context.Background(), caller); !errors.Is(err, errRecorded) {
			tb.Fatalf("recording a call: %v", err)
		}
		if len(tape.calls) == depth {
			done()
		}
	}, done
}

// usedMemory returns the bytes that the server uses, after it has dropped all other
// clients, whose buffers count too.
func usedMemory(tb testing.TB, rdb *redis.Client) int64 {
	tb.Helper()
	ctx := context.Background()
	if err := rdb.ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
		tb.Fatal(err)
	}
	for {
		info, err := readInfo(rdb, "clients", "memory")
		if err != nil {
			tb.Fatal(err)
		}
		if info["connected_clients"] == 1 {
			return int64(info["used_memory"])
		}
		time.Sleep(time.Millisecond) // until the server has dropped them
	}
}
