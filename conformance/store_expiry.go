package conformance

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/store"
)

// skew is the largest difference between the clocks of a store's servers.
const skew = 20 * time.Millisecond

// storeExpiry waits in real time, because keys expire by the store's own clock.
func storeExpiry(t *T) {
	const ttl = 250 * time.Millisecond
	short := store.IntArg(ttl.Milliseconds())
	// The keys stay and gone are strings that must stay or expire, and sets are sorted sets.
	stay, gone, sets := t.keys("stay", 4), t.keys("gone", 7), t.keys("sets", 4)
	t.put(stay[0], 9)
	t.eval(put, stay[1:2], short, store.IntArg(7))
	t.put(stay[1], 7) // a longer TTL replaces a shorter one
	t.put(stay[2], 4)
	t.eval(keepOne, stay[2:3], store.IntArg(5)) // Keep keeps the longer TTL
	t.eval(put, stay[3:], short, store.IntArg(4))
	t.eval(keepOne, stay[3:], store.IntArg(3), longMS) // in one step, a longer TTL that is kept
	want := []int64{9, 7, 5, 3, 9, 7, 5, 3}            // as scripts read them, and as MGet does

	x, y := store.Member{Score: 1, Text: "x"}, store.Member{Score: 2, Text: "y"}
	t.setStep(sets[0], setChange{add: x, ttl: ttl})
	t.setStep(sets[0], setChange{add: y}) // a longer TTL of a set replaces a shorter one
	t.setStep(sets[1], setChange{add: x})
	t.setStep(sets[1], setChange{add: y, ttl: ttl}) // a shorter TTL of a set replaces a longer one
	for _, key := range sets[2:] {
		t.setStep(key, setChange{add: x})
		t.setStep(key, setChange{add: y, ttl: ttl})
	}
	t.setStep(sets[2], setChange{remove: "x"}) // keeps the TTL
	t.setStep(sets[3], setChange{trim: 1})     // keeps the TTL

	t.put(gone[1], 6)
	t.eval(put, gone[1:2], short, store.IntArg(6)) // a shorter TTL replaces a longer one
	t.eval(put, gone[2:3], short, store.IntArg(4))
	t.eval(keepOne, gone[2:3], store.IntArg(5))
	t.setStep(gone[3], setChange{add: member})
	t.eval(put, gone[3:4], short, store.IntArg(4)) // in place of a set
	t.eval(put, gone[4:5], short, store.IntArg(4))
	t.delete(t.store, gone[4:5])
	t.eval(put, gone[4:5], short, store.IntArg(4)) // deleted before
	t.setStep(gone[5], setChange{add: x, ttl: ttl})
	t.eval(keepOne, gone[5:6], store.IntArg(4)) // in place of a set, with its TTL
	t.put(gone[6], 6)
	t.eval(keepOne, gone[6:], store.IntArg(4), short) // in one step, a shorter TTL that is kept
	first := t.eval(put, gone[:1], short, store.IntArg(8))[0].Int()
	age := func() time.Duration { return time.Duration(t.time().UnixMicro()-first) * time.Microsecond }
	read := func(keys []string) (values []int64) { // as scripts read them, and then as MGet does
		for _, v := range t.look(keys...)[:len(keys)] {
			values = append(values, v.Int())
		}
		for _, v := range t.mget(keys...) {
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
			members[i] = t.eval(count, []string{key})[0].Int()
		}
		after := age()
		// On a slow machine, the first member can expire before the second is added.
		if (!slices.Equal(held, want) || members[0] == 0) && after < longTTL/2 {
			t.fatalf("keys with a TTL of %v hold %v and %d members after %v, want %v and 1 or 2", longTTL, held, members[0], after, want)
		}
		if min(left[0], left[len(gone)]) < 0 && after+skew < ttl {
			t.fatalf("a key with a TTL of %v is missing after %v", ttl, after)
		}
		if slices.Max(members[1:]) == 0 && slices.Max(left) < 0 {
			break
		}
		if before > 3*time.Second {
			t.fatalf("keys with a TTL of %v hold %v (-1 is missing) and %d members after %v, want them missing", ttl, left, members[1:], before)
		}
	}
	for i, key := range slices.Concat(gone, sets[1:]) {
		t.replaced(key, i%2 == 0, "expired")
	}
	for round := 0; round < 20 && !t.expiresAtNow(round); round++ {
	}
}

