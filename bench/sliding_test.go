package bench

import (
	"context"
	_ "embed"
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

// BenchmarkResourceConsumer compares a decision over two logs, of a resource and of
// its consumer, with the script of a write-up.
func BenchmarkResourceConsumer(b *testing.B) {
	rdb := connect(b)
	for _, c := range pairCases {
		for _, make := range []func(testing.TB, *redis.Client, pairLimits) *remote{newWriteUp, newWeirPair} {
			r := make(b, rdb, c.limits)
			b.Run(c.name+"/impl="+r.name, c.scene(b, r).run(rdb))
		}
	}
}

// TestResourceConsumer checks that both give the answers that the benchmark expects.
func TestResourceConsumer(t *testing.T) {
	rdb := connect(t)
	for _, c := range pairCases {
		if c.limits == wide {
			continue // has no turns, and takes seconds
		}
		for _, r := range []*remote{newWriteUp(t, rdb, c.limits), newWeirPair(t, rdb, c.limits)} {
			t.Run(c.name+"/impl="+r.name, func(t *testing.T) {
				s := c.scene(t, r)
				for range 2 {
					s.prepare(t)
					r.askAll(t, s.turn, s.allowed, s.key)
				}
			})
		}
	}
}

type pairLimits struct {
	resource, consumer int64
	window             time.Duration
}

var (
	published = pairLimits{5, 3, 10 * time.Second}
	wide      = pairLimits{500_000, 300_000, time.Second} // more than are ever asked for
)

// A pairCase is a state of a resource and its consumers, and the answer to consumer.
type pairCase struct {
	name     string
	limits   pairLimits
	pairs    int
	before   []string // the consumers, a or b, that are allowed first
	consumer string
	allowed  bool
}

var pairCases = []pairCase{
	{"limits=published/decision=allowed", published, remoteKeys, nil, "a", true},
	{"limits=published/decision=resource-over", published, remoteKeys, []string{"a", "a", "a", "b", "b"}, "b", false},
	{"limits=published/decision=consumer-over", published, remoteKeys, []string{"a", "a", "a"}, "a", false},
	{"limits=wide/decision=allowed", wide, 50, nil, "a", true},
	{"limits=wide/decision=allowed-spread", wide, remoteKeys, nil, "a", true},
}

// scene asks for all resources in turn, on the server's clock. With published limits a
// turn ends when the resources are full. With wide limits there is one turn, which starts
// after two windows: entries then expire as fast as others come.
func (c pairCase) scene(tb testing.TB, r *remote) scene {
	tb.Helper()
	keys := someKeys(c.pairs)
	of := func(consumer string) func(int) []string {
		return func(i int) []string { return []string{keys[i%len(keys)], consumer} }
	}
	forget := func(tb testing.TB) {
		for _, key := range keys {
			r.forgetKey(tb, key, "a")
			r.forgetKey(tb, key, "b")
		}
	}
	tb.Cleanup(func() { forget(tb) })
	s := scene{remote: r, allowed: c.allowed, key: of(c.consumer)}
	if c.limits == wide {
		s.prepare = func(tb testing.TB) { r.askFor(tb, 2*c.limits.window, s.key) }
		return s
	}
	s.turn = len(keys) * int(c.limits.consumer) / depth * depth
	s.prepare = func(tb testing.TB) {
		forget(tb)
		for _, consumer := range c.before {
			r.askAll(tb, len(keys), true, of(consumer))
		}
	}
	return s
}

// askFor sends requests, all of which have to be allowed, for the time d.
func (r *remote) askFor(tb testing.TB, d time.Duration, key func(i int) []string) {
	tb.Helper()
	i := 0
	for end := time.Now().Add(d); i%depth > 0 || time.Now().Before(end); i++ {
		r.ask(tb, i, true, key(i))
	}
}

func newWeirPair(tb testing.TB, rdb *redis.Client, l pairLimits) *remote {
	tb.Helper()
	r := newWeirRedis(tb, rdb, "weir-slidinglog", pairPolicy(l), nil)
	r.teach(tb)
	return r
}

// pairPolicy limits a resource, and each of its consumers.
func pairPolicy(l pairLimits) weir.Policy {
	return weir.Policy{
		Name:     benchName,
		Segments: []string{"resource", "consumer"},
		Rules: []weir.Rule{
			{Name: "global", By: []string{"resource"}, Algorithm: algorithm.SlidingLog{Limit: l.resource, Window: l.window}},
			{Name: "consumer", Algorithm: algorithm.SlidingLog{Limit: l.consumer, Window: l.window}},
		},
	}
}

//go:embed writeup.lua
var writeUpLua string

var writeUpScript = redis.NewScript(writeUpLua)

func newWriteUp(tb testing.TB, rdb *redis.Client, l pairLimits) *remote {
	tb.Helper()
	pipe := rdb.Pipeline()
	args := []any{int64(l.window / time.Second), l.resource, l.consumer}
	keys := func(key []string) []string {
		return []string{benchPrefix + ":global:calc{" + key[0] + "}", benchPrefix + ":consumer-" + key[1] + ":calc{" + key[0] + "}"}
	}
	r := &remote{
		name: "write-up",
		allow: func(ctx context.Context, key ...string) (bool, error) {
			n, err := writeUpScript.Run(ctx, rdb, keys(key), args...).Int64()
			return err == nil && n == 0, err
		},
		queue: func(ctx context.Context, key ...string) error {
			return pipe.EvalSha(ctx, writeUpScript.Hash(), keys(key), args...).Err()
		},
		flush: func(ctx context.Context) (int, error) {
			allowed := 0
			cmds, err := pipe.Exec(ctx)
			for _, cmd := range cmds {
				if n, err := cmd.(*redis.Cmd).Int64(); err == nil && n == 0 {
					allowed++
				}
			}
			return allowed, err
		},
		reset: func(ctx context.Context, key ...string) error { return rdb.Del(ctx, keys(key)...).Err() },
	}
	r.teach(tb)
	return r
}

// teach makes the script known to the server.
func (r *remote) teach(tb testing.TB) {
	tb.Helper()
	key := []string{"known", "script"}
	if ok, err := r.allow(context.Background(), key...); err != nil || !ok {
		tb.Fatalf("%s: a first request: allowed %v, error %v", r.name, ok, err)
	}
	r.forgetKey(tb, key...)
}

// BenchmarkSlidingBuckets compares a span of 16 buckets, all in use, with a fixed
// window of the same length, on the server's clock.
func BenchmarkSlidingBuckets(b *testing.B) {
	const buckets, width = 16, time.Second
	const window = buckets * width
	rdb := connect(b)
	spans := []algorithm.Span{{Window: window, Limit: burst}}
	for _, keys := range []int{1, remoteKeys} {
		for _, rule := range []weir.Rule{
			{Name: "fixedwindow", Algorithm: algorithm.FixedWindow{Limit: burst, Window: window}},
			{Name: "slidingbuckets", Algorithm: algorithm.SlidingBuckets{Width: width, Spans: spans}},
		} {
			b.Run(fmt.Sprintf("keys=%d/impl=%s", keys, rule.Name), func(b *testing.B) {
				names := someKeys(keys)
				key := func(i int) []string { return []string{names[i%keys]} }
				var then time.Time
				earlier := newWeirRedis(b, rdb, rule.Name, policy(rule), func() time.Time { return then })
				r := newWeirRedis(b, rdb, rule.Name, policy(rule), nil)
				b.Cleanup(func() { r.forget(b, names...) })
				scene{remote: r, allowed: true, key: key, prepare: func(tb testing.TB) {
					now := time.Now()
					for then = now.Add(width - window); !then.After(now); then = then.Add(width) {
						earlier.askAll(tb, keys, true, key)
					}
					r.askAll(tb, keys, true, key)
				}}.run(rdb)(b)
			})
		}
	}
}
