package bench

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A scriptPart is something that a script does.
type scriptPart struct{ name, lua string }

// partLocals are the locals that the Lua of parts can use. Every script of a part has them, so
// that scripts differ in their parts alone.
const partLocals = `local redis, string = redis, string
local cell, entry = 'f2 1767225600000000 1', 'l3 1767225600000000 0000002 1 1'
local now, one, zero = 1767225600000000, 1, 0
`

var scriptParts = []scriptPart{
	{"nothing", ""}, // the unit that is subtracted from the others by hand
	{"time", "local time = redis.call('TIME')\nlocal now = time[1] * 1000000.0 + time[2]"},
	{"get", "local v = redis.call('GET', KEYS[1])"},
	{"set-keepttl", "redis.call('SET', KEYS[1], cell, 'KEEPTTL')"},
	{"set-px", "redis.call('SET', KEYS[1], cell, 'PX', '86400000')"},
	{"incrby", "redis.call('INCRBY', KEYS[3], '1')"},
	{"pexpire", "redis.call('PEXPIRE', KEYS[2], '10000')"},
	{"zrange-newest", "local log = redis.call('ZRANGE', KEYS[2], '-1', '-1')"},
	{"zrange-all", "local log = redis.call('ZRANGE', KEYS[2], '-8', '-1')"},
	{"zadd", "redis.call('ZADD', KEYS[2], '1767225600000003', 'l3 1767225600000003 0000004 3 1')"},
	{"zremrangebyscore", "redis.call('ZREMRANGEBYSCORE', KEYS[2], '0', '1767225590')"},
	{"zcard", "local n = redis.call('ZCARD', KEYS[2])"},
	{"parse-cell", "local edge, count, more = string.match(cell, '^f2 (%d+) (%d+)(.*)$')\nedge, count = edge + 0.0, count + 0.0"},
	{"parse-entry", "local time, number, before, cost, rest = string.match(entry, '^l3 0*(%d+) 0*(%d+) (%d+) (%d+)(.*)$')\n" +
		"time, number, before = time + 0.0, number + 0.0, before + 0.0"},
	{"parse-integer", "local n = ARGV[1] + 0.0"},
	{"format-cell", "local value = string.format('f2 %d %d', now, one)"},
	{"format-entry", "local text = string.format('l3 %016d %07d %d %d', now, one, one, one)\nlocal score = string.sub(text, 4, 19)"},
	{"format-ttl", "local life = (now + 10000000 - now + 999) / 1000\nlocal text = string.format('%d', life - life % 1)"},
	{"format-reply", "local reply = string.format(';%d %d %d %d', one, now, zero, zero)"},
}

// BenchmarkParts counts the instructions of what scripts do. The keys of a script are a cell, a log of
// three entries, and a counter, and each script has new ones.
func BenchmarkParts(b *testing.B) {
	if !counted {
		skip(b, "WEIR_BENCH_CALLGRIND is not 1: instructions are not counted")
	}
	rdb, ctx := connect(b), context.Background()
	for _, part := range scriptParts {
		b.Run("part="+part.name, func(b *testing.B) {
			sha, err := rdb.ScriptLoad(ctx, partLocals+part.lua+"\nreturn 1").Result()
			if err != nil {
				b.Fatal(err)
			}
			keys := func(i int) []string {
				tag := fmt.Sprintf("%s:part:{%06d}", benchPrefix, i)
				return []string{tag + ":f2", tag + ":l3", tag + ":n"}
			}
			each := func(f func(pipe redis.Pipeliner, keys []string)) {
				pipe := rdb.Pipeline()
				for i := range b.N {
					if f(pipe, keys(i)); pipe.Len() >= depth {
						flushPipe(b, pipe)
					}
				}
				flushPipe(b, pipe)
			}
			b.Cleanup(func() { each(func(pipe redis.Pipeliner, keys []string) { pipe.Del(ctx, keys...) }) })
			each(func(pipe redis.Pipeliner, keys []string) {
				pipe.Set(ctx, keys[0], "f2 1767225600000000 1", window)
				for i := range 3 {
					at := 1767225600000000 + i
					pipe.ZAdd(ctx, keys[1], redis.Z{Score: float64(at), Member: fmt.Sprintf("l3 %d %07d %d 1", at, i+1, i)})
				}
				pipe.PExpire(ctx, keys[1], window)
				pipe.Set(ctx, keys[2], 1, window)
			})
			m := startMeter(b, rdb)
			each(func(pipe redis.Pipeliner, keys []string) { pipe.EvalSha(ctx, sha, keys, "1000000") })
			m.report(b, b.N)
		})
	}
}

// flushPipe sends what pipe holds.
func flushPipe(tb testing.TB, pipe redis.Pipeliner) {
	tb.Helper()
	if _, err := pipe.Exec(context.Background()); err != nil {
		tb.Fatal(err)
	}
}
