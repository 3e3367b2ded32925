package weir

import (
	"slices"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/script"
)

// setAmounts sets the amounts of the call of q to c, which is the given field of the
// request. Those that c does not name are other.
func (b *ruleSet) setAmounts(q *query, field string, c *Costs, other int64) (named uint, err error) {
	if q.Call.Amounts == nil && b.can.any(counts) {
		q.Call.Amounts = new(compose.Amounts)
	}
	a := q.Call.Amounts // nil if no rule counts a unit: the amounts are then only checked
	if a != nil {
		for i := range b.space.units {
			a[i] = other
		}
	}
	switch n := c.amounts[0]; {
	case c.units != badUnits:
	case n > MaxUnits:
		return 0, fail(ErrInvalidCost, "%s names %d units: it must name at most %d", field, n, MaxUnits)
	default:
		return 0, fail(ErrInvalidCost, "%s names a unit \"\": each unit needs a name", field)
	}
	for name, amount := range c.All() {
		n := slices.Index(b.space.units, name)
		switch {
		case n < 0:
			return 0, fail(ErrInvalidCost, "%s names the unit %q: Policy.Units must declare it: it has %s", field, name, b.space.unitList())
		case amount < 0:
			return 0, fail(ErrInvalidCost, "%s has %d of the unit %q: it must be 0 or more", field, amount, name)
		}
		if a != nil {
			a[n] = min(amount, contract.MaxTokens+1)
		}
		named |= 1 << n
	}
	return named, nil
}

// checkCosts checks Request.Costs of a request that consumes or peeks, and sets the amounts
// of q.
func (b *ruleSet) checkCosts(q *query, r *Request) error {
	named, err := b.setAmounts(q, "Request.Costs", &r.Costs, 0)
	if err != nil {
		return err
	}
	for i := range b.rules {
		rule := &b.rules[i]
		if rule.unit == 0 {
			continue
		}
		amount := &q.Call.Amounts[rule.unit-1]
		if named>>(rule.unit-1)&1 == 0 {
			unit := b.space.units[rule.unit-1]
			return fail(ErrInvalidCost, "rule %q counts the unit %q, which Request.Costs does not name: name it with CostsOf, even if its amount is 0, and call Decide or another method that takes a Request", rule.name, unit)
		}
		if *amount, err = rule.capCost(r.Op, *amount, rule.limit.MaxDebt); err != nil {
			return err
		}
	}
	return nil
}

// checkActual checks the amounts of Request.Actual of a Settle, and sets those of q.
func (b *ruleSet) checkActual(q *query, r *Request) error {
	actual := r.Actual.Costs()
	if _, err := b.setAmounts(q, "Request.Actual", &actual, script.Unnamed); err != nil {
		return err
	}
	for i := range b.rules {
		if rule := &b.rules[i]; rule.unit > 0 {
			if _, err := rule.capCost(Settle, q.Call.Amounts[rule.unit-1], rule.limit.MaxDebt); err != nil {
				return err
			}
		}
	}
	return nil
}
