package conformance

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/rediscell"
	"github.com/weir-go/weir/store"
)

var limiterRules = []rule{
	{"Mix", "all rules of a decision are charged or none is, and each gives its own answer", limiterMix},
	{"AllOrNone", "a denial by the last of 16 rules changes none of the 15 before it", limiterAllOrNone},
	{"Cost", "a rule with a Cost of its own consumes that, whatever the request's cost is", limiterCost},
	{"Ask", "Peek answers as Allow would and changes nothing, and a cost of 0 means 1", limiterAsk},
	{"PeekMany", "DoMany answers each peek as Peek does, and names foreign keys", limiterPeekMany},
	{"PeekEach", "DoMany answers peeks as Peek does for rules that keep strings, sorted sets and lists", limiterPeekEach},
	{"Reset", "Reset clears the rules identified by the full key, Only the rule that is named, and no other", limiterReset},
	{"Foreign", "a foreign value is an ErrForeign that names the key, and no key is changed", limiterForeign},
	{"ForeignType", "a key of another type is an ErrForeign that names the key, and no key is changed", limiterForeignType},
	{"ForeignText", "a value that is almost a limiter's, or has integers above 2^53-1, is an ErrForeign that names the key, and survives Reset", limiterForeignText},
	{"Throttle", "rediscell returns redis-cell's five numbers, rounded up", limiterThrottle},
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

// sixteen returns as many rules as there can be. The last one allows 2 requests.
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
	rules := sixteen()
	l := t.limiter(c, rules...)
	keys := make([]string, weir.MaxRules)
	for i, r := range rules {
		keys[i] = t.keyOf("k", r.Name, r.Algorithm)
	}
	for i := range 2 {
		if res := t.allow(l, 1, "k"); !res.Allowed || res.Rule != "r15" || res.Remaining != int64(1-i) {
			t.errorf("request %d: got %+v, want it allowed, with the fewest tokens left in r15", i, res)
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
		res := t.do(l, weir.Request{Key: weir.KeyOf("k"), Cost: 10}, each...)
		if each[0].Remaining != 90-10*i || each[1].Remaining != 2-i {
			t.errorf("request %d: got %d and %d left, want %d and %d", i, each[0].Remaining, each[1].Remaining, 90-10*i, 2-i)
		}
		if res.Granted != 10 || each[0].Granted != 10 || each[1].Granted != 1 {
			t.errorf("request %d: %d tokens granted, of the rules %d and %d, want 10, and of the rules 10 and 1", i, res.Granted, each[0].Granted, each[1].Granted)
		}
	}
	res := t.do(l, weir.Request{Key: weir.KeyOf("k"), Cost: 10}, each...)
	if res.Allowed || res.Rule != "calls" || res.Granted != 0 {
		t.errorf("got %+v, want a denial by calls", res)
	}
	if !each[0].Allowed || each[1].Allowed || each[0].Granted != 0 || each[0].Remaining != 70 {
		t.errorf("got %+v, want tokens to have room for the request, and calls not", each)
	}
}

func limiterAsk(t *T) {
	c := newClock()
	rules := []weir.Rule{
		{Name: "a", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 3}},
		{Name: "b", Algorithm: algorithm.FixedWindow{Limit: 2, Window: time.Minute}},
	}
	l := t.limiter(c, rules...)
	keys := []string{t.keyOf("k", "a", rules[0].Algorithm), t.keyOf("k", "b", rules[1].Algorithm)}
	for taken := range int64(3) {
		before := t.mget(keys...)
		for cost := range int64(3) {
			want := taken+max(cost, 1) <= 2
			if res := t.peek(l, cost, "k"); res.Allowed != want || res.Remaining != 2-taken || res.Granted != 0 || res.Rule != "b" {
				t.errorf("Peek with cost %d after %d: got %+v, want it allowed: %v, and %d left in b", cost, taken, res, want, 2-taken)
			}
		}
		for i, v := range t.mget(keys...) {
			if v != before[i] {
				t.errorf("Peek changed %q from %q to %q", keys[i], before[i].Str(), v.Str())
			}
		}
		if res := t.allow(l, 0, "k"); res.Allowed != (taken < 2) || res.Allowed && res.Granted != 1 {
			t.errorf("a request with cost 0 after %d: got %+v, want one of cost 1", taken, res)
		}
	}
}

// peeks returns one request of the Op Peek for each key.
func peeks(keys [][]string) []weir.Request {
	requests := make([]weir.Request, len(keys))
	for i, key := range keys {
		requests[i] = weir.Request{Key: weir.KeyOf(key...), Op: weir.Peek}
	}
	return requests
}

