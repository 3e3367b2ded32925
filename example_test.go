package weir_test

import (
	"context"
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
