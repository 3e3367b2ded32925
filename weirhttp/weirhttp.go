// Package weirhttp limits the requests that an HTTP server gets or an HTTP client makes.
//
//	lim, err := weir.New("api", memory.New(nil), algorithm.TokenBucket{Capacity: 20, Refill: algorithm.PerSecond(10)}, nil)
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
// A [RequestFunc] makes the key of a request. The key identifies the caller being
// limited. [By] and [ByName] make a RequestFunc from segments. A segment is [RemoteIP],
// [ClientIP], [Header], [BearerToken], [Pattern], [Text], [FirstOf], or a function of
// your own, for example one that reads the customer from the context of the request. If a
// request has no value for a segment, for example no API key, the error is [ErrNoKey],
// and the middleware rejects the request. If a rule counts a unit, [WithCosts] adds the
// amounts.
//
// Use a key that the client cannot choose. A client that can send any API key gets a full
// limit with each new key. So authenticate the API key first. Behind a proxy, RemoteIP is
// the address of the proxy: use ClientIP.
//
// # Costs and leases
//
// If the cost is known only after the work, the RequestFunc sets an estimate and an ID, and
// the handler calls [Settle] or [Refund]. If a rule is an algorithm.Concurrency, the request
// holds a lease until its handler returns. When it has returned, or panicked, the middleware
// ends the decision in one call of the store, even if the client has gone.
//
// # Answers
//
// The middleware answers a request that it does not pass on:
//
//   - 429 if the request is denied. Retry-After is the time until the same request would
//     be allowed, in seconds, rounded up. If it can never be allowed, there is no
//     Retry-After. If only leases are missing, it is [Options].LeaseRetryAfter.
//   - 400 if the request has no key: [ErrNoKey].
//   - 503 if the decision is unknown: the error is a [store.ErrUnavailable], or the
//     deadline of [Options].Timeout or of the request has passed. With
//     [Options].FailOpen, the request is passed on instead.
//   - 503 if an outage.Breaker that fails closed denied the request, whatever
//     [Options].FailOpen is. If the fallback is outage.Local and the caller is over the
//     share of the process, or if the cost is above the limit, the status is 429.
//     Retry-After is at most the time until the store is asked again, rounded up.
//   - 500 after any other error, for example if the policy of the limiter has other
//     segments than the key, or a rule counts a unit that the request does not name.
//   - 499 if the client has cancelled the request. The client does not read this answer,
//     but a log shows that the request was neither served nor an error of the server.
//
// The body is a problem of RFC 9457, of type application/problem+json. It never contains
// the text of an error. Options.Reject replaces the body.
//
// If the RequestFunc or the Decider panics, the handler is not called. The panic goes on
// to net/http, which logs it and closes the connection.
package weirhttp

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/gate"
)

var (
	// ErrUnlimited is returned by a [RequestFunc] or an [Options].Plan for a request that
	// is not limited. The middleware then calls the handler without a decision.
	ErrUnlimited = errors.New("weirhttp: the request is not limited")

	// ErrNoKey means that a request has no value for a segment of the key, for example no
	// API key or no valid address. The middleware rejects such a request with status 400,
	// and likewise a request whose key has an empty segment.
	ErrNoKey = errors.New("weirhttp: the request has no key")
)

// A RequestFunc makes the request to a limiter from an HTTP request: its key, and if
// needed its cost or Costs, its ID, its MaxWait and its metadata. The Op must be
// [weir.Consume].
//
// Set a new ID for each request. Two requests with the same ID share their tokens and
// their lease, and the first handler that returns ends the lease of both.
//
// If it returns [ErrUnlimited], or an error that wraps it, the HTTP request is not
// limited. After any other error, the HTTP request is rejected: see the package
// documentation.
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
	// until the same request would be allowed. Times are in seconds, rounded up. A limit
	// without a Window has no w. A concurrency limit has the parameter
	// qu="concurrent-requests", and no times.
	//
	// If the response has such fields already, for example because another middleware has
	// set them, the items are added. In the name of a rule, % and every byte that is not
	// a printable ASCII character are replaced by % and two hexadecimal digits. The
	// number 11 is the version of the draft. If a later version differs, it gets another
	// dialect.
	RateLimitDraft11

	// XRateLimit sets the fields X-RateLimit-Limit, X-RateLimit-Remaining and
	// X-RateLimit-Reset. They describe one rule, which [weir.Result].Rule names. Reset is
	// the time until the rule is fully reset, in seconds from now, rounded up. It is not
	// a Unix time. A concurrency limit has no Reset, because a lease can be released at
	// any time. If the response has such fields already, they are replaced.
	XRateLimit

	// XRateLimitUnix sets the fields of XRateLimit, with Reset as a Unix time in seconds,
	// rounded up. It comes from the process's clock. Clients whose clock differs wait too
	// long or not long enough, so choose it only for clients that expect it.
	XRateLimitUnix
)

