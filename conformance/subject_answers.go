package conformance

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// This file holds the rules of RunAlgorithm on answers.

func subjectPeek(t *T) {
	r := t.rand()
	for h := range t.times(40) {
		a := t.draw(r)
		c := newClock()
		l := t.limiter(c, one(a))
		for s := range 16 {
			c.advance(anyPause(r, t.unitOf(a)))
			req := t.request(r, a, 1+r.Int64N(4), "peek", strconv.Itoa(h))
			ask := req
			ask.Peek = true
			asked, got := t.do(l, ask), t.do(l, req)
			if asked.Granted != 0 {
				t.errorf("%+v: Peek granted: %+v", a, asked)
			}
			want := asked
			if got.Allowed { // what was taken makes a difference to these alone
				want.Granted, want.Remaining, want.ResetAfter = req.Cost, got.Remaining, got.ResetAfter
			}
			if got != want {
				t.fatalf("%+v, step %d, cost %d:\nPeek said %+v\nthen      %+v", a, s, req.Cost, asked, got)
			}
		}
	}
}

func subjectPeekMany(t *T) {
	r := t.rand()
	for h := range t.times(24) {
		a := t.draw(r)
		c := newClock()
		l := t.limiter(c, one(a))
		var paths [][]string
		for i := range 6 {
			paths = append(paths, []string{"many" + strconv.Itoa(h), strconv.Itoa(i)})
		}
		for range 20 {
			c.advance(max(anyPause(r, t.unitOf(a)), 0))
			t.do(l, t.request(r, a, 1, pick(r, paths[1:]...)...))
		}
		got, err := l.PeekMany(t.ctx, paths)
		if err != nil || len(got) != len(paths) {
			t.fatalf("%+v: PeekMany: %d results, %v", a, len(got), err)
		}
		for i, path := range paths {
			if want := t.peek(l, 1, path...); got[i] != want {
				t.errorf("%+v, path %v:\nPeekMany %+v\nPeek     %+v", a, path, got[i], want)
			}
		}
	}
}

func subjectRemaining(t *T) {
	r := t.rand()
	for h := range t.times(24) {
		a := t.draw(r)
		c := newClock()
		l := t.limiter(c, one(a))
		path := []string{"left", strconv.Itoa(h)}
		for s := range 16 {
			c.advance(anyPause(r, t.unitOf(a)))
			there := t.peek(l, 0, path...)
			left := there.Remaining
			if left < 0 || left > there.Limit || !there.Allowed && left > 0 {
				t.fatalf("%+v, step %d: cost 0: got %+v", a, s, there)
			}
			if left > 0 {
				if cost := t.fitting(a, left); !t.peek(l, cost, path...).Allowed {
					t.errorf("%+v, step %d: %d tokens remain, and %d do not pass: %+v", a, s, left, cost, t.peek(l, cost, path...))
				}
			}
			if t.fitting(a, left+1) == left+1 {
				if res := t.peek(l, left+1, path...); res.Allowed || res.Remaining != left && res.Span == there.Span {
					t.errorf("%+v, step %d: %d tokens remain, and for one more: %+v", a, s, left, res)
				}
			}
			req := t.request(r, a, 1+r.Int64N(4), path...)
			res := t.do(l, req)
			if want := left - req.Cost; res.Allowed && res.Remaining != want {
				t.errorf("%+v, step %d: %d tokens remained and %d were taken: %+v", a, s, left, req.Cost, res)
			}
			if res.Allowed == (left < req.Cost) || t.failed() {
				t.fatalf("%+v, step %d: %d tokens remained, cost %d: %+v", a, s, left, req.Cost, res)
			}
		}
	}
}

func subjectMix(t *T) {
	t.beside(t.times(40), 20, func(r *rand.Rand) []algorithm.Algorithm {
		list := []algorithm.Algorithm{t.draw(r)}
		for range 1 + r.IntN(4) {
			list = append(list, pick(r, anyGCRA, anyFixedWindow, anySlidingCounter, anySlidingLog, t.draw)(r))
		}
		return list
	})
}

func subjectSixteen(t *T) {
	first := true
	t.beside(t.times(8), 12, func(r *rand.Rand) []algorithm.Algorithm {
		list := make([]algorithm.Algorithm, weir.MaxRules)
		for i := range list {
			if list[i] = list[0]; i == 0 || !first {
				list[i] = t.draw(r)
			}
		}
		first = false
		t.compiles(list)
		return list
	})
}

