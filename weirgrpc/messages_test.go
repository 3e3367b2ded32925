package weirgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/prefetch"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirgrpc"
)

const talk = "/test.Chat/Talk"

// A talker is a client of a service with one method, whose streams get messages of the client.
type talker struct {
	conn  *grpc.ClientConn
	heard atomic.Int64 // messages that the handler got
}

// newTalker starts the service. Its handler sends each message back. If swallow is not nil, it sends
// nothing, and returns what swallow makes of an error of RecvMsg.
func newTalker(t testing.TB, swallow func(ss grpc.ServerStream, err error) error, chain ...grpc.StreamServerInterceptor) *talker {
	t.Helper()
	c := new(talker)
	handle := func(_ any, ss grpc.ServerStream) error {
		for {
			msg := new(healthpb.HealthCheckRequest)
			switch err := ss.RecvMsg(msg); {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil && swallow != nil:
				return swallow(ss, err)
			case err != nil:
				return fmt.Errorf("receive: %w", err)
			}
			c.heard.Add(1)
			if swallow == nil {
				if err := ss.SendMsg(msg); err != nil {
					return err
				}
			}
		}
	}
	server := grpc.NewServer(grpc.ChainStreamInterceptor(chain...))
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Chat",
		HandlerType: (*any)(nil),
		Streams:     []grpc.StreamDesc{{StreamName: "Talk", ServerStreams: true, ClientStreams: true, Handler: handle}},
	}, nil)
	c.conn = dial(t, server, retries)
	return c
}

// open opens a stream of a user.
func (c *talker) open(t testing.TB, user string) grpc.ClientStream {
	t.Helper()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "user", user)
	s, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, talk)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// say sends a message, and returns the error instead of the answer.
func say(s grpc.ClientStream) error {
	if err := s.SendMsg(new(healthpb.HealthCheckRequest)); err != nil && !errors.Is(err, io.EOF) { // RecvMsg knows why a stream has ended
		return err
	}
	return s.RecvMsg(new(healthpb.HealthCheckRequest))
}

// ended returns how a stream has ended, or OK if say returned no error.
func ended(t *testing.T, s grpc.ClientStream, err error) string {
	t.Helper()
	if err == nil {
		return "OK"
	}
	return denial(t, err, s.Trailer())
}

// byUser is the RequestFunc of a talker. The user "none" has no limit.
func byUser(ctx context.Context, method string) (weir.Request, error) {
	user := metadata.ValueFromIncomingContext(ctx, "user")[0]
	if user == "none" {
		return weir.Request{}, weirgrpc.ErrUnlimited
	}
	return weirgrpc.By(weirgrpc.Method, weirgrpc.Text(user))(ctx, method)
}

// chatPolicy returns a limiter whose keys have a method and a user.
func chatPolicy(t testing.TB, st store.Store, rules ...weir.Rule) *weir.Limiter {
	t.Helper()
	return weirtest.NewPolicy(t, st, weir.Policy{Name: "chat", Segments: []string{"method", "user"}, Rules: rules})
}

