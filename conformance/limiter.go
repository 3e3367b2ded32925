package conformance

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/rediscell"
	"github.com/weir-go/weir/store"
)

var limiterChecks = []check{
	{"Mix", "each rule of a decision answers as it does alone, and consumes its own Cost if it has one; all rules consume or none does; TakeUpTo consumes the fewest tokens that any rule has", limiterMix},
	{"PeekMany", "DoMany answers each peek as Peek does, over any slots and for any values, and names foreign keys", limiterPeekMany},
	{"Reset", "Reset clears the rules identified by the full key; after Only, Reset clears the named rule and no other", limiterReset},
	{"Throttle", "rediscell returns redis-cell's five numbers, rounded up", limiterThrottle},
}

// peeks returns one request of the Op Peek for each key.
func peeks(keys [][]string) []weir.Request {
	requests := make([]weir.Request, len(keys))
	for i, key := range keys {
		requests[i] = weir.Request{Key: weir.KeyOf(key...), Op: weir.Peek}
	}
	return requests
}

// peekMany checks that DoMany answers peeks of keys as Peek does. Then it puts a foreign
// value at key, which belongs to keys[n], and checks that only answer n is an ErrForeign.
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

	// Rules that keep strings, sorted sets and lists, which MGet cannot read.
	kept := algorithm.MetadataWindow{Limit: 6, Window: time.Minute}
	l = t.limiter(c,
		weir.Rule{Name: "ring", By: []string{"s0"}, Algorithm: quarters},
		weir.Rule{Name: "log", By: []string{"s0", "s1"}, Algorithm: algorithm.SlidingLog{Limit: 5, Window: time.Minute}},
		weir.Rule{Name: "rate", By: []string{"s0", "s1"}, Algorithm: tenPerMinute},
		weir.Rule{Name: "kept", By: []string{"s0", "s1"}, Algorithm: kept})
	keys = keys[:20]
	for i, key := range keys {
		for range i % 7 {
			c.advance(time.Second)
			t.allow(l, 1, key...)
		}
	}
	t.reset(t.only(l, "kept"), keys[4]...)
	t.peekMany(l, keys, 4, t.keyOf("tenant4", "kept", kept, "user4"))
}

// only returns the limiter that has only the named rule of l.
func (t *T) only(l *weir.Limiter, rule string) *weir.Limiter {
	return must[*weir.Limiter](t, "Only")(l.Only(rule))
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
	want := func(when string, u, v [4]int64) {
		if left, other := t.remaining(l, weir.Peek, 1, "x", "u"), t.remaining(l, weir.Peek, 1, "x", "v"); left != u || other != v {
			t.errorf("%s: got %v and %v left, want %v and %v", when, left, other, u, v)
		}
	}
	t.allow(l, 3, "x", "u")
	t.allow(l, 2, "x", "v")
	want("before", [4]int64{95, 2, 2}, [4]int64{95, 3, 3})
	t.reset(t.only(l, "login"), "x", "v")
	want("after the reset of login for v", [4]int64{95, 2, 2}, [4]int64{95, 3, 5})
	t.reset(l, "x", "u")
	want("after Reset of u", [4]int64{95, 5, 5}, [4]int64{95, 3, 5})
	t.reset(t.only(l, "all"), "x", "u")
	want("after the reset of all", [4]int64{100, 5, 5}, [4]int64{100, 3, 5})

	shared := t.policy(t.store, c, weir.Policy{Name: suite, Segments: []string{"s0", "s1"}, Rules: []weir.Rule{all}})
	t.allow(shared, 4, "x", "u")
	if err := shared.Reset(t.ctx, "x", "u"); !errors.Is(err, weir.ErrInvalidRule) || t.peek(shared, 1, "x", "v").Remaining != 96 {
		t.errorf("Reset where no rule is identified by the full key: got error %v and %d left, want ErrInvalidRule and 96", err, t.peek(shared, 1, "x", "v").Remaining)
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
