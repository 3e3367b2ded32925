package rueidis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	redis "github.com/redis/rueidis"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/respserver"
)

var (
	script = store.NewScript("probe", "return 1", nil)
	keys   = []string{"a{k}", "b{k}"}
	args   = []store.Arg{store.IntArg(7), store.ConstArg(8), store.StringArg("nine")}
)

// options returns the options of a client of one server, without features that need RESP3,
// with short timeouts and one connection.
func options(addr string) redis.ClientOption {
	return redis.ClientOption{
		InitAddress:       []string{addr},
		ForceSingleClient: true,
		AlwaysRESP2:       true,
		DisableCache:      true,
		DisableRetry:      true,
		PipelineMultiplex: -1,
		Dialer:            net.Dialer{Timeout: time.Second},
		ConnWriteTimeout:  5 * time.Second,
	}
}

// open returns a client that is closed when t ends.
func open(t *testing.T, o redis.ClientOption) redis.Client {
	t.Helper()
	c, err := redis.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func client(t *testing.T, addr string) redis.Client {
	t.Helper()
	return open(t, options(addr))
}

// cluster returns a cluster client.
func cluster(t *testing.T, addr string) redis.Client {
	t.Helper()
	o := options(addr)
	o.ForceSingleClient = false
	return open(t, o)
}

// clusterServer returns a server that is a cluster by itself.
func clusterServer(t *testing.T, answer func(args []string) string) *respserver.Server {
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

// everyCall makes one call of each kind and returns their errors.
func everyCall(ctx context.Context, s *Store) map[string]error {
	errs := map[string]error{}
	_, errs["eval"] = s.Eval(ctx, script, keys, args, nil)
	_, errs["mget"] = s.MGet(ctx, keys, nil)
	_, errs["mget over slots"] = s.MGet(ctx, []string{"a", "b"}, nil)
	_, errs["time"] = s.Time(ctx)
	calls := []store.Eval{{Script: script, Keys: keys}, {Script: script, Keys: []string{"c"}}}
	s.EvalBatch(ctx, calls)
	errs["batch 0"], errs["batch 1"] = calls[0].Err, calls[1].Err
	return errs
}

// oneCall makes the call of that name.
func oneCall(ctx context.Context, s *Store, call string) error {
	switch call {
	case "eval":
		_, err := s.Eval(ctx, script, keys, nil, nil)
		return err
	case "mget":
		_, err := s.MGet(ctx, keys, nil)
		return err
	case "time":
		_, err := s.Time(ctx)
		return err
	}
	calls := []store.Eval{{Script: script, Keys: keys}}
	s.EvalBatch(ctx, calls)
	return calls[0].Err
}

var allCalls = []string{"eval", "mget", "time", "batch"}

func TestUnfitClient(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]redis.Client{
		"nil":         nil,
		"nil pointer": (*struct{ redis.Client })(nil),
	} {
		s := New(c)
		errs := everyCall(t.Context(), s)
		errs["check"] = s.Check()
		for call, err := range errs {
			if err == nil || !strings.Contains(err.Error(), "rueidis: the client is nil: it must be") {
				t.Errorf("%s: %s: got %v, want an error that says so, and says what would be right", name, call, err)
			}
		}
	}
}

// Calls that the store rejects by itself send nothing, and do not reach the client's
// builder, which panics.
func TestNothingSent(t *testing.T) {
	t.Parallel()
	srv := clusterServer(t, func([]string) string { return ":1\r\n" })
	for name, c := range map[string]redis.Client{"one server": client(t, srv.Addr), "cluster": cluster(t, srv.Addr)} {
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
		for call, err := range everyCall(cancelled, s) {
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
	b := cluster(t, clusterServer(t, func([]string) string { return "" }).Addr).B()
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		key := make([]byte, random.IntN(12))
		for i := range key {
			key[i] = "{}{}ab\x00\xff"[random.IntN(8)]
		}
		cmd := b.Evalsha().Sha1(script.SHA()).Numkeys(1).Key(string(key)).Build()
		if got, want := store.Slot(string(key)), int(cmd.Slot()); got != want {
			t.Fatalf("%q: slot %d, the client's is %d", key, got, want)
		}
	}
}

func TestNoServer(t *testing.T) {
	t.Parallel()
	srv := clusterServer(t, func([]string) string { return ":1\r\n" })
	clients := map[string]redis.Client{"one server": client(t, srv.Addr), "cluster": cluster(t, srv.Addr)}
	srv.Close()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := options(l.Addr().String())
	_ = l.Close()
	never, err := redis.NewClient(o)
	if err == nil || never == nil {
		t.Fatalf("a client of no server: got %v, %v, want one beside an error", never, err)
	}
	defer never.Close()
	clients["never connected"] = never

	for name, c := range clients {
		for _, call := range allCalls { // the first can fail because the connection was lost, not refused
			_ = oneCall(t.Context(), New(c), call)
		}
		for call, err := range everyCall(t.Context(), New(c)) {
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
	srv := respserver.New(t, func([]string) string { return ":1\r\n" })
	var up atomic.Bool
	o := options(srv.Addr)
	o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		if !up.Load() {
			return nil, errors.New("not yet")
		}
		return d.DialContext(ctx, "tcp", addr)
	}
	c, err := redis.NewClient(o)
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
	srv := clusterServer(t, func([]string) string { return ":1\r\n" })
	for name, c := range map[string]redis.Client{"one server": client(t, srv.Addr), "cluster": cluster(t, srv.Addr)} {
		c.Close()
		for start := time.Now(); oneCall(t.Context(), New(c), "eval") == nil; { // a cluster client closes in the background
			if time.Since(start) > 10*time.Second {
				t.Fatalf("%s: it still runs scripts", name)
			}
		}
		for call, err := range everyCall(t.Context(), New(c)) {
			if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, redis.ErrClosing) {
				t.Errorf("%s: %s: got %v", name, call, err)
			}
		}
	}
}

// silent returns a server that answers only the commands that begin a connection.
func silent(t *testing.T) *respserver.Server {
	t.Helper()
	release := make(chan struct{})
	srv := clusterServer(t, func([]string) string { <-release; return "" })
	t.Cleanup(func() { close(release) })
	return srv
}

// openSilent returns a store whose server is closed before its client, because the client
// would wait for the server.
func openSilent(t *testing.T, srv *respserver.Server, o redis.ClientOption) *Store {
	t.Helper()
	s := New(open(t, o))
	t.Cleanup(srv.Close)
	return s
}

// The server never answers. If the caller's context has ended, the error is the error of the
// context. If only the client's timeout has passed, it is ErrUnavailable.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	for _, pipelining := range []bool{false, true} {
		for _, call := range allCalls {
			name := fmt.Sprintf("%s/pipelining %t", call, pipelining)
			open := func(t *testing.T) (*Store, *respserver.Server) {
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
				if err := oneCall(ctx, s, call); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrUnavailable) {
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
				if err := oneCall(ctx, s, call); !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUnavailable) {
					t.Errorf("got %v", err)
				}
				if took := time.Since(start); took > 4*time.Second {
					t.Errorf("it took %v", took)
				}
			})
		}
	}
	for _, call := range allCalls {
		t.Run("client's timeout/"+call, func(t *testing.T) {
			t.Parallel()
			srv := silent(t)
			o := options(srv.Addr)
			o.ConnWriteTimeout = 20 * time.Millisecond
			err := oneCall(t.Context(), openSilent(t, srv, o), call)
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
			c, _ := redis.NewClient(o)
			defer c.Close()
			// The caller set no deadline, so the error must not say that one passed.
			if err := oneCall(t.Context(), New(c), call); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// If a deadline passes on a connection that only one caller uses, the connection is closed.
// Callers that have joined it in the meantime get ErrUnavailable, and not DeadlineExceeded.
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
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			first := make(chan error, 1)
			go func() { first <- oneCall(ctx, s, "eval") }()
			srv.Wait(1)
			joined, leave := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer leave()
			err := oneCall(joined, s, "eval")
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

// The client retries reads until the context is done, and never retries a script.
func TestRetries(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]string{"connection lost": "", "loading": "-LOADING Redis is loading the dataset in memory\r\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for mode, single := range map[string]bool{"one server": true, "cluster": false} {
				// Each has a server of its own: the last retry can arrive after its caller has left.
				srv := clusterServer(t, func([]string) string { return lost })
				o := options(srv.Addr)
				o.DisableRetry, o.ForceSingleClient = false, single
				s := New(open(t, o))
				for _, call := range []string{"eval", "batch", "time"} {
					err := oneCall(t.Context(), s, call)
					if sent, _ := srv.Commands(); !errors.Is(err, store.ErrUnavailable) || len(sent) != 1 {
						t.Errorf("%s: %s: got %v after %q", mode, call, err, sent)
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				err := oneCall(ctx, s, "mget")
				cancel()
				if sent, _ := srv.Commands(); err == nil || len(sent) < 2 {
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
	replica := respserver.New(t, func(args []string) string {
		if args[0] == "READONLY" {
			return "+OK\r\n"
		}
		return reply(args)
	})
	var master atomic.Pointer[respserver.Server]
	srv := respserver.New(t, func(args []string) string {
		if args[0] == "CLUSTER" {
			return respserver.Slots(master.Load().Addr, replica.Addr)
		}
		return reply(args)
	})
	master.Store(srv)
	o := options(srv.Addr)
	o.ForceSingleClient = false
	o.SendToReplicas = func(cmd redis.Completed) bool { return cmd.IsReadOnly() }
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
