package algorithms

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/internal/decisions"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/internal/model"
)

// checkHotKey makes concurrent requests for one key, on the store's own clock, until all
// tokens are consumed. No token is refilled during the check. If the limits are small, it
// uses several.
func checkHotKey(t *T) {
	r := t.Rand()
	enough := int64(100)
	if t.Brief {
		enough = 10
	}
	for h, asked := 0, int64(0); asked < enough; h++ {
		a := t.slow(r)
		for range 3 { // with more tokens, more calls are concurrent
			if b := t.slow(r); t.LimitOf(b).Capacity > t.LimitOf(a).Capacity {
				a = b
			}
		}
		asked += t.hot(r, a, "hot"+strconv.Itoa(h))
	}
}

// hot consumes all tokens of a at key, and returns how many were requested.
func (t *T) hot(r *rand.Rand, a algorithm.Algorithm, key string) int64 {
	const workers = 8
	l := t.Limiter(nil, decisions.One(a))
	limit := t.Peek(l, 1, key).Limit
	most, wait := t.Fitting(a, min(3, limit)), t.patience(a)
	var took, wanted atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		r := rand.New(rand.NewPCG(r.Uint64(), uint64(w)))
		t.Goes(&wg, func() {
			for i := 0; wanted.Load() < 2*limit; i++ {
				req := weir.Request{Key: weir.KeyOf(key), Cost: 1 + r.Int64N(most), MaxWait: wait}
				if t.Leases {
					req.ID = strconv.Itoa(w) + "/" + strconv.Itoa(i)
				}
				res, err := l.Decide(t.Ctx, req, nil)
				if err != nil {
					t.Errorf("Decide: %v", err)
					return
				}
				wanted.Add(req.Cost)
				took.Add(res.Granted)
				if want := map[bool]int64{true: req.Cost}[res.Allowed]; res.Granted != want {
					t.Errorf("cost %d: got %+v", req.Cost, res)
				}
			}
		})
	}
	wg.Wait()
	// Fewer tokens may remain than a request for two or three needs.
	for range 3 {
		took.Add(t.Do(l, weir.Request{Key: weir.KeyOf(key), MaxWait: wait}).Granted)
	}
	if took.Load() != limit || t.Failed() {
		t.Fatalf("%+v: of %d tokens requested concurrently, %d were consumed, want exactly %d", a, wanted.Load(), took.Load(), limit)
	}
	return wanted.Load()
}

func checkOwnClock(t *T) {
	r := t.Rand()
	for h := range t.Times(8) {
		a := t.slow(r)
		key := "own" + strconv.Itoa(h)
		c := &decisions.Clock{}
		own, told := t.Limiter(nil, decisions.One(a)), t.Limiter(c, decisions.One(a))
		for try := 0; ; try++ {
			before := t.Time()
			got := t.Allow(own, 1, key)
			after := t.Time()
			c.Micros = after.UnixMicro()
			want := t.Peek(told, 1, key)
			late := got.ResetAfter - want.ResetAfter
			same := got.Limit == want.Limit && got.Remaining == want.Remaining || got.Window != want.Window // the answer is about another span
			if got.Allowed && same && late >= -suite.Skew && late <= after.Sub(before)+suite.Skew {
				break
			}
			if try == 2 { // a window may end between the two calls, at most twice
				t.Errorf("%+v: a token is consumed on the store's clock: %+v\nPeek on a caller's clock, %v later: %+v", a, got, after.Sub(before), want)
				break
			}
			t.Reset(own, key)
		}
	}
}

func checkBackwards(t *T) {
	r := t.Rand()
	for h := range t.Times(16) {
		a := t.small(r, "deny a request above the limit", func(algorithm.Algorithm, weir.Result) bool { return true })
		unit := max(t.Unit(a), time.Microsecond)
		for i, back := range []time.Duration{time.Microsecond, unit, 5 * unit, time.Hour} {
			c := decisions.NewClock()
			l := t.Limiter(c, decisions.One(a))
			key := fmt.Sprintf("back%d.%d", h, i)
			full := t.Allow(l, 1, key)
			for n := 1; full.Allowed; n++ {
				if n > 2*smallLimit {
					t.Fatalf("%+v: %d requests were allowed at one time, want at most the limit", a, n)
				}
				full = t.Allow(l, 1, key)
			}
			still := full.RetryAfter
			c.Advance(-back)
			if res := t.Allow(l, 1, key); res.Allowed || still != weir.Never && res.RetryAfter > still+back {
				t.Errorf("%+v: all tokens are consumed, with a RetryAfter of %v; the clock steps back by %v: got %+v", a, still, back, res)
			}
			if still == weir.Never {
				continue
			}
			c.Advance(back + still - time.Microsecond)
			if res := t.Allow(l, 1, key); res.Allowed {
				t.Errorf("%+v: a step back by %v shortened the wait of %v", a, back, still)
			}
			c.Advance(time.Microsecond)
			if res := t.Allow(l, 1, key); !res.Allowed {
				t.Errorf("%+v: a step back by %v, which was undone, lengthened the wait of %v: %+v", a, back, still, res)
			}
		}
	}
}

