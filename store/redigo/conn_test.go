package redigo

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/wiretest"
)

// After every call, its connection is back in the pool, or closed if it cannot be used
// again.
func TestConnectionsReturned(t *testing.T) {
	t.Parallel()
	var release sync.WaitGroup
	release.Add(1)
	t.Cleanup(release.Done)
	for name, c := range map[string]struct {
		answer func() string
		kept   bool
	}{
		"answered":        {func() string { return "*2\r\n$1\r\n1\r\n$1\r\n1\r\n" }, true},
		"error":           {func() string { return "-ERR no\r\n" }, true},
		"out of memory":   {func() string { return "-OOM no\r\n" }, true},
		"unknown script":  {func() string { return wiretest.NoScript }, true},
		"unusable reply":  {func() string { return "*1\r\n*0\r\n" }, true},
		"demoted":         {func() string { return "-READONLY You can't write against a read only replica.\r\n" }, false},
		"connection lost": {func() string { return "" }, false},
		"garbage":         {func() string { return "HTTP/1.1 400 Bad Request\r\n" }, false},
		"silence":         {func() string { release.Wait(); return "" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := wiretest.NewCluster(t, func([]string) string { return c.answer() })
			p, nodes := pool(t, srv.Addr), cluster(t, srv.Addr)
			if err := nodes.Refresh(); err != nil {
				t.Fatal(err)
			}
			for _, call := range wiretest.Calls {
				for client, s := range map[string]*Store{"Pool": New(p), "Cluster": NewCluster(nodes)} {
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					if name == "silence" {
						ctx, cancel = context.WithTimeout(ctx, 100*time.Millisecond) // long enough to connect
					}
					_ = wiretest.OneCall(ctx, s, call)
					cancel()
					stats := p.Stats()
					if client == "Cluster" {
						// A refresh can hold a connection for a moment.
						for s.refreshing.Load() {
							time.Sleep(time.Millisecond)
						}
						stats = nodes.Stats()[srv.Addr]
					}
					if stats.ActiveCount != stats.IdleCount {
						t.Errorf("%s: %s: %d of %d connections are idle", client, call, stats.IdleCount, stats.ActiveCount)
					}
					if client == "Pool" && (stats.IdleCount == 1) != c.kept {
						t.Errorf("%s: %s: %d connections are kept, want it to be %t that one is", client, call, stats.IdleCount, c.kept)
					}
				}
			}
		})
	}
}

// In a batch, one READONLY is enough to close the connection. The other replies are kept.
func TestReadOnlyInBatch(t *testing.T) {
	t.Parallel()
	srv := wiretest.NewServer(t, func(args []string) string {
		if args[3] == "r" {
			return "-READONLY no\r\n"
		}
		return ":1\r\n"
	})
	p := pool(t, srv.Addr)
	calls := []store.Eval{{Script: script, Keys: []string{"a"}}, {Script: script, Keys: []string{"r"}}, {Script: script, Keys: []string{"b"}}}
	New(p).EvalBatch(t.Context(), calls)
	if calls[0].Err != nil || !errors.Is(calls[1].Err, store.ErrUnavailable) || calls[2].Err != nil {
		t.Errorf("got %v, %v, %v", calls[0].Err, calls[1].Err, calls[2].Err)
	}
	if n := p.ActiveCount(); n != 0 {
		t.Errorf("%d connections are left, want none", n)
	}
}

