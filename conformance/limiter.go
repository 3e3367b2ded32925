package conformance

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

var limiterRules = []rule{
	{"Mix", "rules in one decision are all charged or none, with the answer of each", limiterMix},
	{"AllOrNone", "a denial by the last of 16 rules leaves the 15 before it as they were", limiterAllOrNone},
	{"Cost", "a rule with a cost of its own charges that, whatever the request's", limiterCost},
	{"Ask", "Peek and cost 0 answer truly and change nothing", limiterAsk},
	{"PeekMany", "PeekMany answers for each path as Peek does, and names foreign keys", limiterPeekMany},
	{"PeekEach", "PeekMany answers as Peek does for rules that keep strings, sorted sets and lists", limiterPeekEach},
	{"Reset", "Reset makes the rules of the whole path as new, ResetRule the one named, and no other", limiterReset},
	{"Foreign", "a key with someone else's value is an ErrForeign that names it; no key is changed", limiterForeign},
	{"ForeignType", "a key of another type is an ErrForeign that names it; no key is changed", limiterForeignType},
	{"Throttle", "Throttle gives redis-cell's five numbers, rounded up", limiterThrottle},
}

func limiterMix(t *T) {
	t.histories(t.times(24), 30, 1, func(r *rand.Rand) []weir.Rule {
		rules := make([]weir.Rule, 2+r.IntN(3))
		for i := range rules {
			maker := pick(r, anyGCRA, anyFixedWindow, anyMetadataWindow, anySlidingBuckets, anySlidingCounter, anySlidingLog,
				anyTokenBucket, anyLeakyBucket)
			a := maker(r)
			cost := min(pick[int64](r, 0, 0, 1, 2), newModel(a).limit())
			rules[i] = weir.Rule{Name: "r" + strconv.Itoa(i), Algorithm: a, Cost: cost}
		}
		return rules
	})
	t.leaseHistories(t.times(8), true)
}

// sixteen returns as many rules as there can be, the last of which admits 2.
func sixteen() []weir.Rule {
	rules := make([]weir.Rule, weir.MaxRules)
	for i := range rules {
		rules[i] = weir.Rule{Name: "r" + strconv.Itoa(i), Algorithm: algorithm.GCRA{Rate: algorithm.PerMinute(7), Burst: 10 + int64(i)}}
		if i%2 == 0 {
			rules[i].Algorithm = algorithm.FixedWindow{Limit: 20, Window: time.Minute}
		}
	}
	rules[len(rules)-1].Algorithm = algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 2}
	return rules
}

func limiterAllOrNone(t *T) {
	c := newClock()
	l := t.limiter(c, sixteen()...)
	keys := make([]string, weir.MaxRules)
	for i := range keys {
		keys[i] = t.key("k", "r"+strconv.Itoa(i))
	}
	for i := range 2 {
		if res := t.allow(l, 1, "k"); !res.Allowed || res.Rule != "r15" || res.Remaining != int64(1-i) {
			t.errorf("request %d: got %+v, want it to pass, r15 having least left", i, res)
		}
	}
	before := t.mget(keys...)
	for range 3 {
		c.advance(time.Second)
		if res := t.allow(l, 1, "k"); res.Allowed || res.Rule != "r15" || res.Granted != 0 {
			t.errorf("got %+v, want a denial by r15", res)
		}
	}
	for i, v := range t.mget(keys...) {
		if v != before[i] || v.Kind() == store.Nil {
			t.errorf("rule %d: a denied request changed %q to %q", i, before[i].Str(), v.Str())
		}
	}
}

func limiterCost(t *T) {
	l := t.limiter(newClock(),
		weir.Rule{Name: "tokens", Algorithm: algorithm.FixedWindow{Limit: 100, Window: time.Minute}},
		weir.Rule{Name: "calls", Algorithm: algorithm.FixedWindow{Limit: 3, Window: time.Minute}, Cost: 1})
	each := make([]weir.Result, 2)
	for i := range int64(3) {
		t.do(l, weir.Request{Path: []string{"k"}, Cost: 10, Each: each})
		if each[0].Remaining != 90-10*i || each[1].Remaining != 2-i {
			t.errorf("request %d: got %d and %d left, want %d and %d", i, each[0].Remaining, each[1].Remaining, 90-10*i, 2-i)
		}
	}
	if res := t.allow(l, 10, "k"); res.Allowed || res.Rule != "calls" {
		t.errorf("got %+v, want a denial by calls", res)
	}
}

