// Package limiters holds the checks of a limiter.
package limiters

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/rediscell"
	"github.com/weir-go/weir/conformance/internal/decisions"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/internal/model"
	"github.com/weir-go/weir/store"
)

// Checks are the checks of a limiter.
var Checks = slices.Concat(decisionChecks, verbChecks, keyChecks)

var decisionChecks = []suite.Check{
	of("Mix", "each rule of a decision answers as it does alone, and consumes its own Cost if it has one; all rules consume or none does; TakeUpTo consumes the fewest tokens that any rule has", checkMix),
	of("PeekMany", "DoMany answers each peek as Peek does, over any slots and for any values, and names foreign keys", checkPeekMany),
	of("Reset", "Reset clears the rules identified by the full key; after Only, Reset clears the named rule and no other", checkReset),
	of("Throttle", "rediscell returns redis-cell's five numbers, rounded up", checkThrottle),
	alone(of("Writes", "a denied request, a Peek, a refund of nothing and a foreign value write nothing to the database, not even an empty row", checkWrites)),
}

// alone returns c, beside which no other check runs.
func alone(c suite.Check) suite.Check {
	c.Alone = true
	return c
}

// of returns a check that makes decisions.
func of(name, text string, run func(*decisions.T)) suite.Check {
	return suite.Of(name, text, run, decisions.New)
}

// peekMany checks that DoMany answers peeks of keys as Peek does. Then it puts a foreign
// value at key, which belongs to keys[n], and checks that only answer n is an ErrForeign.
func peekMany(t *decisions.T, l *weir.Limiter, keys [][]string, n int, key string) {
	got := l.DoMany(t.Ctx, decisions.Peeks(keys))
	if len(got) != len(keys) {
		t.Fatalf("DoMany: %d answers to %d requests", len(got), len(keys))
	}
	for i, key := range keys {
		if want := t.Peek(l, 1, key...); got[i].Err != nil || got[i].Result != want {
			t.Errorf("key %v:\ngot  %+v\nwant %+v", key, got[i], want)
		}
	}
	t.Put(key, 1)
	for i, a := range l.DoMany(t.Ctx, decisions.Peeks(keys)) {
		switch {
		case i != n && a != got[i]:
			t.Errorf("a foreign value at key %v changed the answer for key %v:\ngot  %+v\nwant %+v", keys[n], keys[i], a, got[i])
		case i == n && (!errors.Is(a.Err, store.ErrForeign) || !strings.Contains(a.Err.Error(), key) || a.Result != (weir.Result{})):
			t.Errorf("got %+v, want an ErrForeign that names %q", a, key)
		}
	}
}

func checkPeekMany(t *decisions.T) {
	c := decisions.NewClock()
	l := t.Limiter(c,
		weir.Rule{Name: "a", By: []string{"s0"}, Algorithm: algorithm.FixedWindow{Limit: 40, Window: time.Minute}},
		weir.Rule{Name: "b", By: []string{"s0", "s1"}, Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 5}})
	var keys [][]string
	for i := range 60 {
		key := []string{"tenant" + strconv.Itoa(i%7), "user" + strconv.Itoa(i)}
		keys = append(keys, key)
		for range i % 8 {
			c.Advance(10 * time.Millisecond)
			t.Allow(l, 1, key...)
		}
	}
	peekMany(t, l, keys, 9, t.KeyOf("tenant2", "b", decisions.TenPerMinute, "user9"))

	// Rules that keep strings, sorted sets and lists, which MGet cannot read.
	kept := algorithm.MetadataWindow{Limit: 6, Window: time.Minute}
	l = t.Limiter(c,
		weir.Rule{Name: "ring", By: []string{"s0"}, Algorithm: decisions.Quarters},
		weir.Rule{Name: "log", By: []string{"s0", "s1"}, Algorithm: algorithm.SlidingLog{Limit: 5, Window: time.Minute}},
		weir.Rule{Name: "rate", By: []string{"s0", "s1"}, Algorithm: decisions.TenPerMinute},
		weir.Rule{Name: "kept", By: []string{"s0", "s1"}, Algorithm: kept})
	keys = keys[:20]
	for i, key := range keys {
		for range i % 7 {
			c.Advance(time.Second)
			t.Allow(l, 1, key...)
		}
	}
	t.Reset(only(t, l, "kept"), keys[4]...)
	peekMany(t, l, keys, 4, t.KeyOf("tenant4", "kept", kept, "user4"))
}

