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
	{"Trace", "a lease of a Concurrency expires exactly Lease after it was acquired", concurrencyTrace},
	{"Retried", "a request that is repeated under the same name holds one lease", concurrencyRetried},
	{"Renew", "a lease that is renewed is kept, even if all places are taken, and an expired lease is not renewed", concurrencyRenew},
	{"Release", "a lease that is released frees its place at once", concurrencyRelease},
	{"LateRelease", "releasing an expired lease frees nobody else's place", concurrencyLateRelease},
	{"Crash", "leases that are neither renewed nor released free their places one by one, as each expires", concurrencyCrash},
	{"Names", "a lease has a name of 1 to 128 bytes of any value, and costs 1; Peek needs no name", concurrencyNames},
	{"Bounded", "a Concurrency keeps at most Limit leases, expired ones included", concurrencyBounded},
	{"Lowered", "under a lower Limit holders keep their leases, and a new lease is denied until enough have expired", concurrencyLowered},
	{"Layout", "a member that is no lease, or another type, is an ErrForeign", concurrencyLayout},
	{"History", "Concurrency answers as a plain list of leases does, and keeps as many", func(t *T) { t.leaseHistories(t.times(24), false) }},
	{"Exact", "a request denied by Concurrency is denied until 1µs before RetryAfter is over, and passes when it is over", concurrencyExact},
	{"HotKey", "of many concurrent callers exactly Limit hold a lease, and all places are free when they are released", concurrencyHotKey},
	{"Refill", "on the store's clock, a request denied by Concurrency passes when RetryAfter is over, and not before", concurrencyRefill},
	{"Backwards", "a clock that steps back lengthens no lease by more than the step, and frees no place", concurrencyBackwards},
	{"Never", "renewing a lease that is not held is denied with Never, and changes nothing", concurrencyNever},
	{"TTL", "a key of leases lives as long as the last of them", concurrencyTTL},
}

// hold asks for a lease of that name.
func (t *T) hold(l *weir.Limiter, name string, key ...string) weir.Result {
	return t.do(l, weir.Request{Key: weir.KeyOf(key...), ID: name})
}

func (t *T) renew(l *weir.Limiter, name string, key ...string) weir.Result {
	return t.do(l, weir.Request{Key: weir.KeyOf(key...), Op: weir.Renew, ID: name})
}

// release reports whether the lease was held.
func (t *T) release(l *weir.Limiter, name string, key ...string) bool {
	return t.do(l, weir.Request{Key: weir.KeyOf(key...), Op: weir.Release, ID: name}).Allowed
}

// free checks how many places are free.
func (t *T) free(l *weir.Limiter, want int64, key ...string) {
	if got := t.peek(l, 1, key...); got.Remaining != want || got.Allowed != (want > 0) {
		t.errorf("got %+v, want %d places free", got, want)
	}
}

// leases checks how many leases the key of a holds, expired ones included.
func (t *T) leases(a algorithm.Algorithm, what string, want int64) {
	if n := t.eval(count, []string{t.keyOf("k", "one", a)})[0].Int(); n != want {
		t.errorf("%s: the key holds %d leases, want %d", what, n, want)
	}
}