// Options are the optional settings of [New]. The zero value is the default.
type Options struct {
	// Plan returns the decider for a request, for example the limiter of a customer's
	// plan. All deciders must have the same segments. If Plan returns nil, the decider
	// given to New decides. A nil *weir.Limiter is a mistake, and rejects the request
	// with status 500. ErrUnlimited means that the request is not limited. Other errors
	// reject it, like those of a RequestFunc.
	Plan func(*http.Request) (weir.Decider, error)

	// Headers is the dialect of the fields that describe the limits. They are set before
	// the handler is called, so the handler can replace them.
	Headers Dialect

	// PartitionKey returns the parameter pk of the RateLimit fields, which tells clients
	// which of their requests share a limit. Clients see it, so it must be neither an API
	// key nor a hash of one. If it is nil, or returns nothing, there is no pk. The
	// dialect must be RateLimitDraft11.
	PartitionKey func(*http.Request) []byte

	// Timeout is the longest time of a decision. 0 means that only the request's context
	// ends it. Set it if FailOpen is true, because each request waits for a store that
	// does not answer. If a decision takes longer and the request is not passed on, the
	// middleware undoes it in the background, as [New] says.
	Timeout time.Duration

	// LeaseRetryAfter is the Retry-After, at most 1 h, of a request that is denied only
	// because all leases of an algorithm.Concurrency are held. One can be released at any
	// time, so the time until one expires is sent only if it is shorter. 0 means 1 s, the
	// shortest Retry-After: without the field, some clients would retry at once.
	LeaseRetryAfter time.Duration

	// FailOpen passes a request on if the store is not available, or does not answer in
	// time. Otherwise such a request is answered with status 503. After any other error,
	// no request is passed on. The store may have made the decision of a request that is
	// passed on, so the lease is released and the cost is settled after the handler, as
	// for any other request.
	FailOpen bool

	// RefundPanics refunds a request whose handler panics before it has called [Settle] or
	// [Refund]. Otherwise the request costs what it consumed. A panic with
	// [http.ErrAbortHandler] refunds nothing: a proxy has it if its client leaves.
	RefundPanics bool

	// Reject writes the answer to a request that is not passed on. If it is nil, the
	// answer is as in the package documentation. Retry-After and the fields of the
	// dialect are already set. The status is Rejection.Status, unless Reject sets one.
	// Reject is not called if the client has cancelled the request.
	Reject func(w http.ResponseWriter, r *http.Request, why Rejection)

	// OnError is called with each error, even if FailOpen passes the request on, and if a
	// [Settle] or a [Refund] had no full effect. A denied and a cancelled request are no
	// errors. If OnError is nil, errors are logged by the
	// default logger of log/slog, an ErrNoKey at level Debug.
	OnError func(r *http.Request, err error)
}

// New returns a middleware that asks d to decide each request. It works with every router
// that takes middlewares of net/http, for example with chi's Use. nil opts means the
// defaults.
//
// If a rule is an algorithm.Concurrency, the middleware releases the lease when the handler
// returns, but does not renew it, so the lease must be longer than the handler takes. The
// response ends after the release, or after a [Settle] or a [Refund], which takes a round
// trip, and at most one second if the store does not answer.
//
// If the RequestFunc sets no ID, the middleware makes one for a lease or a MaxWait. Only
// such a decision is undone, as [weir.Limiter.TryAcquire] says, if its reply was lost and
// the request is not passed on. Another request can use an ID of the RequestFunc.
//
// A request with a MaxWait can be allowed after a delay, for which the middleware waits.
// It does not wait for the end of a pause: with a MaxWait of 5 s, a request to a key that
// is paused for 2 s more is denied at once, with Retry-After: 2.
//
// MaxWait is cut to the time until the deadline of the request's context. If the client
// cancels the request in the meantime, the tokens are refunded, unless the RequestFunc
// sets an ID, which another request can use.
//
// A request that goes through two middlewares consumes tokens in both, even if they are
// the same.
//
// New returns an error if d or request is nil, if d is a zero Limiter, or if a field of
// opts is not valid.
func New(d weir.Decider, request RequestFunc, opts *Options) (func(http.Handler) http.Handler, error) {
	m := &middleware{rules: gate.RulesOf(d), request: request}
	if opts != nil {
		m.opts = *opts
	}
	if err := gate.Check("weirhttp: New", d, m.opts.Timeout, m.opts.LeaseRetryAfter); err != nil {
		return nil, err
	}
	switch {
	case request == nil:
		return nil, errors.New("weirhttp: New: the RequestFunc is nil: pass one, for example weirhttp.By(weirhttp.RemoteIP); WithCosts returns nil if a function given to it is nil")
	case m.opts.Headers > XRateLimitUnix:
		return nil, fmt.Errorf("weirhttp: New: Options.Headers is %d: it must be NoHeaders, RateLimitDraft11, XRateLimit or XRateLimitUnix", m.opts.Headers)
	case m.opts.PartitionKey != nil && m.opts.Headers != RateLimitDraft11:
		return nil, errors.New("weirhttp: New: Options.PartitionKey is set: Options.Headers must be RateLimitDraft11, because the other dialects have no partition key")
	}
	return m.wrap, nil
}
