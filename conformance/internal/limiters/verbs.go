package limiters

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/internal/decisions"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/internal/model"
	"github.com/weir-go/weir/store"
)

var verbChecks = []suite.Check{
	of("Refund", "Refund refunds, once, the tokens that a decision consumed from every rule, and deletes the markers", checkRefund),
	of("Modes", "decisions over up to 16 rules consume and refund the same tokens as on the memory store", checkModes),
	of("Many", "DoMany decides each request independently, and an invalid request does not affect the others", checkMany),
	of("Limits", "With returns a limiter with other limits over the same state, on which every verb works", checkLimits),
	of("Wait", "callers that wait go one at a time, never early, and each calls the store once", checkWait),
	of("Refused", "a wait that cannot end before the deadline is denied at once, and consumes nothing", checkRefused),
	of("Cancel", "a wait that is cancelled is refunded", checkCancel),
	of("Unsupported", "if a request is not supported, the error is an ErrUnsupported that names the verb or the field, and nothing is consumed", checkUnsupported),
}

// refundAs refunds the decision id at key, and checks whether that refunds anything.
func refundAs(t *decisions.T, l *weir.Limiter, id string, want bool, key ...string) {
	t.Equal(t.Do(l, weir.Request{Key: weir.KeyOf(key...), Op: weir.Refund, ID: id}).Allowed, want, "Refund of %q at %v: got %v, want %v", id, key)
}

func checkRefund(t *decisions.T) {
	// This runs on the store's clock, with limits that refill no token during the check.
	rules := []weir.Rule{
		{Name: "all", By: []string{"s0"}, Algorithm: algorithm.FixedWindow{Limit: 10, Window: time.Hour}},
		{Name: "user", By: []string{"s0", "s1"}, Algorithm: algorithm.GCRA{Rate: algorithm.PerHour(5), Burst: 5}},
		{Name: "ring", By: []string{"s0", "s1"}, Algorithm: ringOf(time.Hour, 5)},
		{Name: "calls", By: []string{"s0", "s1"}, Algorithm: algorithm.SlidingLog{Limit: 3, Window: time.Hour}, Cost: 1},
	}
	l := t.Limiter(nil, rules...)
	request := func(id string, cost int64) weir.Request {
		return weir.Request{Key: weir.KeyOf("r", "u"), Cost: cost, ID: id}
	}
	ask := func() [4]int64 { return t.Remaining(l, weir.Peek, 1, "r", "u") }
	t.Allow(l, 1, "r", "u")
	start := ask()
	if res := t.Do(l, request("x", 2)); !res.Allowed {
		t.Fatalf("got %+v, want it allowed", res)
	}
	markers := t.MarkersOf(request("x", 2), rules...)
	t.Equal(len(markers), len(rules), "%d markers, want one for each of %d rules")
	for i, v := range t.MGet(markers...) {
		if !strings.HasPrefix(v.Str(), "i2 ") {
			t.Errorf("the marker %q holds %q", markers[i], v.Str())
		}
	}
	if t.Lists() {
		n := 0
		for key, ttl := range t.KeysLike("r}") {
			if strings.Contains(key, ":%id=") {
				n++
				if ttl <= 0 || ttl > 2*time.Hour {
					t.Errorf("the marker %q expires in %v", key, ttl)
				}
			}
		}
		t.Equal(n, len(rules), "%d markers, want one for each of %d rules")
	}
	// A lower cost is an error. It refunds nothing, and leaves the markers.
	before := ask()
	if gave, err := l.Refund(t.Ctx, request("x", 1)); gave.Found || !errors.Is(err, weir.ErrInvalidCost) {
		t.Errorf("Refund with a Cost of 1, of a decision with a Cost of 2: got %v, %v, want ErrInvalidCost", gave, err)
	}
	t.Equal(ask(), before, "after a Refund with too low a Cost: %v are left, want %v")
	for try, want := range []bool{true, false, false} {
		refundAs(t, l, "x", want, "r", "u")
		t.Equal(ask(), start, "after refund %d: %v are left, want %v", try)
	}
	refundAs(t, l, "never", false, "r", "u")
	t.Holds(store.Value{}, markers, "a marker after its refund")
	for key := range t.KeysLike("r}") {
		if strings.Contains(key, ":%id=") {
			t.Errorf("the marker %q is left", key)
		}
	}
	// A foreign value in place of a marker.
	marker := t.MarkersOf(request("y", 1), rules...)[1]
	t.Put(marker, 7)
	if gave, err := l.Refund(t.Ctx, request("y", 0)); !errors.Is(err, store.ErrForeign) || !strings.Contains(err.Error(), marker) {
		t.Errorf("a foreign marker: got %v, %v, want an ErrForeign that names %q", gave, err, marker)
	}
	t.Equal(ask(), start, "after a refund with a foreign marker: %v are left, want %v")
}

