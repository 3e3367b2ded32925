package weirgrpc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirgrpc"
)

// all is the key of every call.
var all = weirgrpc.By(weirgrpc.Text("all"))

// newLimiter returns a limiter on a memory store of its own.
func newLimiter(t testing.TB, a algorithm.Algorithm) *weir.Limiter {
	t.Helper()
	lim, err := weir.New("test", memory.New(nil), a, nil)
	if err != nil {
		t.Fatal(err)
	}
	return lim
}

// newCounted returns a limiter that counts a unit, of which a key has 100 in an hour.
func newCounted(t testing.TB) *weir.Limiter {
	t.Helper()
	lim, err := weir.NewPolicy(memory.New(nil), weir.Policy{Name: "test", Units: []string{"bytes"}, Rules: []weir.Rule{{Unit: "bytes", Algorithm: algorithm.GCRA{Rate: algorithm.PerHour(100), Burst: 100}}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return lim
}

// ofBytes returns a function for WithCosts.
func ofBytes(n int64) func(context.Context, string) (weir.Costs, error) {
	return func(context.Context, string) (weir.Costs, error) {
		return weir.CostsOf(map[string]int64{"bytes": n}), nil
	}
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

// newInterceptor returns interceptors, and collects their errors if OnError is nil.
func newInterceptor(t testing.TB, d weir.Decider, request weirgrpc.RequestFunc, opts weirgrpc.Options) (*weirgrpc.ServerInterceptor, *errs) {
	t.Helper()
	e := new(errs)
	if opts.OnError == nil {
		opts.OnError = e.add
	}
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

	mu     sync.Mutex
	calls  int
	handle func(context.Context) error // nil means that there is nothing to do
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

func (s *service) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func (s *service) Check(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	return new(healthpb.HealthCheckResponse), s.run(ctx)
}

func (s *service) Watch(_ *healthpb.HealthCheckRequest, ss grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	return s.run(ss.Context())
}

// serve starts a server in this process, and returns a client of it.
func serve(t testing.TB, s *service, limit *weirgrpc.ServerInterceptor, opts ...grpc.DialOption) healthpb.HealthClient {
	t.Helper()
	return healthpb.NewHealthClient(dial(t, s, limit, opts...))
}

// serveAnd is serve. The server's answers are added to a.
func serveAnd(t testing.TB, s *service, limit *weirgrpc.ServerInterceptor, a *answers) healthpb.HealthClient {
	t.Helper()
	return healthpb.NewHealthClient(start(t, s, []grpc.UnaryServerInterceptor{a.unary, recoverUnary, limit.Unary}, []grpc.StreamServerInterceptor{a.stream, recoverStream, limit.Stream}))
}

// dial starts a server in this process, and returns a connection to it.
func dial(t testing.TB, s *service, limit *weirgrpc.ServerInterceptor, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	return start(t, s, []grpc.UnaryServerInterceptor{recoverUnary, limit.Unary}, []grpc.StreamServerInterceptor{recoverStream, limit.Stream}, opts...)
}

func start(t testing.TB, s *service, unary []grpc.UnaryServerInterceptor, stream []grpc.StreamServerInterceptor, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(unary...), grpc.ChainStreamInterceptor(stream...))
	healthpb.RegisterHealthServer(server, s)
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

// recoverUnary and recoverStream come first, as the package documentation says.
func recoverUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (_ any, err error) {
	defer recovered(&err)
	return handler(ctx, req)
}

func recoverStream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer recovered(&err)
	return handler(srv, ss)
}

func recovered(err *error) {
	if r := recover(); r != nil {
		*err = status.Errorf(codes.Aborted, "panic: %v", r)
	}
}

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
	_, err = w.Recv()
	return ignoreEOF(err)
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// kinds are the ways to make a call.
var kinds = map[string]func(context.Context, healthpb.HealthClient, ...grpc.CallOption) error{"unary": check, "stream": watch}

// A deciderFunc is a Decider.
type deciderFunc func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error)

func (f deciderFunc) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	return f(ctx, r, each)
}

// failing returns a Decider that always returns err.
func failing(err error) weir.Decider {
	return deciderFunc(func(context.Context, weir.Request, []weir.Result) (weir.Result, error) { return weir.Result{}, err })
}

// wrapped returns lim with its decisions passed to the Decider that f makes.
func wrapped(lim *weir.Limiter, f func(next weir.Decider) weir.Decider) *weir.Limiter {
	lim, err := lim.Wrap(func(_ *weir.Limiter, next weir.Decider) (weir.Decider, error) { return f(next), nil })
	if err != nil {
		panic(err)
	}
	return lim
}
