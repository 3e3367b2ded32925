// Package pauses holds the checks of an algorithm.Pause.
package pauses

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/internal/decisions"
	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/store"
)

// Checks are the checks of an algorithm.Pause.
var Checks = []suite.Check{
	of("Until", "every limiter denies a paused key until the last pause ends, to the microsecond, and consumes nothing; a shorter pause does not shorten a longer one", checkUntil),
	of("Resume", "Resume ends only the pause that it names, once; other pauses go on", checkResume),
	of("Full", "a key with more pauses than algorithm.MaxPauses is closed until the last of them ends, and has a bounded number of entries", checkFull),
	of("Ignored", "Force, Refund, Settle, Renew and Release work during a pause", checkIgnored),
	of("Wait", "a paused key denies a request until the last pause ends, whatever its MaxWait is, and reserves nothing; after the pause, requests leave at the pace of the other rules", checkWait),
	of("Many", "callers that pause and resume a key at once lose no pause, and end each once", checkMany),
	of("Foreign", "if the key holds a foreign value, the error is an ErrForeign that names the key, and no key changes", checkForeign),
	of("TTL", "on the store's clock, RetryAfter is the rest of the pause; the key exists as long, and expires at most 1.05 s later; Reset and the last Resume delete it", checkTTL),
}

func of(name, text string, run func(*decisions.T)) suite.Check {
	return suite.Of(name, text, run, decisions.New)
}

// rules returns a rule that pauses, between two others.
func rules() []weir.Rule {
	return []weir.Rule{
		{Name: "rate", Algorithm: decisions.TenPerMinute}, {Name: "pause", Algorithm: algorithm.Pause{}},
		{Name: "log", Algorithm: algorithm.SlidingLog{Limit: 7, Window: time.Minute}},
	}
}

// pause pauses key for d under this name.
func pause(t *decisions.T, l *weir.Limiter, key, name string, d time.Duration) {
	if res := t.Do(l, weir.Request{Key: weir.KeyOf(key), Op: weir.Pause, ID: name, For: d}); !res.Allowed {
		t.Errorf("Pause of %s: got %+v, want it allowed", key, res)
	}
}

// resume ends the pause with this name, and checks whether it was running.
func resume(t *decisions.T, l *weir.Limiter, key, name string, want bool) {
	if res := t.Do(l, weir.Request{Key: weir.KeyOf(key), Op: weir.Resume, ID: name}); res.Allowed != want {
		t.Errorf("Resume of %q of %s: got %v, want %v", name, key, res.Allowed, want)
	}
}

// closed checks that key is closed for d, or open if d is 0, and that tokens remain in
// the first rule.
func closed(t *decisions.T, l *weir.Limiter, when, key string, d time.Duration, tokens int64) {
	var each [3]weir.Result
	for _, op := range []weir.Op{weir.Peek, weir.Consume, weir.TakeUpTo} {
		if d == 0 && op != weir.Peek {
			break
		}
		res := t.Do(l, weir.Request{Key: weir.KeyOf(key), Op: op}, each[:]...)
		p := each[1]
		if res.Allowed != (d == 0) || p.RetryAfter != d || p.ResetAfter != d || p.Limit != algorithm.MaxTokens || d > 0 && res != p || d == 0 && res.Rule == "pause" || each[0].Remaining != tokens {
			t.Errorf("%s, %v: got %+v of %+v, want it closed for %v, and %d tokens of the rate", when, op, res, each, d, tokens)
		}
	}
}

