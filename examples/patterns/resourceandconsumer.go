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
