package weirgrpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/weirgrpc"
)

// Each kind of error has its code. FailOpen passes on only outages. OnError gets every error, and no
// text of an error reaches the client.
func TestErrors(t *testing.T) {
	secret := errors.New("secret")
	wrap := func(err error) error { return fmt.Errorf("%w: %w", err, secret) }
	fails := func(err error) weir.Decider { return answering(weir.Result{}, err) }
	plan := func(d weir.Decider, err error) func(context.Context, string) (weir.Decider, error) {
		return func(_ context.Context, method string) (weir.Decider, error) {
			if !strings.HasPrefix(method, "/grpc.health.v1.Health/") {
				t.Errorf("got the method %q", method)
			}
			return d, err
		}
	}
	by, text, missing := weirgrpc.By, weirgrpc.Text, (*weir.Limiter)(nil)
	lim := newLimiter(t, algorithm.FixedWindow{Limit: 1000, Window: time.Hour})
	leases := newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: time.Hour})
	counted := newCounted(t)
	for name, tt := range map[string]struct {
		d            weir.Decider
		request      weirgrpc.RequestFunc
		plan         func(context.Context, string) (weir.Decider, error)
		closed, open codes.Code // without and with FailOpen
		says         string     // the error
	}{
		"allowed":                      {lim, all, nil, codes.OK, codes.OK, ""},
		"a lease":                      {leases, all, nil, codes.OK, codes.OK, ""},
		"unlimited":                    {fails(secret), refusing(wrap(weirgrpc.ErrUnlimited)), nil, codes.OK, codes.OK, ""},
		"an outage":                    {fails(wrap(store.ErrUnavailable)), all, nil, codes.Unavailable, codes.OK, "store unavailable"},
		"a deadline of the store":      {fails(wrap(context.DeadlineExceeded)), all, nil, codes.Unavailable, codes.OK, "deadline exceeded"},
		"another context is cancelled": {fails(wrap(context.Canceled)), all, nil, codes.Unavailable, codes.OK, "canceled"},
		"a foreign value":              {fails(wrap(store.ErrForeign)), all, nil, codes.Internal, codes.Internal, "not a limiter's"},
		"a status of the Decider":      {fails(status.Error(codes.PermissionDenied, "secret")), all, nil, codes.Internal, codes.Internal, "secret"},
		"no key":                       {lim, refusing(wrap(weirgrpc.ErrNoKey)), nil, codes.InvalidArgument, codes.InvalidArgument, "weirgrpc: the call has no key"},
		"an empty segment":             {lim, asking(weir.Request{Key: weir.KeyOf("")}), nil, codes.InvalidArgument, codes.InvalidArgument, "weirgrpc: the call has no key"},
		"an empty segment of By":       {lim, by(weirgrpc.Method, text("")), nil, codes.InvalidArgument, codes.InvalidArgument, "segment 2 of the key is empty"},
		"no token":                     {lim, by(weirgrpc.BearerToken), nil, codes.InvalidArgument, codes.InvalidArgument, "the metadata authorization is missing or empty"},
		"another key than the policy":  {lim, by(text("a"), text("b")), nil, codes.Internal, codes.Internal, "2 segments"},
		"an error of the RequestFunc":  {lim, refusing(secret), nil, codes.Internal, codes.Internal, "secret"},
		"an outage of something else":  {lim, refusing(wrap(store.ErrUnavailable)), nil, codes.Internal, codes.Internal, "store unavailable"},
		"a negative cost":              {lim, asking(weir.Request{Cost: -1}), nil, codes.Internal, codes.Internal, "Cost is -1"},
		"a peek":                       {lim, asking(weir.Request{Op: weir.Peek}), nil, codes.Internal, codes.Internal, "weirgrpc: Request.Op is Peek"},
		"bytes":                        {counted, weirgrpc.WithCosts(all, ofBytes(7)), nil, codes.OK, codes.OK, ""},
		"too many bytes":               {counted, weirgrpc.WithCosts(all, ofBytes(101)), nil, codes.ResourceExhausted, codes.ResourceExhausted, ""},
		"a negative number of bytes":   {counted, weirgrpc.WithCosts(all, ofBytes(-1)), nil, codes.Internal, codes.Internal, `has -1 of the unit "bytes"`},
		"no bytes":                     {counted, all, nil, codes.Internal, codes.Internal, "weirgrpc: the request has no Costs: use WithCosts: weir: "},
		"bytes without a key":          {counted, weirgrpc.WithCosts(by(text("")), ofBytes(7)), nil, codes.InvalidArgument, codes.InvalidArgument, "segment 1 of the key is empty"},
		"a plan":                       {fails(secret), all, plan(lim, nil), codes.OK, codes.OK, ""},
		"the default of a plan":        {lim, all, plan(nil, nil), codes.OK, codes.OK, ""},
		"a plan without a limit":       {fails(secret), all, plan(nil, weirgrpc.ErrUnlimited), codes.OK, codes.OK, ""},
		"an error of a plan":           {lim, all, plan(lim, secret), codes.Internal, codes.Internal, "secret"},
		"a nil limiter of a plan":      {lim, all, plan(missing, nil), codes.Internal, codes.Internal, "the Limiter is nil or a zero value"},
	} {
		for _, open := range []bool{false, true} {
			each(t, fmt.Sprintf("%s, fail open %v", name, open), func(t *testing.T, call callFunc) {
				s := new(service)
				limit, errs := newInterceptor(t, tt.d, tt.request, weirgrpc.Options{FailOpen: open, Plan: tt.plan})
				err, want := call(t.Context(), serve(t, s, limit)), tt.closed
				if open {
					want = tt.open
				}
				if calls, _ := s.seen(); status.Code(err) != want || (calls == 1) != (want == codes.OK) {
					t.Errorf("got %v and %d calls of the handler, want %v", err, calls, want)
				}
				if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "weir")) {
					t.Errorf("the client sees the text of the error: %v", err)
				}
				says := fmt.Sprint(errs.all())
				if n := len(errs.all()); n > 1 || (n == 1) != (tt.says != "") || !strings.Contains(says, tt.says) || strings.Contains(says, "WithCosts") != strings.Contains(tt.says, "WithCosts") {
					t.Errorf("got errors %s, want %q", says, tt.says)
				}
			})
		}
	}
}

