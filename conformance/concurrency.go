package conformance

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

var concurrencyRules = []rule{
	{"Trace", "a lease of a Concurrency is over exactly Lease after it was taken", concurrencyTrace},
	{"Retried", "a request that is repeated under the same name holds one lease", concurrencyRetried},
	{"Renew", "who renews a lease keeps it, also when all places are taken, and none that is over", concurrencyRenew},
	{"Release", "a lease that is released frees its place at once", concurrencyRelease},
	{"LateRelease", "to release a lease that is over frees nobody else's place", concurrencyLateRelease},
	{"Crash", "leases that nobody renews or releases free their places one by one, as each is over", concurrencyCrash},
	{"Names", "a request names its lease in 1 to 128 bytes, any, and costs 1; one that asks needs no name", concurrencyNames},
	{"Bounded", "a Concurrency keeps at most Limit leases, those that are over among them", concurrencyBounded},
	{"Lowered", "under a lower Limit holders keep their leases, and nobody comes in before enough are over", concurrencyLowered},
	{"Layout", "a member that is no lease, or another type, is a foreign value to Concurrency", concurrencyLayout},
	{"History", "Concurrency answers as a plain list of leases does, and keeps what that keeps", func(t *T) { t.leaseHistories(t.times(24), false) }},
	{"Exact", "Concurrency denies 1µs before RetryAfter is over and admits when it is", concurrencyExact},
	{"HotKey", "of many concurrent callers exactly Limit hold a lease, and all places are free when they are released", concurrencyHotKey},
	{"Refill", "on the store's clock a denied caller gets a lease after RetryAfter, not before", concurrencyRefill},
	{"Backwards", "a clock that steps back extends no lease by more than the step, and admits nobody", concurrencyBackwards},
	{"Never", "to renew what is not held is denied for ever and changes nothing", concurrencyNever},
	{"TTL", "a key of leases lives as long as the last of them", concurrencyTTL},
}

// hold asks for a lease of that name.
func (t *T) hold(l *weir.Limiter, name string, path ...string) weir.Result {
	return t.do(l, weir.Request{Path: path, Cost: 1, Lease: name})
}

func (t *T) renew(l *weir.Limiter, name string, path ...string) weir.Result {
	res, err := l.Renew(t.ctx, name, path...)
	if err != nil {
		t.fatalf("Renew %q: %v", name, err)
	}
	return res
}

func (t *T) release(l *weir.Limiter, name string, path ...string) bool {
	held, err := l.Release(t.ctx, name, path...)
	if err != nil {
		t.fatalf("Release %q: %v", name, err)
	}
	return held
}

// free checks how many places are.
func (t *T) free(l *weir.Limiter, want int64, path ...string) {
	if got := t.peek(l, 1, path...); got.Remaining != want || got.Allowed != (want > 0) {
		t.errorf("got %+v, want %d places free", got, want)
	}
}

func concurrencyTrace(t *T) {
	c := newClock()
	l := t.limiter(c, one(algorithm.Concurrency{Limit: 2, Lease: 10 * time.Second}))
	start := c.us
	s, us := time.Second, time.Microsecond
	for i, step := range []struct {
		at    time.Duration
		name  string // of a lease to take, or "": to ask
		ok    bool
		left  int64
		reset time.Duration
		retry time.Duration
	}{
		{0, "", true, 2, 0, 0},
		{0, "a", true, 1, 10 * s, 0},
		{4 * s, "b", true, 0, 10 * s, 0},
		{4 * s, "", true, 0, 10 * s, 0},
		{5 * s, "c", false, 0, 9 * s, 5 * s},
		{10*s - us, "c", false, 0, 4*s + us, us},
		{10 * s, "c", true, 0, 10 * s, 0},
		{14*s - us, "a", false, 0, 6*s + us, us},
		{14 * s, "a", true, 0, 10 * s, 0},
		{24*s - us, "", true, 1, us, 0},
		{24 * s, "", true, 2, 0, 0},
		{24 * s, "d", true, 1, 10 * s, 0},
	} {
		c.us = start + step.at.Microseconds()
		req := weir.Request{Path: []string{"trace"}, Lease: step.name}
		if step.name != "" {
			req.Cost = 1
		}
		got := t.do(l, req)
		want := weir.Result{Allowed: step.ok, Limit: 2, Remaining: step.left, ResetAfter: step.reset, RetryAfter: step.retry, Rule: "one"}
		if step.ok {
			want.Granted = req.Cost
		}
		if got != want {
			t.errorf("step %d, lease %q at %v:\ngot  %+v\nwant %+v", i, step.name, step.at, got, want)
		}
	}
	many, err := l.PeekMany(t.ctx, [][]string{{"trace"}, {"nobody"}})
	if err != nil || len(many) != 2 || many[0] != t.peek(l, 1, "trace") || many[1] != t.peek(l, 1, "nobody") {
		t.errorf("PeekMany: got %+v, %v", many, err)
	}
}

