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
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/store"
)

// Never is the longest duration. As Result.RetryAfter it means that the request can
// never be allowed. As Result.Delay it means that the caller must not go ahead. As
// Request.MaxWait it means that any wait is acceptable.
const Never = contract.Never

// MaxRules is the largest number of rules of a limiter.
const MaxRules = compose.MaxRules

// A Policy describes the keys and the rules of a [Limiter]. Processes that share
// limits use the same Policy.
type Policy struct {
	// Name is part of every key in the store. It has 1 to MaxSegment bytes.
	// Limiters with the same name, prefix and store share their state.
	Name string

	// Segments names the segments of the keys. It has 1 to MaxSegments names. nil
	// means one segment named "key".
	Segments []string

	// Secret names the segments that are stored as a hash, for example API keys. nil
	// means none.
	Secret []string

	// Rules has 1 to MaxRules rules, and any shadow rules: see Rule.Shadow. A request is
	// allowed only if all rules allow it.
	// A policy cannot have both an algorithm.Concurrency and an
	// algorithm.MetadataWindow.
	Rules []Rule
}

// A Rule is one limit of a [Limiter].
type Rule struct {
	// Name identifies the rule in results and in keys. It has 1 to MaxSegment bytes.
	// If a limiter has only one rule, the name can be empty. Results then show the
	// name of the algorithm.
	Name string

	// By names the segments that identify the limit. nil means all segments. At
	// least one segment must be common to all rules of a limiter.
	By []string

	// Algorithm is the algorithm of the rule with its parameters, for example
	// algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 20}.
	Algorithm algorithm.Algorithm

	// Cost is the number of tokens that each request consumes from this rule. 0 means
	// Request.Cost.
	Cost int64

	// Shadow makes the rule a shadow rule: it decides every request and consumes tokens
	// as if it were the only rule, but changes no answer. Result.Shadow says what it would
	// have done. So a limit can be tried beside those that are in force, in the same round
	// trip if the store is a store.Batcher.
	//
	// A shadow rule needs a Name, and By can be any segments. It also sees the requests that
	// the other rules deny, and holds their leases until they expire or are released. It makes
	// no decision during an outage, or when a wrapper answers. It cannot be an
	// algorithm.MetadataWindow, and can be an algorithm.Concurrency only if another rule is one
	// too.
	//
	// If Shadow is no longer set, the rule keeps its state only if its By has no segment
	// besides those that all rules share.
	Shadow bool
}

// Options are the optional settings of a [Limiter]. The zero value is the default.
type Options struct {
	// Prefix is the beginning of every key. If it is empty, DefaultPrefix is used. It
	// is escaped like a segment: { } : and % are replaced, for example : by %3A. If it is
	// longer than MaxSegment bytes, it is replaced by its SHA-256.
	Prefix string

	// Clock returns the time of a decision. If it is nil, the store's clock is used.
	// Set Clock in tests, and for servers that do not allow the command TIME in
	// scripts. If the clocks of several processes differ, more requests than the
	// limit can be allowed. With a Clock, every key is kept one hour longer than
	// needed.
	//
	// The time must be after the Unix epoch and before the year 2112.
	Clock func() time.Time
}

// A Limiter decides which requests are allowed. Make one with [New] or [NewPolicy].
// It is safe for concurrent use, holds no connection, and needs no closing. If a Limiter
// is nil or a zero value, its methods return an error.
//
// Every decision goes through the wrappers that [Limiter.Wrap] added. [Limiter.Entries]
// makes no decision, so it does not call the wrappers.
type Limiter struct {
	bound    *bound
	wrappers []Wrapper // the innermost first
	outer    Decider   // bound in its wrappers
}

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
	b, err := bind(newShared(st, o.Clock, space), rules, false)
	if err != nil {
		return nil, err
	}
	if err := b.addShadows(o.Prefix, &p, shadow); err != nil {
		return nil, err
	}
	return newLimiter(b, nil)
}

// checkStore returns an error if st cannot be the store of a limiter.
func checkStore(st store.Store) error {
	if st == nil {
		return errors.New("weir: the store is nil: pass a store, for example memory.New(nil)")
	}
	if c, ok := st.(store.Checker); ok {
		if err := c.Check(); err != nil {
			return fmt.Errorf("weir: %w", err)
		}
	}
	return nil
}

// Valid returns an error if l is nil or a zero Limiter. Call it where a Limiter is configured, so
// that the mistake shows before the first request.
func (l *Limiter) Valid() error {
	if l == nil || l.bound == nil {
		return errNoLimiter
	}
	return nil
}

// split returns the rules that are in force, and the shadow rules.
func split(rules []Rule) (live, shadow []Rule) {
	for _, r := range rules {
		if r.Shadow {
			shadow = append(shadow, r)
		} else {
			live = append(live, r)
		}
	}
	return live, shadow
}
