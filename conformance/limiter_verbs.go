package conformance

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

var verbChecks = []check{
	{"Refund", "Refund refunds, once, the tokens that a decision consumed from every rule, and deletes the markers", limiterRefund},
	{"Modes", "decisions over up to 16 rules consume and refund the same tokens as on the memory store", limiterModes},
	{"Many", "DoMany decides each request independently, and an invalid request does not affect the others", limiterMany},
	{"Limits", "With returns a limiter with other limits over the same state, on which every verb works", limiterLimits},
	{"Wait", "callers that wait go one at a time, never early, and each calls the store once", limiterWait},
	{"Refused", "a wait that cannot end before the deadline is denied at once, and consumes nothing", limiterRefused},
	{"Cancel", "a wait that is cancelled is refunded", limiterCancel},
	{"Unsupported", "if a request is not supported, the error is an ErrUnsupported that names the verb or the field, and nothing is consumed", limiterUnsupported},
}

// refundAs refunds the decision id at key, and checks whether that refunds anything.
func (t *T) refundAs(l *weir.Limiter, id string, want bool, key ...string) {
	if gave := t.do(l, weir.Request{Key: weir.KeyOf(key...), Op: weir.Refund, ID: id}).Allowed; gave != want {
		t.errorf("Refund of %q at %v: got %v, want %v", id, key, gave, want)
	}
}

func limiterRefund(t *T) {
	// This runs on the store's clock, with limits that refill no token during the check.
	rules := []weir.Rule{
		{Name: "all", By: []string{"s0"}, Algorithm: algorithm.FixedWindow{Limit: 10, Window: time.Hour}},
		{Name: "user", By: []string{"s0", "s1"}, Algorithm: algorithm.GCRA{Rate: algorithm.PerHour(5), Burst: 5}},
		{Name: "ring", By: []string{"s0", "s1"}, Algorithm: ringOf(time.Hour, 5)},
		{Name: "calls", By: []string{"s0", "s1"}, Algorithm: algorithm.SlidingLog{Limit: 3, Window: time.Hour}, Cost: 1},
	}
	l := t.limiter(nil, rules...)
	request := func(id string, cost int64) weir.Request {
		return weir.Request{Key: weir.KeyOf("r", "u"), Cost: cost, ID: id}
	}
	ask := func() [4]int64 { return t.remaining(l, weir.Peek, 1, "r", "u") }
	t.allow(l, 1, "r", "u")
	start := ask()
	if res := t.do(l, request("x", 2)); !res.Allowed {
		t.fatalf("got %+v, want it allowed", res)
	}
	markers := t.markersOf(request("x", 2), rules...)
	if len(markers) != len(rules) {
		t.errorf("%d markers, want one for each of %d rules", len(markers), len(rules))
	}
	for i, v := range t.mget(markers...) {
		if !strings.HasPrefix(v.Str(), "i2 ") {
			t.errorf("the marker %q holds %q", markers[i], v.Str())
		}
	}
	if t.backend.Keys != nil {
		n := 0
		for key, ttl := range t.keysLike("r}") {
			if strings.Contains(key, ":%id=") {
				n++
				if ttl <= 0 || ttl > 2*time.Hour {
					t.errorf("the marker %q expires in %v", key, ttl)
				}
			}
		}
		if n != len(rules) {
			t.errorf("%d markers, want one for each of %d rules", n, len(rules))
		}
	}
	// A lower cost is an error. It refunds nothing, and leaves the markers.
	before := ask()
	if gave, err := l.Refund(t.ctx, request("x", 1)); gave || !errors.Is(err, weir.ErrInvalidCost) {
		t.errorf("Refund with a Cost of 1, of a decision with a Cost of 2: got %v, %v, want ErrInvalidCost", gave, err)
	}
	if got := ask(); got != before {
		t.errorf("after a Refund with too low a Cost: %v are left, want %v", got, before)
	}
	for try, want := range []bool{true, false, false} {
		t.refundAs(l, "x", want, "r", "u")
		if got := ask(); got != start {
			t.errorf("after refund %d: %v are left, want %v", try, got, start)
		}
	}
	t.refundAs(l, "never", false, "r", "u")
	t.holds(store.Value{}, markers, "a marker after its refund")
	for key := range t.keysLike("r}") {
		if strings.Contains(key, ":%id=") {
			t.errorf("the marker %q is left", key)
		}
	}
	// A foreign value in place of a marker.
	marker := t.markersOf(request("y", 1), rules...)[1]
	t.put(marker, 7)
	if gave, err := l.Refund(t.ctx, request("y", 0)); !errors.Is(err, store.ErrForeign) || !strings.Contains(err.Error(), marker) {
		t.errorf("a foreign marker: got %v, %v, want an ErrForeign that names %q", gave, err, marker)
	}
	if got := ask(); got != start {
		t.errorf("after a refund with a foreign marker: %v are left, want %v", got, start)
	}
}