func limiterAsk(t *T) {
	c := newClock()
	rules := []weir.Rule{
		{Name: "a", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 3}},
		{Name: "b", Algorithm: algorithm.FixedWindow{Limit: 2, Window: time.Minute}},
	}
	l := t.limiter(c, rules...)
	keys := []string{t.key("k", "a"), t.key("k", "b")}
	for taken := range int64(3) {
		before := t.mget(keys...)
		for range 3 {
			if res := t.peek(l, 1, "k"); res.Allowed != (taken < 2) || res.Remaining != 2-taken || res.Granted != 0 || res.Rule != "b" {
				t.errorf("Peek after %d: got %+v", taken, res)
			}
			if res := t.allow(l, 0, "k"); !res.Allowed || res.Remaining != 2-taken || res.Granted != 0 {
				t.errorf("cost 0 after %d: got %+v", taken, res)
			}
		}
		for i, v := range t.mget(keys...) {
			if v != before[i] {
				t.errorf("asking changed %q from %q to %q", keys[i], before[i].Str(), v.Str())
			}
		}
		t.allow(l, 1, "k")
	}
}

func limiterPeekMany(t *T) {
	c := newClock()
	l := t.limiter(c,
		weir.Rule{Name: "a", By: []int{0}, Algorithm: algorithm.FixedWindow{Limit: 40, Window: time.Minute}},
		weir.Rule{Name: "b", By: []int{0, 1}, Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 5}})
	var paths [][]string
	for i := range 60 {
		path := []string{"tenant" + strconv.Itoa(i%7), "user" + strconv.Itoa(i)}
		paths = append(paths, path)
		for range i % 8 {
			c.advance(10 * time.Millisecond)
			t.allow(l, 1, path...)
		}
	}
	got, err := l.PeekMany(t.ctx, paths)
	if err != nil || len(got) != len(paths) {
		t.fatalf("PeekMany: %d results, %v", len(got), err)
	}
	for i, path := range paths {
		if want := t.peek(l, 1, path...); got[i] != want {
			t.errorf("path %v:\ngot  %+v\nwant %+v", path, got[i], want)
		}
	}
	key := t.key("tenant2", "b:user9")
	t.put(key, 1)
	again, err := l.PeekMany(t.ctx, paths)
	if !errors.Is(err, store.ErrForeign) || !strings.Contains(err.Error(), key) {
		t.errorf("got error %v, want an ErrForeign that names %q", err, key)
	}
	if len(again) != len(paths) || again[9] != (weir.Result{}) || again[10] != got[10] {
		t.errorf("a foreign key took more than its own result with it")
	}
}

func limiterPeekEach(t *T) {
	c := newClock()
	l := t.limiter(c,
		weir.Rule{Name: "ring", By: []int{0}, Algorithm: threeSpans},
		weir.Rule{Name: "log", By: []int{0, 1}, Algorithm: algorithm.SlidingLog{Limit: 5, Window: time.Minute}},
		weir.Rule{Name: "rate", By: []int{0, 1}, Algorithm: tenPerMinute},
		weir.Rule{Name: "kept", By: []int{0, 1}, Algorithm: algorithm.MetadataWindow{Limit: 6, Window: time.Minute}})
	var paths [][]string
	for i := range 20 {
		path := []string{"tenant" + strconv.Itoa(i%3), "user" + strconv.Itoa(i)}
		paths = append(paths, path)
		for range i % 7 {
			c.advance(time.Second)
			t.allow(l, 1, path...)
		}
	}
	got, err := l.PeekMany(t.ctx, paths)
	if err != nil || len(got) != len(paths) {
		t.fatalf("PeekMany: %d results, %v", len(got), err)
	}
	for i, path := range paths {
		if want := t.peek(l, 1, path...); got[i] != want {
			t.errorf("path %v:\ngot  %+v\nwant %+v", path, got[i], want)
		}
	}
	key := t.key("tenant1", "kept:user4")
	if err := l.ResetRule(t.ctx, "kept", paths[4]...); err != nil {
		t.errorf("ResetRule: %v", err)
	}
	t.put(key, 1)
	again, err := l.PeekMany(t.ctx, paths)
	if !errors.Is(err, store.ErrForeign) || !strings.Contains(err.Error(), key) {
		t.errorf("got error %v, want an ErrForeign that names %q", err, key)
	}
	if len(again) != len(paths) || again[4] != (weir.Result{}) || again[5] != got[5] {
		t.errorf("a foreign key took more than its own result with it")
	}
}