func concurrencyTrace(t *T) {
	c := newClock()
	l := t.limiter(c, one(algorithm.Concurrency{Limit: 2, Lease: 10 * time.Second}))
	start := c.us
	s, us := time.Second, time.Microsecond
	for i, step := range []struct {
		at    time.Duration
		name  string // of the lease to acquire; "": a Peek
		ok    bool
		left  int64
		reset time.Duration
		retry time.Duration
	}{
		{0, "", true, 2, 0, 0},
		{0, "a", true, 1, 10 * s, 0},
		{4 * s, "b", true, 0, 10 * s, 0},
		{4 * s, "", false, 0, 10 * s, 6 * s},
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
		req := weir.Request{Key: weir.KeyOf("trace"), ID: step.name}
		if step.name == "" {
			req.Op = weir.Peek
		}
		got := t.do(l, req)
		want := weir.Result{Allowed: step.ok, Limit: 2, Remaining: step.left, ResetAfter: step.reset, RetryAfter: step.retry, Rule: "one"}
		switch {
		case !step.ok:
			want.Delay = weir.Never
		case step.name != "":
			want.Granted = 1
		}
		if got != want {
			t.errorf("step %d, lease %q at %v:\ngot  %+v\nwant %+v", i, step.name, step.at, got, want)
		}
	}
	keys := [][]string{{"trace"}, {"nobody"}}
	for i, got := range l.DoMany(t.ctx, peeks(keys)) {
		if want := t.peek(l, 1, keys[i]...); got.Err != nil || got.Result != want {
			t.errorf("DoMany: got %+v, want %+v", got, want)
		}
	}
	if got, want := t.do(l, weir.Request{Key: weir.KeyOf("trace"), Op: weir.Peek, ID: "d"}), t.peek(l, 1, "trace"); got != want {
		t.errorf("Peek with the name of a lease: got %+v, want %+v", got, want)
	}
}

func concurrencyRetried(t *T) {
	c := newClock()
	l := t.limiter(c, one(algorithm.Concurrency{Limit: 2, Lease: time.Minute}))
	for i := range 5 {
		if res := t.hold(l, "a", "k"); !res.Allowed || res.Granted != 1 || res.Remaining != 1 {
			t.errorf("try %d under one name: got %+v, want it allowed with 1 left", i, res)
		}
	}
	t.hold(l, "b", "k")
	if res := t.hold(l, "a", "k"); !res.Allowed || res.Remaining != 0 {
		t.errorf("a retry when all places are taken: got %+v, want it allowed", res)
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
			t.errorf("renewal %d: got %+v, want it allowed, for 10s more", i, res)
		}
		if res := t.hold(l, "b", "k"); res.Allowed || res.RetryAfter != 10*time.Second {
			t.errorf("after renewal %d, another: got %+v, want a wait of 10s", i, res)
		}
	}
	c.advance(10*time.Second - time.Microsecond)
	t.renew(l, "a", "k")
	c.advance(10 * time.Second)
	if res := t.renew(l, "a", "k"); res.Allowed || res.Remaining != 1 {
		t.errorf("a lease that expires now was renewed: %+v", res)
	}
	t.hold(l, "b", "k")
	if res := t.renew(l, "a", "k"); res.Allowed {
		t.errorf("a lease whose place another has was renewed: %+v", res)
	}
}

func concurrencyRelease(t *T) {
	c := newClock()
	a := algorithm.Concurrency{Limit: 3, Lease: time.Minute}
	l := t.limiter(c, one(a))
	for _, name := range []string{"a", "b", "c"} {
		c.advance(time.Second)
		t.hold(l, name, "k")
	}
	for i, name := range []string{"b", "c", "a"} {
		if !t.release(l, name, "k") {
			t.errorf("%q was held, and Release reports that it was not", name)
		}
		t.free(l, int64(i+1), "k")
		if t.release(l, name, "k") {
			t.errorf("%q was released twice", name)
		}
		t.free(l, int64(i+1), "k")
	}
	if got := t.peek(l, 1, "k"); got.ResetAfter != 0 {
		t.errorf("with all leases released: got %+v, want it fully reset", got)
	}
	t.leases(a, "with all leases released", 0)
}

func concurrencyLateRelease(t *T) {
	c := newClock()
	l := t.limiter(c, one(algorithm.Concurrency{Limit: 2, Lease: 10 * time.Second}))
	t.hold(l, "a", "k")
	c.advance(9 * time.Second)
	t.hold(l, "b", "k")
	c.advance(time.Second)
	t.hold(l, "c", "k") // in the place of a, which has expired
	for _, name := range []string{"a", "stranger", "c "} {
		if t.release(l, name, "k") {
			t.errorf("the release of %q, which is not held, reports that it was", name)
		}
		t.free(l, 0, "k")
	}
	if !t.release(l, "b", "k") || !t.release(l, "c", "k") {
		t.errorf("the leases of b and c are gone")
	}
	t.hold(l, "d", "k")
	c.advance(10 * time.Second)
	if t.release(l, "d", "k") {
		t.errorf("the release of an expired lease reports that it was held")
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
		t.errorf("after all: got %+v, want it allowed with 29 left", res)
	}
}

