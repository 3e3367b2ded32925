package compose

import (
	"math"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
)

// A step is the arithmetic of one rule in a Go form: a contract.Step, or a contract.Meter
// with a cell.
type step struct {
	raw   contract.Step
	meter contract.Meter
	kind  *contract.MeterKind // nil if the rule has a Step
	short int                 // the number of integers of a cell that are always written
	cell  int                 // the number of integers of a cell
	full  int                 // the number of integers of a cell, a generation and a note

	// all has all bits of the integers of a cell, and rest those that are written only if
	// one of them is not 0.
	all, rest contract.Cell
}

// notes reports whether the value of a rule has a note.
func (s *step) notes() bool { return s.full > s.cell+1 }

func stepOf(r *script.Rule, args []store.Arg) step {
	if r.Step != nil {
		return step{raw: r.Step.Step(args)}
	}
	s := step{kind: r.Meter, meter: r.Meter.Meter(args), short: r.Short, cell: len(r.Cell), full: r.Full()}
	ones := [4]int64{-1, -1, -1, -1}
	s.all = toCell(ones[:s.cell])
	clear(ones[:s.short])
	s.rest = toCell(ones[:s.cell])
	return s
}

// A held is the state of one rule, as it was read. If the rule has a Step, only state and
// room are used.
type held struct {
	state contract.State
	nums  store.Nums // the value, if the rule has a Meter
	cellRun
}

// A cellRun is a decision on the cell of one rule.
type cellRun struct {
	step *step
	cell contract.Cell // the cell that was read, or zero if it has ended; advance advances it
	next contract.Cell // the cell after the tokens were consumed
	prev int64         // when the cell that was read ends; MinInt64 if the key is missing
	ends int64         // when next ends
	room int64         // the result of Meter.Room or Step.Room
	used bool          // the cell that was read is not zero, and has not ended
	tail bool          // the value has a generation
}

// get reads the cell of a rule through tx. It does not advance the cell. If the value is
// foreign, the error is a store.ForeignAt.
func (h *held) get(tx store.Tx, key int, now int64) error {
	var found bool
	var err error
	if h.nums, found, err = tx.Get(key); err != nil {
		return err
	}
	if !found {
		h.nums = store.Nums{}
	}
	n := min(int(h.nums.Len), store.MaxNums)
	clear(h.nums.N[n:])
	if s := h.step; found && (h.nums.Tag != s.kind.Tag || n != s.short && n != s.cell && n != s.full) {
		return store.ForeignAt(key)
	}
	h.load(toCell(h.nums.N[:h.step.cell]), n, now)
	return nil
}

// load sets the cell that was read to c. n is the number of integers of the value, or 0
// if the key is missing. load does not advance the cell.
func (h *cellRun) load(c contract.Cell, n int, now int64) {
	if n == 0 {
		h.prev = math.MinInt64
		return
	}
	if h.prev = h.step.meter.Ends(c); h.prev > now {
		h.cell, h.used, h.tail = c, c != contract.Cell{}, n == h.step.full
	}
}

// advance advances the cell to now, and sets the room at the time at.
func (h *cellRun) advance(now, at int64) {
	h.cell = h.step.meter.Advance(now, h.cell)
	h.room = h.step.meter.Room(now, at, h.cell)
}

// take sets the cell after n tokens are consumed, and when it ends.
func (h *cellRun) take(n int64) {
	h.next = h.step.meter.Take(h.cell, n)
	h.ends = h.step.meter.Ends(h.next)
}

// ttl returns the TTL of the key after take. It returns 0 if the key keeps its TTL.
func (h *cellRun) ttl(now int64, slack time.Duration) time.Duration {
	if slack == 0 && !h.step.writesTTL(h.prev, h.ends) {
		return 0
	}
	return life(now, h.ends, slack)
}

// writesTTL reports whether a decision that uses the store's clock writes the TTL of the
// key. The cell that was read ends at prev, and the next cell ends at ends.
func (s *step) writesTTL(prev, ends int64) bool {
	return !s.kind.Absolute || ends>>script.QuantumBits != prev>>script.QuantumBits
}

// size returns the number of integers of c that are written.
func (s *step) size(c *contract.Cell) int {
	if m := &s.rest; c.A&m.A|c.B&m.B|c.C&m.C|c.D&m.D != 0 {
		return s.cell
	}
	return s.short
}

// toCell returns the cell with these integers, at most 4. The others are 0.
func toCell(ints []int64) contract.Cell {
	var n [4]int64
	copy(n[:], ints)
	return contract.Cell{A: n[0], B: n[1], C: n[2], D: n[3]}
}

// set sets the cell in the value n to c. If gen is not 0 and the value has no generation,
// it also sets the generation.
func (h *cellRun) set(n *store.Nums, c contract.Cell, gen int64) {
	s := h.step
	cell := [4]int64{c.A, c.B, c.C, c.D}
	n.Tag, n.Len = s.kind.Tag, uint8(s.size(&c))
	copy(n.N[:s.cell], cell[:])
	if gen > 0 && !h.tail {
		clear(n.N[s.cell:])
		h.tail, n.N[s.cell] = true, gen
	}
	if h.tail {
		n.Len = uint8(s.full)
	}
}

// life returns the TTL of a key whose state is in use until ends.
func life(now, ends int64, slack time.Duration) time.Duration {
	return contract.Micros(lifeMicros(now, ends)) + slack
}

// lifeMicros returns life without slack, in microseconds: a [contract.TTL]. A Duration on
// the way takes time.
func lifeMicros(now, ends int64) int64 {
	ends += script.Quantum - ends%script.Quantum
	return (min(max(ends-now, 1), 2*contract.MaxSpan) + 999) / 1000 * 1000
}

// refund refunds the charge ch, and reports whether anything was refunded, or else kept. If
// the generation of the value is not gen, the key was deleted or its state ended after the
// decision, so there is nothing to refund.
func (h *held) refund(tx store.Tx, key int, now int64, ch contract.Charge, gen int64) (gave, keeps bool) {
	s := h.step
	if !h.tail || h.nums.N[s.cell] != gen {
		return false, false
	}
	note := h.nums.N[s.cell+1 : s.full]
	c, after := s.meter.(contract.Refunder).Refund(now, h.cell, ch, toCell(note))
	if c == h.cell {
		return false, true
	}
	if c == (contract.Cell{}) {
		tx.Del(key)
		return true, false
	}
	copy(note, []int64{after.A, after.B, after.C})
	h.set(&h.nums, c, 0)
	tx.Keep(key, h.nums)
	return true, false
}
