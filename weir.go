// Package weir limits rates. A [Limiter] binds one or more rules, each an
// algorithm with a name and a scope, to a store that keeps their state: Redis
// or Valkey through the client that you already have, or the memory of the
// process.
//
// A decision is one atomic step and one round trip, whatever the number of
// rules: all allow and all are charged, or none is. What was denied takes
// nothing.
//
// # Paths
//
// Whom a decision is about is a path of one or more segments: a user, or an
// action, an address and an account. A rule's By lists the segments that
// identify it. The segments that all rules share choose the cluster slot, so
// that the keys of one decision lie together, while subjects spread over the
// cluster.
//
// In the store a key reads prefix:{shared segments}:rule:other segments.
// Prefix, rule names and segments are escaped, so no input can collide with
// another or choose its slot. A segment longer than [MaxSegment] bytes is
// replaced by its SHA-256.
//
// # Answers
//
// A denial is a [Result]; of [Limiter.Wait] alone it is also an error,
// [ErrRefused]. Misuse is an error, [ErrInvalidCost], [ErrInvalidKey] or
// [ErrUnsupported] for instance. An outage is an error of the store,
// [store.ErrUnavailable] or the context's own, and what it means for a request is
// the caller's policy.
package weir

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

var (
	// ErrInvalidLimit says that an algorithm's numbers are out of bounds, or that
	// one of Request.Limits is of another algorithm than its rule.
	ErrInvalidLimit = algorithm.ErrInvalidLimit

	// ErrInvalidRule says that a list of rules does not make a limiter.
	ErrInvalidRule = errors.New("invalid rule")

	// ErrInvalidCost says that a cost is negative, or more than an algorithm can
	// take at once.
	ErrInvalidCost = algorithm.ErrInvalidCost

	// ErrInvalidMetadata says that a request's metadata is too long.
	ErrInvalidMetadata = algorithm.ErrInvalidMetadata

	// ErrUnsupported says that a rule's algorithm cannot do what was asked, or that
	// no rule's can. The error names the verb.
	ErrUnsupported = errors.New("unsupported")

	// ErrInvalidLease says that a request to a limit on what goes on at once,
	// [algorithm.Concurrency], names no lease, or one in more than
	// [algorithm.MaxLease] bytes.
	ErrInvalidLease = algorithm.ErrInvalidLease

	// ErrInvalidKey says that a path has too few or too many segments, or an
	// empty one.
	ErrInvalidKey = errors.New("invalid key")
)

// Never is the RetryAfter of a request that can never pass, as it costs more than
// the capacity, or renews a lease that is not held.
const Never = algorithm.Never

// MaxRules is the most rules that a limiter can have.
const MaxRules = algorithm.MaxRules

// DefaultPrefix begins the keys of a limiter that has no other prefix.
const DefaultPrefix = "weir"

// A Rule is one limit of a [Limiter].
type Rule struct {
	// Name tells the rule from the limiter's others, in results and in keys.
	Name string

	// By lists the path segments, counted from 0 to 63, that identify whose
	// limit it is: nil means all, {0, 2} the first and third.
	By []int

	// Algorithm is what is allowed.
	Algorithm algorithm.Algorithm

	// Cost is what a request costs under this rule, whatever the cost of the
	// request, also when that asks with 0. It is at most the algorithm's
	// capacity. 0 means the request's cost.
	Cost int64
}

// Options are the settings of a [Limiter]. The zero value is the default.
type Options struct {
	// Prefix begins every key, DefaultPrefix if empty. Limiters that share a
	// store and a prefix share the state of rules with the same name.
	Prefix string

	// Clock is the time that decisions are made by, the store's own clock if
	// nil. It is for tests, and for servers that refuse TIME in scripts: clocks
	// of several callers that differ admit more than the limit. It must read
	// later than 1970 and earlier than 2112. Keys live one hour longer than
	// needed.
	Clock func() time.Time
}

// A Limiter decides what is allowed. Make one with [New] or [NewRules]. It is
// safe for concurrent use, holds no connection, and needs no closing.
type Limiter struct {
	store   store.Store
	all     *plan
	rules   []rule
	space   keySpace
	clock   func() time.Time
	borrow  bool // the store keeps no key beyond a call
	scratch sync.Pool
	keeps   bool     // a rule keeps metadata
	leases  bool     // a rule holds leases
	plans   sync.Map // the plans of some rules, or under limits of calls, by planKey
}

type rule struct {
	name  string
	limit algorithm.Limit
	cost  int64 // 0: the request's
}

// New returns a limiter with one rule, named like the algorithm, that is
// identified by the whole path. It is short for [NewRules] without options.
func New(st store.Store, a algorithm.Algorithm) (*Limiter, error) {
	return NewRules(st, []Rule{{Algorithm: a}}, nil)
}

