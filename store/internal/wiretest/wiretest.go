// Package wiretest tests a store over a client of Redis: which commands it sends, and what it
// makes of the replies. The server is a fake: see package respserver.
package wiretest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/respserver"
)

// A Subject is the store under test. Each function makes a store over a client of the server
// at addr. The client is closed when t ends.
type Subject struct {
	// Name is the store's package. Errors begin with it.
	Name string

	Single  func(t *testing.T, addr string) Store // the client is for one server
	Cluster func(t *testing.T, addr string) Store // the client is for a cluster

	// Unknown makes a store that cannot see whether its client is for a cluster. It is nil if the
	// store always can.
	Unknown func(t *testing.T, addr string) Store

	// Pipelined is Single with a client that keeps the first replies to a batch if its
	// connection breaks.
	Pipelined func(t *testing.T, addr string) Store

	// RESP3 reports whether the client understands the replies of RESP3.
	RESP3 bool

	// Unavailable are more replies to a script after which the store is unavailable.
	Unavailable []string
}

// A Store is what the adapters provide.
type Store interface {
	store.Store
	store.Batcher
	store.Checker
}

// Run runs the tests.
func Run(t *testing.T, sub Subject) {
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"Eval", sub.eval},
		{"Replies", sub.replies},
		{"Batch", sub.batch},
		{"BrokenBatch", sub.brokenBatch},
		{"MGet", sub.mget},
		{"MGetReplies", sub.mgetReplies},
		{"Time", sub.time},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t)
		})
	}
}

// What the calls of EveryCall and OneCall send.
var (
	Script = store.NewScript("probe", "return 1", nil)
	Keys   = []string{"a{k}", "b{k}"}
	Args   = []store.Arg{store.IntArg(7), store.ConstArg(8), store.StringArg("nine")}
)

// NoScript is a NOSCRIPT with the text that a proxy may send.
const NoScript = "-ERR proxy: NOSCRIPT No matching script. Please use EVAL.\r\n"

// EveryCall makes one call of each kind, and returns their errors.
func EveryCall(ctx context.Context, s Store) map[string]error {
	errs := map[string]error{}
	_, errs["eval"] = s.Eval(ctx, Script, Keys, Args, nil)
	_, errs["mget"] = s.MGet(ctx, Keys, nil)
	_, errs["mget over slots"] = s.MGet(ctx, []string{"a", "b"}, nil)
	_, errs["time"] = s.Time(ctx)
	calls := []store.Eval{{Script: Script, Keys: Keys}, {Script: Script, Keys: []string{"c"}}}
	s.EvalBatch(ctx, calls)
	errs["batch 0"], errs["batch 1"] = calls[0].Err, calls[1].Err
	return errs
}

// Calls are the names of the calls of OneCall.
var Calls = []string{"eval", "mget", "time", "batch"}

// OneCall makes the call of that name, and returns its error.
func OneCall(ctx context.Context, s Store, name string) error {
	switch name {
	case "eval":
		_, err := s.Eval(ctx, Script, Keys, nil, nil)
		return err
	case "mget":
		_, err := s.MGet(ctx, Keys, nil)
		return err
	case "time":
		_, err := s.Time(ctx)
		return err
	}
	calls := []store.Eval{{Script: Script, Keys: Keys}}
	s.EvalBatch(ctx, calls)
	return calls[0].Err
}

// NewCluster starts a server that is a cluster by itself. It answers CLUSTER, and answer the other
// commands.
func NewCluster(t *testing.T, answer func(args []string) string) *respserver.Server {
	t.Helper()
	var srv atomic.Pointer[respserver.Server]
	s := respserver.New(t, func(args []string) string {
		if args[0] == "CLUSTER" {
			return respserver.Slots(srv.Load().Addr)
		}
		return answer(args)
	})
	srv.Store(s)
	return s
}

// errAny stands for any error.
var errAny = errors.New("any error")

func is(err, want error) bool {
	return want == errAny && err != nil || errors.Is(err, want) //nolint:errorlint // a marker
}
