package dailyquota_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/examples/dailyquota"
	"github.com/weir-go/weir/store/memory"
)

// A caller has ten requests per day, and at most three at once. One decision checks both.
func Example() {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	// It is one hour before midnight. At two o'clock, the clocks go forward.
	now := time.Date(2026, 3, 28, 23, 0, 0, 0, berlin)
	lim, err := weir.NewPolicy(memory.New(nil), weir.Policy{Name: "api", Rules: []weir.Rule{
		{Name: "burst", Algorithm: algorithm.TokenBucket{Capacity: 3, Refill: algorithm.PerMinute(1)}},
		{Name: "day", Algorithm: dailyquota.Quota{Limit: 10, Zone: berlin, From: now.AddDate(-1, 0, 0)}},
	}}, &weir.Options{Clock: func() time.Time { return now }}) // only for the example: by default, the store's clock is used
	if err != nil {
		fmt.Println(err)
		return
	}
	ask := func(cost int64) {
		res, err := lim.AllowN(context.Background(), cost, "ann")
		switch {
		case err != nil:
			fmt.Println(err)
		case res.Allowed:
			fmt.Printf("%s: %d allowed, %d left by %q\n", now.Format("Jan 2 15:04"), cost, res.Remaining, res.Rule)
		default:
			fmt.Printf("%s: denied by %q for %v\n", now.Format("Jan 2 15:04"), res.Rule, res.RetryAfter)
		}
	}
	ask(3)
	ask(1)
	for range 2 {
		now = now.Add(10 * time.Minute)
		ask(3)
	}
	now = now.Add(10 * time.Minute)
	ask(2) // the rule "burst" consumes nothing either
	ask(1)
	now = now.Add(30 * time.Minute)
	for range 3 {
		ask(3)
		now = now.Add(5 * time.Minute)
	}
	ask(1)
	ask(1) // a day of 23 hours, 15 minutes old
	// Output:
	// Mar 28 23:00: 3 allowed, 0 left by "burst"
	// Mar 28 23:00: denied by "burst" for 1m0s
	// Mar 28 23:10: 3 allowed, 0 left by "burst"
	// Mar 28 23:20: 3 allowed, 0 left by "burst"
	// Mar 28 23:30: denied by "day" for 30m0s
	// Mar 28 23:30: 1 allowed, 0 left by "day"
	// Mar 29 00:00: 3 allowed, 0 left by "burst"
	// Mar 29 00:05: 3 allowed, 0 left by "burst"
	// Mar 29 00:10: 3 allowed, 0 left by "burst"
	// Mar 29 00:15: 1 allowed, 0 left by "day"
	// Mar 29 00:15: denied by "day" for 22h45m0s
}
