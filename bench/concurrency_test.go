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

// semaphore is what a script for a concurrency limit usually is: it removes what has expired,
// counts, and adds. It renews a lease that is held, lets the key expire, and answers a denial with
// the time at which a lease expires, as a Concurrency does. Unlike that, it does not check what it
// reads, and removes any number of expired leases at once.
var semaphore = redis.NewScript(`
local now, life = tonumber(ARGV[2]), tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[2])
local held = redis.call('ZSCORE', KEYS[1], ARGV[4])
local n = redis.call('ZCARD', KEYS[1])
if not held and n >= tonumber(ARGV[1]) then
  return {0, redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]}
end
redis.call('ZADD', KEYS[1], string.format('%d', now + life), ARGV[4])
redis.call('PEXPIRE', KEYS[1], math.ceil(life / 1000) + 3600000) -- time is virtual
return {1, tostring(tonumber(ARGV[1]) - n)}`)

// newSemaphore returns a remote that asks for one of n leases, with a new name each time, at a time
// that the clock gives. A lease lasts for n steps.
func newSemaphore(tb testing.TB, rdb *redis.Client, n int64, clock func() time.Time) *remote {
	tb.Helper()
	if err := semaphore.Load(tb.Context(), rdb).Err(); err != nil {
		tb.Fatal(err)
	}
	const prefix = benchPrefix + ":"
	pipe, asked := rdb.Pipeline(), 0
	args := func() []any {
		asked++
		return []any{n, clock().UnixMicro(), steps(n).Microseconds(), fmt.Sprintf("lease-%012d", asked)}
	}
	granted := func(reply []any) bool { return len(reply) == 2 && reply[0] == int64(1) }
	return &remote{
		name: "semaphore",
		allow: func(ctx context.Context, key ...string) (bool, error) {
			reply, err := semaphore.Run(ctx, rdb, []string{prefix + key[0]}, args()...).Slice()
			return granted(reply), err
		},
		queue: func(ctx context.Context, key ...string) error {
			return pipe.EvalSha(ctx, semaphore.Hash(), []string{prefix + key[0]}, args()...).Err()
		},
		flush: func(ctx context.Context) (allowed int, err error) {
			cmds, err := pipe.Exec(ctx)
			for _, cmd := range cmds {
				if reply, err := cmd.(*redis.Cmd).Slice(); err == nil && granted(reply) {
					allowed++
				}
			}
			return allowed, err
		},
		reset: func(ctx context.Context, key ...string) error { return rdb.Del(ctx, prefix+key[0]).Err() },
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
