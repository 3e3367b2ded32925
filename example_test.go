package weir_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store/memory"
)

// noon is a clock that stands, so that the examples print the same at all times. A
// program leaves it out.
func noon() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

func ExampleNew() {
	lim, err := weir.New(memory.New(nil), algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	for range 3 {
		res, err := lim.Allow(ctx, "user:1000")
		switch {
		case err != nil: // the store could not be asked: your policy
			fmt.Println(err)
		case !res.Allowed: // tell the caller to come back in res.RetryAfter
			fmt.Println("denied, again in", res.RetryAfter.Round(time.Minute))
		default:
			fmt.Println("allowed,", res.Remaining, "left")
		}
	}
	// Output:
	// allowed, 1 left
	// allowed, 0 left
	// denied, again in 1m0s
}

func ExampleNewRules() {
	st := memory.New(nil)
	login, err := weir.NewRules(st, []weir.Rule{
		{Name: "all", By: []int{0}, Algorithm: algorithm.FixedWindow{Limit: 1000, Window: time.Second}},
		{Name: "ip", By: []int{0, 1}, Algorithm: algorithm.GCRA{Rate: algorithm.PerMinute(30), Burst: 10}},
		{Name: "account", By: []int{0, 2}, Algorithm: algorithm.SlidingLog{Limit: 5, Window: 15 * time.Minute}},
	}, &weir.Options{Prefix: "auth", Clock: noon})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	res, err := login.Allow(ctx, "login", "192.0.2.1", "alice") // one round trip; all three or none
	fmt.Println(res.Rule, res.Remaining, err)

	res, err = login.AllowN(ctx, 5, "login", "192.0.2.1", "alice")
	fmt.Println(res.Allowed, res.Rule, res.RetryAfter, err)

	res, err = login.Allow(ctx, "login", "192.0.2.1", "bob")
	fmt.Println(res.Allowed, res.Rule, res.Remaining, err)
	// Output:
	// account 4 <nil>
	// false account 15m0s <nil>
	// true account 4 <nil>
}

func ExampleLimiter_PeekMany() {
	lim, err := weir.NewRules(memory.New(nil), []weir.Rule{
		{Algorithm: algorithm.FixedWindow{Limit: 3, Window: time.Hour}},
	}, &weir.Options{Clock: noon})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	_, _ = lim.AllowN(ctx, 3, "alice")
	_, _ = lim.Allow(ctx, "bob")

	paths := [][]string{{"alice"}, {"bob"}, {"carol"}}
	results, err := lim.PeekMany(ctx, paths)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i, res := range results {
		fmt.Println(paths[i][0], res.Remaining, "of", res.Limit, "for", res.ResetAfter)
	}
	// Output:
	// alice 0 of 3 for 1h0m0s
	// bob 2 of 3 for 1h0m0s
	// carol 3 of 3 for 0s
}

func ExampleLimiter_TakeUpTo() {
	lim, err := weir.NewRules(memory.New(nil), []weir.Rule{
		{Algorithm: algorithm.FixedWindow{Limit: 10, Window: time.Hour}},
	}, &weir.Options{Clock: noon})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	for range 3 {
		res, err := lim.TakeUpTo(ctx, 6, "queue")
		fmt.Println(res.Allowed, res.Granted, res.RetryAfter, err)
	}
	// Output:
	// true 6 0s <nil>
	// true 4 0s <nil>
	// false 0 1h0m0s <nil>
}

func ExampleLimiter_Refund() {
	lim, err := weir.NewRules(memory.New(nil), []weir.Rule{
		{Algorithm: algorithm.FixedWindow{Limit: 10, Window: time.Hour}},
	}, &weir.Options{Clock: noon})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	res, err := lim.Do(ctx, weir.Request{Path: []string{"alice"}, Cost: 4, ID: "order-17"})
	fmt.Println(res.Remaining, err)
	for range 2 { // the order failed; to say so twice does no harm
		gave, err := lim.Refund(ctx, "order-17", "alice")
		fmt.Println(gave, err)
	}
	res, err = lim.Peek(ctx, "alice")
	fmt.Println(res.Remaining, err)
	// Output:
	// 6 <nil>
	// true <nil>
	// false <nil>
	// 10 <nil>
}

func ExampleLimiter_Wait() {
	lim, err := weir.New(memory.New(nil), algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 2 {
		_, err := lim.Wait(ctx, "api.example.com")
		switch {
		case err == nil:
			fmt.Println("go ahead")
		case errors.Is(err, weir.ErrRefused):
			fmt.Println("not within a minute; nothing was taken, and nobody waited")
		default: // ctx's error, or the store's
			fmt.Println(err)
		}
	}
	// Output:
	// go ahead
	// not within a minute; nothing was taken, and nobody waited
}

func ExampleLimiter_Release() {
	lim, err := weir.New(memory.New(nil), algorithm.Concurrency{Limit: 1, Lease: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	ask := func(job string) {
		res, err := lim.Do(ctx, weir.Request{Path: []string{"reports"}, Cost: 1, Lease: job})
		fmt.Println(job, res.Allowed, err)
	}
	ask("job-1")
	ask("job-2")
	res, err := lim.Renew(ctx, "job-1", "reports") // before the minute is over
	fmt.Println("renewed", res.Allowed, err)
	held, err := lim.Release(ctx, "job-1", "reports")
	fmt.Println("released", held, err)
	ask("job-2")
	// Output:
	// job-1 true <nil>
	// job-2 false <nil>
	// renewed true <nil>
	// released true <nil>
	// job-2 true <nil>
}

func ExampleThrottler_Throttle() {
	throttler, err := weir.NewThrottler(memory.New(nil), &weir.Options{Clock: noon})
	if err != nil {
		fmt.Println(err)
		return
	}
	// CL.THROTTLE user123 15 30 60 1
	answer, err := throttler.Throttle(context.Background(), "user123", 15, 30, time.Minute, 1)
	fmt.Println(answer.Numbers(), err)
	// Output:
	// [0 16 15 -1 2] <nil>
}
