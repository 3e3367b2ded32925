package conformance

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/model"
	"github.com/weir-go/weir/store"
)

// A tally is an algorithm of a third party: at most limit tokens in a window that starts
// with the first of them.
type tally struct {
	limit  int64
	window time.Duration
	*flawedKinds
}

var tallyTag = store.Tag{'y', '1'}

var tallyKind = &contract.MeterKind{
	Head: contract.Head{
		Name: "tally", Tag: tallyTag, Cell: "edge count", Args: "limit window",
		Lua: `
-- advance
if now >= $edge then $edge, $count = now + $window, 0 end
-- room
$room = $limit - $count
-- take
$count = $count + n
-- ends
$ends = $edge
-- refund
if $edge == $was_edge then
  $count = math.max($count - n, 0)
  if $count == 0 then $edge = 0 end
end
`,
	},
	Absolute: true,
	Meter:    func(args []store.Arg) contract.Meter { return tallyMeter{args[0].Int(), args[1].Int()} },
}

type tallyMeter struct{ limit, window int64 }

func (m tallyMeter) Advance(now int64, c contract.Cell) contract.Cell {
	if now >= c.A {
		c.A, c.B = now+m.window, 0
	}
	return c
}

func (m tallyMeter) Room(_, _ int64, c contract.Cell) int64 { return m.limit - c.B }

func (m tallyMeter) Take(c contract.Cell, n int64) contract.Cell {
	c.B += n
	return c
}

func (m tallyMeter) Ends(c contract.Cell) int64 { return c.A }

func (m tallyMeter) Ready(_ int64, c contract.Cell, _, _ int64) int64 { return c.A }

func (m tallyMeter) Refund(_ int64, c contract.Cell, ch contract.Charge, note contract.Cell) (contract.Cell, contract.Cell) {
	if c.A == ch.Was.A {
		if c.B = max(c.B-ch.N, 0); c.B == 0 {
			c.A = 0
		}
	}
	return c, note
}

func (a tally) String() string { return fmt.Sprintf("tally of %d in %v", a.limit, a.window) }

func (a tally) NewLimit() (*contract.Limit, error) {
	if a.limit < 1 || a.limit > algorithm.MaxTokens || a.window < time.Microsecond {
		return nil, contract.Invalid("tally of %d in %v: both must be positive", a.limit, a.window)
	}
	l := &contract.Limit{
		Kind: tallyKind, Args: []store.Arg{store.ConstArg(a.limit), store.ConstArg(a.window.Microseconds())},
		Capacity: a.limit, Window: a.window,
	}
	if a.flawedKinds != nil {
		l.Kind = a.of(l.Kind)
		if a.flaw.limit != nil {
			a.flaw.limit(l)
		}
	}
	return l, nil
}

// An unchecked tally does not check its fields.
type unchecked struct{ tally }

func (a unchecked) NewLimit() (*contract.Limit, error) {
	if time.Minute%time.Duration(a.limit) < 0 { // panics for 0
		return nil, algorithm.ErrInvalidLimit
	}
	return a.tally.NewLimit()
}

// anyTally makes random tallies with a flaw.
func anyTally(f flaw) func(*rand.Rand) algorithm.Algorithm {
	kinds := &flawedKinds{flaw: f}
	return func(r *rand.Rand) algorithm.Algorithm {
		return tally{1 + r.Int64N(12), model.Pick(r, time.Minute, 7_000_001*time.Microsecond, time.Hour, 24*time.Hour), kinds}
	}
}
