package rueidis

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/adapter"
	"github.com/weir-go/weir/store/internal/wiretest"
)

func TestUnfitClient(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*Store{
		"nil":         New(nil),
		"nil pointer": New((*struct{ rueidis.Client })(nil)),
		"wrapped nil": New(struct{ rueidis.Client }{}), // as of a hook around the nil client of an error
		"zero":        {},
		"nil store":   nil,
	} {
		errs := wiretest.EveryCall(t.Context(), s)
		errs["check"] = s.Check()
		for call, err := range errs {
			if err == nil || !strings.Contains(err.Error(), "rueidis: the client is nil: it must be a client that rueidis.NewClient returned") {
				t.Errorf("%s: %s: got %v, want an error that says so, and says what would be right", name, call, err)
			}
		}
	}
}

// Calls that the store rejects send nothing, and do not reach the client's
// builder, which panics.
func TestNothingSent(t *testing.T) {
	t.Parallel()
	srv := wiretest.NewCluster(t, func([]string) string { return ":1\r\n" })
	for name, c := range map[string]rueidis.Client{"one server": single(t, srv.Addr), "cluster": cluster(t, srv.Addr)} {
		s := New(c)
		if err := s.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		reply := []store.Value{store.IntegerValue(5)}

		got, err := s.Eval(t.Context(), script, []string{"a", "b"}, nil, reply)
		if !errors.Is(err, store.ErrCrossSlot) || len(got) != 1 {
			t.Errorf("%s: keys of two slots: got %v, %v", name, got, err)
		}
		if _, err := s.Eval(t.Context(), script, nil, nil, nil); err == nil {
			t.Errorf("%s: no keys: got no error", name)
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
		if sent, _ := srv.Commands(); len(sent) != 0 {
			t.Errorf("%s: the server received %q", name, sent)
		}
	}
}

// The store and the client's builder compute the same slot for every key. The builder
// panics if they differ.
func TestSlots(t *testing.T) {
	t.Parallel()
	c := cluster(t, wiretest.NewCluster(t, func([]string) string { return "" }).Addr)
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		b := make([]byte, random.IntN(12))
		for i := range b {
			b[i] = "{}{}ab\x00\xff"[random.IntN(8)]
		}
		key := string(b)
		cmd := New(c).command(adapter.EvalSHA, script, []string{key}, nil)
		if got, want := store.Slot(key), int(cmd.Slot()); got != want {
			t.Fatalf("%q: slot %d, the client's is %d", key, got, want)
		}
	}
}

func TestNoServer(t *testing.T) {
	t.Parallel()
	srv := wiretest.NewCluster(t, func([]string) string { return ":1\r\n" })
	clients := map[string]rueidis.Client{"one server": single(t, srv.Addr), "cluster": cluster(t, srv.Addr)}
	srv.Close()

	never, err := rueidis.NewClient(options("127.0.0.1:1"))
	if err == nil || never == nil {
		t.Fatalf("a client of no server: got %v, %v, want one beside an error", never, err)
	}
	defer never.Close()
	clients["never connected"] = never

	for name, c := range clients {
		for _, call := range wiretest.Calls { // the first can fail because the connection was lost, not refused
			_ = wiretest.OneCall(t.Context(), New(c), call)
		}
		for call, err := range wiretest.EveryCall(t.Context(), New(c)) {
			var op *net.OpError
			if !errors.Is(err, store.ErrUnavailable) || !errors.As(err, &op) {
				t.Errorf("%s: %s: got %v, want unavailable and the network's error", name, call, err)
			}
			if !strings.HasPrefix(err.Error(), "rueidis: ") || strings.Count(err.Error(), "rueidis") != 1 {
				t.Errorf("%s: %s: %q is not wrapped once", name, call, err)
			}
		}
	}
}

// A client that was made before its server started works after the start.
func TestServerComesLater(t *testing.T) {
	t.Parallel()
	srv := wiretest.NewServer(t, func([]string) string { return ":1\r\n" })
	var up atomic.Bool
	o := options(srv.Addr)
	o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		if !up.Load() {
			return nil, errors.New("not yet")
		}
		return d.DialContext(ctx, "tcp", addr)
	}
	c, err := rueidis.NewClient(o)
	if err == nil || c == nil {
		t.Fatalf("got %v, %v, want a client beside an error", c, err)
	}
	defer c.Close()
	s := New(c)
	if _, err := s.Eval(t.Context(), script, keys, nil, nil); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	up.Store(true)
	if _, err := s.Eval(t.Context(), script, keys, nil, nil); err != nil {
		t.Error(err)
	}
}

