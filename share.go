package weir

import (
	"slices"

	"github.com/weir-go/weir/algorithm"
)

// shareOf returns the rules of b, with the share of one process of each limit, over the memory
// store of o. The error names a rule that has no share.
//
// The share of a rule has the same keys, algorithm and window, but each of its tokens is
// o.Processes tokens of the limit. So the shares of all processes together allow at most
// what the limit allows, whatever the algorithm is.
func (o *outage) shareOf(b *bound) (*bound, error) {
	n := int64(o.Processes)
	rules := slices.Clone(b.rules)
	for i := range rules {
		if err := rules[i].divide(n); err != nil {
			return nil, err
		}
	}
	return bind(&shared{store: o.store, memory: o.store, clock: b.clock, borrow: true, space: b.space}, rules, b.only)
}

// divide divides the limit of r by n.
func (r *rule) divide(n int64) error {
	if n == 1 {
		return nil
	}
	whole := r.limit
	share := whole.Capacity / n
	if share < max(r.cost, 1) {
		what := "nothing"
		if share > 0 {
			what = "less than its Cost"
		}
		return fail(ErrInvalidRule, "OnOutage: rule %q: its limit is %d, of which each of %d processes would have %s: raise the limit, or use FailClosed or FailOpen", r.name, whole.Capacity, n, what)
	}
	if d, ok := r.algorithm.(algorithm.Divider); ok {
		limit, err := newLimit("OnOutage: rule \""+r.name+"\"", d.Divide(n))
		r.limit = limit
		return err
	}
	switch {
	case r.has(leases):
		return fail(ErrUnsupported, "OnOutage: rule %q: a %s holds leases, and only those of algorithm.Concurrency can be shared: use FailClosed or FailOpen", r.name, r.kind().Name)
	case whole.MaxCost > 0:
		return fail(ErrUnsupported, "OnOutage: rule %q: a %s can consume at most %d at once, so its limit cannot be shared: use FailClosed or FailOpen", r.name, r.kind().Name, whole.MaxCost)
	}
	limit := *whole
	limit.Capacity, limit.MaxDebt = share, whole.MaxDebt/n
	r.limit, r.share = &limit, n
	return nil
}
