package weirgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirgrpc"
)

// unlimited are interceptors of a server without a limit.
func unlimited(t *testing.T) *weirgrpc.ServerInterceptor {
	limit, _ := newInterceptor(t, failing(nil), of(weir.Request{}, weirgrpc.ErrUnlimited), weirgrpc.Options{})
	return limit
}

// pace returns a client whose calls wait for lim.
func pace(t *testing.T, s *service, lim *weir.Limiter, request weirgrpc.RequestFunc) healthpb.HealthClient {
	t.Helper()
	p, err := weirgrpc.NewClientInterceptor(lim, request)
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, s, unlimited(t), grpc.WithChainUnaryInterceptor(p.Unary), grpc.WithChainStreamInterceptor(p.Stream))
}

// Calls wait for their turn. A call that would come after its deadline fails at once, and
// a call that is cancelled gives its turn back.
func TestClient(t *testing.T) {
	for kind, call := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lim := newLimiter(t, algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: 10})
				s := new(service)
				c := pace(t, s, lim, all)
				start := time.Now()
				for i := range 3 {
					if err := call(t.Context(), c); err != nil || time.Since(start) != time.Duration(i)*time.Second {
						t.Errorf("call %d: got %v after %v, want none after %d s", i, err, time.Since(start), i)
					}
				}

				ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
				defer cancel()
				err := call(ctx, c)
				var denied *weir.DeniedError
				if status.Code(err) != codes.ResourceExhausted || !errors.Is(err, weir.ErrDenied) || !errors.As(err, &denied) || time.Since(start) != 2*time.Second {
					t.Fatalf("got %v after %v, want RESOURCE_EXHAUSTED and an ErrDenied at once", err, time.Since(start))
				}
				retry, quota := details(t, err)
				if retry.GetRetryDelay().AsDuration() != denied.Result.RetryAfter || denied.Result.RetryAfter <= 0 || quota != nil {
					t.Errorf("got %v and %v, want a RetryInfo of %v", retry, quota, denied.Result.RetryAfter)
				}

				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(time.Second/2, cancel)
				if err := call(ctx, c); status.Code(err) != codes.Canceled || !errors.Is(err, context.Canceled) || time.Since(start) != 2500*time.Millisecond {
					t.Errorf("got %v after %v, want CANCELED after 2.5s", err, time.Since(start))
				}
				if err := call(t.Context(), c); err != nil || time.Since(start) != 3*time.Second || s.count() != 4 {
					t.Errorf("got %v after %v and %d calls, want the turn at 3s of the cancelled call", err, time.Since(start), s.count())
				}
			})
		})
	}
}

// While the key is paused, a client's calls sleep until the end.
func TestClientPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, err := weir.NewPolicy(memory.New(nil), weir.Policy{Name: "test", Rules: []weir.Rule{
			{Name: "pace", Algorithm: algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: 10}},
			{Name: "pause", Algorithm: algorithm.Pause{}},
		}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, err = lim.Pause(t.Context(), 2*time.Second, "all")
		if err2 := check(t.Context(), pace(t, new(service), lim, all)); err != nil || err2 != nil || time.Since(start) != 2*time.Second {
			t.Errorf("got %v, %v after %v, want none after 2 s", err, err2, time.Since(start))
		}
	})
}

// A MaxWait bounds the wait, and a Cost is consumed. The metadata is not used.
func TestClientRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := newLimiter(t, algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 3})
		req := weir.Request{Key: weir.KeyOf("all"), Cost: 3, MaxWait: 2 * time.Second, Metadata: "unused"}
		c := pace(t, new(service), lim, func(context.Context, string) (weir.Request, error) { return req, nil })
		start := time.Now()
		err1 := check(t.Context(), c)
		err2 := check(t.Context(), c)
		req.MaxWait++ // less than a microsecond, which makes no difference
		err3 := check(t.Context(), c)
		req.MaxWait = 3 * time.Second
		err4 := check(t.Context(), c)
		if err1 != nil || !errors.Is(err2, weir.ErrDenied) || !errors.Is(err3, weir.ErrDenied) || err4 != nil || time.Since(start) != 3*time.Second {
			t.Errorf("got %v, %v, %v, %v after %v, want two denied, and the last after 3s", err1, err2, err3, err4, time.Since(start))
		}
	})
}

