package weirgrpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/weirgrpc"
)

// of returns a RequestFunc that always answers the same.
func of(req weir.Request, err error) weirgrpc.RequestFunc {
	return func(context.Context, string) (weir.Request, error) { return req, err }
}

// Each kind of error has its code. FailOpen passes on only outages. No text of an error
// reaches the client.
func TestErrors(t *testing.T) {
	secret := errors.New("secret")
	wrap := func(err error) error { return fmt.Errorf("%w: %w", err, secret) }
	lim := newLimiter(t, algorithm.FixedWindow{Limit: 1000, Window: time.Hour})
	leases := newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: time.Hour})
	counted := newCounted(t)
	unlimited := wrap(weirgrpc.ErrUnlimited)
	for _, tt := range []struct {
		name         string
		d            weir.Decider
		request      weirgrpc.RequestFunc
		closed, open codes.Code // without and with FailOpen
		errs         int
	}{
		{"allowed", lim, all, codes.OK, codes.OK, 0},
		{"unlimited", failing(secret), of(weir.Request{}, unlimited), codes.OK, codes.OK, 0},
		{"unavailable", failing(wrap(store.ErrUnavailable)), all, codes.Unavailable, codes.OK, 1},
		{"deadline", failing(wrap(context.DeadlineExceeded)), all, codes.Unavailable, codes.OK, 1},
		{"another context is cancelled", failing(wrap(context.Canceled)), all, codes.Unavailable, codes.OK, 1},
		{"foreign", failing(wrap(store.ErrForeign)), all, codes.Internal, codes.Internal, 1},
		{"script", failing(wrap(store.ErrScript)), all, codes.Internal, codes.Internal, 1},
		{"a status of the Decider", failing(status.Error(codes.PermissionDenied, "secret")), all, codes.Internal, codes.Internal, 1},
		{"a wrong number of segments", lim, weirgrpc.By(weirgrpc.Method, weirgrpc.Method), codes.Internal, codes.Internal, 1},
		{"a zero key", lim, of(weir.Request{}, nil), codes.Internal, codes.Internal, 1},
		{"an empty segment", lim, of(weir.Request{Key: weir.KeyOf("")}, nil), codes.InvalidArgument, codes.InvalidArgument, 1},
		{"an empty segment of By", lim, weirgrpc.By(weirgrpc.Text("")), codes.InvalidArgument, codes.InvalidArgument, 1},
		{"no key", lim, of(weir.Request{}, wrap(weirgrpc.ErrNoKey)), codes.InvalidArgument, codes.InvalidArgument, 1},
		{"another error of the RequestFunc", lim, of(weir.Request{}, secret), codes.Internal, codes.Internal, 1},
		{"an outage of the RequestFunc", lim, of(weir.Request{}, wrap(store.ErrUnavailable)), codes.Internal, codes.Internal, 1},
		{"a negative cost", lim, of(weir.Request{Key: weir.KeyOf("a"), Cost: -1}, nil), codes.Internal, codes.Internal, 1},
		{"a negative MaxWait", lim, of(weir.Request{Key: weir.KeyOf("a"), MaxWait: -1}, nil), codes.Internal, codes.Internal, 1},
		{"a peek", lim, of(weir.Request{Key: weir.KeyOf("a"), Op: weir.Peek}, nil), codes.Internal, codes.Internal, 1},
		{"a reset", lim, of(weir.Request{Key: weir.KeyOf("a"), Op: weir.Reset}, nil), codes.Internal, codes.Internal, 1},
		{"a lease", leases, all, codes.OK, codes.OK, 0},
		{"amounts", counted, weirgrpc.WithCosts(all, ofBytes(7)), codes.OK, codes.OK, 0},
		{"too many", counted, weirgrpc.WithCosts(all, ofBytes(101)), codes.ResourceExhausted, codes.ResourceExhausted, 0},
		{"a negative amount", counted, weirgrpc.WithCosts(all, ofBytes(-1)), codes.Internal, codes.Internal, 1},
		{"a unit without Costs", counted, all, codes.Internal, codes.Internal, 1},
		{"amounts without a key", counted, weirgrpc.WithCosts(weirgrpc.By(weirgrpc.Text("")), ofBytes(7)), codes.InvalidArgument, codes.InvalidArgument, 1},
	} {
		for _, open := range []bool{false, true} {
			for kind, call := range kinds {
				t.Run(fmt.Sprintf("%s, %s, fail open %v", tt.name, kind, open), func(t *testing.T) {
					s := new(service)
					limit, errs := newInterceptor(t, tt.d, tt.request, weirgrpc.Options{FailOpen: open})
					err := call(t.Context(), serve(t, s, limit))
					want := tt.closed
					if open {
						want = tt.open
					}
					if status.Code(err) != want || (s.count() == 1) != (want == codes.OK) {
						t.Errorf("got %v and %d calls of the handler, want %v", err, s.count(), want)
					}
					if err != nil && strings.Contains(err.Error(), "secret") {
						t.Errorf("the client sees the text of the error: %v", err)
					}
					if len(errs.all()) != tt.errs {
						t.Errorf("got errors %v, want %d", errs.all(), tt.errs)
					}
					if advice := "weirgrpc: the request has no Costs: use WithCosts: weir: "; tt.errs > 0 && strings.HasPrefix(errs.all()[0].Error(), advice) != (tt.name == "a unit without Costs") {
						t.Errorf("got errors %v", errs.all())
					}
				})
			}
		}
	}
}