func concurrencyRetried(t *T) {
	c := newClock()
	l := t.limiter(c, one(algorithm.Concurrency{Limit: 2, Lease: time.Minute}))
	for i := range 5 {
		if res := t.hold(l, "a", "k"); !res.Allowed || res.Granted != 1 || res.Remaining != 1 {
			t.errorf("try %d under one name: got %+v, want it to pass and leave 1", i, res)
		}
	}
	t.hold(l, "b", "k")
	if res := t.hold(l, "a", "k"); !res.Allowed || res.Remaining != 0 {
		t.errorf("a retry when all places are taken: got %+v, want it to pass", res)
	}
	if res := t.hold(l, "c", "k"); res.Allowed {
		t.errorf("a third name: got %+v", res)
	}
	if !t.release(l, "a", "k") {
		t.errorf("a lease asked for six times is not held")
	}
	t.free(l, 1, "k")
}

func concurrencyRenew(t *T) {
	c := newClock()
	l := t.limiter(c, one(algorithm.Concurrency{Limit: 1, Lease: 10 * time.Second}))
	t.hold(l, "a", "k")
	for i := range 4 {
		c.advance(9 * time.Second)
		if res := t.renew(l, "a", "k"); !res.Allowed || res.Remaining != 0 || res.ResetAfter != 10*time.Second {
			t.errorf("renewal %d: got %+v, want it to pass, for 10s more", i, res)
		}
		if res := t.hold(l, "b", "k"); res.Allowed || res.RetryAfter != 10*time.Second {
			t.errorf("after renewal %d, another: got %+v, want a wait of 10s", i, res)
		}
	}
	c.advance(10*time.Second - time.Microsecond)
	t.renew(l, "a", "k")
	c.advance(10 * time.Second)
	if res := t.renew(l, "a", "k"); res.Allowed || res.Remaining != 1 {
		t.errorf("a lease that is over just now was renewed: %+v", res)
	}
	t.hold(l, "b", "k")
	if res := t.renew(l, "a", "k"); res.Allowed {
		t.errorf("a lease that another has followed was renewed: %+v", res)
	}
}

func concurrencyRelease(t *T) {
	c := newClock()
	l := t.limiter(c, one(algorithm.Concurrency{Limit: 3, Lease: time.Minute}))
	for _, name := range []string{"a", "b", "c"} {
		c.advance(time.Second)
		t.hold(l, name, "k")
	}
	for i, name := range []string{"b", "c", "a"} {
		if !t.release(l, name, "k") {
			t.errorf("%q was held, and Release says that it was not", name)
		}
		t.free(l, int64(i+1), "k")
		if t.release(l, name, "k") {
			t.errorf("%q was released twice", name)
		}
		t.free(l, int64(i+1), "k")
	}
	if got := t.peek(l, 1, "k"); got.ResetAfter != 0 {
		t.errorf("with all leases released: got %+v, want it as new", got)
	}
	if n := t.eval(count, []string{t.key("k", "one")})[0].Int(); n != 0 {
		t.errorf("with all leases released the key holds %d", n)
	}
}

