package conformance

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/store/memory"
)

// This file holds the checks of RunAlgorithm of answers.

func subjectPeek(t *T) {
	r := t.rand()
	for h := range t.times(40) {
		a := t.draw(r)
		c := newClock()
		l := t.limiter(c, one(a))
		for s := range 16 {
			c.advance(anyPause(r, t.unitOf(a)))
			req := t.request(r, a, 1+r.Int64N(4), "peek"+strconv.Itoa(h))
			if t.kindOf(a).Reserves && r.IntN(3) == 0 {
				req.MaxWait = anyWait(r, t.unitOf(a))
			}
			peek := req
			peek.Op = weir.Peek
			peeked, got := t.do(l, peek), t.do(l, req)
			if peeked.Granted != 0 {
				t.errorf("%+v: Peek granted tokens: %+v", a, peeked)
			}
			want := peeked
			if got.Allowed { // the tokens consumed change these alone
				want.Granted, want.Remaining, want.ResetAfter = req.Cost, got.Remaining, got.ResetAfter
			}
			if got != want {
				t.fatalf("%+v, step %d, %+v:\nPeek answered %+v\nand then      %+v", a, s, req, peeked, got)
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
		var keys [][]string
		for i := range 6 {
			keys = append(keys, []string{"many" + strconv.Itoa(h) + "." + strconv.Itoa(i)})
		}
		for range 20 {
			c.advance(max(anyPause(r, t.unitOf(a)), 0))
			t.do(l, t.request(r, a, 1, pick(r, keys[1:]...)[0]))
		}
		for i, got := range l.DoMany(t.ctx, peeks(keys)) {
			if want := t.peek(l, 1, keys[i]...); got.Err != nil || got.Result != want {
				t.errorf("%+v, key %v:\nDoMany %+v, %v\nPeek   %+v", a, keys[i], got.Result, got.Err, want)
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
		key := "left" + strconv.Itoa(h)
		for s := range 16 {
			c.advance(anyPause(r, t.unitOf(a)))
			there := t.peek(l, 1, key)
			left := there.Remaining
			if left < 0 || left > there.Limit || there.Allowed != (left > 0) {
				t.fatalf("%+v, step %d: got %+v", a, s, there)
			}
			if left > 0 {
				if cost := t.fitting(a, left); !t.peek(l, cost, key).Allowed {
					t.errorf("%+v, step %d: %d tokens remain, and %d are denied: %+v", a, s, left, cost, t.peek(l, cost, key))
				}
			}
			if t.fitting(a, left+1) == left+1 {
				if res := t.peek(l, left+1, key); res.Allowed || res.Remaining != left && res.Window == there.Window {
					t.errorf("%+v, step %d: %d tokens remain, and for one more: %+v", a, s, left, res)
				}
			}
			req := t.request(r, a, 1+r.Int64N(4), key)
			res := t.do(l, req)
			if res.Allowed == (left < req.Cost) || res.Allowed && res.Remaining != left-req.Cost && !t.queues(a, l, res, left-req.Cost, key) || t.failed() {
				t.fatalf("%+v, step %d: %d tokens remained, and a request for %d got %+v", a, s, left, req.Cost, res)
			}
		}
	}
}

// queues reports whether res, the answer to a request, leaves left tokens to those who
// may wait, and none to the others: the algorithm is a queue.
func (t *T) queues(a algorithm.Algorithm, l *weir.Limiter, res weir.Result, left int64, key string) bool {
	switch wait := t.longestWait(a); {
	case res.Remaining != 0 || !t.kindOf(a).Reserves:
		return false
	case res.ResetAfter > wait:
		return true // nobody can wait that long
	}
	peek := weir.Request{Key: weir.KeyOf(key), Op: weir.Peek, Cost: left + 1, MaxWait: weir.Never}
	more := t.do(l, peek)
	if peek.Cost = left; left == 0 || more.Allowed {
		return left == 0 && !more.Allowed
	}
	all := t.do(l, peek)
	return all.Allowed && all.Delay > 0
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

// compiles checks that the scripts of list have no more locals than Lua allows.
func (t *T) compiles(list []algorithm.Algorithm) {
	rules := make([]compose.Rule, len(list))
	for i, a := range list {
		limit, err := a.NewLimit()
		if err != nil {
			t.fatalf("%+v: NewLimit: %v", a, err)
		}
		rules[i].Limit = limit
	}
	p, err := compose.New(rules)
	if err != nil {
		t.fatalf("%d rules: %v", len(list), err)
	}
	verbs := []compose.Verb{compose.Consume, compose.UpTo, compose.Peek, compose.Reset}
	if slices.IndexFunc(list, func(a algorithm.Algorithm) bool { return !t.refundable(a) }) < 0 {
		verbs = append(verbs, compose.ConsumeMark, compose.UpToMark, compose.Refund)
	}
	for _, v := range verbs {
		if s := p.Script(v); luaLocals(s.Lua()) > maxLuaLocals {
			t.fatalf("%s has %d locals at once, and Lua allows %d: put some of them between do and end", s.Name(), luaLocals(s.Lua()), maxLuaLocals)
		}
	}
}

// beside runs n random histories under lists of rules, the first of which is of the
// subject, in random order. It compares the answer of each rule with what the rule
// answers alone, in the memory store.
func (t *T) beside(n, steps int, maker func(*rand.Rand) []algorithm.Algorithm) {
	r := t.rand()
	for h := range n {
		list := maker(r)
		unit := t.unitOf(list[0])
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		c := newClock()
		key := weir.KeyOf("beside" + strconv.Itoa(h))
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
			req := weir.Request{Key: key, Cost: min(anyCost(r), most)}
			if r.IntN(5) == 0 {
				req.Op = weir.Peek
			}
			got := t.do(l, req, each...)
			single := req
			single.Op = weir.Peek
			all := true
			want := make([]weir.Result, len(list))
			for i := range list {
				want[i] = t.do(alone[i], single)
				all = all && want[i].Allowed
			}
			if all && req.Op == weir.Consume {
				for i := range list {
					want[i] = t.do(alone[i], req)
				}
			}
			granted := int64(0)
			if all && req.Op == weir.Consume {
				granted = max(req.Cost, 1)
			}
			if got.Allowed != all || got.Granted != granted {
				t.errorf("history %d of %+v, step %d, %+v: got %+v, and that each rule alone allows it is %v", h, rules, s, req, got, all)
			}
			for i := range list {
				if each[i] != want[i] {
					t.errorf("history %d of %+v, step %d, %+v, rule %d:\ngot   %+v\nalone %+v", h, rules, s, req, i, each[i], want[i])
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
	limit := t.peek(t.limiter(nil, one(a)), 1, "limit").Limit
	if allowed, asked := t.hot(a, limit); allowed > limit {
		t.errorf("%+v: of %d tokens asked for concurrently, %d were allowed, want at most %d", a, asked, allowed, limit)
	}
}

func subjectHotKeyFull(t *T) {
	a := t.slow(t.rand())
	limit := t.peek(t.limiter(nil, one(a)), 1, "limit").Limit
	if allowed, asked := t.hot(a, limit); allowed < limit {
		t.errorf("%+v: of %d tokens asked for concurrently, %d were allowed, want at least %d", a, asked, allowed, limit)
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
			same := got.Limit == want.Limit && got.Remaining == want.Remaining || got.Window != want.Window // which is another span
			if got.Allowed && same && late >= -skew && late <= after.Sub(before)+skew {
				break
			}
			if try == 2 { // a window that ends in between explains one or two
				t.errorf("%+v: a token is consumed by the store's clock: %+v\nPeek by a caller's clock, %v later: %+v", a, got, after.Sub(before), want)
				break
			}
			t.reset(own, key)
		}
	}
}

// tooFar is more than the time from the virtual clock to the last time that there is.
const tooFar = 60 * 365 * 24 * time.Hour

func subjectResetAfter(t *T) {
	r := t.rand()
	done := 0
	for h := range t.times(40) {
		a := t.draw(r)
		c := newClock()
		l := t.limiter(c, one(a))
		key := "reset" + strconv.Itoa(h)
		var last weir.Result
		for range 1 + r.IntN(8) {
			c.advance(max(anyPause(r, t.unitOf(a)), 0))
			last = t.do(l, t.request(r, a, 1+r.Int64N(3), key))
		}
		if last.ResetAfter <= 0 || last.ResetAfter > tooFar {
			continue
		}
		done++
		for rest := last.ResetAfter; ; {
			if got := t.peek(l, 1, key).ResetAfter; got != rest {
				t.fatalf("%+v: %v after a ResetAfter of %v: got %v, want %v", a, last.ResetAfter-rest, last.ResetAfter, got, rest)
			}
			if rest == 0 {
				break
			}
			d := min(time.Duration(1+r.Int64N(rest.Microseconds()))*time.Microsecond, rest)
			c.advance(d)
			rest -= d
		}
		fresh := t.peek(l, 1, "fresh")
		if got := t.peek(l, 1, key); got != fresh {
			t.errorf("%+v: when a ResetAfter of %v is over:\ngot  %+v\nwant %+v", a, last.ResetAfter, got, fresh)
		}
		if fresh.Limit > 1000 {
			continue
		}
		if taken := t.takeAll(l, a, key); taken < fresh.Limit {
			t.errorf("%+v: when a ResetAfter of %v is over: %d tokens are there, want %d", a, last.ResetAfter, taken, fresh.Limit)
		}
	}
	if done == 0 {
		t.fatalf("no decision had a ResetAfter from 1µs to %v", tooFar)
	}
}

func subjectHuge(t *T) {
	r := t.rand()
	list := slices.Clone(t.backend.subject.Huge)
	for range t.times(16) {
		list = append(list, t.draw(r))
	}
	for i, a := range list {
		for _, at := range []int64{newClock().us, 1<<52 - 1} {
			t.hugeNumbers(a, &clock{us: at}, "huge"+strconv.Itoa(i)+"."+strconv.FormatInt(at, 10))
		}
	}
}

// hugeNumbers makes requests for large parts of the limit, and compares the answers with
// those on the memory store.
func (t *T) hugeNumbers(a algorithm.Algorithm, c *clock, key string) {
	p := t.pair(c, one(a))
	reserves, refunds := t.kindOf(a).Reserves, t.refundable(a)
	peek := func() weir.Result { return p.both(weir.Request{Key: weir.KeyOf(key), Op: weir.Peek}) }
	limit := peek().Limit
	if fresh := peek(); fresh.Remaining != fresh.Limit {
		t.errorf("%+v: a fresh key has fewer tokens than the limit: %+v", a, fresh)
	}
	list := []weir.Request{{Cost: 1}, {Cost: limit / 3}, {Cost: 1}, {Cost: limit / 2}, {Cost: limit}, {Op: weir.TakeUpTo, Cost: hugeCost}}
	if reserves {
		list = append(list, weir.Request{Cost: limit, MaxWait: weir.Never}, weir.Request{Cost: limit/2 + 1, MaxWait: weir.Never}, weir.Request{MaxWait: weir.Never})
	}
	for s, req := range list {
		before := peek()
		req.Key = weir.KeyOf(key)
		if req.Op == weir.Consume {
			req.Cost = t.fitting(a, max(req.Cost, 1))
		}
		if refunds && s%2 == 0 {
			req.ID = strconv.Itoa(s)
		}
		got := p.both(req)
		if req.MaxWait > 0 {
			continue
		}
		fits := req.Cost <= before.Remaining || req.Op == weir.TakeUpTo && before.Remaining > 0
		if left := before.Remaining - got.Granted; got.Allowed != fits || got.Remaining != left && got.Window == before.Window && !t.queues(a, p.lim, got, left, key) {
			t.errorf("%+v, step %d, %+v, with %d tokens left: got %+v", a, s, req, before.Remaining, got)
		}
	}
	if refunds {
		for _, s := range []int{0, 4, 2, 8, 6} {
			p.refund(strconv.Itoa(s), key)
			peek()
		}
	}
	p.same(a, t.keysOf(key, "one", a)...)
	t.resetBoth(p, key)
}