func checkUntil(t *decisions.T) {
	c := decisions.NewClock()
	l, other := t.Limiter(c, rules()...), t.Limiter(c, rules()...)
	t.Allow(l, 1, "k")
	pause(t, l, "k", "a", 10*time.Second)
	closed(t, other, "paused", "k", 10*time.Second, 4)
	closed(t, other, "another key", "other", 0, 5)
	c.Advance(time.Second)
	pause(t, other, "k", "b", 2*time.Second)
	closed(t, l, "after a shorter pause", "k", 9*time.Second, 4)
	pause(t, l, "k", "a", time.Second)
	closed(t, l, "after a shorter pause of the same name", "k", 9*time.Second, 4)
	c.Advance(4 * time.Second)
	closed(t, l, "after the end of the shorter one", "k", 5*time.Second, 4)
	pause(t, l, "k", "a", 7*time.Second)
	closed(t, other, "extended", "k", 7*time.Second, 4)
	c.Advance(7*time.Second - time.Microsecond)
	closed(t, other, "1µs before the end", "k", time.Microsecond, 5)
	c.Advance(time.Microsecond)
	closed(t, other, "at the end", "k", 0, 5)
	if res := t.Allow(other, 1, "k"); !res.Allowed || res.Remaining != 4 {
		t.Errorf("at the end: got %+v, want it allowed, with 4 left", res)
	}
	pause(t, l, "k", "µ", time.Microsecond)
	closed(t, l, "for 1µs", "k", time.Microsecond, 4)
	most := algorithm.MaxSpan
	pause(t, l, "k", "most", most)
	closed(t, l, "for the longest time", "k", most, 4)
}

func checkResume(t *decisions.T) {
	c := decisions.NewClock()
	l := t.Limiter(c, rules()...)
	resume(t, l, "k", "a", false)
	pause(t, l, "k", "a", 10*time.Second)
	pause(t, l, "k", "b", 5*time.Second)
	pause(t, l, "k", "\x00p1 a", 3*time.Second)
	resume(t, l, "other", "a", false)
	resume(t, l, "k", "c", false)
	closed(t, l, "after Resume of an unknown pause", "k", 10*time.Second, 5)
	resume(t, l, "k", "a", true)
	resume(t, l, "k", "a", false)
	closed(t, l, "after Resume of the longest", "k", 5*time.Second, 5)
	c.Advance(3 * time.Second)
	resume(t, l, "k", "\x00p1 a", false)
	closed(t, l, "after the end of the shortest", "k", 2*time.Second, 5)
	resume(t, l, "k", "b", true)
	closed(t, l, "after Resume of all", "k", 0, 5)
	pause(t, l, "k", "a", time.Second)
	closed(t, l, "paused again", "k", time.Second, 5)
	// A clock that steps back keeps closed what no Resume has ended.
	c.Advance(time.Second)
	resume(t, l, "k", "a", false)
	c.Advance(-time.Millisecond)
	closed(t, l, "after Resume of an ended pause, and a step back", "k", 0, 5)
}

func checkFull(t *decisions.T) {
	c := decisions.NewClock()
	l := t.Limiter(c, rules()...)
	name := func(i int) string { return fmt.Sprint("holder ", i) }
	entries := func(when string, want int64) {
		t.Equal(t.Eval(scripts.Count, []string{t.KeyOf("k", "pause", algorithm.Pause{})})[0].Int(), want, "%s: %d entries, want %d", when)
	}
	for i := range algorithm.MaxPauses {
		pause(t, l, "k", name(i), time.Minute+time.Duration(i)*time.Second)
	}
	pause(t, l, "k", "long", time.Hour)
	pause(t, l, "k", "short", time.Second)
	pause(t, l, "k", name(3), 2*time.Minute)
	entries("full", algorithm.MaxPauses+1)
	resume(t, l, "k", "long", false)
	for i := range algorithm.MaxPauses {
		resume(t, l, "k", name(i), true)
	}
	closed(t, l, "after Resume of all with names", "k", time.Hour, 5)
	c.Advance(time.Hour)
	closed(t, l, "at the end", "k", 0, 5)
	pause(t, l, "k", "late", time.Second)
	entries("after ended ones", 1)
	resume(t, l, "k", "late", true)
}