// A zero ServerInterceptor rejects calls. Its errors are logged, and those that clients cause at level
// Debug.
func TestLog(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	noKey, err := weirgrpc.NewServerInterceptor(answering(weir.Result{}, nil), refusing(weirgrpc.ErrNoKey), nil)
	if err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[*weirgrpc.ServerInterceptor]string{
		nil:   `level=ERROR msg="weirgrpc cannot limit a call" method=/grpc.health.v1.Health/\w+ error="weirgrpc: the ServerInterceptor is nil or a zero value`,
		{}:    `level=ERROR msg="weirgrpc cannot limit a call" method=/grpc.health.v1.Health/\w+ error="weirgrpc: the ServerInterceptor is nil or a zero value`,
		noKey: `level=DEBUG msg="weirgrpc rejects a call" method=/grpc.health.v1.Health/\w+ error="weirgrpc: the call has no key"`,
	} {
		each(t, want, func(t *testing.T, call callFunc) {
			var out bytes.Buffer
			slog.SetDefault(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
			s := new(service)
			err := call(t.Context(), serve(t, s, limit))
			if calls, _ := s.seen(); err == nil || calls > 0 || !regexp.MustCompile(want).MatchString(out.String()) {
				t.Errorf("got %v, %d calls of the handler and the log %q, want %q", err, calls, out.String(), want)
			}
		})
	}
}

// The constructors return an error for what can be known to be wrong.
func TestMisuse(t *testing.T) {
	lim, by, method := newLimiter(t, algorithm.FixedWindow{Limit: 1, Window: time.Hour}), weirgrpc.By, weirgrpc.Method
	for _, tt := range []struct {
		d       weir.Decider
		request weirgrpc.RequestFunc
		opts    weirgrpc.Options
		want    string
	}{
		{nil, all, weirgrpc.Options{}, "the decider is nil: pass a limiter"},
		{(*weir.Limiter)(nil), all, weirgrpc.Options{}, "the Limiter is nil or a zero value"},
		{lim, nil, weirgrpc.Options{}, "the RequestFunc is nil: pass one"},
		{lim, by(), weirgrpc.Options{}, "the RequestFunc is nil: pass one"},
		{lim, by(method, nil), weirgrpc.Options{}, "By returns nil if"},
		{lim, by(make([]weirgrpc.Segment, weir.MaxSegments+1)...), weirgrpc.Options{}, "more than 8"},
		{lim, by(weirgrpc.Metadata("x key")), weirgrpc.Options{}, "the RequestFunc is nil"},
		{lim, by(weirgrpc.FirstOf()), weirgrpc.Options{}, "the RequestFunc is nil"},
		{lim, by(weirgrpc.FirstOf(method, nil)), weirgrpc.Options{}, "the RequestFunc is nil"},
		{lim, weirgrpc.WithCosts(nil, ofBytes(1)), weirgrpc.Options{}, "the RequestFunc is nil"},
		{lim, weirgrpc.WithCosts(all, nil), weirgrpc.Options{}, "WithCosts if a function given to it is nil"},
		{lim, all, weirgrpc.Options{LeaseRetryAfter: -1}, "Options.LeaseRetryAfter is -1ns: it must be above 0"},
		{lim, all, weirgrpc.Options{Timeout: -1}, "Options.Timeout is -1ns: it must be above 0"},
	} {
		_, err := weirgrpc.NewServerInterceptor(tt.d, tt.request, &tt.opts)
		weirtest.WantError(t, err, nil, "weirgrpc: NewServerInterceptor", tt.want)
		if client, ok := tt.d.(*weir.Limiter); ok && !strings.Contains(tt.want, "Options") {
			_, err := weirgrpc.NewClientInterceptor(client, tt.request)
			weirtest.WantError(t, err, nil, "weirgrpc: NewClientInterceptor", tt.want)
		}
	}
}

// Hanging answers when the context ends, and then says so with the context's error.
func hanging(ctx context.Context, r weir.Request, _ []weir.Result) (weir.Result, error) {
	if r.Op != weir.Consume {
		return weir.Result{}, weir.ErrUnsupported // as a limiter without leases answers
	}
	<-ctx.Done()
	return weir.Result{}, fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
}

// A call that ends during the decision, or during the RequestFunc, has the code of its end. Timeout
// alone makes it UNAVAILABLE, or passes it on.
func TestDecisionEnds(t *testing.T) {
	slow := func(ctx context.Context, _ string) (weir.Request, error) {
		<-ctx.Done()
		return weir.Request{}, ctx.Err()
	}
	for name, tt := range map[string]struct {
		request  weirgrpc.RequestFunc
		timeout  time.Duration
		open     bool
		cancel   time.Duration // when the caller cancels
		deadline time.Duration
		want     codes.Code
		errs     int
	}{
		"cancelled":          {all, 0, true, time.Second, time.Hour, codes.Canceled, 0},
		"cancelled before":   {slow, 0, true, time.Second, time.Hour, codes.Canceled, 0},
		"deadline":           {all, 0, true, time.Hour, time.Second, codes.DeadlineExceeded, 1},
		"timeout":            {all, time.Second, false, time.Hour, time.Hour, codes.Unavailable, 1},
		"timeout, fail open": {all, time.Second, true, time.Hour, time.Hour, codes.OK, 1},
	} {
		each(t, name, func(t *testing.T, call callFunc) {
			s := new(service)
			limit, errs := newInterceptor(t, deciderFunc(hanging), tt.request, weirgrpc.Options{Timeout: tt.timeout, FailOpen: tt.open})
			c, start := serve(t, s, limit), time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), tt.deadline)
			defer cancel()
			time.AfterFunc(tt.cancel, cancel)
			err := call(ctx, c)
			took := time.Since(start)
			synctest.Wait()
			calls, got := s.seen()
			if len(got) != 1 || got[0] != tt.want || status.Code(err) != tt.want || took != time.Second || (calls == 1) != (tt.want == codes.OK) {
				t.Errorf("got %v from the server and %v after %v, %d calls of the handler, want %v", got, err, took, calls, tt.want)
			}
			if len(errs.all()) != tt.errs {
				t.Errorf("got errors %v, want %d", errs.all(), tt.errs)
			}
		})
	}
}
