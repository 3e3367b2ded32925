package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

// BenchmarkSlidingLog compares logs of many live entries, a skip list on the
// server, with short ones, a listpack. 100 entries are about as many as a listpack may have.
func BenchmarkSlidingLog(b *testing.B) {
	rdb := connect(b)
	for _, live := range []int{100, 1000, 100_000} {
		log := newLog(b, rdb, live)
		for _, allowed := range []bool{true, false} {
			b.Run(fmt.Sprintf("decision=%s/live=%d", decision(allowed), live), log(allowed).run(rdb))
		}
	}
}

func decision(allowed bool) string {
	if allowed {
		return "allowed"
	}
	return "denied"
}

// newLog asks for one key with that many live entries, in virtual time. To be allowed,
// each request comes at the instant at which the oldest entry expires, so the log is
// trimmed as fast as it grows. To be denied, all come at the time of the newest entry. The
// log is filled once.
func newLog(tb testing.TB, rdb *redis.Client, live int) func(allowed bool) scene {
	tb.Helper()
	const step = time.Millisecond
	now, steps := time.Unix(1_700_000_000, 0), step
	clock := func() time.Time {
		now = now.Add(steps)
		return now
	}
	log := algorithm.SlidingLog{Limit: int64(live), Window: time.Duration(live) * step}
	r := newWeirRedis(tb, rdb, "weir-log", policy(weir.Rule{Algorithm: log}), clock)
	path := []string{fmt.Sprintf("log-%d", live)}
	key := func(int) []string { return path }
	tb.Cleanup(func() { r.forget(tb, path...) })
	filled := false
	return func(allowed bool) scene {
		return scene{remote: r, allowed: allowed, key: key, prepare: func(tb testing.TB) {
			if !filled {
				r.askAll(tb, live+live/8, true, key) // more than a window: expired entries are still in the log
				filled = true
			}
			steps = 0
			if allowed {
				steps = step
			}
		}}
	}
}