// The streams of a user share a limit, and a message above it ends its stream as a unary call ends. The
// others go on. A shadow rule ends none.
func TestMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := chatPolicy(t, memory.New(nil),
			weir.Rule{Name: "rate", Algorithm: algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 3}},
			weir.Rule{Name: "next", Algorithm: algorithm.FixedWindow{Limit: 1, Window: 24 * time.Hour}, Shadow: true})
		limit, errs := newInterceptor(t, lim, byUser, weirgrpc.Options{})
		c := newTalker(t, nil, limit.Messages)
		const denied = "ResourceExhausted [-1] 1m0s | rate 3 tokens: at most 3 tokens in 3m0s"
		start, streams := time.Now(), make(map[string]grpc.ClientStream)
		for i, tt := range []struct {
			at     time.Duration
			stream string // its first letter is the user
			want   string
			left   int64 // of a, afterwards
		}{
			{0, "a1", "OK", 2},
			{0, "a2", "OK", 1},
			{0, "b1", "OK", 1},
			{0, "a1", "OK", 0},
			{0, "a2", denied, 0},
			{0, "b1", "OK", 0},
			{59 * time.Second, "a3", "ResourceExhausted [-1] 1s | rate 3 tokens: at most 3 tokens in 3m0s", 0},
			{time.Minute, "a1", "OK", 0},
			{time.Minute, "a1", denied, 0},
			{time.Minute, "b1", "OK", 0},
			{time.Minute, "b1", "OK", 0},
			{2 * time.Minute, "a4", "OK", 0},
		} {
			time.Sleep(tt.at - time.Since(start))
			s := streams[tt.stream]
			if s == nil {
				s = c.open(t, tt.stream[:1])
				streams[tt.stream] = s
			}
			err := say(s)
			left, peeked := lim.Peek(t.Context(), talk, "a")
			if got := ended(t, s, err); got != tt.want || peeked != nil || left.Remaining != tt.left {
				t.Errorf("message %d: got %s and %d left, %v, want %s and %d", i, got, left.Remaining, peeked, tt.want, tt.left)
			}
		}
		if n := c.heard.Load(); n != 9 || len(errs.all()) > 0 {
			t.Errorf("the handler got %d messages, want 9; errors %v", n, errs.all())
		}
	})
}

// Each kind of error ends a stream as it ends a unary call. FailOpen passes messages on during an outage.
// What has no limit, and what is not passed on, consumes nothing.
func TestMessageErrors(t *testing.T) {
	const waits = 90 * time.Second
	fails := func(err error) weir.Decider { return answering(weir.Result{}, err) }
	rate := weir.Rule{Name: "rate", Algorithm: algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 2}}
	slots := weir.Rule{Name: "slots", Algorithm: algorithm.Concurrency{Limit: 9, Lease: time.Hour}}
	full := weir.Rule{Name: "slots", Algorithm: algorithm.Concurrency{Limit: 1, Lease: time.Hour}}
	asks := func(req weir.Request) weirgrpc.RequestFunc {
		req.Key = weir.KeyOf(talk, "a")
		return asking(req)
	}
	for name, tt := range map[string]struct {
		rules   []weir.Rule
		d       weir.Decider // instead of a limiter with the rules
		opaque  bool         // the Decider hides the limiter
		request weirgrpc.RequestFunc
		opts    weirgrpc.Options
		want    string        // how the first four messages end
		took    time.Duration // all messages
		left    int64         // tokens, or leases if there is no rule rate
		errs    int
		says    string
	}{
		"allowed":                {rules: []weir.Rule{rate}, want: "OK OK ResourceExhausted"},
		"a cost":                 {rules: []weir.Rule{rate}, request: asks(weir.Request{Cost: 2}), want: "OK ResourceExhausted"},
		"no limit":               {rules: []weir.Rule{rate}, request: refusing(weirgrpc.ErrUnlimited), want: "OK OK OK OK", left: 2},
		"no key":                 {rules: []weir.Rule{rate}, request: refusing(weirgrpc.ErrNoKey), want: "InvalidArgument", left: 2, errs: 1, says: "no key"},
		"a mistake":              {rules: []weir.Rule{rate}, request: all, want: "Internal", left: 2, errs: 1, says: "1 segment"},
		"an outage":              {d: fails(store.ErrUnavailable), want: "Unavailable", errs: 1, says: "store unavailable"},
		"an outage, fail open":   {d: fails(store.ErrUnavailable), opts: weirgrpc.Options{FailOpen: true}, want: "OK OK OK OK", errs: 4, says: "store unavailable"},
		"a timeout":              {d: deciderFunc(hanging), opts: weirgrpc.Options{Timeout: time.Second}, want: "Unavailable", took: time.Second, errs: 1, says: "deadline"},
		"a plan":                 {d: fails(store.ErrUnavailable), opts: weirgrpc.Options{Plan: func(context.Context, string) (weir.Decider, error) { return nil, weirgrpc.ErrUnlimited }}, want: "OK OK OK OK"},
		"an ID":                  {rules: []weir.Rule{rate}, request: asks(weir.Request{ID: "call"}), want: "OK OK ResourceExhausted"},
		"a wait":                 {rules: []weir.Rule{rate}, request: asks(weir.Request{MaxWait: waits}), want: "OK OK OK OK", took: 2 * time.Minute},
		"too long a wait":        {rules: []weir.Rule{rate}, request: asks(weir.Request{MaxWait: time.Second}), want: "OK OK ResourceExhausted"},
		"leases":                 {rules: []weir.Rule{slots}, want: "Internal", left: 9, errs: 1, says: "use this limiter with Stream"},
		"no lease is free":       {rules: []weir.Rule{full}, want: "Internal", errs: 1, says: "use this limiter with Stream"},
		"leases in hiding":       {rules: []weir.Rule{slots}, opaque: true, want: "Internal", left: 9, errs: 1, says: "use this limiter with Stream"},
		"an interceptor of zero": {want: "Internal"},
	} {
		synctest.Test(t, func(t *testing.T) {
			d, left := tt.d, func() int64 { return 0 }
			if tt.rules != nil {
				lim := chatPolicy(t, memory.New(nil), tt.rules...)
				if name == "no lease is free" {
					weirtest.Allow(t, lim, weir.Request{Key: weir.KeyOf(talk, "a"), ID: "other"})
				}
				left = func() int64 { return weirtest.Left(t, lim, talk, "a").Remaining }
				if d = lim; tt.opaque {
					d = deciderFunc(lim.Decide)
				}
			}
			limit, errs := new(weirgrpc.ServerInterceptor), new(errs)
			if d != nil {
				request := tt.request
				if request == nil {
					request = byUser
				}
				limit, errs = newInterceptor(t, d, request, tt.opts)
			}
			s, start, got := newTalker(t, nil, limit.Messages).open(t, "a"), time.Now(), ""
			for range 4 {
				err := say(s)
				got += " " + status.Code(err).String()
				if err != nil {
					if ms := s.Trailer()["grpc-retry-pushback-ms"]; fmt.Sprint(ms) != "[-1]" {
						t.Errorf("%s: got the trailer %v", name, ms)
					}
					break
				}
			}
			took := time.Since(start)
			if list := errs.all(); got != " "+tt.want || took != tt.took || left() != tt.left || len(list) != tt.errs || !strings.Contains(fmt.Sprint(list), tt.says) {
				t.Errorf("%s: got%s after %v, %d left, errors %v, want %s after %v, %d, %d errors with %q", name, got, took, left(), list, tt.want, tt.took, tt.left, tt.errs, tt.says)
			}
		})
	}
}

