package weirgrpc

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
)

// A ClientInterceptor waits for its turn before it sends a call, so that a client keeps
// to the limit of a server. Make one with [NewClientInterceptor]. It is safe for
// concurrent use. A zero ClientInterceptor fails every call.
//
//	pace, err := weirgrpc.NewClientInterceptor(lim, weirgrpc.By(weirgrpc.Text("billing")))
//	if err != nil {
//		return err
//	}
//	conn, err := grpc.NewClient(target,
//		grpc.WithChainUnaryInterceptor(pace.Unary),
//		grpc.WithChainStreamInterceptor(pace.Stream),
//	)
//
// It waits until the limiter allows the call, as [weir.Limiter.WaitFor] does: at most until
// the deadline of the call's context, and at most Request.MaxWait. If the turn would come
// later, the call fails at once, and consumes nothing. If the context ends during the wait,
// the turn is refunded.
//
// Only the fields Key, Cost, Costs, MaxWait and ID of the request are used. A MaxWait of
// 0 means that only the context ends the wait. If the request has an ID, the turn is not
// refunded, because another call with this ID can use it.
//
// A call that is not sent has one of these codes:
//
//   - RESOURCE_EXHAUSTED if the limiter denies it. The status has a google.rpc.RetryInfo.
//   - CANCELED or DEADLINE_EXCEEDED if the context ends.
//   - UNAVAILABLE during an outage of the store. With package outage, a limiter decides
//     without the store.
//   - INVALID_ARGUMENT if the call has no key: [ErrNoKey].
//   - INTERNAL after any other error.
//
// Such an error also wraps its cause. So errors.Is(err, [weir.ErrDenied]) reports that
// this client's own limiter denied the call, and not the server. The text of the status
// does not contain the text of the cause.
//
// Each call needs one turn, and a stream needs one when it opens. A call that gRPC
// retries by a retryPolicy does not need another turn.
type ClientInterceptor struct {
	limiter *weir.Limiter
	request RequestFunc
}

// NewClientInterceptor returns interceptors that pace the calls of a client by lim. The
// algorithms of its rules must support MaxWait, for example algorithm.LeakyBucket.
// Otherwise each call fails with a [weir.ErrUnsupported].
//
// The error says what is wrong if lim is nil or a zero Limiter, or if request is nil.
func NewClientInterceptor(lim *weir.Limiter, request RequestFunc) (*ClientInterceptor, error) {
	if err := check("NewClientInterceptor", lim, request, 0, 0); err != nil {
		return nil, err
	}
	return &ClientInterceptor{limiter: lim, request: request}, nil
}

var (
	_ grpc.UnaryClientInterceptor  = (*ClientInterceptor)(nil).Unary
	_ grpc.StreamClientInterceptor = (*ClientInterceptor)(nil).Stream
)

// Unary is a [grpc.UnaryClientInterceptor].
func (c *ClientInterceptor) Unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if err := c.turn(ctx, method); err != nil {
		return notSent(ctx, method, err)
	}
	return invoker(ctx, method, req, reply, cc, opts...)
}

// Stream is a [grpc.StreamClientInterceptor].
func (c *ClientInterceptor) Stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if err := c.turn(ctx, method); err != nil {
		return nil, notSent(ctx, method, err)
	}
	return streamer(ctx, desc, cc, method, opts...)
}

// turn waits until the call can be sent.
func (c *ClientInterceptor) turn(ctx context.Context, method string) error {
	if c == nil || c.request == nil {
		return errors.New("weirgrpc: the ClientInterceptor is nil or a zero value: make one with NewClientInterceptor")
	}
	req, err := c.request(ctx, method)
	switch {
	case errors.Is(err, ErrUnlimited):
		return nil
	case err != nil:
		return err
	}
	req.Metadata = ""
	if req.MaxWait == 0 {
		req.MaxWait = weir.Never
	}
	_, err = c.limiter.WaitFor(ctx, req)
	return source.Explain(c.limiter, &req, err)
}

// An unsent is the error of a call that was not sent. It is a status, and wraps the
// cause.
type unsent struct {
	status *status.Status
	method string
	cause  error
}

func notSent(ctx context.Context, method string, cause error) error {
	code := codeOf(ctx, cause)
	var denied *weir.DeniedError
	if errors.As(cause, &denied) {
		code = deniedCode(&denied.Result)
	}
	st := newStatus(code)
	if denied != nil {
		if with, err := st.WithDetails(retryInfo(denied.Result.RetryAfter)...); err == nil {
			st = with
		}
	}
	return &unsent{st, method, cause}
}

// Error returns a text for this program. It can contain a key.
func (e *unsent) Error() string {
	return fmt.Sprintf("weirgrpc: the call of %s was not sent: %v: %v", e.method, e.status.Code(), e.cause)
}

// GRPCStatus is for the package status.
func (e *unsent) GRPCStatus() *status.Status { return e.status }

func (e *unsent) Unwrap() error { return e.cause }

var _ interface{ GRPCStatus() *status.Status } = (*unsent)(nil)