func concurrencyLateRelease(t *T) {
	c := newClock()
	l := t.limiter(c, one(algorithm.Concurrency{Limit: 2, Lease: 10 * time.Second}))
	t.hold(l, "a", "k")
	c.advance(9 * time.Second)
	t.hold(l, "b", "k")
	c.advance(time.Second)
	t.hold(l, "c", "k") // in the place of a, which is over
	for _, name := range []string{"a", "stranger", "c ", ""} {
		if held, err := l.Release(t.ctx, name, "k"); held || err != nil && !errors.Is(err, weir.ErrInvalidLease) {
			t.errorf("Release of %q, which holds nothing: got %v, %v", name, held, err)
		}
		t.free(l, 0, "k")
	}
	if !t.release(l, "b", "k") || !t.release(l, "c", "k") {
		t.errorf("the leases of b and c are gone")
	}
	t.hold(l, "d", "k")
	c.advance(10 * time.Second)
	if t.release(l, "d", "k") {
		t.errorf("a lease that is over was held until it was released")
	}
	t.free(l, 2, "k")
}

func concurrencyCrash(t *T) {
	c := newClock()
	l := t.limiter(c, one(algorithm.Concurrency{Limit: 30, Lease: time.Minute}))
	start := c.us
	for i := range 30 {
		c.us = start + int64(i)*1_000_000
		t.hold(l, strconv.Itoa(i), "k")
	}
	for i := range int64(30) {
		c.us = start + 60_000_000 + i*1_000_000 - 1
		t.free(l, i, "k")
		c.us++
		t.free(l, i+1, "k")
	}
	if res := t.hold(l, "next", "k"); !res.Allowed || res.Remaining != 29 || res.ResetAfter != time.Minute {
		t.errorf("after all: got %+v", res)
	}
}

func concurrencyNames(t *T) {
	c := newClock()
	l := t.limiter(c, one(algorithm.Concurrency{Limit: 20, Lease: time.Minute}))
	names := []string{
		"a", "A", " ", "a ", " a", "\x00", "a\x00", "\r\n", "\xff\xfe", "c1 a", "c1 ", "%d%s", "1", "01",
		strings.Repeat("x", algorithm.MaxLease), strings.Repeat("x", algorithm.MaxLease-1) + "y",
	}
	for i, name := range names {
		if res := t.hold(l, name, "k"); !res.Allowed || res.Remaining != int64(19-i) {
			t.errorf("%q: got %+v", name, res)
		}
	}
	for i, name := range names {
		if !t.renew(l, name, "k").Allowed || !t.release(l, name, "k") {
			t.errorf("%q is not held", name)
		}
		t.free(l, int64(5+i), "k")
	}
	for _, req := range []weir.Request{
		{Cost: 1}, {Cost: 1, Lease: strings.Repeat("x", algorithm.MaxLease+1)},
		{Cost: 2, Lease: "a"}, {Cost: 21, Lease: "a"},
	} {
		req.Path = []string{"k"}
		want := weir.ErrInvalidLease
		if req.Cost > 1 {
			want = weir.ErrInvalidCost
		}
		if _, err := l.Do(t.ctx, req); !errors.Is(err, want) {
			t.errorf("cost %d, a name of %d bytes: got error %v, want %v", req.Cost, len(req.Lease), err, want)
		}
	}
	t.free(l, 20, "k")
	if res := t.allow(l, 0, "k"); !res.Allowed || res.Remaining != 20 || res.Granted != 0 {
		t.errorf("cost 0: got %+v", res)
	}
}

func concurrencyBounded(t *T) {
	c := newClock()
	l := t.limiter(c, one(algorithm.Concurrency{Limit: 50, Lease: time.Minute}))
	holds := func(want int64) {
		if n := t.eval(count, []string{t.key("k", "one")})[0].Int(); n != want {
			t.errorf("the key holds %d leases, want %d", n, want)
		}
	}
	for i := range 50 {
		if i == 40 {
			c.advance(30 * time.Second)
		}
		t.hold(l, strconv.Itoa(i), "k")
	}
	c.advance(30 * time.Second) // 40 are over
	holds(50)
	t.free(l, 40, "k")
	t.hold(l, "45", "k") // a renewal adds none
	holds(50)
	for i, want := range []int64{35, 20, 13, 14} { // 16 go with each, and 8 with the third
		t.hold(l, "new"+strconv.Itoa(i), "k")
		holds(want)
	}
	t.hold(l, "39", "k") // which was over, and is gone
	holds(15)
	c.advance(time.Minute)
	t.hold(l, "last", "k")
	holds(1)
}

