package weir

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"unique"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/script"
)

// MaxUnits is the largest number of units of a limiter.
const MaxUnits = compose.MaxUnits

// Costs are the amounts that a request consumes, by unit: see [Policy].Units. Make them
// with [CostsOf]. They are comparable. The zero Costs name no unit.
type Costs struct {
	units   unique.Handle[unitNames]
	amounts [MaxUnits]int64 // of units, in their order
}

// unitNames are the names of units in alphabetical order. Those after the last are empty.
type unitNames [MaxUnits]string

// badUnits are the units of Costs that name an empty unit, or more than MaxUnits.
// amounts[0] is their number.
var badUnits = unique.Make(unitNames{})

// CostsOf returns Costs with these amounts by unit:
//
//	weir.CostsOf(map[string]int64{"input": 1200, "output": 4000})
//
// It does not check them: the decision does.
func CostsOf(amounts map[string]int64) Costs {
	var c Costs
	if len(amounts) == 0 {
		return c
	}
	var names unitNames
	n := 0
	for name, amount := range amounts {
		if n == MaxUnits || name == "" {
			return Costs{units: badUnits, amounts: [MaxUnits]int64{int64(len(amounts))}}
		}
		at := n
		for ; at > 0 && names[at-1] > name; at-- {
			names[at], c.amounts[at] = names[at-1], c.amounts[at-1]
		}
		names[at], c.amounts[at] = name, amount
		n++
	}
	c.units = unique.Make(names)
	return c
}

// Amount returns the amount of a unit, or false if c does not name it.
func (c Costs) Amount(unit string) (n int64, ok bool) {
	for name, amount := range c.All() {
		if name == unit {
			return amount, true
		}
	}
	return 0, false
}

// All returns the units that c names, in alphabetical order, and their amounts.
func (c Costs) All() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		if !c.named() {
			return
		}
		for i, name := range c.units.Value() {
			if name == "" || !yield(name, c.amounts[i]) {
				return
			}
		}
	}
}

// String returns c in the form "input=1200 output=4000".
func (c Costs) String() string {
	var b strings.Builder
	for name, amount := range c.All() {
		fmt.Fprintf(&b, " %s=%d", name, amount)
	}
	return strings.TrimPrefix(b.String(), " ")
}

// named reports whether c names a unit, or is not valid.
func (c *Costs) named() bool { return c.units != unique.Handle[unitNames]{} }

// unit returns the index in ks.units plus 1 of the unit of a rule, or 0 if it has none.
// Errors name the rule by label.
func (ks *keySpace) unit(label, unit string) (int, error) {
	n := slices.Index(ks.units, unit) + 1
	if unit != "" && n == 0 {
		return 0, fail(ErrInvalidRule, "%s: Unit is %q: Policy.Units must declare it: it has %s", label, unit, ks.unitList())
	}
	return n, nil
}

// checkUnits checks Policy.Units.
func checkUnits(units []string) error {
	if len(units) > MaxUnits {
		return fail(ErrInvalidRule, "Policy.Units has %d names: it must have at most %d", len(units), MaxUnits)
	}
	for i, name := range units {
		if len(name) > MaxSegment {
			return fail(ErrInvalidRule, "Policy.Units[%d] has %d bytes: it must have at most %d", i, len(name), MaxSegment)
		}
	}
	return checkNames("Units", "unit", units)
}

// unitList lists the units.
func (ks *keySpace) unitList() string {
	if len(ks.units) == 0 {
		return "none"
	}
	return quoted(ks.units)
}

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