// peekMany checks that DoMany answers peeks of keys as Peek does, and that a foreign
// value at key, which belongs to keys[n], makes that answer alone an ErrForeign.
func (t *T) peekMany(l *weir.Limiter, keys [][]string, n int, key string) {
	got := l.DoMany(t.ctx, peeks(keys))
	if len(got) != len(keys) {
		t.fatalf("DoMany: %d answers to %d requests", len(got), len(keys))
	}
	for i, key := range keys {
		if want := t.peek(l, 1, key...); got[i].Err != nil || got[i].Result != want {
			t.errorf("key %v:\ngot  %+v\nwant %+v", key, got[i], want)
		}
	}
	t.put(key, 1)
	for i, a := range l.DoMany(t.ctx, peeks(keys)) {
		switch {
		case i != n && a != got[i]:
			t.errorf("a foreign value at key %v changed the answer for key %v:\ngot  %+v\nwant %+v", keys[n], keys[i], a, got[i])
		case i == n && (!errors.Is(a.Err, store.ErrForeign) || !strings.Contains(a.Err.Error(), key) || a.Result != (weir.Result{})):
			t.errorf("got %+v, want an ErrForeign that names %q", a, key)
		}
	}
}

func limiterPeekMany(t *T) {
	c := newClock()
	l := t.limiter(c,
		weir.Rule{Name: "a", By: []string{"s0"}, Algorithm: algorithm.FixedWindow{Limit: 40, Window: time.Minute}},
		weir.Rule{Name: "b", By: []string{"s0", "s1"}, Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 5}})
	var keys [][]string
	for i := range 60 {
		key := []string{"tenant" + strconv.Itoa(i%7), "user" + strconv.Itoa(i)}
		keys = append(keys, key)
		for range i % 8 {
			c.advance(10 * time.Millisecond)
			t.allow(l, 1, key...)
		}
	}
	t.peekMany(l, keys, 9, t.keyOf("tenant2", "b", tenPerMinute, "user9"))
}

func limiterPeekEach(t *T) {
	c := newClock()
	kept := algorithm.MetadataWindow{Limit: 6, Window: time.Minute}
	l := t.limiter(c,
		weir.Rule{Name: "ring", By: []string{"s0"}, Algorithm: threeSpans},
		weir.Rule{Name: "log", By: []string{"s0", "s1"}, Algorithm: algorithm.SlidingLog{Limit: 5, Window: time.Minute}},
		weir.Rule{Name: "rate", By: []string{"s0", "s1"}, Algorithm: tenPerMinute},
		weir.Rule{Name: "kept", By: []string{"s0", "s1"}, Algorithm: kept})
	var keys [][]string
	for i := range 20 {
		key := []string{"tenant" + strconv.Itoa(i%3), "user" + strconv.Itoa(i)}
		keys = append(keys, key)
		for range i % 7 {
			c.advance(time.Second)
			t.allow(l, 1, key...)
		}
	}
	t.reset(t.only(l, "kept"), keys[4]...)
	t.peekMany(l, keys, 4, t.keyOf("tenant1", "kept", kept, "user4"))
}

// only returns the limiter of one rule of l.
func (t *T) only(l *weir.Limiter, rule string) *weir.Limiter {
	other, err := l.Only(rule)
	if err != nil {
		t.fatalf("Only: %v", err)
	}
	return other
}

// reset resets key.
func (t *T) reset(l *weir.Limiter, key ...string) {
	if err := l.Reset(t.ctx, key...); err != nil {
		t.errorf("Reset: %v", err)
	}
}

