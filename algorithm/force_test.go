package algorithm_test

import (
	"reflect"
	"slices"

	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/script"
)

// force consumes cost tokens past the limit, or as many as MaxDebt allows. It returns
// their number, and the charge of the decision.
func (b *bench) force(now, cost int64) (int64, charge) {
	b.gen++
	v, mark := script.Force, &b.state.keys[len(b.state.keys)-1]
	if *mark = (value{}); b.program.Marked(0) {
		v = script.ForceMark
	}
	b.state.now = now
	reply, err := b.program.Script(v).GoForm()(b.state, b.program.AppendArgs(nil, v, &compose.Call{Cost: cost, Gen: b.gen}), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	o, err := b.program.Parse(v, reply, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return o.Head(), *mark
}

// part refunds the last n tokens of a charge, and leaves the others in the charge. It
// reports whether anything was refunded.
func (b *bench) part(now int64, was *charge, n int64) bool {
	last := len(b.state.keys) - 1
	b.state.keys[last] = *was
	before := slices.Clone(b.state.keys[:last])
	b.gen++
	b.do(script.Settle, now, compose.Call{Cost: was.nums.N[2] - n, Gen: b.gen})
	*was = b.state.keys[last]
	return !reflect.DeepEqual(before, b.state.keys[:last])
}
