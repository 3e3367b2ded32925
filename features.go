package weir

import "github.com/weir-go/weir/algorithm/contract"

// A feature is something that holds for some rules, and not for others.
type feature uint16

const (
	reserves feature = 1 << iota // tokens can be reserved ahead of time
	refunds                      // tokens can be refunded, and the decision can have an ID
	debts                        // a Force can consume tokens beyond the limit
	leases                       // an allowed request holds a lease
	entries                      // the metadata of allowed requests is kept
	queues                       // requests leave one by one
	follows                      // the rule has no Cost: it consumes the cost of the request
	bounded                      // the same, and the cost is bounded by the limit's MaxCost
	divides                      // a TakeUpTo can consume a part of what was asked, or the rule has a Cost
)

// featuresOf returns the features of a rule. marked is true if its decisions have
// markers.
func featuresOf(r *rule, marked bool) (f feature) {
	set := func(has bool, one feature) {
		if has {
			f |= one
		}
	}
	switch k := r.limit.Kind.(type) {
	case *contract.MeterKind:
		set(k.Reserves, reserves)
		set(k.Queues, queues)
	case *contract.StepKind:
		set(k.Leases, leases)
		set(k.Entries, entries)
	}
	set(marked, refunds)
	set(r.limit.MaxDebt > 0, debts)
	set(r.cost == 0, follows)
	set(r.cost == 0 && r.limit.MaxCost > 0, bounded)
	set(r.cost > 0 || f&leases == 0, divides)
	return f
}

// has reports whether r has a feature.
func (r *rule) has(f feature) bool { return r.features&f != 0 }

// kind returns the part of the rule's kind that all kinds have.
func (r *rule) kind() *contract.Head { return r.limit.Kind.Common() }

// capabilities are the features of a list of rules.
type capabilities struct {
	rules []rule
	every feature // the features of every rule
	some  feature // the features of at least one rule
}

func capabilitiesOf(rules []rule) capabilities {
	c := capabilities{rules: rules, every: ^feature(0)}
	for i := range rules {
		c.every &= rules[i].features
		c.some |= rules[i].features
	}
	return c
}

// any reports whether a rule has the feature.
func (c *capabilities) any(f feature) bool { return c.some&f != 0 }

// without returns the first rule without the feature, or nil if every rule has it.
func (c *capabilities) without(f feature) *rule {
	if c.every&f != 0 {
		return nil
	}
	for i := range c.rules {
		if !c.rules[i].has(f) {
			return &c.rules[i]
		}
	}
	return nil
}

// count returns the number of rules with the feature.
func (c *capabilities) count(f feature) (n int) {
	for i := range c.rules {
		if c.rules[i].has(f) {
			n++
		}
	}
	return n
}

// plain reports whether a Consume with neither an ID nor another option needs no check
// besides those of its key and its cost.
func (c *capabilities) plain() bool { return c.some&(leases|bounded|follows) == follows }
