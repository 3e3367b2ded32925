package weir_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/store/memory"
)

// units returns a limiter whose rules all can wait: 10 requests, 100 bytes and 20 rows a
// minute. The unit "later" is declared, and no rule counts it. A shadow rule counts
// "tried".
func units(t *testing.T, st *memory.Store, rules ...weir.Rule) *weir.Limiter {
	t.Helper()
	bucket := func(n int64) algorithm.Algorithm {
		return algorithm.TokenBucket{Capacity: n, Refill: algorithm.PerMinute(n)}
	}
	return weirtest.NewPolicy(t, st, weir.Policy{Segments: []string{"team", "user"}, Units: []string{"rows", "later", "bytes", "tried"}, Rules: append([]weir.Rule{
		{Name: "requests", Algorithm: bucket(10)},
		{Name: "bytes", By: []string{"team"}, Unit: "bytes", Algorithm: bucket(100)},
		{Name: "rows", Unit: "rows", Algorithm: bucket(20)},
	}, rules...)})
}

var tried = weir.Rule{Name: "next", Unit: "tried", Shadow: true, Algorithm: algorithm.GCRA{Rate: algorithm.PerMinute(5), Burst: 5}}

type costs = map[string]int64

// asking returns a request of the key acme, ann.
func asking(op weir.Op, amounts costs) weir.Request {
	return weir.Request{Key: weir.KeyOf("acme", "ann"), Op: op, Costs: weir.CostsOf(amounts)}
}

// remaining returns what is left in each rule.
func remaining(t *testing.T, l *weir.Limiter) string {
	t.Helper()
	each := make([]weir.Result, 3)
	weirtest.Decide(t, l, asking(weir.Peek, costs{"bytes": 0, "rows": 0}), each...)
	return fmt.Sprint(each[0].Remaining, each[1].Remaining, each[2].Remaining)
}

// Costs are equal if they have the same amounts of the same units.
func TestCostsEqual(t *testing.T) {
	t.Parallel()
	a := weir.CostsOf(costs{"x": 1, "y": 0, "a": 3})
	for _, b := range []weir.Costs{{}, weir.CostsOf(costs{"x": 1, "a": 3}), weir.CostsOf(costs{"x": 1, "y": 2, "a": 3}), weir.CostsOf(costs{"x": 1, "z": 0, "a": 3}), weir.CostsOf(costs{"": 1})} {
		if a == b {
			t.Errorf("%v is equal to %v", a, b)
		}
	}
	if b := weir.CostsOf(costs{"a": 3, "y": 0, "x": 1}); a != b || a.String() != "a=3 x=1 y=0" || weir.CostsOf(costs{}) != (weir.Costs{}) {
		t.Errorf("%v is not equal to %v", a, b)
	}
	_, named := a.Amount("y")
	if _, other := a.Amount("z"); !named || other {
		t.Errorf("%v names y: %v, and z: %v", a, named, other)
	}
}

