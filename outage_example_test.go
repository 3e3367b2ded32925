package weir_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// Four processes share a limit of 8. During an outage, each of them allows 2 requests.
func ExampleLimiter_OnOutage() {
	down := liar{err: store.ErrUnavailable} // a store during an outage
	lim, err := weir.New("api", down, algorithm.FixedWindow{Limit: 8, Window: time.Hour}, nil)
	if err != nil {
		panic(err)
	}
	lim, err = lim.OnOutage(weir.Outage{Fallback: weir.FailLocal, Processes: 4})
	if err != nil {
		panic(err)
	}
	for range 3 {
		res, err := lim.Allow(context.Background(), "ann")
		fmt.Println(res.Allowed, res.Remaining, "of", res.Limit, res.Degraded != nil, err)
	}
	// Output:
	// true 1 of 2 true <nil>
	// true 0 of 2 true <nil>
	// false 0 of 2 true <nil>
}
