package conformance

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

var concurrencyChecks = []check{
	{"Trace", "a lease of a Concurrency expires exactly Lease after it was acquired", concurrencyTrace},
	{"Retried", "a request that is repeated under the same name holds one lease", concurrencyRetried},
	{"Renew", "a lease that is renewed is kept, even if all places are taken, and an expired lease is not renewed", concurrencyRenew},
	{"Release", "a lease that is released frees its place at once", concurrencyRelease},
	{"LateRelease", "releasing an expired lease frees nobody else's place", concurrencyLateRelease},
	{"Crash", "leases that are neither renewed nor released free their places one by one, as each expires", concurrencyCrash},
	{"Names", "a lease has a name of 1 to 128 bytes of any value, and costs 1; Peek needs no name", concurrencyNames},
	{"Bounded", "a Concurrency keeps at most Limit leases, expired ones included", concurrencyBounded},
	{"Lowered", "under a lower Limit holders keep their leases, and a new lease is denied until enough have expired", concurrencyLowered},
	{"HotKey", "of many concurrent callers exactly Limit hold a lease, and all places are free when they are released", concurrencyHotKey},
}

// concurrencyMembers are texts that are no lease.
var concurrencyMembers = []string{"c2", "c1 a", "l2 1767225600000000 00000001", "x", " c2 a", "C2 a"}

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

// leased checks how many leases the key of a holds, expired ones included.
func (t *T) leased(a algorithm.Algorithm, what string, want int64) {
	if n := t.eval(count, []string{t.keyOf("k", "one", a)})[0].Int(); n != want {
		t.errorf("%s: the key holds %d leases, want %d", what, n, want)
	}
}

// A leaseStep is one request of a trace about leases, and its answer.
type leaseStep struct {
	at    time.Duration
	op    weir.Op // a Peek has no name
	name  string
	ok    bool
	left  int64
	reset time.Duration
	retry time.Duration
}

// leaseTrace makes the requests of steps on one key, and checks how many leases the key
// holds in the end, expired ones included.
func (t *T) leaseTrace(a algorithm.Concurrency, steps []leaseStep, held int64) {
	c := newClock()
	start := c.us
	l, key := t.limiter(c, one(a)), fmt.Sprintf("%+v", a)
	for i, s := range steps {
		c.us = start + s.at.Microseconds()
		got := t.do(l, weir.Request{Key: weir.KeyOf(key), Op: s.op, ID: s.name})
		if s.op == weir.Release {
			if got.Allowed != s.ok {
				t.errorf("step %d: the release of %q reports that it was held: %v, want %v", i, s.name, got.Allowed, s.ok)
			}
			got = t.peek(l, 1, key) // what it left
			s.op, s.ok, s.retry = weir.Peek, s.left > 0, got.RetryAfter
		}
		want := weir.Result{Allowed: s.ok, Limit: a.Limit, Remaining: s.left, ResetAfter: s.reset, RetryAfter: s.retry, Rule: "one"}
		switch {
		case !s.ok:
			want.Delay = weir.Never
		case s.op == weir.Consume:
			want.Granted = 1
		}
		if got != want {
			t.errorf("step %d of %+v, op %v of %q at %v:\ngot  %+v\nwant %+v", i, a, s.op, s.name, s.at, got, want)
		}
	}
	if n := t.eval(count, []string{t.keyOf(key, "one", a)})[0].Int(); n != held {
		t.errorf("%+v: the key holds %d leases, want %d", a, n, held)
	}
}

const (
	hold    = weir.Consume
	peek    = weir.Peek
	renew   = weir.Renew
	release = weir.Release
)

func concurrencyTrace(t *T) {
	s, us := time.Second, time.Microsecond
	t.leaseTrace(algorithm.Concurrency{Limit: 2, Lease: 10 * time.Second}, []leaseStep{
		{0, peek, "", true, 2, 0, 0},
		{0, hold, "a", true, 1, 10 * s, 0},
		{4 * s, hold, "b", true, 0, 10 * s, 0},
		{4 * s, peek, "", false, 0, 10 * s, 6 * s},
		{4 * s, peek, "b", true, 0, 10 * s, 0}, // of a lease that is held
		{5 * s, hold, "c", false, 0, 9 * s, 5 * s},
		{10*s - us, hold, "c", false, 0, 4*s + us, us},
		{10 * s, hold, "c", true, 0, 10 * s, 0},
		{14*s - us, hold, "a", false, 0, 6*s + us, us},
		{14 * s, hold, "a", true, 0, 10 * s, 0},
		{24*s - us, peek, "", true, 1, us, 0},
		{24 * s, peek, "", true, 2, 0, 0},
		{24 * s, hold, "d", true, 1, 10 * s, 0},
	}, 1)
}

