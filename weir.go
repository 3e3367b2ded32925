// Package weir implements rate limiting over pluggable stores: Redis and Valkey through
// the client that you already have, SQL databases, NATS, or the memory of the process.
//
//	lim, err := weir.New("api", memory.New(nil), algorithm.TokenBucket{Capacity: 20, Refill: algorithm.PerSecond(10)}, nil)
//	if err != nil {
//		return err
//	}
//	res, err := lim.Allow(ctx, "ann")
//	switch {
//	case err != nil: // the decision is unknown: see the section Answers
//	case !res.Allowed: // ask the caller to retry after res.RetryAfter
//	default: // go ahead
//	}
//
// A [Limiter] applies one or more rules, and keeps their state in a store. A decision is
// atomic: either every rule allows the request and consumes its cost, or no rule consumes
// anything. It takes one round trip for any number of rules.
//
// # Answers
//
// A denied request is a [Result], not an error, so check both. Only [Limiter.Wait],
// WaitN, WaitFor, Reserve, Acquire and TryAcquire also return an [ErrDenied].
//
// During an outage, a call returns [store.ErrUnavailable] or the error of its context.
// The decision is then unknown, and the request may have consumed tokens. Fail open or
// fail closed, as you prefer. Package outage does it for you.
//
// Misuse is an error too, for example [ErrInvalidKey] or [ErrUnsupported]. It lasts until
// the program is corrected, so do not fail open on it. Methods return the errors of
// [Limiter.Decide], and those that they name.
//
// # Keys
//
// A key identifies the caller being limited. It has one or more segments, which a
// [Policy] names. Rule.By lists those that identify the limit of a rule; nil means all.
// Here, the first rule limits each tenant, and the second each user of a tenant:
//
//	api, err := weir.NewPolicy(st, weir.Policy{
//		Name:     "api",
//		Segments: []string{"tenant", "user"},
//		Rules: []weir.Rule{
//			{Name: "tenant", By: []string{"tenant"}, Algorithm: algorithm.TokenBucket{Capacity: 200, Refill: algorithm.PerSecond(100)}},
//			{Name: "user", Algorithm: algorithm.TokenBucket{Capacity: 20, Refill: algorithm.PerSecond(10)}},
//		},
//	}, nil)
//	// ...
//	res, err := api.Allow(ctx, "acme", "ann")
//
// A key in the store looks like weir:api:{acme}:user.t2:ann, where t2 stands for the
// algorithm. So a rule whose algorithm is replaced starts afresh. The segments in braces,
// which every rule has in By, choose the cluster slot.
//
// # Wrappers
//
// [Limiter.Wrap] puts wrappers such as outage, denycache, prefetch and observe around
// every decision.
package weir

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/prose"
	"github.com/weir-go/weir/store"
)

// New returns a limiter with one rule, whose keys have one segment. See [NewPolicy].
func New(name string, st store.Store, a algorithm.Algorithm, opts *Options) (*Limiter, error) {
	return NewPolicy(st, Policy{Name: name, Rules: []Rule{{Algorithm: a}}}, opts)
}

// NewPolicy returns a limiter for p, without calling the store. nil opts means the
// defaults.
//
// The error is [ErrInvalidRule] or [ErrInvalidLimit] if p is not valid, and another if st
// can never work.
func NewPolicy(st store.Store, p Policy, opts *Options) (*Limiter, error) {
	if err := checkStore(st); err != nil {
		return nil, err
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	space, err := newKeySpace(o.Prefix, &p)
	if err != nil {
		return nil, err
	}
	live, shadow := split(p.Rules)
	if len(live) == 0 && len(shadow) > 0 {
		return nil, fail(ErrInvalidRule, "every rule is a shadow rule: at least one must not be")
	}
	rules, err := newRules(space, live)
	if err != nil {
		return nil, err
	}
	g := newBase(st, o.Clock, space)
	g.settles = o.Settles
	b, err := bind(g, rules, false)
	if err != nil {
		return nil, err
	}
	if err := b.addShadows(o.Prefix, &p, shadow); err != nil {
		return nil, err
	}
	if err := b.checkSettles(); err != nil {
		return nil, err
	}
	return newLimiter(b, nil)
}

var (
	// ErrInvalidLimit means that a field of an algorithm is out of range.
	ErrInvalidLimit = algorithm.ErrInvalidLimit

	// ErrInvalidCost means that a cost is negative or too high, or that the decision with
	// the same ID has another cost.
	ErrInvalidCost = algorithm.ErrInvalidCost

	// ErrInvalidRule means that a [Policy] or a [Rule] is not valid, or does not exist.
	ErrInvalidRule = errors.New("weir: invalid rule")

	// ErrInvalidKey means that a key has the wrong number of segments or an empty one, or
	// that a refund or a pause has no valid ID.
	ErrInvalidKey = errors.New("weir: invalid key")

	// ErrInvalidMetadata means that metadata has more than algorithm.MaxMetadata bytes.
	ErrInvalidMetadata = algorithm.ErrInvalidMetadata

	// ErrInvalidLease means that a lease needs an ID of 1 to algorithm.MaxLease bytes.
	ErrInvalidLease = algorithm.ErrInvalidLease

	// ErrUnsupported means that a rule does not support what a request asks: see
	// [RuleInfo]. It wraps [errors.ErrUnsupported].
	ErrUnsupported = fmt.Errorf("weir: %w", errors.ErrUnsupported)

	// ErrDenied means that a request was denied. The error is a *[DeniedError], or wraps
	// one.
	ErrDenied = errors.New("weir: denied")

	// ErrLeaseLost means that a lease was released or has expired.
	ErrLeaseLost = errors.New("weir: lease lost")
)

// prefix is the beginning of the text of every error of this package.
const prefix = "weir: "

// fail returns an error that wraps the error is, without repeating its text.
func fail(is error, format string, args ...any) error {
	return prose.Errorf(is, prefix+format, args...)
}

// plain returns the text of err without the prefix.
func plain(err error) string { return strings.TrimPrefix(err.Error(), prefix) }

func errCost(method string, cost int64) error {
	return fail(ErrInvalidCost, "%s: the cost is %d: it must be at least 1", method, cost)
}
