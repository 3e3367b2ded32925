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

// ClockSecond counts calls in each second of the clock: 10 calls from each address, 10 calls
// with each API key, and 15 calls in total. One decision checks all three limits. The API
// keys are stored as hashes. Another limiter allows each user 5 searches in each minute of
// the clock.
func ClockSecond(ctx context.Context, w io.Writer, st store.Store) error {
	clock, opts := virtual()

	perSecond := func(n int64) algorithm.FixedWindow {
		return algorithm.FixedWindow{Limit: n, Window: time.Second, Aligned: true}
	}
	calls, err := weir.NewPolicy(st, weir.Policy{
		Name:     "calls",
		Segments: []string{"service", "ip", "apikey"},
		Secret:   []string{"apikey"},
		Rules: []weir.Rule{
			{Name: "all", By: []string{"service"}, Algorithm: perSecond(15)},
			{Name: "ip", By: []string{"service", "ip"}, Algorithm: perSecond(10)},
			{Name: "apikey", By: []string{"service", "apikey"}, Algorithm: perSecond(10)},
		},
	}, opts)
	if err != nil {
		return err
	}
	search, err := weir.New("search", st, algorithm.FixedWindow{Limit: 5, Window: time.Minute, Aligned: true}, opts)
	if err != nil {
		return err
	}

	call := func(n int, ip, apiKey string) error {
		var res weir.Result
		allowed := 0
		for range n {
			if res, err = calls.Allow(ctx, "maps", ip, apiKey); err != nil {
				return err
			}
			if res.Allowed {
				allowed++
			}
		}
		fmt.Fprintf(w, "%s, %s: %d of %d allowed", ip, apiKey, allowed, n)
		if !res.Allowed {
			fmt.Fprintf(w, ", then denied by %q, retry after %v", res.Rule, res.RetryAfter)
		}
		fmt.Fprintln(w)
		return nil
	}
	clock.at(900 * time.Millisecond)
	fmt.Fprintln(w, "00:00:00.9")
	for _, c := range []struct {
		n          int
		ip, apiKey string
	}{
		{6, "192.0.2.1", "key-a"},
		{5, "192.0.2.2", "key-a"},
		{5, "192.0.2.1", "key-b"},
		{2, "192.0.2.3", "key-c"},
	} {
		if err := call(c.n, c.ip, c.apiKey); err != nil {
			return err
		}
	}
	clock.at(time.Second)
	fmt.Fprintln(w, "00:00:01.0")
	if err := call(5, "192.0.2.2", "key-a"); err != nil {
		return err
	}

	for i := range 6 {
		res, err := search.Allow(ctx, "ann")
		switch {
		case err != nil:
			return err
		case !res.Allowed:
			fmt.Fprintf(w, "search %d of ann: please wait %v\n", i+1, res.RetryAfter)
		default:
			fmt.Fprintf(w, "search %d of ann: found, %d more this minute\n", i+1, res.Remaining)
		}
	}
	return nil
}
