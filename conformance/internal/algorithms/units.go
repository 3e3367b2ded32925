package algorithms

import (
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/conformance/internal/decisions"
	"github.com/weir-go/weir/internal/model"
)

func checkUnits(t *T) {
	r := t.Rand()
	for h := range t.Times(24) {
		a, c := t.Draw(r), decisions.NewClock()
		if k := t.KindOf(a); k.Leases || k.Entries || k.Pauses {
			t.Skipf("algorithm has no Units: its rules count no tokens")
		}
		p := t.Pair(c, weir.Rule{Name: "one", Unit: "u", Algorithm: a})
		ask := func(key string, op weir.Op, n int64) weir.Result {
			return p.Both(weir.Request{Key: weir.KeyOf(key), Op: op, Costs: of(n), Actual: weir.ActualCosts(of(n))})
		}
		limit, key := t.LimitOf(a), "debt"+strconv.Itoa(h)
		if limit.MaxDebt == 0 {
			continue
		}
		c.Advance(model.Pause(r, t.Unit(a)))
		for left := limit.Capacity; left > 0; {
			n := t.Fitting(a, left)
			ask(key, weir.Force, n)
			left -= n
		}
		before := ask(key, weir.Peek, 1)
		if res := ask(key, weir.Consume, 0); !res.Allowed || res.Granted != 0 {
			t.Errorf("%+v: all tokens are consumed, and an amount of 0 got %+v, want it allowed", a, res)
		}
		if after := ask(key, weir.Peek, 1); after != before {
			t.Errorf("%+v: an amount of 0 changed what Peek answers: got %+v, want %+v", a, after, before)
		}
		ask(key, weir.Force, 1)
		res := ask(key, weir.Consume, 0)
		if res.Allowed || res.RetryAfter <= 0 || res.RetryAfter == weir.Never {
			t.Errorf("%+v: in debt by 1, an amount of 0 got %+v, want it denied", a, res)
			continue
		}
		c.Advance(res.RetryAfter - time.Microsecond)
		if res := ask(key, weir.Peek, 0); res.Allowed {
			t.Errorf("%+v: an amount of 0 is allowed 1µs before RetryAfter: %+v", a, res)
		}
		c.Advance(time.Microsecond)
		if res := ask(key, weir.Peek, 0); !res.Allowed {
			t.Errorf("%+v: an amount of 0 is denied at RetryAfter: %+v", a, res)
		}
	}
}

func of(n int64) weir.Costs { return weir.CostsOf(map[string]int64{"u": n}) }
