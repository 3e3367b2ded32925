package patterns

import (
	"context"
	"fmt"
	"io"
	"strings"
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

	for _, c := range []struct {
		at         time.Duration
		n          int
		ip, apiKey string
	}{
		{900 * time.Millisecond, 6, "192.0.2.1", "key-a"},
		{900 * time.Millisecond, 5, "192.0.2.2", "key-a"},
		{900 * time.Millisecond, 5, "192.0.2.1", "key-b"},
		{900 * time.Millisecond, 2, "192.0.2.3", "key-c"},
		{time.Second, 5, "192.0.2.2", "key-a"},
	} {
		if now := epoch.Add(c.at); now != clock.now {
			clock.at(c.at)
			fmt.Fprintln(w, now.Format("15:04:05.0"))
		}
		var res weir.Result
		allowed := 0
		for range c.n {
			if res, err = calls.Allow(ctx, "maps", c.ip, c.apiKey); err != nil {
				return err
			}
			if res.Allowed {
				allowed++
			}
		}
		fmt.Fprintf(w, "%s, %s: %d of %d allowed", c.ip, c.apiKey, allowed, c.n)
		if !res.Allowed {
			fmt.Fprintf(w, ", then denied by %q, retry after %v", res.Rule, res.RetryAfter)
		}
		fmt.Fprintln(w)
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

// ResourceAndConsumer allows 5 calls to a resource in any 10 seconds, and 3 calls from each
// of its consumers. The answer says which limit denied a call. If both limits deny it, the
// answer names the limit of the resource. In a cluster, a resource and its consumers have
// the same slot, and different resources can have different slots.
func ResourceAndConsumer(ctx context.Context, w io.Writer, st store.Store) error {
	clock, opts := virtual()

	lim, err := weir.NewPolicy(st, weir.Policy{
		Name:     "calls",
		Segments: []string{"resource", "consumer"},
		Rules: []weir.Rule{
			{Name: "resource", By: []string{"resource"}, Algorithm: algorithm.SlidingLog{Limit: 5, Window: 10 * time.Second}},
			{Name: "consumer", Algorithm: algorithm.SlidingLog{Limit: 3, Window: 10 * time.Second}},
		},
	}, opts)
	if err != nil {
		return err
	}

	each := make([]weir.Result, 2) // of the resource, and of the consumer
	answer := func(resource, consumer string) string {
		res, callErr := lim.Decide(ctx, weir.Request{Key: weir.KeyOf(resource, consumer)}, each)
		switch {
		case callErr != nil:
			err = callErr
			return "?"
		case res.Allowed:
			return "A"
		case !each[0].Allowed:
			return "R"
		}
		return "C"
	}
	// Consumer a calls every second until end. Consumer b calls every other second, from
	// first to last.
	run := func(resource string, end, first, last time.Duration) (a, b string) {
		for at := time.Duration(0); at < end && err == nil; at += time.Second / 2 {
			clock.at(at)
			if at%time.Second == 0 {
				a += answer(resource, "a")
			}
			if first <= at && at <= last && (at-first)%(2*time.Second) == 0 {
				b += answer(resource, "b")
			}
		}
		return a, b
	}

	a, b := run("calc", 50*time.Second, 4*time.Second, 48*time.Second)
	fmt.Fprintln(w, "A allowed, R denied by the resource's limit, C denied only by the consumer's limit")
	fmt.Fprintf(w, "  a, from 0s on: %s\n  b, from 4s on: %s\n", a, b)

	// For a yes or no, res.Allowed is enough. Consumer a made one call 7 seconds before.
	clock.at(-7 * time.Second)
	answer("mail", "a")
	a, b = run("mail", 25*time.Second, 1500*time.Millisecond, 19500*time.Millisecond)
	yesNo := strings.NewReplacer("A", "T", "R", "F", "C", "F")
	fmt.Fprintln(w, "T yes, F no")
	fmt.Fprintf(w, "  a, from 0s on: %s\n  b, from 1.5s on: %s\n", yesNo.Replace(a), yesNo.Replace(b))

	fmt.Fprintf(w, "calc is in slot %d, mail in slot %d\n", store.Slot("{calc}"), store.Slot("{mail}"))
	return err
}
