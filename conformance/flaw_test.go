package conformance

import (
	"reflect"
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

func (m *badMeter) Advance(now int64, c contract.Cell) contract.Cell { return m.advance(now, c) }

func (m *badMeter) Room(now, at int64, c contract.Cell) int64 { return m.room(now, at, c) }

func (m *badMeter) Take(c contract.Cell, n int64) contract.Cell { return m.take(c, n) }

func (m *badMeter) Ends(c contract.Cell) int64 { return m.ends(c) }

func (m *badMeter) Ready(now int64, c contract.Cell, n, wait int64) int64 {
	return m.ready(now, c, n, wait)
}

// A badRefunder is a badMeter whose Meter is a Refunder.
type badRefunder struct{ *badMeter }

func (m badRefunder) Refund(now int64, c contract.Cell, ch contract.Charge, note contract.Cell) (contract.Cell, contract.Cell) {
	return m.refund(now, c, ch, note)
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
	refund func(tx store.Tx, key int, now int64, s contract.State, a contract.Ask, mark contract.Cell, n, keep, gen int64) (bool, error)
	parse  func(texts []string) ([]contract.Entry, error)
}

func (b *badStep) Read(tx store.Tx, key int, now int64, a contract.Ask) (contract.State, error) {
	return b.read(tx, key, now, a)
}

func (b *badStep) Room(now int64, s contract.State, a contract.Ask) int64 { return b.room(now, s, a) }

func (b *badStep) Write(tx store.Tx, key int, now int64, s contract.State, n int64, a contract.Ask, gen int64, slack time.Duration) error {
	return b.write(tx, key, now, s, n, a, gen, slack)
}

func (b *badStep) Answer(now int64, s contract.State, n int64, a contract.Ask) contract.Answer {
	return b.answer(now, s, n, a)
}

// A badStepRefunder is a badStep whose Step is a StepRefunder.
type badStepRefunder struct{ *badStep }

func (b badStepRefunder) Mark(now int64, s contract.State, n, gen int64) (contract.Cell, int64) {
	return b.Step.(contract.StepRefunder).Mark(now, s, n, gen)
}

func (b badStepRefunder) Refund(tx store.Tx, key int, now int64, s contract.State, a contract.Ask, mark contract.Cell, n, keep, gen int64) (bool, error) {
	return b.refund(tx, key, now, s, a, mark, n, keep, gen)
}

// A badLister is a badStep whose Step is a Lister.
type badLister struct{ *badStep }

func (b badLister) Entries(tx store.Tx, key int, s contract.State) ([]string, error) {
	return b.Step.(contract.Lister).Entries(tx, key, s)
}

func (b badLister) Parse(texts []string) ([]contract.Entry, error) { return b.parse(texts) }

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
				r := right.Meter(args)
				m := &badMeter{Meter: r, advance: r.Advance, room: r.Room, take: r.Take, ends: r.Ends, ready: r.Ready}
				refunder, refunds := r.(contract.Refunder)
				if refunds {
					m.refund = refunder.Refund
				}
				if f.meter(m, args); refunds {
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
				r := right.Step(args)
				s := &badStep{Step: r, read: r.Read, room: r.Room, write: r.Write, answer: r.Answer}
				switch r := r.(type) {
				case contract.StepRefunder:
					s.refund = r.Refund
					f.step(s, args)
					return badStepRefunder{s}
				case contract.Lister:
					s.parse = r.Parse
					f.step(s, args)
					return badLister{s}
				}
				f.step(s, args)
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

// bad returns a mutation that gives an algorithm of the same type as a a flaw.
func bad(a algorithm.Algorithm, f flaw) mutation {
	kinds := &flawedKinds{flaw: f}
	return mutation{policy: func(p *weir.Policy) {
		p.Rules = slices.Clone(p.Rules)
		for i, r := range p.Rules {
			if reflect.TypeOf(r.Algorithm) == reflect.TypeOf(a) {
				p.Rules[i].Algorithm = &badAlgorithm{r.Algorithm, kinds}
			}
		}
	}}
}

// The following return flaws of one function of a Meter.

func badAdvance(advance func(m contract.Meter, now int64, c contract.Cell, args []store.Arg) contract.Cell) flaw {
	return flaw{meter: func(m *badMeter, args []store.Arg) {
		m.advance = func(now int64, c contract.Cell) contract.Cell { return advance(m.Meter, now, c, args) }
	}}
}

func badRoom(room func(m contract.Meter, now, at int64, c contract.Cell) int64) flaw {
	return flaw{meter: func(m *badMeter, _ []store.Arg) {
		m.room = func(now, at int64, c contract.Cell) int64 { return room(m.Meter, now, at, c) }
	}}
}

func badTake(change func(c contract.Cell, args []store.Arg) contract.Cell) flaw {
	return flaw{meter: func(m *badMeter, args []store.Arg) {
		m.take = func(c contract.Cell, n int64) contract.Cell { return change(m.Meter.Take(c, n), args) }
	}}
}

func badReady(ready func(m contract.Meter, now int64, c contract.Cell, n, wait int64) int64) flaw {
	return flaw{meter: func(m *badMeter, _ []store.Arg) {
		m.ready = func(now int64, c contract.Cell, n, wait int64) int64 { return ready(m.Meter, now, c, n, wait) }
	}}
}

func badRefund(change func(c contract.Cell, ch *contract.Charge, note *contract.Cell)) flaw {
	return flaw{meter: func(m *badMeter, _ []store.Arg) {
		m.refund = func(now int64, c contract.Cell, ch contract.Charge, note contract.Cell) (contract.Cell, contract.Cell) {
			change(c, &ch, &note)
			return m.right(now, c, ch, note)
		}
	}}
}

// The following return flaws of one function of a Step.

// badRead changes the view that the algorithm reads.
func badRead(change func(now int64, args []store.Arg, tx store.Tx) view) flaw {
	return flaw{step: func(b *badStep, args []store.Arg) {
		b.read = func(tx store.Tx, key int, now int64, a contract.Ask) (contract.State, error) {
			v := change(now, args, tx)
			v.Tx = tx
			return b.Step.Read(v, key, now, a)
		}
	}}
}

// badWrite calls before, which reports whether to write, before each write.
func badWrite(before func(tx store.Tx, key int, now int64, a contract.Ask) bool) flaw {
	return flaw{step: func(b *badStep, _ []store.Arg) {
		b.write = func(tx store.Tx, key int, now int64, s contract.State, n int64, a contract.Ask, gen int64, slack time.Duration) error {
			if !before(tx, key, now, a) {
				return nil
			}
			return b.Step.Write(tx, key, now, s, n, a, gen, slack)
		}
	}}
}

// badAnswer changes what is answered to a request that consumed n tokens.
func badAnswer(change func(ans *contract.Answer, s contract.State, n int64, a contract.Ask)) flaw {
	return flaw{step: func(b *badStep, _ []store.Arg) {
		b.answer = func(now int64, s contract.State, n int64, a contract.Ask) contract.Answer {
			ans := b.Step.Answer(now, s, n, a)
			change(&ans, s, n, a)
			return ans
		}
	}}
}

func badStepRefund(change func(s contract.State, mark *contract.Cell, n *int64)) flaw {
	return flaw{step: func(b *badStep, _ []store.Arg) {
		b.refund = func(tx store.Tx, key int, now int64, s contract.State, a contract.Ask, mark contract.Cell, n, keep, gen int64) (bool, error) {
			change(s, &mark, &n)
			return b.Step.(contract.StepRefunder).Refund(tx, key, now, s, a, mark, n, keep, gen)
		}
	}}
}

func badParse(parse func(l contract.Lister, texts []string) ([]contract.Entry, error)) flaw {
	return flaw{step: func(b *badStep, _ []store.Arg) {
		b.parse = func(texts []string) ([]contract.Entry, error) { return parse(b.Step.(contract.Lister), texts) }
	}}
}

func limitArgs(change func(args []store.Arg)) flaw {
	return flaw{limit: func(l *contract.Limit) { change(l.Args) }}
}

// miscounts miscounts requests of a cost of 2, or of 5 and more, or for one lease.
var miscounts = flaw{
	meter: func(m *badMeter, _ []store.Arg) {
		m.take = func(c contract.Cell, n int64) contract.Cell {
			if n == 2 {
				n = 3
			}
			return m.Meter.Take(c, n)
		}
	},
	step: badAnswer(func(ans *contract.Answer, _ contract.State, _ int64, a contract.Ask) {
		if a.Cost >= 5 || a.Text == "7" && ans.Limit > 2 {
			ans.Remaining++
		}
	}).step,
}

// rounded loses the last digits of large numbers, as tostring does on Redis.
var rounded = limitArgs(func(args []store.Arg) {
	for i, a := range args {
		if a.Int() > 1e14 {
			args[i] = store.ConstArg(a.Int() / 1000 * 1000)
		}
	}
})

// longer changes the waits that an algorithm answers, of requests that do not pass now.
func longer(change func(wait int64) int64) flaw {
	return flaw{
		meter: badReady(func(m contract.Meter, now int64, c contract.Cell, n, wait int64) int64 {
			at := m.Ready(now, c, n, wait)
			if at > now {
				at = now + change(at-now)
			}
			return at
		}).meter,
		step: badAnswer(func(ans *contract.Answer, _ contract.State, _ int64, _ contract.Ask) {
			if ans.RetryAfter > 0 && ans.RetryAfter != contract.Never {
				ans.RetryAfter = contract.Micros(change(ans.RetryAfter.Microseconds()))
			}
		}).step,
	}
}

// lateDelays tells callers that wait to go later, or earlier, by that many microseconds.
func lateDelays(by int64) flaw {
	return badReady(func(m contract.Meter, now int64, c contract.Cell, n, wait int64) int64 {
		at := m.Ready(now, c, n, wait)
		if wait == 0 && at > now {
			at += by
		}
		return at
	})
}

// unknownAhead takes for missing a cell whose first integer is more than most ahead of
// now.
func unknownAhead(most func(args []store.Arg) int64) flaw {
	return badAdvance(func(m contract.Meter, now int64, c contract.Cell, args []store.Arg) contract.Cell {
		if c.A-now > most(args) {
			c = contract.Cell{}
		}
		return m.Advance(now, c)
	})
}

// nextEdge changes the end of a new period of a Calendar.
func nextEdge(change func(now, edge int64, args []store.Arg) int64) flaw {
	return badAdvance(func(m contract.Meter, now int64, c contract.Cell, args []store.Arg) contract.Cell {
		next := m.Advance(now, c)
		if now >= c.A {
			next.A = change(now, next.A, args)
		}
		return next
	})
}

// opens changes the count with which a period of a Calendar with a Carry starts.
func opens(change func(before, count int64, args []store.Arg) int64) flaw {
	return badAdvance(func(m contract.Meter, now int64, c contract.Cell, args []store.Arg) contract.Cell {
		next := m.Advance(now, c)
		if now >= c.A && len(args) > 5 {
			next.B = change(c.B, next.B, args)
		}
		return next
	})
}

// overdrawn has a token if more than the limit was consumed, before the limit was lowered.
var overdrawn = badRoom(func(m contract.Meter, now, at int64, c contract.Cell) int64 {
	if left := m.Room(now, at, c); left >= 0 {
		return left
	}
	return 1
})

// unaware refunds know nothing of each other.
var unaware = badRefund(func(_ contract.Cell, ch *contract.Charge, note *contract.Cell) { ch.Moved, *note = 0, contract.Cell{} })

// alwaysLast takes every decision for the last one.
var alwaysLast = badRefund(func(c contract.Cell, ch *contract.Charge, note *contract.Cell) {
	ch.Was, ch.Moved, *note = c, 0, contract.Cell{}
})

// refilledAgain refunds tokens that have come back by themselves.
var refilledAgain = badRefund(func(_ contract.Cell, ch *contract.Charge, _ *contract.Cell) { ch.Was.A += 1 << 50 })

// oneMoreBack refunds a token more than was consumed.
var oneMoreBack = flaw{
	meter: badRefund(func(_ contract.Cell, ch *contract.Charge, _ *contract.Cell) { ch.N++ }).meter,
	step:  badStepRefund(func(_ contract.State, _ *contract.Cell, n *int64) { *n++ }).step,
}

// newestEntries refunds the newest n entries of a SlidingLog, whose decision ever.
var newestEntries = flaw{step: func(b *badStep, _ []store.Arg) {
	b.refund = func(tx store.Tx, key int, _ int64, _ contract.State, _ contract.Ask, _ contract.Cell, n, _, _ int64) (bool, error) {
		var texts []string
		for i := range n {
			if m, ok, err := tx.At(key, i); ok && err == nil {
				texts = append(texts, m.Text)
			}
		}
		for _, text := range texts {
			tx.Remove(key, text)
		}
		return len(texts) > 0, nil
	}
}}
