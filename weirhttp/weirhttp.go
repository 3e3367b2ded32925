// Package weirhttp limits the requests to an HTTP server, and those of an HTTP client.
//
//	lim, err := weir.New("api", memory.New(nil), algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 20}, nil)
//	if err != nil {
//		return err
//	}
//	limit, err := weirhttp.New(lim, weirhttp.By(weirhttp.RemoteIP), nil)
//	if err != nil {
//		return err
//	}
//	return http.ListenAndServe(":8080", limit(handler))
//
// [New] returns a middleware. For each request, it makes a [weir.Request], decides, and
// calls the handler or answers the request itself. [Transport] is the counterpart for
// clients: it waits for its turn before it sends a request.
//
// # Keys
//
// A [RequestFunc] makes the key of a request. The key identifies the caller being limited.
// [By] and [ByName] make a RequestFunc from segments. A segment is [RemoteIP], [ClientIP],
// [Header], [BearerToken], [Pattern], [Text], [FirstOf], or a function of your own, for
// example one that reads the customer from the context of the request. If a request has no
// value for a segment, for example no API key, the error is [ErrNoKey], and the middleware
// rejects the request.
//
// Use a key that the client cannot choose. A client that can send any API key gets a full
// limit with each new key. So authenticate the API key first. Behind a proxy, RemoteIP is
// the address of the proxy: use ClientIP.
//
// # Answers
//
// The middleware answers a request that it does not pass on:
//
//   - 429 if the request is denied. Retry-After is the time until the same request would be
//     allowed, in seconds, rounded up. If it can never be allowed, there is no Retry-After.
//   - 400 if the request has no key: [ErrNoKey].
//   - 503 if the decision is unknown: the error is a [store.ErrUnavailable], or the deadline
//     of [Options].Timeout or of the request has passed. With [Options].FailOpen, the
//     request is passed on instead.
//   - 503 if an outage.Breaker that fails closed denied the request. If its fallback is
//     outage.Local, and the caller is over the share of the process, the status is 429,
//     and so it is if the cost is above the limit. In both cases, Retry-After is at most
//     the time until the store is asked again, rounded up. [Options].FailOpen does not
//     change this answer.
//   - 500 after any other error, for example if the policy of the limiter has other
//     segments than the key.
//   - 499 if the client has cancelled the request. The client does not read this answer.
//     But a log shows that the request was neither served nor an error of the server.
//
// The body is a problem of RFC 9457, of type application/problem+json. It never contains
// the text of an error. Options.Reject replaces the body.
//
// If the RequestFunc or the Decider panics, the handler is not called. The panic goes on to
// net/http, which logs it and closes the connection.
package weirhttp

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/gate"
)

var (
	// ErrUnlimited is returned by a [RequestFunc] or an [Options].Plan for a request that
	// is not limited. The middleware then calls the handler without a decision.
	ErrUnlimited = errors.New("weirhttp: the request is not limited")

	// ErrNoKey means that a request has no value for a segment of the key, for example no
	// API key or no valid address. The middleware rejects such a request with status 400, and
	// likewise a request whose key has an empty segment.
	ErrNoKey = errors.New("weirhttp: the request has no key")
)

// A RequestFunc makes the request to a limiter from an HTTP request: its key, and if needed
// its cost, its ID, its MaxWait and its metadata. The Op must be [weir.Consume].
//
// If it returns [ErrUnlimited], or an error that wraps it, the HTTP request is not limited.
// After any other error, the HTTP request is rejected: see the package documentation.
type RequestFunc func(*http.Request) (weir.Request, error)

// A Dialect says which header fields describe the limits to the client.
type Dialect uint8

const (
	// NoHeaders sets no field. The body of a denied request then does not name the rules
	// either. Choose it for a log-in route: the number of remaining attempts helps an
	// attacker. Retry-After is set with every dialect.
	NoHeaders Dialect = iota

	// RateLimitDraft11 sets the fields RateLimit-Policy and RateLimit of
	// draft-ietf-httpapi-ratelimit-headers-11, with one item for each rule:
	//
	//	RateLimit-Policy: "burst";q=20;w=2, "day";q=1000;w=86400
	//	RateLimit: "burst";r=19;t=1, "day";r=999;t=86400
	//
	// The parameter q is the limit, w the window, and r the remaining tokens. t is the
	// time until the rule is fully reset. If the rule denied the request, t is the time
	// until the same request would be allowed. Times are in seconds, rounded up. A
	// concurrency limit has the parameter qu="concurrent-requests", and no times.
	//
	// If the response has such fields already, for example because another middleware has
	// set them, the items are added. In the name of a rule, % and every byte that is not a
	// printable ASCII character are replaced by % and two hexadecimal digits. The number
	// 11 is the version of the draft. If a later version differs, it gets another dialect.
	RateLimitDraft11

	// XRateLimit sets the fields X-RateLimit-Limit, X-RateLimit-Remaining and
	// X-RateLimit-Reset. They describe one rule, which [weir.Result].Rule names. Reset is the
	// time until the rule is fully reset, in seconds from now, rounded up. It is not a
	// Unix time. If the response has such fields already, they are replaced.
	XRateLimit
)

