package algorithms

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/internal/decisions"
	"github.com/weir-go/weir/conformance/internal/lualocals"
	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/model"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// checkSame runs random histories on the store under test and on the memory store. In every
// second history the limit changes now and then.
func checkSame(t *T) {
	r := t.Rand()
	for h := range t.Times(320) {
		a := t.Draw(r)
		list := []algorithm.Algorithm{a}
		if h%2 == 1 {
			list = append(list, t.relative(r, a))
		}
		c, reference := decisions.NewClock(), memory.New(nil)
		pairs := make([]decisions.Pair, len(list))
		for i, a := range list {
			pairs[i] = t.PairOn(reference, c, decisions.One(a))
		}
		name := "same" + strconv.Itoa(h)
		keys := t.KeysOf(name, "one", a)
		begin := time.Now()
		for s := range 20 {
			i := 0
			if r.IntN(4) == 0 {
				i = r.IntN(len(list))
			}
			c.Advance(model.Pause(r, t.Unit(a)))
			req := t.AnyRequest(r, list[i], name)
			pairs[i].Both(req)
			if t.Leases || s%3 == 2 {
				t.sameMembers(pairs[0], a, name, keys)
			}
			t.StopFailed("history %d of %+v, step %d, %+v under %+v", h, list, s, req, list[i])
		}
		pairs[0].Same(list, keys...)
		if t.Lists() {
			t.sameTTLs(a, name, keys, reference, begin)
		}
	}
}

// sameMembers checks that the list of name has the same entries as on the reference store,
// or that the sorted set at keys has the same number of members.
func (t *T) sameMembers(p decisions.Pair, a algorithm.Algorithm, name string, keys []string) {
	switch kind := t.KindOf(a); {
	case kind.Entries:
		t.Equal(t.Entries(p.Lim, name), t.Entries(p.Ref, name), "Entries lists %q, on the reference store %q")
	case kind.Sets:
		want, err := p.Reference.Eval(t.Ctx, scripts.Count, keys, nil, nil)
		if got := t.Eval(scripts.Count, keys); err != nil || !slices.Equal(got, want) {
			t.Errorf("the key holds %v members, on the reference store %v, %v", got, want, err)
		}
	}
}

func checkPeek(t *T) {
	r := t.Rand()
	for h := range t.Times(32) {
		a, c, l := t.drawn(r)
		for s := range 16 {
			c.Advance(model.Pause(r, t.Unit(a)))
			req := t.request(r, a, 1+r.Int64N(4), "peek"+strconv.Itoa(h))
			if t.KindOf(a).Reserves && r.IntN(3) == 0 {
				req.MaxWait = model.Wait(r, t.Unit(a))
			}
			peek := req
			peek.Op = weir.Peek
			peeked, many := t.Do(l, peek), l.DoMany(t.Ctx, []weir.Request{{Key: weir.KeyOf("other"), Op: weir.Peek}, peek})
			got := t.Do(l, req)
			if peeked.Granted != 0 {
				t.Errorf("%+v: Peek granted tokens: %+v", a, peeked)
			}
			if many[1].Err != nil || many[1].Result != peeked {
				t.Errorf("%+v, step %d, %+v:\nDoMany %+v\nPeek   %+v", a, s, peek, many[1], peeked)
			}
			want := peeked
			if got.Allowed { // only these fields may differ
				want.Granted, want.Remaining, want.ResetAfter = req.Cost, got.Remaining, got.ResetAfter
			}
			if got != want {
				t.Fatalf("%+v, step %d, %+v:\nPeek answered %+v\nand then      %+v", a, s, req, peeked, got)
			}
		}
	}
}

