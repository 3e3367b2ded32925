package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

// A contestant is an algorithm whose cost is compared with the others', for a limit
// of n in n steps.
type contestant struct {
	name      string
	algorithm func(n int64) algorithm.Algorithm
	pauses    bool                                                                            // beside an algorithm.Pause, without a pause
	single    bool                                                                            // filled one by one, because the state grows with each request or token
	request   func(i int64) weir.Request                                                      // the request without key and cost; nil means the zero Request
	peer      func(tb testing.TB, rdb *redis.Client, n int64, clock func() time.Time) *remote // instead of weir
}

// step is the time in which one token comes back.
const step = time.Millisecond

// contestants are compared with the first of them.
var contestants = []contestant{
	{name: "fixedwindow", algorithm: func(n int64) algorithm.Algorithm {
		return algorithm.FixedWindow{Limit: n, Window: steps(n)}
	}},
	{name: "calendar", algorithm: func(n int64) algorithm.Algorithm {
		return algorithm.Calendar{Limit: 1000 * n, Every: algorithm.Month, Zone: "Europe/Berlin"} // all requests are in one month
	}},
	{name: "metadatawindow", single: true, algorithm: func(n int64) algorithm.Algorithm {
		return algorithm.MetadataWindow{Limit: n, Window: steps(n)}
	}, request: func(i int64) weir.Request { return weir.Request{Metadata: fmt.Sprintf("user-%06d", i%1_000_000)} }},
	{name: "gcra", algorithm: func(n int64) algorithm.Algorithm {
		return algorithm.GCRA{Rate: algorithm.Every(step), Burst: n}
	}},
	{name: "gcra-pause", pauses: true, algorithm: func(n int64) algorithm.Algorithm {
		return algorithm.GCRA{Rate: algorithm.Every(step), Burst: n}
	}},
	{name: "tokenbucket", algorithm: func(n int64) algorithm.Algorithm {
		return algorithm.TokenBucket{Capacity: n, Refill: algorithm.Every(step)}
	}},
	{name: "tokenbucket-atonce", algorithm: func(n int64) algorithm.Algorithm {
		return algorithm.TokenBucket{Capacity: n, Refill: algorithm.Rate{Count: n, Period: steps(n)}, AtOnce: true}
	}},
	{name: "leakybucket", algorithm: func(n int64) algorithm.Algorithm {
		return algorithm.LeakyBucket{Rate: algorithm.Every(step), Queue: n - 1}
	}, request: func(int64) weir.Request { return weir.Request{MaxWait: window} }},
	{name: "slidingbuckets", algorithm: func(n int64) algorithm.Algorithm {
		return algorithm.SlidingBuckets{Width: steps(n / 10), Spans: []algorithm.Span{{Window: steps(n), Limit: n}}}
	}},
	{name: "slidingcounter", algorithm: func(n int64) algorithm.Algorithm {
		return algorithm.SlidingCounter{Limit: n + n/10 + 2, Window: steps(n)} // room for estimates above n
	}},
	{name: "slidinglog", single: true, algorithm: func(n int64) algorithm.Algorithm {
		return algorithm.SlidingLog{Limit: n, Window: steps(n)}
	}},
	{name: "concurrency", single: true, algorithm: func(n int64) algorithm.Algorithm {
		return algorithm.Concurrency{Limit: n, Lease: steps(n)}
	}, request: func(i int64) weir.Request { return weir.Request{ID: fmt.Sprintf("lease-%012d", i)} }},
	{name: "semaphore", single: true, peer: newSemaphore},
}

func steps(n int64) time.Duration { return time.Duration(n) * step }

func decision(allowed bool) string {
	if allowed {
		return "allowed"
	}
	return "denied"
}

// BenchmarkAlgorithms compares what a decision of one token costs a server, by
// algorithm, under a limit of 100 and of 100,000. To be allowed, a request comes each
// time that a token is back, on a key that was in use for a whole window. To be denied,
// it comes to a key without a token. Time is virtual. A SlidingLog of 100 entries is about as long
// as a listpack may be, and a longer one is a skip list on the server.
func BenchmarkAlgorithms(b *testing.B) {
	rdb := connect(b)
	for _, c := range contestants {
		for _, allowed := range []bool{true, false} {
			for _, n := range []int64{100, 100_000} {
				b.Run(fmt.Sprintf("impl=%s/decision=%s/limit=%d", c.name, decision(allowed), n), func(b *testing.B) {
					c.scene(b, rdb, n, allowed).run(rdb)(b)
				})
			}
		}
	}
}

func (c contestant) scene(tb testing.TB, rdb *redis.Client, n int64, allowed bool) scene {
	tb.Helper()
	now, pace := time.Unix(1_700_000_000, 0), time.Duration(0)
	clock := func() time.Time {
		now = now.Add(pace)
		return now
	}
	asked, cost := int64(0), int64(1)
	ask := func() weir.Request {
		var r weir.Request
		if c.request != nil {
			r = c.request(asked)
		}
		asked++
		r.Cost = cost
		return r
	}
	var r *remote
	if c.peer != nil {
		r = c.peer(tb, rdb, n, clock)
	} else {
		rules := []weir.Rule{{Algorithm: c.algorithm(n)}}
		if c.pauses {
			rules[0].Name = "rate"
			rules = append(rules, weir.Rule{Name: "pause", Algorithm: algorithm.Pause{}})
		}
		r = newWeirAsking(tb, rdb, "weir-"+c.name, policy(rules...), clock, ask)
	}
	path := []string{"full"}
	key := func(int) []string { return path }
	tb.Cleanup(func() { r.forget(tb, path...) })
	return scene{remote: r, allowed: allowed, key: key, prepare: func(tb testing.TB) {
		r.forget(tb, path...)
		if !c.single {
			cost = n / 10
		}
		if allowed { // more than a window, so that the key holds expired state too
			pace = steps(cost)
			r.askAll(tb, int(n/cost+n/cost/8), true, key)
			now = now.Add(pace - step) // the next token is back after cost steps
			cost, pace = 1, step
			return
		}
		pace = 0
		if c.single { // in pipelines
			r.askAll(tb, int(n), true, key)
		}
		for ; cost > 0; cost /= 2 {
			r.fill(tb, path...)
		}
		cost = 1
	}}
}

// fill asks until a request is denied.
func (r *remote) fill(tb testing.TB, key ...string) {
	tb.Helper()
	for ok := true; ok; {
		var err error
		if ok, err = r.allow(context.Background(), key...); err != nil {
			tb.Fatal(err)
		}
	}
}