func checkModes(t *decisions.T) {
	r := t.Rand()
	for h := range t.Times(8) {
		rules := make([]weir.Rule, model.Pick(r, 2, 3, 4))
		if h%4 == 3 {
			rules = make([]weir.Rule, weir.MaxRules)
		}
		var unit time.Duration
		for i := range rules {
			a := model.Usual.Refundable(r)
			rules[i] = weir.Rule{Name: "r" + strconv.Itoa(i), Algorithm: a}
			if i > 0 { // TakeUpTo needs a rule without a Cost
				rules[i].Cost = min(model.Pick[int64](r, 0, 0, 0, 1, 2), t.LimitOf(a).Capacity)
			}
			unit = model.Unit(a)
		}
		c := decisions.NewClock()
		p := t.Pair(c, rules...)
		path := "modes" + strconv.Itoa(h)
		var keys []string
		var again weir.Request // the last request with an ID
		for _, rule := range rules {
			keys = append(keys, t.KeysOf(path, rule.Name, rule.Algorithm)...)
		}
		for s := range 20 {
			c.Advance(model.Pause(r, unit))
			req := weir.Request{Key: weir.KeyOf(path), Cost: 1 + r.Int64N(9), Op: model.Pick(r, weir.Consume, weir.TakeUpTo, weir.TakeUpTo, weir.Force)}
			if r.IntN(3) > 0 {
				req.ID = strconv.Itoa(s)
				keys = append(keys, t.MarkersOf(req, rules...)...)
			}
			p.Both(req)
			if again != (weir.Request{}) && r.IntN(2) == 0 {
				p.Both(again)
			}
			if req.ID != "" {
				again = req
			}
			switch id := strconv.Itoa(r.IntN(s + 1)); r.IntN(4) {
			case 0:
				p.Refund(id, path)
			case 1:
				p.Both(weir.Request{Key: req.Key, Op: weir.Settle, ID: id, Actual: weir.ActualCost(r.Int64N(12))})
			}
		}
		p.Same(rules, keys...)
		if t.Failed() {
			return
		}
	}
}

func checkMany(t *decisions.T) {
	l := t.Limiter(decisions.NewClock(),
		weir.Rule{Name: "a", Algorithm: algorithm.FixedWindow{Limit: 2, Window: time.Minute}}, weir.Rule{Name: "b", Algorithm: decisions.TenPerMinute})
	var requests []weir.Request
	fails := map[int]error{9: store.ErrForeign}
	for i := range 40 {
		req := weir.Request{Key: weir.KeyOf("many" + strconv.Itoa(i)), Cost: int64(i % 4)}
		switch i % 8 {
		case 3:
			req.Cost, req.ID = 2, "x"
		case 5:
			req.Cost, fails[i] = -1, weir.ErrInvalidCost
		case 6:
			req.Op = weir.TakeUpTo
		case 7:
			req.Op = weir.Peek
		}
		if i == 9 {
			t.Put(t.KeyOf("many9", "b", decisions.TenPerMinute), 1)
		}
		requests = append(requests, req)
	}
	answers := l.DoMany(t.Ctx, requests)
	if len(answers) != len(requests) {
		t.Fatalf("%d answers to %d requests", len(answers), len(requests))
	}
	for i, got := range answers {
		if err := fails[i]; err != nil {
			if !errors.Is(got.Err, err) || got.Result != (weir.Result{}) {
				t.Errorf("request %d: got %+v, want the error %v", i, got, err)
			}
			continue
		}
		req := requests[i]
		req.Key = weir.KeyOf("single" + strconv.Itoa(i))
		if want := t.Do(l, req); got.Err != nil || got.Result != want {
			t.Errorf("request %d: got %+v, want %+v", i, got, want)
		}
	}
	if got := l.DoMany(t.Ctx, nil); len(got) != 0 {
		t.Errorf("DoMany of no requests: %v", got)
	}
	refundAs(t, l, "x", true, "many3")
}

