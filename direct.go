package weir

import (
	"unsafe"

	"github.com/weir-go/weir/internal/compose"
)

// direct decides q on the memory store, without a script. It returns false if Eval must
// decide, for example because a key is missing. A decision allocates nothing, because its
// arrays are on the stack. There are arrays of three sizes, because Go clears them first.
func (b *bound) direct(q *query, r *Request, each []Result, res *Result) (done bool, err error) {
	n := len(b.rules)
	// Each rule's key has a part of b.fixed and at most all segments of r.Key.
	switch size := b.fixed + n*b.space.longest(&r.Key); {
	case n == 1 && size <= 256:
		var turns [1]compose.Turn
		var keys [256]byte
		return b.directOn(q, r, each, res, turns[:], keys[:0])
	case n <= 4 && size <= 1024:
		var turns [4]compose.Turn
		var keys [1024]byte
		return b.directOn(q, r, each, res, turns[:n], keys[:0])
	case size <= 4096:
		var turns [MaxRules]compose.Turn
		var keys [4096]byte
		return b.directOn(q, r, each, res, turns[:n], keys[:0])
	}
	return false, nil
}

// directOn is direct with room for the turns of all rules and for their keys.
func (b *bound) directOn(q *query, r *Request, each []Result, res *Result, turns []compose.Turn, keys []byte) (done bool, err error) {
	keys = b.space.appendHead(keys, &r.Key)
	head := len(keys)
	for i := range turns {
		if i > 0 {
			keys = append(keys, keys[:head]...)
		}
		keys = b.space.appendTail(keys, b.rules[i].key, &r.Key)
		turns[i].End = len(keys)
	}
	var d compose.Direct
	d.Program, d.Verb, d.Call, d.Turns = q.part.program, q.verb, &q.call, turns
	if !b.memory.Decide(&d, unsafe.String(unsafe.SliceData(keys), len(keys))) {
		return false, nil
	}
	if len(each) > 0 {
		clear(each[:len(b.rules)])
	}
	return true, b.combine(q, &d.Outcome, each, res)
}