func limiterModes(t *T) {
	r := t.rand()
	for h := range t.times(8) {
		rules := make([]weir.Rule, pick(r, 2, 3, 4))
		if h%4 == 3 {
			rules = make([]weir.Rule, weir.MaxRules)
		}
		var unit time.Duration
		for i := range rules {
			a := refundable(r)
			rules[i] = weir.Rule{Name: "r" + strconv.Itoa(i), Algorithm: a}
			if i > 0 { // TakeUpTo needs a rule without a Cost
				rules[i].Cost = min(pick[int64](r, 0, 0, 0, 1, 2), t.limitOf(a).Capacity)
			}
			unit = unitOf(a)
		}
		c := newClock()
		p := t.pair(c, rules...)
		path := "modes" + strconv.Itoa(h)
		var keys []string
		var again weir.Request // the last request with an ID
		for _, rule := range rules {
			keys = append(keys, t.keysOf(path, rule.Name, rule.Algorithm)...)
		}
		for s := range 20 {
			c.advance(anyPause(r, unit))
			req := weir.Request{Key: weir.KeyOf(path), Cost: 1 + r.Int64N(9), Op: pick(r, weir.Consume, weir.TakeUpTo, weir.TakeUpTo, weir.Force)}
			if r.IntN(3) > 0 {
				req.ID = strconv.Itoa(s)
				keys = append(keys, t.markersOf(req, rules...)...)
			}
			p.both(req)
			if again != (weir.Request{}) && r.IntN(2) == 0 {
				p.both(again)
			}
			if req.ID != "" {
				again = req
			}
			switch id := strconv.Itoa(r.IntN(s + 1)); r.IntN(4) {
			case 0:
				p.refund(id, path)
			case 1:
				p.both(weir.Request{Key: req.Key, Op: weir.Settle, ID: id, Actual: weir.ActualCost(r.Int64N(12))})
			}
		}
		p.same(rules, keys...)
		if t.failed() {
			return
		}
	}
}

func limiterMany(t *T) {
	c := newClock()
	l := t.limiter(c, weir.Rule{Name: "a", Algorithm: algorithm.FixedWindow{Limit: 2, Window: time.Minute}}, weir.Rule{Name: "b", Algorithm: tenPerMinute})
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
			t.put(t.keyOf("many9", "b", tenPerMinute), 1)
		}
		requests = append(requests, req)
	}
	answers := l.DoMany(t.ctx, requests)
	if len(answers) != len(requests) {
		t.fatalf("%d answers to %d requests", len(answers), len(requests))
	}
	for i, got := range answers {
		if err := fails[i]; err != nil {
			if !errors.Is(got.Err, err) || got.Result != (weir.Result{}) {
				t.errorf("request %d: got %+v, want the error %v", i, got, err)
			}
			continue
		}
		req := requests[i]
		req.Key = weir.KeyOf("single" + strconv.Itoa(i))
		if want := t.do(l, req); got.Err != nil || got.Result != want {
			t.errorf("request %d: got %+v, want %+v", i, got, want)
		}
	}
	if got := l.DoMany(t.ctx, nil); len(got) != 0 {
		t.errorf("DoMany of no requests: %v", got)
	}
	t.refundAs(l, "x", true, "many3")
}

