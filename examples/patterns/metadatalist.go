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

// MetadataList allows each address 10 requests in a second, and stores the user of each
// request. When an address reaches its limit, an operator can see which users made the
// requests.
func MetadataList(ctx context.Context, w io.Writer, st store.Store) error {
	clock, opts := virtual()

	lim, err := weir.New("requests", st, algorithm.MetadataWindow{Limit: 10, Window: time.Second}, opts)
	if err != nil {
		return err
	}

	const ip = "192.0.2.1"
	for i, user := range []string{"ann", "eve", "eve", "bob", "eve", "eve", "eve", "ann", "eve", "eve", "bob"} {
		clock.at(time.Duration(i) * 70 * time.Millisecond)
		res, err := lim.Decide(ctx, weir.Request{Key: weir.KeyOf(ip), Metadata: user}, nil)
		switch {
		case err != nil:
			return err
		case !res.Allowed:
			fmt.Fprintf(w, "request %d, of %s: denied, retry after %v\n", i+1, user, res.RetryAfter)
		}
	}

	entries, err := lim.Entries(ctx, ip)
	if err != nil {
		return err
	}
	used := map[string]int64{}
	fmt.Fprint(w, "the quota went to")
	for _, e := range entries {
		used[e.Metadata] += e.Cost
		fmt.Fprintf(w, " %s", e.Metadata)
	}
	fmt.Fprintf(w, "\nof 10 requests, eve made %d, ann %d and bob %d\n", used["eve"], used["ann"], used["bob"])

	clock.at(time.Second)
	entries, err = lim.Entries(ctx, ip)
	fmt.Fprintf(w, "after 1s: %d entries\n", len(entries))
	return err
}
