package goredis

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/wiretest"
)

// What the calls send.
var script, keys = wiretest.Script, wiretest.Keys

// client returns a client without retries and with short timeouts.
func client(t *testing.T, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, DialTimeout: time.Second, ReadTimeout: 5 * time.Second, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// cluster returns a cluster client without retries.
func cluster(t *testing.T, addr string) *redis.ClusterClient {
	t.Helper()
	c := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{addr}, MaxRedirects: -1, DialTimeout: time.Second, ReadTimeout: 5 * time.Second, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestUnfitClient(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1"}})
	defer func() { _ = ring.Close() }()
	for name, c := range map[string]struct {
		client redis.UniversalClient
		want   string
	}{
		"nil":               {nil, "nil"},
		"nil Client":        {(*redis.Client)(nil), "nil"},
		"nil ClusterClient": {(*redis.ClusterClient)(nil), "nil"},
		"nil Ring":          {(*redis.Ring)(nil), "nil"},
		"zero Cluster":      {&redis.ClusterClient{}, "zero"},
		"wrapped zero":      {&wrapper{&redis.Client{}}, "zero"},
		"Ring":              {ring, "*redis.Ring"},
		"embedded nil":      {struct{ *redis.Client }{}, "nil"},
		"wrapped nil":       {&wrapper{}, "nil"},
		"embedded Ring":     {struct{ *redis.Ring }{ring}, "*redis.Ring"},
		"wrapped Ring":      {&wrapper{ring}, "*redis.Ring"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := New(c.client)
			errs := wiretest.EveryCall(t.Context(), s)
			errs["check"] = s.Check()
			for call, err := range errs {
				if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "must be a *redis.ClusterClient") &&
					!strings.Contains(err.Error(), "or a *redis.ClusterClient") {
					t.Errorf("%s: got %v, want an error that names %s and what would be right", call, err, c.want)
				}
			}
		})
	}
}

func TestFitClient(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]redis.UniversalClient{
		"Client":        client(t, "127.0.0.1:1"),
		"ClusterClient": cluster(t, "127.0.0.1:1"),
		"Sentinel":      redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}}),
	} {
		if err := New(c).Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A client that ignores deadlines is found without the network.
func TestCheckDeadline(t *testing.T) {
	for _, heeds := range []bool{true, false} {
		for name, client := range map[string]redis.UniversalClient{
			"single":          redis.NewClient(&redis.Options{ContextTimeoutEnabled: heeds}),
			"sentinel":        redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, ContextTimeoutEnabled: heeds}),
			"embedded":        struct{ *redis.Client }{redis.NewClient(&redis.Options{ContextTimeoutEnabled: heeds})},
			"wrapped":         &wrapper{redis.NewClient(&redis.Options{ContextTimeoutEnabled: heeds})},
			"wrapped cluster": wrapper{redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ContextTimeoutEnabled: heeds})},
			"cluster":         redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ContextTimeoutEnabled: heeds}),
		} {
			defer client.Close()
			for _, st := range []store.Store{New(client), store.Coalesce(New(client))} {
				err := st.(store.DeadlineChecker).CheckDeadline()
				if (err == nil) != heeds || err != nil && !strings.Contains(err.Error(), "set ContextTimeoutEnabled") {
					t.Errorf("%s: ContextTimeoutEnabled %v: got %v", name, heeds, err)
				}
			}
		}
	}
	if err := New(struct{ stranger }{client(t, "127.0.0.1:1")}).CheckDeadline(); err == nil || !strings.Contains(err.Error(), "give it its method Options") {
		t.Errorf("a client without options: got %v", err)
	}
	if err := New(nil).CheckDeadline(); err == nil || !strings.Contains(err.Error(), "the client is nil") {
		t.Errorf("got %v, want the error of a nil client", err)
	}
}

// A wrapper is a client that an application has instrumented.
type wrapper struct{ redis.UniversalClient }

// stranger is embedded by a name that is not exported, so that nobody can look into it.
type stranger = redis.UniversalClient

// A counter counts the commands that pass it.
type counter struct {
	*redis.ClusterClient
	n atomic.Int64
}

func (c *counter) Process(ctx context.Context, cmd redis.Cmder) error {
	c.n.Add(1)
	return c.ClusterClient.Process(ctx, cmd)
}

// A store finds the client that a wrapper embeds, and calls the wrapper.
func TestWrapper(t *testing.T) {
	t.Parallel()
	single, cluster := client(t, "127.0.0.1:1"), cluster(t, "127.0.0.1:1")
	for name, tt := range map[string]struct {
		client redis.UniversalClient
		want   redis.UniversalClient
	}{
		"Client":                {single, single},
		"embedded Client":       {struct{ *redis.Client }{single}, single},
		"wrapped Client":        {wrapper{single}, single},
		"Client, wrapped twice": {&wrapper{wrapper{single}}, single},
		"ClusterClient":         {cluster, cluster},
		"embedded Cluster":      {struct{ *redis.ClusterClient }{cluster}, cluster},
		"wrapped Cluster":       {&wrapper{cluster}, cluster},
	} {
		s := New(tt.client)
		if s.single != (tt.want == single) || (s.cluster == cluster) != (tt.want == cluster) {
			t.Errorf("%s: single is %v, and the client of a cluster is %v", name, s.single, s.cluster)
		}
		if want := New(tt.want).base.Client; s.base.Client != want {
			t.Errorf("%s: the kind of client is %v, want %v", name, s.base.Client, want)
		}
	}
	c := &counter{ClusterClient: cluster}
	if _, err := New(c).Eval(t.Context(), script, keys, nil, nil); err == nil || c.n.Load() == 0 {
		t.Errorf("a call of a wrapper: %v, after %d commands", err, c.n.Load())
	}
}

