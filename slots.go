package weir

import (
	"github.com/weir-go/weir/internal/compose"
)

// decideOnSlots decides q on the memory store, without a script. It returns false if Eval must
// decide, for example because a key is missing. The slots are on the stack. There are arrays
// of three sizes, because Go clears them first.
func (b *bound) decideOnSlots(q *query, r *Request, each []Result, res *Result) bool {
	switch n := len(b.rules); {
	case n == 1:
		var slots [1]compose.Slot
		return b.decideOn(slots[:], q, r, each, res)
	case n <= 4:
		var slots [4]compose.Slot
		return b.decideOn(slots[:n], q, r, each, res)
	default:
		var slots [MaxRules]compose.Slot
		return b.decideOn(slots[:n], q, r, each, res)
	}
}

// decideOn is decideOnSlots with room for the slots of all rules.
func (b *bound) decideOn(slots []compose.Slot, q *query, r *Request, each []Result, res *Result) bool {
	var s *scratch
	if !b.space.setSlots(slots, b.rules, &r.Key) {
		s = scratches.Get().(*scratch)
		s.buf = b.space.buildSlots(slots, b.rules, &r.Key, s.buf[:0])
	}
	done := b.memory.DecideOnSlots(&q.Query, slots, twins(each), twin(res))
	if s != nil {
		scratches.Put(s)
	}
	return done
}
