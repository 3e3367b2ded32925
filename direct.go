package weir

import (
	"unsafe"

	"github.com/weir-go/weir/internal/compose"
)

// direct decides q on the memory store, without a script. It returns false if Eval must
// decide, for example because a key is missing. The turns are on the stack. There are arrays
// of three sizes, because Go clears them first.
func (b *bound) direct(q *query, r *Request, each []Result, res *Result) bool {
	switch n := len(b.rules); {
	case n == 1:
		var turns [1]compose.Turn
		return b.directOn(q, turns[:], r, each, res)
	case n <= 4:
		var turns [4]compose.Turn
		return b.directOn(q, turns[:n], r, each, res)
	default:
		var turns [MaxRules]compose.Turn
		return b.directOn(q, turns[:n], r, each, res)
	}
}

// directOn is direct with room for the turns of all rules.
func (b *bound) directOn(q *query, turns []compose.Turn, r *Request, each []Result, res *Result) bool {
	var s *scratch
	if !b.space.setTurns(turns, b.rules, &r.Key) {
		s = scratches.Get().(*scratch)
		s.buf = b.space.buildTurns(turns, b.rules, &r.Key, s.buf[:0])
	}
	var answers []compose.Answer // the memory of each
	if len(each) > 0 {
		answers = unsafe.Slice((*compose.Answer)(&each[0]), len(turns))
	}
	done := b.memory.Decide(&q.Direct, turns, answers, (*compose.Answer)(res))
	if s != nil {
		scratches.Put(s)
	}
	return done
}