func limiterLimits(t *T) {
	c := newClock()
	l := t.limiter(c,
		weir.Rule{Name: "plan", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 2}},
		weir.Rule{Name: "ring", Algorithm: quarters},
		weir.Rule{Name: "day", Algorithm: algorithm.FixedWindow{Limit: 100, Window: 24 * time.Hour}})
	thirds := weir.Rule{Name: "plan", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 30}} // this limit has another script
	wider := weir.Rule{Name: "ring", Algorithm: algorithm.SlidingBuckets{Width: quarters.Width, Spans: []algorithm.Span{{Window: 8 * quarters.Width, Limit: 50}}}}
	five := weir.Rule{Name: "day", Algorithm: algorithm.FixedWindow{Limit: 5, Window: time.Hour}}
	ring := quarters.Spans[0].Limit
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
			turn := 8 * quarters.Width.Microseconds()
			if c.us%turn >= turn/2 {
				continue
			}
		}
		if got := t.remaining(t.with(l, step.limits...), step.op, step.cost, "k"); got != step.want {
			t.errorf("step %d: %v are left, want %v", i, got, step.want)
		}
	}
	// With can also change a Cost, and can be called again.
	costs := t.with(t.with(l, five), weir.Rule{Name: "day", Algorithm: five.Algorithm, Cost: 2}, thirds)
	if got, want := t.remaining(costs, weir.Consume, 1, "k"), [4]int64{22, ring - 4, 0}; got != want {
		t.errorf("a day with the Cost 2: %v are left, want %v", got, want)
	}
	t.reset(costs, "k")
	if got, want := t.remaining(l, weir.Peek, 1, "k"), [4]int64{2, ring, 100}; got != want {
		t.errorf("after Reset with other limits: %v are left, want %v", got, want)
	}
	for i, rules := range [][]weir.Rule{
		{{Name: "none", Algorithm: tenPerMinute}}, {thirds, thirds}, {{Name: "day", Algorithm: tenPerMinute}},
		{{Name: "plan"}}, {{Name: "plan", By: []string{"s9"}, Algorithm: tenPerMinute}}, {{Name: "plan", Algorithm: tenPerMinute, Cost: -1}},
	} {
		if _, err := l.With(rules...); !errors.Is(err, weir.ErrInvalidRule) {
			t.errorf("With bad rules %d: got error %v, want ErrInvalidRule", i, err)
		}
	}
	if _, err := l.With(weir.Rule{Name: "plan", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1)}}); !errors.Is(err, weir.ErrInvalidLimit) {
		t.errorf("With an invalid limit: got error %v, want ErrInvalidLimit", err)
	}
	t.leaseLimits(c)
}

// leaseLimits checks that leases can be renewed and released with other limits.
func (t *T) leaseLimits(c *clock) {
	l := t.limiter(c, one(algorithm.Concurrency{Limit: 2, Lease: 10 * time.Second}))
	longer := t.with(l, one(algorithm.Concurrency{Limit: 3, Lease: time.Minute}))
	lease := func(l *weir.Limiter, op weir.Op, id string, want bool) {
		if res := t.do(l, weir.Request{Key: weir.KeyOf("lease"), Op: op, ID: id}); res.Allowed != want {
			t.errorf("%v of lease %s: got %+v, want it allowed: %v", op, id, res, want)
		}
	}
	lease(l, weir.Consume, "a", true)
	lease(l, weir.Consume, "b", true)
	lease(l, weir.Consume, "c", false)
	lease(longer, weir.Consume, "c", true)
	lease(longer, weir.Renew, "a", true)
	lease(longer, weir.Renew, "z", false)
	c.advance(30 * time.Second) // b has expired
	lease(l, weir.Renew, "b", false)
	lease(l, weir.Consume, "d", false)
	lease(longer, weir.Release, "c", true)
	lease(longer, weir.Release, "c", false)
	lease(l, weir.Consume, "d", true)
	t.reset(longer, "lease")
	if res := t.peek(l, 1, "lease"); res.Remaining != 2 {
		t.errorf("after Reset with other limits: got %+v, want 2 leases free", res)
	}
}

