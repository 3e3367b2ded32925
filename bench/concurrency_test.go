package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/goredis"
)

// BenchmarkConcurrency compares a key with 100 leases, which is a listpack on the
// server, with a key with 100,000 leases, a skip list. All leases are held. A newcomer
// is denied, a holder asks again for its lease, or a newcomer comes when the oldest lease
// has expired.
func BenchmarkConcurrency(b *testing.B) {
	rdb := connect(b)
	for _, what := range []string{"denied", "renewed", "taken"} {
		for _, limit := range []int{100, 100_000} {
			b.Run(fmt.Sprintf("lease=%s/limit=%d", what, limit), newLeases(b, rdb, limit, what).run(rdb))
		}
	}
}

// newLeases asks for one key, in virtual time. Leases expire one by one, a millisecond
// apart.
func newLeases(tb testing.TB, rdb *redis.Client, limit int, what string) scene {
	tb.Helper()
	const step = time.Millisecond
	now, steps := time.Unix(1_700_000_000, 0), step
	st := goredis.New(rdb)
	tape := &recorder{Store: st}
	leases := algorithm.Concurrency{Limit: int64(limit), Lease: time.Duration(limit) * step}
	opts := &weir.Options{Clock: func() time.Time {
		now = now.Add(steps)
		return now
	}}
	newLimiter := func(st store.Store) *weir.Limiter {
		lim, err := weir.New(benchName, st, leases, opts)
		if err != nil {
			tb.Fatal(err)
		}
		return lim
	}
	lim, recorded := newLimiter(st), newLimiter(tape)
	path, asked := []string{fmt.Sprintf("%s-%d", what, limit)}, 0
	r := &remote{
		name: "weir-leases",
		queue: func(ctx context.Context, key ...string) error {
			if what == "renewed" && asked >= limit {
				asked = 0
			}
			name := strconv.Itoa(asked)
			asked++
			if _, err := recorded.Decide(ctx, weir.Request{Key: weir.KeyOf(key...), ID: name}, nil); !errors.Is(err, errRecorded) {
				return fmt.Errorf("recording a call: %w", err)
			}
			return nil
		},
		flush: func(ctx context.Context) (int, error) { return tape.flush(ctx, st) },
		reset: func(ctx context.Context, key ...string) error { return lim.Reset(ctx, key...) },
	}
	tb.Cleanup(func() { r.forget(tb, path...) })
	key := func(int) []string { return path }
	return scene{remote: r, allowed: what != "denied", key: key, prepare: func(tb testing.TB) {
		r.askAll(tb, limit, true, key)
		if what != "taken" {
			steps = 0
		}
	}}
}
