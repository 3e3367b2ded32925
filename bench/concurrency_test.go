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
	"github.com/weir-go/weir/store/goredis"
)

// BenchmarkConcurrency compares a key with all of 100 places taken, a listpack on
// the server, with one of 100,000, a skip list: a newcomer who is denied, a holder
// who renews, and one who comes when the oldest lease is over.
func BenchmarkConcurrency(b *testing.B) {
	rdb := connect(b)
	for _, what := range []string{"denied", "renewed", "taken"} {
		for _, limit := range []int{100, 100_000} {
			b.Run(fmt.Sprintf("lease=%s/limit=%d", what, limit), newLeases(b, rdb, limit, what).run(rdb))
		}
	}
}

// newLeases asks for one key, in virtual time, in which leases expire one by one, a
// millisecond apart.
func newLeases(tb testing.TB, rdb *redis.Client, limit int, what string) scene {
	tb.Helper()
	const step = time.Millisecond
	now, steps := time.Unix(1_700_000_000, 0), step
	st := goredis.New(rdb)
	tape := &recorder{Store: st}
	rule := weir.Rule{Name: "leases", Algorithm: algorithm.Concurrency{Limit: int64(limit), Lease: time.Duration(limit) * step}}
	lim, err := weir.NewRules(tape, []weir.Rule{rule}, &weir.Options{Prefix: benchPrefix, Clock: func() time.Time {
		now = now.Add(steps)
		return now
	}})
	if err != nil {
		tb.Fatal(err)
	}
	key := fmt.Sprintf("%s-%d", what, limit)
	path, asked := []string{key}, 0
	r := &remote{
		name: "weir-leases",
		queue: func(ctx context.Context, path ...string) error {
			if what == "renewed" && asked >= limit {
				asked = 0
			}
			name := strconv.Itoa(asked)
			asked++
			if _, err := lim.Do(ctx, weir.Request{Path: path, Cost: 1, Lease: name}); !errors.Is(err, errRecorded) {
				return fmt.Errorf("recording a call: %w", err)
			}
			return nil
		},
		flush: func(ctx context.Context) (int, error) { return tape.flush(ctx, st) },
	}
	tb.Cleanup(func() {
		if err := rdb.Unlink(context.Background(), benchPrefix+":{"+key+"}:leases").Err(); err != nil {
			tb.Fatal(err)
		}
	})
	of := func(int) []string { return path }
	return scene{remote: r, allowed: what != "denied", path: of, prepare: func(tb testing.TB) {
		r.askAll(tb, limit, true, of)
		if what != "taken" {
			steps = 0
		}
	}}
}