func limiterUnsupported(t *T) {
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
		{"MaxWait", quarters, weir.Request{MaxWait: time.Second}},
		{"MaxWait", algorithm.SlidingCounter{Limit: 5, Window: time.Minute}, weir.Request{MaxWait: time.Second}},
		{"MaxWait", tenPerMinute, weir.Request{Op: weir.TakeUpTo, MaxWait: time.Second}},
		{"Request.ID", list, weir.Request{ID: "x"}},
		{"Request.Metadata", log, weir.Request{Metadata: "x"}},
		{"Renew", tenPerMinute, weir.Request{Op: weir.Renew, ID: "x"}},
		{"Release", tenPerMinute, weir.Request{Op: weir.Release, ID: "x"}},
		{"Refund", list, weir.Request{Op: weir.Refund, ID: "x"}},
		{"TakeUpTo", algorithm.Concurrency{Limit: 5, Lease: time.Minute}, weir.Request{Op: weir.TakeUpTo, ID: "x"}},
		{"Force", algorithm.Concurrency{Limit: 5, Lease: time.Minute}, weir.Request{Op: weir.Force, ID: "x"}},
		{"Force", tenPerMinute, weir.Request{Op: weir.Force, MaxWait: time.Second}},
		{"Refund", algorithm.Concurrency{Limit: 5, Lease: time.Minute}, weir.Request{Op: weir.Refund, ID: "x"}},
		{"Settle", algorithm.Concurrency{Limit: 5, Lease: time.Minute}, weir.Request{Op: weir.Settle, ID: "x", Actual: weir.ActualCost(1)}},
		{"Settle", list, weir.Request{Op: weir.Settle, ID: "x", Actual: weir.ActualCost(1)}},
		{"Op", tenPerMinute, weir.Request{Op: 77}},
	} {
		// The second rule supports the request, and must not consume tokens either.
		l := t.limiter(newClock(), one(tt.a), weir.Rule{Name: "two", Algorithm: tenPerMinute})
		tt.r.Key = weir.KeyOf("k")
		res, err := l.Decide(t.ctx, tt.r, nil)
		if !errors.Is(err, weir.ErrUnsupported) || !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), tt.name) || res != (weir.Result{}) {
			t.errorf("%s of %T: got %+v, %v, want an ErrUnsupported that names it", tt.name, tt.a, res, err)
		}
		cannot := tt.name == "MaxWait" && tt.r.Op == weir.Consume || tt.name == "Request.ID"
		if kind := t.kindOf(tt.a).Name; cannot && !strings.Contains(err.Error(), kind) {
			t.errorf("%s of %T: got error %v, want it to name %s", tt.name, tt.a, err, kind)
		}
		if left := t.peek(l, 1, "k").Remaining; left != 5 {
			t.errorf("%s of %T: %d left, want 5", tt.name, tt.a, left)
		}
	}
	own := t.limiter(newClock(), weir.Rule{Name: "one", Algorithm: tenPerMinute, Cost: 1}) // every rule has a Cost
	l := t.limiter(newClock(), one(list))
	request := weir.Request{Key: weir.KeyOf("k"), ID: "x"}
	for name, call := range map[string]func() error{
		"Refund":     func() error { _, err := l.Refund(t.ctx, request); return err },
		"Reserve":    func() error { _, err := l.Reserve(t.ctx, weir.Request{Key: weir.KeyOf("k")}); return err },
		"Wait":       func() error { _, err := l.Wait(t.ctx, "k"); return err },
		"Acquire":    func() error { _, err := l.Acquire(t.ctx, "k"); return err },
		"TryAcquire": func() error { _, err := l.TryAcquire(t.ctx, "k"); return err },
		"Entries":    func() error { _, err := own.Entries(t.ctx, "k"); return err },
		"TakeUpTo":   func() error { _, err := own.TakeUpTo(t.ctx, 2, "own"); return err },
	} {
		if err := call(); !errors.Is(err, weir.ErrUnsupported) || !strings.Contains(err.Error(), name) {
			t.errorf("%s: got error %v, want an ErrUnsupported that names it", name, err)
		}
	}
}