func checkLimits(t *decisions.T) {
	c := decisions.NewClock()
	l := t.Limiter(c,
		weir.Rule{Name: "plan", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 2}},
		weir.Rule{Name: "ring", Algorithm: decisions.Quarters},
		weir.Rule{Name: "day", Algorithm: algorithm.FixedWindow{Limit: 100, Window: 24 * time.Hour}})
	thirds := weir.Rule{Name: "plan", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 30}} // this limit has another script
	wider := weir.Rule{Name: "ring", Algorithm: algorithm.SlidingBuckets{Width: decisions.Quarters.Width, Spans: []algorithm.Span{{Window: 8 * decisions.Quarters.Width, Limit: 50}}}}
	five := weir.Rule{Name: "day", Algorithm: algorithm.FixedWindow{Limit: 5, Window: time.Hour}}
	ring := decisions.Quarters.Spans[0].Limit
	for i, step := range []struct {
		op     weir.Op
		cost   int64
		limits []weir.Rule
		want   [4]int64
	}{
		{weir.Consume, 2, nil, [4]int64{0, ring - 2, 98}},
		{weir.Peek, 1, []weir.Rule{thirds}, [4]int64{24, ring - 2, 98}}, // it is full after 2 s, as before
		{weir.Consume, 1, []weir.Rule{five, thirds}, [4]int64{23, ring - 3, 2}},
		{weir.Peek, 1, []weir.Rule{thirds, wider}, [4]int64{23, 50 - 3, 97}}, // the keys of the ring are the first keys of the wider ring
		{weir.Peek, 1, nil, [4]int64{0, ring - 3, 97}},
	} {
		if i == 3 { // a turn of a ring starts at a multiple of its length
			turn := 8 * decisions.Quarters.Width.Microseconds()
			if c.Micros%turn >= turn/2 {
				continue
			}
		}
		t.Equal(t.Remaining(t.With(l, step.limits...), step.op, step.cost, "k"), step.want, "step %d: %v are left, want %v", i)
	}
	// With can also change a Cost, and can be called again.
	costs := t.With(t.With(l, five), weir.Rule{Name: "day", Algorithm: five.Algorithm, Cost: 2}, thirds)
	t.Equal(t.Remaining(costs, weir.Consume, 1, "k"), [4]int64{22, ring - 4, 0}, "a day with the Cost 2: %v are left, want %v")
	t.Reset(costs, "k")
	t.Equal(t.Remaining(l, weir.Peek, 1, "k"), [4]int64{2, ring, 100}, "after Reset with other limits: %v are left, want %v")
	for i, rules := range [][]weir.Rule{
		{{Name: "none", Algorithm: decisions.TenPerMinute}}, {thirds, thirds}, {{Name: "day", Algorithm: decisions.TenPerMinute}},
		{{Name: "plan"}}, {{Name: "plan", By: []string{"s9"}, Algorithm: decisions.TenPerMinute}}, {{Name: "plan", Algorithm: decisions.TenPerMinute, Cost: -1}},
	} {
		if _, err := l.With(rules...); !errors.Is(err, weir.ErrInvalidRule) {
			t.Errorf("With bad rules %d: got error %v, want ErrInvalidRule", i, err)
		}
	}
	if _, err := l.With(weir.Rule{Name: "plan", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1)}}); !errors.Is(err, weir.ErrInvalidLimit) {
		t.Errorf("With an invalid limit: got error %v, want ErrInvalidLimit", err)
	}
	leaseLimits(t, c)
}

// leaseLimits checks that leases can be renewed and released with other limits.
func leaseLimits(t *decisions.T, c *decisions.Clock) {
	l := t.Limiter(c, decisions.One(algorithm.Concurrency{Limit: 2, Lease: 10 * time.Second}))
	longer := t.With(l, decisions.One(algorithm.Concurrency{Limit: 3, Lease: time.Minute}))
	lease := func(l *weir.Limiter, op weir.Op, id string, want bool) {
		if res := t.Do(l, weir.Request{Key: weir.KeyOf("lease"), Op: op, ID: id}); res.Allowed != want {
			t.Errorf("%v of lease %s: got %+v, want it allowed: %v", op, id, res, want)
		}
	}
	lease(l, weir.Consume, "a", true)
	lease(l, weir.Consume, "b", true)
	lease(l, weir.Consume, "c", false)
	lease(longer, weir.Consume, "c", true)
	lease(longer, weir.Renew, "a", true)
	lease(longer, weir.Renew, "z", false)
	c.Advance(30 * time.Second) // b has expired
	lease(l, weir.Renew, "b", false)
	lease(l, weir.Consume, "d", false)
	lease(longer, weir.Release, "c", true)
	lease(longer, weir.Release, "c", false)
	lease(l, weir.Consume, "d", true)
	t.Reset(longer, "lease")
	if res := t.Peek(l, 1, "lease"); res.Remaining != 2 {
		t.Errorf("after Reset with other limits: got %+v, want 2 leases free", res)
	}
}