// replaced checks that what a missing key held before does not come back.
func (t *T) replaced(key string, set bool, was string) {
	if !set {
		t.put(key, 3)
		if got, v := t.look(key)[0].Int(), t.mget(key)[0]; got != 3 || v.Str() != "p1 3" {
			t.errorf("3 was put to a key that was %s: a script reads %d, and MGet %v", was, got, v)
		}
		t.delete(t.store, []string{key})
	}
	t.setStep(key, setChange{add: store.Member{Score: 7, Text: "new"}})
	if n, v := t.eval(count, []string{key})[0].Int(), t.mget(key)[0]; n != 1 || v.Kind() != store.Nil {
		t.errorf("a member was added to a key that was %s: it has %d members, and MGet returns %v", was, n, v)
	}
}

// expiresAtNow checks, if the store runs Go forms, that they find a key until the microsecond
// before it expires. It reports whether a key expired at the Now of a call.
func (t *T) expiresAtNow(round int) bool {
	keys := t.keys("now"+strconv.Itoa(round), 3000)
	var ends []int64
	for some := range slices.Chunk(keys, 100) {
		reply := t.eval(spread, some)
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
		t.goes(&wg, func() {
			for before, now := int64(0), int64(0); now < last && !met.Load(); time.Sleep(time.Millisecond) {
				at, near := []int{0}, keys[:1:1]
				next := now + min(2*(now-before), 50_000) // about when the next call reads its clock
				for i, end := range ends {
					if i > 0 && now <= end && end < next {
						at, near = append(at, i), append(near, keys[i])
					}
				}
				got := t.look(near...)
				before, now = now, got[len(near)].Int()
				for i, v := range got[:len(near)] {
					left := ends[at[i]] - now
					if (v.Int() >= 0) != (left > 0) {
						t.fatalf("%d µs before a key expires, a script reads %d, where -1 is missing", left, v.Int())
					}
					met.CompareAndSwap(false, left == 0)
				}
			}
		})
	}
	wg.Wait()
	return met.Load() || t.failed()
}

func storeDelete(t *T) {
	keys := t.keys("a", 3)
	t.put(keys[0], 1)
	t.setStep(keys[1], setChange{add: member})
	t.setStep(keys[2], setChange{add: member})
	t.put(keys[2], 1) // in place of a set
	for i, key := range keys {
		t.delete(t.store, []string{key})
		t.delete(t.store, []string{key}) // a missing key can be deleted
		t.replaced(key, i != 1, "deleted")
	}
}

func storeCancelled(t *T) {
	cancelled, fail := context.WithCancelCause(t.ctx)
	fail(errors.New("cancelled on purpose"))
	late, cancel := context.WithDeadline(t.ctx, time.Now().Add(-time.Second))
	defer cancel()
	keys := t.keys("a", 2)
	for _, c := range []struct {
		ctx  context.Context
		want error
	}{{cancelled, context.Canceled}, {late, context.DeadlineExceeded}} {
		for _, script := range []*store.Script{counter, look} {
			before := []store.Value{store.IntegerValue(5)}
			got, err := t.store.Eval(c.ctx, script, keys, []store.Arg{store.IntArg(2)}, before)
			if !errors.Is(err, c.want) || errors.Is(err, store.ErrUnavailable) || !slices.Equal(got, before) {
				t.errorf("Eval of %s: got %v and error %v, want %v and %v alone", script.Name(), got, err, before, c.want)
			}
		}
		if _, err := t.store.MGet(c.ctx, keys, nil); !errors.Is(err, c.want) || errors.Is(err, store.ErrUnavailable) {
			t.errorf("MGet: got error %v, want %v alone", err, c.want)
		}
		if _, err := t.store.Time(c.ctx); !errors.Is(err, c.want) || errors.Is(err, store.ErrUnavailable) {
			t.errorf("Time: got error %v, want %v alone", err, c.want)
		}
	}
	t.holds(store.Value{}, keys, "a call whose context was done must not run")
	for try := 1; t.waits(t.keys("wait"+strconv.Itoa(try), 2), try == 8); try++ {
	}
}

