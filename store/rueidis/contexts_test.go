package rueidis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/wiretest"
)

// silent returns a server that answers only the commands that begin a connection.
func silent(t *testing.T) *wiretest.Server {
	t.Helper()
	release := make(chan struct{})
	srv := wiretest.NewCluster(t, func([]string) string { <-release; return "" })
	t.Cleanup(func() { close(release) })
	return srv
}

// openSilent returns a store whose server is closed before its client, because the client
// would wait for the server.
func openSilent(t *testing.T, srv *wiretest.Server, o rueidis.ClientOption) *Store {
	t.Helper()
	c, err := rueidis.NewClient(o)
	// On a busy machine, a short timeout can pass while the client connects.
	for deadline := time.Now().Add(time.Minute); err != nil; c, err = rueidis.NewClient(o) {
		if c != nil {
			c.Close()
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	t.Cleanup(c.Close)
	t.Cleanup(srv.Close)
	return New(c)
}

// The server never answers. If the caller's context has ended, the error is the error of
// the context. If only the client's timeout has passed, it is ErrUnavailable.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	for _, pipelining := range []bool{false, true} {
		for _, call := range wiretest.Calls {
			name := fmt.Sprintf("%s/pipelining %t", call, pipelining)
			open := func(t *testing.T) (*Store, *wiretest.Server) {
				srv := silent(t)
				o := options(srv.Addr)
				o.AlwaysPipelining = pipelining
				return openSilent(t, srv, o), srv
			}
			t.Run("deadline/"+name, func(t *testing.T) {
				t.Parallel()
				s, _ := open(t)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				if err := wiretest.OneCall(ctx, s, call); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrUnavailable) {
					t.Errorf("got %v", err)
				}
			})
			// Without a deadline, the call ends at once too: it does not wait for the
			// client's timeout.
			t.Run("cancelled/"+name, func(t *testing.T) {
				t.Parallel()
				s, srv := open(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() {
					srv.Wait(1)
					cancel()
				}()
				start := time.Now()
				if err := wiretest.OneCall(ctx, s, call); !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUnavailable) {
					t.Errorf("got %v", err)
				}
				if took := time.Since(start); took > 4*time.Second {
					t.Errorf("it took %v", took)
				}
			})
		}
	}
	for _, call := range wiretest.Calls {
		t.Run("client's timeout/"+call, func(t *testing.T) {
			t.Parallel()
			srv := silent(t)
			o := options(srv.Addr)
			o.ConnWriteTimeout = 20 * time.Millisecond
			err := wiretest.OneCall(t.Context(), openSilent(t, srv, o), call)
			if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		})
		t.Run("dial/"+call, func(t *testing.T) {
			t.Parallel()
			o := options("127.0.0.1:1")
			o.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}
			}
			c, _ := rueidis.NewClient(o)
			defer c.Close()
			// The caller set no deadline, so the error must not say that one passed.
			if err := wiretest.OneCall(t.Context(), New(c), call); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// If a deadline passes on a connection that only one caller uses, the connection is
// closed. Callers that have joined it in the meantime get ErrUnavailable, and not
// DeadlineExceeded.
func TestDeadlineOfAnotherCall(t *testing.T) {
	t.Parallel()
	for _, pipelining := range []bool{false, true} {
		t.Run(fmt.Sprintf("pipelining %t", pipelining), func(t *testing.T) {
			t.Parallel()
			srv := silent(t)
			o := options(srv.Addr)
			o.AlwaysPipelining = pipelining
			o.ConnWriteTimeout = time.Minute
			s := openSilent(t, srv, o)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			first := make(chan error, 1)
			go func() { first <- wiretest.OneCall(ctx, s, "eval") }()
			srv.Wait(1)
			joined, leave := context.WithTimeout(t.Context(), 8*time.Second)
			defer leave()
			err := wiretest.OneCall(joined, s, "eval")
			if got := <-first; !errors.Is(got, context.DeadlineExceeded) {
				t.Errorf("the first: got %v", got)
			}
			want, other := store.ErrUnavailable, context.DeadlineExceeded
			if pipelining {
				want, other = other, want // its own, later
			}
			if !errors.Is(err, want) || errors.Is(err, other) {
				t.Errorf("the one who joined: got %v, want %v", err, want)
			}
		})
	}
}
