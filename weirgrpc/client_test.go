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
	"github.com/weir-go/weir/weirgrpc"
)

// pace returns a client whose calls wait for p. Its server has no limit.
func pace(t *testing.T, s *service, p *weirgrpc.ClientInterceptor) healthpb.HealthClient {
	t.Helper()
	limit, _ := newInterceptor(t, answering(weir.Result{}, nil), refusing(weirgrpc.ErrUnlimited), weirgrpc.Options{})
	return serve(t, s, limit, grpc.WithChainUnaryInterceptor(p.Unary), grpc.WithChainStreamInterceptor(p.Stream))
}

func newClient(t *testing.T, lim *weir.Limiter, request weirgrpc.RequestFunc) *weirgrpc.ClientInterceptor {
	t.Helper()
	p, err := weirgrpc.NewClientInterceptor(lim, request)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Calls wait for their turn. A call that would come after its deadline or its MaxWait fails at once,
// and a call that is cancelled gives its turn back.
func TestClient(t *testing.T) {
	each(t, "a queue", func(t *testing.T, call callFunc) {
		s, req := new(service), weir.Request{Key: weir.KeyOf("all"), Metadata: "unused"}
		c := pace(t, s, newClient(t, newLimiter(t, algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: 10}), func(context.Context, string) (weir.Request, error) { return req, nil }))
		start := time.Now()
		for i, tt := range []struct {
			maxWait, deadline, cancel time.Duration
			want                      codes.Code
			is                        error
			took                      time.Duration
		}{
			{0, time.Hour, time.Hour, codes.OK, nil, 0},
			{0, time.Hour, time.Hour, codes.OK, nil, time.Second},
			{time.Second, time.Hour, time.Hour, codes.OK, nil, 2 * time.Second},
			{time.Second - 1, time.Hour, time.Hour, codes.ResourceExhausted, weir.ErrDenied, 2 * time.Second},
			{0, time.Second - 1, time.Hour, codes.ResourceExhausted, weir.ErrDenied, 2 * time.Second},
			{0, time.Hour, time.Second / 2, codes.Canceled, context.Canceled, 2500 * time.Millisecond},
			{0, time.Hour, time.Hour, codes.OK, nil, 3 * time.Second}, // the turn of the cancelled call
		} {
			ctx, cancel := context.WithTimeout(t.Context(), tt.deadline)
			time.AfterFunc(tt.cancel, cancel)
			req.MaxWait = tt.maxWait
			err := call(ctx, c)
			cancel()
			if status.Code(err) != tt.want || !errors.Is(err, tt.is) || time.Since(start) != tt.took {
				t.Errorf("call %d: got %v after %v, want %+v", i, err, time.Since(start), tt)
			}
			var denied *weir.DeniedError
			if retry, quota := details(t, err); errors.As(err, &denied) && (retry.GetRetryDelay().AsDuration() != denied.Result.RetryAfter || quota != nil) {
				t.Errorf("call %d: got %v and %v, want a RetryInfo of %v", i, retry, quota, denied.Result.RetryAfter)
			}
		}
		if calls, _ := s.seen(); calls != 4 {
			t.Errorf("%d calls of the handler, want 4", calls)
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
	fails := func(err error) *weirgrpc.ClientInterceptor {
		return newClient(t, wrapped(t, works, answering(weir.Result{}, wrap(err))), all)
	}
	sends := func(request weirgrpc.RequestFunc) *weirgrpc.ClientInterceptor { return newClient(t, works, request) }
	for name, tt := range map[string]struct {
		p    *weirgrpc.ClientInterceptor
		want codes.Code
		is   error
	}{
		"allowed":                       {sends(all), codes.OK, nil},
		"unlimited":                     {sends(refusing(wrap(weirgrpc.ErrUnlimited))), codes.OK, nil},
		"nil":                           {nil, codes.Internal, nil},
		"zero":                          {new(weirgrpc.ClientInterceptor), codes.Internal, nil},
		"an outage":                     {fails(store.ErrUnavailable), codes.Unavailable, store.ErrUnavailable},
		"the store's deadline":          {fails(context.DeadlineExceeded), codes.Unavailable, context.DeadlineExceeded},
		"a foreign value":               {fails(store.ErrForeign), codes.Internal, store.ErrForeign},
		"no key":                        {sends(refusing(wrap(weirgrpc.ErrNoKey))), codes.InvalidArgument, weirgrpc.ErrNoKey},
		"an empty segment":              {sends(asking(weir.Request{Key: weir.KeyOf("")})), codes.InvalidArgument, weirgrpc.ErrNoKey},
		"metadata of a server":          {sends(weirgrpc.By(weirgrpc.Metadata("x-api-key"))), codes.InvalidArgument, weirgrpc.ErrNoKey},
		"another error":                 {sends(refusing(secret)), codes.Internal, secret},
		"a peek":                        {sends(asking(weir.Request{Op: weir.Peek})), codes.Internal, nil},
		"an algorithm that cannot wait": {newClient(t, newLimiter(t, algorithm.FixedWindow{Limit: 1, Window: time.Hour}), all), codes.Internal, weir.ErrUnsupported},
		"bytes":                         {newClient(t, counted, weirgrpc.WithCosts(all, ofBytes(7))), codes.OK, nil},
		"too many bytes":                {newClient(t, counted, weirgrpc.WithCosts(all, ofBytes(101))), codes.ResourceExhausted, weir.ErrDenied},
		"no bytes":                      {newClient(t, counted, all), codes.Internal, weir.ErrInvalidCost},
		"never":                         {sends(asking(weir.Request{Cost: 1001})), codes.ResourceExhausted, weir.ErrDenied},
	} {
		each(t, name, func(t *testing.T, call callFunc) {
			s := new(service)
			err := call(t.Context(), pace(t, s, tt.p))
			st, ok := status.FromError(err)
			if calls, _ := s.seen(); !ok || st.Code() != tt.want || tt.is != nil && !errors.Is(err, tt.is) || (calls == 1) != (tt.want == codes.OK) {
				t.Errorf("got %v and %d calls, want %v and %v", err, calls, tt.want, tt.is)
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

// The codes of a context that ends during the decision, and has ended before.
func TestClientEnds(t *testing.T) {
	each(t, "a slow store", func(t *testing.T, call callFunc) {
		c := pace(t, new(service), newClient(t, wrapped(t, newLimiter(t, algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1}), hanging), all))
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		gone, cancel := context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second, cancel)
		for i, ctx := range []context.Context{late, late, gone, gone} {
			want, is := codes.DeadlineExceeded, context.DeadlineExceeded
			if ctx == gone {
				want, is = codes.Canceled, context.Canceled
			}
			if err := call(ctx, c); status.Code(err) != want || !errors.Is(err, is) {
				t.Errorf("call %d: got %v, want %v", i, err, want)
			}
		}
		synctest.Wait()
	})
}
