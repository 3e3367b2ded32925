package observe_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/store/memory"
)

// Decisions are counted by outcome, and the keys that are denied most often are known.
func Example() {
	lim, err := weir.New("api", memory.New(nil), algorithm.FixedWindow{Limit: 2, Window: time.Hour}, nil)
	if err != nil {
		panic(err)
	}
	counts := map[observe.Outcome]int{} // a real observer increments a metric
	count := observe.Observer(func(_ context.Context, d observe.Decision) { counts[d.Outcome()]++ })
	var top observe.TopDenied
	if lim, err = lim.Wrap(count.Wrap, top.Wrap); err != nil {
		panic(err)
	}
	for _, user := range []string{"ann", "bob", "ann", "ann", "ann"} {
		if _, err := lim.Allow(context.Background(), user); err != nil {
			panic(err)
		}
	}
	fmt.Println(counts)
	for _, k := range top.Keys() {
		fmt.Println(k.Key.Segments(), k.Denied)
	}
	// Output:
	// map[allowed:3 denied:2]
	// [ann] 2
}
