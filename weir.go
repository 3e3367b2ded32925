// Package weir implements rate limiting over pluggable stores: Redis and Valkey
// through the client that you already have, or the memory of the process.
//
//	lim, err := weir.New("api", memory.New(nil), algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 20}, nil)
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
// A [Limiter] applies one or more rules, and keeps their state in a store. Each rule is
// a limit. A decision is atomic: either all rules allow the request and consume its
// cost, or no rule consumes anything. A decision takes one round trip, for any number of
// rules, or two if the server does not know the script yet.
//
// # Keys
//
// A key identifies the caller being limited. It has one or more segments, for example
// a tenant and a user. A [Policy] names the segments. Rule.By lists the segments that
// identify the limit of a rule. If By is nil, all segments identify it.
//
//	api, err := weir.NewPolicy(st, weir.Policy{
//		Name:     "api",
//		Segments: []string{"tenant", "user"},
//		Rules: []weir.Rule{
//			{Name: "tenant", By: []string{"tenant"}, Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(100), Burst: 200}},
//			{Name: "user", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 20}},
//		},
//	}, nil)
//	if err != nil {
//		return err
//	}
//	res, err := api.Allow(ctx, "acme", "ann")
//
// In this example, the rule "tenant" limits each tenant. The rule "user" has no By, so it
// limits each pair of a tenant and a user.
//
// A key in the store has the form prefix:name:{shared segments}:rule.tag:other
// segments, for example weir:api:{acme}:user.g2:ann. The shared segments are the
// segments that every rule has in By. They choose the cluster slot, so all keys of
// a decision have the same slot. If a rule has no name, only the tag is written. The tag
// names the algorithm and the version of its layout. If you change the algorithm of a rule, the rule uses other keys, so its
// earlier state has no effect.
//
// Limiters with the same prefix, name and store share their state. All parts of a key
// are escaped. So a segment with a colon or a brace cannot look like two segments, or
// choose the cluster slot. A segment is replaced by its SHA-256 if it is longer than [MaxSegment]
// bytes, or if [Policy].Secret names it.
//
// # Answers
//
// A denied request is a [Result], not an error. Only these methods also return
// [ErrDenied] for a denied request: [Limiter.Wait], [Limiter.WaitN], [Limiter.Reserve],
// [Limiter.Acquire] and [Limiter.TryAcquire].
//
// During an outage, a call returns [store.ErrUnavailable] or the context's error. The
// caller then does not know the decision, and the request may have consumed tokens. Fail
// open or fail closed as you prefer. Package outage does it for you, within a time budget.
//
// [Limiter.Wrap] puts wrappers around every decision. Package observe counts answers, package
// denycache answers a blocked caller without a round trip, and package prefetch a busy one.
//
// Misuse is an error too, for example [ErrInvalidCost], [ErrInvalidKey] or
// [ErrUnsupported]. It does not end by itself, so do not fail open on such an error.
package weir

import (
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// New returns a limiter with one rule, whose keys have one segment. If opts is nil, the
// defaults are used. Errors: see [NewPolicy].
func New(name string, st store.Store, a algorithm.Algorithm, opts *Options) (*Limiter, error) {
	return NewPolicy(st, Policy{Name: name, Rules: []Rule{{Algorithm: a}}}, opts)
}

// NewPolicy returns a limiter for p. If opts is nil, the defaults are used. The
// store is not called.
//
// The errors are:
//   - [ErrInvalidRule] if p is not valid.
//   - [ErrInvalidLimit] if a field of an algorithm is out of range.
//   - [ErrUnsupported] if [Options].Settles is true, and a rule cannot be settled.
//   - another error if st is nil, or if st is a [store.Checker] and its Check returns
//     an error.
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
	g := newGround(st, o.Clock, space)
	g.settles = o.Settles
	b, err := bind(g, rules, false)
	if err != nil {
		return nil, err
	}
	if err := b.checkSettles(); err != nil {
		return nil, err
	}
	if err := b.addShadows(o.Prefix, &p, shadow); err != nil {
		return nil, err
	}
	return newLimiter(b, nil)
}