// NewRules returns a limiter in which every one of rules, from 1 to [MaxRules],
// must allow a request. They must have a path segment in common. A lone rule
// may go without name: it is named like its algorithm. If opts is nil, the
// defaults are used.
//
// The error is [ErrInvalidLimit] or [ErrInvalidRule], or says why st cannot
// work. The store is not asked anything.
func NewRules(st store.Store, rules []Rule, opts *Options) (*Limiter, error) {
	if st == nil {
		return nil, errors.New("weir: the store is nil: pass one, memory.New(nil) for instance")
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

	l := &Limiter{store: st, clock: o.Clock}
	if b, ok := st.(store.Borrower); ok {
		l.borrow = b.BorrowsStrings(st)
	}
	fragments := make([]*algorithm.Fragment, 0, len(rules))
	names := make([]string, 0, len(rules))
	bys := make([][]int, 0, len(rules))
	for i, r := range rules {
		if r.Algorithm == nil {
			return nil, fmt.Errorf("weir: %w: %s has no Algorithm", ErrInvalidRule, ruleName(i, r))
		}
		limit, err := r.Algorithm.NewLimit()
		if err != nil {
			return nil, fmt.Errorf("weir: %s: %w", ruleName(i, r), err)
		}
		if limit == nil || limit.Fragment() == nil {
			return nil, fmt.Errorf("weir: %w: %s: its Algorithm has no limit, or a limit without Fragment", ErrInvalidRule, ruleName(i, r))
		}
		fragment := limit.Fragment()
		if r.Name == "" && len(rules) == 1 {
			r.Name = fragment.Name
		}
		switch {
		case r.Name == "":
			return nil, fmt.Errorf("weir: %w: rule %d has no Name: the rules of one limiter are told apart by name", ErrInvalidRule, i)
		case slices.Contains(names, r.Name):
			return nil, fmt.Errorf("weir: %w: two rules are named %q", ErrInvalidRule, r.Name)
		case r.Cost < 0:
			return nil, fmt.Errorf("weir: %w: rule %q: %w: %d is negative; 0 means the request's", ErrInvalidRule, r.Name, ErrInvalidCost, r.Cost)
		}
		names, bys, fragments = append(names, r.Name), append(bys, r.By), append(fragments, fragment)
		if r.Cost > 0 && limit.Verdict(1, false, algorithm.State{}, algorithm.Request{Cost: r.Cost}).RetryAfter == Never {
			return nil, fmt.Errorf("weir: %w: rule %q costs %d, which is more than its capacity: nothing would ever pass", ErrInvalidRule, r.Name, r.Cost)
		}
		if c, ok := limit.(algorithm.RequestChecker); ok {
			if err := c.CheckRequest(algorithm.Request{Cost: r.Cost}); err != nil {
				return nil, fmt.Errorf("weir: %w: rule %q: %w", ErrInvalidRule, r.Name, err)
			}
		}
		if _, ok := limit.(algorithm.Lister); !ok && fragment.Entries != nil {
			return nil, fmt.Errorf("weir: %w: %s: its Fragment has Entries, and its limit is no algorithm.Lister", ErrInvalidRule, ruleName(i, r))
		}
		l.keeps = l.keeps || fragment.Entries != nil
		l.leases = l.leases || fragment.Leases
		l.rules = append(l.rules, rule{name: r.Name, limit: limit, cost: r.Cost})
	}
	var err error
	every := make([]int, len(rules))
	for i := range every {
		every[i] = i
	}
	if l.all, err = l.newPlan(every, fragments); err != nil {
		return nil, fmt.Errorf("weir: %w: %w", ErrInvalidRule, err)
	}
	if l.space, err = newKeySpace(o.Prefix, names, bys); err != nil {
		return nil, fmt.Errorf("weir: %w: %w", ErrInvalidRule, err)
	}
	l.scratch.New = func() any { return new(scratch) }
	return l, nil
}

// ruleName names rule i in an error.
func ruleName(i int, r Rule) string {
	if r.Name == "" {
		return fmt.Sprintf("rule %d", i)
	}
	return fmt.Sprintf("rule %q", r.Name)
}

// now is the time to hand to a script, 0 for the store's.
func (l *Limiter) now() (int64, error) {
	if l.clock == nil {
		return 0, nil
	}
	t := l.clock()
	now := t.UnixMicro()
	if now < 1 || now >= 1<<52 {
		return 0, fmt.Errorf("weir: Options.Clock reads %v: it must read later than 1970 and earlier than 2112", t)
	}
	return now, nil
}
