package wiretest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/store"
)

// nothingSent tests that calls which the store rejects send nothing, and do not reach the
// builders of clients, which panic.
func (sub subject) nothingSent(t *testing.T) {
	for _, k := range sub.kinds {
		srv := NewCluster(t, func([]string) string { return ":1\r\n" })
		s := sub.store(t, srv.Addr, k)
		if err := s.Check(); err != nil {
			t.Errorf("%s: %v", k, err)
		}
		reply := []store.Value{store.IntegerValue(5)}
		if got, err := s.Eval(t.Context(), Script, []string{"a", "b"}, nil, reply); !errors.Is(err, store.ErrCrossSlot) || len(got) != 1 {
			t.Errorf("%s: keys of two slots: got %v, %v", k, got, err)
		}
		if _, err := s.Eval(t.Context(), Script, nil, nil, nil); err == nil {
			t.Errorf("%s: no keys: got no error", k)
		}
		if got, err := s.MGet(t.Context(), nil, reply); err != nil || len(got) != 1 {
			t.Errorf("%s: mget of no keys: got %v, %v", k, got, err)
		}
		s.EvalBatch(t.Context(), nil)
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		for call, err := range EveryCall(cancelled, s) {
			if !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s: %s, context done: got %v", k, call, err)
			}
		}
		if sent, _ := srv.Commands(); len(sent) != 0 {
			t.Errorf("%s: the server received %q", k, sent)
		}
	}
}

// noServer tests that calls are unavailable after the server has gone, with an error that
// names the store once, and holds the network's.
func (sub subject) noServer(t *testing.T) {
	for _, k := range sub.kinds {
		srv := NewCluster(t, func([]string) string { return ":1\r\n" })
		s := sub.store(t, srv.Addr, k)
		srv.Close()
		for _, call := range Calls { // the first can fail because the connection was lost, not refused
			_ = OneCall(t.Context(), s, call)
		}
		for call, err := range EveryCall(t.Context(), s) {
			var op *net.OpError
			textOnly := sub.name == "redigo" && k == cluster // redisc passes on the text only
			if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "connection refused") || !errors.As(err, &op) && !textOnly {
				t.Errorf("%s: %s: got %v, want unavailable and the network's error", k, call, err)
			}
			if !strings.HasPrefix(err.Error(), sub.name+": ") || strings.Count(err.Error(), sub.name) != 1 {
				t.Errorf("%s: %s: %q is not wrapped once", k, call, err)
			}
		}
	}
}

// closed tests that calls are unavailable after the client was closed.
func (sub subject) closed(t *testing.T) {
	for _, k := range sub.kinds {
		s, shut := sub.open(t, NewCluster(t, func([]string) string { return ":1\r\n" }).Addr, options{kind: k, timeout: readTimeout})
		shut()
		for start := time.Now(); OneCall(t.Context(), s, "eval") == nil; { // some clients close in the background
			if time.Since(start) > 10*time.Second {
				t.Fatalf("%s: it still runs scripts", k)
			}
		}
		for call, err := range EveryCall(t.Context(), s) {
			if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "clos") {
				t.Errorf("%s: %s: got %v, want unavailable because it is closed", k, call, err)
			}
		}
	}
}

// silent tests calls to a server that never answers. If the caller's context has ended, the
// error is the error of the context. If only the client's timeout has passed, it is
// ErrUnavailable.
func (sub subject) silent(t *testing.T) {
	const short = 20 * time.Millisecond
	type answer struct {
		want, not error
		within    time.Duration
	}
	ended := func(err error) answer { return answer{err, store.ErrUnavailable, 4 * time.Second} }
	outage := answer{store.ErrUnavailable, context.DeadlineExceeded, time.Minute}
	run := func(name string, o options, end func(*Server, context.Context) context.Context, a answer) {
		t.Run(fmt.Sprint(name, "/", o.kind), func(t *testing.T) {
			t.Parallel()
			var wg sync.WaitGroup
			for _, call := range Calls {
				srv := NewCluster(t, func([]string) string { <-t.Context().Done(); return "" })
				s := sub.with(t, srv.Addr, o)
				defer srv.Close() // before the client, which would wait for it
				wg.Go(func() {
					start := time.Now()
					if err := OneCall(end(srv, t.Context()), s, call); !errors.Is(err, a.want) || errors.Is(err, a.not) {
						t.Errorf("%s: got %v, want %v", call, err, a.want)
					}
					if took := time.Since(start); took > a.within {
						t.Errorf("%s: it took %v", call, took)
					}
				})
			}
			wg.Wait()
		})
	}
	never := func(_ *Server, ctx context.Context) context.Context { return ctx }
	for _, k := range sub.kinds {
		if k == unknown { // as cluster
			continue
		}
		run("deadline", options{kind: k, timeout: readTimeout}, func(_ *Server, ctx context.Context) context.Context {
			ctx, cancel := context.WithTimeout(ctx, short)
			t.Cleanup(cancel)
			return ctx
		}, ended(context.DeadlineExceeded))
		o := options{kind: k, timeout: time.Second} // it ends the call, later than the cancellation even on a busy machine
		if sub.prompt[k] {
			o.timeout = readTimeout
		}
		run("cancelled", o, func(srv *Server, ctx context.Context) context.Context {
			ctx, cancel := context.WithCancel(ctx)
			go func() {
				srv.Wait(1)
				cancel()
			}()
			return ctx
		}, ended(context.Canceled))
		if k == single || sub.follows { // others connect before they are made, or wait for longer on a connection that callers share
			run("timeout", options{kind: k, timeout: short}, never, outage)
			run("dial", options{kind: k, timeout: readTimeout, dial: func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}
			}}, never, outage) // the caller set no deadline
		}
	}
}

// follow tests that failing calls make the store read the topology again, but not once for
// each call.
func (sub subject) follow(t *testing.T) {
	if !sub.follows {
		t.Skip("the client does so by itself")
	}
	const down = "-CLUSTERDOWN The cluster is down\r\n"
	for name, c := range map[string]struct {
		answer   string
		topology bool // the node can send it again
	}{
		"CLUSTERDOWN":     {down, true},
		"connection lost": {"", true},
		"no topology":     {down, false}, // then a client itself may not wait between reloads
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var addr string
			asked := atomic.Bool{}
			srv := NewServer(t, func(args []string) string {
				switch {
				case args[0] != "CLUSTER":
					return c.answer
				case asked.Swap(true) && !c.topology:
					return down
				}
				return Shards(addr)
			})
			addr = srv.Addr
			s, start, reloads := sub.store(t, srv.Addr, cluster), time.Time{}, 0
			for reloads < 4 { // in real time, because the client reloads in the background
				if err := OneCall(t.Context(), s, "eval"); !errors.Is(err, store.ErrUnavailable) {
					t.Fatal(err)
				}
				_, n := srv.Commands()
				if reloads += n; start.IsZero() {
					start = time.Now()
				}
				if time.Since(start) > 30*time.Second {
					t.Fatalf("%d reloads after %v", reloads, time.Since(start))
				}
			}
			if took := time.Since(start); took < 250*time.Millisecond {
				t.Errorf("4 topology requests within %v", took)
			}
		})
	}
}
