package stores

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/store"
)

// checkExpiry waits in real time, because keys expire by the store's own clock.
func checkExpiry(t *suite.T) {
	const ttl = 250 * time.Millisecond
	short := store.IntArg(ttl.Milliseconds())
	// The keys stay and gone are strings that must stay or expire, and sets are sorted sets.
	stay, gone, sets := t.Keys("stay", 4), t.Keys("gone", 7), t.Keys("sets", 4)
	t.Put(stay[0], 9)
	t.Eval(scripts.Put, stay[1:2], short, store.IntArg(7))
	t.Put(stay[1], 7) // a longer TTL replaces a shorter one
	t.Put(stay[2], 4)
	t.Eval(scripts.Keep, stay[2:3], store.IntArg(5)) // Keep keeps the longer TTL
	t.Eval(scripts.Put, stay[3:], short, store.IntArg(4))
	t.Eval(scripts.Keep, stay[3:], store.IntArg(3), scripts.LongMillis) // in one step, a longer TTL that is kept
	want := []int64{9, 7, 5, 3, 9, 7, 5, 3}                             // as scripts read them, and as MGet does

	x, y := store.Member{Score: 1, Text: "x"}, store.Member{Score: 2, Text: "y"}
	t.Change(sets[0], scripts.SetChange{Add: x, TTL: ttl})
	t.Change(sets[0], scripts.SetChange{Add: y}) // a longer TTL of a set replaces a shorter one
	t.Change(sets[1], scripts.SetChange{Add: x})
	t.Change(sets[1], scripts.SetChange{Add: y, TTL: ttl}) // a shorter TTL of a set replaces a longer one
	for _, key := range sets[2:] {
		t.Change(key, scripts.SetChange{Add: x})
		t.Change(key, scripts.SetChange{Add: y, TTL: ttl})
	}
	t.Change(sets[2], scripts.SetChange{Remove: "x"}) // keeps the TTL
	t.Change(sets[3], scripts.SetChange{Trim: 1})     // keeps the TTL

	t.Put(gone[1], 6)
	t.Eval(scripts.Put, gone[1:2], short, store.IntArg(6)) // a shorter TTL replaces a longer one
	t.Eval(scripts.Put, gone[2:3], short, store.IntArg(4))
	t.Eval(scripts.Keep, gone[2:3], store.IntArg(5))
	t.Change(gone[3], scripts.SetChange{Add: scripts.Member})
	t.Eval(scripts.Put, gone[3:4], short, store.IntArg(4)) // in place of a set
	t.Eval(scripts.Put, gone[4:5], short, store.IntArg(4))
	t.Delete(t.Store, gone[4])
	t.Eval(scripts.Put, gone[4:5], short, store.IntArg(4)) // deleted before
	t.Change(gone[5], scripts.SetChange{Add: x, TTL: ttl})
	t.Eval(scripts.Keep, gone[5:6], store.IntArg(4)) // in place of a set, with its TTL
	t.Put(gone[6], 6)
	t.Eval(scripts.Keep, gone[6:], store.IntArg(4), short) // in one step, a shorter TTL that is kept
	first := t.Eval(scripts.Put, gone[:1], short, store.IntArg(8))[0].Int()
	age := func() time.Duration { return time.Duration(t.Time().UnixMicro()-first) * time.Microsecond }
	read := func(keys []string) (values []int64) { // as scripts read them, and then as MGet does
		for _, v := range t.Look(keys...)[:len(keys)] {
			values = append(values, v.Int())
		}
		for _, v := range t.MGet(keys...) {
			n, ok := store.ParseNums(v.Str())
			if !ok {
				n.N[0] = -1
			}
			values = append(values, n.N[0])
		}
		return values
	}
	for ; ; time.Sleep(10 * time.Millisecond) {
		before := age()
		held, left := read(stay), read(gone)
		members := make([]int64, len(sets))
		for i, key := range sets {
			members[i] = t.Eval(scripts.Count, []string{key})[0].Int()
		}
		after := age()
		// On a slow machine, the first member can expire before the second is added.
		if (!slices.Equal(held, want) || members[0] == 0) && after < scripts.LongTTL/2 {
			t.Fatalf("%v after the TTL of keys was set to %v: scripts read the numbers %v, and MGet %v, want %v (-1: the key is missing); a set has %d members, want 1 or 2", after, scripts.LongTTL, held[:len(stay)], held[len(stay):], want[:len(stay)], members[0])
		}
		if min(left[0], left[len(gone)]) < 0 && after+suite.Skew < ttl {
			t.Fatalf("a key with a TTL of %v is missing after %v: a script reads %d, and MGet %d, want 8 (-1: the key is missing)", ttl, after, left[0], left[len(gone)])
		}
		if slices.Max(members[1:]) == 0 && slices.Max(left) < 0 {
			break
		}
		if before > 3*time.Second {
			t.Fatalf("%v after the TTL of keys was set to %v: scripts read the numbers %v, and MGet %v, want only -1, which is a missing key; sets have %d members, want only 0. How the keys were written, in this order: once; with a shorter TTL after a longer one; then with Keep; in place of a set; after a deletion; a set, then a number with Keep; with a long TTL, then in one script a short one and Keep. The sets: with a shorter TTL after a longer one; then a member removed; then trimmed", before, ttl, left[:len(gone)], left[len(gone):], members[1:])
		}
	}
	for i, key := range slices.Concat(gone, sets[1:]) {
		replaced(t, key, i%2 == 0, "expired")
	}
	checkEnd(t)
}