// Calls that the store rejects send nothing.
func TestNothingSent(t *testing.T) {
	t.Parallel()
	srv := wiretest.NewServer(t, func([]string) string { return ":1\r\n" })
	s := New(client(t, srv.Addr))
	reply := []store.Value{store.IntegerValue(5)}

	got, err := s.Eval(t.Context(), script, []string{"a", "b"}, nil, reply)
	if !errors.Is(err, store.ErrCrossSlot) || len(got) != 1 {
		t.Errorf("keys of two slots: got %v, %v", got, err)
	}
	if _, err := s.Eval(t.Context(), script, nil, nil, nil); err == nil {
		t.Error("no keys: got no error")
	}
	if got, err := s.MGet(t.Context(), nil, reply); err != nil || len(got) != 1 {
		t.Errorf("mget of no keys: got %v, %v", got, err)
	}
	s.EvalBatch(t.Context(), nil)

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for call, err := range wiretest.EveryCall(cancelled, s) {
		if !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s, context done: got %v", call, err)
		}
	}
	if sent, _ := srv.Commands(); len(sent) != 0 {
		t.Errorf("the server received %q", sent)
	}
}

// A swallower is a client whose calls neither reply nor fail, as with a hook that calls no
// next one.
type swallower struct{ *redis.Client }

func (swallower) Process(context.Context, redis.Cmder) error { return nil }
func (swallower) Time(ctx context.Context) *redis.TimeCmd    { return redis.NewTimeCmd(ctx) }

func TestSwallowed(t *testing.T) {
	for _, call := range []string{"eval", "time"} {
		if err := wiretest.OneCall(t.Context(), New(swallower{client(t, "127.0.0.1:1")}), call); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s: got %v, want %v", call, err, store.ErrUnavailable)
		}
	}
}

func TestNoServer(t *testing.T) {
	t.Parallel()
	const addr = "127.0.0.1:1"
	for name, c := range map[string]redis.UniversalClient{"Client": client(t, addr), "ClusterClient": cluster(t, addr)} {
		for call, err := range wiretest.EveryCall(t.Context(), New(c)) {
			var op *net.OpError
			if !errors.Is(err, store.ErrUnavailable) || !errors.As(err, &op) {
				t.Errorf("%s: %s: got %v, want unavailable and the network's error", name, call, err)
			}
			if !strings.HasPrefix(err.Error(), "goredis: ") || strings.Count(err.Error(), "goredis") != 1 {
				t.Errorf("%s: %s: %q is not wrapped once", name, call, err)
			}
		}
	}
}

func TestClosedClient(t *testing.T) {
	t.Parallel()
	c := client(t, "127.0.0.1:1")
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for call, err := range wiretest.EveryCall(t.Context(), New(c)) {
		if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, redis.ErrClosed) {
			t.Errorf("%s: got %v", call, err)
		}
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

	t.Run("deadline", func(t *testing.T) {
		s := New(client(t, srv.Addr))
		for _, call := range wiretest.Calls {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			if err := wiretest.OneCall(ctx, s, call); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s: got %v", call, err)
			}
			cancel()
		}
	})
	t.Run("client's timeout", func(t *testing.T) {
		c := redis.NewClient(&redis.Options{Addr: srv.Addr, MaxRetries: -1, ReadTimeout: 20 * time.Millisecond})
		defer func() { _ = c.Close() }()
		for _, call := range wiretest.Calls {
			var timeout net.Error
			err := wiretest.OneCall(t.Context(), New(c), call)
			if !errors.Is(err, store.ErrUnavailable) || !errors.As(err, &timeout) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: got %v", call, err)
			}
		}
	})
	t.Run("cancelled meanwhile", func(t *testing.T) {
		// The client's timeout is much later, so that it is also later on a busy machine.
		c := redis.NewClient(&redis.Options{Addr: srv.Addr, MaxRetries: -1, ReadTimeout: 2 * time.Second})
		defer func() { _ = c.Close() }()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		if err := wiretest.OneCall(ctx, New(c), "eval"); !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("dial", func(t *testing.T) {
		c := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:1", MaxRetries: -1,
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}
			},
		})
		defer func() { _ = c.Close() }()
		for _, call := range wiretest.Calls {
			// The caller set no deadline, so the error must not say that one passed.
			if err := wiretest.OneCall(t.Context(), New(c), call); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: got %v", call, err)
			}
		}
	})
}
