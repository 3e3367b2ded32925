package conformance

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/store"
)

var storeRules = []rule{
	{"Reply", "Eval appends the script's reply, a flat list of integers, strings and nils, to reply", storeReply},
	{"Args", "arguments arrive as sent, in order, whatever bytes they hold", storeArgs},
	{"Keys", "keys hold what was written to them, whatever bytes their names hold", storeKeys},
	{"Nums", "a key holds up to four integers below 2^53, and a script sees what it wrote itself", storeNums},
	{"Atomic", "a script runs alone: steps on one key happen one after the other, in an order that agrees with real time and with the time that they read", storeAtomic},
	{"Peer", "scripts of several stores over one state run one after the other", storePeer},
	{"OwnReply", "every caller gets the reply to its own call", storeOwnReply},
	{"ScriptError", "a script that fails is an ErrScript, writes nothing, and leaves reply as it was", storeScriptError},
	{"GoForm", "a store that runs no Lua returns ErrNoGoForm for a script without Go form", storeGoForm},
	{"CrossSlot", "keys that do not share a slot are ErrCrossSlot, no keys are an error, and nothing runs", storeCrossSlot},
	{"MGet", "MGet returns one value per key, in order, over any slots; a missing key is Nil", storeMGet},
	{"MGetType", "MGet returns Nil for a key that holds no string", storeMGetType},
	{"Set", "a sorted set is in the order of its scores, then of its texts, counts, finds a text, gives up members of any rank, and is missing without any", storeSet},
	{"Expiry", "a key is forgotten when its last TTL is over, and not before, also if it was put anew without one", storeExpiry},
	{"Delete", "a deleted key is missing", storeDelete},
	{"Cancelled", "a context that is done ends a call with the context's own error, and nothing runs", storeCancelled},
	{"Time", "Time is the clock that scripts read, in microseconds or better, and the real time", storeTime},
	{"Borrowed", "a store that says it borrows strings keeps none of them beyond the call", storeBorrowed},
	{"ScriptLoss", "a server that forgot a script is given it again, unnoticed", storeScriptLoss},
}

func storeReply(t *T) {
	before := []store.Value{store.BulkValue("before")}
	got, err := t.store.Eval(t.ctx, kinds, t.keys("a", 1), nil, before)
	if err != nil {
		t.fatalf("Eval: %v", err)
	}
	if want := slices.Concat(before, kindsReply); !slices.Equal(got, want) {
		t.errorf("got  %q\nwant %q", got, want)
	}
}

func storeArgs(t *T) {
	args := []store.Arg{
		store.StringArg(""), store.StringArg("a\x00b\r\n\xff{}%"), store.IntArg(0), store.IntArg(-7),
		store.IntArg(1<<53 - 1), store.ConstArg(42), store.StringArg(strings.Repeat("x", 10_000)),
	}
	got := t.eval(echo, t.keys("a", 1), args...)
	if len(got) != len(args) {
		t.fatalf("got %d values, want %d", len(got), len(args))
	}
	for i, a := range args {
		if got[i] != store.BulkValue(a.String()) {
			t.errorf("argument %d: got %.50q, want %.50q", i, got[i].Str(), a.String())
		}
	}
}

func storeKeys(t *T) {
	long := strings.Repeat("k", 1000)
	names := []string{
		"plain", "", "a b", "\x00", "\x00\x00", "\r\n", "\xff\xfe", "}{", "ключ",
		// Pairs that must not be taken for each other.
		"a", "A", "a ", " a", "a\t", "a\x00", "\u00e9", "e\u0301", long + "1", long + "2", "1", "01", "1.0",
	}
	var keys []string
	for i, name := range names {
		key := t.key("tag", name)
		keys = append(keys, key)
		t.put(key, int64(i))
	}
	for i, v := range t.mget(keys...) {
		if want := store.BulkValue("p1 " + strconv.Itoa(i)); v != want {
			t.errorf("key %.40q: got %v, want %v", keys[i], v, want)
		}
	}
	t.eval(putTwo, []string{keys[1], keys[0]}, store.IntArg(600_000), store.IntArg(11), store.IntArg(10))
	if got := t.mget(keys[0], keys[1]); got[0].Str() != "p1 10" || got[1].Str() != "p1 11" {
		t.errorf("after one script over two keys: got %v, want p1 10 and p1 11", got)
	}
}