// replaced checks that what a missing key held before does not come back.
func replaced(t *suite.T, key string, set bool, was string) {
	missing(t, key, "a key that was "+was)
	if !set {
		t.Put(key, 3)
		if got, v := t.Look(key)[0].Int(), t.MGet(key)[0]; got != 3 || v.Str() != "p1 3" {
			t.Errorf("a script put 3 to a key that was %s: a script reads %d, want 3, and MGet returns %v, want p1 3", was, got, v)
		}
		t.Delete(t.Store, key)
	}
	t.Change(key, scripts.SetChange{Add: store.Member{Score: 7, Text: "new"}})
	if n, v := t.Eval(scripts.Count, []string{key})[0].Int(), t.MGet(key)[0]; n != 1 || v.Kind() != store.Nil {
		t.Errorf("a script added a member to a key that was %s: it has %d members, want 1, and MGet returns %v, want nil", was, n, v)
	}
}

// checkEnd checks, if the store runs Go forms, that they find a key until the microsecond
// before it expires. Only a call whose clock shows the very microsecond tells, so
// checkEnd tries until there was one. If there was none for long, the check notes that.
func checkEnd(t *suite.T) {
	enough := 20 * time.Second
	if t.Brief {
		enough = 4 * time.Second
	}
	var width atomic.Int64
	width.Store(48)
	until := time.Now().Add(enough)
	for round := 1; !t.Failed() && !expiresAtNow(t, &width, until); round++ {
		if time.Now().After(until) && !t.Failed() {
			t.Note = fmt.Sprintf("in %d rounds, no call ran in the very microsecond in which a key expires, so this run does not show whether the key is missing then", round)
			return
		}
	}
}

// A keyEnd is the time at which a key expires, in microseconds.
type keyEnd struct {
	at  int64
	key string
}

// missing checks that scripts do not find key, which is described by what.
func missing(t *suite.T, key, what string) {
	got, err := t.Store.Eval(t.Ctx, scripts.Look, []string{key}, []store.Arg{store.IntArg(1)}, nil)
	if err != nil || got[0].Int() != -1 {
		t.Fatalf("a script looked for %s: it read %v, with the error %v, want -1, which is a missing key, and no error", what, got[:min(len(got), 1)], err)
	}
}

