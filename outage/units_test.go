package outage_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
)

func amounts(in, out int64) weir.Costs {
	return weir.CostsOf(map[string]int64{"in": in, "out": out})
}

// counted returns a limiter that counts two units and requests, in a Breaker.
func counted(t *testing.T, st store.Store, o outage.Options) *weir.Limiter {
	t.Helper()
	l, err := weir.NewPolicy(st, weir.Policy{Name: "t", Units: []string{"in", "out"}, Rules: []weir.Rule{
		{Name: "in", Unit: "in", Algorithm: algorithm.TokenBucket{Capacity: 100, Refill: algorithm.PerMinute(100)}},
		{Name: "out", Unit: "out", Algorithm: weirtest.Window(60, 24*time.Hour)},
		{Name: "requests", Algorithm: weirtest.Window(1000, 24*time.Hour), Cost: 1},
	}}, &weir.Options{Settles: true})
	if err != nil {
		t.Fatal(err)
	}
	return onOutage(t, l, o)
}

// Open and Closed answer requests with amounts of units. A request that can never be
// allowed, or forgets a unit, is not allowed by Open either.
func TestOutageUnits(t *testing.T) {
	t.Parallel()
	for _, o := range []outage.Options{{}, {Fallback: outage.Open}, {Fallback: outage.Local, Processes: 1}} {
		st := weirtest.NewFaulty()
		st.Set(weirtest.Down)
		l := counted(t, st, o)
		for _, tt := range []struct {
			costs   weir.Costs
			allowed bool
			never   string
		}{{amounts(7, 0), true, ""}, {amounts(0, 5), true, ""}, {amounts(101, 5), false, "in"}, {amounts(7, 61), false, "out"}} {
			each := make([]weir.Result, 3)
			res := weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf("ann"), Costs: tt.costs}, each...)
			in, _ := tt.costs.Amount("in")
			out, _ := tt.costs.Amount("out")
			switch {
			case res.Degraded == nil || res.Allowed != (tt.allowed && o.Fallback != outage.Closed):
				t.Errorf("%v: %v: got %+v", o.Fallback, tt.costs, res)
			case res.Allowed && (each[0].Granted != in || each[1].Granted != out || each[2].Granted != 1):
				t.Errorf("%v: %v: got %+v", o.Fallback, tt.costs, each)
			case (res.RetryAfter == weir.Never) != (tt.never != "") || tt.never != "" && res.Rule != tt.never:
				t.Errorf("%v: %v: got %+v, want that %q denies it for ever", o.Fallback, tt.costs, res, tt.never)
			}
		}
		_, err := l.Decide(t.Context(), weir.Request{Key: weir.KeyOf("ann"), Costs: weir.CostsOf(map[string]int64{"in": 1})}, nil)
		weirtest.WantError(t, err, weir.ErrInvalidCost, "weir", `the unit "out"`)
	}
}