func checkRemaining(t *T) {
	r := t.Rand()
	for h := range t.Times(24) {
		a, c, l := t.drawn(r)
		key := "left" + strconv.Itoa(h)
		for s := range 12 {
			c.Advance(model.Pause(r, t.Unit(a)))
			there := t.Peek(l, 1, key)
			left := there.Remaining
			if left < 0 || left > there.Limit || there.Allowed != (left > 0) {
				t.Fatalf("%+v, step %d: got %+v", a, s, there)
			}
			if left > 0 {
				if cost := t.Fitting(a, left); !t.Peek(l, cost, key).Allowed {
					t.Errorf("%+v, step %d: %d tokens remain, and %d are denied: %+v", a, s, left, cost, t.Peek(l, cost, key))
				}
			}
			if t.Fitting(a, left+1) == left+1 {
				if res := t.Peek(l, left+1, key); res.Allowed || res.Remaining != left && res.Window == there.Window {
					t.Errorf("%+v, step %d: %d tokens remain, and a request for one more got %+v", a, s, left, res)
				}
			}
			req := t.request(r, a, 1+r.Int64N(4), key)
			res := t.Do(l, req)
			if res.Allowed == (left < req.Cost) || res.Allowed && res.Remaining != left-req.Cost && !t.queues(a, l, res, left-req.Cost, key) || t.Failed() {
				t.Fatalf("%+v, step %d: %d tokens remained, and a request for %d got %+v", a, s, left, req.Cost, res)
			}
		}
	}
}

// queues reports whether the algorithm is a queue: after res, the answer to a request, left
// tokens are available with MaxWait, and none without.
func (t *T) queues(a algorithm.Algorithm, l *weir.Limiter, res weir.Result, left int64, key string) bool {
	switch wait := t.LongestWait(a); {
	case res.Remaining != 0 || !t.KindOf(a).Reserves:
		return false
	case res.ResetAfter > wait:
		return true // no MaxWait is that long
	}
	peek := weir.Request{Key: weir.KeyOf(key), Op: weir.Peek, Cost: left + 1, MaxWait: weir.Never}
	more := t.Do(l, peek)
	if peek.Cost = left; left == 0 || more.Allowed {
		return left == 0 && !more.Allowed
	}
	all := t.Do(l, peek)
	return all.Allowed && all.Delay > 0
}

// checkExact also makes requests with a MaxWait.
func checkExact(t *T) {
	r := t.Rand()
	for h, denials := 0, 0; denials < t.Times(80); h++ {
		if h == 600 {
			t.Fatalf("only %d denials in %d histories", denials, h)
		}
		a, c, l := t.drawn(r)
		for range 8 {
			c.Advance(max(model.Pause(r, t.Unit(a)), 0))
			req := t.request(r, a, 1+r.Int64N(3), "exact"+strconv.Itoa(h))
			if t.KindOf(a).Reserves && r.IntN(3) == 0 {
				req.MaxWait = model.Wait(r, t.Unit(a))
			}
			res := t.Do(l, req)
			if res.Allowed || res.RetryAfter == weir.Never {
				continue
			}
			denials++
			if res.RetryAfter <= 0 {
				t.Errorf("%+v: a denial has the RetryAfter %v", a, res.RetryAfter)
			}
			c.Advance(res.RetryAfter - time.Microsecond)
			if early := t.Do(l, req); early.Allowed || early.RetryAfter != time.Microsecond {
				t.Errorf("%+v, %+v: 1µs before a RetryAfter of %v: got %+v, want it denied with a RetryAfter of 1µs", a, req, res.RetryAfter, early)
			}
			c.Advance(time.Microsecond)
			if due := t.Do(l, req); !due.Allowed {
				t.Errorf("%+v, %+v: at a RetryAfter of %v: got %+v, want it allowed", a, req, res.RetryAfter, due)
			}
		}
	}
}

func checkNever(t *T) {
	r := t.Rand()
	for h := range t.Times(16) {
		a, _, l := t.drawn(r)
		key, fresh := "big"+strconv.Itoa(h), "fresh"+strconv.Itoa(h)
		limit, reserves := t.Peek(l, 1, key).Limit, t.KindOf(a).Reserves
		for used := range int64(2) {
			if used > 0 {
				t.Allow(l, 1, key)
			}
			before := t.Peek(l, 1, key)
			for _, req := range []weir.Request{{Cost: limit + 1}, {Cost: 1 << 40}, {Cost: 1<<63 - 1}, {Cost: limit + 1, MaxWait: weir.Never}} {
				if req.Cost <= limit || req.MaxWait > 0 && !reserves {
					continue
				}
				req.Key = weir.KeyOf(key)
				got := t.Do(l, req)
				want := before
				want.Allowed, want.RetryAfter, want.Delay = false, weir.Never, weir.Never
				if got.Window != want.Window { // the answer may be about another span
					want.Window, want.Limit, want.Remaining = got.Window, got.Limit, got.Remaining
				}
				t.Equal(got, want, "%+v: %+v, with %d tokens consumed:\ngot  %+v\nwant %+v", a, req, used)
			}
		}
		t.Allow(l, limit+1, fresh)
		t.Holds(store.Value{}, t.KeysOf(fresh, "one", a), "%+v: after a cost above the capacity", a)
	}
}

