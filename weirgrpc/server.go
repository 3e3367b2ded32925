package weirgrpc

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/guard"
	"github.com/weir-go/weir/internal/sleep"
	"github.com/weir-go/weir/internal/undo"
)

var (
	_ grpc.UnaryServerInterceptor  = (*ServerInterceptor)(nil).Unary
	_ grpc.StreamServerInterceptor = (*ServerInterceptor)(nil).Stream
)

// Unary is a [grpc.UnaryServerInterceptor]. See the package documentation for its errors.
func (s *ServerInterceptor) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	c := call{s: s, ctx: ctx, method: info.FullMethod}
	held, err := c.enter(func(md metadata.MD) error { return grpc.SetTrailer(ctx, md) })
	if err != nil {
		return nil, err
	}
	defer held.release() // also after a panic
	return handler(ctx, req)
}

// Stream is a [grpc.StreamServerInterceptor]. It decides when a stream opens, and does not
// count its messages. A lease is held until the stream ends. See the package documentation
// for its errors.
func (s *ServerInterceptor) Stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	c := call{s: s, ctx: ss.Context(), method: info.FullMethod}
	held, err := c.enter(func(md metadata.MD) error {
		ss.SetTrailer(md)
		return nil
	})
	if err != nil {
		return err
	}
	defer held.release() // also after a panic
	return handler(srv, ss)
}

// A call is a unary call or a stream.
type call struct {
	s       *ServerInterceptor
	ctx     context.Context
	method  string
	decider weir.Decider
	req     weir.Request
	own     bool // nobody else can use the ID of req
}

// holds reports whether c can hold a lease or reserved tokens. Tokens with an ID of the
// RequestFunc can be those of another call, which uses them.
func (c *call) holds() bool { return c.req.ID != "" && (c.own || c.req.MaxWait == 0) }

// A scratch holds the results of the rules of one decision. It is reused.
type scratch [weir.MaxRules]weir.Result

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func (s *scratch) free() {
	clear(s[:])
	scratches.Put(s)
}

// rules returns the results of the rules. A wrapper that answers by itself may leave them
// empty: the only result is then res.
func (s *scratch) rules(res *weir.Result) []weir.Result {
	n := 0
	for n < len(s) && s[n].Rule != "" {
		n++
	}
	if n == 0 && res.Rule != "" {
		s[0], n = *res, 1
	}
	return s[:n]
}

// enter decides whether the handler is called. If it is, the error is nil, and the lease
// must be released when the handler has returned. Otherwise the error is a status.
func (c *call) enter(setTrailer func(metadata.MD) error) (*lease, error) {
	switch err := c.ask(); {
	case errors.Is(err, ErrUnlimited):
		return nil, nil
	case err != nil:
		code := codeOf(c.ctx, err)
		if code == codes.Unavailable { // of something else than the limiter's store
			code = codes.Internal
		}
		return nil, c.fail(code, err)
	}
	s := scratches.Get().(*scratch)
	defer s.free()
	start := time.Now()
	res, err := c.decide(s[:])
	switch {
	case err != nil:
		return nil, c.undecided(err)
	case !res.Allowed:
		each := s.rules(&res)
		if res.Degraded != nil && c.holds() && (c.own || leased(each)) { // only the reply may be lost
			go undo.Request(c.ctx, c.decider, c.req)
		}
		return nil, c.deny(&res, each, setTrailer)
	}
	if err := sleep.For(c.ctx, res.Delay); err != nil {
		if c.holds() {
			c.undo()
		}
		return nil, newStatus(codeOf(c.ctx, err)).Err()
	}
	return c.hold(start, s.rules(&res)), nil
}

// ask sets who decides, and the request to decide.
func (c *call) ask() (err error) {
	if c.s == nil || c.s.request == nil {
		c.s = new(ServerInterceptor) // so that the error can be reported
		return errors.New("weirgrpc: the ServerInterceptor is nil or a zero value: make one with NewServerInterceptor")
	}
	if c.req, err = c.s.request(c.ctx, c.method); err != nil {
		return err
	}
	if c.req.Op != weir.Consume {
		return fmt.Errorf("weirgrpc: Request.Op is %v: it must be Consume", c.req.Op)
	}
	if c.req.MaxWait > 0 {
		if deadline, ok := c.ctx.Deadline(); ok {
			// Not 0, which has another meaning.
			c.req.MaxWait = max(min(c.req.MaxWait, time.Until(deadline)), time.Microsecond)
		}
		if c.own = c.req.ID == ""; c.own {
			c.req.ID = rand.Text() // for the refund
		}
	}
	c.decider = c.s.decider
	if c.s.opts.Plan != nil {
		d, err := c.s.opts.Plan(c.ctx, c.method)
		if err != nil {
			return err
		}
		if d != nil {
			c.decider = d
		}
	}
	return nil
}

func (c *call) decide(each []weir.Result) (weir.Result, error) {
	ctx := c.ctx
	if c.s.opts.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.s.opts.Timeout)
		defer cancel()
	}
	return c.decider.Decide(ctx, c.req, each)
}

// undecided returns the status of a call after an error of the Decider, or nil if the call is
// passed on.
func (c *call) undecided(err error) error {
	err = emptyKey(&c.req, err)
	if errors.Is(err, weir.ErrInvalidLease) && c.req.ID == "" {
		err = fmt.Errorf("weirgrpc: the request has no ID: use Leased: %w", err)
	}
	code := codeOf(c.ctx, err)
	switch {
	case !c.holds():
	case code == codes.Canceled, code == codes.DeadlineExceeded:
		c.undo() // the tokens may be reserved, or the lease held
	case guard.Contextual(err): // the same, but the caller is still there
		late := *c
		go late.undo()
	}
	if code == codes.Unavailable && c.s.opts.FailOpen {
		c.report(err)
		return nil
	}
	return c.fail(code, err)
}

// emptyKey returns err, as an ErrNoKey too if the key has an empty segment.
func emptyKey(req *weir.Request, err error) error {
	if errors.Is(err, weir.ErrInvalidKey) && slices.Contains(req.Key.Segments(), "") {
		return fmt.Errorf("%w: %w", ErrNoKey, err)
	}
	return err
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

// undo undoes the decision, and reports an error.
func (c *call) undo() {
	if err := undo.Request(c.ctx, c.decider, c.req); err != nil {
		c.report(err)
	}
}