// expiresAtNow lets many keys expire in the same milliseconds, each in another
// microsecond, and reads keys that are about to expire, about width in a call. It reports
// whether a key expired at the time of a call, or the store runs Lua. It gives up when
// until has passed, and at once if the keys would expire later.
func expiresAtNow(t *suite.T, width *atomic.Int64, until time.Time) bool {
	const writes, most, callers = 30, 100, 8
	keys := t.Keys("now", writes*most)
	put := func(some []string, ttl time.Duration) (now int64, forms bool) {
		reply := t.Eval(scripts.Spread, some, store.IntArg(int64(len(some))), store.IntArg(ttl.Milliseconds()))[0]
		return reply.Int(), reply.Kind() != store.Nil
	}
	start := time.Now()
	if _, forms := put(keys[:most], time.Second); !forms {
		return true
	}
	took := time.Since(start)
	span := min(max(int(2*took/time.Millisecond), 40), most)        // in milliseconds: each call writes a key for each
	target := time.Now().Add(20*time.Millisecond + 3*writes*took/2) // when the first keys expire
	if target.After(until) {
		return false // the call has waited for something else, or the store is slow
	}
	var ends []keyEnd
	var mu sync.Mutex
	var met atomic.Bool
	each := func(f func(caller int)) {
		var wg sync.WaitGroup
		for caller := range callers {
			t.Goes(&wg, func() { f(caller) })
		}
		wg.Wait()
	}
	each(func(caller int) {
		for i := caller; i < writes; i += callers {
			some, ttl := keys[i*span:(i+1)*span], max(time.Until(target), 0)+10*time.Millisecond
			now, _ := put(some, ttl)
			mu.Lock()
			for i, key := range some {
				ends = append(ends, keyEnd{now + 1000*(ttl.Milliseconds()+int64(i)), key})
			}
			mu.Unlock()
		}
	})
	if t.Failed() {
		return true
	}
	slices.SortFunc(ends, func(a, b keyEnd) int { return cmp.Compare(a.at, b.at) })
	each(func(int) {
		if watch(t, ends, width, &met, until) {
			met.Store(true)
		}
	})
	return met.Load()
}

// watch reads the keys of ends that expire at about the time of its next call, until the
// last has expired, or met, or until has passed. It reports whether one expired at the time
// of a call. If the time of a call cannot be foreseen well, watch doubles width.
func watch(t *suite.T, ends []keyEnd, width *atomic.Int64, met *atomic.Bool, until time.Time) bool {
	late := int64(0) // how much later than its begin the last call read its clock, by that clock
	for calls := 0; !met.Load(); calls++ {
		if calls > 0 {
			time.Sleep(time.Duration(ends[0].at-late-time.Now().UnixMicro()) * time.Microsecond)
		}
		begin, most := time.Now().UnixMicro(), min(int(width.Load()), len(ends))
		first, _ := slices.BinarySearchFunc(ends, begin+late, func(e keyEnd, at int64) int { return cmp.Compare(e.at, at) })
		first = max(min(first-most/2, len(ends)-most), 0)
		some := ends[first : first+most]
		var near []string
		for _, e := range some {
			near = append(near, e.key)
		}
		got := t.Look(near...)
		now := got[most].Int()
		for i, v := range got[:most] {
			switch left := some[i].at - now; {
			case left > 0 && v.Int() < 0:
				t.Fatalf("a script does not find a key that expires %d µs after the time of the script: want it to be found until the microsecond before", left)
			case left <= 0 && v.Int() >= 0:
				t.Fatalf("a script finds a key that expired %d µs before the time of the script: want it to be missing from the microsecond in which it expires, 0 µs before", -left)
			case left == 0:
				return true
			}
		}
		if now > ends[len(ends)-1].at || time.Now().After(until) {
			return false
		}
		if late = now - begin; calls > 0 && most < 400 && (now < some[0].at || now > some[most-1].at) {
			width.CompareAndSwap(int64(most), int64(2*most))
		}
	}
	return true
}

func checkDelete(t *suite.T) {
	keys := t.Keys("a", 3)
	t.Put(keys[0], 1)
	t.Change(keys[1], scripts.SetChange{Add: scripts.Member})
	t.Change(keys[2], scripts.SetChange{Add: scripts.Member})
	t.Put(keys[2], 1) // in place of a set
	for i, key := range keys {
		t.Delete(t.Store, key)
		t.Delete(t.Store, key) // a missing key can be deleted
		replaced(t, key, i != 1, "deleted")
	}
}