// tooFar is more than the time from the virtual clock to the last possible time.
const tooFar = 60 * 365 * 24 * time.Hour

func checkResetAfter(t *T) {
	r := t.Rand()
	for h, done := 0, 0; done < t.Times(40); h++ {
		if h == 600 {
			t.Fatalf("only %d decisions in %d histories had a ResetAfter from 1µs to %v", done, h, tooFar)
		}
		a, c, l := t.drawn(r)
		key := "reset" + strconv.Itoa(h)
		var last weir.Result
		for range 1 + r.IntN(8) {
			c.Advance(max(model.Pause(r, t.Unit(a)), 0))
			last = t.Do(l, t.request(r, a, 1+r.Int64N(3), key))
		}
		if last.ResetAfter <= 0 || last.ResetAfter > tooFar {
			continue
		}
		done++
		for rest := last.ResetAfter; ; {
			if got := t.Peek(l, 1, key).ResetAfter; got != rest {
				t.Fatalf("%+v: %v after a ResetAfter of %v: got %v, want %v", a, last.ResetAfter-rest, last.ResetAfter, got, rest)
			}
			if rest == 0 {
				break
			}
			d := min(time.Duration(1+r.Int64N(rest.Microseconds()))*time.Microsecond, rest)
			c.Advance(d)
			rest -= d
		}
		fresh := t.Peek(l, 1, "fresh")
		t.Equal(t.Peek(l, 1, key), fresh, "%+v: at a ResetAfter of %v:\ngot  %+v\nwant %+v", a, last.ResetAfter)
		if fresh.Limit > 1000 {
			continue
		}
		t.Equal(t.takeAll(l, a, key), fresh.Limit, "%+v: at a ResetAfter of %v: %d tokens are available, want %d", a, last.ResetAfter)
	}
}

// checkMix makes decisions over a few rules, then over sixteen equal rules, and then over
// sixteen that differ, of which one is at its bounds.
func checkMix(t *T) {
	t.Beside("few", t.Times(80), 20, func(r *rand.Rand) []algorithm.Algorithm {
		list := []algorithm.Algorithm{t.Draw(r)}
		for range 1 + r.IntN(4) {
			list = append(list, model.Pick(r, model.Usual.GCRA, model.Usual.FixedWindow, model.Usual.SlidingCounter, model.Usual.SlidingLog, t.Draw)(r))
		}
		return list
	})
	huge := t.subject.Huge
	h := 0
	t.Beside("sixteen", t.Times(24), 12, func(r *rand.Rand) []algorithm.Algorithm {
		list := make([]algorithm.Algorithm, weir.MaxRules)
		for i := range list {
			if list[i] = list[0]; i == 0 || h > 0 {
				list[i] = t.Draw(r)
			}
		}
		if h > 0 && len(huge) > 0 {
			list[len(list)-1] = huge[h%len(huge)]
		}
		h++
		t.compiles(list)
		return list
	})
}

// compiles checks that the scripts of list have no more locals than Lua allows.
func (t *T) compiles(list []algorithm.Algorithm) {
	rules := make([]compose.Rule, len(list))
	for i, a := range list {
		rules[i].Limit = t.LimitOf(a)
	}
	p := suite.Must[*compose.Program](t.T.T, strconv.Itoa(len(list))+" rules")(compose.New(rules))
	for _, v := range p.Verbs() {
		s := p.Script(v)
		if n := lualocals.Of(s); n > lualocals.Max {
			t.Fatalf("%s has %d locals at once, and Lua allows %d: put some of them between do and end", s.Name(), n, lualocals.Max)
		}
	}
}
