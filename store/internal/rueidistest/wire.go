package rueidistest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/respserver"
	"github.com/weir-go/weir/store/internal/wiretest"
)

func (sub Subject) onTheWire(t *testing.T) {
	t.Parallel()
	wiretest.Run(t, wiretest.Subject{
		Name:    sub.Name,
		Single:  func(t *testing.T, addr string) Store { return sub.single(t, addr).Store },
		Cluster: func(t *testing.T, addr string) Store { return sub.cluster(t, addr).Store },
		Unknown: func(t *testing.T, addr string) Store { return sub.cluster(t, addr).Modeless },
		Pipelined: func(t *testing.T, addr string) Store {
			o := options(addr)
			o.Pipelining = true
			return sub.open(t, o).Store
		},
		RESP3: true,
	})
}

// The store uses each command of the client only once, because the client recycles it. So
// concurrent calls, whose EVALSHA fails, each get their own reply.
func (sub Subject) commandsAreNotReused(t *testing.T) {
	t.Parallel()
	srv := respserver.New(t, func(args []string) string {
		if args[0] == "EVALSHA" {
			return wiretest.NoScript
		}
		return "$" + fmt.Sprint(len(args[4])) + "\r\n" + args[4] + "\r\n"
	})
	s := sub.single(t, srv.Addr).Store
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

// If a connection breaks in the middle of a batch, and only one caller uses the connection, the
// client drops all replies.
func (sub Subject) batchBroken(t *testing.T) {
	t.Parallel()
	srv := respserver.New(t, func(args []string) string {
		return map[string]string{"a": "*1\r\n:1\r\n", "b": "$9\r\nha", "c": ""}[args[3]]
	})
	calls := []store.Eval{{Script: script, Keys: []string{"a"}}, {Script: script, Keys: []string{"b"}}, {Script: script, Keys: []string{"c"}}}
	sub.single(t, srv.Addr).Store.EvalBatch(t.Context(), calls)
	for i, c := range calls {
		kept := i == 0 && c.Err == nil // a client that kept the reply would be right too
		if !kept && (!errors.Is(c.Err, store.ErrUnavailable) || c.Reply != nil) {
			t.Errorf("call %d: got %v, %v", i, c.Reply, c.Err)
		}
	}
}