// A message whose caller goes during its wait is refunded.
func TestMessageWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := chatPolicy(t, memory.New(nil), weir.Rule{Algorithm: algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 1}})
		limit, errs := newInterceptor(t, lim, asking(weir.Request{Key: weir.KeyOf(talk, "a"), MaxWait: weir.Never}), weirgrpc.Options{})
		c := newTalker(t, nil, limit.Messages)
		ctx, cancel := context.WithCancel(t.Context())
		s, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, talk)
		if err == nil {
			err = say(s)
		}
		time.AfterFunc(time.Second, cancel)
		if code := status.Code(say(s)); err != nil || code != codes.Canceled {
			t.Errorf("got %v, and then %v", err, code)
		}
		synctest.Wait()
		if res := weirtest.Left(t, lim, talk, "a"); res.ResetAfter != 59*time.Second || c.heard.Load() != 1 || len(errs.all()) > 0 {
			t.Errorf("got %+v, %d messages, errors %v", res, c.heard.Load(), errs.all())
		}
	})
}

// Whatever a handler makes of the error of RecvMsg, the stream ends with it, and no further message is
// decided. The lease of the stream is released, and not that of another one. A client with a retryPolicy
// does not send again what the handler has seen, although the server has sent no header.
func TestMessageEndsStream(t *testing.T) {
	for name, swallow := range map[string]func(grpc.ServerStream, error) error{
		"returns it":      func(_ grpc.ServerStream, err error) error { return err },
		"returns nil":     func(grpc.ServerStream, error) error { return nil },
		"returns another": func(grpc.ServerStream, error) error { return status.Error(codes.NotFound, "nothing") },
		"receives again": func(ss grpc.ServerStream, err error) error {
			if again := ss.RecvMsg(new(healthpb.HealthCheckRequest)); !errors.Is(again, err) {
				t.Errorf("got %v after %v", again, err)
			}
			return nil
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			places := chatPolicy(t, memory.New(nil), weir.Rule{Algorithm: algorithm.Concurrency{Limit: 3, Lease: time.Minute}})
			lim := chatPolicy(t, memory.New(nil), weir.Rule{Algorithm: algorithm.FixedWindow{Limit: 1, Window: time.Hour}})
			var decisions atomic.Int64
			streams, failed := newInterceptor(t, places, byUser, weirgrpc.Options{})
			messages, _ := newInterceptor(t, wrapped(t, lim, func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
				decisions.Add(1)
				return lim.Decide(ctx, r, each)
			}), byUser, weirgrpc.Options{})
			c := newTalker(t, swallow, streams.Stream, messages.Messages)
			idle, s := c.open(t, "a"), c.open(t, "a")
			for range 3 {
				_ = s.SendMsg(new(healthpb.HealthCheckRequest)) // the last after the end of the stream, perhaps
			}
			err := s.RecvMsg(new(healthpb.HealthCheckRequest))
			synctest.Wait()
			during := weirtest.Left(t, places, talk, "a").Remaining
			end := errors.Join(idle.CloseSend(), idle.RecvMsg(new(healthpb.HealthCheckRequest)))
			synctest.Wait()
			after := weirtest.Left(t, places, talk, "a").Remaining
			if status.Code(err) != codes.ResourceExhausted || decisions.Load() != 2 || c.heard.Load() != 1 || during != 2 || after != 3 || !errors.Is(end, io.EOF) || len(failed.all()) > 0 {
				t.Errorf("%s: got %v and %v, %d decisions, %d messages, %d and %d free leases, errors %v", name, err, end, decisions.Load(), c.heard.Load(), during, after, failed.all())
			}
		})
	}
}

