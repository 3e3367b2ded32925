package prefetch_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/prefetch"
	"github.com/weir-go/weir/store/memory"
)

// A busy key takes one round trip for many requests. What is not used is returned.
func Example() {
	ctx := context.Background()
	all, err := weir.New("api", memory.New(nil), algorithm.FixedWindow{Limit: 100_000, Window: time.Hour}, nil)
	if err != nil {
		panic(err)
	}
	trips := 0
	count := observe.Observer(func(context.Context, observe.Decision) { trips++ })
	pre := prefetch.New(&prefetch.Options{MaxTokens: 1000, MaxAge: time.Minute})
	lim, err := all.Wrap(pre.Wrap, count.Wrap)
	if err != nil {
		panic(err)
	}
	for range 1000 {
		if res, err := lim.Allow(ctx, "ann"); err != nil || !res.Allowed {
			panic(err)
		}
	}
	held, err := all.Peek(ctx, "ann")
	fmt.Println(trips, "round trips,", held.Remaining, "tokens remain", err)

	err = pre.Return(ctx) // at the end of the process
	left, _ := all.Peek(ctx, "ann")
	fmt.Println(left.Remaining, "tokens remain", err)
	// Output:
	// 10 round trips, 98977 tokens remain <nil>
	// 99000 tokens remain <nil>
}
