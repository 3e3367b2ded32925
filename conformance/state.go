package conformance

import (
	"errors"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// This file holds the checks of RunAlgorithm for the state in the store.

func checkZero(t *T) {
	r := t.rand()
	seen := map[reflect.Type]bool{}
	for range t.times(16) {
		a := t.draw(r)
		if k, again := t.kindOf(a).Head, t.kindOf(a).Head; k != again {
			t.errorf("%+v: NewLimit returns the Kind %p and then %p: it must return the same pointer", a, k, again)
		}
		kind := reflect.TypeOf(a)
		if seen[kind] {
			continue
		}
		seen[kind] = true
		zero := reflect.Zero(kind)
		if kind.Kind() == reflect.Pointer {
			zero = reflect.New(kind.Elem())
		}
		if limit, err := zero.Interface().(algorithm.Algorithm).NewLimit(); !errors.Is(err, algorithm.ErrInvalidLimit) {
			t.errorf("%v{}: NewLimit returns %+v and the error %v, want ErrInvalidLimit", kind, limit, err)
		}
	}
}

// keysLike returns the keys that the limiters of this check wrote for names that begin with
// start, with their TTLs. A start that ends with } is one whole name. If the backend gives
// no Keys, keysLike returns none.
func (t *T) keysLike(start string) map[string]time.Duration {
	if t.backend.Keys == nil {
		return nil
	}
	return t.backend.Keys(t.test, t.hooked, t.id+":"+suite+":{"+start)
}

// sameTTLs compares the TTLs of keys, written since begin, with those in reference.
func (t *T) sameTTLs(a algorithm.Algorithm, name string, keys []string, reference *memory.Store, begin time.Time) {
	got, want := t.keysLike(name+"}"), maps.Collect(reference.All())
	slop := time.Since(begin) + 2*time.Millisecond
	for _, key := range keys {
		if d := got[key] - want[key]; d > slop || d < -slop {
			t.errorf("%+v: key %q has the TTL %v, on the memory store %v; 0 means a missing key", a, key, got[key], want[key])
		}
		delete(got, key)
	}
	for key := range got {
		t.errorf("%+v: %q was written, which is not one of its keys", a, key)
	}
}

// A kept is all that a caller can see of a key's state.
type kept struct {
	values string
	ttls   map[string]time.Duration
	answer weir.Result
}

// kept looks at keys, which are those of name.
func (t *T) kept(l *weir.Limiter, keys []string, name string) kept {
	var k kept
	for _, v := range t.mget(keys...) {
		k.values += v.Str() + "\n"
	}
	k.ttls = t.keysLike(name + "}")
	k.answer = t.peek(l, 1, name)
	return k
}

// changed returns what differs in now, or an empty text. TTLs may be shorter.
func (k kept) changed(now kept) string {
	switch {
	case now.values != k.values:
		return "its keys held " + strconv.Quote(k.values) + ", and now " + strconv.Quote(now.values)
	case now.answer != k.answer:
		return "it answers Peek otherwise"
	}
	for key, ttl := range now.ttls {
		if before, ok := k.ttls[key]; !ok || ttl > before+time.Millisecond {
			return "key " + strconv.Quote(key) + " has the TTL " + ttl.String() + ", and had " + before.String() + " before"
		}
	}
	return ""
}

func checkAsk(t *T) {
	r := t.rand()
	for h := range t.times(24) {
		a, c, l := t.drawn(r)
		gate := weir.Rule{Name: "gate", Algorithm: algorithm.FixedWindow{Limit: 1, Window: algorithm.MaxSpan * time.Microsecond / 2}}
		closed := t.limiter(c, [][]weir.Rule{{one(a), gate}, {gate, one(a)}}[h%2]...)
		name := "ask" + strconv.Itoa(h)
		t.allow(t.limiter(c, gate), 1, name)
		keys, refunds := t.keysOf(name, "one", a), t.refundable(a)
		for range 5 {
			req := t.request(r, a, 1+r.Int64N(3), name)
			denied := func(op weir.Op, id string) func() weir.Result {
				return func() weir.Result {
					req := req
					if req.Op = op; id != "" {
						req.ID = id
					}
					res := t.do(closed, req)
					if res.Allowed {
						t.errorf("a request is allowed that one of its rules denies: %+v", res)
					}
					return res
				}
			}
			asks := map[string]func() weir.Result{
				"Peek":                   func() weir.Result { return t.peek(l, req.Cost, name) },
				"Peek over many rules":   denied(weir.Peek, ""),
				"DoMany":                 func() weir.Result { return l.DoMany(t.ctx, peeks([][]string{{name}}))[0].Result },
				"denied by another rule": denied(weir.Consume, ""),
				"denied": func() weir.Result {
					if t.peek(l, req.Cost, name).Allowed {
						return weir.Result{}
					}
					return t.do(l, req)
				},
			}
			if !t.leases {
				asks["TakeUpTo, denied as well"] = denied(weir.TakeUpTo, "")
			}
			if refunds {
				asks["denied with an ID"] = denied(weir.Consume, "denied")
				asks["a refund of nothing"] = func() weir.Result { return weir.Result{Allowed: t.refund(closed, "denied", name)} }
			}
			if t.kindOf(a).Entries {
				asks["Entries"] = func() weir.Result { t.entries(l, name); return weir.Result{} }
			}
			before := t.kept(l, keys, name)
			for _, what := range slices.Sorted(maps.Keys(asks)) {
				res, after := asks[what](), t.kept(l, keys, name)
				if changed := before.changed(after); changed != "" {
					t.fatalf("%+v, %s, cost %d, answered by %+v: %s", a, what, req.Cost, res, changed)
				}
				before = after
			}
			t.do(l, req)
			c.advance(max(anyPause(r, t.unitOf(a)), 0))
		}
	}
}

// quantum is the multiple to which the end of a key's TTL is rounded up.
const quantum = (1 << 20) * time.Microsecond

// checkTTL runs on both clocks. If the clock is virtual, only the TTLs get shorter.
func checkTTL(t *T) {
	t.left()
	r := t.rand()
	for h := range t.times(48) {
		a := t.draw(r)
		list := []algorithm.Algorithm{a}
		if h%2 == 1 {
			list = append(list, a, t.relative(r, a))
		}
		for i, c := range []*clock{nil, newClock()} {
			t.ttls(r, list, c, time.Duration(i)*time.Hour, "ttl"+strconv.Itoa(h)+"-"+strconv.Itoa(i))
		}
	}
}

// ttls makes requests and refunds under the limits of list, and compares the TTLs with the
// time for which the state is in use, and longer.
func (t *T) ttls(r *rand.Rand, list []algorithm.Algorithm, c *clock, longer time.Duration, name string) {
	refunds, refunded := t.refundable(list[0]), false
	var wrote time.Time
	for s := range 8 {
		a := pick(r, list...)
		l := t.limiter(c, one(a))
		req := t.request(r, a, 1+r.Int64N(3), name)
		if refunds && r.IntN(2) == 0 {
			req.ID = strconv.Itoa(s)
		}
		if t.kindOf(a).Reserves && r.IntN(3) == 0 {
			req.MaxWait = weir.Never
		}
		begin := time.Now()
		res := t.do(l, req)
		if res.Allowed {
			wrote = begin
		} else if len(list) > 1 {
			continue
		}
		if refunds && r.IntN(4) == 0 {
			refunded = t.refund(l, strconv.Itoa(r.IntN(s+1)), name) || refunded
			begin = time.Now()
			res = t.peek(l, 1, name)
		}
		var longest time.Duration
		for key, ttl := range t.keysLike(name + "}") {
			if ttl < 0 {
				t.errorf("%+v: %q never expires", a, key)
			}
			if !strings.Contains(key, ":%id=") {
				longest = max(longest, ttl)
			}
		}
		if c != nil {
			begin = wrote
		}
		slop := time.Since(begin) + time.Millisecond
		if res.ResetAfter > 0 && longest+slop < res.ResetAfter+longer || t.backend.subject.builtin && len(list) == 1 && !refunded && longest > res.ResetAfter+longer+quantum+2*time.Millisecond {
			t.errorf("%+v of %+v, step %d: the longest TTL is %v, %v after a decision whose state is in use for %v", a, list, s, longest, slop, res.ResetAfter+longer)
		}
	}
}

// checkExpired compares two stores. In one, every key expires at the end of its TTL. The
// clock of the other stands still, so no key expires.
func checkExpired(t *T) {
	r := t.rand()
	for h := range t.times(40) {
		a := t.draw(r)
		c := newClock()
		still := *c
		goes := t.limiterOn(memory.New(&memory.Options{Now: c.now}), nil, one(a))
		stays := t.limiterOn(memory.New(&memory.Options{Now: still.now}), c, one(a))
		p := pair{T: t, lim: goes, ref: stays}
		name := "expired" + strconv.Itoa(h)
		refunds := t.refundable(a)
		for s := range 30 {
			c.advance(max(anyPause(r, t.unitOf(a)), 0))
			req := t.request(r, a, anyCost(r), name)
			if refunds && r.IntN(2) == 0 {
				req.ID = "id" + strconv.Itoa(s)
			}
			got := p.both(req)
			if r.IntN(4) == 0 && got.ResetAfter < tooFar/1000 {
				c.advance(got.ResetAfter + time.Duration(r.IntN(3)-1)*time.Microsecond)
			}
			if refunds && r.IntN(4) == 0 {
				p.refund("id"+strconv.Itoa(r.IntN(s+1)), name)
			}
			if t.failed() {
				t.fatalf("history %d of %+v, step %d: keys expire, and on the reference store they stay", h, a, s)
			}
		}
	}
}

func checkReset(t *T) {
	r := t.rand()
	for h := range t.times(40) {
		a, c, l := t.drawn(r)
		name, other := "reset"+strconv.Itoa(h), "other"+strconv.Itoa(h)
		for range 4 {
			c.advance(max(anyPause(r, t.unitOf(a)), 0))
			cost := 1 + r.Int64N(3)
			t.do(l, t.request(r, a, cost, name))
			t.do(l, t.request(r, a, cost, other))
		}
		before, held := t.peek(l, 1, other), t.mget(t.keysOf(other, "one", a)...)
		if got := t.peek(l, 1, name); got != before {
			t.errorf("%+v: two keys after the same requests:\none   %+v\nother %+v", a, got, before)
		}
		t.reset(l, name)
		if got, want := t.peek(l, 1, name), t.peek(l, 1, "never"); got != want {
			t.errorf("%+v: after Reset:\ngot  %+v\nwant %+v", a, got, want)
		}
		t.holds(store.Value{}, t.keysOf(name, "one", a), "%+v: after Reset", a)
		if got := t.peek(l, 1, other); got != before || !slices.Equal(t.mget(t.keysOf(other, "one", a)...), held) {
			t.errorf("%+v: after Reset of another key:\ngot  %+v\nwant %+v", a, got, before)
		}
		for key := range t.keysLike(name + "}") {
			t.errorf("%+v: after Reset there is still %q", a, key)
		}
	}
}
