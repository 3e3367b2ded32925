package algorithms

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
	"github.com/weir-go/weir/conformance/internal/decisions"
	"github.com/weir-go/weir/internal/model"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

func checkZero(t *T) {
	r := t.Rand()
	seen := map[reflect.Type]bool{}
	for range t.Times(16) {
		a := t.Draw(r)
		if k, again := t.KindOf(a).Head, t.KindOf(a).Head; k != again {
			t.Errorf("%+v: NewLimit returns the Kind %p and then %p: it must return the same pointer", a, k, again)
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
			t.Errorf("%v{}: NewLimit returns %+v and the error %v, want ErrInvalidLimit", kind, limit, err)
		}
	}
}

// sameTTLs compares the TTLs of keys, written since begin, with those in reference.
func (t *T) sameTTLs(a algorithm.Algorithm, name string, keys []string, reference *memory.Store, begin time.Time) {
	got, want := t.KeysLike(name+"}"), maps.Collect(reference.All())
	slop := time.Since(begin) + 2*time.Millisecond
	for _, key := range keys {
		if d := got[key] - want[key]; d > slop || d < -slop {
			t.Errorf("%+v: for key %q, Backend.Keys returned the TTL %v, and the memory store has %v; 0 means a missing key", a, key, got[key], want[key])
		}
		delete(got, key)
	}
	for key := range got {
		t.Errorf("%+v: Backend.Keys returned %q, which is not one of its keys", a, key)
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
	for _, v := range t.MGet(keys...) {
		k.values += v.Str() + "\n"
	}
	k.ttls = t.KeysLike(name + "}")
	k.answer = t.Peek(l, 1, name)
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
	r := t.Rand()
	for h := range t.Times(24) {
		a, c, l := t.drawn(r)
		gate := weir.Rule{Name: "gate", Algorithm: algorithm.FixedWindow{Limit: 1, Window: algorithm.MaxSpan / 2}}
		closed := t.Limiter(c, [][]weir.Rule{{decisions.One(a), gate}, {gate, decisions.One(a)}}[h%2]...)
		name := "ask" + strconv.Itoa(h)
		t.Allow(t.Limiter(c, gate), 1, name)
		keys, refunds := t.KeysOf(name, "one", a), t.refundable(a)
		for range 5 {
			req := t.request(r, a, 1+r.Int64N(3), name)
			denied := func(op weir.Op, id string) func() weir.Result {
				return func() weir.Result {
					req := req
					if req.Op = op; id != "" {
						req.ID = id
					}
					res := t.Do(closed, req)
					if res.Allowed {
						t.Errorf("a request is allowed that one of its rules denies: %+v", res)
					}
					return res
				}
			}
			asks := map[string]func() weir.Result{
				"Peek":                   func() weir.Result { return t.Peek(l, req.Cost, name) },
				"Peek over many rules":   denied(weir.Peek, ""),
				"DoMany":                 func() weir.Result { return l.DoMany(t.Ctx, decisions.Peeks([][]string{{name}}))[0].Result },
				"denied by another rule": denied(weir.Consume, ""),
				"denied": func() weir.Result {
					if t.Peek(l, req.Cost, name).Allowed {
						return weir.Result{}
					}
					return t.Do(l, req)
				},
			}
			if !t.Leases {
				asks["TakeUpTo, denied as well"] = denied(weir.TakeUpTo, "")
			}
			if refunds {
				asks["denied with an ID"] = denied(weir.Consume, "denied")
				asks["a refund of nothing"] = func() weir.Result { return weir.Result{Allowed: t.Refund(closed, "denied", name)} }
			}
			if t.KindOf(a).Entries {
				asks["Entries"] = func() weir.Result { t.Entries(l, name); return weir.Result{} }
			}
			before := t.kept(l, keys, name)
			for _, what := range slices.Sorted(maps.Keys(asks)) {
				res, after := asks[what](), t.kept(l, keys, name)
				if changed := before.changed(after); changed != "" {
					t.Fatalf("%+v, %s, cost %d, answered by %+v: %s", a, what, req.Cost, res, changed)
				}
				before = after
			}
			t.Do(l, req)
			c.Advance(max(model.Pause(r, t.Unit(a)), 0))
		}
	}
}

// quantum is the multiple to which the end of a key's TTL is rounded up.
const quantum = (1 << 20) * time.Microsecond

// checkTTL runs on both clocks. If the clock is virtual, only the TTLs get shorter.
func checkTTL(t *T) {
	t.Left()
	r := t.Rand()
	for h := range t.Times(48) {
		a := t.Draw(r)
		list := []algorithm.Algorithm{a}
		if h%2 == 1 {
			list = append(list, a, t.relative(r, a))
		}
		for i, c := range []*decisions.Clock{nil, decisions.NewClock()} {
			t.ttls(r, list, c, time.Duration(i)*time.Hour, "ttl"+strconv.Itoa(h)+"-"+strconv.Itoa(i))
		}
	}
}

// ttls makes requests and refunds under the limits of list, and compares the TTLs with the
// time for which the state is in use, and longer.
func (t *T) ttls(r *rand.Rand, list []algorithm.Algorithm, c *decisions.Clock, longer time.Duration, name string) {
	refunds, refunded := t.refundable(list[0]), false
	var wrote time.Time
	for s := range 8 {
		a := model.Pick(r, list...)
		l := t.Limiter(c, decisions.One(a))
		req := t.request(r, a, 1+r.Int64N(3), name)
		if refunds && r.IntN(2) == 0 {
			req.ID = strconv.Itoa(s)
		}
		if t.KindOf(a).Reserves && r.IntN(3) == 0 {
			req.MaxWait = weir.Never
		}
		begin := time.Now()
		res := t.Do(l, req)
		if res.Allowed {
			wrote = begin
		} else if len(list) > 1 {
			continue
		}
		if refunds && r.IntN(4) == 0 {
			refunded = t.Refund(l, strconv.Itoa(r.IntN(s+1)), name) || refunded
			begin = time.Now()
			res = t.Peek(l, 1, name)
		}
		var longest time.Duration
		for key, ttl := range t.KeysLike(name + "}") {
			if ttl < 0 {
				t.Errorf("%+v: %q never expires", a, key)
			}
			if !strings.Contains(key, ":%id=") {
				longest = max(longest, ttl)
			}
		}
		if c != nil {
			begin = wrote
		}
		slop := time.Since(begin) + time.Millisecond
		if res.ResetAfter > 0 && longest+slop < res.ResetAfter+longer || t.subject.builtIn() && len(list) == 1 && !refunded && longest > res.ResetAfter+longer+quantum+2*time.Millisecond {
			t.Errorf("%+v of %+v, step %d: the longest TTL is %v, %v after a decision whose state is in use for %v", a, list, s, longest, slop, res.ResetAfter+longer)
		}
	}
}

// checkExpired compares two stores. In one, every key expires at the end of its TTL. The
// clock of the other stands still, so no key expires. In every second history the limit
// changes now and then. The key then expires when the limit that wrote it says so.
func checkExpired(t *T) {
	r := t.Rand()
	for h := range t.Times(80) {
		a := t.Draw(r)
		list := []algorithm.Algorithm{a}
		if h%2 == 1 && t.KindOf(a).Keys <= 1 {
			list = append(list, t.relative(r, a))
		}
		c := decisions.NewClock()
		still := *c
		goes, stays := memory.New(&memory.Options{Now: c.Now}), memory.New(&memory.Options{Now: still.Now})
		pairs := make([]decisions.Pair, len(list))
		for i, a := range list {
			pairs[i] = decisions.Pair{T: t.T, Lim: t.Reference(goes, nil, decisions.One(a)), Ref: t.Reference(stays, c, decisions.One(a))}
		}
		name, wrote := "expired"+strconv.Itoa(h), 0
		refunds := t.refundable(a) && len(list) == 1
		for s := range 30 {
			i := r.IntN(len(list))
			c.Advance(max(model.Pause(r, t.Unit(a)), 0))
			req := t.request(r, list[i], model.Cost(r), name)
			if refunds && r.IntN(2) == 0 {
				req.ID = "id" + strconv.Itoa(s)
			}
			if i != wrote && len(maps.Collect(goes.All())) == 0 { // no key is left
				t.Reset(pairs[i].Ref, name)
			}
			got := pairs[i].Both(req)
			if got.Allowed {
				wrote = i
			}
			if r.IntN(4) == 0 && got.ResetAfter < tooFar/1000 {
				// Not back: a key that has ended would exist again.
				c.Advance(max(got.ResetAfter+time.Duration(r.IntN(3)-1)*time.Microsecond, 0))
			}
			if refunds && r.IntN(4) == 0 {
				pairs[0].Refund("id"+strconv.Itoa(r.IntN(s+1)), name)
			}
			t.StopFailed("history %d of %+v, step %d, %+v: keys expire, and on the reference store they stay", h, list, s, list[i])
		}
	}
}

func checkReset(t *T) {
	r := t.Rand()
	for h := range t.Times(40) {
		a, c, l := t.drawn(r)
		name, other := "reset"+strconv.Itoa(h), "other"+strconv.Itoa(h)
		for range 4 {
			c.Advance(max(model.Pause(r, t.Unit(a)), 0))
			cost := 1 + r.Int64N(3)
			t.Do(l, t.request(r, a, cost, name))
			t.Do(l, t.request(r, a, cost, other))
		}
		before, held := t.Peek(l, 1, other), t.MGet(t.KeysOf(other, "one", a)...)
		t.Equal(t.Peek(l, 1, name), before, "%+v: two keys after the same requests:\none   %+v\nother %+v", a)
		t.Reset(l, name)
		t.Equal(t.Peek(l, 1, name), t.Peek(l, 1, "never"), "%+v: after Reset:\ngot  %+v\nwant %+v", a)
		t.Holds(store.Value{}, t.KeysOf(name, "one", a), "%+v: after Reset", a)
		if got := t.Peek(l, 1, other); got != before || !slices.Equal(t.MGet(t.KeysOf(other, "one", a)...), held) {
			t.Errorf("%+v: after Reset of another key:\ngot  %+v\nwant %+v", a, got, before)
		}
		for key := range t.KeysLike(name + "}") {
			t.Errorf("%+v: after Reset there is still %q", a, key)
		}
	}
}
