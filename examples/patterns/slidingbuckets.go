package patterns

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// SlidingBuckets allows each address 1000 requests in the current second, 5000 in 10 seconds
// and 7000 in 15 seconds. Each limit has its own message. A bucket counts one second.
func SlidingBuckets(ctx context.Context, w io.Writer, st store.Store) error {
	clock, opts := virtual()

	lim, err := weir.New("requests", st, algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{
		{Window: time.Second, Limit: 1000},
		{Window: 10 * time.Second, Limit: 5000},
		{Window: 15 * time.Second, Limit: 7000},
	}}, opts)
	if err != nil {
		return err
	}
	messages := map[time.Duration]string{
		time.Second:      "too many at once",
		10 * time.Second: "too many in 10 seconds",
		15 * time.Second: "too many in 15 seconds: slow down",
	}

	// 1001 requests in every second, of which 1000 come as one.
	for second := range 17 {
		clock.at(time.Duration(second) * time.Second)
		allowed := int64(0)
		for _, n := range []int64{1000, 1} {
			res, err := lim.AllowN(ctx, n, "127.0.0.1")
			if err != nil {
				return err
			}
			allowed += res.Granted
			if !res.Allowed {
				fmt.Fprintf(w, "second %2d: %4d allowed; %s, retry after %v\n", second, allowed, messages[res.Window], res.RetryAfter)
				break
			}
		}
	}
	return nil
}