// Options are the optional settings of [New]. The zero value is the default.
type Options struct {
	// Plan returns the decider for a request, for example the limiter of a customer's
	// plan. If it returns a nil Decider, the decider given to New decides. If it returns
	// ErrUnlimited, the request is not limited. Other errors reject the request, like
	// those of a RequestFunc. All deciders must have the same segments. If Plan returns a
	// *weir.Limiter that is nil, the Decider is not nil, and the request is rejected with
	// status 500.
	Plan func(*http.Request) (weir.Decider, error)

	// Headers is the dialect of the fields that describe the limits. They are set before
	// the handler is called, so the handler can replace them.
	Headers Dialect

	// PartitionKey returns the parameter pk of the RateLimit fields: it tells clients
	// which of their requests share a limit. Clients see it, so it must not be a secret,
	// for example an API key or a hash of one. If PartitionKey is nil, or returns nothing,
	// there is no pk. The dialect must be RateLimitDraft11.
	PartitionKey func(*http.Request) []byte

	// Timeout is the longest time of a decision. 0 means that only the request's context
	// ends the decision. Set Timeout if FailOpen is true. Otherwise, if the store does not
	// answer, each request waits for it. If a decision takes longer, the middleware releases
	// its lease, or refunds its tokens as New says. It does so in the background.
	Timeout time.Duration

	// If FailOpen is true, a request is passed on if the store is not available, or does
	// not answer in time. If FailOpen is false, such a request is answered with status
	// 503. After any other error, a request is never passed on.
	FailOpen bool

	// Reject writes the answer to a request that is not passed on. Retry-After and the
	// fields of the dialect are set before. If Reject does not set a status, the status is
	// Rejection.Status. If Reject is nil, the answer is as in the package documentation.
	// Reject is not called if the client has cancelled the request.
	Reject func(w http.ResponseWriter, r *http.Request, why Rejection)

	// OnError is called with each error, even if FailOpen passes the request on. A denied
	// request and a cancelled request are not errors. If OnError is nil, errors are logged
	// by the default logger of log/slog, an ErrNoKey at level Debug.
	OnError func(r *http.Request, err error)
}

// New returns a middleware that asks d to decide each request. It works with every router
// that takes middlewares of net/http, for example with chi's Use. If opts is nil, the
// defaults are used.
//
// A request with a MaxWait can be allowed after a delay: the middleware then waits before
// it calls the handler. MaxWait is cut to the time until the deadline of the request's
// context, if it has one. If the client cancels the request in the meantime, the tokens are
// refunded. But if the RequestFunc sets an ID, they are not, because another request with this
// ID can use them.
//
// If a rule is an algorithm.Concurrency, the request needs an ID that no other request has,
// not even a repeated request. The middleware releases the lease when the handler returns. It
// does not renew the lease, so the lease must be longer than the handler takes. The response
// ends after the release, which takes a round trip, and at most one second if the store does
// not answer.
//
// If a request goes through two middlewares, both consume tokens, even if they are the same
// middleware.
//
// New returns an error if d or request is nil, if d is a zero Limiter, or if a field of opts
// is not valid.
func New(d weir.Decider, request RequestFunc, opts *Options) (func(http.Handler) http.Handler, error) {
	m := &middleware{decider: d, request: request}
	if opts != nil {
		m.opts = *opts
	}
	if err := gate.Check("weirhttp: New", d, m.opts.Timeout); err != nil {
		return nil, err
	}
	switch {
	case request == nil:
		return nil, errors.New("weirhttp: New: the RequestFunc is nil: pass one, for example weirhttp.By(weirhttp.RemoteIP)")
	case m.opts.Headers > XRateLimit:
		return nil, fmt.Errorf("weirhttp: New: Options.Headers is %d: it must be NoHeaders, RateLimitDraft11 or XRateLimit", m.opts.Headers)
	case m.opts.PartitionKey != nil && m.opts.Headers != RateLimitDraft11:
		return nil, errors.New("weirhttp: New: Options.PartitionKey is set: Options.Headers must be RateLimitDraft11, because the other dialects have no partition key")
	}
	return m.wrap, nil
}