func checkIgnored(t *decisions.T) {
	c := decisions.NewClock()
	l := t.Limiter(c, rules()...)
	r := weir.Request{Key: weir.KeyOf("k"), ID: "id", Cost: 3}
	t.Do(l, r)
	pause(t, l, "k", "a", time.Hour)
	if res := t.Do(l, r); res.Allowed || !res.Replayed || res.RetryAfter != time.Hour {
		t.Errorf("a repeated request: got %+v, want it denied for 1h", res)
	}
	r.MaxWait = time.Hour
	if res := t.Do(t.Limiter(c, rules()[:2]...), r); res.Allowed || !res.Replayed || res.RetryAfter != time.Hour {
		t.Errorf("a repeated request that can wait: got %+v, want it denied for 1h", res)
	}
	if s, err := l.Settle(t.Ctx, r, 1); err != nil || !s.Found || s.Cost != 1 {
		t.Errorf("Settle: got %+v, %v, want it found", s, err)
	}
	closed(t, l, "after Settle", "k", time.Hour, 4)
	if s, err := l.Refund(t.Ctx, r); err != nil || !s.Found {
		t.Errorf("Refund: got %+v, %v, want it found", s, err)
	}
	closed(t, l, "after Refund", "k", time.Hour, 5)
	if res := t.Do(l, weir.Request{Key: r.Key, Op: weir.Force, Cost: 9}); !res.Allowed || res.Granted != 9 || res.Rule == "pause" {
		t.Errorf("Force: got %+v, want 9 granted", res)
	}
	closed(t, l, "after Force", "k", time.Hour, 0)

	leases := t.Limiter(c, weir.Rule{Name: "leases", Algorithm: algorithm.Concurrency{Limit: 2, Lease: time.Minute}}, weir.Rule{Name: "pause", Algorithm: algorithm.Pause{}})
	r = weir.Request{Key: weir.KeyOf("leases"), ID: "a"}
	t.Do(leases, r)
	pause(t, leases, "leases", "a", time.Hour)
	for _, tt := range []struct {
		op   weir.Op
		want bool
	}{{weir.Renew, true}, {weir.Consume, false}, {weir.Release, true}, {weir.Consume, false}} {
		if r.Op = tt.op; t.Do(leases, r).Allowed != tt.want {
			t.Errorf("%v of a lease during a pause: allowed is %v, want %v", tt.op, !tt.want, tt.want)
		}
	}
}

func checkWait(t *decisions.T) {
	const callers, burst, interval = 40, 4, 100 * time.Millisecond
	c := decisions.NewClock()
	l := t.Limiter(c, weir.Rule{Name: "pace", Algorithm: algorithm.GCRA{Rate: algorithm.Every(interval), Burst: burst}}, weir.Rule{Name: "pause", Algorithm: algorithm.Pause{}})
	ask := func(op weir.Op, wait time.Duration) weir.Result {
		return t.Do(l, weir.Request{Key: weir.KeyOf("k"), Op: op, MaxWait: wait})
	}
	pause(t, l, "k", "a", 10*time.Second)
	for n := range callers {
		wait := []time.Duration{time.Microsecond, 10*time.Second - time.Microsecond, 10 * time.Second, time.Hour, weir.Never}[n%5]
		for _, op := range []weir.Op{weir.Peek, weir.Consume} {
			if res := ask(op, wait); res.Allowed || res.Rule != "pause" || res.RetryAfter != 10*time.Second || res.ResetAfter != 10*time.Second || res.Delay != weir.Never {
				t.Errorf("%v with a MaxWait of %v: got %+v, want it denied for 10s", op, wait, res)
			}
		}
	}
	c.Advance(10 * time.Second)
	for n := range callers {
		if res := ask(weir.Consume, weir.Never); !res.Allowed || res.Rule != "pace" || res.Delay != max(time.Duration(n+1-burst), 0)*interval {
			t.Errorf("caller %d after the pause: got %+v, want it allowed after %v", n, res, max(time.Duration(n+1-burst), 0)*interval)
		}
	}
}

