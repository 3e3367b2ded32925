// Package wiretest has what the tests of the stores over clients of Redis share: a fake
// server, and calls to send to it. Its own tests run over every such store: they test
// which commands it sends, and what it makes of the replies.
package wiretest

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weir-go/weir/store"
)

// A Store is what the adapters provide.
type Store interface {
	store.Store
	store.Batcher
	store.Checker
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
	for _, name := range Calls {
		errs[name] = OneCall(ctx, s, name)
	}
	_, errs["mget over slots"] = s.MGet(ctx, []string{"a", "b"}, nil)
	return errs
}

// Calls are the names of the calls of OneCall.
var Calls = []string{"eval", "mget", "time", "batch"}

// OneCall makes the call of that name, and returns its error.
func OneCall(ctx context.Context, s Store, name string) error {
	switch name {
	case "eval":
		_, err := s.Eval(ctx, Script, Keys, Args, nil)
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

// NewCluster starts a server that is a cluster by itself. It answers CLUSTER, and answer
// the other commands.
func NewCluster(t *testing.T, answer func(args []string) string) *Server {
	t.Helper()
	var srv atomic.Pointer[Server]
	s := NewServer(t, func(args []string) string {
		if args[0] == "CLUSTER" {
			return Shards(srv.Load().Addr)
		}
		return answer(args)
	})
	srv.Store(s)
	return s
}

// AnswerMGet returns the reply to an MGET. Keys that begin with "no" are missing. The
// value of each other key is its name.
func AnswerMGet(args []string) string {
	reply := fmt.Sprintf("*%d\r\n", len(args)-1)
	for _, key := range args[1:] {
		if strings.HasPrefix(key, "no") {
			reply += "$-1\r\n"
		} else {
			reply += fmt.Sprintf("$%d\r\n%s\r\n", len(key), key)
		}
	}
	return reply
}
