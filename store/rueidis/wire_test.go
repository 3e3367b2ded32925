package rueidis

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/wiretest"
)

// The store uses each command of the client only once, because the client recycles it. So
// concurrent calls, whose EVALSHA fails, each get their own reply.
func TestCommandsAreNotReused(t *testing.T) {
	t.Parallel()
	srv := wiretest.NewServer(t, func(args []string) string {
		if args[0] == "EVALSHA" {
			return wiretest.NoScript
		}
		return "$" + fmt.Sprint(len(args[4])) + "\r\n" + args[4] + "\r\n"
	})
	s := New(single(t, srv.Addr))
	done := make(chan error)
	const callers, each = 8, 200
	for i := range callers {
		go func() {
			text := strings.Repeat(fmt.Sprint(i), 1+i*100)
			for range each {
				reply, err := s.Eval(t.Context(), script, keys[:1], []store.Arg{store.StringArg(text)}, nil)
				if err != nil || len(reply) != 1 || reply[0].Str() != text {
					done <- fmt.Errorf("%v, %w: not its own reply", reply, err)
					return
				}
			}
			done <- nil
		}()
	}
	for range callers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// If a connection breaks in the middle of a batch, and only one caller uses the
// connection, the client drops all replies.
func TestBatchBroken(t *testing.T) {
	t.Parallel()
	srv := wiretest.NewServer(t, func(args []string) string {
		return map[string]string{"a": "*1\r\n:1\r\n", "b": "$9\r\nha", "c": ""}[args[3]]
	})
	calls := []store.Eval{{Script: script, Keys: []string{"a"}}, {Script: script, Keys: []string{"b"}}, {Script: script, Keys: []string{"c"}}}
	New(single(t, srv.Addr)).EvalBatch(t.Context(), calls)
	for i, c := range calls {
		kept := i == 0 && c.Err == nil // a client that kept the reply would be right too
		if !kept && (!errors.Is(c.Err, store.ErrUnavailable) || c.Reply != nil) {
			t.Errorf("call %d: got %v, %v", i, c.Reply, c.Err)
		}
	}
}
