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

// ResourceAndConsumer allows a resource 5 calls in any 10 seconds, and each of
// its consumers 3 of them. The answer says which of the two was over. Resources
// have slots of their own in a cluster; a resource and its consumers share one.
func ResourceAndConsumer(ctx context.Context, w io.Writer, st store.Store) error {
	clock, opts := virtual()

	lim, err := weir.NewRules(st, []weir.Rule{
		{Name: "resource", By: []int{0}, Algorithm: algorithm.SlidingLog{Limit: 5, Window: 10 * time.Second}},
		{Name: "consumer", By: []int{0, 1}, Algorithm: algorithm.SlidingLog{Limit: 3, Window: 10 * time.Second}},
	}, opts)
	if err != nil {
		return err
	}

	verdict := func(resource, consumer string) string {
		res, callErr := lim.Allow(ctx, resource, consumer)
		switch {
		case callErr != nil:
			err = callErr
			return "?"
		case res.Allowed:
			return "A"
		case res.Rule == "resource":
			return "R"
		}
		return "C"
	}
	// Consumer a calls every second until end, and consumer b every other second
	// from first to last.
	run := func(resource string, end, first, last time.Duration) (a, b string) {
		for at := time.Duration(0); at < end && err == nil; at += time.Second / 2 {
			clock.at(at)
			if at%time.Second == 0 {
				a += verdict(resource, "a")
			}
			if first <= at && at <= last && (at-first)%(2*time.Second) == 0 {
				b += verdict(resource, "b")
			}
		}
		return a, b
	}

	a, b := run("calc", 50*time.Second, 4*time.Second, 48*time.Second)
	fmt.Fprintln(w, "A admitted, R resource over, C consumer over")
	fmt.Fprintf(w, "  a, from 0s on: %s\n  b, from 4s on: %s\n", a, b)

	// Whoever needs no more than yes or no looks at res.Allowed alone. Consumer a
	// comes with one call that is seven seconds old.
	clock.at(-7 * time.Second)
	verdict("mail", "a")
	a, b = run("mail", 25*time.Second, 1500*time.Millisecond, 19500*time.Millisecond)
	yesNo := strings.NewReplacer("A", "T", "R", "F", "C", "F")
	fmt.Fprintln(w, "T yes, F no")
	fmt.Fprintf(w, "  a, from 0s on: %s\n  b, from 1.5s on: %s\n", yesNo.Replace(a), yesNo.Replace(b))

	fmt.Fprintf(w, "calc is in slot %d, mail in slot %d\n", store.Slot("{calc}"), store.Slot("{mail}"))
	return err
}