// A call that is not sent has a code, wraps its cause, and does not show it in its
// status.
func TestClientErrors(t *testing.T) {
	secret := errors.New("secret")
	wrap := func(err error) error { return fmt.Errorf("%w: %w", err, secret) }
	works := newLimiter(t, algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1000})
	counted := newCounted(t)
	// answering returns a limiter that always answers with err.
	answering := func(err error) *weir.Limiter {
		return wrapped(works, func(weir.Decider) weir.Decider { return failing(err) })
	}
	for _, tt := range []struct {
		name    string
		lim     *weir.Limiter
		request weirgrpc.RequestFunc
		want    codes.Code
		is      error
	}{
		{"allowed", works, all, codes.OK, nil},
		{"unlimited", answering(secret), of(weir.Request{}, wrap(weirgrpc.ErrUnlimited)), codes.OK, nil},
		{"unavailable", answering(wrap(store.ErrUnavailable)), all, codes.Unavailable, store.ErrUnavailable},
		{"the store's deadline", answering(wrap(context.DeadlineExceeded)), all, codes.Unavailable, context.DeadlineExceeded},
		{"foreign", answering(wrap(store.ErrForeign)), all, codes.Internal, store.ErrForeign},
		{"no key", works, of(weir.Request{}, wrap(weirgrpc.ErrNoKey)), codes.InvalidArgument, weirgrpc.ErrNoKey},
		{"an empty segment", works, of(weir.Request{Key: weir.KeyOf("")}, nil), codes.InvalidArgument, weirgrpc.ErrNoKey},
		{"metadata of a server", works, weirgrpc.By(weirgrpc.Metadata("x-api-key")), codes.InvalidArgument, weirgrpc.ErrNoKey},
		{"another error", works, of(weir.Request{}, secret), codes.Internal, secret},
		{"a peek", works, of(weir.Request{Key: weir.KeyOf("a"), Op: weir.Peek}, nil), codes.Internal, nil},
		{"an algorithm that cannot wait", newLimiter(t, algorithm.FixedWindow{Limit: 1, Window: time.Hour}), all, codes.Internal, weir.ErrUnsupported},
		{"amounts", counted, weirgrpc.WithCosts(all, ofBytes(7)), codes.OK, nil},
		{"too many", counted, weirgrpc.WithCosts(all, ofBytes(101)), codes.ResourceExhausted, weir.ErrDenied},
		{"a unit without Costs", counted, all, codes.Internal, weir.ErrInvalidCost},
		{"never", works, of(weir.Request{Key: weir.KeyOf("a"), Cost: 1001}, nil), codes.ResourceExhausted, weir.ErrDenied},
	} {
		for kind, call := range kinds {
			t.Run(tt.name+", "+kind, func(t *testing.T) {
				s := new(service)
				err := call(t.Context(), pace(t, s, tt.lim, tt.request))
				st, ok := status.FromError(err)
				if !ok || st.Code() != tt.want || tt.is != nil && !errors.Is(err, tt.is) || (s.count() == 1) != (tt.want == codes.OK) {
					t.Errorf("got %v and %d calls, want %v and %v", err, s.count(), tt.want, tt.is)
				}
				if strings.Contains(st.Message(), "secret") || strings.Contains(st.Message(), "weir") {
					t.Errorf("the status shows the cause: %v", st)
				}
				if err != nil && (!strings.HasPrefix(err.Error(), "weirgrpc: the call of /grpc.health.v1.Health/") || !strings.Contains(err.Error(), errors.Unwrap(err).Error())) {
					t.Errorf("got the text %q, want the method and the cause", err)
				}
			})
		}
	}
}

// The codes of a context that has ended, before and during the decision.
func TestClientEnds(t *testing.T) {
	for kind, call := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lim := wrapped(newLimiter(t, algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1}), func(weir.Decider) weir.Decider { return hanging })
				c := pace(t, new(service), lim, all)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				for _, when := range []string{"during", "before"} {
					if err := call(ctx, c); status.Code(err) != codes.DeadlineExceeded || !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%s: got %v, want DEADLINE_EXCEEDED", when, err)
					}
				}
				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				for _, when := range []string{"during", "before"} {
					if err := call(ctx, c); status.Code(err) != codes.Canceled || !errors.Is(err, context.Canceled) {
						t.Errorf("%s: got %v, want CANCELED", when, err)
					}
				}
			})
		})
	}
}

// The timer of a store can be earlier than the timer of the context. The turn may be
// reserved then, and is refunded.
func TestClientEarlyTimer(t *testing.T) {
	for kind, call := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lim := newLimiter(t, algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 1})
				early := wrapped(lim, func(next weir.Decider) weir.Decider {
					return deciderFunc(func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
						res, err := next.Decide(ctx, r, each)
						if r.Op == weir.Consume {
							return weir.Result{}, context.DeadlineExceeded
						}
						return res, err
					})
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				s := new(service)
				err := call(ctx, pace(t, s, early, all))
				if !errors.Is(err, context.DeadlineExceeded) || s.count() > 0 || free(t, lim) != 1 {
					t.Errorf("got %v, %d calls and %d tokens, want DeadlineExceeded, none and 1", err, s.count(), free(t, lim))
				}
			})
		})
	}
}

// A zero ClientInterceptor sends no call.
func TestClientZero(t *testing.T) {
	for name, p := range map[string]*weirgrpc.ClientInterceptor{"nil": nil, "zero": {}} {
		for kind, call := range kinds {
			s := new(service)
			err := call(t.Context(), serve(t, s, unlimited(t), grpc.WithChainUnaryInterceptor(p.Unary), grpc.WithChainStreamInterceptor(p.Stream)))
			if status.Code(err) != codes.Internal || s.count() > 0 {
				t.Errorf("%s, %s: got %v and %d calls, want INTERNAL", name, kind, err, s.count())
			}
		}
	}
}

// A server that passes a client's denial on answers with its code and RetryInfo, not its
// text.
func TestClientDenialOfServer(t *testing.T) {
	lim := newLimiter(t, algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 1})
	backend := pace(t, new(service), lim, of(weir.Request{Key: weir.KeyOf("all"), MaxWait: time.Second}, nil))
	front := serve(t, &service{handle: func(ctx context.Context) error { return check(ctx, backend) }}, unlimited(t))
	if err := check(t.Context(), front); err != nil {
		t.Fatal(err)
	}
	err := check(t.Context(), front)
	if retry, _ := details(t, err); status.Code(err) != codes.ResourceExhausted || retry == nil || errors.Is(err, weir.ErrDenied) || strings.Contains(err.Error(), "weir") {
		t.Errorf("got %v and %v, want RESOURCE_EXHAUSTED with a RetryInfo", err, retry)
	}
}