func storeNums(t *T) {
	want := []store.Value{store.BulkValue("c1 1"), store.BulkValue("c1 2"), {}}
	if got := t.eval(steps, t.keys("steps", 1)); !slices.Equal(got, want) {
		t.errorf("a script that puts 1, puts 2 and deletes saw %v, want %v", got, want)
	}
	if v := t.mget(t.keys("steps", 1)[0])[0]; v.Str() != "c1 3" {
		t.errorf("and then put 3: the key holds %v", v)
	}
	key := t.keys("wide", 1)
	held := store.Value{}
	for _, list := range [][]int64{{1}, {0, 0}, {1<<53 - 1, 1<<53 - 2, 1<<53 - 3, 1<<53 - 4}, {5, 6, 7}, {}, {0}} {
		args, text := []store.Arg{}, "c1"
		for _, n := range list {
			args, text = append(args, store.IntArg(n)), text+" "+strconv.FormatInt(n, 10)
		}
		if got := t.eval(wide, key, args...)[0]; got != held {
			t.errorf("a script read %v, want %v", got, held)
		}
		held = store.BulkValue(text)
		if v := t.mget(key[0])[0]; v != held {
			t.errorf("MGet: got %v, want %v", v, held)
		}
	}
}

// storeAtomic checks a history of concurrent fetch-and-adds for
// linearizability: every value is handed out once, both keys agree, a call that
// began after another ended sees a greater value, and a later time.
func storeAtomic(t *T) { t.atomic(t.store) }

func storePeer(t *T) {
	if t.backend.Peer == nil {
		t.skipf("backend gives no Peer")
	}
	t.atomic(t.store, t.backend.Peer(t.test, t.store))
}

// atomic counts through all of stores at once.
func (t *T) atomic(stores ...store.Store) {
	const workers, each = 8, 50
	type op struct {
		n, now     int64
		begin, end time.Time
	}
	ops := make([][]op, workers)
	keys := [][]string{t.keys("a", 2), t.keys("a", 2)}
	slices.Reverse(keys[1]) // half of the callers name the keys in the other order
	var wg sync.WaitGroup
	for w := range workers {
		t.goes(&wg, func() {
			for range each {
				o := op{begin: time.Now()}
				reply, err := stores[w%len(stores)].Eval(t.ctx, counter, keys[w/2%2], nil, nil)
				o.end = time.Now()
				if err != nil || len(reply) != 3 {
					t.errorf("Eval: %v, %v", reply, err)
					return
				}
				if reply[0] != reply[1] {
					t.errorf("one step saw its keys at %d and %d, which always change together", reply[0].Int(), reply[1].Int())
				}
				o.n, o.now = reply[0].Int(), reply[2].Int()
				ops[w] = append(ops[w], o)
			}
		})
	}
	wg.Wait()
	if t.failed() {
		return
	}
	all := slices.Concat(ops...)
	slices.SortFunc(all, func(a, b op) int { return int(a.n - b.n) })
	latest := time.Time{} // the latest begin of all ops with smaller values
	for i, o := range all {
		if o.n != int64(i) {
			t.fatalf("value %d was handed out in place of %d: a step was lost or ran twice", o.n, i)
		}
		if i > 0 && o.now < all[i-1].now {
			t.errorf("value %d was handed out at %d µs, and the one after it at %d: the clock was read before the keys were locked", i-1, all[i-1].now, o.now)
		}
		if o.end.Before(latest) {
			t.errorf("value %d was handed out after the call for a smaller one began, to a call that had ended", o.n)
		}
		if o.begin.After(latest) {
			latest = o.begin
		}
	}
}

func storeOwnReply(t *T) {
	const workers, each = 8, 50
	var wg sync.WaitGroup
	for w := range workers {
		t.goes(&wg, func() {
			key := []string{t.key(strconv.Itoa(w), "k")}
			for i := range each {
				want := strconv.Itoa(w) + "/" + strconv.Itoa(i)
				reply, err := t.store.Eval(t.ctx, echo, key, []store.Arg{store.StringArg(want)}, nil)
				if err != nil {
					t.errorf("Eval: %v", err)
					return
				}
				if len(reply) != 1 || reply[0].Str() != want {
					t.errorf("got %v, want %q", reply, want)
					return
				}
			}
		})
	}
	wg.Wait()
}

func storeScriptError(t *T) {
	keys := t.keys("a", 1)
	before := []store.Value{store.IntegerValue(5)}
	got, err := t.store.Eval(t.ctx, broken, keys, nil, before)
	if !errors.Is(err, store.ErrScript) || errors.Is(err, store.ErrUnavailable) {
		t.errorf("got error %v, want an ErrScript that is not an ErrUnavailable", err)
	}
	if !slices.Equal(got, before) {
		t.errorf("reply: got %v, want %v", got, before)
	}
	if v := t.mget(keys[0])[0]; v.Kind() != store.Nil {
		t.errorf("the key holds %v", v)
	}
}

