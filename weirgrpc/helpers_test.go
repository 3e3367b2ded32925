package weirgrpc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirgrpc"
)

// all is the key of every call.
var all = weirgrpc.By(weirgrpc.Text("all"))

// asking returns a RequestFunc that always returns req. Its key is that of all, if it has none.
func asking(req weir.Request) weirgrpc.RequestFunc {
	if req.Key == (weir.Key{}) {
		req.Key = weir.KeyOf("all")
	}
	return func(context.Context, string) (weir.Request, error) { return req, nil }
}

// refusing returns a RequestFunc that always returns err.
func refusing(err error) weirgrpc.RequestFunc {
	return func(context.Context, string) (weir.Request, error) { return weir.Request{}, err }
}

// newLimiter returns a limiter on a memory store of its own.
func newLimiter(t testing.TB, a algorithm.Algorithm) *weir.Limiter {
	t.Helper()
	return weirtest.New(t, memory.New(nil), a)
}

// newCounted returns a limiter that counts a unit, of which a key has 100 in an hour.
func newCounted(t testing.TB) *weir.Limiter {
	t.Helper()
	return weirtest.NewPolicy(t, memory.New(nil), weir.Policy{Units: []string{"bytes"}, Rules: []weir.Rule{{Unit: "bytes", Algorithm: algorithm.GCRA{Rate: algorithm.PerHour(100), Burst: 100}}}})
}

// ofBytes returns a function for WithCosts.
func ofBytes(n int64) func(context.Context, string) (weir.Costs, error) {
	return func(context.Context, string) (weir.Costs, error) {
		return weir.CostsOf(map[string]int64{"bytes": n}), nil
	}
}

// free returns how many leases, or tokens, of the key of every call are free.
func free(t *testing.T, lim *weir.Limiter) int64 {
	t.Helper()
	return weirtest.Left(t, lim, "all").Remaining
}

// errs collects errors.
type errs struct {
	mu   sync.Mutex
	list []error
}

func (e *errs) add(_ context.Context, _ string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, err)
}

func (e *errs) all() []error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.list)
}

// newInterceptor returns interceptors, and collects their errors.
func newInterceptor(t testing.TB, d weir.Decider, request weirgrpc.RequestFunc, opts weirgrpc.Options) (*weirgrpc.ServerInterceptor, *errs) {
	t.Helper()
	e := new(errs)
	opts.OnError = e.add
	limit, err := weirgrpc.NewServerInterceptor(d, request, &opts)
	if err != nil {
		t.Fatal(err)
	}
	return limit, e
}

// A service is a health service. Its two methods call handle: Check is a unary call, and
// Watch a stream.
type service struct {
	healthpb.UnimplementedHealthServer
	handle func(context.Context) error // nil means that there is nothing to do

	mu    sync.Mutex
	calls int
	codes []codes.Code // with which the server has ended calls: the client can see others
}

func (s *service) run(ctx context.Context) error {
	s.mu.Lock()
	s.calls++
	s.mu.Unlock()
	if s.handle == nil {
		return nil
	}
	return s.handle(ctx)
}

// seen returns the number of calls of the handler, and the codes.
func (s *service) seen() (int, []codes.Code) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls, slices.Clone(s.codes)
}

func (s *service) Check(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	return new(healthpb.HealthCheckResponse), s.run(ctx)
}

func (s *service) Watch(_ *healthpb.HealthCheckRequest, ss grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	return s.run(ss.Context())
}

// ended notes the code of a call. It recovers from a panic, as the package documentation says.
func (s *service) ended(err *error) {
	if r := recover(); r != nil {
		*err = status.Errorf(codes.Aborted, "panic: %v", r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.codes = append(s.codes, status.Code(*err))
}

// serve starts a server in this process, and returns a client of it. A limit of nil means none.
func serve(t testing.TB, s *service, limit *weirgrpc.ServerInterceptor, opts ...grpc.DialOption) healthpb.HealthClient {
	t.Helper()
	server := grpc.NewServer(
		grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (_ any, err error) {
			defer s.ended(&err)
			return limit.Unary(ctx, req, info, handler)
		}),
		grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
			defer s.ended(&err)
			return limit.Stream(srv, ss, info, handler)
		}))
	healthpb.RegisterHealthServer(server, s)
	return healthpb.NewHealthClient(dial(t, server, opts...))
}

// dial starts server in this process, and returns a connection to it.
func dial(t testing.TB, server *grpc.Server, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	opts = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
	}, opts...)
	conn, err := grpc.NewClient("passthrough:///test", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // a quick test stops it before it serves
			t.Error(err)
		}
	})
	return conn
}

// A callFunc makes a call.
type callFunc func(context.Context, healthpb.HealthClient, ...grpc.CallOption) error

// check makes a unary call.
func check(ctx context.Context, c healthpb.HealthClient, opts ...grpc.CallOption) error {
	_, err := c.Check(ctx, new(healthpb.HealthCheckRequest), opts...)
	return err
}

// watch makes a stream, and waits for its end.
func watch(ctx context.Context, c healthpb.HealthClient, opts ...grpc.CallOption) error {
	w, err := c.Watch(ctx, new(healthpb.HealthCheckRequest), opts...)
	if err != nil {
		return err
	}
	if _, err = w.Recv(); errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// each calls f in virtual time for each way to make a call.
func each(t *testing.T, name string, f func(t *testing.T, call callFunc)) {
	for kind, call := range map[string]callFunc{"unary": check, "stream": watch} {
		t.Run(name+", "+kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, call) })
		})
	}
}

// A deciderFunc is a Decider that hides its limiter.
type deciderFunc func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error)

func (f deciderFunc) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	return f(ctx, r, each)
}

// answering returns a Decider that always returns res and err.
func answering(res weir.Result, err error) deciderFunc {
	return func(context.Context, weir.Request, []weir.Result) (weir.Result, error) { return res, err }
}

// wrapped returns lim with its decisions passed to f.
func wrapped(t *testing.T, lim *weir.Limiter, f deciderFunc) *weir.Limiter {
	t.Helper()
	return weirtest.Wrap(t, lim, weirtest.Around(func(weir.Decider) deciderFunc { return f }))
}
