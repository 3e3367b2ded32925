package algorithm_test

import (
	"sync"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
)

// A keeper is a limit whose Refund keeps the first keep tokens of the decision.
type keeper struct {
	limit   *contract.Limit
	program *compose.Program
	keep    int64
}

// keepers holds the keeper of each limit with a Step.
var keepers sync.Map

type keepingStep struct {
	contract.Step
	contract.StepRefunder
	keep *int64
}

func (s keepingStep) Refund(tx store.Tx, key int, now int64, st contract.State, a contract.Ask, mark contract.Cell, n, _, gen int64) (bool, error) {
	return s.StepRefunder.Refund(tx, key, now, st, a, mark, n, *s.keep, gen)
}

// keeping returns a copy of b whose refunds keep the first n tokens, over the same keys.
func (b *bench) keeping(n int64) *bench {
	right, ok := b.limit.Kind.(*contract.StepKind)
	if !ok {
		return b // the tokens that a cell keeps make no difference
	}
	v, ok := keepers.Load(b.limit)
	if !ok {
		kind, limit, k := *right, *b.limit, &keeper{}
		kind.Step = func(args []store.Arg) contract.Step {
			s := right.Step(args)
			return keepingStep{s, s.(contract.StepRefunder), &k.keep}
		}
		limit.Kind = &kind
		k.limit, k.program = &limit, mustProgram(b.t, &limit)
		v, _ = keepers.LoadOrStore(b.limit, k)
	}
	k, other := v.(*keeper), *b
	k.keep = n
	other.limit, other.program = k.limit, k.program
	return &other
}

// force consumes cost tokens past the limit, or as many as MaxDebt allows. It returns
// their number, and the charge of the decision.
func (b *bench) force(now, cost int64) (int64, charge) {
	b.gen++
	v, mark := script.Force, &b.state.keys[len(b.state.keys)-1]
	if *mark = (value{}); b.program.Marked(0) {
		v = script.ForceMark
	}
	b.state.now = now
	reply, err := b.program.Script(v).GoForm()(b.state, b.program.AppendArgs(nil, v, &compose.Call{Cost: cost, Gen: b.gen}), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	o, err := b.program.Parse(v, reply, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return o.Head(), *mark
}

// part refunds the last n tokens of a charge, and leaves the others in the charge. It
// reports whether anything was refunded.
func (b *bench) part(now int64, was *charge, n int64) bool {
	last := *was
	last.nums.N[1] = n
	was.nums.N[1] -= n
	return b.keeping(was.nums.N[1]).refund(now, last)
}
