// Package patterns has six published rate limiters, each written with weir. They run on any
// store and in virtual time, so they print the same on every store.
// docs/reference/patterns.md shows what each one stores.
package patterns

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rediscell"
	"github.com/weir-go/weir/store"
)

// A Pattern is one of the rate limiters.
type Pattern struct {
	Name string

	// Run sends some requests through a limiter over st, and prints the answers to w.
	Run func(ctx context.Context, w io.Writer, st store.Store) error
}

// All returns the patterns, in the order of docs/reference/patterns.md.
func All() []Pattern {
	return []Pattern{
		{"SingleCounter", SingleCounter},
		{"ClockSecond", ClockSecond},
		{"MetadataList", MetadataList},
		{"SlidingBuckets", SlidingBuckets},
		{"ResourceAndConsumer", ResourceAndConsumer},
		{"Throttle", Throttle},
	}
}

// A clock shows the time that its method at has set.
type clock struct{ now time.Time }

// epoch is the time at which every example starts.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// virtual returns a clock, and options that make a limiter use it. Most applications pass
// nil options, and so use the store's clock. The prefix is random, so an example finds no
// state of an earlier run on the same server. It begins with weir, because a server's ACL
// can allow only such keys.
func virtual() (*clock, *weir.Options) {
	c := &clock{epoch}
	return c, &weir.Options{
		Prefix: "weir-" + rand.Text(),
		Clock:  func() time.Time { return c.now },
	}
}

// at sets the clock to d after epoch.
func (c *clock) at(d time.Duration) { c.now = epoch.Add(d) }

// Throttle makes the decision of redis-cell's command CL.THROTTLE user123 15 30 60. If a call
// is denied, it prints the headers of an HTTP response.
func Throttle(ctx context.Context, w io.Writer, st store.Store) error {
	clock, opts := virtual()

	throttler, err := rediscell.New("requests", st, opts)
	if err != nil {
		return err
	}

	for _, call := range []struct {
		at       time.Duration
		quantity int64
	}{
		{0, 1}, {0, 15}, {0, 1}, {1500 * time.Millisecond, 0}, {2 * time.Second, 1}, {3 * time.Second, 17},
	} {
		clock.at(call.at)
		t, err := throttler.Throttle(ctx, "user123", 15, 30, time.Minute, call.quantity)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "at %v, quantity %d: %d\n", call.at, call.quantity, t.Numbers())
		if t.Limited {
			fmt.Fprintf(w, "  X-RateLimit-Limit: %d\n  X-RateLimit-Remaining: %d\n  X-RateLimit-Reset: %d\n", t.Limit, t.Remaining, t.ResetAfter)
			if t.RetryAfter >= 0 {
				fmt.Fprintf(w, "  Retry-After: %d\n", t.RetryAfter)
			}
		}
	}
	return nil
}