// compiles checks that list makes scripts of no more locals than Lua has room for.
func (t *T) compiles(list []algorithm.Algorithm) {
	fragments := make([]*algorithm.Fragment, len(list))
	parts, marks := true, true
	for i, a := range list {
		f := t.fragment(a)
		fragments[i] = f
		parts, marks = parts && f.Fit != nil, marks && f.Charge != nil
	}
	p, err := algorithm.Compose(fragments...)
	if err != nil {
		t.fatalf("%d times: Compose: %v", len(list), err)
	}
	refund, err := p.Refund()
	if marks && err != nil {
		t.fatalf("%d times: Refund: %v", len(list), err)
	}
	most, err := p.Variant(algorithm.Mode{UpTo: parts, Marked: marks})
	if err != nil {
		t.fatalf("%d times: Variant: %v", len(list), err)
	}
	for _, s := range []*store.Script{p.Decide, p.Peek, p.Reset, refund, most} {
		if s == nil {
			continue
		}
		if n := luaLocals(s.Lua()); n > maxLuaLocals {
			t.fatalf("%s has %d locals at once, and Lua has room for %d: put some of them between do and end", s.Name(), n, maxLuaLocals)
		}
	}
}

// beside runs n random histories through limiters over the lists that maker
// returns, the first of which is of the subject, in random order, and compares
// each rule's answers with those that it gives alone, in the memory of the
// process.
func (t *T) beside(n, steps int, maker func(*rand.Rand) []algorithm.Algorithm) {
	r := t.rand()
	for h := range n {
		list := maker(r)
		unit := t.unitOf(list[0])
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		c := newClock()
		path := []string{"beside", strconv.Itoa(h)}
		rules := make([]weir.Rule, len(list))
		alone := make([]*weir.Limiter, len(list))
		most := int64(8)
		for i, a := range list {
			rules[i] = weir.Rule{Name: "r" + strconv.Itoa(i), Algorithm: a}
			alone[i] = t.limiterOn(memory.New(nil), c, rules[i])
			most = t.fitting(a, most)
		}
		l := t.limiter(c, rules...)
		each := make([]weir.Result, len(list))
		for s := range steps {
			c.advance(anyPause(r, unit))
			req := weir.Request{Path: path, Cost: min(anyCost(r), most), Peek: r.IntN(5) == 0, Each: each}
			got := t.do(l, req)
			ask := weir.Request{Path: path, Cost: req.Cost, Peek: true}
			all := true
			want := make([]weir.Result, len(list))
			for i := range list {
				want[i] = t.do(alone[i], ask)
				all = all && want[i].Allowed
			}
			if ask.Peek = !all || req.Peek; !ask.Peek {
				for i := range list {
					want[i] = t.do(alone[i], ask)
				}
			}
			if got.Allowed != all || all && !req.Peek && got.Granted != req.Cost || !all && got.Granted != 0 {
				t.errorf("history %d of %+v, step %d, cost %d, peek %v: got %+v, and all pass alone: %v", h, rules, s, req.Cost, req.Peek, got, all)
			}
			for i := range list {
				if each[i] != want[i] {
					t.errorf("history %d of %+v, step %d, cost %d, peek %v, rule %d:\ngot   %+v\nalone %+v", h, rules, s, req.Cost, req.Peek, i, each[i], want[i])
				}
			}
			if t.failed() {
				return
			}
		}
	}
}

func subjectExact(t *T) { exact(t.draw)(t) }

func subjectNever(t *T) {
	r := t.rand()
	for h := range t.times(16) {
		t.neverFits(t.draw(r), strconv.Itoa(h))
	}
}

func subjectHotKey(t *T) {
	a := t.slow(t.rand())
	limit := t.peek(t.limiter(nil, one(a)), 0, "limit").Limit
	if admitted, asked := t.hot(a, limit); admitted > limit {
		t.errorf("%+v: %d tokens asked for at once: %d admitted, want at most %d", a, asked, admitted, limit)
	}
}

func subjectHotKeyFull(t *T) {
	a := t.slow(t.rand())
	limit := t.peek(t.limiter(nil, one(a)), 0, "limit").Limit
	if admitted, asked := t.hot(a, limit); admitted < limit {
		t.errorf("%+v: %d tokens asked for at once: %d admitted, want at least %d", a, asked, admitted, limit)
	}
}

func subjectBackwards(t *T) {
	r := t.rand()
	for h := range t.times(8) {
		a := t.small(r, "denies", func(algorithm.Algorithm, weir.Result) bool { return true })
		unit := max(t.unitOf(a), time.Microsecond)
		t.backwards(a, "back"+strconv.Itoa(h), time.Microsecond, unit, 5*unit, time.Hour)
	}
}

