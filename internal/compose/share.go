package compose

import (
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// A share is the part of a limit that one of several processes may use. Each token of the
// share is n tokens of the limit. So all shares together never allow more than the limit
// does, whatever the algorithm is, and no remainder of a division is lost.

// shareOf returns s with its limit divided by n.
func shareOf(s step, n int64) step {
	if s.raw != nil {
		s.raw = stepShare{s.raw, n}
	} else {
		s.meter = meterShare{s.meter, n}
	}
	return s
}

// A meterShare is the Meter of a share. If the Meter of the limit is no
// contract.Refunder, its rule has no marker, so Refund is not called.
type meterShare struct {
	contract.Meter
	n int64
}

func (m meterShare) Room(now, at int64, c contract.Cell) int64 {
	return m.Meter.Room(now, at, c) / m.n
}

func (m meterShare) Take(c contract.Cell, n int64) contract.Cell { return m.Meter.Take(c, n*m.n) }

func (m meterShare) Ready(now int64, c contract.Cell, n, wait int64) int64 {
	return m.Meter.Ready(now, c, n*m.n, wait)
}

func (m meterShare) Refund(now int64, c contract.Cell, ch contract.Charge, note contract.Cell) (contract.Cell, contract.Cell) {
	ch.N, ch.Held = ch.N*m.n, ch.Held*m.n
	return m.Meter.(contract.Refunder).Refund(now, c, ch, note)
}

// A stepShare is the Step of a share. The limit has no leases, and nobody asks for its
// entries. If the Step of the limit is no contract.StepRefunder, its rule has no marker,
// so Mark and Refund are not called.
type stepShare struct {
	contract.Step
	n int64
}

// ask returns a with the cost in tokens of the limit. A cost above the capacity stays
// above it if it is cut to 2^53.
func (s stepShare) ask(a contract.Ask) contract.Ask {
	if a.Cost > contract.MaxTokens/s.n {
		a.Cost = contract.MaxTokens + 1
	} else {
		a.Cost *= s.n
	}
	return a
}

func (s stepShare) Read(tx store.Tx, key int, now int64, a contract.Ask) (contract.State, error) {
	return s.Step.Read(tx, key, now, s.ask(a))
}

func (s stepShare) Room(now int64, st contract.State, a contract.Ask) int64 {
	return s.Step.Room(now, st, s.ask(a)) / s.n
}

func (s stepShare) Write(tx store.Tx, key int, now int64, st contract.State, n int64, a contract.Ask, gen int64, slack time.Duration) error {
	return s.Step.Write(tx, key, now, st, n*s.n, s.ask(a), gen, slack)
}

func (s stepShare) Answer(now int64, st contract.State, n int64, a contract.Ask) contract.Answer {
	out := s.Step.Answer(now, st, n*s.n, s.ask(a))
	out.Limit /= s.n
	out.Remaining /= s.n
	return out
}

func (s stepShare) Mark(now int64, st contract.State, n, gen int64) (contract.Cell, int64) {
	return s.Step.(contract.StepRefunder).Mark(now, st, n*s.n, gen)
}

func (s stepShare) Refund(tx store.Tx, key int, now int64, st contract.State, a contract.Ask, mark contract.Cell, n, keep, gen int64) (bool, error) {
	return s.Step.(contract.StepRefunder).Refund(tx, key, now, st, s.ask(a), mark, n*s.n, keep*s.n, gen)
}