func checkUnsupported(t *decisions.T) {
	log := algorithm.SlidingLog{Limit: 5, Window: time.Minute}
	list := algorithm.MetadataWindow{Limit: 5, Window: time.Minute}
	for _, tt := range []struct {
		name string
		a    algorithm.Algorithm
		r    weir.Request
	}{
		{"MaxWait", log, weir.Request{MaxWait: time.Second}},
		{"MaxWait", list, weir.Request{MaxWait: time.Second}},
		{"MaxWait", algorithm.FixedWindow{Limit: 5, Window: time.Minute}, weir.Request{MaxWait: time.Second}},
		{"MaxWait", decisions.Quarters, weir.Request{MaxWait: time.Second}},
		{"MaxWait", algorithm.SlidingCounter{Limit: 5, Window: time.Minute}, weir.Request{MaxWait: time.Second}},
		{"MaxWait", decisions.TenPerMinute, weir.Request{Op: weir.TakeUpTo, MaxWait: time.Second}},
		{"Request.ID", list, weir.Request{ID: "x"}},
		{"Request.Metadata", log, weir.Request{Metadata: "x"}},
		{"Renew", decisions.TenPerMinute, weir.Request{Op: weir.Renew, ID: "x"}},
		{"Release", decisions.TenPerMinute, weir.Request{Op: weir.Release, ID: "x"}},
		{"Refund", list, weir.Request{Op: weir.Refund, ID: "x"}},
		{"TakeUpTo", algorithm.Concurrency{Limit: 5, Lease: time.Minute}, weir.Request{Op: weir.TakeUpTo, ID: "x"}},
		{"Force", algorithm.Concurrency{Limit: 5, Lease: time.Minute}, weir.Request{Op: weir.Force, ID: "x"}},
		{"Force", decisions.TenPerMinute, weir.Request{Op: weir.Force, MaxWait: time.Second}},
		{"Refund", algorithm.Concurrency{Limit: 5, Lease: time.Minute}, weir.Request{Op: weir.Refund, ID: "x"}},
		{"Settle", algorithm.Concurrency{Limit: 5, Lease: time.Minute}, weir.Request{Op: weir.Settle, ID: "x", Actual: weir.ActualCost(1)}},
		{"Settle", list, weir.Request{Op: weir.Settle, ID: "x", Actual: weir.ActualCost(1)}},
		{"Op", decisions.TenPerMinute, weir.Request{Op: 77}},
	} {
		// The second rule supports the request, and must not consume tokens either.
		l := t.Limiter(decisions.NewClock(), decisions.One(tt.a), weir.Rule{Name: "two", Algorithm: decisions.TenPerMinute})
		tt.r.Key = weir.KeyOf("k")
		res, err := l.Decide(t.Ctx, tt.r, nil)
		if !errors.Is(err, weir.ErrUnsupported) || !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), tt.name) || res != (weir.Result{}) {
			t.Errorf("%s of %T: got %+v, %v, want an ErrUnsupported that names it", tt.name, tt.a, res, err)
		}
		cannot := tt.name == "MaxWait" && tt.r.Op == weir.Consume || tt.name == "Request.ID"
		if kind := t.KindOf(tt.a).Name; cannot && !strings.Contains(err.Error(), kind) {
			t.Errorf("%s of %T: got error %v, want it to name %s", tt.name, tt.a, err, kind)
		}
		t.Equal(t.Peek(l, 1, "k").Remaining, int64(5), "%s of %T: %d left, want %d", tt.name, tt.a)
	}
	own := t.Limiter(decisions.NewClock(), weir.Rule{Name: "one", Algorithm: decisions.TenPerMinute, Cost: 1}) // every rule has a Cost
	l := t.Limiter(decisions.NewClock(), decisions.One(list))
	request := weir.Request{Key: weir.KeyOf("k"), ID: "x"}
	for name, call := range map[string]func() error{
		"Refund":     func() error { _, err := l.Refund(t.Ctx, request); return err },
		"Reserve":    func() error { _, err := l.Reserve(t.Ctx, weir.Request{Key: weir.KeyOf("k")}); return err },
		"Wait":       func() error { _, err := l.Wait(t.Ctx, "k"); return err },
		"Acquire":    func() error { _, err := l.Acquire(t.Ctx, weir.Request{Key: weir.KeyOf("k")}); return err },
		"TryAcquire": func() error { _, err := l.TryAcquire(t.Ctx, weir.Request{Key: weir.KeyOf("k")}); return err },
		"Entries":    func() error { _, err := own.Entries(t.Ctx, "k"); return err },
		"TakeUpTo":   func() error { _, err := own.TakeUpTo(t.Ctx, 2, "own"); return err },
	} {
		if err := call(); !errors.Is(err, weir.ErrUnsupported) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got error %v, want an ErrUnsupported that names it", name, err)
		}
	}
}
