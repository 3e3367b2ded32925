package weir

import "github.com/weir-go/weir/internal/compose"

// direct decides q on the memory store, without a script. It returns false if Eval must
// decide, for example because a key is missing. The turns and the answers are on the stack. There
// are arrays of three sizes, because Go clears them first.
func (b *bound) direct(q *query, r *Request, each []Result, res *Result) (done bool, err error) {
	switch n := len(b.rules); {
	case n == 1:
		var turns [1]compose.Turn
		var answers [1]compose.Answer
		return b.directOn(q, turns[:], answers[:], r, each, res)
	case n <= 4:
		var turns [4]compose.Turn
		var answers [4]compose.Answer
		return b.directOn(q, turns[:n], answers[:n], r, each, res)
	default:
		var turns [MaxRules]compose.Turn
		var answers [MaxRules]compose.Answer
		return b.directOn(q, turns[:n], answers[:n], r, each, res)
	}
}

// directOn is direct with room for the turns and the answers of all rules.
func (b *bound) directOn(q *query, turns []compose.Turn, answers []compose.Answer, r *Request, each []Result, res *Result) (done bool, err error) {
	var s *scratch
	if !b.space.setTurns(turns, b.rules, &r.Key) {
		s = scratches.Get().(*scratch)
		s.buf = b.space.buildTurns(turns, b.rules, &r.Key, s.buf[:0])
	}
	done = b.memory.Decide(&q.Direct, turns, answers)
	if s != nil {
		scratches.Put(s)
	}
	if !done {
		return false, nil
	}
	if len(each) > 0 {
		clear(each[:len(b.rules)])
	}
	return true, b.combine(q, answers, each, res)
}