// These are the shortest and the longest wait of checkRefill, and the longest if no request
// was denied, because all came too late.
const (
	shortRefill   = 300 * time.Millisecond
	longRefill    = 10 * time.Second
	longestRefill = 3 * time.Minute
)

// checkRefill waits in real time. If the machine is too busy to see when the request is
// allowed, it tries again with a longer wait.
func checkRefill(t *T) {
	ever := false
	for d := shortRefill; d <= longRefill || !ever && d < longestRefill; d *= 2 {
		a, key := t.subject.refill(d), "refill"+d.String()
		t.Leases = t.KindOf(a).Leases
		l := t.Limiter(nil, decisions.One(a))
		t.takeAll(l, a, key)
		denied, seen := t.passesWhenDue(a, func() weir.Result { return t.Allow(l, 1, key) })
		if ever = ever || denied; seen {
			return
		}
	}
	if !ever {
		t.Errorf("all tokens were consumed, and the next request was allowed every time, want it denied")
	}
}

// passesWhenDue repeats a request, which should first be denied, until it is allowed. It
// checks that the request is allowed at its first RetryAfter. seen reports whether the
// machine was fast enough to measure this with an error of at most a quarter of RetryAfter.
func (t *T) passesWhenDue(a algorithm.Algorithm, ask func() weir.Result) (denied, seen bool) {
	begin := t.Time()
	first := ask()
	if first.Allowed {
		return false, false
	}
	end, last := t.Time(), begin
	for {
		at := t.Time()
		res := ask()
		now := t.Time()
		switch {
		case res.Allowed && now.Add(suite.Skew).Before(begin.Add(first.RetryAfter)):
			t.Errorf("%+v: allowed %v after a denial with the RetryAfter %v", a, now.Sub(begin), first.RetryAfter)
			return true, true
		case res.Allowed:
			return true, now.Sub(last) <= first.RetryAfter/4
		case at.After(end.Add(first.RetryAfter + suite.Skew)):
			t.Errorf("%+v: denied %v after a denial with the RetryAfter %v", a, at.Sub(end), first.RetryAfter)
			return true, true
		}
		last = at
		time.Sleep(max(res.RetryAfter/8, first.RetryAfter/50))
	}
}

func checkMaxWait(t *T) {
	reserves := func(a algorithm.Algorithm) bool { return t.KindOf(a).Reserves }
	list := t.has(t.Times(32), "MaxWait", reserves, weir.Request{MaxWait: time.Hour})
	r := t.Rand()
	waited := 0
	for h := 0; h < len(list) || waited == 0 && h < 500; h++ {
		a := list[h%len(list)]
		if h >= len(list) {
			if a = t.Draw(r); !reserves(a) {
				continue
			}
		}
		waited += t.maxWait(r, a, "wait"+strconv.Itoa(h))
		if t.Failed() {
			return
		}
	}
	if waited == 0 {
		t.Fatalf("no request had a Delay")
	}
}

// maxWait makes requests with a MaxWait, and returns how many had a Delay.
func (t *T) maxWait(r *rand.Rand, a algorithm.Algorithm, name string) (waited int) {
	c := decisions.NewClock()
	p := t.Pair(c, decisions.One(a))
	p.Both(weir.Request{Key: weir.KeyOf(name), Cost: model.Pick(r, 1, t.Peek(p.Lim, 1, name).Limit)}) // so that the next request has a Delay
	for s := range 12 {
		unit := max(t.Unit(a), time.Microsecond)
		c.Advance(max(model.Pause(r, unit), 0) / 8)
		req := t.request(r, a, 1+r.Int64N(3), name)
		req.Op = weir.Peek
		plain := t.Do(p.Lim, req)
		req.MaxWait = model.Pick(r, time.Duration(1+r.IntN(8))*unit, weir.Never)
		got := t.Do(p.Lim, req)
		d := got.Delay
		switch {
		case !got.Allowed && (d != weir.Never || plain.Allowed || got.RetryAfter <= 0 || got.RetryAfter > plain.RetryAfter),
			got.Allowed && (d < 0 || d > req.MaxWait || plain.Allowed && d > 0):
			t.Errorf("%+v, step %d: without MaxWait got %+v, and with a MaxWait of %v %+v", a, s, plain, req.MaxWait, got)
		case !got.Allowed:
		case !plain.Allowed && d != plain.RetryAfter:
			t.Errorf("%+v, step %d: denied for %v, and with a MaxWait of %v its turn comes in %v", a, s, plain.RetryAfter, req.MaxWait, d)
		case d > time.Microsecond:
			waited++
			short := req
			short.MaxWait = d - time.Microsecond
			if res := t.Do(p.Lim, short); res.Allowed || res.RetryAfter != time.Microsecond {
				t.Errorf("%+v, step %d: its turn comes in %v, and with a MaxWait of 1µs less: got %+v, want a denial for 1µs", a, s, d, res)
			}
			req.MaxWait = d
		}
		req.Op = weir.Consume
		if took := p.Both(req); took.Allowed != got.Allowed || took.Delay != d {
			t.Errorf("%+v, step %d, MaxWait %v:\ngot            %+v\nPeek answered  %+v", a, s, req.MaxWait, took, got)
		}
		if t.Failed() {
			return waited
		}
	}
	return waited
}
