package conformance

import (
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// A flaw is what an algorithm does wrong. A field that is nil changes nothing.
type flaw struct {
	limit func(l *contract.Limit)
	kind  func(k *contract.MeterKind)
	meter func(m *badMeter, args []store.Arg) // of a kind with a Meter
	step  func(s *badStep, args []store.Arg)  // of a kind with a Step
}

// A badMeter is a Meter of which a flaw sets some functions.
type badMeter struct {
	contract.Meter
	advance func(now int64, c contract.Cell) contract.Cell
	room    func(now, at int64, c contract.Cell) int64
	take    func(c contract.Cell, n int64) contract.Cell
	ends    func(c contract.Cell) int64
	ready   func(now int64, c contract.Cell, n, wait int64) int64
	refund  func(now int64, c contract.Cell, ch contract.Charge, note contract.Cell) (contract.Cell, contract.Cell)
}

func (m *badMeter) Advance(now int64, c contract.Cell) contract.Cell {
	if m.advance != nil {
		return m.advance(now, c)
	}
	return m.Meter.Advance(now, c)
}

func (m *badMeter) Room(now, at int64, c contract.Cell) int64 {
	if m.room != nil {
		return m.room(now, at, c)
	}
	return m.Meter.Room(now, at, c)
}

func (m *badMeter) Take(c contract.Cell, n int64) contract.Cell {
	if m.take != nil {
		return m.take(c, n)
	}
	return m.Meter.Take(c, n)
}

func (m *badMeter) Ends(c contract.Cell) int64 {
	if m.ends != nil {
		return m.ends(c)
	}
	return m.Meter.Ends(c)
}

func (m *badMeter) Ready(now int64, c contract.Cell, n, wait int64) int64 {
	if m.ready != nil {
		return m.ready(now, c, n, wait)
	}
	return m.Meter.Ready(now, c, n, wait)
}

// A badRefunder is a badMeter whose Meter is a Refunder.
type badRefunder struct{ *badMeter }

func (m badRefunder) Refund(now int64, c contract.Cell, ch contract.Charge, note contract.Cell) (contract.Cell, contract.Cell) {
	if m.refund != nil {
		return m.refund(now, c, ch, note)
	}
	return m.right(now, c, ch, note)
}

// right is Refund without the flaw.
func (m *badMeter) right(now int64, c contract.Cell, ch contract.Charge, note contract.Cell) (contract.Cell, contract.Cell) {
	return m.Meter.(contract.Refunder).Refund(now, c, ch, note)
}

// A badStep is a Step of which a flaw sets some functions.
type badStep struct {
	contract.Step
	read   func(tx store.Tx, key int, now int64, a contract.Ask) (contract.State, error)
	room   func(now int64, s contract.State, a contract.Ask) int64
	write  func(tx store.Tx, key int, now int64, s contract.State, n int64, a contract.Ask, gen int64, slack time.Duration) error
	answer func(now int64, s contract.State, n int64, a contract.Ask) contract.Answer
	mark   func(now int64, s contract.State, n, gen int64) (contract.Cell, int64)
	refund func(tx store.Tx, key int, now int64, s contract.State, a contract.Ask, mark contract.Cell, n, keep, gen int64) (bool, error)
	parse  func(texts []string) ([]contract.Entry, error)
}

func (b *badStep) Read(tx store.Tx, key int, now int64, a contract.Ask) (contract.State, error) {
	if b.read != nil {
		return b.read(tx, key, now, a)
	}
	return b.Step.Read(tx, key, now, a)
}

func (b *badStep) Room(now int64, s contract.State, a contract.Ask) int64 {
	if b.room != nil {
		return b.room(now, s, a)
	}
	return b.Step.Room(now, s, a)
}

func (b *badStep) Write(tx store.Tx, key int, now int64, s contract.State, n int64, a contract.Ask, gen int64, slack time.Duration) error {
	if b.write != nil {
		return b.write(tx, key, now, s, n, a, gen, slack)
	}
	return b.Step.Write(tx, key, now, s, n, a, gen, slack)
}

func (b *badStep) Answer(now int64, s contract.State, n int64, a contract.Ask) contract.Answer {
	if b.answer != nil {
		return b.answer(now, s, n, a)
	}
	return b.Step.Answer(now, s, n, a)
}

// A badStepRefunder is a badStep whose Step is a StepRefunder.
type badStepRefunder struct{ *badStep }

func (b badStepRefunder) Mark(now int64, s contract.State, n, gen int64) (contract.Cell, int64) {
	if b.mark != nil {
		return b.mark(now, s, n, gen)
	}
	return b.Step.(contract.StepRefunder).Mark(now, s, n, gen)
}

func (b badStepRefunder) Refund(tx store.Tx, key int, now int64, s contract.State, a contract.Ask, mark contract.Cell, n, keep, gen int64) (bool, error) {
	if b.refund != nil {
		return b.refund(tx, key, now, s, a, mark, n, keep, gen)
	}
	return b.Step.(contract.StepRefunder).Refund(tx, key, now, s, a, mark, n, keep, gen)
}

// A badLister is a badStep whose Step is a Lister.
type badLister struct{ *badStep }

func (b badLister) Entries(tx store.Tx, key int, s contract.State) ([]string, error) {
	return b.Step.(contract.Lister).Entries(tx, key, s)
}

func (b badLister) Parse(texts []string) ([]contract.Entry, error) {
	if b.parse != nil {
		return b.parse(texts)
	}
	return b.Step.(contract.Lister).Parse(texts)
}

// A flawedKinds has the kinds with one flaw, by the right ones, so that all limits of one
// kind share one.
type flawedKinds struct {
	flaw
	mu    sync.Mutex
	kinds map[contract.Kind]contract.Kind
}

func (f *flawedKinds) of(right contract.Kind) contract.Kind {
	f.mu.Lock()
	defer f.mu.Unlock()
	k, ok := f.kinds[right]
	if !ok {
		if f.kinds == nil {
			f.kinds = map[contract.Kind]contract.Kind{}
		}
		k = f.make(right)
		f.kinds[right] = k
	}
	return k
}

// make returns a copy of right with the flaw.
func (f *flawedKinds) make(right contract.Kind) contract.Kind {
	switch right := right.(type) {
	case *contract.MeterKind:
		k := *right
		if f.meter != nil {
			k.Meter = func(args []store.Arg) contract.Meter {
				m := &badMeter{Meter: right.Meter(args)}
				f.meter(m, args)
				if _, ok := m.Meter.(contract.Refunder); ok {
					return badRefunder{m}
				}
				return m
			}
		}
		if f.kind != nil {
			f.kind(&k)
		}
		return &k
	case *contract.StepKind:
		k := *right
		if f.step != nil {
			k.Step = func(args []store.Arg) contract.Step {
				s := &badStep{Step: right.Step(args)}
				f.step(s, args)
				switch s.Step.(type) {
				case contract.StepRefunder:
					return badStepRefunder{s}
				case contract.Lister:
					return badLister{s}
				}
				return s
			}
		}
		return &k
	}
	return right
}

// A badAlgorithm is an algorithm with a flaw.
type badAlgorithm struct {
	algorithm.Algorithm
	*flawedKinds
}

func (b *badAlgorithm) NewLimit() (*contract.Limit, error) {
	right, err := b.Algorithm.NewLimit()
	if err != nil {
		return nil, err
	}
	l := *right
	l.Args = slices.Clone(l.Args)
	l.Kind = b.of(l.Kind)
	if b.limit != nil {
		b.limit(&l)
	}
	return &l, nil
}

// bad returns a mutation that gives one algorithm a flaw.
func bad[A algorithm.Algorithm](f flaw) mutation {
	kinds := &flawedKinds{flaw: f}
	return mutation{policy: func(p *weir.Policy) {
		p.Rules = slices.Clone(p.Rules)
		for i, r := range p.Rules {
			if _, ok := r.Algorithm.(A); ok {
				p.Rules[i].Algorithm = &badAlgorithm{r.Algorithm, kinds}
			}
		}
	}}
}
