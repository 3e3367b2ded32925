package bench

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A scriptPart is something that a script does, or an argument that it has.
type scriptPart struct {
	name, lua string
	args      []any
}

// partLocals are the locals that the Lua of parts can use. Every script of a part has them, so
// that scripts differ in their parts alone.
const partLocals = `local redis, string = redis, string
local cell, entry = 'f2 1767225600000000 1', 'l3 1767225600000000 0000002 1 1'
local now, one, zero = 1767225600000000, 1, 0
`

var scriptParts = []scriptPart{
	{name: "nothing"}, // subtract it from the others
	{name: "argument", args: []any{"1000000"}},
	{name: "time", lua: "local time = redis.call('TIME')\nlocal now = time[1] * 1000000.0 + time[2]"},
	{name: "get", lua: "local v = redis.call('GET', KEYS[1])"},
	{name: "set-keepttl", lua: "redis.call('SET', KEYS[1], cell, 'KEEPTTL')"},
	{name: "set-px", lua: "redis.call('SET', KEYS[1], cell, 'PX', '86400000')"},
	{name: "incrby", lua: "redis.call('INCRBY', KEYS[3], '1')"},
	{name: "pexpire", lua: "redis.call('PEXPIRE', KEYS[2], '10000')"},
	{name: "zrange-newest", lua: "local log = redis.call('ZRANGE', KEYS[2], '-1', '-1')"},
	{name: "zrange-all", lua: "local log = redis.call('ZRANGE', KEYS[2], '-8', '-1')"},
	{name: "zadd", lua: "redis.call('ZADD', KEYS[2], '1767225600000003', 'l3 1767225600000003 0000004 3 1')"},
	{name: "zremrangebyscore", lua: "redis.call('ZREMRANGEBYSCORE', KEYS[2], '0', '1767225590')"},
	{name: "zcard", lua: "local n = redis.call('ZCARD', KEYS[2])"},
	{name: "parse-cell", lua: "local edge, count, more = string.match(cell, '^f2 (%d+) (%d+)(.*)$')\nedge, count = edge + 0.0, count + 0.0"},
	{name: "parse-entry", lua: "local time, number, before, cost, rest = string.match(entry, '^l3 0*(%d+) 0*(%d+) (%d+) (%d+)(.*)$')\n" +
		"time, number, before = time + 0.0, number + 0.0, before + 0.0"},
	{name: "parse-integer", lua: "local n = '1000000' + 0.0"},
	{name: "format-cell", lua: "local value = string.format('f2 %d %d', now, one)"},
	{name: "format-entry", lua: "local text = string.format('l3 %016d %07d %d %d', now, one, one, one)\nlocal score = string.sub(text, 4, 19)"},
	{name: "format-ttl", lua: "local life = (now + 10000000 - now + 999) / 1000\nlocal text = string.format('%d', life - life % 1)"},
	{name: "format-reply", lua: "local reply = string.format(';%d %d %d %d', one, now, zero, zero)"},
}

// BenchmarkParts counts the instructions of what scripts do. The keys of a script are a cell, a log of
// three entries, and a counter, and each script has new ones.
func BenchmarkParts(b *testing.B) {
	if !counted {
		b.Skip("WEIR_BENCH_CALLGRIND is not 1: instructions are not counted")
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
					at := 1767225600000000 + int64(i)
					pipe.ZAdd(ctx, keys[1], redis.Z{Score: float64(at), Member: fmt.Sprintf("l3 %d %07d %d 1", at, i+1, i)})
				}
				pipe.PExpire(ctx, keys[1], window)
				pipe.Set(ctx, keys[2], 1, window)
			})
			m := startMeter(b, rdb)
			each(func(pipe redis.Pipeliner, keys []string) { pipe.EvalSha(ctx, sha, keys, part.args...) })
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