func concurrencyLowered(t *T) {
	c := newClock()
	five := t.limiter(c, one(algorithm.Concurrency{Limit: 5, Lease: time.Minute}))
	two := t.limiter(c, one(algorithm.Concurrency{Limit: 2, Lease: 10 * time.Second}))
	for i := range 5 {
		t.hold(five, strconv.Itoa(i), "k")
		c.advance(time.Second)
	}
	if res := t.hold(two, "x", "k"); res.Allowed || res.Remaining != 0 || res.RetryAfter != 58*time.Second {
		t.errorf("five held, and two allowed: got %+v, want a wait of 58s", res)
	}
	if res := t.allow(two, 0, "k"); res.Allowed || res.RetryAfter != 57*time.Second {
		t.errorf("five held, and two allowed: asking got %+v, want a wait of 57s", res)
	}
	if res := t.renew(two, "3", "k"); !res.Allowed || res.Remaining != 0 || res.ResetAfter != 59*time.Second {
		t.errorf("a renewal for 10s: got %+v, want it to pass, and no lease to be shorter", res)
	}
	if res := t.hold(five, "5", "k"); res.Allowed || res.RetryAfter != 55*time.Second {
		t.errorf("five held, and five allowed: got %+v", res)
	}
}

func concurrencyLayout(t *T) {
	c := newClock()
	own := algorithm.Concurrency{Limit: 3, Lease: time.Minute}
	l := t.limiter(c, one(own))
	spoil := map[string]func(key string){"Nums": func(key string) { t.put(key, 1) }}
	for i, text := range []string{"c1", "c2 a", "l1 1767225600000000 00000001", "x", " c1 a", "C1 a"} {
		spoil["layout"+strconv.Itoa(i)] = func(key string) {
			t.setStep(key, setChange{add: store.Member{Score: c.us + 1, Text: text}})
		}
	}
	for path, make := range spoil {
		key := t.key(path, "one")
		make(key)
		for name, call := range map[string]func() error{
			"Do": func() error {
				_, err := l.Do(t.ctx, weir.Request{Path: []string{path}, Cost: 1, Lease: "a"})
				return err
			},
			"AllowN 0": func() error { _, err := l.AllowN(t.ctx, 0, path); return err },
			"Peek":     func() error { _, err := l.Peek(t.ctx, path); return err },
			"Renew":    func() error { _, err := l.Renew(t.ctx, "a", path); return err },
			"Release":  func() error { _, err := l.Release(t.ctx, "a", path); return err },
			"Reset":    func() error { return l.Reset(t.ctx, path) },
		} {
			err := call()
			if !errors.Is(err, store.ErrForeign) || errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), `"`+key+`"`) {
				t.errorf("%s on %s: got error %v, want an ErrForeign that names %q", name, path, err, key)
			}
		}
	}
}