func storeGoForm(t *T) {
	reply, err := t.store.Eval(t.ctx, luaOnly, t.keys("a", 1), nil, nil)
	switch {
	case errors.Is(err, store.ErrNoGoForm):
	case err != nil:
		t.errorf("got error %v, want none from a store that runs Lua, ErrNoGoForm from one that does not", err)
	case len(reply) != 1 || reply[0].Int() != 1:
		t.errorf("got %v, want [1]", reply)
	}
}

func storeCrossSlot(t *T) {
	keys := []string{t.key("a", "x"), t.key("b", "x")}
	before := []store.Value{store.IntegerValue(5)}
	got, err := t.store.Eval(t.ctx, putTwo, keys, []store.Arg{store.IntArg(600_000), store.IntArg(1), store.IntArg(2)}, before)
	if !errors.Is(err, store.ErrCrossSlot) {
		t.errorf("got error %v, want ErrCrossSlot", err)
	}
	if !slices.Equal(got, before) {
		t.errorf("reply: got %v, want %v", got, before)
	}
	for i, v := range t.mget(keys...) {
		if v.Kind() != store.Nil {
			t.errorf("%s holds %v", keys[i], v)
		}
	}
	if _, err := t.store.Eval(t.ctx, echo, nil, nil, nil); err == nil {
		t.errorf("no error without keys")
	}
}

// skew is how far the clocks of a store's servers may be apart.
const skew = 20 * time.Millisecond

// storeExpiry really waits, as only the store's own clock forgets keys.
func storeExpiry(t *T) {
	const ttl = 250 * time.Millisecond
	keys := t.keys("a", 6)
	ms := store.IntArg(ttl.Milliseconds())
	t.put(keys[1], 9)
	t.eval(putOne, keys[2:3], ms, store.IntArg(7))
	t.put(keys[2], 7) // a longer TTL replaces a shorter one
	t.put(keys[3], 6)
	t.eval(putOne, keys[3:4], ms, store.IntArg(6)) // and the other way round
	t.put(keys[4], 4)
	t.eval(keepOne, keys[4:5], store.IntArg(5)) // none keeps either
	t.eval(putOne, keys[5:6], ms, store.IntArg(4))
	t.eval(keepOne, keys[5:6], store.IntArg(5))
	reply := t.eval(putOne, keys[:1], ms, store.IntArg(8))
	for put := reply[0].Int(); ; time.Sleep(2 * time.Millisecond) {
		got := t.mget(keys...)
		age := time.Duration(t.time().UnixMicro()-put) * time.Microsecond
		if got[1].Str() != "p1 9" || got[2].Str() != "p1 7" || got[4].Str() != "p1 5" {
			t.fatalf("of three keys with ten minutes to live, two put anew, there is %v after %v", []store.Value{got[1], got[2], got[4]}, age)
		}
		if got[0].Kind() == store.Nil && age+skew < ttl {
			t.fatalf("a key with a TTL of %v is gone after %v", ttl, age)
		}
		if got[0].Kind() == store.Nil && got[3].Kind() == store.Nil && got[5].Kind() == store.Nil {
			return
		}
		if age > 3*time.Second {
			t.fatalf("of three keys with a TTL of %v, two put anew, there is %v after %v", ttl, []store.Value{got[0], got[3], got[5]}, age)
		}
	}
}

func storeDelete(t *T) {
	keys := t.keys("a", 1)
	t.put(keys[0], 1)
	t.eval(del, keys)
	if v := t.mget(keys[0])[0]; v.Kind() != store.Nil {
		t.errorf("a deleted key holds %v", v)
	}
	t.eval(del, keys) // a missing key can be deleted
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
		script := t.eval(putOne, t.keys("a", 1), store.IntArg(600_000), store.IntArg(int64(i)))[0].Int()
		now := t.time()
		if script < last.Add(-skew).UnixMicro() || script > now.Add(skew).UnixMicro() {
			t.errorf("a script read %d µs between two calls of Time that returned %d and %d", script, last.UnixMicro(), now.UnixMicro())
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
	if b, ok := t.store.(store.Borrower); !ok || !b.BorrowsStrings(t.store) {
		t.skipf("store does not borrow strings")
	}
	// Keys over one buffer, overwritten after each call.
	buf := make([]byte, 0, 100)
	for i := range 50 {
		buf = append(buf[:0], t.key("a", strconv.Itoa(1000+i))...)
		t.eval(putOne, []string{borrowed(buf)}, store.IntArg(600_000), store.IntArg(int64(i)))
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
		t.backend.DropScripts(t.test, t.store)
		if n := t.eval(counter, keys)[0].Int(); n != int64(2*i+1) {
			t.errorf("after the loss: got %d, want %d: a step was lost or ran twice", n, 2*i+1)
		}
	}
}
