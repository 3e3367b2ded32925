package redigo

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/mna/redisc"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/wiretest"
)

// What the calls send.
var script, keys = wiretest.Script, wiretest.Keys

// newPool returns a pool of connections to addr, with a timeout for connecting and the
// options.
func newPool(addr string, options ...redis.DialOption) (*redis.Pool, error) {
	options = append([]redis.DialOption{redis.DialConnectTimeout(time.Second), redis.DialReadTimeout(5 * time.Second)}, options...)
	return &redis.Pool{
		MaxIdle: 10,
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "tcp", addr, options...)
		},
	}, nil
}

// pool returns a pool that is closed when t ends.
func pool(t *testing.T, addr string, options ...redis.DialOption) *redis.Pool {
	t.Helper()
	p, _ := newPool(addr, options...)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// cluster returns a cluster that is closed when t ends.
func cluster(t *testing.T, addr string, options ...redis.DialOption) *redisc.Cluster {
	t.Helper()
	c := &redisc.Cluster{StartupNodes: []string{addr}, CreatePool: newPool, DialOptions: options}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestUnfitClient(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		store *Store
		want  string
	}{
		"nil":           {New(nil), "nil: call New with a *redis.Pool"},
		"nil Pool":      {New((*redis.Pool)(nil)), "nil: call New with a *redis.Pool"},
		"empty Pool":    {New(&redis.Pool{}), "must have a Dial"},
		"embedded nil":  {New(struct{ *redis.Pool }{}), "nil: call New with a *redis.Pool"},
		"wrapped nil":   {New(&struct{ Pool }{}), "nil: call New with a *redis.Pool"},
		"wrapped empty": {New(struct{ Pool }{&redis.Pool{}}), "must have a Dial"},
		"nil Cluster":   {NewCluster(nil), "or NewCluster with a *redisc.Cluster"},
		"empty Cluster": {NewCluster(&redisc.Cluster{}), "must have StartupNodes"},
		"zero Store":    {&Store{}, "nil: call New with a *redis.Pool"},
		"nil Store":     {nil, "nil: call New with a *redis.Pool"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			errs := wiretest.EveryCall(t.Context(), c.store)
			errs["check"] = c.store.Check()
			for call, err := range errs {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: got %v, want an error with %q", call, err, c.want)
				}
			}
		})
	}
}

func TestFitClient(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*Store{
		"Pool":        New(pool(t, "127.0.0.1:1")),
		"Pool, Dial":  New(&redis.Pool{Dial: func() (redis.Conn, error) { return nil, net.ErrClosed }}),
		"own Pool":    New(noConn{}),
		"embedded":    New(struct{ *redis.Pool }{pool(t, "127.0.0.1:1")}),
		"wrapped":     New(&struct{ Pool }{pool(t, "127.0.0.1:1")}),
		"Cluster":     NewCluster(cluster(t, "127.0.0.1:1")),
		"Cluster, no": NewCluster(&redisc.Cluster{StartupNodes: []string{"127.0.0.1:1"}}),
	} {
		if err := s.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A pool whose dials ignore deadlines is found without the network.
func TestCheckDeadline(t *testing.T) {
	t.Parallel()
	dial := func() (redis.Conn, error) { return nil, errors.New("no server") }
	for name, tt := range map[string]struct {
		st   *Store
		want string
	}{
		"DialContext": {New(&redis.Pool{DialContext: func(context.Context) (redis.Conn, error) { return dial() }}), ""},
		"Dial":        {New(&redis.Pool{Dial: dial}), "set DialContext"},
		"embedded":    {New(struct{ *redis.Pool }{&redis.Pool{Dial: dial}}), "set DialContext"},
		"wrapped":     {New(&struct{ Pool }{&redis.Pool{Dial: dial}}), "set DialContext"},
		"another":     {New(noConn{}), ""},
		"cluster":     {NewCluster(&redisc.Cluster{StartupNodes: []string{"127.0.0.1:1"}}), ""},
		"nil":         {New(nil), "the client is nil"},
	} {
		if err := tt.st.CheckDeadline(); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
}

// Calls that the store rejects send nothing.
func TestNothingSent(t *testing.T) {
	t.Parallel()
	srv := wiretest.NewServer(t, func([]string) string { return ":1\r\n" })
	for name, s := range map[string]*Store{"Pool": New(pool(t, srv.Addr)), "Cluster": NewCluster(cluster(t, srv.Addr))} {
		reply := []store.Value{store.IntegerValue(5)}
		got, err := s.Eval(t.Context(), script, []string{"a", "b"}, nil, reply)
		if !errors.Is(err, store.ErrCrossSlot) || len(got) != 1 {
			t.Errorf("%s: keys of two slots: got %v, %v", name, got, err)
		}
		if _, err := s.Eval(t.Context(), script, nil, nil, nil); err == nil {
			t.Errorf("%s: no keys: got no error", name)
		}
		calls := []store.Eval{{Script: script, Keys: []string{"a", "b"}}, {Script: script}}
		if s.EvalBatch(t.Context(), calls); !errors.Is(calls[0].Err, store.ErrCrossSlot) || calls[1].Err == nil {
			t.Errorf("%s: batch: got %v, %v", name, calls[0].Err, calls[1].Err)
		}
		if got, err := s.MGet(t.Context(), nil, reply); err != nil || len(got) != 1 {
			t.Errorf("%s: mget of no keys: got %v, %v", name, got, err)
		}
		s.EvalBatch(t.Context(), nil)

		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		for call, err := range wiretest.EveryCall(cancelled, s) {
			if !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s: %s, context done: got %v", name, call, err)
			}
		}
	}
	if sent, topology := srv.Commands(); len(sent) != 0 || topology != 0 || srv.Conns() != 0 {
		t.Errorf("the server received %q, %d topology requests, %d connections", sent, topology, srv.Conns())
	}
}

func TestNoServer(t *testing.T) {
	t.Parallel()
	const addr = "127.0.0.1:1"
	for name, s := range map[string]*Store{"Pool": New(pool(t, addr)), "Cluster": NewCluster(cluster(t, addr))} {
		for call, err := range wiretest.EveryCall(t.Context(), s) {
			if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "connection refused") {
				t.Errorf("%s: %s: got %v, want unavailable and the network's error", name, call, err)
			}
			var op *net.OpError
			if name == "Pool" && !errors.As(err, &op) { // redisc passes on the text only
				t.Errorf("%s: %s: got %v, want the network's error", name, call, err)
			}
			if !strings.HasPrefix(err.Error(), "redigo: ") || strings.Count(err.Error(), "redigo") != 1 {
				t.Errorf("%s: %s: %q is not wrapped once", name, call, err)
			}
		}
	}
}

func TestClosedClient(t *testing.T) {
	t.Parallel()
	p, c := pool(t, "127.0.0.1:1"), cluster(t, "127.0.0.1:1")
	if err := errors.Join(p.Close(), c.Close()); err != nil {
		t.Fatal(err)
	}
	for want, s := range map[string]*Store{"get on closed pool": New(p), "redisc: closed": NewCluster(c)} {
		for call, err := range wiretest.EveryCall(t.Context(), s) {
			if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want unavailable and %q", call, err, want)
			}
		}
	}
}

