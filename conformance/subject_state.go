package conformance

import (
	"errors"
	"maps"
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

// This file holds the checks of RunAlgorithm of what is kept in the store.

func subjectZero(t *T) {
	r := t.rand()
	seen := map[reflect.Type]bool{}
	for range t.times(16) {
		a := t.draw(r)
		if k, again := t.kindOf(a), t.kindOf(a); k != again {
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

func subjectSame(t *T) {
	r := t.rand()
	reference := memory.New(nil)
	for h := range t.times(40) {
		a := t.draw(r)
		c := newClock()
		list := []algorithm.Algorithm{a}
		if h%2 == 1 {
			list = append(list, t.relative(r, a)) // the limit changes now and then
		}
		name := "same" + strconv.Itoa(h)
		begin := time.Now()
		for s := range 30 {
			a := list[0]
			if r.IntN(4) == 0 {
				a = pick(r, list...)
			}
			l, ref := t.limiter(c, one(a)), t.limiterOn(reference, c, one(a))
			c.advance(anyPause(r, t.unitOf(a)))
			req := t.request(r, a, anyCost(r), name)
			req.Op = pick(r, weir.Consume, weir.Consume, weir.Consume, weir.TakeUpTo, weir.Peek)
			if req.Op != weir.TakeUpTo && t.kindOf(a).Reserves && r.IntN(4) == 0 {
				req.MaxWait = anyWait(r, t.unitOf(a))
			}
			if got, want := t.do(l, req), t.do(ref, req); got != want {
				t.fatalf("history %d of %+v, step %d, %+v under %+v:\ngot                 %+v\non the memory store %+v", h, list, s, req, a, got, want)
			}
		}
		keys := t.keysOf(name, "one", a)
		want, err := reference.MGet(t.ctx, keys, nil)
		if err != nil {
			t.fatalf("the memory store: %v", err)
		}
		for i, v := range t.mget(keys...) {
			if v != want[i] {
				t.errorf("history %d of %+v: key %q holds %q, on the memory store %q", h, list, keys[i], v.Str(), want[i].Str())
			}
		}
		if t.kindOf(a).Entries {
			l, ref := t.limiter(c, one(a)), t.limiterOn(reference, c, one(a))
			wantList, err := ref.Entries(t.ctx, name)
			if got := t.entries(l, name); err != nil || !slices.Equal(got, wantList) {
				t.errorf("history %d of %+v: Entries lists %q, on the memory store %q, %v", h, list, got, wantList, err)
			}
		}
		if t.backend.Keys != nil {
			t.sameTTLs(a, name, keys, reference, begin)
		}
	}
}

// keysLike returns the keys that the limiters of this check wrote for name, with their
// TTLs.
func (t *T) keysLike(name string) map[string]time.Duration {
	return t.backend.Keys(t.test, t.store, t.id+":"+suite+":{"+name+"}")
}

// sameTTLs compares the TTLs of keys, written since begin, with those in reference.
func (t *T) sameTTLs(a algorithm.Algorithm, name string, keys []string, reference *memory.Store, begin time.Time) {
	got, want := t.keysLike(name), maps.Collect(reference.All())
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
	if t.backend.Keys != nil {
		k.ttls = t.keysLike(name)
	}
	k.answer = t.peek(l, 1, name)
	return k
}

// changed says what differs in now, or "". TTLs run down.
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

func subjectAsk(t *T) {
	r := t.rand()
	for h := range t.times(10) {
		a := t.draw(r)
		c := newClock()
		l := t.limiter(c, one(a))
		gate := weir.Rule{Name: "gate", Algorithm: algorithm.FixedWindow{Limit: 1, Window: algorithm.MaxSpan * time.Microsecond / 2}}
		closed := t.limiter(c, gate, one(a))
		name := "ask" + strconv.Itoa(h)
		t.allow(t.limiter(c, gate), 1, name)
		keys := t.keysOf(name, "one", a)
		for range 8 {
			req := t.request(r, a, 1+r.Int64N(3), name)
			denied := func(op weir.Op) weir.Result {
				req := req
				req.Op = op
				res := t.do(closed, req)
				if res.Allowed {
					t.errorf("a request is allowed that one of its rules denies: %+v", res)
				}
				return res
			}
			asks := map[string]func() weir.Result{
				"Peek":                     func() weir.Result { return t.peek(l, req.Cost, name) },
				"DoMany":                   func() weir.Result { return l.DoMany(t.ctx, peeks([][]string{{name}}))[0].Result },
				"denied by another rule":   func() weir.Result { return denied(weir.Consume) },
				"TakeUpTo, denied as well": func() weir.Result { return denied(weir.TakeUpTo) },
				"denied": func() weir.Result {
					if t.peek(l, req.Cost, name).Allowed {
						return weir.Result{}
					}
					return t.do(l, req)
				},
			}
			for _, what := range slices.Sorted(maps.Keys(asks)) {
				before := t.kept(l, keys, name)
				res := asks[what]()
				if changed := before.changed(t.kept(l, keys, name)); changed != "" {
					t.fatalf("%+v, %s, cost %d, answered by %+v: %s", a, what, req.Cost, res, changed)
				}
			}
			t.do(l, req)
			c.advance(max(anyPause(r, t.unitOf(a)), 0))
		}
	}
}

func subjectForeign(t *T) {
	t.subjectForeign("foreign", func(key string) { t.put(key, 1) })
}

func subjectForeignType(t *T) {
	t.subjectForeign("type", func(key string) { t.eval(setScript, []string{key}) })
}

// besides are the rules with which an algorithm to check is mixed.
func besides(a algorithm.Algorithm) []weir.Rule {
	return []weir.Rule{
		{Name: "before", Algorithm: tenPerMinute}, one(a),
		{Name: "behind", Algorithm: algorithm.FixedWindow{Limit: 5, Window: time.Minute}},
	}
}

// subjectForeign puts a foreign value at one key of a decision, and tries every verb.
func (t *T) subjectForeign(name string, spoil func(key string)) {
	r := t.rand()
	for h := range t.times(16) {
		a := t.draw(r)
		rules := besides(a)
		l := t.limiter(newClock(), rules...)
		name := name + strconv.Itoa(h)
		keys := t.keysOf(name, "one", a)
		key := pick(r, keys...)
		spoil(key)
		before := t.mget(key)[0]
		t.refused(l, name, key)
		for _, rule := range rules {
			for _, other := range t.keysOf(name, rule.Name, rule.Algorithm) {
				if v := t.mget(other)[0]; other == key && v != before || other != key && v.Kind() != store.Nil {
					t.errorf("%+v, with a foreign value at key %q: key %q now holds %q", a, key, other, v.Str())
				}
			}
		}
	}
}

// subjectLayout puts values at a key that no decision can have written.
func subjectLayout(t *T) {
	const over = "9007199254740992" // 2^53
	r := t.rand()
	for h := range t.times(8) {
		a := t.draw(r)
		k := t.kindOf(a)
		tag := string(k.Tag[:])
		texts := []string{
			tag, tag + " ", tag + " x", tag + " -1", tag + " 1.5", tag + " 1e3", " " + tag + " 1", tag + "1 1", "x",
			string([]byte{k.Tag[0], k.Tag[1] + 1}) + " 1 1",
		}
		if k.Meter != nil {
			cell, optional, _ := strings.Cut(k.Cell, "[")
			short := len(strings.Fields(cell))
			long := short + len(strings.Fields(strings.TrimSuffix(optional, "]")))
			full := long + 1 + len(strings.Fields(k.Note))
			for n := range full + 2 {
				if n != short && n != long && n != full {
					texts = append(texts, tag+strings.Repeat(" 1", n))
					continue
				}
				for at := range n {
					for _, large := range []string{over, strings.Repeat("9", 26)} {
						texts = append(texts, tag+strings.Repeat(" 1", at)+" "+large+strings.Repeat(" 1", n-at-1))
					}
				}
				texts = append(texts, tag+strings.Repeat(" 1", n)+" ", tag+strings.Repeat(" 1", n)+"\n", tag+" "+strings.Repeat(" 1", n))
			}
		}
		if t.backend.brief {
			r.Shuffle(len(texts), func(i, j int) { texts[i], texts[j] = texts[j], texts[i] })
			texts = texts[:len(texts)/2]
		}
		l := t.limiter(newClock(), besides(a)...)
		for i, text := range texts {
			name := "layout" + strconv.Itoa(h) + "." + strconv.Itoa(i)
			key := t.keyOf(name, "one", a)
			t.eval(putText, []string{key}, store.StringArg(text))
			before := t.mget(key)[0]
			t.refused(l, name, key)
			if v := t.mget(key)[0]; v != before {
				t.errorf("%+v: the value %q became %q", a, text, v.Str())
			}
			if t.failed() {
				t.fatalf("%+v: the value %q", a, text)
			}
		}
	}
}

func subjectTTL(t *T) {
	t.left()
	r := t.rand()
	for h := range t.times(24) {
		a := t.draw(r)
		list := []algorithm.Algorithm{a, a, t.relative(r, a)}
		for i, c := range []*clock{nil, newClock()} {
			longer := time.Duration(i) * time.Hour
			name := "ttl" + strconv.Itoa(h) + "-" + strconv.Itoa(i)
			for range 4 {
				a := pick(r, list...)
				since := time.Now()
				res := t.do(t.limiter(c, one(a)), t.request(r, a, 1+r.Int64N(3), name))
				if !res.Allowed {
					continue
				}
				var longest time.Duration
				for key, ttl := range t.keysLike(name) {
					if ttl < 0 {
						t.errorf("%+v: %q never expires", a, key)
					}
					longest = max(longest, ttl)
				}
				slop := time.Since(since)
				if longest+slop+time.Millisecond < res.ResetAfter+longer {
					t.errorf("%+v of %+v: the longest TTL is %v, %v after a decision whose state matters for %v", a, list, longest, slop, res.ResetAfter+longer)
				}
			}
		}
	}
}

// subjectDead compares a store on whose clock every key is gone as soon as it expires
// with one whose clock stands still, so that no key ever expires.
func subjectDead(t *T) {
	r := t.rand()
	for h := range t.times(40) {
		a := t.draw(r)
		c := newClock()
		still := *c
		goes := t.limiterOn(memory.New(&memory.Options{Now: c.now}), nil, one(a))
		stays := t.limiterOn(memory.New(&memory.Options{Now: still.now}), c, one(a))
		name := "dead" + strconv.Itoa(h)
		refunds := t.refundable(a)
		for s := range 30 {
			c.advance(max(anyPause(r, t.unitOf(a)), 0))
			req := t.request(r, a, anyCost(r), name)
			if refunds && r.IntN(2) == 0 {
				req.ID = "id" + strconv.Itoa(s)
			}
			got, want := t.do(goes, req), t.do(stays, req)
			if got != want {
				t.fatalf("history %d of %+v, step %d, cost %d:\nwith keys that expire %+v\nwith keys that stay   %+v", h, a, s, req.Cost, got, want)
			}
			if r.IntN(4) == 0 && got.ResetAfter < tooFar/1000 {
				c.advance(got.ResetAfter + time.Duration(r.IntN(3)-1)*time.Microsecond)
			}
			if !refunds || r.IntN(4) > 0 {
				continue
			}
			id := "id" + strconv.Itoa(r.IntN(s+1))
			if got, want := t.refund(goes, id, name), t.refund(stays, id, name); got != want {
				t.fatalf("history %d of %+v, step %d: a refund reports %v with keys that expire, and %v with keys that stay", h, a, s, got, want)
			}
		}
	}
}

func subjectReset(t *T) {
	r := t.rand()
	for h := range t.times(24) {
		a := t.draw(r)
		c := newClock()
		l := t.limiter(c, one(a))
		name, other := "reset"+strconv.Itoa(h), "other"+strconv.Itoa(h)
		for range 4 {
			c.advance(max(anyPause(r, t.unitOf(a)), 0))
			cost := 1 + r.Int64N(3)
			t.do(l, t.request(r, a, cost, name))
			t.do(l, t.request(r, a, cost, other))
		}
		before := t.peek(l, 1, other)
		if got := t.peek(l, 1, name); got != before {
			t.errorf("%+v: two keys after the same requests:\none   %+v\nother %+v", a, got, before)
		}
		t.reset(l, name)
		if got, want := t.peek(l, 1, name), t.peek(l, 1, "never"); got != want {
			t.errorf("%+v: after Reset:\ngot  %+v\nwant %+v", a, got, want)
		}
		if got := t.peek(l, 1, other); got != before {
			t.errorf("%+v: after Reset of another key:\ngot  %+v\nwant %+v", a, got, before)
		}
		if t.backend.Keys != nil {
			for key := range t.keysLike(name) {
				t.errorf("%+v: after Reset there is still %q", a, key)
			}
		}
	}
}

// refundable reports whether decisions of a can be refunded.
func (t *T) refundable(a algorithm.Algorithm) bool {
	_, err := t.limiterOn(memory.New(nil), newClock(), one(a)).Refund(t.ctx, weir.Request{Key: weir.KeyOf("k"), ID: "id"})
	switch {
	case errors.Is(err, weir.ErrUnsupported):
		return false
	case err != nil:
		t.fatalf("Refund: %v", err)
	}
	return true
}
