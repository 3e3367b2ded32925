// Package weirgrpc limits the calls that a gRPC server gets or a gRPC client makes.
//
//	lim, err := weir.New("api", memory.New(nil), algorithm.TokenBucket{Capacity: 20, Refill: algorithm.PerSecond(10)}, nil)
//	if err != nil {
//		return err
//	}
//	limit, err := weirgrpc.NewServerInterceptor(lim, weirgrpc.By(weirgrpc.PeerIP), nil)
//	if err != nil {
//		return err
//	}
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(limit.Unary),
//		grpc.ChainStreamInterceptor(limit.Stream),
//	)
//
// [ServerInterceptor] has an interceptor for unary calls and one for streams. Add both.
// For each call, they make a [weir.Request], decide, and call the handler or answer the
// call themselves. [ClientInterceptor] is the counterpart for clients: it waits for its
// turn before it sends a call.
//
// A stream is limited when it opens, and [ServerInterceptor.Messages] limits the messages
// that clients send on it.
//
// # Keys
//
// A [RequestFunc] says by what a call is limited. [By] and [ByName] make one from
// segments: [PeerIP], [Metadata], [BearerToken], [Method], [Text], [FirstOf], or a
// function of your own. If a call has no value for a segment, for example no API key, the
// error is [ErrNoKey], and the interceptor rejects the call. If a rule counts a unit,
// [WithCosts] adds the amounts.
//
// Choose what the client cannot choose. A client that can send any API key gets a fresh
// limit with each new one, so authenticate the key in an interceptor before this one.
// Behind a proxy, PeerIP is the address of the proxy.
//
// # Answers
//
// The server's interceptors end a call that they do not pass on with one of these codes:
//
//   - RESOURCE_EXHAUSTED if the call is denied.
//   - INVALID_ARGUMENT if the call has no key: [ErrNoKey].
//   - UNAVAILABLE if the decision is unknown: the error is a [store.ErrUnavailable], or
//     the deadline of [Options].Timeout has passed. With [Options].FailOpen, the call is
//     passed on instead.
//   - UNAVAILABLE if an outage.Breaker that fails closed denied the call, or
//     RESOURCE_EXHAUSTED if the fallback is outage.Local and the caller is over the share
//     of the process. RetryInfo is at most the time until the store is asked again.
//   - CANCELED or DEADLINE_EXCEEDED if the caller cancels the call, or its deadline
//     passes, before the handler starts.
//   - INTERNAL after any other error, for example of a limiter whose policy has other
//     segments, or a rule that counts a unit that the request does not name.
//
// A status never contains a key or the text of an error. The status of a denied call has
// these details:
//
//   - google.rpc.RetryInfo: the time until the same call would be allowed, or
//     [Options].LeaseRetryAfter if only leases are missing.
//   - google.rpc.QuotaFailure: a violation for each rule that denies the call. Its
//     quota_id is the name of the rule, its quota_value is the limit, and its
//     quota_metric is "tokens" or, for an algorithm.Concurrency, "leases". Its subject is
//     empty, because a key can be secret.
//
// A denied call also has the trailer grpc-retry-pushback-ms of gRFC A6: the same time in
// milliseconds, rounded up. A client with a retryPolicy for RESOURCE_EXHAUSTED then
// retries after that time. A client without a retryPolicy ignores the trailer.
//
// The trailer is -1 if a retry makes no sense, so that the client gets the answer at
// once:
//
//   - if the call can never be allowed. There is no RetryInfo then.
//   - if the time ends after the deadline of the call.
//   - if the time is above 2147483647 ms, about 24 days: the trailer has 32 bits.
//
// If a wrapper denies a call and says no time, there is neither a RetryInfo nor a
// trailer.
//
// gRPC retries no call whose header has been sent. So if another interceptor sets a
// header before this one denies the call, the client does not retry.
//
// # Costs and leases
//
// If the cost is known only after the work, the RequestFunc sets an estimate and an ID, and
// the handler calls [Settle] or [Refund]. When the handler has returned, or panicked, the
// interceptor ends the decision in one call of the store, even if the caller has gone.
//
// If a rule is an algorithm.Concurrency, the lease is held until then, so for a stream until
// the stream ends. Until then, it is renewed whenever a third of the shortest lease time
// of the rules has passed. If it is lost nevertheless, for example during an outage,
// Options.OnError gets a [weir.ErrLeaseLost], and the handler goes on.
//
// If a Decider of your own stands between the interceptor and the limiter, give it a
// method Unwrap() weir.Decider that returns the limiter. Otherwise the interceptor takes
// the lease time from ResetAfter, and renews a lease too late if another lease of its key
// lasts longer.
//
// If the RequestFunc or the Decider panics, the handler is not called. gRPC does not
// recover from panics: if you need that, add an interceptor that does, before this one.
package weirgrpc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/gate"
)

var (
	// ErrUnlimited is returned by a [RequestFunc] or an [Options].Plan for a call that is
	// not limited. The interceptor then passes the call on without a decision.
	ErrUnlimited = errors.New("weirgrpc: the call is not limited")

	// ErrNoKey means that a call has no value for a segment of the key, for example no
	// API key or no valid address. The interceptor rejects such a call with
	// INVALID_ARGUMENT, and likewise a call whose key has an empty segment.
	ErrNoKey = errors.New("weirgrpc: the call has no key")
)

