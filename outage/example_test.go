package outage_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
)

// An away is a store during an outage.
type away struct{ store.Store }

func (away) Eval(context.Context, *store.Script, []string, []store.Arg, []store.Value) ([]store.Value, error) {
	return nil, store.ErrUnavailable
}

// Four processes share a limit of 8. During an outage, each of them allows 2 requests.
func Example() {
	lim, err := weir.New("api", away{}, algorithm.FixedWindow{Limit: 8, Window: time.Hour}, nil)
	if err != nil {
		panic(err)
	}
	out := outage.New(&outage.Options{Fallback: outage.Local, Processes: 4})
	lim, err = lim.Wrap(out.Wrap)
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