// A mistake in the amounts is an error that says what is right. A declared unit that no
// rule counts may be named or left out.
func TestCostsMistakes(t *testing.T) {
	t.Parallel()
	l := units(t, weirtest.NewStore(weirtest.NewClock()))
	ctx, key := t.Context(), []string{"acme", "ann"}
	forgot := `rule "bytes" counts the unit "bytes", which Request.Costs does not name: name it with CostsOf, even if its amount is 0, and call Decide or another method that takes a Request`
	many := costs{}
	for i := range 9 {
		many[strconv.Itoa(i)] = 1
	}
	decide := func(amounts costs) func() error {
		return func() error { _, err := l.Decide(ctx, asking(weir.Consume, amounts), nil); return err }
	}
	for name, tt := range map[string]struct {
		call func() error
		want string
	}{
		"Allow":      {func() error { _, err := l.Allow(ctx, key...); return err }, forgot},
		"AllowN":     {func() error { _, err := l.AllowN(ctx, 2, key...); return err }, forgot},
		"TakeUpTo":   {func() error { _, err := l.TakeUpTo(ctx, 2, key...); return err }, forgot},
		"Peek":       {func() error { _, err := l.Peek(ctx, key...); return err }, forgot},
		"Force":      {func() error { _, err := l.Force(ctx, 2, key...); return err }, forgot},
		"Wait":       {func() error { _, err := l.Wait(ctx, key...); return err }, forgot},
		"WaitFor":    {func() error { _, err := l.WaitFor(ctx, weir.Request{Key: weir.KeyOf(key...), MaxWait: 1}); return err }, forgot},
		"one of two": {decide(costs{"bytes": 1, "later": 1}), `rule "rows" counts the unit "rows", which Request.Costs`},
		"DoMany":     {func() error { return l.DoMany(ctx, []weir.Request{asking(weir.Consume, nil)})[0].Err }, forgot},
		"undeclared": {decide(costs{"bytes": 1, "rows": 1, "byte": 1}), `Request.Costs names the unit "byte": Policy.Units must declare it: it has "rows", "later", "bytes", "tried"`},
		"negative":   {decide(costs{"bytes": -1, "rows": 1}), `Request.Costs has -1 of the unit "bytes": it must be 0 or more`},
		"nine":       {decide(many), "Request.Costs names 9 units: it must name at most 8"},
		"no name":    {decide(costs{"": 1, "bytes": 1}), `Request.Costs names a unit "": each unit needs a name`},
		"TryAcquire": {func() error {
			leases := units(t, memory.New(nil), weir.Rule{Name: "jobs", Algorithm: algorithm.Concurrency{Limit: 1, Lease: time.Hour}})
			_, err := leases.TryAcquire(ctx, weir.Request{Key: weir.KeyOf(key...)})
			return err
		}, forgot},
	} {
		t.Run(name, func(t *testing.T) { weirtest.WantError(t, tt.call(), weir.ErrInvalidCost, "weir", tt.want) })
	}
	weirtest.Allow(t, l, asking(weir.Consume, costs{"bytes": 1, "rows": 1}))
	weirtest.Allow(t, l, asking(weir.Consume, costs{"bytes": 1, "rows": 1, "later": 1 << 60}))
	if got := remaining(t, l); got != "8 98 18" {
		t.Errorf("%s left", got)
	}
	plain := weirtest.New(t, memory.New(nil), weirtest.PerSecond)
	_, err := plain.SettleCosts(ctx, weir.Request{Key: weir.KeyOf("ann"), ID: "x"}, weir.CostsOf(costs{"bytes": 1}))
	weirtest.WantError(t, err, weir.ErrInvalidCost, "weir", `Request.Actual names the unit "bytes": Policy.Units must declare it: it has none`)
}

// A unit can be declared, and named by a program, before a rule counts it.
func TestUnitsBeforeARule(t *testing.T) {
	t.Parallel()
	st := weirtest.NewStore(weirtest.NewClock())
	for _, rule := range []weir.Rule{{Name: "own", Cost: 1, Algorithm: weirtest.Window(9, time.Minute)}, {Name: "one", Algorithm: weirtest.Window(9, time.Minute)}} {
		l, err := weir.NewPolicy(st, weir.Policy{Name: rule.Name, Units: []string{"bytes"}, Rules: []weir.Rule{rule}}, &weir.Options{Settles: true})
		if err != nil {
			t.Fatal(err)
		}
		r := weir.Request{Key: weir.KeyOf("ann"), ID: "x", Costs: weir.CostsOf(costs{"bytes": 5})}
		weirtest.Allow(t, l, r)
		done, err := l.SettleCosts(t.Context(), r, weir.CostsOf(costs{"bytes": 3}))
		if err != nil || !done.Found || done.Kept != "" {
			t.Errorf("rule %q: SettleCosts = %+v, %v, want it found", rule.Name, done, err)
		}
		if res := weirtest.Decide(t, l, weir.Request{Key: r.Key, Op: weir.Peek}); res.Remaining != 8 {
			t.Errorf("rule %q: got %+v, want 8 left", rule.Name, res)
		}
	}
}

