package wiretest

import (
	"errors"
	"testing"
)

// A subject is the store under test. Each function makes a store over a client of the
// server at addr. The client is closed when t ends.
type subject struct {
	// name is the store's package. Errors begin with it.
	name string

	single  func(t *testing.T, addr string) Store // the client is for one server
	cluster func(t *testing.T, addr string) Store // the client is for a cluster

	// unknown makes a store that cannot see whether its client is for a cluster. It is
	// nil if the store always can.
	unknown func(t *testing.T, addr string) Store

	// pipelined is single with a client that keeps the first replies to a batch if its
	// connection breaks.
	pipelined func(t *testing.T, addr string) Store

	// resp3 reports whether the client understands the replies of RESP3.
	resp3 bool

	// unavailable are more replies to a script after which the store is unavailable.
	unavailable []string
}

func TestOnTheWire(t *testing.T) {
	t.Parallel()
	for _, sub := range []subject{goredisSubject(), redigoSubject(), rueidisSubject(), valkeySubject()} {
		for name, test := range map[string]func(*testing.T){
			"Eval":        sub.eval,
			"Replies":     sub.replies,
			"Batch":       sub.batch,
			"Cancelled":   sub.cancelled,
			"BrokenBatch": sub.brokenBatch,
			"MGet":        sub.mget,
			"MGetReplies": sub.mgetReplies,
			"Time":        sub.time,
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
