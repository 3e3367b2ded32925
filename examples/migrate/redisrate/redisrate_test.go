package redisrate_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/examples/migrate/internal/traffic"
	"github.com/weir-go/weir/examples/migrate/redisrate"
	"github.com/weir-go/weir/store/goredis"
)

// start returns a client of a server, and a function that moves the clock of the server.
func start(t *testing.T) (*redis.Client, func(time.Duration)) {
	t.Helper()
	server := miniredis.RunT(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	server.SetTime(now)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb, func(d time.Duration) {
		now = now.Add(d)
		server.SetTime(now)
		server.FastForward(d)
	}
}

// Ann's plan allows 3 requests per minute, and everybody else's 6.
func TestTraffic(t *testing.T) {
	rdb, pass := start(t)
	plan := func(r *http.Request) int {
		if r.Header.Get("X-User") == "ann" {
			return 3
		}
		return 6
	}
	after, err := redisrate.After(rdb, plan, traffic.OK)
	if err != nil {
		t.Fatal(err)
	}
	traffic.Play(t, []traffic.Row{
		{At: 0, Key: "ann", Before: "200 - 2 - -"},
		{At: 0, Key: "ann", Before: "200 - 1 - -"},
		{At: 0, Key: "bob", Before: "200 - 5 - -"},
		{At: 500 * time.Millisecond, Key: "ann", Before: "200 - 0 - -"},
		{At: 500 * time.Millisecond, Key: "ann", Before: "429 - 0 - 20"}, // in 19.5 s
		{At: 19 * time.Second, Key: "ann", Before: "429 - 0 - 1"},
		{At: 21 * time.Second, Key: "ann", Before: "200 - 0 - -"},
		{At: 21 * time.Second, Key: "", Before: "200 - 5 - -", After: "400 - - - -"},
		{At: 90 * time.Second, Key: "ann", Before: "200 - 2 - -"},
		{At: 91 * time.Second, Key: "bob", Before: "200 - 5 - -"},
	}, pass, traffic.Ask(redisrate.Before(rdb, plan, traffic.OK)), traffic.Ask(after))
}

// What a caller sees, besides what the traffic shows.
func TestDifferences(t *testing.T) {
	ctx := t.Context()
	rdb, _ := start(t)
	before := redis_rate.NewLimiter(rdb)
	lim, err := weir.New("api", goredis.New(rdb), algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 10}, nil)
	if err != nil {
		t.Fatal(err)
	}
	old, err := before.AllowN(ctx, "ann", redis_rate.PerSecond(10), 4)
	res, err2 := lim.AllowN(ctx, 4, "ann")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if old.Allowed != 4 || old.RetryAfter != -1 || !res.Allowed || res.Granted != 4 || res.RetryAfter != 0 {
		t.Errorf("allowed: got %+v and %+v", old, res)
	}
	old, err = before.AllowN(ctx, "ann", redis_rate.PerSecond(10), 7)
	res, err2 = lim.AllowN(ctx, 7, "ann")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if old.Allowed != 0 || old.Remaining != 0 || res.Allowed || res.Remaining != 6 {
		t.Errorf("denied, with 6 left: got %+v and %+v", old, res)
	}
	old, err = before.AllowN(ctx, "ann", redis_rate.PerSecond(10), 11)
	res, err2 = lim.AllowN(ctx, 11, "ann")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if old.RetryAfter.Round(time.Millisecond) != 500*time.Millisecond || res.RetryAfter != weir.Never {
		t.Errorf("above the burst: got %+v and %+v", old, res)
	}
	if _, err := lim.AllowN(ctx, 0, "ann"); !errors.Is(err, weir.ErrInvalidCost) {
		t.Errorf("AllowN of 0: got %v", err)
	}
	old, err = before.AllowN(ctx, "ann", redis_rate.PerSecond(10), 0)
	res, err2 = lim.Peek(ctx, "ann")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if old.Remaining != 6 || res.Remaining != 6 {
		t.Errorf("Peek: got %+v and %+v", old, res)
	}
}

