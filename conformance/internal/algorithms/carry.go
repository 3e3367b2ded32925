package algorithms

import (
	"strconv"

	"github.com/weir-go/weir/conformance/internal/decisions"
	"github.com/weir-go/weir/internal/model"
)

// checkCarry consumes all tokens of a limit up to four times, and then changes the limit. An
// algorithm without Carry passes.
func checkCarry(t *T) {
	r := t.Rand()
	for h := range t.Times(640) {
		a := t.Draw(r)
		b := t.relative(r, a)
		carry := t.LimitOf(a).Carry
		if carry == nil {
			return
		}
		c, key, says := decisions.NewClock(), "carry"+strconv.Itoa(h), carry(t.LimitOf(b))
		old, now := t.Limiter(c, decisions.One(a)), t.Limiter(c, decisions.One(b))
		for range 1 + r.IntN(4) {
			c.Advance(max(model.Pause(r, t.Unit(a)), 0))
			used := t.takeAll(old, a, key)
			got := t.Peek(now, 1, key)
			if got.RetryAfter > says.Wait || says.Text == "" {
				t.Fatalf("%+v becomes %+v: a caller that has consumed all gets %+v, and Carry returns %+v", a, b, got, says)
			}
			if left := max(got.Limit-used, 0); says.Exact && t.patience(b) == 0 && used == t.LimitOf(a).Capacity && got.Remaining > left {
				t.Fatalf("%+v becomes %+v: %d tokens were consumed, %d are left, and Carry returns %+v", a, b, used, got.Remaining, says)
			}
		}
	}
}
