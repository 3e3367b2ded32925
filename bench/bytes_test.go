package bench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/goredis"
)

// A footprint is what each subject of a limiter leaves on a server.
type footprint struct {
	name     string
	subjects int
	calls    int           // of each subject, one after the other
	step     time.Duration // from call to call, also of different subjects
	new      newAsker
}

// A newAsker returns a limiter's call for a subject.
type newAsker func(st store.Store, opts *weir.Options) (func(ctx context.Context, subject string) error, error)

var footprints = []footprint{
	{"fixedwindow", 100_000, 1, time.Millisecond, one(algorithm.FixedWindow{Limit: 10, Window: time.Second})},
	{"metadatawindow/entries=3", 100_000, 3, time.Millisecond, metadata},
	{"metadatawindow/entries=10", 100_000, 10, time.Millisecond, metadata},
	{"slidingcounter", 100_000, 1, time.Millisecond, one(algorithm.SlidingCounter{Limit: 10, Window: time.Second})},
	{"tokenbucket", 100_000, 1, time.Millisecond, one(algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(10)})},
	{"leakybucket", 100_000, 1, time.Millisecond, one(algorithm.LeakyBucket{Rate: algorithm.PerSecond(10), Queue: 9})},
	{"slidingbuckets/used=1", 100_000, 1, time.Second, one(threeSpans)},
	{"slidingbuckets/used=15", 100_000, 15, time.Second, one(threeSpans)},
	{"slidinglog/entries=3", 100_000, 3, time.Millisecond, one(tokens)},
	{"slidinglog/entries=20", 100_000, 20, time.Millisecond, one(tokens)},
	{"concurrency/leases=3", 100_000, 3, time.Millisecond, leases()},
	{"concurrency/leases=20", 100_000, 20, time.Millisecond, leases()},
	{"consumer/entries=1", 100_000, 1, 2 * time.Second, consumer},
	{"consumer/entries=2", 100_000, 2, 2 * time.Second, consumer},
	{"consumer/entries=3", 100_000, 3, 2 * time.Second, consumer},
	{"consumer/entries=6", 100_000, 14, 4 * time.Second, consumer}, // three live, the others not yet removed
	{"throttle", 100_000, 1, time.Millisecond, throttle},
}

var tokens = algorithm.SlidingLog{Limit: 20, Window: time.Second}

var threeSpans = algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{
	{Window: time.Second, Limit: 1000}, {Window: 10 * time.Second, Limit: 5000}, {Window: 15 * time.Second, Limit: 7000},
}}

// one is a limiter with a rule for each subject.
func one(a algorithm.Algorithm) newAsker {
	return func(st store.Store, opts *weir.Options) (func(context.Context, string) error, error) {
		lim, err := weir.NewRules(st, []weir.Rule{{Algorithm: a}}, opts)
		return func(ctx context.Context, subject string) error {
			_, err := lim.Allow(ctx, subject)
			return err
		}, err
	}
}

// metadata is a limiter that keeps the subject as metadata, which is 11 bytes.
func metadata(st store.Store, opts *weir.Options) (func(context.Context, string) error, error) {
	lim, err := weir.NewRules(st, []weir.Rule{{Algorithm: algorithm.MetadataWindow{Limit: 10, Window: time.Second}}}, opts)
	return func(ctx context.Context, subject string) error {
		_, err := lim.Do(ctx, weir.Request{Path: []string{subject}, Cost: 1, Metadata: subject})
		return err
	}, err
}

// leases is a limiter of which each call holds a lease, named in 16 bytes.
func leases() newAsker {
	calls := 0
	return func(st store.Store, opts *weir.Options) (func(context.Context, string) error, error) {
		lim, err := weir.NewRules(st, []weir.Rule{{Algorithm: algorithm.Concurrency{Limit: 20, Lease: 24 * time.Hour}}}, opts)
		return func(ctx context.Context, subject string) error {
			calls++
			_, err := lim.Do(ctx, weir.Request{Path: []string{subject}, Cost: 1, Lease: fmt.Sprintf("%016x", calls)})
			return err
		}, err
	}
}

// consumer is one resource with subjects as its consumers. A call every two
// seconds is as many as the resource allows.
func consumer(st store.Store, opts *weir.Options) (func(context.Context, string) error, error) {
	lim, err := weir.NewRules(st, []weir.Rule{
		{Name: "resource", By: []int{0}, Algorithm: algorithm.SlidingLog{Limit: 5, Window: 10 * time.Second}},
		{Name: "consumer", By: []int{0, 1}, Algorithm: algorithm.SlidingLog{Limit: 3, Window: 10 * time.Second}},
	}, opts)
	return func(ctx context.Context, subject string) error {
		_, err := lim.Allow(ctx, "calc", subject)
		return err
	}, err
}

func throttle(st store.Store, opts *weir.Options) (func(context.Context, string) error, error) {
	throttler, err := weir.NewThrottler(st, opts)
	return func(ctx context.Context, subject string) error {
		_, err := throttler.Throttle(ctx, subject, 15, 30, time.Minute, 1)
		return err
	}, err
}

// BenchmarkBytes reports the growth of a new server's used_memory over many
// subjects, divided by their number, as bytes/subject. The keys live for an
// hour longer than the state, since the caller's clock tells the time.
func BenchmarkBytes(b *testing.B) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		b.Skip("no server can be started: ", err)
	}
	for _, f := range footprints {
		b.Run("state="+f.name, func(b *testing.B) {
			var bytes float64
			for b.Loop() {
				bytes = f.measure(b)
			}
			b.ReportMetric(bytes, "bytes/subject")
			b.ReportMetric(0, "ns/op") // of making the subjects, which is of no interest
		})
	}
}

func (f *footprint) measure(tb testing.TB) float64 {
	tb.Helper()
	var s server // a table that has grown once would be no cost to the next
	addr, err := s.addr()
	if err != nil {
		tb.Fatal(err)
	}
	defer s.stop()
	rdb := newClient(addr)
	defer func() { _ = rdb.Close() }()

	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	st := goredis.New(rdb)
	tape := &recorder{Store: st}
	ask, err := f.new(tape, &weir.Options{Clock: func() time.Time { return now }})
	if err != nil {
		tb.Fatal(err)
	}
	ctx := context.Background()
	play := func() {
		st.EvalBatch(ctx, tape.calls)
		for _, c := range tape.calls {
			if c.Err != nil || c.Reply[0].Int() != 1 {
				tb.Fatalf("%v: reply %v, error %v", c.Keys, c.Reply, c.Err)
			}
		}
		tape.calls = tape.calls[:0]
	}
	call := func(subject string) {
		now = now.Add(f.step)
		if err := ask(ctx, subject); !errors.Is(err, errRecorded) {
			tb.Fatalf("recording a call: %v", err)
		}
		if len(tape.calls) == depth {
			play()
		}
	}

	call("first") // the script, too, is memory
	play()
	before := usedMemory(tb, rdb)
	for i := range f.subjects {
		for range f.calls {
			call("user-" + strconv.Itoa(key0+i))
		}
	}
	play()
	return float64(usedMemory(tb, rdb)-before) / float64(f.subjects)
}

func usedMemory(tb testing.TB, rdb *redis.Client) int64 {
	tb.Helper()
	info, err := rdb.Info(context.Background(), "memory").Result()
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(info) {
		if text, ok := strings.CutPrefix(line, "used_memory:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			if err != nil {
				tb.Fatal(err)
			}
			return n
		}
	}
	tb.Fatal("INFO memory tells of no used_memory")
	return 0
}
