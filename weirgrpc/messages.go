package weirgrpc

import (
	"errors"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

var _ grpc.StreamServerInterceptor = (*ServerInterceptor)(nil).Messages

// Messages is a [grpc.StreamServerInterceptor] that limits the messages that clients send
// on streams. It does not limit the streams themselves, so put it after Stream, usually
// that of another ServerInterceptor:
//
//	grpc.ChainStreamInterceptor(streams.Stream, messages.Messages)
//
// A message is limited as a unary call is: the RequestFunc makes its request, and all
// streams with the same key share a limit. With a MaxWait, RecvMsg waits, and so do the
// later messages of the stream. The message that opens a server stream counts too.
// Messages that the server sends do not count.
//
// If a message is denied, or cannot be limited, RecvMsg returns the status that a unary
// call would get, and the handler must not use the message. RecvMsg then receives nothing
// more, and the stream ends with that status, whatever the handler returns. The trailer
// is -1, because a retry would repeat messages that the handler has seen.
//
// The ID of a request is ignored: if all messages of a stream had the same one, only the
// first would consume anything. A message cannot hold a lease. If a rule holds leases,
// the stream ends with INTERNAL. Stream holds a lease until the stream ends.
//
// Each message takes a round trip, unless package prefetch wraps the limiter.
func (s *ServerInterceptor) Messages(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	m := &messages{ServerStream: ss, s: s, method: info.FullMethod}
	err := handler(srv, m)
	if end := m.end.Load(); end != nil {
		return *end
	}
	return err
}

// messages is a ServerStream whose received messages are limited.
type messages struct {
	grpc.ServerStream

	s      *ServerInterceptor
	method string
	end    atomic.Pointer[error] // the status of the stream; the handler can return during a RecvMsg of another goroutine
}

var errLeased = errors.New("weirgrpc: Messages: a rule holds leases, which no message ends: use this limiter with Stream, and one without the rule with Messages")

// RecvMsg implements [grpc.ServerStream].
func (m *messages) RecvMsg(msg any) error {
	if end := m.end.Load(); end != nil {
		return *end
	}
	if err := m.ServerStream.RecvMsg(msg); err != nil {
		return err
	}
	c := call{s: m.s, ctx: m.Context(), method: m.method, message: true}
	err := c.enter(func(metadata.MD) error { return nil })
	if err == nil {
		return nil
	}
	m.SetTrailer(metadata.Pairs(pushback, "-1"))
	m.end.Store(&err)
	return err
}