// leaseHistories runs n random histories of leases, alone or mixed with a rate: then
// both are taken or none, and the lease's rule has a cost of its own.
func (t *T) leaseHistories(n int, mixed bool) {
	r := t.rand()
	for h := range n {
		a := anyConcurrency(r)
		m := newModel(a).(*leased)
		names, models, costs := []string{"lease"}, []model{m}, []int64{0}
		rules := []weir.Rule{{Name: "lease", Algorithm: a}}
		if mixed {
			rate := pick(r, anyGCRA, anyFixedWindow, anySlidingLog)(r)
			rules[0].Cost = 1
			rules = append(rules, weir.Rule{Name: "rate", Algorithm: rate})
			names, models, costs = append(names, "rate"), append(models, newModel(rate)), append(costs, 0)
		}
		c := newClock()
		l := t.limiter(c, rules...)
		each := make([]weir.Result, len(rules))
		path := []string{"leases", strconv.Itoa(h)}
		who := []string{"a", "7", "\x00", "c1 a", " ", strings.Repeat("\xff", algorithm.MaxLease), "x", "y", "z"}
		who = who[:min(int64(len(who)), a.Limit+2)]
		for s := range 50 {
			c.advance(anyPause(r, unitOf(a)))
			m.name, m.only = pick(r, who...), false
			switch verb := r.IntN(8); {
			case verb == 0:
				if got, want := t.release(l, m.name, path...), m.release(c.us, m.name); got != want {
					t.errorf("history %d of %+v, step %d: Release of %q: got %v, want %v", h, rules, s, m.name, got, want)
				}
				continue
			case verb == 1 && !mixed:
				m.only = true
				got := t.renew(l, m.name, path...)
				want, _ := decide(names, models, c.us, []int64{1}, 1, true)
				got.Granted, want.Granted = 0, 0
				if got != want {
					t.errorf("history %d of %+v, step %d: Renew of %q:\ngot  %+v\nwant %+v", h, rules, s, m.name, got, want)
				}
				continue
			}
			req := weir.Request{Path: path, Cost: pick[int64](r, 0, 1, 1, 1, 1), Peek: r.IntN(6) == 0, Each: each}
			if mixed {
				req.Cost = pick(r, 0, 1, 1, 2, r.Int64N(8))
			}
			if req.Peek || req.Cost == 0 {
				m.name = pick(r, m.name, "")
			}
			req.Lease = m.name
			costs[0] = req.Cost
			if mixed {
				costs[0], costs[1] = 1, req.Cost
			}
			got := t.do(l, req)
			want, wantEach := decide(names, models, c.us, costs, req.Cost, req.Cost > 0 && !req.Peek)
			if got != want {
				t.errorf("history %d of %+v, step %d, %+v:\ngot  %+v\nwant %+v", h, rules, s, req, got, want)
				return
			}
			for i := range each {
				if each[i] != wantEach[i] {
					t.errorf("history %d of %+v, step %d, %+v, rule %d:\ngot  %+v\nwant %+v", h, rules, s, req, i, each[i], wantEach[i])
					return
				}
			}
		}
		key := t.key("leases:"+path[1], "lease")
		if n := t.eval(count, []string{key})[0].Int(); n != int64(len(m.all)) {
			t.errorf("history %d of %+v: the key holds %d leases, want %d", h, rules, n, len(m.all))
		}
	}
}

// leaseAndRefund takes a lease beside a rate, as much of which as there is, and
// gives each back on its own.
func (t *T) leaseAndRefund() {
	l := t.limiter(newClock(),
		weir.Rule{Name: "rate", Algorithm: algorithm.FixedWindow{Limit: 10, Window: time.Minute}},
		weir.Rule{Name: "lease", Algorithm: algorithm.Concurrency{Limit: 2, Lease: time.Minute}, Cost: 1})
	each := make([]weir.Result, 2)
	free := func(what string, rate, leases int64) {
		t.do(l, weir.Request{Path: []string{"both"}, Cost: 1, Peek: true, Each: each})
		if each[0].Remaining != rate || each[1].Remaining != leases {
			t.errorf("%s: %d tokens and %d places are left, want %d and %d", what, each[0].Remaining, each[1].Remaining, rate, leases)
		}
	}
	t.do(l, weir.Request{Path: []string{"both"}, Cost: 4, Lease: "a"})
	free("with 4 taken", 6, 1)
	if res := t.do(l, weir.Request{Path: []string{"both"}, Cost: 9, UpTo: true, Lease: "b", ID: "2"}); !res.Allowed || res.Granted != 6 {
		t.errorf("up to 9 of 6, with a lease: got %+v, want 6 granted", res)
	}
	free("with all taken", 0, 0)
	if res := t.do(l, weir.Request{Path: []string{"both"}, Cost: 9, UpTo: true, Lease: "c", ID: "3"}); res.Allowed {
		t.errorf("with all taken: got %+v", res)
	}
	for try, want := range []bool{true, false} {
		if gave, err := l.Refund(t.ctx, "2", "both"); err != nil || gave != want {
			t.errorf("refund %d beside a lease: got %v, %v, want %v", try, gave, err, want)
		}
	}
	free("after a refund", 6, 0)
	if res := t.do(l, weir.Request{Path: []string{"both"}, Cost: 1, UpTo: true, Lease: "c"}); res.Allowed || res.Rule != "lease" {
		t.errorf("with no place free: got %+v, want a denial by the lease", res)
	}
	if !t.release(l, "a", "both") || t.release(l, "2", "both") {
		t.errorf("a lease was not released by its name, or was by an ID")
	}
	free("after a release", 6, 1)
}