// Connections without support for contexts, such as wrappers, work too.
func TestPlainConnections(t *testing.T) {
	t.Parallel()
	type timed struct{ redis.ConnWithTimeout }
	type plain struct{ redis.Conn }
	var silent atomic.Bool
	var unanswered atomic.Int64
	var release sync.WaitGroup
	release.Add(1)
	t.Cleanup(release.Done)
	srv := wiretest.NewServer(t, func(args []string) string {
		if silent.Load() {
			unanswered.Add(1)
			release.Wait()
		}
		if args[0] == "MGET" || args[0] == "TIME" {
			return "*2\r\n$1\r\n1\r\n$1\r\n1\r\n"
		}
		return ":1\r\n"
	})
	for name, wrap := range map[string]func(redis.Conn) redis.Conn{
		"timed": func(c redis.Conn) redis.Conn { return timed{c.(redis.ConnWithTimeout)} },
		"plain": func(c redis.Conn) redis.Conn { return plain{c} },
	} {
		silent.Store(false)
		open := func(opts ...redis.DialOption) *redis.Pool {
			p := &redis.Pool{MaxIdle: 1, Dial: func() (redis.Conn, error) {
				c, err := redis.Dial("tcp", srv.Addr, opts...)
				if err != nil {
					return nil, err
				}
				return wrap(c), nil
			}}
			t.Cleanup(func() { _ = p.Close() })
			return p
		}
		p := open()
		s := New(p)
		deadline, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, ctx := range []context.Context{t.Context(), deadline} {
			for _, call := range wiretest.Calls {
				if err := wiretest.OneCall(ctx, s, call); err != nil {
					t.Errorf("%s: %s: %v", name, call, err)
				}
			}
		}
		if n := p.ActiveCount(); n != 1 {
			t.Errorf("%s: %d connections for calls one after the other, want 1", name, n)
		}
		silent.Store(true)
		unanswered.Store(0)
		p = open(redis.DialReadTimeout(150 * time.Millisecond)) // what ends a call on a plain connection
		s = New(p)
		for _, call := range wiretest.Calls {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			if err := wiretest.OneCall(ctx, s, call); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %s, silence: got %v", name, call, err)
			}
			cancel()
		}
		// On a busy machine, a call can end before it sends anything. No reply is due then.
		if n := p.ActiveCount(); n != 0 && int(unanswered.Load()) == len(wiretest.Calls) {
			t.Errorf("%s: %d connections are kept on which a reply is due, want none", name, n)
		}
	}
}

// noConn is a pool that returns neither a connection nor an error.
type noConn struct{}

func (noConn) GetContext(context.Context) (redis.Conn, error) { return nil, nil }

func TestPoolWithoutConnection(t *testing.T) {
	t.Parallel()
	for call, err := range wiretest.EveryCall(t.Context(), New(noConn{})) {
		if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, errNoConn) {
			t.Errorf("%s: got %v", call, err)
		}
	}
}

// A batch is larger than the buffers of two sockets, and the server reads no command
// before its last reply was read.
func TestLargeBatch(t *testing.T) {
	t.Parallel()
	const n, size = 400, 64 << 10
	text := strings.Repeat("x", size)
	srv := wiretest.NewServer(t, func(args []string) string { return "$65536\r\n" + args[4] + "\r\n" })
	s := New(pool(t, srv.Addr, redis.DialWriteTimeout(5*time.Second)))
	calls := make([]store.Eval, n)
	for i := range calls {
		calls[i] = store.Eval{Script: script, Keys: []string{"k"}, Args: []store.Arg{store.StringArg(text)}}
	}
	s.EvalBatch(t.Context(), calls)
	for i, c := range calls {
		if c.Err != nil || !slices.Equal(c.Reply, []store.Value{store.BulkValue(text)}) {
			t.Fatalf("call %d: %d values, %v", i, len(c.Reply), c.Err)
		}
	}
	if sent, _ := srv.Commands(); len(sent) != n || srv.Conns() != 1 {
		t.Errorf("the server received %d commands over %d connections, want %d over 1", len(sent), srv.Conns(), n)
	}
}

// A context also ends the write of a large command to a server that does not read.
func TestLargeCommandEnds(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // nobody reads its connections
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	s := New(pool(t, l.Addr().String()))
	keys := slices.Repeat([]string{strings.Repeat("k", 1000)}, 20_000)
	big := strings.Repeat("k", 20<<20)
	for what, call := range map[string]func(ctx context.Context) error{
		"MGet": func(ctx context.Context) error {
			_, err := s.MGet(ctx, keys, nil)
			return err
		},
		"EvalBatch": func(ctx context.Context) error {
			calls := []store.Eval{{Script: script, Keys: []string{big}}, {Script: script, Keys: []string{"k"}}}
			s.EvalBatch(ctx, calls)
			return errors.Join(calls[0].Err, calls[1].Err)
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) { // a write without an end fails the test's timeout
			t.Errorf("%s: got %v", what, err)
		}
	}
}