// only returns the limiter that has only the named rule of l.
func only(t *decisions.T, l *weir.Limiter, rule string) *weir.Limiter {
	return suite.Must[*weir.Limiter](t.T, "Only")(l.Only(rule))
}

func checkReset(t *decisions.T) {
	c := decisions.NewClock()
	all := weir.Rule{Name: "all", By: []string{"s0"}, Algorithm: algorithm.FixedWindow{Limit: 100, Window: time.Minute}}
	l := t.Limiter(c, all,
		weir.Rule{Name: "user", By: []string{"s0", "s1"}, Algorithm: algorithm.GCRA{Rate: algorithm.PerMinute(7), Burst: 5}},
		weir.Rule{Name: "login", By: []string{"s0", "s1"}, Algorithm: algorithm.FixedWindow{Limit: 5, Window: time.Minute}})
	want := func(when string, u, v [4]int64) {
		if left, other := t.Remaining(l, weir.Peek, 1, "x", "u"), t.Remaining(l, weir.Peek, 1, "x", "v"); left != u || other != v {
			t.Errorf("%s: got %v and %v left, want %v and %v", when, left, other, u, v)
		}
	}
	t.Allow(l, 3, "x", "u")
	t.Allow(l, 2, "x", "v")
	want("before", [4]int64{95, 2, 2}, [4]int64{95, 3, 3})
	t.Reset(only(t, l, "login"), "x", "v")
	want("after the reset of login for v", [4]int64{95, 2, 2}, [4]int64{95, 3, 5})
	t.Reset(l, "x", "u")
	want("after Reset of u", [4]int64{95, 5, 5}, [4]int64{95, 3, 5})
	t.Reset(only(t, l, "all"), "x", "u")
	want("after the reset of all", [4]int64{100, 5, 5}, [4]int64{100, 3, 5})

	shared := t.Policy(t.Store, c, weir.Policy{Name: suite.Name, Segments: []string{"s0", "s1"}, Rules: []weir.Rule{all}})
	t.Allow(shared, 4, "x", "u")
	if err := shared.Reset(t.Ctx, "x", "u"); !errors.Is(err, weir.ErrInvalidRule) || t.Peek(shared, 1, "x", "v").Remaining != 96 {
		t.Errorf("Reset where no rule is identified by the full key: got error %v and %d left, want ErrInvalidRule and 96", err, t.Peek(shared, 1, "x", "v").Remaining)
	}
}

func checkThrottle(t *decisions.T) {
	c := decisions.NewClock()
	opts := &weir.Options{Prefix: t.Prefix, Clock: c.Now}
	th := suite.Must[*rediscell.Throttler](t.T, "rediscell.New")(rediscell.New("throttle", t.Store, opts))
	call := func(key string, maxBurst, count int64, period time.Duration, quantity int64, want [5]int64) {
		got, err := th.Throttle(t.Ctx, key, maxBurst, count, period, quantity)
		if err != nil || got.Numbers() != want {
			t.Errorf("Throttle %s %d %d %v %d: got %v, %v, want %v", key, maxBurst, count, period, quantity, got.Numbers(), err, want)
		}
	}
	call("user123", 15, 30, time.Minute, 1, [5]int64{0, 16, 15, -1, 2})
	call("k", 4, 1, time.Second, 6, [5]int64{1, 5, 5, -1, 0})
	call("k", 4, 1, time.Second, 5, [5]int64{0, 5, 0, -1, 5})
	c.Advance(100 * time.Millisecond)
	call("k", 4, 1, time.Second, 1, [5]int64{1, 5, 0, 1, 5}) // 0.9 s and 4.9 s
	c.Advance(900*time.Millisecond - time.Microsecond)
	call("k", 4, 1, time.Second, 1, [5]int64{1, 5, 0, 1, 5}) // 1 µs to wait is a second, not none
	c.Advance(time.Microsecond)
	call("k", 4, 1, time.Second, 0, [5]int64{0, 5, 1, -1, 4})
	call("k", 4, 1, time.Second, 1, [5]int64{0, 5, 0, -1, 5})
}

// checkMix makes decisions over rules with any algorithms. Some rules have a Cost.
func checkMix(t *decisions.T) {
	t.Beside(t.Times(40), 30, func(r *rand.Rand) []algorithm.Algorithm {
		list := []algorithm.Algorithm{model.Pick(r, model.Usual.MetadataWindow, model.Usual.Refundable, model.Usual.Concurrency, model.Usual.Concurrency)(r)}
		for range 1 + r.IntN(3) {
			list = append(list, model.Usual.Refundable(r))
		}
		return list
	})
}
