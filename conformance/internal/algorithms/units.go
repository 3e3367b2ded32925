package algorithms

import (
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/internal/decisions"
	"github.com/weir-go/weir/internal/model"
)

// checkUnits compares a rule that counts a unit with one that counts the cost, and checks
// that an amount of 0 consumes nothing, and is denied exactly while the limit is in debt.
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
		t.counts(a, "counts"+strconv.Itoa(h))
		t.settles(c, a, "settles"+strconv.Itoa(h))
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

// settles makes, repeats, settles and refunds a few decisions over two units and a cost, even
// long after they have ended, and compares the answers with those of the reference store.
func (t *T) settles(c *decisions.Clock, a algorithm.Algorithm, key string) {
	r := t.Rand()
	p := t.Pair(c, weir.Rule{Name: "one", Unit: "u", Algorithm: a}, weir.Rule{Name: "two", Unit: "v", Algorithm: a}, weir.Rule{Name: "three", Algorithm: a})
	info := p.Lim.Rules()[0]
	if !info.Refunds || !info.Debt {
		return
	}
	for range 24 {
		c.Advance(model.Pick(r, 0, model.Pause(r, t.Unit(a)), time.Duration(r.Int64N(int64(12*time.Minute)))))
		n := func() int64 { return t.Fitting(a, min(r.Int64N(4), info.Limit)) }
		req := weir.Request{Key: weir.KeyOf(key), ID: model.Pick(r, "x", "y", "z"), Costs: weir.CostsOf(map[string]int64{"u": 1, "v": 2})}
		switch req.Op = model.Pick(r, weir.Consume, weir.Force, weir.Settle, weir.Settle, weir.Refund); req.Op {
		case weir.Settle:
			req.Actual = weir.ActualCosts(model.Pick(r, of(n()), weir.CostsOf(map[string]int64{"u": n(), "v": n()})))
			if r.IntN(3) == 0 {
				req.Actual = weir.ActualCost(n()).With(req.Actual.Costs())
			}
		case weir.Consume, weir.Force:
			if t.LimitOf(a).Capacity < 2 || r.IntN(3) == 0 {
				req.Costs = weir.CostsOf(map[string]int64{"u": 0, "v": 1})
				req.ID += "0"
			}
		}
		p.Both(req)
	}
}

func of(n int64) weir.Costs { return weir.CostsOf(map[string]int64{"u": n}) }

// counts makes random requests, and compares their answers with those of a rule that counts
// the cost.
func (t *T) counts(a algorithm.Algorithm, key string) {
	r, c := t.Rand(), decisions.NewClock()
	p := t.Pair(c, weir.Rule{Name: "one", Unit: "u", Algorithm: a})
	twin := t.Reference(p.Reference, c, weir.Rule{Name: "two", Algorithm: a})
	rule := p.Lim.Rules()[0]
	for s := range 24 {
		c.Advance(model.Pause(r, t.Unit(a)))
		req := t.AnyRequest(r, a, key)
		if req.Op == weir.TakeUpTo {
			req.Op, req.Cost = weir.Consume, 1
		}
		req.Cost = max(req.Cost, 1)
		if rule.Refunds && r.IntN(2) == 0 && req.MaxWait == 0 {
			req.ID = strconv.Itoa(s)
		}
		unit := req
		unit.Cost, unit.Costs = 0, of(req.Cost)
		got, want := p.Both(unit), t.Do(twin, req)
		want.Rule = got.Rule
		t.Equal(got, want, "%+v: amounts of a unit: request %+v:\ngot  %+v\nwant %+v, as with a Cost", a, unit)
		if req.ID != "" && req.Op == weir.Consume && rule.Debt && r.IntN(2) == 0 {
			actual := min(r.Int64N(2*req.Cost+1), t.Fitting(a, t.LimitOf(a).Capacity))
			unit.Op, unit.Actual = weir.Settle, weir.ActualCosts(of(actual))
			req.Op, req.Actual = weir.Settle, weir.ActualCost(actual)
			if r.IntN(3) == 0 {
				unit.Op, req.Op = weir.Refund, weir.Refund
			}
			got, want := p.Both(unit), t.Do(twin, req)
			if got.Allowed != want.Allowed {
				t.Errorf("%+v: %v of %d at %d: got %+v, want %+v, as with a Cost", a, unit.Op, req.Cost, actual, got, want)
			}
		}
	}
}
