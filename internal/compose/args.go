package compose

import (
	"fmt"
	"hash/fnv"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
)

// AppendArgs appends the arguments of the script of v: the constants of the rules, the
// text if a rule uses one, and the arguments that all rules share: see [script.ArgCost].
func (p *Program) AppendArgs(args []store.Arg, v script.Verb, c *Call) []store.Arg {
	start := len(args)
	args = append(args, p.consts...)
	if c.Amounts != nil { // a Reset has none
		for _, u := range p.units {
			args[start+u.arg] = store.IntArg(min(c.Amounts[u.unit-1], contract.MaxTokens+1))
		}
	}
	if p.source.HasText(v) {
		if c.Text == "" {
			args = append(args, noText)
		} else {
			args = append(args, store.StringArg(c.Text))
		}
	}
	cost, wait := store.IntArg(min(c.Cost, contract.MaxTokens+1)), store.IntArg(min(c.Wait, p.maxWait))
	if v.Generates() {
		if v.Debts() {
			args = append(args, cost, store.IntArg(p.debt), store.IntArg(c.Gen), store.IntArg(p.ownDebt))
			args = append(args, p.debts...)
		} else {
			args = append(args, cost, wait, store.IntArg(c.Gen))
		}
		if p.source.Lives(v) {
			args = append(args, store.IntArg(p.life))
		}
		if v.Markers() {
			args = append(args, p.fits...)
		}
		if c.Now > 0 {
			args = append(args, store.IntArg(c.Now))
		}
		return args
	}
	switch {
	case c.Now > 0:
		return append(args, cost, wait, store.IntArg(c.Now))
	case wait.Int() > 0:
		return append(args, cost, wait)
	case c.Cost != 1:
		return append(args, cost)
	}
	return args
}

var noText = store.StringArg("")

// parseArgs parses the arguments of v that follow the constants.
func (p *Program) parseArgs(v script.Verb, args []store.Arg) (Call, error) {
	c := Call{Cost: 1}
	n, most := p.source.Arg(v, script.ArgCost), p.source.Arg(v, script.ArgNow)+1
	least := n
	if v.Generates() {
		least = most - 1
	}
	if len(args) < least || len(args) > most {
		return c, fmt.Errorf("%s%s takes from %d to %d arguments, and got %d", p.Name(), v.Suffix(), least, most, len(args))
	}
	if p.source.HasText(v) {
		c.Text = args[n-1].String()
	}
	if len(args) == most {
		c.Now = args[most-1].Int()
	}
	if len(args) > n {
		c.Cost = args[n].Int()
	}
	if len(args) > n+script.ArgWait {
		c.Wait = args[n+script.ArgWait].Int()
	}
	if v.Generates() {
		c.Gen = args[p.source.Arg(v, script.ArgGen)].Int()
	}
	if v.Debts() {
		c.debt, c.ownDebt, c.Wait = c.Wait, args[p.source.Arg(v, script.ArgOwnDebt)].Int(), 0
	}
	return c, nil
}

// fitOf returns FIT of a rule with a marker: see [script.FitBits]. If no constant matters, a
// refund is valid under every limit.
func fitOf(r *rule) int64 {
	fit, bound := int64(0), r.layout.Bound
	if len(bound) > 0 || r.Share > 1 {
		h := fnv.New64a()
		for _, i := range bound {
			fmt.Fprintf(h, "%s %q ", r.layout.Args[i], r.Limit.Args[i].String())
		}
		if r.layout.Step != nil {
			fmt.Fprintf(h, "%d keys ", r.layout.Keys())
		}
		fmt.Fprintf(h, "%d shares", r.Share) // the last bytes of a text hardly change the first bits of its hash
		fit = int64(h.Sum64() >> 32 << 1)
	}
	if r.costBy == CostOwn {
		fit++
	}
	if k := r.layout.Meter; k != nil && k.Reserves {
		h := fnv.New64a()
		fmt.Fprintf(h, "%d tokens", r.Limit.Capacity)
		fit |= int64(h.Sum64() >> (64 - 20) << script.FitBits)
	}
	return fit
}

// fit returns FIT of rule i for the constants in the arguments.
func (r *run) fit(i int) int64 {
	return r.args[r.source.Arg(r.verb, script.ArgFit)+r.rules[i].layout.Marker-r.source.Keys].Int()
}

// sameFit reports whether FIT of the marker m allows a refund to rule i.
func (r *run) sameFit(i int, m *store.Nums) bool {
	return (m.N[script.MarkFit]^r.fit(i))&(1<<script.FitBits-1) == 0
}
