// Package admin is a page for operators: it shows the limiters of a process, who was
// denied, and what each rule has left for a key, and it resets and pauses keys.
//
//	page, err := admin.New([]admin.Limiter{{Name: "api", Limiter: lim, Denied: &top}}, nil)
//	if err != nil {
//		return err
//	}
//	mux.Handle("/limits", authenticate(page))
//
// The page shows keys, and anyone who can open it can reset and pause them. It
// authenticates nobody: mount it behind your own authentication.
//
// # Requests
//
// The page works without JavaScript and at any path, for example behind
// [http.StripPrefix]. All its links are relative, and it looks at the query alone:
//
//	?                           all limiters
//	?limiter=api                one limiter
//	?limiter=api&key=acme&key=ann   a key, with one parameter "key" for each segment
//
// A request whose field Accept names application/json, and not text/html, gets JSON. For
// a key, it is an [explain.Document].
//
// Changes are made only by POST. An [http.CrossOriginProtection] rejects those that
// another site makes a browser send. Over plain HTTP, it compares the fields Origin and
// Host, so a proxy must leave Host as it is. The answer to a change is a redirect to the
// key.
//
// The page never shows a segment that [weir.Policy].Secret names, and never accepts it in
// a URL. It shows the hash. Its own links then hold the key encrypted, and only the
// process that made such a link can read it.
//
// # Outages
//
// If the store does not answer within [Options].Timeout, the page says so, with status
// 503. Without a key, the page does not call the store.
package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/outage"
)

// DefaultTimeout is the default of [Options].Timeout.
const DefaultTimeout = 2 * time.Second

// A Limiter is a limiter that the page shows.
type Limiter struct {
	// Name is the name on the page, in UTF-8 without control characters. Each limiter
	// needs a name of its own.
	Name string

	// Limiter is the limiter, with its wrappers, so that they see a reset too.
	Limiter *weir.Limiter

	// For returns the limiter of a key if some keys have other limits than Limiter, for
	// example those of a plan or an override. It must have the same policy as Limiter. It
	// is called for each look at a key and each change of it. If it is nil, or returns
	// nil, a key has the limits of Limiter.
	For func(ctx context.Context, key weir.Key) (*weir.Limiter, error)

	// Denied has the keys that were denied most often. If it is nil, the page does not
	// show any. It must have counted the decisions of Limiter.
	Denied *observe.TopDenied

	// Outage is the Breaker of the limiter. If it is nil, the page does not show whether
	// there is an outage before it asks the store for a key.
	Outage *outage.Breaker
}

// Options are the optional settings of [New]. The zero value is the default.
type Options struct {
	// Timeout is the longest time that the page waits for a store. 0 means
	// DefaultTimeout, 2 s. The page keeps it even if the client of the store ignores
	// deadlines.
	Timeout time.Duration
}

// New returns the page. If opts is nil, the defaults are used.
//
// New returns an error if there is no limiter, if a name is not valid or used twice, if a
// Limiter is nil or a zero value, or if a field of opts is not valid.
func New(limiters []Limiter, opts *Options) (http.Handler, error) {
	h := &handler{timeout: DefaultTimeout, byName: map[string]*limiter{}}
	if len(limiters) == 0 {
		return nil, errors.New("admin: New: there is no limiter: pass at least one")
	}
	if opts != nil && opts.Timeout != 0 {
		h.timeout = opts.Timeout
	}
	if h.timeout < 0 {
		return nil, fmt.Errorf("admin: New: Options.Timeout is %v: it must be above 0, or 0 for the default of %v", h.timeout, DefaultTimeout)
	}
	for i, given := range limiters {
		switch {
		case given.Name == "":
			return nil, fmt.Errorf("admin: New: limiter %d has no Name: each limiter needs one", i)
		case !typeable(given.Name):
			return nil, fmt.Errorf("admin: New: the name %q of limiter %d cannot be a field of a form: it must be UTF-8 without control characters", given.Name, i)
		case h.byName[given.Name] != nil:
			return nil, fmt.Errorf("admin: New: two limiters are named %q: each limiter needs its own name", given.Name)
		}
		if err := given.Limiter.Valid(); err != nil {
			return nil, fmt.Errorf("admin: New: limiter %q: %w", given.Name, err)
		}
		lim := given.Limiter
		l := &limiter{name: given.Name, lim: lim, keyed: given.For, denied: given.Denied, outage: given.Outage, n: i, segments: lim.Segments(), rules: lim.Rules()}
		h.limiters = append(h.limiters, l)
		h.byName[given.Name] = l
	}
	var err error
	h.seal, err = newSeal()
	return h, err
}