// With and Only keep the units. With cannot change the unit of a rule.
func TestUnitsWith(t *testing.T) {
	t.Parallel()
	l := units(t, weirtest.NewStore(weirtest.NewClock()), tried)
	seven := algorithm.TokenBucket{Capacity: 7, Refill: algorithm.PerMinute(7)}
	for rule, want := range map[string]string{"bytes": "bytes", "requests": ""} {
		_, err := l.With(weir.Rule{Name: rule, Unit: "rows", Algorithm: seven})
		weirtest.WantError(t, err, weir.ErrInvalidRule, "weir", fmt.Sprintf(`With: rule %q: Unit is "rows", and differs from the policy, which has %q`, rule, want))
	}
	for _, unit := range []string{"", "bytes"} {
		with := weirtest.With(t, l, weir.Rule{Name: "bytes", Unit: unit, Algorithm: seven})
		if !slices.Equal(with.Units(), l.Units()) || with.Rules()[1].Unit != "bytes" || with.Rules()[3].Unit != "tried" {
			t.Errorf("got %+v", with.Rules())
		}
		if res := weirtest.Decide(t, with, asking(weir.Consume, costs{"bytes": 8, "rows": 1})); res.Rule != "bytes" || res.RetryAfter != weir.Never {
			t.Errorf("got %+v, want that 7 bytes are the limit", res)
		}
	}
	// A request of the whole limiter can be sent to one rule, even to the shadow rule.
	r := asking(weir.Consume, costs{"bytes": 3, "rows": 2, "tried": 1})
	for rule, amount := range map[string]int64{"bytes": 3, "rows": 2, "next": 1} {
		if res := weirtest.Decide(t, weirtest.Only(t, l, rule), r); res.Granted != amount || res.Remaining != res.Limit-amount {
			t.Errorf("only %q: got %+v, want %d", rule, res, amount)
		}
	}
	// A share divides each unit.
	share, err := l.Share(4, memory.New(nil))
	if err != nil {
		t.Fatal(err)
	}
	if res := weirtest.Decide(t, share, asking(weir.Consume, costs{"bytes": 26, "rows": 5})); res.Allowed || res.Rule != "bytes" || res.Limit != 25 {
		t.Errorf("got %+v, want a share of 25", res)
	}
	weirtest.Allow(t, share, asking(weir.Consume, costs{"bytes": 25, "rows": 5}))
}

// A shadow rule that counts a unit decides beside the others. If a request does not name
// the unit, the others decide, and the answer has the error.
func TestUnitsShadow(t *testing.T) {
	t.Parallel()
	l := units(t, weirtest.NewStore(weirtest.NewClock()), tried)
	next := weirtest.Only(t, l, "next")
	left := func() int64 { return weirtest.Decide(t, next, asking(weir.Peek, costs{"tried": 0})).Remaining }
	res := weirtest.Allow(t, l, asking(weir.Consume, costs{"bytes": 1, "rows": 1}))
	weirtest.WantError(t, res.Shadow, weir.ErrInvalidCost, "weir", `rule "next" counts the unit "tried"`)
	r := asking(weir.Consume, costs{"bytes": 1, "rows": 1, "tried": 4})
	r.ID = "x"
	if res := weirtest.Allow(t, l, r); res.Shadow != nil || left() != 1 {
		t.Errorf("got %+v, want that the shadow rule consumes 4 of 5, not %d", res, 5-left())
	}
	if res := weirtest.Allow(t, l, asking(weir.Consume, costs{"bytes": 1, "rows": 1, "tried": 2})); res.Shadow == nil || left() != 1 {
		t.Errorf("got %+v, want that the shadow rule denies it", res)
	}
	set := weir.Request{Key: r.Key, ID: "x", Op: weir.Settle, Actual: weir.ActualCosts(weir.CostsOf(costs{"tried": 2}))}
	if res := weirtest.Allow(t, l, set); res.Shadow != nil || left() != 3 {
		t.Errorf("got %+v, want that the shadow rule settles at 2: %d left", res, left())
	}
	// A shadow rule on Request.Cost has nothing to settle either, and a Reset has no
	// amounts.
	beside := units(t, weirtest.NewStore(weirtest.NewClock()), weir.Rule{Name: "cost", Shadow: true, Algorithm: weirtest.PerSecond})
	weirtest.Allow(t, beside, r)
	if res := weirtest.Allow(t, beside, set); res.Shadow != nil {
		t.Errorf("got %+v, want no error of the shadow rule", res)
	}
	weirtest.Allow(t, beside, weir.Request{Key: r.Key, Op: weir.Reset})
}

// Each request of a batch has its own amounts.
func TestUnitsMany(t *testing.T) {
	t.Parallel()
	l := units(t, weirtest.NewStore(weirtest.NewClock()))
	var granted []int64
	for i, a := range l.DoMany(t.Context(), []weir.Request{
		asking(weir.Consume, costs{"bytes": 60, "rows": 1}),
		asking(weir.Consume, costs{"bytes": 60, "rows": 2}),
		asking(weir.Force, costs{"bytes": 30, "rows": 0}),
		asking(weir.Peek, costs{"bytes": 11, "rows": 3}),
		asking(weir.Reset, nil),
	}) {
		if a.Err != nil || a.Result.Allowed != (i%2 == 0) {
			t.Errorf("request %d: got %+v, %v", i, a.Result, a.Err)
		}
		granted = append(granted, a.Result.Granted)
	}
	// Granted is that of the rule shown. Reset clears the rules of the full key.
	if got := remaining(t, l); got != "10 10 20" || !slices.Equal(granted, []int64{1, 0, 1, 0, 0}) {
		t.Errorf("%s left, granted %d", got, granted)
	}
}

