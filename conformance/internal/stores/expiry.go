package stores

import (
	"context"
	"errors"
	"slices"
	"strconv"
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
			t.Fatalf("keys with a TTL of %v hold %v and %d members after %v, want %v and 1 or 2", scripts.LongTTL, held, members[0], after, want)
		}
		if min(left[0], left[len(gone)]) < 0 && after+suite.Skew < ttl {
			t.Fatalf("a key with a TTL of %v is missing after %v", ttl, after)
		}
		if slices.Max(members[1:]) == 0 && slices.Max(left) < 0 {
			break
		}
		if before > 3*time.Second {
			t.Fatalf("keys with a TTL of %v hold %v (-1 is missing) and %d members after %v, want them missing", ttl, left, members[1:], before)
		}
	}
	for i, key := range slices.Concat(gone, sets[1:]) {
		replaced(t, key, i%2 == 0, "expired")
	}
	for round := 0; round < 20 && !expiresAtNow(t, round); round++ {
	}
}

// replaced checks that what a missing key held before does not come back.
func replaced(t *suite.T, key string, set bool, was string) {
	if !set {
		t.Put(key, 3)
		if got, v := t.Look(key)[0].Int(), t.MGet(key)[0]; got != 3 || v.Str() != "p1 3" {
			t.Errorf("3 was put to a key that was %s: a script reads %d, and MGet %v", was, got, v)
		}
		t.Delete(t.Store, key)
	}
	t.Change(key, scripts.SetChange{Add: store.Member{Score: 7, Text: "new"}})
	if n, v := t.Eval(scripts.Count, []string{key})[0].Int(), t.MGet(key)[0]; n != 1 || v.Kind() != store.Nil {
		t.Errorf("a member was added to a key that was %s: it has %d members, and MGet returns %v", was, n, v)
	}
}

// expiresAtNow checks, if the store runs Go forms, that they find a key until the microsecond
// before it expires. It reports whether a key expired at the Now of a call.
func expiresAtNow(t *suite.T, round int) bool {
	keys := t.Keys("now"+strconv.Itoa(round), 3000)
	var ends []int64
	for some := range slices.Chunk(keys, 100) {
		reply := t.Eval(scripts.Spread, some)
		if reply[0].Kind() == store.Nil {
			return true
		}
		for i := range some {
			ends = append(ends, reply[0].Int()+int64(200+i)*1000)
		}
	}
	last := slices.Max(ends)
	var met atomic.Bool
	var wg sync.WaitGroup
	for range 8 {
		t.Goes(&wg, func() {
			for before, now := int64(0), int64(0); now < last && !met.Load(); time.Sleep(time.Millisecond) {
				at, near := []int{0}, keys[:1:1]
				next := now + min(2*(now-before), 50_000) // about when the next call reads its clock
				for i, end := range ends {
					if i > 0 && now <= end && end < next {
						at, near = append(at, i), append(near, keys[i])
					}
				}
				got := t.Look(near...)
				before, now = now, got[len(near)].Int()
				for i, v := range got[:len(near)] {
					left := ends[at[i]] - now
					if (v.Int() >= 0) != (left > 0) {
						t.Fatalf("%d µs before a key expires, a script reads %d, where -1 is missing", left, v.Int())
					}
					met.CompareAndSwap(false, left == 0)
				}
			}
		})
	}
	wg.Wait()
	return met.Load() || t.Failed()
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

func checkCancelled(t *suite.T) {
	cancelled, fail := context.WithCancelCause(t.Ctx)
	fail(errors.New("cancelled on purpose"))
	late, cancel := context.WithDeadline(t.Ctx, time.Now().Add(-time.Second))
	defer cancel()
	keys := t.Keys("a", 2)
	for _, c := range []struct {
		ctx  context.Context
		want error
	}{{cancelled, context.Canceled}, {late, context.DeadlineExceeded}} {
		for _, script := range []*store.Script{scripts.Counter, scripts.Look} {
			before := []store.Value{store.IntegerValue(5)}
			got, err := t.Store.Eval(c.ctx, script, keys, []store.Arg{store.IntArg(2)}, before)
			if !errors.Is(err, c.want) || errors.Is(err, store.ErrUnavailable) || !slices.Equal(got, before) {
				t.Errorf("Eval of %s: got %v and error %v, want %v and %v alone", script.Name(), got, err, before, c.want)
			}
		}
		if _, err := t.Store.MGet(c.ctx, keys, nil); !errors.Is(err, c.want) || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("MGet: got error %v, want %v alone", err, c.want)
		}
		if _, err := t.Store.Time(c.ctx); !errors.Is(err, c.want) || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("Time: got error %v, want %v alone", err, c.want)
		}
	}
	t.Holds(store.Value{}, keys, "a call whose context was done must not run")
	for try := 1; waits(t, t.Keys("wait"+strconv.Itoa(try), 2), try == 8); try++ {
	}
}

