package weir_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

func ExampleNew() {
	lim, err := weir.New("api", memory.New(nil), algorithm.TokenBucket{Capacity: 2, Refill: algorithm.PerMinute(1)}, nil)
	if err != nil {
		panic(err)
	}
	for range 3 {
		res, err := lim.Allow(context.Background(), "ann")
		if err != nil {
			panic(err) // the decision is unknown: fail open or fail closed
		}
		fmt.Println(res.Allowed, res.Remaining, res.RetryAfter.Round(time.Minute))
	}
	// Output:
	// true 1 0s
	// true 0 0s
	// false 0 1m0s
}

// Log-ins are limited by IP address and by account. Support can unlock an account.
func ExampleNewPolicy() {
	login, err := weir.NewPolicy(memory.New(nil), weir.Policy{
		Name:     "login",
		Segments: []string{"shop", "ip", "account"},
		Rules: []weir.Rule{
			{Name: "ip", By: []string{"shop", "ip"}, Algorithm: algorithm.TokenBucket{Capacity: 100, Refill: algorithm.PerMinute(30)}},
			{Name: "account", By: []string{"shop", "account"}, Algorithm: algorithm.SlidingLog{Limit: 2, Window: 15 * time.Minute}},
		},
	}, nil)
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	try := func() {
		res, err := login.Allow(ctx, "toys", "192.0.2.1", "ann") // one round trip for both rules
		fmt.Println(res.Allowed, res.Rule, res.RetryAfter.Round(time.Minute), err)
	}
	try()
	try()
	try()
	account, _ := login.Only("account")
	fmt.Println("unlocked", account.Reset(ctx, "toys", "any", "ann"))
	try()
	// Output:
	// true account 0s <nil>
	// true account 0s <nil>
	// false account 15m0s <nil>
	// unlocked <nil>
	// true account 0s <nil>
}

// Each customer has a plan. A failed order is refunded. Support can reset a customer.
func ExampleLimiter_With() {
	free, err := weir.New("orders", memory.New(nil), algorithm.FixedWindow{Limit: 10, Window: time.Hour}, nil)
	if err != nil {
		panic(err)
	}
	pro, err := free.With(weir.Rule{Algorithm: algorithm.FixedWindow{Limit: 1000, Window: time.Hour}})
	if err != nil {
		panic(err)
	}
	plan := map[string]*weir.Limiter{"ann": pro, "bob": free}["ann"]

	ctx := context.Background()
	order := weir.Request{Key: weir.KeyOf("ann"), Cost: 40, ID: "order-17"}
	res, err := plan.Decide(ctx, order, nil)
	fmt.Println(res.Allowed, res.Remaining, err)
	for range 2 { // a second refund of an order refunds nothing
		refunded, err := plan.Refund(ctx, order)
		fmt.Println("refunded", refunded.Found, err)
	}
	fmt.Println("reset", plan.Reset(ctx, "ann"))
	// Output:
	// true 960 <nil>
	// refunded true <nil>
	// refunded false <nil>
	// reset <nil>
}

func ExampleLimiter_Wait() {
	lim, err := weir.New("mails", memory.New(nil), algorithm.TokenBucket{Capacity: 1, Refill: algorithm.PerHour(1)}, nil)
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 2 { // the second token comes in an hour: Wait fails at once
		_, err = lim.Wait(ctx, "ann")
		fmt.Println(err == nil, errors.Is(err, weir.ErrDenied))
	}
	r, err := lim.Reserve(context.Background(), weir.Request{Key: weir.KeyOf("ann"), MaxWait: 2 * time.Hour})
	fmt.Println("reserved, in", r.Delay.Round(time.Hour), err)
	refunded, err := r.Cancel(ctx)
	fmt.Println("refunded", refunded, err)
	// Output:
	// true false
	// false true
	// reserved, in 1h0m0s <nil>
	// refunded true <nil>
}

// At most two reports of a customer run at once, and ten start per hour.
func ExampleLimiter_Acquire() {
	lim, err := weir.NewPolicy(memory.New(nil), weir.Policy{Name: "reports", Rules: []weir.Rule{
		{Name: "running", Algorithm: algorithm.Concurrency{Limit: 2, Lease: time.Minute}},
		{Name: "started", Algorithm: algorithm.SlidingLog{Limit: 10, Window: time.Hour}},
	}}, nil)
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	lease, err := lim.Acquire(ctx, weir.Request{Key: weir.KeyOf("ann")}) // waits until ctx ends
	if err != nil {
		panic(err)
	}
	go lease.KeepAlive(ctx, func(error) { cancel() }) // if the lease is lost, stop the work
	fmt.Println(lease.Release(ctx))
	// Output: true <nil>
}

// A failOpen allows every request for which the store is unavailable.
type failOpen struct{ next weir.Decider }

func (f failOpen) Unwrap() weir.Decider { return f.next } // so that other wrappers find the next one

func (f failOpen) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	res, err := f.next.Decide(ctx, r, each)
	if errors.Is(err, store.ErrUnavailable) && r.Op == weir.Consume {
		return weir.Result{Allowed: true}, nil
	}
	return res, err
}

