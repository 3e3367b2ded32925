package weir

import (
	"fmt"
	"iter"
	"strings"
	"unique"

	"github.com/weir-go/weir/internal/compose"
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
