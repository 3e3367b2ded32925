package algorithm_test

import (
	"sync"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/store"
)

// An overdraft is a limit under which UpTo consumes what a Force consumes: its room is larger
// by MaxDebt. Its Refund keeps the first keep tokens of the decision.
type overdraft struct {
	limit   *contract.Limit
	program *compose.Program
	keep    int64
}

// overdrafts holds the overdraft of each limit.
var overdrafts sync.Map

type forcedMeter struct {
	contract.Meter
	contract.Refunder
	debt int64
}

func (m forcedMeter) Room(now, at int64, c contract.Cell) int64 {
	return m.Meter.Room(now, at, c) + m.debt
}

// A forcedStep has a refunder or a lister.
type forcedStep struct {
	contract.Step
	debt int64
}

func (s forcedStep) Room(now int64, st contract.State, a contract.Ask) int64 {
	return s.Step.Room(now, st, a) + s.debt
}

type forcedTokens struct {
	forcedStep
	contract.StepRefunder
	keep *int64
}

func (s forcedTokens) Refund(tx store.Tx, key int, now int64, st contract.State, a contract.Ask, mark contract.Cell, n, _, gen int64) (bool, error) {
	return s.StepRefunder.Refund(tx, key, now, st, a, mark, n, *s.keep, gen)
}

type forcedList struct {
	forcedStep
	contract.Lister
}

// forced returns a copy of b with the overdraft of its limit, over the same keys.
func (b *bench) forced() (*bench, *overdraft) {
	v, ok := overdrafts.Load(b.limit)
	if !ok {
		o, k := &overdraft{}, *b.limit.Kind
		debt, step, meter := b.limit.MaxDebt, k.Step, k.Meter
		if step != nil {
			k.Step = func(args []store.Arg) contract.Step {
				s := step(args)
				if list, ok := s.(contract.Lister); ok {
					return forcedList{forcedStep{s, debt}, list}
				}
				return forcedTokens{forcedStep{s, debt}, s.(contract.StepRefunder), &o.keep}
			}
		} else {
			k.Meter = func(args []store.Arg) contract.Meter {
				m := meter(args)
				return forcedMeter{m, m.(contract.Refunder), debt}
			}
		}
		l := *b.limit
		l.Kind, l.Capacity, l.MaxDebt = &k, l.Capacity+debt, 0
		o.limit, o.program = &l, mustProgram(b.t, &l)
		v, _ = overdrafts.LoadOrStore(b.limit, o)
	}
	o := v.(*overdraft)
	f := *b
	f.limit, f.program = o.limit, o.program
	return &f, o
}

// force consumes cost tokens past the limit, or as many as MaxDebt allows. It returns their
// number, and the charge of the decision.
func (b *bench) force(now, cost int64) (int64, charge) {
	b.gen++
	f, _ := b.forced()
	mark := &b.state.keys[len(b.state.keys)-1]
	*mark = value{}
	args := f.program.AppendArgs(nil, compose.UpToMark, &compose.Call{Cost: cost, Gen: b.gen})
	b.state.now = now
	reply, err := f.program.Script(compose.UpToMark).GoForm()(b.state, args, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	o, err := f.program.Outcome(compose.UpToMark, reply, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return o.N, *mark
}

// part refunds the last n tokens of a charge, and leaves the others in the charge. It reports
// whether anything was refunded.
func (b *bench) part(now int64, was *charge, n int64) bool {
	f, o := b.forced()
	last := *was
	last.nums.N[1] = n
	was.nums.N[1] -= n
	o.keep = was.nums.N[1]
	return f.refund(now, last)
}