func ExampleLimiter_Wrap() {
	down := liar{err: store.ErrUnavailable} // a store during an outage
	lim, err := weir.New("api", down, algorithm.TokenBucket{Capacity: 20, Refill: algorithm.PerSecond(10)}, nil)
	if err != nil {
		panic(err)
	}
	lim, err = lim.Wrap(func(_ *weir.Limiter, next weir.Decider) (weir.Decider, error) { return failOpen{next}, nil })
	if err != nil {
		panic(err)
	}
	res, err := lim.Allow(context.Background(), "ann")
	fmt.Println(res.Allowed, err)
	// Output: true <nil>
}

// A budget is charged with an estimate, and settled when the cost is known.
func ExampleLimiter_Settle() {
	budget, err := weir.New("budget", memory.New(nil), algorithm.FixedWindow{Limit: 1000, Window: 24 * time.Hour}, &weir.Options{Settles: true})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	job := weir.Request{Key: weir.KeyOf("acme"), Cost: 500, ID: "job-17"}
	res, err := budget.Decide(ctx, job, nil)
	fmt.Println(res.Allowed, res.Remaining, err)
	settled, err := budget.Settle(ctx, job, 120)
	fmt.Println(settled.Found, settled.Cost, err)
	res, err = budget.Peek(ctx, "acme")
	fmt.Println(res.Remaining, err)
	// Output:
	// true 500 <nil>
	// true 120 <nil>
	// 880 <nil>
}

// A partner asks for a pause, and an operator ends it early.
func ExampleLimiter_Pause() {
	lim, err := weir.NewPolicy(memory.New(nil), weir.Policy{Name: "partner", Segments: []string{"host"}, Rules: []weir.Rule{
		{Name: "pace", Algorithm: algorithm.FixedWindow{Limit: 100, Window: time.Hour}},
		{Name: "pause", Algorithm: algorithm.Pause{}},
	}}, nil)
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	id, err := lim.Pause(ctx, 5*time.Minute, "api.example.org")
	if err != nil {
		panic(err)
	}
	res, err := lim.Allow(ctx, "api.example.org")
	fmt.Println(res.Allowed, res.Rule, res.RetryAfter.Round(time.Minute), err)
	fmt.Println(lim.Resume(ctx, id, "api.example.org"))
	res, err = lim.Allow(ctx, "api.example.org")
	fmt.Println(res.Allowed, err)
	// Output:
	// false pause 5m0s <nil>
	// true <nil>
	// true <nil>
}

func ExampleLimiter_Entries() {
	lim, err := weir.New("sign-up", memory.New(nil), algorithm.MetadataWindow{Limit: 2, Window: time.Hour}, nil)
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	for _, account := range []string{"ann", "bob", "eve"} {
		_, _ = lim.Decide(ctx, weir.Request{Key: weir.KeyOf("192.0.2.1"), Metadata: account}, nil)
	}
	entries, err := lim.Entries(ctx, "192.0.2.1")
	for _, e := range entries {
		fmt.Println(e.Metadata, e.Cost)
	}
	fmt.Println(err)
	// Output:
	// ann 1
	// bob 1
	// <nil>
}

// A shadow rule shows what a stricter limit would deny.
func ExampleRule() {
	lim, err := weir.NewPolicy(memory.New(nil), weir.Policy{Name: "api", Rules: []weir.Rule{
		{Name: "now", Algorithm: algorithm.FixedWindow{Limit: 10, Window: time.Hour}},
		{Name: "next", Algorithm: algorithm.FixedWindow{Limit: 1, Window: time.Hour}, Shadow: true},
	}}, nil)
	if err != nil {
		panic(err)
	}
	for range 2 {
		res, err := lim.Allow(context.Background(), "ann")
		fmt.Println(res.Allowed, errors.Is(res.Shadow, weir.ErrDenied), err)
	}
	// Output:
	// true false <nil>
	// true true <nil>
}

// A GraphQL API limits requests and points. The points of a query are known after it ran.
func ExampleCostsOf() {
	ctx := context.Background()
	api, err := weir.NewPolicy(memory.New(nil), weir.Policy{
		Name:  "graphql",
		Units: []string{"points"},
		Rules: []weir.Rule{
			{Name: "requests", Cost: 1, Algorithm: algorithm.TokenBucket{Capacity: 100, Refill: algorithm.PerMinute(100)}},
			{Name: "points", Unit: "points", Algorithm: algorithm.FixedWindow{Limit: 5000, Window: time.Hour}},
		},
	}, &weir.Options{Settles: true})
	if err != nil {
		log.Fatal(err)
	}
	query := weir.Request{Key: weir.KeyOf("ann"), ID: "query-1", Costs: weir.CostsOf(map[string]int64{"points": 0})}
	res, err := api.Decide(ctx, query, nil)
	fmt.Println(res.Allowed, err)
	done, err := api.SettleCosts(ctx, query, weir.CostsOf(map[string]int64{"points": 42}))
	fmt.Println(done.Found, err)

	query.Op = weir.Peek
	each := make([]weir.Result, 2)
	_, err = api.Decide(ctx, query, each)
	fmt.Println(each[1].Remaining, "points left", err)
	// Output:
	// true <nil>
	// true <nil>
	// 4958 points left <nil>
}