// Since July 2025, the seconds since 2017 are above 2^28. In floating point, a tenth of a
// second is then rounded up, so redis_rate says that less than 9 of 10 tokens remain.
func TestRounding(t *testing.T) {
	rdb, _ := start(t)
	after, err := redisrate.NewLimiter(goredis.New(rdb))
	if err != nil {
		t.Fatal(err)
	}
	old, now := ask(t, redis_rate.NewLimiter(rdb), after, "Allow", "ann", 10, 1)
	if old.Remaining != 8 || now.Remaining != 9 {
		t.Errorf("got %d and %d remaining, want 8 and 9", old.Remaining, now.Remaining)
	}
}

// AllowAtMost of redis_rate consumes a fraction of a token that it does not grant.
func TestFraction(t *testing.T) {
	rdb, pass := start(t)
	before := redis_rate.NewLimiter(rdb)
	after, err := redisrate.NewLimiter(goredis.New(rdb))
	if err != nil {
		t.Fatal(err)
	}
	ask(t, before, after, "AllowN", "ann", 10, 9)
	pass(50 * time.Millisecond) // 1.5 tokens are left
	old, now := ask(t, before, after, "AllowAtMost", "ann", 10, 4)
	if old.Allowed != 1 || now.Allowed != 1 || !near(old.ResetAfter, time.Second) || now.ResetAfter != 950*time.Millisecond {
		t.Errorf("got %+v and %+v", old, now)
	}
}

