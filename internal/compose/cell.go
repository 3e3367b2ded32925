package compose

import (
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// A step is a rule's part in a Go form: contract.Step, which an algorithm brings, or a
// cell with a contract.Meter.
type step struct {
	raw   contract.Step
	meter contract.Meter
	kind  *contract.Kind
	short int // integers of a cell that are always written
	cell  int // integers of a cell
	full  int // and with a generation and a note
}

func stepOf(p *part, args []store.Arg) step {
	if p.kind.Step != nil {
		return step{kind: p.kind, raw: p.kind.Step(args)}
	}
	return step{kind: p.kind, meter: p.kind.Meter(args), short: p.short, cell: len(p.cell), full: p.full()}
}

// A held is what a rule's keys hold.
type held struct {
	step  *step
	state contract.State // of a Step
	nums  store.Nums     // of a Meter: what was read, and then what was written
	cell  contract.Cell  // of nums; zero if its time has passed
	prev  int64          // when the cell that was read ends; negative for a missing key
	tail  bool           // nums has a generation
}

// load reads a cell, and does not settle it.
func (h *held) load(tx store.Tx, key int, now int64) error {
	s := h.step
	var found bool
	var err error
	if h.nums, found, err = tx.Get(key); err != nil || !found {
		h.nums, h.prev = store.Nums{}, -quantum
		return err
	}
	ints := int(h.nums.Len)
	if h.nums.Tag != s.kind.Tag || ints != s.short && ints != s.cell && ints != s.full {
		return store.ForeignAt(key)
	}
	for i := ints; i < s.cell; i++ {
		h.nums.N[i] = 0
	}
	h.cell = s.toCell(&h.nums)
	if h.prev = s.meter.Ends(h.cell); h.prev <= now {
		h.cell = contract.Cell{}
	} else {
		h.tail = ints == s.full
	}
	return nil
}

// toCell returns the cell of n.
func (s *step) toCell(n *store.Nums) contract.Cell {
	c := contract.Cell{A: n.N[0]}
	if s.cell > 1 {
		c.B = n.N[1]
	}
	if s.cell > 2 {
		c.C = n.N[2]
	}
	if s.cell > 3 {
		c.D = n.N[3]
	}
	return c
}

// set sets the cell in h.nums to c. If gen is not 0 and there is no generation yet, it
// sets that too.
func (h *held) set(c contract.Cell, gen int64) {
	s, n := h.step, &h.nums
	n.Tag, n.Len = s.kind.Tag, uint8(s.short)
	cell := [4]int64{c.A, c.B, c.C, c.D}
	for i := range s.cell {
		if n.N[i] = cell[i]; i >= s.short && cell[i] != 0 {
			n.Len = uint8(s.cell)
		}
	}
	if gen > 0 && !h.tail {
		clear(n.N[s.cell:])
		h.tail, n.N[s.cell] = true, gen
	}
	if h.tail {
		n.Len = uint8(s.full)
	}
}

// write consumes n tokens, and returns when the cell ends.
func (h *held) write(tx store.Tx, key int, now, n, gen int64, slack time.Duration) (ends int64) {
	s := h.step
	c := s.meter.Take(h.cell, n)
	ends = s.meter.Ends(c)
	h.set(c, gen)
	if s.kind.Absolute && slack == 0 && ends/quantum == h.prev/quantum {
		tx.Keep(key, h.nums)
	} else {
		tx.Put(key, h.nums, life(now, ends, slack))
	}
	return ends
}

// life is how long a key is kept whose state is in use until ends.
func life(now, ends int64, slack time.Duration) time.Duration {
	return contract.TTL(now, ends-ends%quantum+quantum, slack)
}

// refund refunds ch of the generation gen, and reports whether that was anything.
func (h *held) refund(tx store.Tx, key int, now int64, ch contract.Charge, gen int64) bool {
	s := h.step
	if !h.tail || h.nums.N[s.cell] != gen {
		return false
	}
	note := h.nums.N[s.cell+1 : s.full]
	var was contract.Cell
	for i, v := range note {
		*[]*int64{&was.A, &was.B, &was.C}[i] = v
	}
	c, after := s.meter.(contract.Refunder).Refund(now, h.cell, ch, was)
	if c == h.cell {
		return false
	}
	if c == (contract.Cell{}) {
		tx.Del(key)
		return true
	}
	copy(note, []int64{after.A, after.B, after.C})
	h.set(c, 0)
	tx.Keep(key, h.nums)
	return true
}