// A Force consumes each unit alone: what one rule cannot take changes no other, and a
// debt of one unit denies only requests that need the unit's rule.
func TestUnitsForce(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	l := units(t, weirtest.NewStore(c))
	each := make([]weir.Result, 3)
	weirtest.Decide(t, l, asking(weir.Force, costs{"bytes": 150, "rows": 3}), each...)
	if each[0].Granted != 1 || each[1].Granted != 150 || each[2].Granted != 3 || remaining(t, l) != "9 0 17" {
		t.Errorf("got %+v, %s left", each, remaining(t, l))
	}
	if res := weirtest.Decide(t, l, asking(weir.Consume, costs{"bytes": 0, "rows": 1})); res.Allowed || res.Rule != "bytes" || res.RetryAfter != 30*time.Second {
		t.Errorf("got %+v, want that the debt of 50 bytes denies for 30 s", res)
	}
	for _, rule := range []string{"requests", "rows"} {
		weirtest.Allow(t, weirtest.Only(t, l, rule), asking(weir.Consume, costs{"rows": 1}))
	}
	c.Advance(30 * time.Second)
	weirtest.Allow(t, l, asking(weir.Consume, costs{"bytes": 0, "rows": 1}))
}

// A reservation waits for the slowest unit, and a Cancel refunds all of them.
func TestUnitsReserve(t *testing.T) {
	t.Parallel()
	l := units(t, weirtest.NewStore(weirtest.NewClock()))
	weirtest.Allow(t, l, asking(weir.Consume, costs{"bytes": 80, "rows": 20}))
	r := asking(weir.Consume, costs{"bytes": 50, "rows": 5})
	r.MaxWait = time.Minute
	turn, err := l.Reserve(t.Context(), r)
	if err != nil || turn.Delay != 18*time.Second || remaining(t, l) != "8 0 0" { // 30 bytes take 18 s, and 5 rows 15 s
		t.Fatalf("got %+v, %v, %s left", turn, err, remaining(t, l))
	}
	if res := weirtest.Decide(t, l, asking(weir.Peek, costs{"bytes": 0, "rows": 0})); res.Allowed || res.RetryAfter != 18*time.Second {
		t.Errorf("got %+v, want that the reserved bytes deny an amount of 0", res)
	}
	late := r
	late.MaxWait = 20 * time.Second
	if _, err := l.Reserve(t.Context(), late); err == nil {
		t.Error("a second reservation has the same turn")
	}
	if found, err := turn.Cancel(t.Context()); !found || err != nil || remaining(t, l) != "9 20 0" {
		t.Errorf("Cancel = %v, %v, %s left", found, err, remaining(t, l))
	}
}

// The markers of a decision differ in the last 8 digits if the rules count different
// units. StoreKeys and ParseStoreKey have the keys of the rules.
func TestUnitsKeys(t *testing.T) {
	t.Parallel()
	st := weirtest.NewStore(weirtest.NewClock())
	l := units(t, st)
	r := asking(weir.Consume, costs{"bytes": 1, "rows": 1})
	r.ID = "x"
	weirtest.Allow(t, l, r)
	keys, err := l.StoreKeys(r.Key)
	if err != nil {
		t.Fatal(err)
	}
	hash := map[string]string{} // by rule
	for _, key := range keysIn(st) {
		cell, id, marker := strings.Cut(key, ":%id=")
		if marker {
			parsed, ok := l.ParseStoreKey(cell)
			if _, marks := l.ParseStoreKey(key); !ok || marks {
				t.Errorf("ParseStoreKey(%q) = %+v, %v", cell, parsed, ok)
			}
			hash[parsed.Rule] = id
		} else if !slices.ContainsFunc(keys, func(of []string) bool { return slices.Contains(of, key) }) {
			t.Errorf("StoreKeys has no %q", key)
		}
	}
	first, last := map[string]bool{}, map[string]bool{}
	for _, id := range hash {
		first[id[:24]], last[id[24:]] = true, true
	}
	if len(hash) != 3 || len(first) != 1 || len(last) != 3 {
		t.Errorf("got the markers %q", hash)
	}
}