// With package prefetch, few messages of a busy user are round trips. All streams together get as many
// messages as the limit allows, and unused tokens are returned.
func TestMessagesPrefetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := chatPolicy(t, memory.New(nil), weir.Rule{Algorithm: algorithm.FixedWindow{Limit: 2000, Window: time.Hour}})
		var trips atomic.Int64
		pool := prefetch.New(&prefetch.Options{MaxAge: time.Minute})
		fast := weirtest.Wrap(t, lim, pool.Wrap, weirtest.Around(func(next weir.Decider) deciderFunc {
			return func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
				trips.Add(1)
				return next.Decide(ctx, r, each)
			}
		}))
		limit, errs := newInterceptor(t, fast, byUser, weirgrpc.Options{})
		c := newTalker(t, nil, limit.Messages)
		streams := []grpc.ClientStream{c.open(t, "a"), c.open(t, "a"), c.open(t, "a")}
		said := 0
		for ; said < 1000; said++ {
			if err := say(streams[said%len(streams)]); err != nil {
				t.Fatalf("message %d: %v", said, err)
			}
			time.Sleep(time.Millisecond)
		}
		used := trips.Load()
		if err := pool.Return(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left := weirtest.Left(t, lim, talk, "a").Remaining; left != 1000 || used > 100 || len(errs.all()) > 0 {
			t.Errorf("1000 messages: %d left, %d round trips, errors %v", left, used, errs.all())
		}
		for err := error(nil); err == nil; said++ {
			err = say(streams[said%len(streams)])
		}
		if said != 2001 || c.heard.Load() != 2000 {
			t.Errorf("got %d messages, and the handler %d", said, c.heard.Load())
		}
	})
}
