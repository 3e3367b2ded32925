package conformance

import (
	"context"
	"errors"
	"slices"
	"strconv"
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
	stay, gone, sets := t.keys("stay", 3), t.keys("gone", 6), t.keys("sets", 4)
	t.put(stay[0], 9)
	t.eval(putOne, stay[1:2], short, store.IntArg(7))
	t.put(stay[1], 7) // a longer TTL replaces a shorter one
	t.put(stay[2], 4)
	t.eval(keepOne, stay[2:3], store.IntArg(5)) // Keep keeps the longer TTL
	want := []store.Value{store.BulkValue("p1 9"), store.BulkValue("p1 7"), store.BulkValue("p1 5")}

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
	t.eval(putOne, gone[1:2], short, store.IntArg(6)) // a shorter TTL replaces a longer one
	t.eval(putOne, gone[2:3], short, store.IntArg(4))
	t.eval(keepOne, gone[2:3], store.IntArg(5))
	t.eval(setScript, gone[3:4])
	t.eval(putOne, gone[3:4], short, store.IntArg(4)) // in place of a set
	t.eval(putOne, gone[4:5], short, store.IntArg(4))
	t.eval(del, gone[4:5])
	t.eval(putOne, gone[4:5], short, store.IntArg(4)) // deleted before
	t.setStep(gone[5], setChange{add: x, ttl: ttl})
	t.eval(keepOne, gone[5:], store.IntArg(4)) // in place of a set, with its TTL
	first := t.eval(putOne, gone[:1], short, store.IntArg(8))[0].Int()
	age := func() time.Duration { return time.Duration(t.time().UnixMicro()-first) * time.Microsecond }
	for ; ; time.Sleep(10 * time.Millisecond) {
		before := age()
		held, left := t.mget(stay...), t.mget(gone...)
		members := make([]int64, len(sets))
		for i, key := range sets {
			members[i] = t.eval(count, []string{key})[0].Int()
		}
		after := age()
		// On a slow machine, the first member can expire before the second is added.
		if (!slices.Equal(held, want) || members[0] == 0) && after < longTTL/2 {
			t.fatalf("keys with a TTL of %v hold %v and %d members after %v, want %v and 1 or 2", longTTL, held, members[0], after, want)
		}
		if left[0].Kind() == store.Nil && after+skew < ttl {
			t.fatalf("a key with a TTL of %v is missing after %v", ttl, after)
		}
		if slices.Max(members[1:]) == 0 && !slices.ContainsFunc(left, func(v store.Value) bool { return v.Kind() != store.Nil }) {
			return
		}
		if before > 3*time.Second {
			t.fatalf("keys with a TTL of %v hold %v and %d members after %v, want them missing", ttl, left, members[1:], before)
		}
	}
}

func storeDelete(t *T) {
	keys := t.keys("a", 2)
	t.put(keys[0], 1)
	t.eval(setScript, keys[1:])
	for i, key := range keys {
		t.eval(del, []string{key})
		if v, n := t.mget(key)[0], t.eval(count, []string{key})[0].Int(); v.Kind() != store.Nil || n != 0 {
			t.errorf("deleted key %d holds %v and %d members", i, v, n)
		}
		t.eval(del, []string{key}) // a missing key can be deleted
	}
}

func storeCancelled(t *T) {
	cancelled, cancel := context.WithCancel(t.ctx)
	cancel()
	late, cancel := context.WithDeadline(t.ctx, time.Now().Add(-time.Second))
	defer cancel()
	keys := t.keys("a", 2)
	for _, c := range []struct {
		ctx  context.Context
		want error
	}{{cancelled, context.Canceled}, {late, context.DeadlineExceeded}} {
		before := []store.Value{store.IntegerValue(5)}
		got, err := t.store.Eval(c.ctx, counter, keys, nil, before)
		if !errors.Is(err, c.want) || errors.Is(err, store.ErrUnavailable) {
			t.errorf("Eval: got error %v, want %v alone", err, c.want)
		}
		if !slices.Equal(got, before) {
			t.errorf("Eval: got reply %v, want %v", got, before)
		}
		if _, err := t.store.MGet(c.ctx, keys, nil); !errors.Is(err, c.want) {
			t.errorf("MGet: got error %v, want %v", err, c.want)
		}
		if _, err := t.store.Time(c.ctx); !errors.Is(err, c.want) {
			t.errorf("Time: got error %v, want %v", err, c.want)
		}
	}
	if v := t.mget(keys[0])[0]; v.Kind() != store.Nil {
		t.errorf("a call whose context was done ran: the key holds %v", v)
	}
}

func storeTime(t *T) {
	fine := false
	last := t.time()
	for i := range 20 {
		script := t.eval(putOne, t.keys("a", 1), longMS, store.IntArg(int64(i)))[0].Int()
		now := t.time()
		if script < last.Add(-skew).UnixMicro() || script > now.Add(skew).UnixMicro() {
			t.errorf("a script read %d µs, between two calls of Time that returned %d and %d", script, last.UnixMicro(), now.UnixMicro())
		}
		fine = fine || now.UnixMicro()%1000 != 0
		last = now
	}
	if !fine {
		t.errorf("Time never returned a part of a millisecond in 20 calls, last %v", last)
	}
	if off := time.Since(last).Abs(); off > 24*time.Hour {
		t.errorf("Time is off by %v", off)
	}
}

func storeBorrowed(t *T) {
	if b, ok := t.hooked.(store.Borrower); !ok || !b.BorrowsStrings(t.hooked) {
		t.skipf("store does not borrow strings")
	}
	// The keys point into one buffer, which is overwritten after each call.
	buf := make([]byte, 0, 100)
	for i := range 50 {
		buf = append(buf[:0], t.key("a", strconv.Itoa(1000+i))...)
		t.eval(putOne, []string{borrowed(buf)}, longMS, store.IntArg(int64(i)))
	}
	for i := range 50 {
		want := "p1 " + strconv.Itoa(i)
		if got := t.mget(t.key("a", strconv.Itoa(1000+i)))[0].Str(); got != want {
			t.errorf("key %d: got %q, want %q", i, got, want)
		}
	}
}

func storeScriptLoss(t *T) {
	if t.backend.DropScripts == nil {
		t.skipf("backend gives no DropScripts")
	}
	keys := t.keys("a", 2)
	for i := range 3 {
		if n := t.eval(counter, keys)[0].Int(); n != int64(2*i) {
			t.errorf("got %d, want %d: a step was lost or ran twice", n, 2*i)
		}
		t.backend.DropScripts(t.test, t.hooked)
		if n := t.eval(counter, keys)[0].Int(); n != int64(2*i+1) {
			t.errorf("after the loss: got %d, want %d: a step was lost or ran twice", n, 2*i+1)
		}
	}
}
