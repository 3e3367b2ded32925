package conformance

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/store"
)

var storeChecks = []check{
	{"Reply", "Eval appends the script's reply, a flat list of integers, strings and nils, to reply", storeReply},
	{"Args", "arguments arrive as sent, in order, whatever bytes they hold", storeArgs},
	{"Keys", "keys hold what was written to them, whatever bytes their names hold", storeKeys},
	{"Nums", "a key holds a tag and up to eight integers below 2^53, and a script reads what it has written", storeNums},
	{"Foreign", "if a script finds a foreign value, the error is an ErrForeign that names the key, and nothing is written", storeForeign},
	{"Atomic", "the calls of Eval on a key are linearizable, and a later call never reads an earlier time", storeAtomic},
	{"Peer", "the calls of several stores with the same state are linearizable", storePeer},
	{"OwnReply", "every caller gets the reply to its own call", storeOwnReply},
	{"ScriptError", "if a script fails, the error is ErrScript, nothing is written, and the reply is unchanged", storeScriptError},
	{"GoForm", "a store that runs no Lua returns ErrNoGoForm for a script without Go form", storeGoForm},
	{"CrossSlot", "if keys have different slots, the error is ErrCrossSlot; without keys there is an error too; in both cases nothing runs", storeCrossSlot},
	{"MGet", "MGet returns one value per key, in order, over any slots; a missing key is Nil", storeMGet},
	{"MGetType", "MGet returns Nil for a key that holds no string", storeMGetType},
	{"Set", "a sorted set is ordered by score and then by text; members of any text can be added, moved, counted, found, removed and trimmed; a set without members is missing", storeSet},
	{"Expiry", "a key expires at the end of its last TTL, and not before, even if its value changes and it keeps its TTL", storeExpiry},
	{"Delete", "a deleted key is missing, whatever it held", storeDelete},
	{"Cancelled", "a call whose context is done returns the context's own error, and runs nothing", storeCancelled},
	{"Time", "Time returns the real time, in microseconds or finer, by the clock that scripts read", storeTime},
	{"Borrowed", "if a store says that it borrows strings, it keeps no string after the call", storeBorrowed},
	{"ScriptLoss", "if the server has lost a script, the script is sent again, and runs once", storeScriptLoss},
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
	t.eval(putTwo, []string{keys[1], keys[0]}, longMS, store.IntArg(11), store.IntArg(10))
	if got := t.mget(keys[0], keys[1]); got[0].Str() != "p1 10" || got[1].Str() != "p1 11" {
		t.errorf("after one script over two keys: got %v, want p1 10 and p1 11", got)
	}
}

func storeNums(t *T) {
	want := []store.Value{store.BulkValue("c1 1"), store.BulkValue("d1 2"), store.BulkValue("c1 3"), {}, {}}
	if got := t.eval(steps, t.keys("steps", 1)); !slices.Equal(got, want) {
		t.errorf("a script that sets 1, 2 and 3, deletes, and keeps what is missing read %v, want %v", got, want)
	}
	if v := t.mget(t.keys("steps", 1)[0])[0]; v.Str() != "c1 5" {
		t.errorf("and then set 5: the key holds %v", v)
	}
	key := t.keys("wide", 1)
	held := store.Value{}
	const top = 1<<53 - 1
	for _, list := range [][]int64{{1}, {0, 0}, {top, top - 1, top - 2, top - 3, top - 4, top - 5, top - 6, top - 7}, {5, 6, 7}, {}, {0, 0, 0, 0, 0, 0, 0, 0}, {0}} {
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
	t.eval(keepOne, key, store.IntArg(8))
	if v := t.mget(key[0])[0]; v.Str() != "p1 8" {
		t.errorf("a value that was replaced and keeps its TTL: got %v, want p1 8", v)
	}
	t.eval(setScript, t.keys("set", 1))
	t.put(t.keys("set", 1)[0], 9)
	if v := t.mget(t.keys("set", 1)[0])[0]; v.Str() != "p1 9" {
		t.errorf("a number in place of a set: got %v, want p1 9", v)
	}
	missing := t.keys("missing", 1)
	t.eval(keepOne, missing, store.IntArg(8))
	if v := t.mget(missing[0])[0]; v.Kind() != store.Nil {
		t.errorf("a missing key that was to keep its TTL holds %v, want it missing", v)
	}
}

// storeForeign reads keys that have another type or another tag.
func storeForeign(t *T) {
	for _, r := range readers {
		keys := t.keys(r.method, 4) // written first; a number; a set; a number of another tag
		t.put(keys[1], 5)
		t.eval(setScript, keys[2:3])
		t.eval(wide, keys[3:], store.IntArg(5))
		before := t.mget(keys...)
		for i, key := range keys {
			right := i == 0 || i == 1 && !r.set || i == 2 && r.set
			read := key
			if i == 0 {
				read = t.key(r.method, "missing")
			}
			reply := []store.Value{store.IntegerValue(7)}
			got, err := t.store.Eval(t.ctx, r.script, []string{keys[0], read}, nil, reply)
			switch {
			case right && err != nil:
				t.errorf("%s of key %d: %v", r.method, i, err)
			case right:
				t.eval(del, keys[:1])
			case !errors.Is(err, store.ErrForeign) || errors.Is(err, store.ErrScript) || errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), `"`+key+`"`):
				t.errorf("%s of key %d: got error %v, want an ErrForeign that names %q", r.method, i, err, key)
			case !slices.Equal(got, reply):
				t.errorf("%s of key %d: got reply %v, want %v", r.method, i, got, reply)
			}
		}
		if after := t.mget(keys...); !slices.Equal(after, before) {
			t.errorf("%s: the keys hold %v, want %v", r.method, after, before)
		}
	}
}

// storeAtomic checks that a history of concurrent fetch-and-adds is linearizable: every
// value is returned once, both keys agree, and a call that began after another had ended
// gets a greater value, and a later time.
func storeAtomic(t *T) { t.atomic(t.store) }

func storePeer(t *T) {
	if t.backend.Peer == nil {
		t.skipf("backend gives no Peer")
	}
	t.atomic(t.store, t.noted(t.backend.Peer(t.test, t.hooked)))
}

// atomic counts with concurrent calls to all of stores.
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
					t.errorf("a script is not atomic: it read %d and %d from keys that always change together", reply[0].Int(), reply[1].Int())
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
		if o.n < int64(i) {
			t.fatalf("a script is not atomic: two calls returned value %d, so the step of one was lost", o.n)
		}
		if o.n != int64(i) {
			t.fatalf("value %d was returned in place of %d: a step ran twice", o.n, i)
		}
		if i > 0 && o.now < all[i-1].now {
			t.errorf("value %d was returned at %d µs, and the next value at %d: the clock was read before the keys were locked", i-1, all[i-1].now, o.now)
		}
		if o.end.Before(latest) {
			t.errorf("value %d was returned by a call that ended before the call that got a smaller value began", o.n)
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
	got, err := t.store.Eval(t.ctx, putTwo, keys, []store.Arg{longMS, store.IntArg(1), store.IntArg(2)}, before)
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
