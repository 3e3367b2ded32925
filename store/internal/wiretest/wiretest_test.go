package wiretest

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"time"
)

// A subject is the store under test.
type subject struct {
	name  string // the store's package: errors begin with it
	kinds []kind // that its clients can have

	// open makes a store over a client of the server at addr, and a function that closes the
	// client.
	open func(t *testing.T, addr string, o options) (Store, func())

	prompt  map[kind]bool // a cancellation ends a call at once
	resp3   bool          // the client understands the replies of RESP3
	follows bool          // the store makes the client of a cluster read the topology

	// unavailable are more replies to a script after which the store is unavailable.
	unavailable []string
}

// A kind is the kind of a client.
type kind string

const (
	single    kind = "one server"
	cluster   kind = "cluster"
	unknown   kind = "unknown"   // the store cannot see whether it is for a cluster
	pipelined kind = "pipelined" // single, and keeps the first replies to a batch if its connection breaks
)

// The options of a client, which retries nothing.
type options struct {
	kind    kind
	timeout time.Duration // of a reply
	dial    func(ctx context.Context, network, addr string) (net.Conn, error)
}

// The timeouts of clients.
const (
	dialTimeout = time.Second
	readTimeout = 5 * time.Second
)

// store returns a store over a client of that kind, which is closed when t ends.
func (sub subject) store(t *testing.T, addr string, k kind) Store {
	t.Helper()
	return sub.with(t, addr, options{kind: k, timeout: readTimeout})
}

func (sub subject) with(t *testing.T, addr string, o options) Store {
	t.Helper()
	st, shut := sub.open(t, addr, o)
	t.Cleanup(shut)
	return st
}

// has reports whether clients of the store can be of kind k.
func (sub subject) has(k kind) bool { return slices.Contains(sub.kinds, k) }

func TestOnTheWire(t *testing.T) {
	t.Parallel()
	for _, sub := range []subject{goredisSubject, redigoSubject, rueidisSubject, valkeySubject} {
		for name, test := range map[string]func(*testing.T){
			"Eval":        sub.eval,
			"OwnReply":    sub.ownReply,
			"Replies":     sub.replies,
			"Batch":       sub.batch,
			"Cancelled":   sub.cancelled,
			"BrokenBatch": sub.brokenBatch,
			"MGet":        sub.mget,
			"MGetReplies": sub.mgetReplies,
			"Time":        sub.time,
			"NothingSent": sub.nothingSent,
			"NoServer":    sub.noServer,
			"Closed":      sub.closed,
			"Silent":      sub.silent,
			"Follow":      sub.follow,
		} {
			t.Run(sub.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				test(t)
			})
		}
	}
}

// errAny stands for any error.
var errAny = errors.New("any error")

func is(err, want error) bool {
	return want == errAny && err != nil || errors.Is(err, want) // a marker
}
