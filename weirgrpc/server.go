package weirgrpc

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/gate"
	"github.com/weir-go/weir/internal/guard"
)

var (
	_ grpc.UnaryServerInterceptor  = (*ServerInterceptor)(nil).Unary
	_ grpc.StreamServerInterceptor = (*ServerInterceptor)(nil).Stream
)

// Unary is a [grpc.UnaryServerInterceptor]. See the package documentation for its errors.
func (s *ServerInterceptor) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (res any, err error) {
	c := call{s: s, ctx: ctx, method: info.FullMethod}
	err = c.enter(func(md metadata.MD) error { return grpc.SetTrailer(ctx, md) })
	switch {
	case err != nil:
		return nil, err
	case c.req.ID == "":
		return handler(ctx, req)
	}
	c.run(func(ctx context.Context) { res, err = handler(ctx, req) })
	return res, err
}

// Stream is a [grpc.StreamServerInterceptor]. It decides when a stream opens, and does
// not count its messages: [ServerInterceptor.Messages] does. A lease is held until the
// stream ends. See the package documentation for its errors.
func (s *ServerInterceptor) Stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	c := call{s: s, ctx: ss.Context(), method: info.FullMethod}
	err := c.enter(func(md metadata.MD) error {
		ss.SetTrailer(md)
		return nil
	})
	switch {
	case err != nil:
		return err
	case c.req.ID == "":
		return handler(srv, ss)
	}
	c.run(func(ctx context.Context) { err = handler(srv, stream{ss, ctx}) })
	return err
}

// A stream is a ServerStream with another context.
type stream struct {
	grpc.ServerStream

	ctx context.Context
}

func (s stream) Context() context.Context { return s.ctx }

// A call is a unary call, a stream, or a message of a stream.
type call struct {
	s       *ServerInterceptor
	ctx     context.Context
	method  string
	message bool
	req     gate.Request

	third   time.Duration // of the lease time; 0 means that no lease is renewed
	renewed time.Time     // when the last renewal, or the decision, began
}

// enter decides whether the handler is called. If it is, the error is nil. Otherwise the
// error is a status.
func (c *call) enter(setTrailer func(metadata.MD) error) error {
	switch err := c.ask(); {
	case errors.Is(err, ErrUnlimited):
		c.req.ID = ""
		return nil
	case err != nil:
		code := codeOf(c.ctx, err)
		if code == codes.Unavailable { // of something else than the limiter's store
			code = codes.Internal
		}
		return c.fail(code, err)
	}
	s := gate.NewScratch()
	defer s.Free()
	start := time.Now()
	res, err := c.req.Decide(c.ctx, c.s.opts.Timeout, s)
	err = source.Explain(c.req.Decider, &c.req.Request, err)
	each, code := s.Rules(&res), codeOf(c.ctx, err)
	switch {
	case code == codes.Unavailable && c.s.opts.FailOpen:
		c.report(err)
		return nil
	case err != nil:
		c.req.GiveUp(c.ctx, &res, err, code == codes.Canceled || code == codes.DeadlineExceeded, c.report)
		return c.fail(code, err)
	case c.message && c.req.Leased:
		return c.fail(codes.Internal, errors.Join(errLeased, c.req.Undo(c.ctx)))
	case !res.Allowed:
		c.req.GiveUp(c.ctx, &res, nil, false, c.report)
		return c.deny(&res, each, setTrailer)
	}
	if err := guard.Sleep(c.ctx, res.Delay); err != nil {
		c.req.GiveUp(c.ctx, &res, err, true, c.report)
		return newStatus(codeOf(c.ctx, err)).Err()
	}
	if c.req.Leased {
		c.third, c.renewed = c.thirdOf(each), start
	}
	return nil
}

// run calls handle, the handler of a call with an ID, and ends its decision.
func (c *call) run(handle func(context.Context)) {
	c.req.Run(c.ctx, "weirgrpc", c.s.opts.RefundPanics, http.ErrAbortHandler, c.report, func(ctx context.Context) {
		if c.third > 0 {
			renewal, stop := context.WithCancel(context.WithoutCancel(ctx))
			defer stop() // even after a panic
			go c.renew(renewal)
		}
		handle(ctx)
	})
}

// ask sets the request to decide.
func (c *call) ask() (err error) {
	if c.s == nil || c.s.request == nil {
		c.s = new(ServerInterceptor) // so that the error can be reported
		return errors.New("weirgrpc: the ServerInterceptor is nil or a zero value: make one with NewServerInterceptor")
	}
	var plan weir.Decider
	c.req.Request, err = c.s.request(c.ctx, c.method)
	if err == nil && c.s.opts.Plan != nil {
		plan, err = c.s.opts.Plan(c.ctx, c.method)
	}
	if err != nil {
		return err
	}
	if c.message {
		c.req.ID = "" // other messages can have the same one, and would be free
	}
	return c.req.Prepare(c.ctx, "weirgrpc", &c.s.rules, plan)
}

// fail reports an error, and returns the status of the call.
func (c *call) fail(code codes.Code, err error) error {
	if code != codes.Canceled {
		c.report(err)
	}
	return newStatus(code).Err()
}

// report reports an error to the program, never to the client.
func (c *call) report(err error) {
	switch {
	case c.s.opts.OnError != nil:
		c.s.opts.OnError(c.ctx, c.method, err)
	case errors.Is(err, ErrNoKey):
		slog.DebugContext(c.ctx, "weirgrpc rejects a call", "method", c.method, "error", err)
	default:
		slog.ErrorContext(c.ctx, "weirgrpc cannot limit a call", "method", c.method, "error", err)
	}
}