func TestClosedClient(t *testing.T) {
	t.Parallel()
	srv := wiretest.NewCluster(t, func([]string) string { return ":1\r\n" })
	for name, c := range map[string]rueidis.Client{"one server": single(t, srv.Addr), "cluster": cluster(t, srv.Addr)} {
		c.Close()
		for start := time.Now(); wiretest.OneCall(t.Context(), New(c), "eval") == nil; { // a cluster client closes in the background
			if time.Since(start) > 10*time.Second {
				t.Fatalf("%s: it still runs scripts", name)
			}
		}
		for call, err := range wiretest.EveryCall(t.Context(), New(c)) {
			if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, rueidis.ErrClosing) {
				t.Errorf("%s: %s: got %v", name, call, err)
			}
		}
	}
}

// The client retries reads until the context is done, and never retries a script.
func TestRetries(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]string{"connection lost": "", "loading": "-LOADING Redis is loading the dataset in memory\r\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for mode, single := range map[string]bool{"one server": true, "cluster": false} {
				// Each has a server of its own: the last retry can arrive after its
				// caller has left.
				var second func() // called for the second read; not nil while it is awaited
				var mu sync.Mutex
				reads := 0
				srv := wiretest.NewCluster(t, func([]string) string {
					mu.Lock()
					defer mu.Unlock()
					if second != nil {
						if reads++; reads == 2 {
							second()
						}
					}
					return lost
				})
				o := options(srv.Addr)
				o.DisableRetry, o.ForceSingleClient = false, single
				s := New(open(t, o))
				for _, call := range []string{"eval", "batch", "time"} {
					err := wiretest.OneCall(t.Context(), s, call)
					if sent, _ := srv.Commands(); !errors.Is(err, store.ErrUnavailable) || len(sent) != 1 {
						t.Errorf("%s: %s: got %v after %q", mode, call, err, sent)
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				mu.Lock()
				second = cancel
				mu.Unlock()
				err := wiretest.OneCall(ctx, s, "mget")
				cancel()
				// The reply to the second read can be there before the client sees that ctx is done.
				if sent, _ := srv.Commands(); !errors.Is(err, context.Canceled) && !errors.Is(err, store.ErrUnavailable) || len(sent) < 2 {
					t.Errorf("%s: mget: got %v after %q", mode, err, sent)
				}
			}
		})
	}
}

// If read-only commands go to replicas, scripts still go to masters.
func TestSendToReplicas(t *testing.T) {
	t.Parallel()
	reply := func(args []string) string {
		if args[0] == "MGET" {
			return "*2\r\n$-1\r\n$-1\r\n"
		}
		return ":1\r\n"
	}
	replica := wiretest.NewServer(t, func(args []string) string {
		if args[0] == "READONLY" {
			return "+OK\r\n"
		}
		return reply(args)
	})
	var master atomic.Pointer[wiretest.Server]
	srv := wiretest.NewServer(t, func(args []string) string {
		if args[0] == "CLUSTER" {
			return wiretest.Slots(master.Load().Addr, replica.Addr)
		}
		return reply(args)
	})
	master.Store(srv)
	o := options(srv.Addr)
	o.ForceSingleClient = false
	o.SendToReplicas = func(cmd rueidis.Completed) bool { return cmd.IsReadOnly() }
	s := New(open(t, o))
	peek := store.NewReadOnlyScript("peek", "return 2", nil)

	for range 10 {
		for _, script := range []*store.Script{script, peek} {
			if _, err := s.Eval(t.Context(), script, keys, nil, nil); err != nil {
				t.Fatal(err)
			}
			calls := []store.Eval{{Script: script, Keys: keys}, {Script: script, Keys: []string{"other"}}}
			if s.EvalBatch(t.Context(), calls); calls[0].Err != nil || calls[1].Err != nil {
				t.Fatal(calls[0].Err, calls[1].Err)
			}
		}
		if _, err := s.MGet(t.Context(), keys, nil); err != nil {
			t.Fatal(err)
		}
	}
	read, _ := replica.Commands()
	read = slices.DeleteFunc(read, func(cmd string) bool { return cmd == "READONLY" })
	if len(read) != 10 || slices.ContainsFunc(read, func(cmd string) bool { return cmd != "MGET a{k} b{k}" }) {
		t.Errorf("the replica received %q", read)
	}
	if wrote, _ := srv.Commands(); len(wrote) != 60 {
		t.Errorf("the master received %d commands, want 60: %q", len(wrote), wrote)
	}
}

// A server that has too many clients sends an error before it is asked. If the deadline of the
// call that connects has passed by then, the client would panic without Dial.
func TestTooManyClients(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("-ERR max number of clients reached\r\n"))
			_ = conn.Close()
		}
	}()
	o := options(l.Addr().String())
	o.AlwaysPipelining = true
	o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
		conn, err := Dial(ctx, addr, d, config)
		if _, ok := ctx.Deadline(); ok {
			<-ctx.Done()
		}
		return conn, err
	}
	c, err := rueidis.NewClient(o)
	if err == nil || c == nil {
		t.Fatalf("the client is %v, and its error %v: want both", c, err)
	}
	defer c.Close()
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if _, err := New(c).Time(ctx); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("got %v, want an error of the deadline or the server", err)
		}
		cancel()
	}
}
