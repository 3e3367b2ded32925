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

// This file holds the rules of RunAlgorithm on what is kept.

func subjectZero(t *T) {
	r := t.rand()
	seen := map[reflect.Type]bool{}
	for range t.times(16) {
		a := t.draw(r)
		limit, err := a.NewLimit()
		if err != nil {
			t.fatalf("%+v: NewLimit: %v", a, err)
		}
		if f := limit.Fragment(); f == nil || f != limit.Fragment() {
			t.errorf("%+v: Fragment returns %p and then %p: it must return the same pointer", a, f, limit.Fragment())
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
		l, ref := t.limiter(c, one(a)), t.limiterOn(reference, c, one(a))
		path := []string{"same", strconv.Itoa(h)}
		begin := time.Now()
		for s := range 30 {
			c.advance(anyPause(r, t.unitOf(a)))
			req := t.request(r, a, anyCost(r), path...)
			req.Peek = r.IntN(5) == 0
			if got, want := t.do(l, req), t.do(ref, req); got != want {
				t.fatalf("history %d of %+v, step %d, cost %d, peek %v:\ngot                 %+v\non the memory store %+v", h, a, s, req.Cost, req.Peek, got, want)
			}
		}
		keys := t.keysOf("same:"+strconv.Itoa(h), "one", a)
		want, err := reference.MGet(t.ctx, keys, nil)
		if err != nil {
			t.fatalf("the memory store: %v", err)
		}
		for i, v := range t.mget(keys...) {
			if v != want[i] {
				t.errorf("history %d of %+v: key %q holds %q, on the memory store %q", h, a, keys[i], v.Str(), want[i].Str())
			}
		}
		if t.lister(a) {
			wantList, err := ref.Entries(t.ctx, "", path...)
			if got := t.entries(l, path...); err != nil || !slices.Equal(got, wantList) {
				t.errorf("history %d of %+v: Entries lists %q, on the memory store %q, %v", h, a, got, wantList, err)
			}
		}
		if t.backend.Keys != nil {
			t.sameTTLs(a, keys, reference, begin)
		}
	}
}

// sameTTLs compares how long keys, written since begin, live with how long they
// do in reference.
func (t *T) sameTTLs(a algorithm.Algorithm, keys []string, reference *memory.Store, begin time.Time) {
	tag := keys[0][:strings.Index(keys[0], "}")+1]
	got, want := t.backend.Keys(t.test, t.store, tag), maps.Collect(reference.All())
	slop := time.Since(begin) + 2*time.Millisecond
	for _, key := range keys {
		if d := got[key] - want[key]; d > slop || d < -slop {
			t.errorf("%+v: key %q lives %v, on the memory store %v, 0 being gone", a, key, got[key], want[key])
		}
		delete(got, key)
	}
	for key := range got {
		t.errorf("%+v: %q was written, which is no key of it", a, key)
	}
}

// A kept is all that can be seen of what an algorithm keeps.
type kept struct {
	values string
	ttls   map[string]time.Duration
	answer weir.Result
}

// kept looks at keys, those of path.
func (t *T) kept(l *weir.Limiter, keys, path []string) kept {
	var k kept
	for _, v := range t.mget(keys...) {
		k.values += v.Str() + "\n"
	}
	if t.backend.Keys != nil {
		k.ttls = t.backend.Keys(t.test, t.store, keys[0][:strings.Index(keys[0], "}")+1])
	}
	k.answer = t.peek(l, 0, path...)
	return k
}

// changed says what is otherwise in now, or "". TTLs run on.
func (k kept) changed(now kept) string {
	switch {
	case now.values != k.values:
		return "its keys held " + strconv.Quote(k.values) + ", and now " + strconv.Quote(now.values)
	case now.answer != k.answer:
		return "it answers otherwise"
	}
	for key, ttl := range now.ttls {
		if before, ok := k.ttls[key]; !ok || ttl > before+time.Millisecond {
			return "key " + strconv.Quote(key) + " lives " + ttl.String() + ", and lived " + before.String() + " before"
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
		gate := algorithm.FixedWindow{Limit: 1, Window: algorithm.MaxSpan * time.Microsecond / 2}
		closed := t.limiter(c, weir.Rule{Name: "gate", Algorithm: gate}, one(a))
		path := []string{"ask", strconv.Itoa(h)}
		t.allow(t.limiter(c, weir.Rule{Name: "gate", Algorithm: gate}), 1, path...)
		keys := t.keysOf("ask:"+strconv.Itoa(h), "one", a)
		for range 8 {
			req := t.request(r, a, 1+r.Int64N(3), path...)
			asks := map[string]func() weir.Result{
				"cost 0": func() weir.Result { return t.allow(l, 0, path...) },
				"Peek":   func() weir.Result { return t.peek(l, req.Cost, path...) },
				"denied by another rule": func() weir.Result {
					res := t.do(closed, req)
					if res.Allowed {
						t.errorf("a rule that is over passed: %+v", res)
					}
					return res
				},
				"denied": func() weir.Result {
					if t.peek(l, req.Cost, path...).Allowed {
						return weir.Result{}
					}
					return t.do(l, req)
				},
			}
			for _, name := range slices.Sorted(maps.Keys(asks)) {
				before := t.kept(l, keys, path)
				res := asks[name]()
				if what := before.changed(t.kept(l, keys, path)); what != "" {
					t.fatalf("%+v, %s, cost %d, which was answered by %+v: %s", a, name, req.Cost, res, what)
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

// subjectForeign makes one key of a decision someone else's, and tries every verb.
func (t *T) subjectForeign(name string, spoil func(key string)) {
	r := t.rand()
	for h := range t.times(16) {
		a := t.draw(r)
		l := t.limiter(newClock(),
			weir.Rule{Name: "before", Algorithm: tenPerMinute}, one(a),
			weir.Rule{Name: "behind", Algorithm: algorithm.FixedWindow{Limit: 5, Window: time.Minute}})
		path := name + strconv.Itoa(h)
		keys := t.keysOf(path, "one", a)
		key := pick(r, keys...)
		spoil(key)
		before := t.mget(key)[0]
		t.refused(l, path, key)
		for _, other := range append(keys, t.key(path, "before"), t.key(path, "behind")) {
			if v := t.mget(other)[0]; other == key && v != before || other != key && v.Kind() != store.Nil {
				t.errorf("%+v, of whose keys %q is foreign: key %q now holds %q", a, key, other, v.Str())
			}
		}
	}
}

func subjectTTL(t *T) {
	t.left()
	r := t.rand()
	for h := range t.times(24) {
		a := t.draw(r)
		for i, c := range []*clock{nil, newClock()} {
			longer := time.Duration(i) * time.Hour
			l := t.limiter(c, one(a))
			path := "ttl" + strconv.Itoa(h) + "-" + strconv.Itoa(i)
			for range 3 {
				since := time.Now()
				res := t.do(l, t.request(r, a, 1+r.Int64N(3), path))
				if !res.Allowed {
					break
				}
				var longest time.Duration
				for key, ttl := range t.backend.Keys(t.test, t.store, "{"+path+"}") {
					if ttl < 0 {
						t.errorf("%+v: %q never expires", a, key)
					}
					longest = max(longest, ttl)
				}
				slop := time.Since(since)
				if longest+slop+time.Millisecond < res.ResetAfter+longer {
					t.errorf("%+v: its keys live %v, %v after a decision whose state matters for %v", a, longest, slop, res.ResetAfter+longer)
				}
			}
		}
	}
}

// subjectDead compares a store on whose clock every key is gone as soon as it may be
// with one whose clock stands still, so that none ever goes.
func subjectDead(t *T) {
	r := t.rand()
	for h := range t.times(40) {
		a := t.draw(r)
		c := newClock()
		still := *c
		goes := t.limiterOn(memory.New(&memory.Options{Now: c.now}), nil, one(a))
		stays := t.limiterOn(memory.New(&memory.Options{Now: still.now}), c, one(a))
		path := []string{"dead", strconv.Itoa(h)}
		for s := range 30 {
			c.advance(max(anyPause(r, t.unitOf(a)), 0))
			req := t.request(r, a, anyCost(r), path...)
			got, want := t.do(goes, req), t.do(stays, req)
			if got != want {
				t.fatalf("history %d of %+v, step %d, cost %d:\nwith keys that expire %+v\nwith keys that stay   %+v", h, a, s, req.Cost, got, want)
			}
			if r.IntN(4) == 0 && got.ResetAfter < tooFar/1000 {
				c.advance(got.ResetAfter + time.Duration(r.IntN(3)-1)*time.Microsecond)
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
		path, other := "reset"+strconv.Itoa(h), "other"+strconv.Itoa(h)
		for range 4 {
			c.advance(max(anyPause(r, t.unitOf(a)), 0))
			cost := 1 + r.Int64N(3)
			t.do(l, t.request(r, a, cost, path))
			t.do(l, t.request(r, a, cost, other))
		}
		before := t.peek(l, 1, other)
		if got := t.peek(l, 1, path); got != before {
			t.errorf("%+v: two callers who did the same:\none   %+v\nother %+v", a, got, before)
		}
		if err := l.Reset(t.ctx, path); err != nil {
			t.fatalf("Reset: %v", err)
		}
		if got, want := t.peek(l, 1, path), t.peek(l, 1, "never"); got != want {
			t.errorf("%+v: after Reset:\ngot  %+v\nwant %+v", a, got, want)
		}
		if got := t.peek(l, 1, other); got != before {
			t.errorf("%+v: after Reset of another:\ngot  %+v\nwant %+v", a, got, before)
		}
		if t.backend.Keys != nil {
			for key := range t.backend.Keys(t.test, t.store, "{"+path+"}") {
				t.errorf("%+v: after Reset there is still %q", a, key)
			}
		}
	}
}
