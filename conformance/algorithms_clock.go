package conformance

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store/memory"
)

// This file holds the checks of algorithms that run in real time, on the store's own
// clock, and those of clocks that step back.

// hotKey has many concurrent callers on one key, by the store's own clock, and checks
// that exactly the limit passes. The limit is such that no token comes back meanwhile.
func hotKey(a algorithm.Algorithm, limit int64) func(*T) {
	return func(t *T) {
		if allowed, asked := t.hot(a, limit); allowed != limit {
			t.errorf("of %d tokens asked for concurrently, %d were allowed, want exactly %d", asked, allowed, limit)
		}
	}
}

// patience returns the MaxWait with which all tokens of a can be consumed one by one: 0,
// or Never if a is a queue, where a request passes only if no other waits.
func (t *T) patience(a algorithm.Algorithm) time.Duration {
	if !t.kindOf(a).Reserves {
		return 0
	}
	l := t.limiterOn(memory.New(nil), newClock(), one(a))
	limit := t.allow(l, 1, "queue").Limit
	if limit > 1 && t.peek(l, 1, "queue").Remaining == 0 {
		return weir.Never
	}
	return 0
}

// hot has many concurrent callers on one key until no token is left, and returns how many
// tokens were allowed and asked for. It ends the check if an answer makes no sense.
func (t *T) hot(a algorithm.Algorithm, limit int64) (allowed, asked int64) {
	const workers = 8
	l := t.limiter(nil, one(a))
	most, wait := t.fitting(a, 3), t.patience(a)
	var took, wanted atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		r := rand.New(rand.NewPCG(t.seed, uint64(w)))
		t.goes(&wg, func() {
			for wanted.Load() < 2*limit {
				req := weir.Request{Key: weir.KeyOf("hot"), Cost: 1 + r.Int64N(most), MaxWait: wait}
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
	if t.failed() {
		panic(stop{})
	}
	// Requests for one token take what was too little for those for two or three.
	for range 3 {
		took.Add(t.do(l, weir.Request{Key: weir.KeyOf("hot"), MaxWait: wait}).Granted)
	}
	if err := l.Reset(t.ctx, "hot"); err != nil {
		t.errorf("Reset: %v", err)
	}
	return took.Load(), wanted.Load()
}

// The shortest and the longest wait of refill.
const (
	shortRefill = 300 * time.Millisecond
	longRefill  = 10 * time.Second
)

// refill checks on the store's own clock that a denied request passes when its RetryAfter
// is over, and not before. It waits in real time. maker returns a limit that one request
// can use up, and that denies the next one for about d. If the machine is too busy to see
// when the request passes, the check tries again with a longer d.
func refill(maker func(d time.Duration) algorithm.Algorithm) func(*T) {
	return func(t *T) {
		t.refill(func(d time.Duration) (algorithm.Algorithm, func() weir.Result) {
			a, key := maker(d), "refill"+d.String()
			l := t.limiter(nil, one(a))
			t.allow(l, t.peek(l, 1, key).Limit, key)
			return a, func() weir.Result { return t.allow(l, 1, key) }
		})
	}
}

// refill uses up a limit with maker, which returns a function that makes one more
// request.
func (t *T) refill(maker func(d time.Duration) (algorithm.Algorithm, func() weir.Result)) {
	ever := false
	for d := shortRefill; d <= longRefill; d *= 2 {
		a, ask := maker(d)
		denied, seen := t.passesWhenDue(a, ask)
		if ever = ever || denied; seen {
			return
		}
	}
	if !ever {
		t.errorf("no request was denied that came right after one that used up the limit")
	}
}

// passesWhenDue makes a request, which should be denied, until it is allowed, and checks
// that this is when its first RetryAfter is over. seen reports whether the machine was
// fast enough to tell to within a quarter of RetryAfter.
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
		time.Sleep(res.RetryAfter / 8)
	}
}

// backwards checks what a clock that steps back may do: lengthen a wait by no more than
// the step, and allow no more than if it had stood still.
func backwards(a algorithm.Algorithm) func(*T) {
	return func(t *T) {
		t.backwards(a, "back", time.Microsecond, 300*time.Millisecond, 5*time.Second, time.Hour)
	}
}

func (t *T) backwards(a algorithm.Algorithm, name string, steps ...time.Duration) {
	for i, back := range steps {
		c := newClock()
		l := t.limiter(c, one(a))
		key := fmt.Sprintf("%s %d %+v", name, i, a)
		var still time.Duration
		for full := t.allow(l, 1, key); ; full = t.allow(l, 1, key) {
			if still = full.RetryAfter; !full.Allowed {
				break
			}
		}
		c.advance(-back)
		if res := t.allow(l, 1, key); res.Allowed || still != weir.Never && res.RetryAfter > still+back {
			t.errorf("%+v: used up, and denied for %v; the clock steps back by %v: got %+v", a, still, back, res)
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
