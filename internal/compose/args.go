package compose

import (
	"fmt"
	"hash/fnv"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
)

// shared returns the places in c of the arguments that all rules share, in their order.
func (c *Call) shared(v script.Verb) [script.SharedArgs]*int64 {
	args := [script.SharedArgs]*int64{
		script.ArgCost: &c.Cost, script.ArgWait: &c.Wait, script.ArgNow: &c.Now, script.ArgGen: &c.Gen, script.ArgOwnDebt: &c.ownDebt,
	}
	if v.Debts() {
		args[script.ArgDebt] = &c.debt
	}
	return args
}

// AppendArgs appends the arguments of the script of v: the constants of the rules, the
// text if a rule uses one, and the arguments that all rules share. If v has markers,
// FIT of each follows. Otherwise the generation is left out, and so are trailing defaults.
func (p *Program) AppendArgs(args []store.Arg, v script.Verb, c *Call) []store.Arg {
	args = append(args, p.consts...)
	if p.source.Texts {
		if c.Text == "" {
			args = append(args, noText)
		} else {
			args = append(args, store.StringArg(c.Text))
		}
	}
	call := Call{Cost: min(c.Cost, contract.MaxTokens+1), Wait: min(c.Wait, p.maxWait), Now: c.Now, Gen: c.Gen, debt: p.debt, ownDebt: p.ownDebt}
	n := 0
	switch {
	case v.Debts():
		n = script.SharedArgs
	case v.Markers():
		n = script.ArgGen + 1
	case call.Now > 0:
		n = script.ArgNow + 1
	case call.Wait > 0:
		n = script.ArgWait + 1
	case call.Cost != 1:
		n = script.ArgCost + 1
	}
	shared := call.shared(v)
	for _, arg := range shared[:n] {
		args = append(args, store.IntArg(*arg))
	}
	if v.Markers() {
		args = append(args, p.fits...)
	}
	return args
}

var noText = store.StringArg("")

// parseArgs parses the arguments of v that follow the constants.
func (p *Program) parseArgs(v script.Verb, args []store.Arg) (Call, error) {
	c := Call{Cost: 1}
	n := len(p.consts)
	if p.source.Texts {
		n++
	}
	least, most, fits := n, n+script.ArgNow+1, 0
	if v.Markers() {
		fits = len(p.fits)
		least, most = n+script.ArgGen+1+fits, n+script.ArgGen+1+fits
	}
	if v.Debts() {
		least, most = n+script.SharedArgs+fits, n+script.SharedArgs+fits
	}
	if len(args) < least || len(args) > most {
		return c, fmt.Errorf("%s%s takes from %d to %d arguments, and got %d", p.Name(), v.Suffix(), least, most, len(args))
	}
	if p.source.Texts {
		c.Text = args[n-1].String()
	}
	shared := c.shared(v)
	for i, arg := range args[n : len(args)-fits] {
		*shared[i] = arg.Int()
	}
	return c, nil
}

// fitOf returns FIT of a rule with a marker: see [script.MarkFit]. If no constant matters, a
// refund is valid under every limit.
func fitOf(r *rule) int64 {
	fit, bound := int64(0), r.layout.Bound
	if len(bound) > 0 || r.Share > 1 {
		h := fnv.New64a()
		for _, i := range bound {
			fmt.Fprintf(h, "%s %q ", r.layout.Args[i], r.Limit.Args[i].String())
		}
		if r.layout.Step != nil {
			fmt.Fprint(h, r.layout.Keys(), " ")
		}
		fmt.Fprint(h, r.Share)
		fit = int64(h.Sum64() >> 32 << 1)
	}
	if r.Cost > 0 {
		fit++
	}
	return fit
}

// fit returns FIT of rule i for the constants in the arguments.
func (r *run) fit(i int) int64 {
	return r.args[len(r.args)-len(r.fits)+r.rules[i].layout.Marker-r.source.Keys].Int()
}
