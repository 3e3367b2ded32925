package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

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
	keys := func(key string) []string { return []string{prefix + key} }
	granted := func(reply any) bool {
		values, ok := reply.([]any)
		return ok && len(values) == 2 && values[0] == int64(1)
	}
	return peer(rdb, "semaphore", prefix, func(ctx context.Context, key string) (bool, error) {
		reply, err := semaphore.Run(ctx, rdb, keys(key), args()...).Result()
		return granted(reply), err
	}).pipelined(pipe, func(ctx context.Context, key string) error {
		return pipe.EvalSha(ctx, semaphore.Hash(), keys(key), args()...).Err()
	}, granted)
}