// A RequestFunc makes the request to a limiter from a call: its key, and if needed its
// cost or Costs, its ID, its MaxWait and its metadata. The Op must be [weir.Consume]. The
// method is the full name, for example "/grpc.health.v1.Health/Check". ctx is the context
// of the call: on a server, it holds the peer and the incoming metadata.
//
// Set a new ID for each call. Two calls with the same ID share their tokens and their
// lease, and the first handler that returns ends the lease of both.
//
// If it returns [ErrUnlimited], or an error that wraps it, the call is not limited. After
// any other error, the call is rejected: see the package documentation.
type RequestFunc func(ctx context.Context, method string) (weir.Request, error)

// Options are the optional settings of [NewServerInterceptor]. The zero value is the
// default.
type Options struct {
	// Plan returns the decider for a call, for example the limiter of a customer's plan.
	// All deciders must have the same segments. If Plan returns nil, the decider given to
	// NewServerInterceptor decides. A nil *weir.Limiter is a mistake, and rejects the
	// call with INTERNAL. ErrUnlimited means that the call is not limited. Other errors
	// reject it, like those of a RequestFunc.
	Plan func(ctx context.Context, method string) (weir.Decider, error)

	// Timeout is the longest time of a decision. 0 means that only the call's context
	// ends it. Set it below the deadlines of your callers. Otherwise each call waits for
	// a store that does not answer until its caller gives up, so FailOpen has no effect,
	// and OnError does not always learn of the outage.
	Timeout time.Duration

	// LeaseRetryAfter is the time, at most 1 h, in RetryInfo and the trailer of a call
	// that is denied only because all leases of an algorithm.Concurrency are held. One
	// can be released at any time, so the time until one expires is sent only if it is
	// shorter. 0 means 100 ms, so that most deadlines leave time for a retry.
	LeaseRetryAfter time.Duration

	// FailOpen passes calls on if the store is not available, or does not answer within
	// Timeout. Otherwise such a call ends with UNAVAILABLE. After other errors, calls are
	// never passed on. The store may have made the decision of a call that is passed on, so
	// the lease is released and the cost is settled after the handler, as for any other
	// call. Such a lease is not renewed.
	FailOpen bool

	// RefundPanics refunds a call whose handler panics before it has called [Settle] or
	// [Refund]. Otherwise the call costs what it consumed.
	RefundPanics bool

	// HideRules leaves the QuotaFailure out of the status of a denied call. Choose it for
	// a log-in method: the limits help an attacker.
	HideRules bool

	// OnError is called with each error, even if the call is passed on, and if a [Settle] or
	// a [Refund] had no full effect. A denied call and a call that its caller cancels are
	// not errors. If the caller's deadline passes
	// during a decision, that is an error, because the store can be slow. But a client
	// that gives up at its deadline can look like one that cancels.
	//
	// If OnError is nil, errors are logged by the default logger of log/slog, an ErrNoKey
	// at level Debug. OnError is called by several goroutines at once.
	OnError func(ctx context.Context, method string, err error)
}

// A ServerInterceptor limits the calls to a server. Make one with [NewServerInterceptor].
// It is safe for concurrent use. A zero ServerInterceptor rejects every call with
// INTERNAL.
type ServerInterceptor struct {
	rules   gate.Rules
	request RequestFunc
	opts    Options
}

// NewServerInterceptor returns interceptors that limit calls by d. nil opts means the
// defaults.
//
// A request with a MaxWait can be allowed after a delay, for which the interceptor waits.
// It does not wait for the end of a pause: with a MaxWait of 5 s, a call whose key is
// paused for 2 s more is denied at once, with a RetryInfo of 2 s.
//
// MaxWait is cut to the time until the caller's deadline. If the caller ends the call in
// the meantime, the tokens are refunded, unless the RequestFunc sets an ID, which another
// call can use.
//
// If the RequestFunc sets no ID, the interceptor makes one for a lease or a MaxWait. Only
// such a decision is undone, as [weir.Limiter.TryAcquire] says, if its reply was lost and
// the call is not passed on. Another call can use an ID of the RequestFunc.
//
// The error says what is wrong if d or request is nil, if d is a zero Limiter, or if a
// field of opts is not valid.
func NewServerInterceptor(d weir.Decider, request RequestFunc, opts *Options) (*ServerInterceptor, error) {
	s := &ServerInterceptor{rules: gate.RulesOf(d), request: request}
	if opts != nil {
		s.opts = *opts
	}
	if err := check("NewServerInterceptor", d, request, s.opts.Timeout, s.opts.LeaseRetryAfter); err != nil {
		return nil, err
	}
	return s, nil
}

// check checks the arguments of a constructor.
func check(name string, d weir.Decider, request RequestFunc, timeout, hint time.Duration) error {
	err := gate.Check("weirgrpc: "+name, d, timeout, hint)
	if err == nil && request == nil {
		return fmt.Errorf("weirgrpc: %s: the RequestFunc is nil: pass one, for example weirgrpc.By(weirgrpc.Method); By returns nil if it has no segment, more than %d, or a segment that is nil, and WithCosts if a function given to it is nil", name, weir.MaxSegments)
	}
	return err
}