// waits lets a call wait for the locks of keys until its context is done, if the store runs
// Go forms. A store may look at the context only when it has the locks. If the call returns
// late without them, waits reports it, because the machine can be busy, or fails.
func waits(t *suite.T, keys []string, last bool) (late bool) {
	const wait, hold, most = 100 * time.Millisecond, time.Second, 200 * time.Millisecond
	locked, released := make(chan struct{}, 9), make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	var wg sync.WaitGroup
	defer wg.Wait()
	defer release()
	t.Goes(&wg, func() {
		defer close(locked)
		t.Eval(scripts.Counter.WithForm(func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
			locked <- struct{}{}
			<-released
			return scripts.Counter.GoForm()(tx, args, reply)
		}), keys)
	})
	if _, ok := <-locked; !ok { // the store runs the Lua
		return false
	}
	ctx, cancel := context.WithTimeout(t.Ctx, wait)
	defer cancel()
	defer context.AfterFunc(ctx, func() { suite.GoesOn(released, hold); release() })()
	start := time.Now()
	_, err := t.Store.Eval(ctx, scripts.Counter, keys, nil, nil)
	took := time.Since(start)
	select {
	case <-released:
		if err == nil {
			t.Errorf("a call with a timeout of %v waited for a lock for %v, and then ran", wait, took)
		}
	default:
		if late = took > wait+most; late && last {
			t.Errorf("a call with a timeout of %v waited for a lock for %v, want at most %v more", wait, took, most)
		}
	}
	if err != nil && (!errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrUnavailable)) {
		t.Errorf("a call whose context ended while it waited for a lock: got error %v, want %v alone", err, context.DeadlineExceeded)
	}
	release()
	wg.Wait()
	if n := t.Look(keys...)[0].Int(); err == nil && n != 2 {
		t.Errorf("two calls returned without an error, and the key counted %d", n)
	}
	return late && !last
}

func checkTime(t *suite.T) {
	fine, fineScript := false, false
	last := t.Time()
	for range 20 {
		reply := t.Eval(scripts.Moments, t.Keys("a", 1))
		script, now := reply[0].Int(), t.Time()
		if reply[1] != reply[0] {
			t.Errorf("the clock of a script showed %d µs and then %d", script, reply[1].Int())
		}
		if script < last.Add(-suite.Skew).UnixMicro() || script > now.Add(suite.Skew).UnixMicro() {
			t.Errorf("a script read %d µs, between two calls of Time that returned %d and %d", script, last.UnixMicro(), now.UnixMicro())
		}
		fine, fineScript = fine || now.UnixMicro()%1000 != 0, fineScript || script%1000 != 0
		last = now
	}
	if !fine || !fineScript {
		t.Errorf("in 20 calls, Time (%v) or the clock of a script (%v) never showed a part of a millisecond, last %v", fine, fineScript, last)
	}
	if off := time.Since(last).Abs(); off > 10*time.Minute { // a clock in another time zone is wrong
		t.Errorf("Time is off by %v", off)
	}
}

func checkBorrowed(t *suite.T) {
	if b, ok := t.Store.(store.Borrower); !ok || !b.BorrowsStrings(t.Store) {
		t.Skipf("store does not borrow strings")
	}
	// The keys point into one buffer, which is overwritten after each call.
	buf, sets := make([]byte, 0, 100), t.Keys("set", 1)
	for i := range 50 {
		buf = append(buf[:0], t.Key("a", strconv.Itoa(1000+i))...)
		t.Eval(scripts.Put, []string{borrowed(buf)}, scripts.LongMillis, store.IntArg(int64(i)))
		t.Change(sets[0], scripts.SetChange{Add: store.Member{Text: borrowed(buf)}})
	}
	t.Equal(t.Eval(scripts.Count, sets)[0].Int(), int64(50), "a set has %d members, whose texts were in a buffer that was overwritten, want %d")
	for i := range 50 {
		t.Holds(store.BulkValue("p1 "+strconv.Itoa(i)), []string{t.Key("a", strconv.Itoa(1000+i))}, "key %d in a buffer that was overwritten", i)
	}
}

func checkScriptLoss(t *suite.T) {
	keys := t.Keys("a", 2)
	for i := range int64(6) {
		if i%2 == 1 {
			t.DropScripts()
		}
		t.Equal(t.Eval(scripts.Counter, keys)[0].Int(), i, "got %d, want %d, where odd numbers come after a loss: a step was lost or ran twice")
	}
}