// A zero ServerInterceptor rejects calls.
func TestZero(t *testing.T) {
	for name, limit := range map[string]*weirgrpc.ServerInterceptor{"nil": nil, "zero": {}} {
		for kind, call := range kinds {
			t.Run(name+", "+kind, func(t *testing.T) {
				s := new(service)
				if err := call(t.Context(), serve(t, s, limit)); status.Code(err) != codes.Internal || s.count() > 0 {
					t.Errorf("got %v and %d calls of the handler, want INTERNAL", err, s.count())
				}
			})
		}
	}
}

// Without OnError, errors are logged: an ErrNoKey at level Debug.
func TestLog(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	for want, err := range map[string]error{
		"level=ERROR msg=\"weirgrpc cannot limit a call\" method=/grpc.health.v1.Health/Check error=boom\n": errors.New("boom"),
		"level=DEBUG msg=\"weirgrpc rejects a call\"":                                                       weirgrpc.ErrNoKey,
	} {
		var out bytes.Buffer
		slog.SetDefault(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})))
		limit, err := weirgrpc.NewServerInterceptor(failing(nil), of(weir.Request{}, err), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := check(t.Context(), serve(t, new(service), limit)); err == nil || !strings.HasPrefix(out.String(), want) {
			t.Errorf("got %v and the log %q, want %q", err, out.String(), want)
		}
	}
}