// A call is followed through an outage: a Settle and a Refund find the decision in the
// share, in the store or in both, for as long as without an outage, and each unit by
// itself.
func TestOutageSettleCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		l := counted(t, st, outage.Options{Fallback: outage.Local, Processes: 2, Failures: 1 << 30})
		req := func(id string, in, out int64) weir.Request {
			return weir.Request{Key: weir.KeyOf("ann"), ID: id, Costs: amounts(in, out)}
		}
		settle := func(id string, actual map[string]int64) weir.Request {
			return weir.Request{Key: weir.KeyOf("ann"), ID: id, Op: weir.Settle, Actual: weir.ActualCosts(weir.CostsOf(actual))}
		}
		refund := func(id string, in, out int64) weir.Request {
			r := req(id, in, out)
			r.Op = weir.Refund
			return r
		}
		force := req("", 150, 0)
		force.Op = weir.Force
		none := [3]int64{-1, -1, -1} // the decision is not found in a rule
		local := func(in, out, n int64) (at [3]int64) { return [3]int64{in, out, n} }
		for i, tt := range []struct {
			fault   weirtest.Fault
			r       weir.Request
			allowed bool
			err     error
			granted [3]int64
			left    [2]int64 // in, out
			wait    time.Duration
		}{
			{weirtest.Up, req("before", 40, 10), true, nil, local(40, 10, 1), [2]int64{60, 50}, 0},
			{weirtest.Down, req("during", 20, 5), true, nil, local(20, 5, 1), [2]int64{30, 25}, 0}, // of a share of 50 and 30
			{weirtest.Down, req("", 31, 0), false, nil, local(0, 0, 0), [2]int64{30, 25}, 0},
			{weirtest.Down, force, false, store.ErrUnavailable, none, [2]int64{30, 25}, 0},
			{weirtest.Down, settle("before", map[string]int64{"in": 1}), false, store.ErrUnavailable, none, [2]int64{30, 25}, 0},
			{weirtest.Down, settle("during", map[string]int64{"in": 10}), true, nil, local(10, 5, 1), [2]int64{40, 25}, 0},
			{weirtest.Down, refund("during", 19, 5), false, weir.ErrInvalidCost, none, [2]int64{40, 25}, 0},
			{weirtest.Lost, req("both", 10, 20), true, nil, local(10, 20, 1), [2]int64{30, 5}, 0},
			// In the store, a bucket is full after a minute, and its decision can be
			// settled for 9 more.
			{weirtest.Up, settle("both", map[string]int64{"in": 30, "out": 10}), true, nil, local(30, 10, 1), [2]int64{80, 40}, 9 * time.Minute},
			{weirtest.Down, req("", 0, 0), true, nil, local(0, 0, 1), [2]int64{30, 15}, 0},
			{weirtest.Up, settle("during", map[string]int64{"in": 14, "out": 1}), true, nil, local(14, 1, 1), [2]int64{80, 40}, 0},
			{weirtest.Down, req("", 0, 0), true, nil, local(0, 0, 1), [2]int64{26, 19}, 0},
			{weirtest.Up, refund("during", 0, 0), false, weir.ErrInvalidCost, none, [2]int64{80, 40}, 0},
			{weirtest.Up, refund("during", 20, 5), true, nil, local(0, 0, 0), [2]int64{80, 40}, 0},
			{weirtest.Up, refund("during", 20, 5), false, nil, none, [2]int64{80, 40}, 0},
			{weirtest.Up, refund("both", 10, 20), true, nil, local(0, 0, 0), [2]int64{100, 50}, 0},
			{weirtest.Up, settle("before", map[string]int64{"out": 60}), true, nil, local(40, 60, 1), [2]int64{100, 0}, 0},
			{weirtest.Up, force, true, nil, local(150, 0, 1), [2]int64{0, 0}, 0},
			{weirtest.Down, req("", 0, 0), true, nil, local(0, 0, 1), [2]int64{50, 30}, time.Minute},
		} {
			time.Sleep(tt.wait)
			st.Set(tt.fault)
			each := make([]weir.Result, 3)
			res, err := l.Decide(t.Context(), tt.r, each)
			if tt.fault == weirtest.Lost {
				st.Set(weirtest.Down)
			}
			if res.Allowed != tt.allowed || !errors.Is(err, tt.err) || err == nil && tt.fault != weirtest.Up && res.Degraded == nil {
				t.Errorf("step %d: got %+v, %v", i, res, err)
			}
			for n := range each {
				got := each[n].Granted
				if tt.r.Op >= weir.Refund && !each[n].Allowed || err != nil {
					got = -1
				}
				if got != tt.granted[n] || err == nil && got >= 0 && (each[n].Degraded == nil) != (res.Degraded == nil) {
					t.Errorf("step %d: rule %d: got %+v, want %d", i, n, each[n], tt.granted[n])
				}
			}
			peek := req("", 0, 0)
			peek.Op = weir.Peek
			weirtest.Decide(t, l, peek, each...)
			if got := [2]int64{each[0].Remaining, each[1].Remaining}; got != tt.left {
				t.Errorf("step %d: %d left, want %d", i, got, tt.left)
			}
		}
	})
}
