// Package patterns holds six published rate limiters, each as the few lines
// that an application writes with weir. They run on any store, in virtual time,
// so that what they print is the same on all. docs/patterns.md says what each
// keeps on a server, what it costs, and what is better than in its source.
package patterns

import (
	"context"
	"crypto/rand"
	"io"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/store"
)

// A Pattern is one of the limiters: it lets some requests through a store and
// prints to w what became of them.
type Pattern struct {
	Name string
	Run  func(ctx context.Context, w io.Writer, st store.Store) error
}

// All returns the patterns, in the order of docs/patterns.md.
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

// A clock moves when it is told to.
type clock struct{ now time.Time }

// epoch is when every example begins.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// virtual returns a clock and the options that make a limiter go by it. Most
// applications pass nil in their place: the store's own clock is the better one.
// The prefix is new each time, as servers are shared and remember, and begins with
// weir for those whose users may touch no other keys.
func virtual() (*clock, *weir.Options) {
	c := &clock{epoch}
	return c, &weir.Options{
		Prefix: "weir-patterns-" + rand.Text(),
		Clock:  func() time.Time { return c.now },
	}
}

// at sets the clock to d after the beginning.
func (c *clock) at(d time.Duration) { c.now = epoch.Add(d) }