// The constructors return an error for what can be known to be wrong.
func TestMisuse(t *testing.T) {
	lim := newLimiter(t, algorithm.FixedWindow{Limit: 1, Window: time.Hour})
	var none *weir.Limiter
	for _, tt := range []struct {
		name    string
		d       weir.Decider
		request weirgrpc.RequestFunc
		opts    *weirgrpc.Options
		want    string
	}{
		{"right", lim, all, nil, ""},
		{"no decider", nil, all, nil, "the decider is nil: pass a limiter"},
		{"a nil limiter", none, all, nil, "the Limiter is nil or a zero value"},
		{"a zero limiter", new(weir.Limiter), all, nil, "the Limiter is nil or a zero value"},
		{"no RequestFunc", lim, nil, nil, "the RequestFunc is nil: pass one"},
		{"no segment", lim, weirgrpc.By(), nil, "the RequestFunc is nil: pass one"},
		{"a nil segment", lim, weirgrpc.By(weirgrpc.Method, nil), nil, "By returns nil if"},
		{"too many segments", lim, weirgrpc.By(make([]weirgrpc.Segment, weir.MaxSegments+1)...), nil, "more than 8"},
		{"a key that metadata cannot have", lim, weirgrpc.By(weirgrpc.Metadata("x key")), nil, "the RequestFunc is nil"},
		{"an empty FirstOf", lim, weirgrpc.By(weirgrpc.FirstOf()), nil, "the RequestFunc is nil"},
		{"a nil segment of FirstOf", lim, weirgrpc.By(weirgrpc.FirstOf(weirgrpc.Method, nil)), nil, "the RequestFunc is nil"},
		{"WithCosts without a RequestFunc", lim, weirgrpc.WithCosts(nil, ofBytes(1)), nil, "the RequestFunc is nil"},
		{"WithCosts without a function", lim, weirgrpc.WithCosts(all, nil), nil, "WithCosts if a function given to it is nil"},
		{"a negative LeaseRetryAfter", lim, all, &weirgrpc.Options{LeaseRetryAfter: -1}, "Options.LeaseRetryAfter is -1ns: it must be above 0"},
		{"a negative timeout", lim, all, &weirgrpc.Options{Timeout: -1}, "Options.Timeout is -1ns: it must be above 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			matches := func(err error, name string) bool {
				return (err == nil) == (tt.want == "") && (err == nil || strings.HasPrefix(err.Error(), "weirgrpc: "+name+": ") && strings.Contains(err.Error(), tt.want))
			}
			if _, err := weirgrpc.NewServerInterceptor(tt.d, tt.request, tt.opts); !matches(err, "NewServerInterceptor") {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if client, ok := tt.d.(*weir.Limiter); ok && tt.opts == nil {
				if _, err := weirgrpc.NewClientInterceptor(client, tt.request); !matches(err, "NewClientInterceptor") {
					t.Errorf("got %v, want %q", err, tt.want)
				}
			}
		})
	}
}