func TestExhaustedPool(t *testing.T) {
	t.Parallel()
	srv := wiretest.NewServer(t, func([]string) string { return ":1\r\n" })
	p := pool(t, srv.Addr)
	p.MaxActive = 1
	taken := p.Get()
	for call, err := range wiretest.EveryCall(t.Context(), New(p)) {
		if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, redis.ErrPoolExhausted) {
			t.Errorf("%s: got %v", call, err)
		}
	}
	_ = taken.Close()

	p = pool(t, srv.Addr)
	p.MaxActive, p.Wait = 1, true
	taken = p.Get()
	defer func() { _ = taken.Close() }()
	for _, call := range wiretest.Calls {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if err := wiretest.OneCall(ctx, New(p), call); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s, waiting: got %v", call, err)
		}
		cancel()
	}
	if sent, _ := srv.Commands(); len(sent) != 0 {
		t.Errorf("the server received %q", sent)
	}
}

// The server never answers. If the caller's context has ended, the error is the error of
// the context. If only the client's timeout has passed, it is ErrUnavailable.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	var release sync.WaitGroup
	release.Add(1)
	srv := wiretest.NewServer(t, func([]string) string { release.Wait(); return "" })
	t.Cleanup(release.Done)
	const short = 20 * time.Millisecond

	t.Run("deadline", func(t *testing.T) {
		for name, s := range map[string]*Store{"Pool": New(pool(t, srv.Addr)), "Cluster": NewCluster(cluster(t, srv.Addr))} {
			for _, call := range wiretest.Calls {
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), short)
				if err := wiretest.OneCall(ctx, s, call); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrUnavailable) {
					t.Errorf("%s: %s: got %v", name, call, err)
				}
				if took := time.Since(start); took > 4*time.Second { // the read timeout is 5 s
					t.Errorf("%s: %s: took %v", name, call, took)
				}
				cancel()
			}
		}
	})
	t.Run("read timeout", func(t *testing.T) {
		limit := redis.DialReadTimeout(short)
		for name, s := range map[string]*Store{"Pool": New(pool(t, srv.Addr, limit)), "Cluster": NewCluster(cluster(t, srv.Addr, limit))} {
			for _, call := range wiretest.Calls {
				var timeout net.Error
				err := wiretest.OneCall(t.Context(), s, call)
				if !errors.Is(err, store.ErrUnavailable) || !errors.As(err, &timeout) || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %s: got %v", name, call, err)
				}
			}
		}
	})
	t.Run("cancelled meanwhile", func(t *testing.T) {
		for name, s := range map[string]*Store{
			"Pool": New(pool(t, srv.Addr, redis.DialReadTimeout(0))), // only the context ends the call
			// The client's timeout is much later than the cancellation, even on a busy
			// machine.
			"Cluster": NewCluster(cluster(t, srv.Addr, redis.DialReadTimeout(time.Second))),
		} {
			for _, call := range wiretest.Calls {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(10*time.Millisecond, cancel)
				if err := wiretest.OneCall(ctx, s, call); !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUnavailable) {
					t.Errorf("%s: %s: got %v", name, call, err)
				}
			}
		}
	})
	t.Run("dial", func(t *testing.T) {
		p := &redis.Pool{Dial: func() (redis.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}
		}}
		for _, call := range wiretest.Calls {
			// The caller set no deadline, so the error must not say that one passed.
			if err := wiretest.OneCall(t.Context(), New(p), call); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: got %v", call, err)
			}
		}
	})
}

// MGET replies with bulk strings only.
func TestMGetStatus(t *testing.T) {
	t.Parallel()
	srv := wiretest.NewServer(t, func([]string) string { return "*2\r\n+OK\r\n+QUEUED\r\n" })
	if got, err := New(pool(t, srv.Addr)).MGet(t.Context(), keys, nil); !errors.Is(err, store.ErrUnavailable) || got != nil {
		t.Errorf("got %v, %v, want ErrUnavailable", got, err)
	}
}
