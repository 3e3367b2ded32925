package rueidis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/wiretest"
)

// What the calls send.
var script, keys = wiretest.Script, wiretest.Keys

// options returns the options of a client of one server. The client does not use features
// that need RESP3, dials for at most a second, and has one connection.
func options(addr string) rueidis.ClientOption {
	return rueidis.ClientOption{
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
func open(t *testing.T, o rueidis.ClientOption) rueidis.Client {
	t.Helper()
	c, err := rueidis.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// cluster returns a client of a cluster.
func cluster(t *testing.T, addr string) rueidis.Client {
	t.Helper()
	o := options(addr)
	o.ForceSingleClient = false
	return open(t, o)
}

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

// If a deadline passes on a connection that only one caller uses, the connection is
// closed. Callers that have joined it in the meantime get ErrUnavailable, and not
// DeadlineExceeded.
func TestDeadlineOfAnotherCall(t *testing.T) {
	t.Parallel()
	for _, pipelining := range []bool{false, true} {
		t.Run(fmt.Sprintf("pipelining %t", pipelining), func(t *testing.T) {
			t.Parallel()
			srv := wiretest.NewServer(t, func([]string) string { <-t.Context().Done(); return "" })
			o := options(srv.Addr)
			o.AlwaysPipelining = pipelining
			o.ConnWriteTimeout = time.Minute
			s := New(open(t, o))
			defer srv.Close() // before the client, which would wait for it
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

// A short client returns only the first result of several commands.
type short struct{ rueidis.Client }

func (c short) DoMulti(ctx context.Context, cmds ...rueidis.Completed) []rueidis.RedisResult {
	return c.Client.DoMulti(ctx, cmds...)[:1]
}

// A wrapper of a client can return fewer results than it was given commands.
func TestTooFewResults(t *testing.T) {
	t.Parallel()
	srv := wiretest.NewCluster(t, func(args []string) string {
		if args[0] == "MGET" {
			return wiretest.AnswerMGet(args)
		}
		return "$1\r\nx\r\n"
	})
	s := New(short{cluster(t, srv.Addr)})
	calls := []store.Eval{{Script: script, Keys: []string{"a"}}, {Script: script, Keys: []string{"b"}}}
	s.EvalBatch(t.Context(), calls)
	if calls[0].Err != nil || len(calls[0].Reply) != 1 || !errors.Is(calls[1].Err, store.ErrUnavailable) || calls[1].Reply != nil {
		t.Errorf("batch: got %+v", calls)
	}
	if got, err := s.MGet(t.Context(), []string{"a", "b"}, nil); !errors.Is(err, store.ErrUnavailable) || len(got) != 0 {
		t.Errorf("mget: got %v, %v", got, err)
	}
}