// Of many concurrent calls, exactly the limit is allowed.
func TestManyCallers(t *testing.T) {
	for kind, call := range kinds {
		t.Run(kind, func(t *testing.T) {
			const most, callers, each = 40, 16, 10
			s := new(service)
			limit, errs := newInterceptor(t, newLimiter(t, algorithm.FixedWindow{Limit: most, Window: 24 * time.Hour}), all, weirgrpc.Options{})
			c := serve(t, s, limit)
			counts := make(map[codes.Code]int)
			var mu sync.Mutex
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for range each {
						code := status.Code(call(t.Context(), c))
						mu.Lock()
						counts[code]++
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			if counts[codes.OK] != most || counts[codes.ResourceExhausted] != callers*each-most || s.count() != most || len(errs.all()) > 0 {
				t.Errorf("got %v, %d calls of the handler, errors %v, want %d allowed", counts, s.count(), errs.all(), most)
			}
		})
	}
}

// Plan chooses the decider, exempts a call, or rejects it.
func TestPlan(t *testing.T) {
	lim := newLimiter(t, algorithm.FixedWindow{Limit: 1, Window: time.Hour})
	var none *weir.Limiter
	for _, tt := range []struct {
		name string
		d    weir.Decider
		err  error
		want codes.Code
	}{
		{"the default", nil, nil, codes.ResourceExhausted},
		{"another", denying(weir.Result{Allowed: true}), nil, codes.OK},
		{"a nil limiter", none, nil, codes.Internal},
		{"unlimited", nil, weirgrpc.ErrUnlimited, codes.OK},
		{"an error", lim, errors.New("no such plan"), codes.Internal},
		{"no key", lim, weirgrpc.ErrNoKey, codes.InvalidArgument},
	} {
		t.Run(tt.name, func(t *testing.T) {
			limit, _ := newInterceptor(t, denying(weir.Result{}), all, weirgrpc.Options{
				Plan: func(_ context.Context, method string) (weir.Decider, error) {
					if method != "/grpc.health.v1.Health/Check" {
						t.Errorf("got method %q", method)
					}
					return tt.d, tt.err
				},
			})
			if err := check(t.Context(), serve(t, new(service), limit)); status.Code(err) != tt.want {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

// A call of an unknown method reaches no interceptor, unless the server handles it.
func TestUnknownMethod(t *testing.T) {
	attempts := 0
	limit, _ := newInterceptor(t, denying(weir.Result{}), counted(&attempts, all), weirgrpc.Options{})
	conn := dial(t, new(service), limit)
	err := conn.Invoke(t.Context(), "/grpc.health.v1.Health/Nothing", nil, nil)
	if err == nil || attempts > 0 {
		t.Errorf("got %v and %d decisions, want none", err, attempts)
	}
}

// hanging answers when the context ends, and then says so with the context's error.
var hanging = deciderFunc(func(ctx context.Context, r weir.Request, _ []weir.Result) (weir.Result, error) {
	if r.Op != weir.Consume {
		return weir.Result{}, weir.ErrUnsupported // as a limiter without leases answers
	}
	<-ctx.Done()
	return weir.Result{}, fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
})

// A call that ends during the decision has the code of its end. Timeout alone makes it
// UNAVAILABLE, or passes it on.
func TestDecisionEnds(t *testing.T) {
	for _, tt := range []struct {
		name    string
		timeout time.Duration
		open    bool
		cancel  time.Duration // when the caller cancels
		limit   time.Duration // the caller's deadline
		want    codes.Code    // what the server answers
		errs    int
		calls   int
	}{
		{"cancelled", 0, true, time.Second, time.Hour, codes.Canceled, 0, 0},
		{"deadline", 0, true, time.Hour, time.Second, codes.DeadlineExceeded, 1, 0},
		{"timeout", time.Second, false, time.Hour, time.Hour, codes.Unavailable, 1, 0},
		{"timeout, fail open", time.Second, true, time.Hour, time.Hour, codes.OK, 1, 1},
	} {
		for kind, call := range kinds {
			t.Run(tt.name+", "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := new(service)
					limit, errs := newInterceptor(t, hanging, all, weirgrpc.Options{Timeout: tt.timeout, FailOpen: tt.open})
					var server answers
					c := serveAnd(t, s, limit, &server)
					ctx, cancel := context.WithTimeout(t.Context(), tt.limit)
					defer cancel()
					time.AfterFunc(tt.cancel, cancel)
					start := time.Now()
					err := call(ctx, c)
					took := time.Since(start)
					synctest.Wait()
					if got := server.all(); len(got) != 1 || got[0] != tt.want || status.Code(err) != tt.want || took != time.Second || s.count() != tt.calls {
						t.Errorf("got %v from the server and %v after %v, %d calls of the handler, want %v and %d", got, err, took, s.count(), tt.want, tt.calls)
					}
					if len(errs.all()) != tt.errs {
						t.Errorf("got errors %v, want %d", errs.all(), tt.errs)
					}
				})
			})
		}
	}
}

// A RequestFunc whose caller has gone fails like a decision whose caller has gone.
func TestRequestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit, errs := newInterceptor(t, failing(nil), func(ctx context.Context, _ string) (weir.Request, error) {
			<-ctx.Done()
			return weir.Request{}, ctx.Err()
		}, weirgrpc.Options{})
		var server answers
		c := serveAnd(t, new(service), limit, &server)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		err := check(ctx, c)
		synctest.Wait()
		if got := server.all(); len(got) != 1 || got[0] != codes.Canceled || status.Code(err) != codes.Canceled || len(errs.all()) > 0 {
			t.Errorf("got %v from the server and %v, errors %v, want CANCELED and none", got, err, errs.all())
		}
	})
}

// answers are the codes with which the server ends calls: the client can see others.
type answers struct {
	mu    sync.Mutex
	codes []codes.Code
}

func (a *answers) add(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.codes = append(a.codes, status.Code(err))
}

func (a *answers) all() []codes.Code {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.codes
}

func (a *answers) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (res any, err error) {
	defer func() { a.add(err) }()
	return handler(ctx, req)
}

func (a *answers) stream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer func() { a.add(err) }()
	return handler(srv, ss)
}
