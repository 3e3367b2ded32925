// Package weir implements rate limiting over pluggable stores: Redis and Valkey
// through the client that you already have, or the memory of the process.
//
//	lim, err := weir.New("api", memory.New(nil), algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 20}, nil)
//	if err != nil {
//		return err
//	}
//	res, err := lim.Allow(ctx, "ann")
//	switch {
//	case err != nil: // no decision was made: fail open or fail closed as you prefer
//	case !res.Allowed: // ask the caller to retry after res.RetryAfter
//	default: // go ahead
//	}
//
// A [Limiter] binds one or more rules to a store. A decision is atomic and takes
// one round trip, whatever the number of rules: all rules allow the request, or no
// rule is charged. A denied request consumes nothing.
//
// # Keys
//
// A key identifies the caller being limited. It has one or more segments, which a
// [Policy] names, for example an action, an IP address and an account. Rule.By lists
// the segments that identify the limit of a rule. nil means all.
//
//	login, err := weir.NewPolicy(st, weir.Policy{
//		Name:     "login",
//		Segments: []string{"ip", "account"},
//		Rules: []weir.Rule{
//			{Name: "ip", By: []string{"ip"}, Algorithm: algorithm.GCRA{Rate: algorithm.PerMinute(30), Burst: 10}},
//			{Name: "account", Algorithm: algorithm.SlidingLog{Limit: 5, Window: 15 * time.Minute}},
//		},
//	}, nil)
//	res, err := login.Allow(ctx, "192.0.2.1", "ann")
//
// A key in the store reads prefix:name:{shared segments}:rule.tag:other segments,
// for example weir:login:{192.0.2.1}:account.l2:ann. The shared segments are those
// that every rule is by. They choose the cluster slot, so the keys of one decision
// share a slot. The tag is the algorithm and the version of its layout. If a rule
// gets another algorithm, its limit starts afresh.
//
// Limiters with the same prefix and name share their state. All parts of a key are
// escaped, so no input can collide with another or choose its slot. A segment longer
// than [MaxSegment] bytes, and each segment of [Policy].Secret, is replaced by its
// SHA-256.
//
// # Answers
//
// A denied request is a [Result], not an error. The methods that wait or hand out
// leases, [Limiter.Wait], [Limiter.Reserve], [Limiter.Acquire] and
// [Limiter.TryAcquire], return a denial as an error too, [ErrDenied].
//
// Misuse is an error such as [ErrInvalidCost], [ErrInvalidKey] or [ErrUnsupported].
// During an outage a call returns [store.ErrUnavailable] or the context's error. No
// decision was made: fail open or fail closed as you prefer.
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

// Never is the time until something that cannot happen. It is the RetryAfter of a
// request that can never pass. As Request.MaxWait it sets no bound.
const Never = contract.Never

// MaxRules is the most rules of a limiter.
const MaxRules = compose.MaxRules

// A Policy says what is limited. It is the same in all processes that share the
// limits.
type Policy struct {
	// Name is part of every key in the store: 1 to MaxSegment bytes. Limiters with
	// the same name, prefix and store share their state.
	Name string

	// Segments names the segments of the keys, from 1 to MaxSegments. nil means one
	// segment, "key".
	Segments []string

	// Secret names the segments that are stored as a hash, for example API keys.
	Secret []string

	// Rules are from 1 to MaxRules. All of them must allow a request. An
	// algorithm.Concurrency and an algorithm.MetadataWindow cannot be in one policy.
	Rules []Rule
}

// A Rule is one limit of a [Limiter].
type Rule struct {
	// Name tells the rule from the others, in results and in keys: 1 to MaxSegment
	// bytes. The only rule of a limiter may have an empty name. Results then show
	// the name of its algorithm.
	Name string

	// By names the segments that identify the limit. nil means all. The rules of a
	// limiter must have a segment in common.
	By []string

	// Algorithm is the limit.
	Algorithm algorithm.Algorithm

	// Cost is what each request costs under this rule. 0 means the request's cost.
	Cost int64
}

// Options say how this process is wired. The zero value is the default.
type Options struct {
	// Prefix begins every key, DefaultPrefix if empty.
	Prefix string

	// Clock is the time by which decisions are made, the store's own clock if nil.
	// It is for tests, and for servers that reject TIME in scripts. If the clocks of
	// several processes differ, more than the limit can pass. The clock must read
	// later than 1970 and earlier than 2112. Keys live one hour longer than needed.
	Clock func() time.Time
}

// A Limiter decides which requests are allowed. Make one with [New] or [NewPolicy].
// It is safe for concurrent use, holds no connection, and needs no closing.
//
// All methods that decide go through [Limiter.Decide], and so through the wrappers
// of [Limiter.Wrap].
type Limiter struct {
	bound    *bound
	wrappers []func(Decider) Decider // the innermost first
	outer    Decider                 // bound in its wrappers
}

// New returns a limiter with one rule, whose keys have one segment. It is short for
// [NewPolicy]. If opts is nil, the defaults are used.
func New(name string, st store.Store, a algorithm.Algorithm, opts *Options) (*Limiter, error) {
	return NewPolicy(st, Policy{Name: name, Rules: []Rule{{Algorithm: a}}}, opts)
}

// NewPolicy returns a limiter for p. If opts is nil, the defaults are used. The
// store is not called.
//
// The errors are:
//   - [ErrInvalidRule] if p is not valid.
//   - [ErrInvalidLimit] if a field of an algorithm is out of range.
//   - another error if st cannot work, for example because it is nil.
func NewPolicy(st store.Store, p Policy, opts *Options) (*Limiter, error) {
	if st == nil {
		return nil, errors.New("weir: the store is nil: pass a store, for example memory.New(nil)")
	}
	if c, ok := st.(store.Checker); ok {
		if err := c.Check(); err != nil {
			return nil, fmt.Errorf("weir: %w", err)
		}
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
	rules, err := newRules(space, p.Rules)
	if err != nil {
		return nil, err
	}
	sh := &shared{store: st, clock: o.Clock, space: space}
	if b, ok := st.(store.Borrower); ok {
		sh.borrow = b.BorrowsStrings(st)
	}
	b, err := bind(sh, rules, false)
	if err != nil {
		return nil, err
	}
	return newLimiter(b, nil), nil
}

func newLimiter(b *bound, wrappers []func(Decider) Decider) *Limiter {
	l := &Limiter{bound: b, wrappers: wrappers, outer: b}
	for _, w := range wrappers {
		if w != nil {
			l.outer = w(l.outer)
		}
		if w == nil || l.outer == nil {
			l.outer = broken{errNoWrapper}
		}
	}
	return l
}
