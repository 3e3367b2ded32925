package compose

import (
	"fmt"

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
// text if a rule uses one, and the arguments that all rules share. If v has no markers,
// the generation is left out, and so are trailing defaults.
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
	least, most := n, n+script.ArgGen+1
	if v.Debts() {
		least, most = n+script.SharedArgs, n+script.SharedArgs
	}
	if len(args) < least || len(args) > most {
		return c, fmt.Errorf("%s%s takes from %d to %d arguments, and got %d", p.Name(), v.Suffix(), least, most, len(args))
	}
	if p.source.Texts {
		c.Text = args[n-1].String()
	}
	shared := c.shared(v)
	for i, arg := range args[n:] {
		*shared[i] = arg.Int()
	}
	return c, nil
}
