package conformance

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

// This file holds the check of MaxWait of any algorithm that supports it.

func checkMaxWait(t *T) {
	reserves := func(a algorithm.Algorithm) bool { return t.kindOf(a).Reserves }
	list := t.has(t.times(32), "MaxWait", reserves, weir.Request{MaxWait: time.Hour})
	r := t.rand()
	waited := 0
	for h := 0; h < len(list) || waited == 0 && h < 500; h++ {
		a := list[h%len(list)]
		if h >= len(list) {
			if a = t.draw(r); !reserves(a) {
				continue
			}
		}
		waited += t.maxWait(r, a, "wait"+strconv.Itoa(h))
		if t.failed() {
			return
		}
	}
	if waited == 0 {
		t.fatalf("no request had a Delay")
	}
}

// maxWait makes requests with a MaxWait, and returns how many had a Delay.
func (t *T) maxWait(r *rand.Rand, a algorithm.Algorithm, name string) (waited int) {
	c := newClock()
	p := t.pair(c, one(a))
	p.both(weir.Request{Key: weir.KeyOf(name), Cost: pick(r, 1, t.peek(p.lim, 1, name).Limit)}) // so that the next request has a Delay
	for s := range 12 {
		unit := max(t.unitOf(a), time.Microsecond)
		c.advance(max(anyPause(r, unit), 0) / 8)
		req := t.request(r, a, 1+r.Int64N(3), name)
		req.Op = weir.Peek
		plain := t.do(p.lim, req)
		req.MaxWait = pick(r, time.Duration(1+r.IntN(8))*unit, weir.Never)
		got := t.do(p.lim, req)
		d := got.Delay
		switch {
		case !got.Allowed:
			if d != weir.Never || plain.Allowed || got.RetryAfter <= 0 || got.RetryAfter > plain.RetryAfter {
				t.errorf("%+v, step %d: without MaxWait got %+v, and with a MaxWait of %v %+v", a, s, plain, req.MaxWait, got)
			}
		case d < 0 || d > req.MaxWait || plain.Allowed && d > 0:
			t.errorf("%+v, step %d: without MaxWait got %+v, and with a MaxWait of %v %+v", a, s, plain, req.MaxWait, got)
		case !plain.Allowed && d != plain.RetryAfter:
			t.errorf("%+v, step %d: denied for %v, and with a MaxWait of %v its turn comes in %v", a, s, plain.RetryAfter, req.MaxWait, d)
		case d > time.Microsecond:
			waited++
			short := req
			short.MaxWait = d - time.Microsecond
			if res := t.do(p.lim, short); res.Allowed || res.RetryAfter != time.Microsecond {
				t.errorf("%+v, step %d: its turn comes in %v, and with a MaxWait of 1µs less: got %+v, want a denial for 1µs", a, s, d, res)
			}
			req.MaxWait = d
		}
		req.Op = weir.Consume
		if took := p.both(req); took.Allowed != got.Allowed || took.Delay != d {
			t.errorf("%+v, step %d, MaxWait %v:\ngot            %+v\nPeek answered  %+v", a, s, req.MaxWait, took, got)
		}
		if t.failed() {
			return waited
		}
	}
	return waited
}