// The type of compat.go answers as redis_rate does, except for a cost above the burst.
func TestCompat(t *testing.T) {
	ctx := t.Context()
	rdb, pass := start(t)
	before := redis_rate.NewLimiter(rdb)
	after, err := redisrate.NewLimiter(goredis.New(rdb))
	if err != nil {
		t.Fatal(err)
	}
	type call struct {
		wait   time.Duration
		method string
		key    string
		rate   int // per second, and the burst
		n      int
	}
	calls := []call{
		// The calls of redis_rate's own tests.
		{0, "Allow", "a", 10, 1}, {0, "Reset", "a", 0, 0}, {0, "Allow", "a", 10, 1}, {0, "AllowN", "a", 10, 2}, {0, "AllowN", "a", 10, 7}, {0, "AllowN", "a", 10, 1000},
		{0, "AllowN", "b", 10, 0}, {0, "Allow", "b", 10, 1}, {0, "AllowN", "b", 10, 0},
		{0, "Allow", "c", 10, 1}, {0, "AllowAtMost", "c", 10, 2}, {0, "AllowN", "c", 10, 0}, {0, "AllowAtMost", "c", 10, 10}, {0, "AllowN", "c", 10, 0}, {0, "AllowAtMost", "c", 10, 1000}, {0, "AllowN", "c", 10, 1000},
		{0, "AllowAtMost", "d", 10, 0}, {0, "Allow", "d", 10, 1}, {0, "AllowAtMost", "d", 10, 0},
		// AllowAtMost of 0 says when one is allowed, and AllowN of 0 does not.
		{0, "AllowN", "f", 10, 10}, {0, "AllowAtMost", "f", 10, 0}, {0, "AllowN", "f", 10, 0},
		// The empty key, and another limit for the same key.
		{0, "Allow", "", 2, 1}, {0, "Allow", "", 2, 1}, {0, "Allow", "", 2, 1}, {0, "Reset", "", 0, 0}, {0, "Allow", "", 2, 1},
		{0, "AllowN", "e", 10, 8}, {0, "Allow", "e", 4, 1}, {250 * time.Millisecond, "AllowAtMost", "e", 4, 1}, {0, "Allow", "e", 20, 1},
	}
	// A long random traffic, always the same. It has no AllowAtMost: see TestFraction.
	for i, x := 0, uint64(1); i < 500; i++ {
		x = x*6364136223846793005 + 1442695040888963407
		n := int(x >> 33)
		calls = append(calls, call{time.Duration(n%7) * 31 * time.Millisecond, []string{"Allow", "AllowN"}[n/7%2], fmt.Sprint("user", n/14%3), 10, n / 42 % 9})
	}
	allowed, denied, above := 0, 0, 0
	for i, c := range calls {
		pass(c.wait + 100*time.Microsecond) // so that redis_rate does not round a whole token away
		if c.method == "Reset" {
			if err := errors.Join(before.Reset(ctx, c.key), after.Reset(ctx, c.key)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		old, now := ask(t, before, after, c.method, c.key, c.rate, c.n)
		if now.RetryAfter == weir.Never {
			above++
			if c.n <= c.rate || old.RetryAfter <= 0 {
				t.Errorf("call %d, %+v: RetryAfter is Never, and was %v", i, c, old.RetryAfter)
			}
			now.RetryAfter = old.RetryAfter
		}
		if !near(old.RetryAfter, now.RetryAfter) || !near(old.ResetAfter, now.ResetAfter) || old.Allowed != now.Allowed || !sameRemaining(old, now) {
			t.Errorf("call %d, %+v: got %+v, redis_rate's answer was %+v", i, c, now, old)
		}
		if old.Allowed > 0 {
			allowed++
		} else {
			denied++
		}
	}
	if allowed < 50 || denied < 50 || above != 2 {
		t.Errorf("%d calls were allowed, %d denied, and %d above the burst", allowed, denied, above)
	}
}

func TestLimit(t *testing.T) {
	for _, period := range []time.Duration{0, time.Second, time.Minute, time.Hour, 10 * time.Minute} {
		was, is := redis_rate.Limit{Rate: 5, Period: period, Burst: 7}, redisrate.Limit{Rate: 5, Period: period, Burst: 7}
		if was.String() != is.String() || was.IsZero() != is.IsZero() {
			t.Errorf("got %v, %v, want %v, %v", is, is.IsZero(), was, was.IsZero())
		}
	}
	if (redisrate.Limit{}).IsZero() != (redis_rate.Limit{}).IsZero() {
		t.Error("the zero Limit is not zero")
	}
}

// A negative number gives tokens back in redis_rate, and is an error in weir.
func TestNegative(t *testing.T) {
	rdb, _ := start(t)
	after, err := redisrate.NewLimiter(goredis.New(rdb))
	if err != nil {
		t.Fatal(err)
	}
	before := redis_rate.NewLimiter(rdb)
	ask(t, before, after, "AllowN", "ann", 10, 5)
	old, err := before.AllowN(t.Context(), "ann", redis_rate.PerSecond(10), -3)
	if err != nil || old.Remaining < 7 {
		t.Errorf("redis_rate: got %+v, %v", old, err)
	}
	if _, err := after.AllowN(t.Context(), "ann", redisrate.PerSecond(10), -3); !errors.Is(err, weir.ErrInvalidCost) {
		t.Errorf("got error %v, want ErrInvalidCost", err)
	}
}

// near reports whether two times are equal up to the fractions that redis_rate loses: its
// arithmetic is in floating-point seconds.
func near(a, b time.Duration) bool { return (a - b).Abs() < time.Millisecond }

// sameRemaining reports whether Remaining is equal, or redis_rate's is one less because
// the exact number is whole and its floating-point number is just below.
func sameRemaining(old *redis_rate.Result, now *redisrate.Result) bool {
	whole := now.ResetAfter%(now.Limit.Period/time.Duration(now.Limit.Rate)) == 0
	return old.Remaining == now.Remaining || whole && old.Remaining == now.Remaining-1
}

func ask(t *testing.T, before *redis_rate.Limiter, after *redisrate.Limiter, method, key string, rate, n int) (*redis_rate.Result, *redisrate.Result) {
	t.Helper()
	ctx := t.Context()
	var old *redis_rate.Result
	var now *redisrate.Result
	var err, err2 error
	was, is := redis_rate.PerSecond(rate), redisrate.PerSecond(rate)
	switch method {
	case "Allow":
		old, err = before.Allow(ctx, key, was)
		now, err2 = after.Allow(ctx, key, is)
	case "AllowN":
		old, err = before.AllowN(ctx, key, was, n)
		now, err2 = after.AllowN(ctx, key, is, n)
	default:
		old, err = before.AllowAtMost(ctx, key, was, n)
		now, err2 = after.AllowAtMost(ctx, key, is, n)
	}
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return old, now
}
