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

// SingleCounter allows each address 10 requests in a window of one second. The window starts
// with the first request. This pattern needs the least memory: one counter for each address.
func SingleCounter(ctx context.Context, w io.Writer, st store.Store) error {
	clock, opts := virtual()

	lim, err := weir.New("requests", st, algorithm.FixedWindow{Limit: 10, Window: time.Second}, opts)
	if err != nil {
		return err
	}

	for i := range 12 {
		clock.at(time.Duration(i) * 70 * time.Millisecond)
		res, err := lim.Allow(ctx, "127.0.0.1")
		switch {
		case err != nil:
			return err
		case !res.Allowed:
			fmt.Fprintf(w, "request %d: denied, retry after %v\n", i+1, res.RetryAfter)
		default:
			fmt.Fprintf(w, "request %d: allowed, %d left\n", i+1, res.Remaining)
		}
	}

	clock.at(time.Second)
	res, err := lim.Allow(ctx, "127.0.0.1")
	fmt.Fprintf(w, "after 1s: allowed %v, %d left\n", res.Allowed, res.Remaining)
	return err
}