func checkMany(t *decisions.T) {
	l := t.Limiter(nil, rules()...)
	ids := t.Times(16) + 1
	var wg sync.WaitGroup
	var ended atomic.Int64
	for i := range ids {
		name := fmt.Sprint("p", i)
		for range 2 { // each pause is made and ended twice, at once
			t.Goes(&wg, func() {
				pause(t, l, "k", name, time.Hour)
				if res := t.Peek(l, 1, "k"); res.Allowed || res.Rule != "pause" {
					t.Errorf("after a Pause: got %+v, want it closed", res)
				}
			})
		}
	}
	wg.Wait()
	for i := range ids {
		if i == 0 {
			continue
		}
		for range 2 {
			t.Goes(&wg, func() {
				if t.Do(l, weir.Request{Key: weir.KeyOf("k"), Op: weir.Resume, ID: fmt.Sprint("p", i)}).Allowed {
					ended.Add(1)
				}
				if res := t.Peek(l, 1, "k"); res.Allowed {
					t.Errorf("one pause goes on: got %+v, want it closed", res)
				}
			})
		}
	}
	wg.Wait()
	t.Equal(ended.Load(), int64(ids-1), "%d pauses were ended, want %d")
	resume(t, l, "k", "p0", true)
	if res := t.Peek(l, 1, "k"); !res.Allowed {
		t.Errorf("after Resume of all: got %+v, want it open", res)
	}
}

func checkForeign(t *decisions.T) {
	c := decisions.NewClock()
	l := t.Limiter(c, rules()...)
	member := func(text string) func(string) {
		return func(key string) {
			t.Change(key, scripts.SetChange{Add: store.Member{Score: c.Micros + 1, Text: text}})
		}
	}
	for i, spoil := range []func(key string){
		func(key string) { t.Put(key, 1) },
		func(key string) { t.Eval(scripts.PutText, []string{key}, store.StringArg("p1 a")) },
		member(scripts.Member.Text), member("p1"), member("p2 a"), member(" p1 a"), member("P1 a"),
	} {
		name := fmt.Sprint("foreign", i)
		all := append(t.KeysOf(name, "rate", decisions.TenPerMinute), t.KeyOf(name, "pause", algorithm.Pause{}))
		key := all[1]
		spoil(key)
		before := t.MGet(all...)
		for _, op := range []weir.Op{weir.Consume, weir.Peek, weir.TakeUpTo, weir.Force, weir.Refund, weir.Settle, weir.Pause, weir.Resume, weir.Reset} {
			_, err := l.Decide(t.Ctx, weir.Request{Key: weir.KeyOf(name), Op: op, ID: "id", For: time.Second, Actual: weir.ActualCost(1)}, nil)
			if !errors.Is(err, store.ErrForeign) || errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), `"`+key+`"`) {
				t.Errorf("value %d, %v: got error %v, want an ErrForeign that names %q", i, op, err, key)
			}
		}
		t.Equal(t.MGet(all...), before, "value %d: the keys hold %v, want %v", i)
		if before[1].Kind() == store.Nil {
			t.Equal(t.Eval(scripts.Count, []string{key})[0].Int(), int64(1), "value %d: the set has %d members, want %d", i)
		}
	}
}

func checkTTL(t *decisions.T) {
	l := t.Limiter(nil, rules()...)
	const slack = 1050*time.Millisecond + suite.Skew
	for _, d := range []time.Duration{30 * time.Second, time.Hour} {
		for _, more := range []time.Duration{0, d / 2} { // long, because the Resume of both comes after it
			start := t.Time()
			pause(t, l, "ttl", "a", d)
			if more > 0 {
				pause(t, l, "ttl", "b", more)
			}
			began := time.Now()
			left := t.Peek(l, 1, "ttl").RetryAfter
			if since := t.Time().Sub(start); left < d-since-suite.Skew || left > d+suite.Skew {
				t.Errorf("up to %v after a Pause for %v: the RetryAfter is %v", since, d, left)
			}
			for key, ttl := range t.KeysLike("ttl}") {
				if ttl > d+slack || ttl < left-time.Since(began)-suite.Skew {
					t.Errorf("the key %q expires in %v, and the pause ends in %v", key, ttl, left)
				}
			}
		}
	}
	gone := func(what string) {
		if keys := t.KeysLike("ttl}"); len(keys) > 0 {
			t.Errorf("after %s there is a key: %v", what, keys)
		}
	}
	resume(t, l, "ttl", "a", true)
	resume(t, l, "ttl", "b", true)
	gone("the last Resume")
	pause(t, l, "ttl", "a", time.Hour)
	t.Reset(l, "ttl")
	gone("Reset")
	closed(t, l, "after Reset", "ttl", 0, 5)
}
