package weir

import (
	"fmt"
	"reflect"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/storekey"
)

// A RuleType says what a rule does: see [Result].Type.
type RuleType = contract.RuleType

const (
	LimitRule = contract.LimitRule // limits how many tokens are consumed
	LeaseRule = contract.LeaseRule // limits how many leases are held at once
	PauseRule = contract.PauseRule // closes keys, and has no limit
)

// A CostBy says whose cost a rule consumes.
type CostBy = compose.CostBy

const (
	CostRequest = compose.CostRequest // Request.Cost
	CostOwn     = compose.CostOwn     // Rule.Cost
	CostNothing = compose.CostNothing // no cost: the rule pauses keys
	CostUnit    = compose.CostUnit    // the amount of its unit in Request.Costs
)

// A rule is a valid Rule.
type rule struct {
	given string // Rule.Name: it can be empty
	name  string // the name in results
	limit *contract.Limit
	cost  int64 // 0 unless costBy is CostOwn
	unit  int   // the index in keySpace.units plus 1 of the unit that the rule counts; 0 if it counts none

	unitHash [4]byte // a hash of the name of the unit: see addMarkers
	key      *ruleKey
	index    int // the rule's index in the limiter

	features feature
	costBy   CostBy

	algorithm algorithm.Algorithm // which made the limit
	share     int64               // of how many shares of the algorithm's limit the limit is one; 0 means the whole
}

// newRule checks the algorithm and the cost of r.
func newRule(label string, r Rule) (rule, error) {
	limit, err := newLimit(label, r.Algorithm)
	if err != nil {
		return rule{}, err
	}
	switch {
	case r.Cost < 0:
		return rule{}, fail(ErrInvalidRule, "%s: Cost is %d: it must be 0, which means the request's cost, or more", label, r.Cost)
	case r.Cost > 0 && limit.Kind.Type() == PauseRule:
		return rule{}, fail(ErrInvalidRule, "%s: Cost is %d: it must be 0, because a %s consumes no tokens", label, r.Cost, limit.Kind.Common().Name)
	case r.Cost > limit.Capacity:
		return rule{}, fail(ErrInvalidRule, "%s: Cost is %d: it must be at most %d, the limit", label, r.Cost, limit.Capacity)
	case r.Unit != "" && r.Cost > 0:
		return rule{}, fail(ErrInvalidRule, "%s: Cost is %d: it must be 0, because the rule counts the unit %q", label, r.Cost, r.Unit)
	case r.Unit != "" && !countsTokens(limit.Kind):
		return rule{}, fail(ErrInvalidRule, "%s: Unit is %q: it must be empty, because a %s does not count tokens", label, r.Unit, limit.Kind.Common().Name)
	case limit.MaxCost > 0 && r.Cost > limit.MaxCost:
		return rule{}, fail(ErrInvalidRule, "%s: Cost is %d: a %s can consume at most %d at once", label, r.Cost, limit.Kind.Common().Name, limit.MaxCost)
	}
	name := r.Name
	if name == "" {
		name = limit.Kind.Common().Name
	}
	return rule{given: r.Name, name: name, limit: limit, cost: r.Cost, costBy: compose.CostOf(limit.Kind, r.Cost, r.Unit != ""), algorithm: copied(r.Algorithm)}, nil
}

// countsTokens reports whether rules of this kind hold no leases, pause no keys and keep no
// metadata.
func countsTokens(kind contract.Kind) bool {
	k, ok := kind.(*contract.StepKind)
	return !ok || !k.Leases && !k.Pauses && !k.Entries
}

// ruleLabel returns the text that names rule i in an error.
func ruleLabel(i int, name string) string {
	if name == "" {
		return fmt.Sprintf("rule %d", i)
	}
	return fmt.Sprintf("rule %q", name)
}

// copied returns a, or a copy of what a points to: the caller can change that later.
func copied(a algorithm.Algorithm) algorithm.Algorithm {
	if v := reflect.ValueOf(a); v.Kind() == reflect.Pointer {
		if value, ok := v.Elem().Interface().(algorithm.Algorithm); ok {
			return value
		}
	}
	return a
}

// newLimit returns the limit of a. Errors name the rule by label.
func newLimit(label string, a algorithm.Algorithm) (*contract.Limit, error) {
	if v := reflect.ValueOf(a); a == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fail(ErrInvalidRule, "%s: its Algorithm is nil: set one, for example algorithm.TokenBucket", label)
	}
	limit, err := a.NewLimit()
	switch {
	case err != nil:
		return nil, fail(err, "%s: %s", label, plain(err))
	case limit == nil || limit.Kind == nil || limit.Kind.Common() == nil:
		return nil, fail(ErrInvalidRule, "%s: NewLimit of its %T returned no limit, or a limit without a Kind: it must return a limit with a Kind, or an error", label, a)
	case limit.Capacity < 1 || limit.Capacity > contract.MaxTokens:
		return nil, fail(ErrInvalidRule, "%s: NewLimit of its %T returned the Capacity %d: it must be from 1 to %d", label, a, limit.Capacity, int64(contract.MaxTokens))
	}
	return limit, nil
}

// unsupported returns an ErrUnsupported. Its text names the feature what and the rule r,
// and says why the rule does not support the feature.
func unsupported(what string, r *rule, why string) error {
	return fail(ErrUnsupported, "%s: rule %q is a %s, %s", what, r.name, r.kind().Name, why)
}

// A feature is something that holds for some rules, and not for others.
type feature uint16

const (
	reserves feature = 1 << iota // tokens can be reserved ahead of time
	refunds                      // tokens can be refunded, and the decision can have an ID
	debts                        // a Force can consume tokens beyond the limit
	leases                       // an allowed request holds a lease
	entries                      // the metadata of allowed requests is kept
	queues                       // requests leave one by one
	bounded                      // the cost of the request is bounded by the limit's MaxCost
	divides                      // a TakeUpTo can consume a part of what was asked, or the rule has a Cost
	pauses                       // the rule closes keys, and has no limit
	counts                       // the rule counts a unit
)

// featuresOf returns the features of a rule. marked is true if its decisions have
// markers, and bills if those beside a lease have.
func featuresOf(r *rule, marked, bills bool) (f feature) {
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
		if k.Pauses { // it never stands in the way of what the other rules support
			return pauses | reserves | refunds | debts | divides
		}
		set(k.Leases, leases)
		set(k.Leases && bills, refunds|debts) // neither a Refund nor a Force touches it
		set(k.Entries, entries)
	}
	set(marked, refunds)
	set(r.limit.MaxDebt > 0, debts)
	set(r.costBy == CostRequest && r.limit.MaxCost > 0, bounded)
	set(r.costBy == CostOwn || f&leases == 0, divides)
	set(r.costBy == CostUnit, counts)
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

	follows bool // a rule consumes the cost of the request, or all of them pause keys
}

func capabilitiesOf(rules []rule) capabilities {
	c := capabilities{rules: rules, every: ^feature(0)}
	for i := range rules {
		c.every &= rules[i].features
		c.some |= rules[i].features
		c.follows = c.follows || rules[i].costBy == CostRequest
	}
	c.follows = c.follows || c.every&pauses != 0
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

// plain reports whether a Consume without an ID or another option needs only the checks
// of its key and its cost.
func (c *capabilities) plain() bool { return c.follows && c.some&(leases|bounded|counts) == 0 }

type ruleKey struct {
	n     int    // its index in keySpace.rules
	tail  string // a closing brace, the rule's name and the algorithm's tag
	by    segmentSet
	other keyPart // the segments of by that are not shared
	frame storekey.Frame
}