func limiterReset(t *T) {
	c := newClock()
	l := t.limiter(c,
		weir.Rule{Name: "all", By: []int{0}, Algorithm: algorithm.FixedWindow{Limit: 100, Window: time.Minute}},
		weir.Rule{Name: "user", By: []int{0, 1}, Algorithm: algorithm.GCRA{Rate: algorithm.PerMinute(7), Burst: 5}},
		weir.Rule{Name: "login", By: []int{0, 1}, Algorithm: algorithm.FixedWindow{Limit: 5, Window: time.Minute}})
	each := make([]weir.Result, 3)
	left := func(user string) [3]int64 {
		t.do(l, weir.Request{Path: []string{"x", user}, Peek: true, Cost: 1, Each: each})
		return [3]int64{each[0].Remaining, each[1].Remaining, each[2].Remaining}
	}
	want := func(when string, u, v [3]int64) {
		if left("u") != u || left("v") != v {
			t.errorf("%s: got %v and %v left, want %v and %v", when, left("u"), left("v"), u, v)
		}
	}
	t.allow(l, 3, "x", "u")
	t.allow(l, 2, "x", "v")
	want("before", [3]int64{95, 2, 2}, [3]int64{95, 3, 3})
	if err := l.Reset(t.ctx, "x", "u"); err != nil {
		t.errorf("Reset: %v", err)
	}
	want("after Reset of u", [3]int64{95, 5, 5}, [3]int64{95, 3, 3})
	if err := l.ResetRule(t.ctx, "all", "x", "u"); err != nil {
		t.errorf("ResetRule: %v", err)
	}
	want("after ResetRule of all", [3]int64{100, 5, 5}, [3]int64{100, 3, 3})
}

func limiterForeign(t *T) {
	t.foreign(func(key string) { t.put(key, 1) })
	c := newClock()
	window := t.limiter(c, weir.Rule{Name: "same", Algorithm: algorithm.FixedWindow{Limit: 5, Window: time.Minute}})
	bucket := t.limiter(c, weir.Rule{Name: "same", Algorithm: tenPerMinute})
	t.allow(window, 1, "other")
	if res, err := bucket.Allow(t.ctx, "other"); !errors.Is(err, store.ErrForeign) {
		t.errorf("a key of FixedWindow was taken for one of GCRA: got %+v, %v", res, err)
	}
}

func limiterForeignType(t *T) {
	t.foreign(func(key string) { t.eval(setScript, []string{key}) })
}

// foreign makes one key of a decision someone else's, and tries every verb.
func (t *T) foreign(spoil func(key string)) {
	for _, at := range []int{1, 0, 15}[:(t.times(24)+7)/8] {
		l := t.limiter(newClock(), sixteen()...)
		path := "p" + strconv.Itoa(at)
		key := t.key(path, "r"+strconv.Itoa(at))
		spoil(key)
		before := t.mget(key)[0]
		t.refused(l, path, key)
		for i := range weir.MaxRules {
			other := t.key(path, "r"+strconv.Itoa(i))
			if v := t.mget(other)[0]; i == at && v != before || i != at && v.Kind() != store.Nil {
				t.errorf("with a foreign key %d, key %d now holds %v", at, i, v)
			}
		}
	}
}

// refused tries every verb on path, of which key is someone else's.
func (t *T) refused(l *weir.Limiter, path, key string) {
	for name, call := range map[string]func() error{
		"Allow":    func() error { _, err := l.Allow(t.ctx, path); return err },
		"AllowN 0": func() error { _, err := l.AllowN(t.ctx, 0, path); return err },
		"Peek":     func() error { _, err := l.Peek(t.ctx, path); return err },
		"Reset":    func() error { return l.Reset(t.ctx, path) },
	} {
		err := call()
		if !errors.Is(err, store.ErrForeign) || errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), `"`+key+`"`) {
			t.errorf("%s with a foreign key: got error %v, want an ErrForeign that names %q", name, err, key)
		}
	}
}

func limiterThrottle(t *T) {
	c := newClock()
	th, err := weir.NewThrottler(t.store, &weir.Options{Prefix: t.id, Clock: c.now})
	if err != nil {
		t.fatalf("NewThrottler: %v", err)
	}
	call := func(key string, maxBurst, count int64, period time.Duration, quantity int64, want [5]int64) {
		got, err := th.Throttle(t.ctx, key, maxBurst, count, period, quantity)
		if err != nil || got.Numbers() != want {
			t.errorf("Throttle %s %d %d %v %d: got %v, %v, want %v", key, maxBurst, count, period, quantity, got.Numbers(), err, want)
		}
	}
	call("user123", 15, 30, time.Minute, 1, [5]int64{0, 16, 15, -1, 2})
	call("k", 4, 1, time.Second, 6, [5]int64{1, 5, 5, -1, 0})
	call("k", 4, 1, time.Second, 5, [5]int64{0, 5, 0, -1, 5})
	c.advance(100 * time.Millisecond)
	call("k", 4, 1, time.Second, 1, [5]int64{1, 5, 0, 1, 5}) // 0.9 s and 4.9 s
	c.advance(900*time.Millisecond - time.Microsecond)
	call("k", 4, 1, time.Second, 1, [5]int64{1, 5, 0, 1, 5}) // 1 µs to wait is a second, not none
	c.advance(time.Microsecond)
	call("k", 4, 1, time.Second, 0, [5]int64{0, 5, 1, -1, 4})
	call("k", 4, 1, time.Second, 1, [5]int64{0, 5, 0, -1, 5})
}