func limiterReset(t *T) {
	c := newClock()
	all := weir.Rule{Name: "all", By: []string{"s0"}, Algorithm: algorithm.FixedWindow{Limit: 100, Window: time.Minute}}
	l := t.limiter(c, all,
		weir.Rule{Name: "user", By: []string{"s0", "s1"}, Algorithm: algorithm.GCRA{Rate: algorithm.PerMinute(7), Burst: 5}},
		weir.Rule{Name: "login", By: []string{"s0", "s1"}, Algorithm: algorithm.FixedWindow{Limit: 5, Window: time.Minute}})
	each := make([]weir.Result, 3)
	left := func(user string) [3]int64 {
		t.do(l, weir.Request{Key: weir.KeyOf("x", user), Op: weir.Peek}, each...)
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
	t.reset(t.only(l, "login"), "x", "v")
	want("after the reset of login for v", [3]int64{95, 2, 2}, [3]int64{95, 3, 5})
	t.reset(l, "x", "u")
	want("after Reset of u", [3]int64{95, 5, 5}, [3]int64{95, 3, 5})
	t.reset(t.only(l, "all"), "x", "u")
	want("after the reset of all", [3]int64{100, 5, 5}, [3]int64{100, 3, 5})

	shared := t.policy(t.store, c, weir.Policy{Name: suite, Segments: []string{"s0", "s1"}, Rules: []weir.Rule{all}})
	t.allow(shared, 4, "x", "u")
	if err := shared.Reset(t.ctx, "x", "u"); !errors.Is(err, weir.ErrInvalidRule) || t.peek(shared, 1, "x", "v").Remaining != 96 {
		t.errorf("Reset where no rule is identified by the full key: got error %v and %d left, want ErrInvalidRule and 96", err, t.peek(shared, 1, "x", "v").Remaining)
	}
}

func limiterForeign(t *T) { t.foreign(func(key string) { t.put(key, 1) }) }

func limiterForeignType(t *T) {
	t.foreign(func(key string) { t.eval(setScript, []string{key}) })
}

// foreign writes a foreign value to one key of a decision, and tries every verb.
func (t *T) foreign(spoil func(key string)) {
	for _, at := range []int{1, 0, 15}[:(t.times(24)+7)/8] {
		rules := sixteen()
		l := t.limiter(newClock(), rules...)
		path := "p" + strconv.Itoa(at)
		key := t.keyOf(path, rules[at].Name, rules[at].Algorithm)
		spoil(key)
		before := t.mget(key)[0]
		t.refused(l, path, key)
		for i, r := range rules {
			other := t.keyOf(path, r.Name, r.Algorithm)
			if v := t.mget(other)[0]; i == at && v != before || i != at && v.Kind() != store.Nil {
				t.errorf("with a foreign value at key %d, key %d now holds %v", at, i, v)
			}
		}
	}
}

// refused checks that every verb on the limiter's key path rejects the foreign value
// at key.
func (t *T) refused(l *weir.Limiter, path, key string) {
	for name, call := range map[string]func() error{
		"Allow":    func() error { _, err := l.Allow(t.ctx, path); return err },
		"TakeUpTo": func() error { _, err := l.TakeUpTo(t.ctx, 2, path); return err },
		"Peek":     func() error { _, err := l.Peek(t.ctx, path); return err },
		"Reset":    func() error { return l.Reset(t.ctx, path) },
	} {
		err := call()
		if !errors.Is(err, store.ErrForeign) || errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), `"`+key+`"`) {
			t.errorf("%s with a foreign value: got error %v, want an ErrForeign that names %q", name, err, key)
		}
	}
}

// limiterForeignText writes values that begin as a limiter's. A store that runs Go forms
// cannot hold most of them: putText then writes a set.
func limiterForeignText(t *T) {
	nines := strings.Repeat("9", 26)
	second := algorithm.FixedWindow{Limit: 5, Window: time.Second}
	for i, a := range []algorithm.Algorithm{
		tenPerMinute, algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 5}, second,
		algorithm.SlidingCounter{Limit: 5, Window: time.Minute}, algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(1)},
		algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: 5},
	} {
		l := t.limiter(newClock(), one(a))
		tag := t.kindOf(a).Tag
		was := store.Tag{tag[0], tag[1] - 1}
		for j, text := range []string{
			string(tag[:]), string(tag[:]) + " ", string(tag[:]) + " 1 2 3 4 5 6 7 8", string(was[:]) + " 1 2",
			string(tag[:]) + " " + nines, string(tag[:]) + " 9007199254740992 1", string(tag[:]) + " 1 " + nines,
			string(tag[:]) + " 1 2 " + nines, string(tag[:]) + " 1 2 3 " + nines, string(tag[:]) + " 1 2 3 4 " + nines,
			string(tag[:]) + " " + nines + " " + nines + " " + nines, string(tag[:]) + " 1 9007199254740993 1",
			string(tag[:]) + " 1 -2", string(tag[:]) + " 1.5 1", string(tag[:]) + " 1e3 1", string(tag[:]) + " 0x10 1",
			string(tag[:]) + "  1 1", string(tag[:]) + " 1 1\n", string(tag[:]) + ":1:1", " " + string(tag[:]) + " 1 1", "",
		} {
			path := strconv.Itoa(i) + "." + strconv.Itoa(j)
			key := t.keyOf(path, "one", a)
			t.eval(putText, []string{key}, store.StringArg(text))
			before := t.mget(key)[0]
			t.refused(l, path, key)
			after := t.mget(key)[0]
			if after != before {
				t.errorf("%T: the foreign value %q became %q", a, before.Str(), after.Str())
			}
			if after.Kind() == store.Nil {
				if n := t.eval(count, []string{key})[0].Int(); n != 1 {
					t.errorf("%T: a set of one member has %d now", a, n)
				}
				continue
			}
			if got := l.DoMany(t.ctx, peeks([][]string{{path}})); !errors.Is(got[0].Err, store.ErrForeign) || !strings.Contains(got[0].Err.Error(), `"`+key+`"`) {
				t.errorf("%T: DoMany with the foreign value %q: got %+v, want an ErrForeign that names %q", a, text, got, key)
			}
		}
	}
}

func limiterThrottle(t *T) {
	c := newClock()
	th, err := rediscell.New("throttle", t.store, &weir.Options{Prefix: t.id, Clock: c.now})
	if err != nil {
		t.fatalf("rediscell.New: %v", err)
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