func concurrencyRetried(t *T) {
	s := time.Minute
	t.leaseTrace(algorithm.Concurrency{Limit: 2, Lease: time.Minute}, []leaseStep{
		{0, hold, "a", true, 1, s, 0},
		{0, hold, "a", true, 1, s, 0},
		{0, hold, "a", true, 1, s, 0},
		{0, hold, "b", true, 0, s, 0},
		{0, hold, "a", true, 0, s, 0}, // all places are taken
		{0, hold, "c", false, 0, s, s},
		{0, release, "a", true, 1, s, 0},
		{0, release, "a", false, 1, s, 0},
	}, 1)
}

func concurrencyRenew(t *T) {
	s, us := time.Second, time.Microsecond
	t.leaseTrace(algorithm.Concurrency{Limit: 1, Lease: 10 * time.Second}, []leaseStep{
		{0, renew, "a", false, 1, 0, weir.Never}, // which nobody holds
		{0, hold, "a", true, 0, 10 * s, 0},
		{0, renew, "stranger", false, 0, 10 * s, weir.Never},
		{9 * s, renew, "a", true, 0, 10 * s, 0},
		{9 * s, hold, "b", false, 0, 10 * s, 10 * s},
		{19*s - us, renew, "a", true, 0, 10 * s, 0},
		{19 * s, hold, "b", false, 0, 10*s - us, 10*s - us},
		{29*s - us, renew, "a", false, 1, 0, weir.Never}, // it expires now
		{29 * s, hold, "b", true, 0, 10 * s, 0},
		{30 * s, renew, "a", false, 0, 9 * s, weir.Never}, // another has its place
	}, 1)
}

func concurrencyRelease(t *T) {
	s := time.Second
	t.leaseTrace(algorithm.Concurrency{Limit: 3, Lease: time.Minute}, []leaseStep{
		{1 * s, hold, "a", true, 2, 60 * s, 0},
		{2 * s, hold, "b", true, 1, 60 * s, 0},
		{3 * s, hold, "c", true, 0, 60 * s, 0},
		{3 * s, release, "b", true, 1, 60 * s, 0},
		{3 * s, release, "b", false, 1, 60 * s, 0},
		{3 * s, release, "c", true, 2, 58 * s, 0},
		{3 * s, release, "c", false, 2, 58 * s, 0},
		{3 * s, release, "a", true, 3, 0, 0},
		{3 * s, release, "a", false, 3, 0, 0},
	}, 0)
}

func concurrencyLateRelease(t *T) {
	s := time.Second
	t.leaseTrace(algorithm.Concurrency{Limit: 2, Lease: 10 * time.Second}, []leaseStep{
		{0, hold, "a", true, 1, 10 * s, 0},
		{9 * s, hold, "b", true, 0, 10 * s, 0},
		{10 * s, hold, "c", true, 0, 10 * s, 0}, // in the place of a, which has expired
		{10 * s, release, "a", false, 0, 10 * s, 0},
		{10 * s, release, "stranger", false, 0, 10 * s, 0},
		{10 * s, release, "c ", false, 0, 10 * s, 0},
		{10 * s, release, "b", true, 1, 10 * s, 0},
		{10 * s, release, "c", true, 2, 0, 0},
		{10 * s, hold, "d", true, 1, 10 * s, 0},
		{20 * s, release, "d", false, 2, 0, 0}, // expired
	}, 0)
}

func concurrencyCrash(t *T) {
	const us = time.Microsecond
	var steps []leaseStep
	at := func(i int64) time.Duration { return time.Duration(i) * time.Second }
	for i := range int64(30) {
		steps = append(steps, leaseStep{at(i), hold, strconv.FormatInt(i, 10), true, 29 - i, time.Minute, 0})
	}
	for i := range int64(30) {
		retry := time.Duration(0)
		if i == 0 {
			retry = us
		}
		steps = append(steps, leaseStep{at(60+i) - us, peek, "", i > 0, i, at(29-i) + us, retry}, leaseStep{at(60 + i), peek, "", true, i + 1, at(29 - i), 0})
	}
	steps = append(steps, leaseStep{at(89), hold, "next", true, 29, time.Minute, 0})
	t.leaseTrace(algorithm.Concurrency{Limit: 30, Lease: time.Minute}, steps, 1)
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
	holds := func(want int64) { t.leased(a, "of 50", want) }
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