func concurrencyExact(t *T) {
	r := t.rand()
	for h, denials := 0, 0; denials < t.times(40); h++ {
		if h == 600 {
			t.fatalf("only %d denials in %d histories", denials, h)
		}
		a := anyConcurrency(r)
		c := newClock()
		l := t.limiter(c, one(a))
		path := []string{"exact", strconv.Itoa(h)}
		for i := range 12 {
			c.advance(max(anyPause(r, unitOf(a))/4, 0))
			name := strconv.Itoa(i)
			res := t.hold(l, name, path...)
			if res.Allowed {
				continue
			}
			denials++
			if res.RetryAfter <= 0 {
				t.errorf("%+v: denied, and to come back in %v", a, res.RetryAfter)
			}
			c.advance(res.RetryAfter - time.Microsecond)
			if early := t.hold(l, name, path...); early.Allowed || early.RetryAfter != time.Microsecond {
				t.errorf("%+v: 1µs before a RetryAfter of %v: got %+v, want a denial for 1µs more", a, res.RetryAfter, early)
			}
			c.advance(time.Microsecond)
			if due := t.hold(l, name, path...); !due.Allowed {
				t.errorf("%+v: after a RetryAfter of %v: got %+v, want it to pass", a, res.RetryAfter, due)
			}
		}
	}
}

func concurrencyHotKey(t *T) {
	const workers, each, limit = 8, 20, 50
	l := t.limiter(nil, one(algorithm.Concurrency{Limit: limit, Lease: time.Hour}))
	var held atomic.Int64
	var wg sync.WaitGroup
	holders := make([][]string, workers)
	for w := range workers {
		t.goes(&wg, func() {
			for i := range each {
				name := strconv.Itoa(w) + "/" + strconv.Itoa(i)
				got := weir.Result{}
				for range 1 + i%2 { // every other one tries twice
					var err error
					if got, err = l.Do(t.ctx, weir.Request{Path: []string{"hot"}, Cost: 1, Lease: name}); err != nil {
						t.errorf("Do: %v", err)
						return
					}
				}
				if got.Allowed {
					held.Add(1)
					holders[w] = append(holders[w], name)
				}
			}
		})
	}
	wg.Wait()
	if t.failed() {
		return
	}
	if n := held.Load(); n != limit {
		t.errorf("%d asked at once: %d hold a lease, want exactly %d", workers*each, n, limit)
	}
	t.free(l, 0, "hot")
	for w := range workers {
		t.goes(&wg, func() {
			for _, name := range holders[w] {
				if ok, err := l.Release(t.ctx, name, "hot"); err != nil || !ok {
					t.errorf("Release of %q, which is held: %v, %v", name, ok, err)
				}
			}
		})
	}
	wg.Wait()
	t.free(l, limit, "hot")
}

// concurrencyRefill really waits, on the store's clock.
func concurrencyRefill(t *T) {
	a := algorithm.Concurrency{Limit: 3, Lease: 300 * time.Millisecond}
	l := t.limiter(nil, one(a))
	var denied weir.Result
	var before time.Time
	for try := 0; ; try++ {
		if try == 60 {
			t.fatalf("%+v: of 60 that asked nobody was denied", a)
		}
		before = t.time()
		if denied = t.hold(l, "taken"+strconv.Itoa(try), "refill"); !denied.Allowed {
			break
		}
	}
	t.passesWhenDue(a, denied, before, func() weir.Result { return t.hold(l, "late", "refill") })
}