func concurrencyNames(t *T) {
	c := newClock()
	l := t.limiter(c, one(algorithm.Concurrency{Limit: 20, Lease: time.Minute}))
	names := []string{
		"a", "A", " ", "a ", " a", "\x00", "a\x00", "\r\n", "\xff\xfe", "c2 a", "c2 ", "%d%s", "1", "01",
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
	for _, tt := range []struct {
		req  weir.Request
		want error
	}{
		{weir.Request{}, weir.ErrInvalidLease},
		{weir.Request{Op: weir.Renew}, weir.ErrInvalidLease},
		{weir.Request{Op: weir.Release}, weir.ErrInvalidLease},
		{weir.Request{ID: strings.Repeat("x", algorithm.MaxLease+1)}, weir.ErrInvalidLease},
		{weir.Request{ID: strings.Repeat("x", algorithm.MaxLease+1), Op: weir.Release}, weir.ErrInvalidLease},
		{weir.Request{ID: "a", Cost: 2}, weir.ErrInvalidCost},
		{weir.Request{ID: "a", Cost: 20}, weir.ErrInvalidCost},
		{weir.Request{ID: "a", Op: weir.TakeUpTo, Cost: 2}, weir.ErrUnsupported},
		{weir.Request{ID: "a", Op: weir.Refund}, weir.ErrUnsupported},
	} {
		tt.req.Key = weir.KeyOf("k")
		if res, err := l.Decide(t.ctx, tt.req, nil); !errors.Is(err, tt.want) {
			t.errorf("%v of cost %d, a name of %d bytes: got %+v, %v, want %v", tt.req.Op, tt.req.Cost, len(tt.req.ID), res, err, tt.want)
		}
	}
	if res := t.do(l, weir.Request{Key: weir.KeyOf("k"), ID: "a", Cost: 21}); res.Allowed || res.RetryAfter != weir.Never {
		t.errorf("cost 21 of 20: got %+v, want a denial with Never", res)
	}
	t.free(l, 20, "k")
}

func concurrencyBounded(t *T) {
	c := newClock()
	a := algorithm.Concurrency{Limit: 50, Lease: time.Minute}
	l := t.limiter(c, one(a))
	holds := func(want int64) { t.leases(a, "of 50", want) }
	for i := range 50 {
		if i == 40 {
			c.advance(30 * time.Second)
		}
		t.hold(l, strconv.Itoa(i), "k")
	}
	c.advance(30 * time.Second) // 40 expire
	holds(50)
	t.free(l, 40, "k")
	t.hold(l, "45", "k") // renews
	holds(50)
	for i, want := range []int64{35, 20, 13, 14} { // 16 go with each, and 8 with the third
		t.hold(l, "new"+strconv.Itoa(i), "k")
		holds(want)
	}
	t.hold(l, "39", "k") // which had expired, and was removed
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
		t.errorf("five held under a limit of two: got %+v, want a RetryAfter of 58s", res)
	}
	if res := t.peek(two, 1, "k"); res.Allowed || res.RetryAfter != 58*time.Second {
		t.errorf("five held under a limit of two: Peek got %+v, want a RetryAfter of 58s", res)
	}
	if res := t.renew(two, "3", "k"); !res.Allowed || res.Remaining != 0 || res.ResetAfter != 59*time.Second {
		t.errorf("a renewal for 10s: got %+v, want it allowed, and no lease shorter", res)
	}
	if res := t.hold(five, "5", "k"); res.Allowed || res.RetryAfter != 55*time.Second {
		t.errorf("five held under a limit of five: got %+v, want a RetryAfter of 55s", res)
	}
}

