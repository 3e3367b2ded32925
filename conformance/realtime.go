package conformance

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

// This file holds the checks of any algorithm on the store's own clock, and the check of
// clocks that step back.

// checkHotKey makes concurrent requests for one key, on the store's own clock, until all
// tokens are consumed. No token is refilled during the check. If the limits are small, it
// uses several.
func checkHotKey(t *T) {
	r := t.rand()
	enough := int64(100)
	if t.backend.Brief {
		enough = 10
	}
	for h, asked := 0, int64(0); asked < enough; h++ {
		a := t.slow(r)
		for range 3 { // with more tokens, more calls are concurrent
			if b := t.slow(r); t.limitOf(b).Capacity > t.limitOf(a).Capacity {
				a = b
			}
		}
		asked += t.hot(r, a, "hot"+strconv.Itoa(h))
	}
}

// hot consumes all tokens of a at key, and returns how many were requested.
func (t *T) hot(r *rand.Rand, a algorithm.Algorithm, key string) int64 {
	const workers = 8
	l := t.limiter(nil, one(a))
	limit := t.peek(l, 1, key).Limit
	most, wait := t.fitting(a, min(3, limit)), t.patience(a)
	var took, wanted atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		r := rand.New(rand.NewPCG(r.Uint64(), uint64(w)))
		t.goes(&wg, func() {
			for i := 0; wanted.Load() < 2*limit; i++ {
				req := weir.Request{Key: weir.KeyOf(key), Cost: 1 + r.Int64N(most), MaxWait: wait}
				if t.leases {
					req.ID = strconv.Itoa(w) + "/" + strconv.Itoa(i)
				}
				res, err := l.Decide(t.ctx, req, nil)
				if err != nil {
					t.errorf("Decide: %v", err)
					return
				}
				wanted.Add(req.Cost)
				took.Add(res.Granted)
				if want := map[bool]int64{true: req.Cost}[res.Allowed]; res.Granted != want {
					t.errorf("cost %d: got %+v", req.Cost, res)
				}
			}
		})
	}
	wg.Wait()
	// Fewer tokens may remain than a request for two or three needs.
	for range 3 {
		took.Add(t.do(l, weir.Request{Key: weir.KeyOf(key), MaxWait: wait}).Granted)
	}
	if took.Load() != limit || t.failed() {
		t.fatalf("%+v: of %d tokens requested concurrently, %d were consumed, want exactly %d", a, wanted.Load(), took.Load(), limit)
	}
	return wanted.Load()
}

func checkOwnClock(t *T) {
	r := t.rand()
	for h := range t.times(8) {
		a := t.slow(r)
		key := "own" + strconv.Itoa(h)
		c := &clock{}
		own, told := t.limiter(nil, one(a)), t.limiter(c, one(a))
		for try := 0; ; try++ {
			before := t.time()
			got := t.allow(own, 1, key)
			after := t.time()
			c.us = after.UnixMicro()
			want := t.peek(told, 1, key)
			late := got.ResetAfter - want.ResetAfter
			same := got.Limit == want.Limit && got.Remaining == want.Remaining || got.Window != want.Window // the answer is about another span
			if got.Allowed && same && late >= -skew && late <= after.Sub(before)+skew {
				break
			}
			if try == 2 { // a window may end between the two calls, at most twice
				t.errorf("%+v: a token is consumed on the store's clock: %+v\nPeek on a caller's clock, %v later: %+v", a, got, after.Sub(before), want)
				break
			}
			t.reset(own, key)
		}
	}
}

func checkBackwards(t *T) {
	r := t.rand()
	for h := range t.times(16) {
		a := t.small(r, "deny a request above the limit", func(algorithm.Algorithm, weir.Result) bool { return true })
		unit := max(t.unitOf(a), time.Microsecond)
		for i, back := range []time.Duration{time.Microsecond, unit, 5 * unit, time.Hour} {
			c := newClock()
			l := t.limiter(c, one(a))
			key := fmt.Sprintf("back%d.%d", h, i)
			full := t.allow(l, 1, key)
			for full.Allowed {
				full = t.allow(l, 1, key)
			}
			still := full.RetryAfter
			c.advance(-back)
			if res := t.allow(l, 1, key); res.Allowed || still != weir.Never && res.RetryAfter > still+back {
				t.errorf("%+v: all tokens are consumed, with a RetryAfter of %v; the clock steps back by %v: got %+v", a, still, back, res)
			}
			if still == weir.Never {
				continue
			}
			c.advance(back + still - time.Microsecond)
			if res := t.allow(l, 1, key); res.Allowed {
				t.errorf("%+v: a step back by %v shortened the wait of %v", a, back, still)
			}
			c.advance(time.Microsecond)
			if res := t.allow(l, 1, key); !res.Allowed {
				t.errorf("%+v: a step back by %v, which was undone, lengthened the wait of %v: %+v", a, back, still, res)
			}
		}
	}
}

// These are the shortest and the longest wait of checkRefill.
const (
	shortRefill = 300 * time.Millisecond
	longRefill  = 10 * time.Second
)

// checkRefill waits in real time. If the machine is too busy to see when the request is
// allowed, it tries again with a longer wait.
func checkRefill(t *T) {
	ever := false
	for d := shortRefill; d <= longRefill; d *= 2 {
		a, key := t.backend.subject.refill(d), "refill"+d.String()
		t.leases = t.kindOf(a).Leases
		l := t.limiter(nil, one(a))
		t.takeAll(l, a, key)
		denied, seen := t.passesWhenDue(a, func() weir.Result { return t.allow(l, 1, key) })
		if ever = ever || denied; seen {
			return
		}
	}
	if !ever {
		t.errorf("all tokens were consumed, and the next request was allowed every time, want it denied")
	}
}

// passesWhenDue repeats a request, which should first be denied, until it is allowed. It
// checks that the request is allowed at its first RetryAfter. seen reports whether the
// machine was fast enough to measure this with an error of at most a quarter of RetryAfter.
func (t *T) passesWhenDue(a algorithm.Algorithm, ask func() weir.Result) (denied, seen bool) {
	begin := t.time()
	first := ask()
	if first.Allowed {
		return false, false
	}
	end, last := t.time(), begin
	for {
		at := t.time()
		res := ask()
		now := t.time()
		switch {
		case res.Allowed && now.Add(skew).Before(begin.Add(first.RetryAfter)):
			t.errorf("%+v: allowed %v after a denial with the RetryAfter %v", a, now.Sub(begin), first.RetryAfter)
			return true, true
		case res.Allowed:
			return true, now.Sub(last) <= first.RetryAfter/4
		case at.After(end.Add(first.RetryAfter + skew)):
			t.errorf("%+v: denied %v after a denial with the RetryAfter %v", a, at.Sub(end), first.RetryAfter)
			return true, true
		}
		last = at
		time.Sleep(max(res.RetryAfter/8, first.RetryAfter/50))
	}
}
