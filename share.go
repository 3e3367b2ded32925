package weir

import (
	"fmt"
	"slices"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// Share returns a limiter over st with the same keys, in which each limit is the share of
// one of n processes. Together, the shares allow at most what the limits allow. Wrappers
// and shadow rules are left out. Call With before Share, not after it.
//
// The error is [ErrInvalidRule] if a share is less than one request, and [ErrUnsupported]
// if a rule needs an algorithm.Divider.
func (l *Limiter) Share(n int, st store.Store) (*Limiter, error) { return l.divide(n, st, false) }

// ShareFloor is [Limiter.Share], except that no share is less than one request. So n
// processes may together allow n requests where the limit allows fewer.
func (l *Limiter) ShareFloor(n int, st store.Store) (*Limiter, error) { return l.divide(n, st, true) }

func (l *Limiter) divide(n int, st store.Store, floor bool) (*Limiter, error) {
	switch {
	case l == nil || l.ruleSet == nil:
		return nil, errNoLimiter
	case l.ruleSet.base.share:
		return nil, fail(ErrUnsupported, "Share: the limiter is a share already: call Share on the whole limiter")
	case n < 1:
		return nil, fail(ErrInvalidRule, "Share: the number of processes is %d: it must be at least 1", n)
	}
	if err := checkStore(st); err != nil {
		return nil, err
	}
	rules := slices.Clone(l.ruleSet.rules)
	for i := range rules {
		r, n := &rules[i], int64(n)
		if floor {
			n = min(n, r.limit.Capacity/max(r.cost, 1))
		}
		if err := r.divide(n); err != nil {
			return nil, err
		}
	}
	g := newBase(st, l.ruleSet.clock, l.ruleSet.space)
	g.share, g.settles = true, l.ruleSet.settles
	b, err := bind(g, rules, l.ruleSet.only)
	if err != nil {
		return nil, err
	}
	return newLimiter(b, nil)
}

// divide divides the limit of r by n.
func (r *rule) divide(n int64) error {
	if n == 1 || r.has(pauses) {
		return nil
	}
	whole := r.limit
	share := whole.Capacity / n
	if share < max(r.cost, 1) {
		what := "less than one token"
		if share > 0 {
			what = "less than its Cost"
		}
		return fail(ErrInvalidRule, "rule %q: its limit is %d, and the share of each of %d processes is %s: raise the limit, or lower the number of processes", r.name, whole.Capacity, n, what)
	}
	if d, ok := r.algorithm.(algorithm.Divider); ok {
		own, err := newLimit(fmt.Sprintf("rule %q", r.name), d.Divide(n))
		switch {
		case err != nil:
			return err
		case own.Kind != whole.Kind || own.Capacity > share: // for example, the method Divide of an embedded algorithm
			return fail(ErrUnsupported, "rule %q: Divide of its %T returns a %s with the limit %d: it must return a %s with a limit of at most %d", r.name, r.algorithm, own.Kind.Common().Name, own.Capacity, r.kind().Name, share)
		}
		r.limit = own
		return nil
	}
	switch {
	case r.has(leases):
		return fail(ErrUnsupported, "rule %q: a %s holds leases, and its algorithm has no method Divide, so its limit cannot be shared: give the algorithm one, or leave the rule out", r.name, r.kind().Name)
	case whole.MaxCost > 0:
		return fail(ErrUnsupported, "rule %q: a %s can consume at most %d at once, and its algorithm has no method Divide, so its limit cannot be shared: give the algorithm one, or leave the rule out", r.name, r.kind().Name, whole.MaxCost)
	}
	limit := *whole
	limit.Capacity, limit.MaxDebt = share, whole.MaxDebt/n
	r.limit, r.share = &limit, n
	return nil
}