func subjectOwnClock(t *T) {
	r := t.rand()
	for h := range t.times(8) {
		a := t.slow(r)
		path := []string{"own", strconv.Itoa(h)}
		c := &clock{}
		own, told := t.limiter(nil, one(a)), t.limiter(c, one(a))
		for try := 0; ; try++ {
			before := t.time()
			got := t.allow(own, 1, path...)
			after := t.time()
			c.us = after.UnixMicro()
			want := t.peek(told, 0, path...)
			late := got.ResetAfter - want.ResetAfter
			if got.Allowed && got.Limit == want.Limit && got.Remaining == want.Remaining && late >= -skew && late <= after.Sub(before)+skew {
				break
			}
			if try == 2 { // the edge of a day or so, thrice
				t.errorf("%+v: a token is taken by the store's clock: %+v\nasked %v later by a caller's: %+v", a, got, after.Sub(before), want)
				break
			}
			if err := own.Reset(t.ctx, path...); err != nil {
				t.fatalf("Reset: %v", err)
			}
		}
	}
}

// tooFar is a time that lies, or may lie, behind the last that there is.
const tooFar = 60 * 365 * 24 * time.Hour

func subjectResetAfter(t *T) {
	r := t.rand()
	done := 0
	for h := range t.times(40) {
		a := t.draw(r)
		c := newClock()
		l := t.limiter(c, one(a))
		path := []string{"reset", strconv.Itoa(h)}
		var last weir.Result
		for range 1 + r.IntN(8) {
			c.advance(max(anyPause(r, t.unitOf(a)), 0))
			last = t.do(l, t.request(r, a, 1+r.Int64N(3), path...))
		}
		if last.ResetAfter <= 0 || last.ResetAfter > tooFar {
			continue
		}
		done++
		for rest := last.ResetAfter; ; {
			if got := t.peek(l, 0, path...).ResetAfter; got != rest {
				t.fatalf("%+v: after a ResetAfter of %v, and %v more: got %v, want %v", a, last.ResetAfter, last.ResetAfter-rest, got, rest)
			}
			if rest == 0 {
				break
			}
			d := min(time.Duration(1+r.Int64N(rest.Microseconds()))*time.Microsecond, rest)
			c.advance(d)
			rest -= d
		}
		fresh := t.peek(l, 1, "fresh")
		if got := t.peek(l, 1, path...); got != fresh {
			t.errorf("%+v: after a ResetAfter of %v:\ngot  %+v\nwant %+v", a, last.ResetAfter, got, fresh)
		}
		if fresh.Limit > 1000 {
			continue
		}
		if taken := t.takeAll(l, a, path...); taken < fresh.Limit {
			t.errorf("%+v: after a ResetAfter of %v: %d tokens could be taken, want %d", a, last.ResetAfter, taken, fresh.Limit)
		}
	}
	if done == 0 {
		t.fatalf("after no decision was ResetAfter from 1µs to %v", tooFar)
	}
}

func subjectHuge(t *T) {
	r := t.rand()
	list := t.backend.subject.Huge
	for range t.times(16) {
		list = append(list[:len(list):len(list)], t.draw(r))
	}
	reference := memory.New(nil)
	for i, a := range list {
		for _, at := range []int64{newClock().us, 1<<52 - 1} {
			c := &clock{us: at}
			l, ref := t.limiter(c, one(a)), t.limiterOn(reference, c, one(a))
			path := []string{"huge", strconv.Itoa(i), strconv.FormatInt(at, 10)}
			fresh := t.peek(l, 0, path...)
			limit, taken := fresh.Limit, int64(0)
			for s, cost := range []int64{1, limit / 3, 1, limit / 2, limit, 0} {
				cost = t.fitting(a, cost)
				got, want := t.allow(l, cost, path...), t.allow(ref, cost, path...)
				if got != want {
					t.errorf("%+v, step %d, cost %d:\ngot                 %+v\non the memory store %+v", a, s, cost, got, want)
				}
				taken += got.Granted
				told := got.Limit == limit && got.Remaining == limit-taken || got.Span != fresh.Span // of which the limit is another
				if got.Allowed != (taken-got.Granted+cost <= limit) || !told {
					t.errorf("%+v, step %d, cost %d, %d taken in all: got %+v", a, s, cost, taken, got)
				}
			}
			if err := l.Reset(t.ctx, path...); err != nil {
				t.errorf("Reset: %v", err)
			}
		}
	}
}