func concurrencyLayout(t *T) {
	c := newClock()
	own := algorithm.Concurrency{Limit: 3, Lease: time.Minute}
	l := t.limiter(c, one(own))
	spoil := map[string]func(key string){"number": func(key string) { t.put(key, 1) }}
	for i, text := range []string{"c2", "c1 a", "l2 1767225600000000 00000001", "x", " c2 a", "C2 a"} {
		spoil["layout"+strconv.Itoa(i)] = func(key string) {
			t.setStep(key, setChange{add: store.Member{Score: c.us + 1, Text: text}})
		}
	}
	for name, make := range spoil {
		key := t.keyOf(name, "one", own)
		make(key)
		for _, req := range []weir.Request{{ID: "a"}, {Op: weir.Peek}, {Op: weir.Renew, ID: "a"}, {Op: weir.Release, ID: "a"}, {Op: weir.Reset}} {
			req.Key = weir.KeyOf(name)
			_, err := l.Decide(t.ctx, req, nil)
			if !errors.Is(err, store.ErrForeign) || errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), `"`+key+`"`) {
				t.errorf("%v, %s: got error %v, want an ErrForeign that names %q", req.Op, name, err, key)
			}
		}
	}
}

// leaseHistories runs n random histories of leases, alone or with a rate. With a rate,
// both are consumed or neither is, and the rule of the leases has a Cost of its own.
func (t *T) leaseHistories(n int, mixed bool) {
	r := t.rand()
	for h := range n {
		a := anyConcurrency(r)
		m := newModel(a).(*leased)
		models := []model{m}
		rules := []weir.Rule{{Name: "lease", Algorithm: a}}
		if mixed {
			rate := pick(r, anyGCRA, anyFixedWindow, anySlidingLog)(r)
			rules[0].Cost = 1
			rules = append(rules, weir.Rule{Name: "rate", Algorithm: rate})
			models = append(models, newModel(rate))
		}
		c := newClock()
		l := t.limiter(c, rules...)
		each := make([]weir.Result, len(rules))
		name := "leases" + strconv.Itoa(h)
		key := weir.KeyOf(name)
		who := []string{"a", "7", "\x00", "c2 a", " ", strings.Repeat("\xff", algorithm.MaxLease), "x", "y", "z"}
		who = who[:min(int64(len(who)), a.Limit+2)]
		for s := range 50 {
			c.advance(anyPause(r, unitOf(a)))
			m.name, m.renew = pick(r, who...), false
			switch verb := r.IntN(8); verb {
			case 0:
				if got, want := t.release(l, m.name, name), m.release(c.us, m.name); got != want {
					t.errorf("history %d of %+v, step %d: the release of %q: got %v, want %v", h, rules, s, m.name, got, want)
				}
				continue
			case 1: // it is about the leases alone
				m.renew = true
				got := t.renew(l, m.name, name)
				want, _ := decide(rules[:1], models[:1], c.us, weir.Request{})
				if want.Granted = 0; got != want {
					t.errorf("history %d of %+v, step %d: the renewal of %q:\ngot  %+v\nwant %+v", h, rules, s, m.name, got, want)
				}
				continue
			}
			req := weir.Request{Key: key, Op: pick(r, weir.Consume, weir.Consume, weir.Consume, weir.Consume, weir.Peek), Cost: pick[int64](r, 0, 1)}
			if mixed {
				req.Cost = pick(r, 0, 1, 1, 2, r.Int64N(8))
			}
			if req.Op == weir.Peek {
				m.name = pick(r, m.name, "")
			}
			req.ID = m.name
			got := t.do(l, req, each...)
			want, wantEach := decide(rules, models, c.us, req)
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
		if n := t.eval(count, []string{t.keyOf(name, "lease", a)})[0].Int(); n != int64(len(m.all)) {
			t.errorf("history %d of %+v: the key holds %d leases, want %d", h, rules, n, len(m.all))
		}
	}
}

// leaseAndRefund acquires a lease with as many tokens of a rate as there are. To release
// the lease refunds no tokens, and a request that holds a lease cannot be refunded.
func (t *T) leaseAndRefund() {
	l := t.limiter(newClock(),
		weir.Rule{Name: "rate", Algorithm: algorithm.FixedWindow{Limit: 10, Window: time.Minute}},
		weir.Rule{Name: "lease", Algorithm: algorithm.Concurrency{Limit: 2, Lease: time.Minute}, Cost: 1})
	each := make([]weir.Result, 2)
	key := weir.KeyOf("both")
	free := func(what string, rate, leases int64) {
		t.do(l, weir.Request{Key: key, Op: weir.Peek}, each...)
		if each[0].Remaining != rate || each[1].Remaining != leases {
			t.errorf("%s: %d tokens and %d places are left, want %d and %d", what, each[0].Remaining, each[1].Remaining, rate, leases)
		}
	}
	t.do(l, weir.Request{Key: key, Cost: 4, ID: "a"})
	free("with 4 tokens consumed", 6, 1)
	if res := t.do(l, weir.Request{Key: key, Op: weir.TakeUpTo, Cost: 9, ID: "b"}); !res.Allowed || res.Granted != 6 {
		t.errorf("up to 9 of 6, with a lease: got %+v, want 6 granted", res)
	}
	free("with all consumed", 0, 0)
	if res := t.do(l, weir.Request{Key: key, Op: weir.TakeUpTo, Cost: 9, ID: "c"}); res.Allowed {
		t.errorf("with all consumed: got %+v, want a denial", res)
	}
	if res, err := l.Decide(t.ctx, weir.Request{Key: key, Op: weir.Refund, ID: "b"}, nil); !errors.Is(err, weir.ErrUnsupported) {
		t.errorf("the refund of a request that holds a lease: got %+v, %v, want ErrUnsupported", res, err)
	}
	free("after a refund that is not supported", 0, 0)
	if !t.release(l, "a", "both") || t.release(l, "a", "both") {
		t.errorf("a lease was not released by its name, or was released twice")
	}
	free("after a release", 0, 1)
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
		key := "exact" + strconv.Itoa(h)
		for i := range 12 {
			c.advance(max(anyPause(r, unitOf(a))/4, 0))
			name := strconv.Itoa(i)
			res := t.hold(l, name, key)
			if res.Allowed {
				continue
			}
			denials++
			if res.RetryAfter <= 0 {
				t.errorf("%+v: a denial has the RetryAfter %v", a, res.RetryAfter)
			}
			c.advance(res.RetryAfter - time.Microsecond)
			if early := t.hold(l, name, key); early.Allowed || early.RetryAfter != time.Microsecond {
				t.errorf("%+v: 1µs before a RetryAfter of %v is over: got %+v, want a denial for 1µs more", a, res.RetryAfter, early)
			}
			c.advance(time.Microsecond)
			if due := t.hold(l, name, key); !due.Allowed {
				t.errorf("%+v: after a RetryAfter of %v: got %+v, want it allowed", a, res.RetryAfter, due)
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
				for range 1 + i%2 { // every other caller tries twice
					var err error
					if got, err = l.Decide(t.ctx, weir.Request{Key: weir.KeyOf("hot"), ID: name}, nil); err != nil {
						t.errorf("Decide: %v", err)
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
		t.errorf("of %d concurrent callers %d hold a lease, want exactly %d", workers*each, n, limit)
	}
	t.free(l, 0, "hot")
	for w := range workers {
		t.goes(&wg, func() {
			for _, name := range holders[w] {
				res, err := l.Decide(t.ctx, weir.Request{Key: weir.KeyOf("hot"), Op: weir.Release, ID: name}, nil)
				if err != nil || !res.Allowed {
					t.errorf("the release of %q, which is held: %+v, %v", name, res, err)
				}
			}
		})
	}
	wg.Wait()
	t.free(l, limit, "hot")
}

func concurrencyRefill(t *T) {
	t.refill(func(d time.Duration) (algorithm.Algorithm, func() weir.Result) {
		a, key := algorithm.Concurrency{Limit: 3, Lease: d}, "refill"+d.String()
		l := t.limiter(nil, one(a))
		for i := range 3 {
			t.hold(l, "taken"+strconv.Itoa(i), key)
		}
		return a, func() weir.Result { return t.hold(l, "late", key) }
	})
}

func concurrencyBackwards(t *T) {
	for i, back := range []time.Duration{time.Microsecond, 300 * time.Millisecond, 5 * time.Second, time.Hour} {
		c := newClock()
		l := t.limiter(c, one(algorithm.Concurrency{Limit: 3, Lease: time.Minute}))
		key := "back" + strconv.Itoa(i)
		for n := range 6 { // the first three expire, and are removed
			if n == 3 {
				c.advance(time.Minute)
			}
			t.hold(l, strconv.Itoa(n), key)
		}
		still := t.hold(l, "x", key).RetryAfter
		c.advance(-back)
		if res := t.hold(l, "x", key); res.Allowed || res.RetryAfter > still+back {
			t.errorf("all places are taken, and a request is denied for %v; the clock steps back by %v: got %+v", still, back, res)
		}
		for n := range 3 {
			if name := strconv.Itoa(n); t.renew(l, name, key).Allowed {
				t.errorf("after a step back by %v: lease %s is held, and so is its place by another", back, name)
			}
		}
		if res := t.renew(l, "4", key); !res.Allowed {
			t.errorf("after a step back by %v: a lease that is held was not renewed: %+v", back, res)
		}
		c.advance(back + still - time.Microsecond)
		if res := t.hold(l, "x", key); res.Allowed {
			t.errorf("a step back by %v shortened the wait of %v", back, still)
		}
		c.advance(time.Microsecond)
		if res := t.hold(l, "x", key); !res.Allowed {
			t.errorf("a step back by %v, which was undone, lengthened the wait of %v: %+v", back, still, res)
		}
	}
}

func concurrencyNever(t *T) {
	c := newClock()
	a := algorithm.Concurrency{Limit: 2, Lease: time.Minute}
	l := t.limiter(c, one(a))
	for used := range int64(3) {
		want := weir.Result{Limit: 2, Remaining: 2 - used, RetryAfter: weir.Never, Delay: weir.Never, Rule: "one"}
		if used > 0 {
			want.ResetAfter = time.Minute
		}
		if got := t.renew(l, "stranger", "k"); got != want {
			t.errorf("the renewal of a lease that is not held, with %d held:\ngot  %+v\nwant %+v", used, got, want)
		}
		t.leases(a, "after a renewal that was denied", used)
		t.hold(l, strconv.FormatInt(used, 10), "k")
	}
}

func concurrencyTTL(t *T) {
	t.left()
	for longer, c := range map[time.Duration]*clock{0: nil, time.Hour: newClock()} {
		name := "ttl" + strconv.Itoa(int(longer))
		a := algorithm.Concurrency{Limit: 5, Lease: 300_000_001 * time.Microsecond}
		l := t.limiter(c, weir.Rule{Name: name, Algorithm: a})
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
			got, found := t.left()[t.keyOf("k", name, a)]
			slop := time.Since(begin)
			if c != nil {
				slop = time.Minute // on a virtual clock the TTL alone runs on
			}
			if !found || got > want+2*time.Millisecond+time.Since(began) || got < want-slop-time.Millisecond {
				t.errorf("step %d, %v longer: the key lives %v, and its last lease %v", i, longer, got, want)
			}
		}
		t.reset(l, "k")
	}
}

// anyConcurrency returns a random Concurrency.
func anyConcurrency(r *rand.Rand) algorithm.Concurrency {
	return algorithm.Concurrency{
		Limit: pick(r, 1, 2, 3, 5, 1+r.Int64N(7)),
		Lease: pick(r, time.Microsecond, 7*time.Microsecond, time.Millisecond, time.Second, time.Minute, 24*time.Hour),
	}
}
