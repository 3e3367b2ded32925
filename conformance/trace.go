package conformance

import (
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

// This file holds what the checks of single algorithms share: traces of requests.

// A step is one request of a trace, and its answer.
type step struct {
	at      time.Duration // since the start of the trace
	cost    int64         // 0: a Peek of cost 1
	allowed bool
	left    int64
	reset   time.Duration
	retry   time.Duration
}

// A move is a step under one of several limits over the same state.
type move struct {
	step
	limit       algorithm.Algorithm
	wait, delay time.Duration
}

func (s step) under(limit algorithm.Algorithm) move { return move{step: s, limit: limit} }

// within returns m as a request that may wait for wait, and goes after delay.
func (m move) within(wait, delay time.Duration) move {
	m.wait, m.delay = wait, delay
	return m
}

// trace makes the requests of steps under a, on one key and in virtual time.
func (t *T) trace(a algorithm.Algorithm, steps []step) {
	moves := make([]move, len(steps))
	for i, s := range steps {
		moves[i] = s.under(a)
	}
	t.moves(moves...)
}

// moves makes requests on one key, in virtual time.
func (t *T) moves(moves ...move) {
	c, key := newClock(), fmt.Sprintf("%+v", moves[0].limit)
	var l *weir.Limiter
	start := c.us
	for i, s := range moves {
		c.us = start + s.at.Microseconds()
		m := newModel(s.limit)
		req := weir.Request{Key: weir.KeyOf(key), Cost: s.cost, MaxWait: s.wait}
		want := weir.Result{
			Allowed: s.allowed, Remaining: s.left, ResetAfter: s.reset, RetryAfter: s.retry, Delay: s.delay,
			Limit: m.limit(), Window: m.window(), Rule: "one",
		}
		if s.cost == 0 {
			req.Op = weir.Peek
		}
		if want.Granted = s.cost; !s.allowed {
			want.Granted, want.Delay = 0, weir.Never
		}
		if i == 0 || !reflect.DeepEqual(s.limit, moves[i-1].limit) {
			l = t.limiter(c, one(s.limit))
		}
		if got := t.do(l, req); got != want {
			t.errorf("step %d under %+v, cost %d at %v:\ngot  %+v\nwant %+v", i, s.limit, s.cost, s.at, got, want)
		}
	}
}

// drifts checks that callers who come back exactly when told get three tokens every second
// of each of list.
func (t *T) drifts(list ...algorithm.Algorithm) {
	for i, a := range list {
		c := newClock()
		l, start, key := t.limiter(c, one(a)), c.us, "drift"+strconv.Itoa(i)
		t.takeAll(l, a, key)
		for range 150 {
			c.advance(t.peek(l, 1, key).RetryAfter)
			if res := t.allow(l, 1, key); !res.Allowed {
				t.fatalf("%+v: after %d µs: got %+v, want it allowed", a, c.us-start, res)
			}
		}
		if got, want := c.us-start, int64(50_000_000); got != want {
			t.errorf("%+v: 150 tokens at 3 per second took %d µs, want %d", a, got, want)
		}
	}
}

// cancels checks what is refunded of tokens that others are queued behind: the next
// caller goes no earlier than one token after the last who waits. Of a, one token comes
// back every interval.
func cancels(a algorithm.Algorithm, interval time.Duration) func(*T) {
	return func(t *T) {
		c := newClock()
		p := t.pair(c, one(a))
		reserve := func(id string) time.Duration {
			res := p.both(weir.Request{Key: weir.KeyOf("q"), MaxWait: time.Hour, ID: id})
			if !res.Allowed {
				t.errorf("%+v: %s got %+v", a, id, res)
			}
			return res.Delay
		}
		want := func(id string, delay time.Duration) {
			if got := reserve(id); got != delay {
				t.errorf("%+v: %s goes after %v, want %v", a, id, got, delay)
			}
		}
		gives := func(id string, want bool) {
			if got := p.refund(id, "q"); got != want {
				t.errorf("%+v: the refund of %s refunded something: %v, want %v", a, id, got, want)
			}
		}
		for i := range 100 {
			if reserve("now"+strconv.Itoa(i)) > 0 { // the first to wait, for one interval
				break
			}
		}
		want("b", 2*interval)
		want("c", 3*interval)
		gives("b", false) // c keeps its time
		want("d", 4*interval)
		gives("d", true) // the last
		want("e", 4*interval)
		c.advance(4 * interval)
		gives("e", true) // its turn has come, and nobody waits behind it
		gives("e", false)
		want("f", 0)
	}
}