// waits lets a call wait for the locks of keys until its context is done, if the store runs
// Go forms. A store may look at the context only when it has the locks. If the call returns
// late without them, waits reports it, because the machine can be busy, or fails.
func (t *T) waits(keys []string, last bool) (late bool) {
	const wait, hold, most = 100 * time.Millisecond, time.Second, 200 * time.Millisecond
	locked, released := make(chan struct{}, 9), make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	var wg sync.WaitGroup
	defer wg.Wait()
	defer release()
	t.goes(&wg, func() {
		defer close(locked)
		t.eval(counter.WithForm(func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
			locked <- struct{}{}
			<-released
			return counter.GoForm()(tx, args, reply)
		}), keys)
	})
	if _, ok := <-locked; !ok { // the store runs the Lua
		return false
	}
	ctx, cancel := context.WithTimeout(t.ctx, wait)
	defer cancel()
	defer context.AfterFunc(ctx, func() { goesOn(released, hold); release() })()
	start := time.Now()
	_, err := t.store.Eval(ctx, counter, keys, nil, nil)
	took := time.Since(start)
	select {
	case <-released:
		if err == nil {
			t.errorf("a call with a timeout of %v waited for a lock for %v, and then ran", wait, took)
		}
	default:
		if late = took > wait+most; late && last {
			t.errorf("a call with a timeout of %v waited for a lock for %v, want at most %v more", wait, took, most)
		}
	}
	if err != nil && (!errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrUnavailable)) {
		t.errorf("a call whose context ended while it waited for a lock: got error %v, want %v alone", err, context.DeadlineExceeded)
	}
	release()
	wg.Wait()
	if n := t.look(keys...)[0].Int(); err == nil && n != 2 {
		t.errorf("two calls returned without an error, and the key counted %d", n)
	}
	return late && !last
}

func storeTime(t *T) {
	fine, fineScript := false, false
	last := t.time()
	for range 20 {
		reply := t.eval(moments, t.keys("a", 1))
		script, now := reply[0].Int(), t.time()
		if reply[1] != reply[0] {
			t.errorf("the clock of a script showed %d µs and then %d", script, reply[1].Int())
		}
		if script < last.Add(-skew).UnixMicro() || script > now.Add(skew).UnixMicro() {
			t.errorf("a script read %d µs, between two calls of Time that returned %d and %d", script, last.UnixMicro(), now.UnixMicro())
		}
		fine, fineScript = fine || now.UnixMicro()%1000 != 0, fineScript || script%1000 != 0
		last = now
	}
	if !fine || !fineScript {
		t.errorf("in 20 calls, Time (%v) or the clock of a script (%v) never showed a part of a millisecond, last %v", fine, fineScript, last)
	}
	if off := time.Since(last).Abs(); off > 10*time.Minute { // a clock in another time zone is wrong
		t.errorf("Time is off by %v", off)
	}
}

func storeBorrowed(t *T) {
	if b, ok := t.hooked.(store.Borrower); !ok || !b.BorrowsStrings(t.hooked) {
		t.skipf("store does not borrow strings")
	}
	// The keys point into one buffer, which is overwritten after each call.
	buf, sets := make([]byte, 0, 100), t.keys("set", 1)
	for i := range 50 {
		buf = append(buf[:0], t.key("a", strconv.Itoa(1000+i))...)
		t.eval(put, []string{borrowed(buf)}, longMS, store.IntArg(int64(i)))
		t.setStep(sets[0], setChange{add: store.Member{Text: borrowed(buf)}})
	}
	if n := t.eval(count, sets)[0].Int(); n != 50 {
		t.errorf("a set has %d members, whose texts were in a buffer that was overwritten, want 50", n)
	}
	for i := range 50 {
		t.holds(store.BulkValue("p1 "+strconv.Itoa(i)), []string{t.key("a", strconv.Itoa(1000+i))}, "key %d in a buffer that was overwritten", i)
	}
}

func storeScriptLoss(t *T) {
	keys := t.keys("a", 2)
	for i := range int64(6) {
		if i%2 == 1 {
			t.dropScripts()
		}
		if n := t.eval(counter, keys)[0].Int(); n != i {
			t.errorf("got %d, want %d, where odd numbers come after a loss: a step was lost or ran twice", n, i)
		}
	}
}