func concurrencyBackwards(t *T) {
	for i, back := range []time.Duration{time.Microsecond, 300 * time.Millisecond, 5 * time.Second, time.Hour} {
		c := newClock()
		l := t.limiter(c, one(algorithm.Concurrency{Limit: 3, Lease: time.Minute}))
		path := []string{"back", strconv.Itoa(i)}
		for n := range 6 { // the first three are over, and then gone
			if n == 3 {
				c.advance(time.Minute)
			}
			t.hold(l, strconv.Itoa(n), path...)
		}
		still := t.hold(l, "x", path...).RetryAfter
		c.advance(-back)
		if res := t.hold(l, "x", path...); res.Allowed || res.RetryAfter > still+back {
			t.errorf("all places taken, denied for %v; the clock steps back by %v: got %+v", still, back, res)
		}
		for n := range 3 {
			if name := strconv.Itoa(n); t.renew(l, name, path...).Allowed {
				t.errorf("a step back by %v: lease %s is held, whose place another has", back, name)
			}
		}
		if res := t.renew(l, "4", path...); !res.Allowed {
			t.errorf("a step back by %v: a lease that is held was not renewed: %+v", back, res)
		}
		c.advance(back + still - time.Microsecond)
		if res := t.hold(l, "x", path...); res.Allowed {
			t.errorf("the step back by %v shortened the wait of %v", back, still)
		}
		c.advance(time.Microsecond)
		if res := t.hold(l, "x", path...); !res.Allowed {
			t.errorf("the step back by %v made the wait of %v longer once undone: %+v", back, still, res)
		}
	}
}

func concurrencyNever(t *T) {
	c := newClock()
	l := t.limiter(c, one(algorithm.Concurrency{Limit: 2, Lease: time.Minute}))
	for taken := range int64(3) {
		want := weir.Result{Limit: 2, Remaining: 2 - taken, RetryAfter: weir.Never, Rule: "one"}
		if taken > 0 {
			want.ResetAfter = time.Minute
		}
		if got := t.renew(l, "stranger", "k"); got != want {
			t.errorf("a renewal of what nobody holds, with %d held:\ngot  %+v\nwant %+v", taken, got, want)
		}
		if n := t.eval(count, []string{t.key("k", "one")})[0].Int(); n != taken {
			t.errorf("a renewal that was denied, with %d held: the key holds %d", taken, n)
		}
		t.hold(l, strconv.FormatInt(taken, 10), "k")
	}
}

func concurrencyTTL(t *T) {
	t.left()
	for longer, c := range map[time.Duration]*clock{0: nil, time.Hour: newClock()} {
		name := "ttl" + strconv.Itoa(int(longer))
		l := t.limiter(c, weir.Rule{Name: name, Algorithm: algorithm.Concurrency{Limit: 5, Lease: 20_000_001 * time.Microsecond}})
		began := time.Now()
		for i, step := range []func(){
			func() { t.hold(l, "a", "k") },
			func() { t.hold(l, "b", "k") },
			func() { time.Sleep(4 * time.Millisecond); t.hold(l, "a", "k") },
			func() { time.Sleep(4 * time.Millisecond); t.renew(l, "b", "k") },
			func() { t.release(l, "a", "k") },
			func() { t.renew(l, "stranger", "k") },
		} {
			begin := time.Now()
			step()
			want := t.peek(l, 1, "k").ResetAfter + longer
			got, found := t.left()[t.key("k", name)]
			slop := time.Since(begin)
			if c != nil {
				slop = time.Minute // on a virtual clock the TTL alone runs on
			}
			if !found || got > want+2*time.Millisecond+time.Since(began) || got < want-slop-time.Millisecond {
				t.errorf("step %d, %v longer: the key lives %v, and its last lease %v", i, longer, got, want)
			}
		}
		if err := l.Reset(t.ctx, "k"); err != nil {
			t.errorf("Reset: %v", err)
		}
	}
}

// anyConcurrency returns a random Concurrency.
func anyConcurrency(r *rand.Rand) algorithm.Concurrency {
	return algorithm.Concurrency{
		Limit: pick(r, 1, 2, 3, 5, 1+r.Int64N(7)),
		Lease: pick(r, time.Microsecond, 7*time.Microsecond, time.Millisecond, time.Second, time.Minute, 24*time.Hour),
	}
}
