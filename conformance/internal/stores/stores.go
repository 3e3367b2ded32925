// Package stores holds the checks of a store.
package stores

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/store"
)

// Checks are the checks of a store.
var Checks = []suite.Check{
	{Name: "Reply", Text: "Eval appends the script's reply, a flat list of integers, strings and nils, to reply", Run: checkReply},
	{Name: "Args", Text: "arguments arrive as sent, in order, whatever bytes they hold", Run: checkArgs},
	{Name: "Keys", Text: "keys hold what was written to them, whatever bytes their names hold", Run: checkKeys},
	{Name: "Nums", Text: "a key holds a tag and up to nine integers below 2^53, and a script reads what it has written", Run: checkNums},
	{Name: "Foreign", Text: "if a script finds a foreign value, the error is an ErrForeign that names the key, and nothing is written", Run: checkForeign},
	{Name: "Atomic", Text: "the calls of Eval on a key are linearizable, a later call never reads an earlier time, and MGet reads the keys of a slot atomically", Run: checkAtomic},
	{Name: "Peer", Text: "the calls of several stores with the same state are linearizable", Run: checkPeer},
	{Name: "OwnReply", Text: "every caller gets the reply to its own call", Run: checkOwnReply},
	{Name: "ScriptError", Text: "if a script fails, the error is ErrScript, nothing is written, and the reply is unchanged", Run: checkScriptError},
	{Name: "GoForm", Text: "a store that runs no Lua returns ErrNoGoForm for a script without Go form", Run: checkGoForm},
	{Name: "CrossSlot", Text: "if keys have different slots, the error is ErrCrossSlot; without keys there is an error too; in both cases nothing runs", Run: checkCrossSlot},
	{Name: "MGet", Text: "MGet returns one value per key, in order, over any slots; a key that is missing, or that holds no string, is Nil", Run: checkMGet},
	{Name: "Set", Text: "a sorted set is ordered by score and then by text; members of any text can be added, moved, counted, found, removed and trimmed; a set without members is missing", Run: checkSet},
	{Name: "Expiry", Text: "a key expires at the end of its last TTL, and not before, even if its value changes and it keeps its TTL", Run: checkExpiry},
	{Name: "Delete", Text: "a deleted key is missing, whatever it held", Run: checkDelete},
	{Name: "Cancelled", Text: "a call whose context is done returns the context's own error, and runs nothing", Run: checkCancelled},
	{Name: "Time", Text: "Time returns the real time, in microseconds or finer, by the clock that scripts read", Run: checkTime},
	{Name: "Borrowed", Text: "if a store says that it borrows strings, it keeps no string after the call", Run: checkBorrowed},
	{Name: "ScriptLoss", Text: "if the server has lost a script, the script is sent again, and runs once", Run: checkScriptLoss, Alone: true},
}

func checkReply(t *suite.T) {
	before := []store.Value{store.BulkValue("before")}
	got := suite.Must[[]store.Value](t, "Eval")(t.Store.Eval(t.Ctx, scripts.Kinds, t.Keys("a", 1), nil, before))
	t.Equal(got, slices.Concat(before, scripts.KindsReply), "got  %v\nwant %v")
}

func checkArgs(t *suite.T) {
	args := []store.Arg{
		store.StringArg(""), store.StringArg("a\x00b\r\n\xff{}%"), store.IntArg(0), store.IntArg(-7),
		store.IntArg(1<<53 - 1), store.ConstArg(42), store.StringArg(strings.Repeat("x", 10_000)),
	}
	got := t.Eval(scripts.Echo, t.Keys("a", 1), args...)
	if len(got) != len(args) {
		t.Fatalf("got %d values, want %d", len(got), len(args))
	}
	for i, a := range args {
		if got[i] != store.BulkValue(a.String()) {
			t.Errorf("argument %d: got %.50q, want %.50q", i, got[i].Str(), a.String())
		}
	}
}

func checkKeys(t *suite.T) {
	long := strings.Repeat("k", 8300) // the key of a limiter can have about as many bytes
	names := []string{
		"plain", "", "a b", "\x00", "\x00\x00", "\r\n", "\xff", "\xfe", "\xff\xfe", "\ufffd", "}{", "ключ",
		// Pairs that must not be taken for each other.
		"a", "A", "a ", " a", "a\t", "a\x00", "\u00e9", "e\u0301", long + "1", long + "2", "1", "01", "1.0",
	}
	var keys []string
	for i, name := range names {
		key := t.Key("tag", name)
		keys = append(keys, key)
		t.Put(key, int64(i))
	}
	for i, v := range t.MGet(keys...) {
		t.Equal(v, store.BulkValue("p1 "+strconv.Itoa(i)), "key %.40q: got %v, want %v", keys[i])
	}
	t.Eval(scripts.Put, []string{keys[1], keys[0]}, scripts.LongMillis, store.IntArg(11), store.IntArg(10))
	if got := t.MGet(keys[0], keys[1]); got[0].Str() != "p1 10" || got[1].Str() != "p1 11" {
		t.Errorf("after one script over two keys: got %v, want p1 10 and p1 11", got)
	}
}

func checkNums(t *suite.T) {
	want := []store.Value{store.BulkValue("c1 1"), store.BulkValue("d1 2"), store.BulkValue("c1 3"), {}, {}}
	t.Equal(t.Eval(scripts.Steps, t.Keys("steps", 1)), want, "a script that sets 1, 2 and 3, deletes, and keeps what is missing read %v, want %v")
	t.Holds(store.BulkValue("c1 5"), t.Keys("steps", 1), "and then set 5")
	key := t.Keys("wide", 1)
	held := store.Value{}
	const top = 1<<53 - 1
	for _, list := range [][]int64{{1}, {0, 0}, {top, top - 1, top - 2, top - 3, top - 4, top - 5, top - 6, top - 7, top - 8}, {5, 6, 7}, {}, {0, 0, 0, 0, 0, 0, 0, 0, 0}, {0}} {
		args, text := []store.Arg{}, "c1"
		for _, n := range list {
			args, text = append(args, store.IntArg(n)), text+" "+strconv.FormatInt(n, 10)
		}
		t.Equal(t.Eval(scripts.Wide, key, args...)[0], held, "a script read %v, want %v")
		held = store.BulkValue(text)
		t.Holds(held, key, "a script set %v", list)
	}
	t.Eval(scripts.Keep, key, store.IntArg(8))
	t.Holds(store.BulkValue("p1 8"), key, "a value that was replaced and keeps its TTL")
	t.Change(t.Keys("set", 1)[0], scripts.SetChange{Add: scripts.Member})
	t.Put(t.Keys("set", 1)[0], 9)
	if v, n := t.MGet(t.Keys("set", 1)[0])[0], t.Look(t.Keys("set", 1)...)[0].Int(); v.Str() != "p1 9" || n != 9 {
		t.Errorf("a number in place of a set: got %v, and by a script %d, want p1 9", v, n)
	}
	missing := t.Keys("missing", 1)
	t.Eval(scripts.Keep, missing, store.IntArg(8))
	t.Holds(store.Value{}, missing, "a missing key that was to keep its TTL")
}

// checkForeign reads keys that have another type or another tag.
func checkForeign(t *suite.T) {
	for m, method := range scripts.Methods {
		keys := t.Keys(method, 4) // written first; a number; a set; a number of another tag
		t.Put(keys[1], 5)
		t.Change(keys[2], scripts.SetChange{Add: scripts.Member})
		t.Eval(scripts.Wide, keys[3:], store.IntArg(5))
		before := t.MGet(keys...)
		for i, key := range keys {
			right := i == 0 || i == 1 && m == 0 || i == 2 && m > 0
			from := key
			if i == 0 {
				from = t.Key(method, "missing")
			}
			reply := []store.Value{store.IntegerValue(7)}
			got, err := t.Store.Eval(t.Ctx, scripts.Read, []string{keys[0], from}, []store.Arg{store.IntArg(int64(m))}, reply)
			switch {
			case right && err != nil:
				t.Errorf("%s of key %d: %v", method, i, err)
			case right:
				t.Delete(t.Store, keys[:1]...)
			case !errors.Is(err, store.ErrForeign) || errors.Is(err, store.ErrScript) || errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), `"`+key+`"`):
				t.Errorf("%s of key %d: got error %v, want an ErrForeign that names %q", method, i, err, key)
			case !slices.Equal(got, reply):
				t.Errorf("%s of key %d: got reply %v, want %v", method, i, got, reply)
			}
		}
		t.Equal(t.MGet(keys...), before, "%s: the keys hold %v, want %v", method)
	}
}

// checkAtomic checks that a history of concurrent fetch-and-adds is linearizable: every
// value is returned once, both keys agree, and a call that began after another had ended
// gets a greater value, and a later time.
func checkAtomic(t *suite.T) { linearizable(t, t.Store) }

func checkPeer(t *suite.T) {
	linearizable(t, t.Store, t.Peer())
}

// linearizable counts with concurrent calls to all of stores. All callers have two keys in common,
// and each has a key of its own, which can be locked before them or after them. Two other
// keys are deleted when they would reach four.
func linearizable(t *suite.T, stores ...store.Store) {
	const workers, each = 8, 40
	type op struct {
		n, now     int64 // a call that only reads gets the n of the next call; its now is 0
		begin, end time.Time
	}
	ops, turns := make([][]op, workers), make([][]op, workers) // turns are on the keys that are deleted
	var wg sync.WaitGroup
	for w := range workers {
		call := func(s *store.Script, keys []string, args ...store.Arg) op {
			if w%4 > 1 { // half of the callers name the keys in the other order
				slices.Reverse(keys)
			}
			o, st, c := op{begin: time.Now()}, stores[w%len(stores)], []store.Eval{{Script: s, Keys: keys, Args: args}}
			if b, ok := st.(store.Batcher); ok && w%4%3 == 0 {
				b.EvalBatch(t.Ctx, c)
			} else {
				c[0].Reply, c[0].Err = st.Eval(t.Ctx, s, keys, args, nil)
			}
			reply := c[0].Reply
			if o.end = time.Now(); c[0].Err != nil || len(reply) != len(keys)+1 {
				t.Fatalf("Eval: %v, %v", reply, c[0].Err)
			}
			if w%4 > 1 {
				slices.Reverse(reply[:len(keys)])
			}
			if o.n, o.now = max(reply[0].Int(), 0), reply[len(keys)].Int(); reply[0] != reply[1] {
				t.Errorf("a script is not atomic: it read %d and %d from keys that always change together", reply[0].Int(), reply[1].Int())
			}
			return o
		}
		t.Goes(&wg, func() {
			for i := range each {
				ops[w] = append(ops[w], call(scripts.CounterThree, append(t.Keys("a", 2), t.Key("a", "own"+strconv.Itoa(w)))))
				if i%4 == 0 {
					o := call(scripts.Look, t.Keys("a", 2), store.IntArg(2))
					o.now = 0 // has no order
					ops[w] = append(ops[w], o)
					if v := t.MGet(t.Keys("a", 2)...); v[0] != v[1] {
						t.Errorf("MGet is not atomic: it read %v and %v from keys of one slot that always change together", v[0], v[1])
					}
				}
				turns[w] = append(turns[w], call(scripts.Counter, t.Keys("turn", 2), store.IntArg(4)))
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	all := slices.Concat(ops...)
	slices.SortFunc(all, func(a, b op) int {
		return cmp.Or(cmp.Compare(a.n, b.n), cmp.Compare(a.now, b.now), a.begin.Compare(b.begin))
	})
	latest := time.Time{}        // the latest begin of all ops with smaller values
	n, now := int64(0), int64(0) // of the calls before
	for _, o := range all {
		switch {
		case o.n < n:
			t.Fatalf("a script is not atomic: two calls returned value %d, so the step of one was lost", o.n)
		case o.n > n:
			t.Fatalf("value %d was returned in place of %d: a step ran twice", o.n, n)
		case o.now > 0 && o.now < now:
			t.Errorf("value %d was returned at %d µs, and the next value at %d: the clock was read before the keys were locked", n-1, now, o.now)
		}
		if o.now > 0 {
			n, now = n+1, o.now
		}
		if o.end.Before(latest) {
			t.Errorf("value %d was returned by a call that ended before the call that got a smaller value began", o.n)
		}
		if o.begin.After(latest) {
			latest = o.begin
		}
	}
	all = slices.Concat(turns...)
	slices.SortFunc(all, func(a, b op) int { return cmp.Compare(a.now, b.now) })
	for i, o := range all {
		next := i + slices.IndexFunc(all[i:], func(p op) bool { return p.n == int64(i%4) }) // of several at that time
		if next < i || all[next].now != o.now {
			t.Fatalf("a script is not atomic: call %d read %d from keys that are deleted when they would reach 4, want %d", i, o.n, i%4)
		}
		all[i], all[next] = all[next], all[i]
	}
}

func checkOwnReply(t *suite.T) {
	var wg sync.WaitGroup
	for w := range 8 {
		t.Goes(&wg, func() {
			for i := range 50 {
				want := strconv.Itoa(w) + "/" + strconv.Itoa(i)
				if reply := t.Eval(scripts.Echo, t.Keys(strconv.Itoa(w), 1), store.StringArg(want)); len(reply) != 1 || reply[0].Str() != want {
					t.Fatalf("got %v, want %q", reply, want)
				}
			}
		})
	}
	wg.Wait()
}

func checkScriptError(t *suite.T) {
	keys, before := t.Keys("a", 1), []store.Value{store.IntegerValue(5)}
	for fails, want := range map[error]error{errors.New("broken on purpose"): store.ErrScript, store.ErrUnavailable: store.ErrUnavailable} {
		runs := 0
		got, err := t.Store.Eval(t.Ctx, scripts.Broken.WithForm(func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
			runs++
			reply, _ = scripts.Broken.GoForm()(tx, args, reply)
			return reply, fails
		}), keys, nil, before)
		if runs == 0 { // the store runs the Lua
			want = store.ErrScript
		}
		if !errors.Is(err, want) || errors.Is(err, store.ErrScript) && errors.Is(err, store.ErrUnavailable) || runs > 1 && want == store.ErrUnavailable {
			t.Errorf("%d runs of a form that failed: got error %v, want %v alone, and ErrUnavailable after one run", runs, err, want)
		}
		if v := t.MGet(keys[0])[0]; !slices.Equal(got, before) || v.Kind() != store.Nil {
			t.Errorf("got reply %v, want %v, and the key holds %v", got, before, v)
		}
	}
}

func checkGoForm(t *suite.T) {
	reply, err := t.Store.Eval(t.Ctx, scripts.LuaOnly, t.Keys("a", 1), nil, nil)
	if !errors.Is(err, store.ErrNoGoForm) && (err != nil || len(reply) != 1 || reply[0].Int() != 1) {
		t.Errorf("got %v, %v, want [1] from a store that runs Lua, and ErrNoGoForm from another", reply, err)
	}
}

func checkCrossSlot(t *suite.T) {
	keys := []string{t.Key("a", "x"), t.Key("b", "x")}
	before := []store.Value{store.IntegerValue(5)}
	got, err := t.Store.Eval(t.Ctx, scripts.Put, keys, []store.Arg{scripts.LongMillis, store.IntArg(1), store.IntArg(2)}, before)
	if !errors.Is(err, store.ErrCrossSlot) {
		t.Errorf("got error %v, want ErrCrossSlot", err)
	}
	if held := t.MGet(keys...); !slices.Equal(got, before) || !slices.Equal(held, make([]store.Value, 2)) {
		t.Errorf("got reply %v, want %v, and the keys hold %v", got, before, held)
	}
	if _, err := t.Store.Eval(t.Ctx, scripts.Echo, nil, nil, nil); err == nil {
		t.Errorf("no error without keys")
	}
}

// BatchChecks are the checks of a store that sends batches.
var BatchChecks = []suite.Check{
	{Name: "Independent", Text: "each call of a batch gets its own reply, over any slots, and takes effect once; a failed call does not affect the others, and changes nothing", Run: checkBatchIndependent},
	{Name: "ScriptLoss", Text: "if the server has lost the scripts of a batch, every call runs once", Run: checkBatchScriptLoss, Alone: true},
	{Name: "Cancelled", Text: "if the context of a batch is done, nothing runs, and each call returns the context's own error", Run: checkBatchCancelled},
}

func batcher(t *suite.T) store.Batcher {
	b, ok := t.Store.(store.Batcher)
	if !ok {
		t.Skipf("store is no Batcher")
	}
	return b
}

func checkBatchIndependent(t *suite.T) { batches(t, batcher(t), func() {}) }

func checkBatchScriptLoss(t *suite.T) { batches(t, batcher(t), t.DropScripts) }

// batches counts with batches on pairs of keys, each batch after a call of before. Of the ten
// calls for a pair, three fail.
func batches(t *suite.T, b store.Batcher, before func()) {
	const pairs, turns, each = 10, 10, 7
	for round := range int64(3) {
		calls := make([]store.Eval, pairs*turns)
		for i := range calls {
			calls[i] = store.Eval{Script: scripts.Counter, Keys: t.Keys(strconv.Itoa(i%pairs), 2), Reply: []store.Value{store.BulkValue("before")}}
			switch i / pairs {
			case 3:
				calls[i].Script = scripts.Broken
			case 5:
				calls[i].Keys = append(t.Keys("x", 1), t.Keys("y", 1)...)
			case 7:
				calls[i].Keys = nil
			}
		}
		before()
		b.EvalBatch(t.Ctx, calls)
		var got [pairs][each]bool
		for i, c := range calls {
			want, n := map[int]error{3: store.ErrScript, 5: store.ErrCrossSlot}[i/pairs], int64(-1)
			if c.Err == nil && len(c.Reply) == 4 && c.Reply[1] == c.Reply[2] {
				n = c.Reply[1].Int() - round*each
			}
			switch {
			case len(c.Reply) == 0 || c.Reply[0].Str() != "before" || c.Err != nil && len(c.Reply) > 1:
				t.Errorf("call %d: got reply %v, want it appended, and unchanged if the call fails", i, c.Reply)
			case i/pairs == 7 && c.Err != nil || want != nil && errors.Is(c.Err, want):
			case n < 0 || n >= each || want != nil || i/pairs == 7 || got[i%pairs][n]:
				t.Errorf("batch %d, call %d for its keys: got %v, %v, want error %v, or each number from %d to %d once, twice", round, i/pairs, c.Reply, c.Err, want, round*each, round*each+each-1)
			default:
				got[i%pairs][n] = true
			}
		}
	}
	b.EvalBatch(t.Ctx, nil)
}

func checkBatchCancelled(t *suite.T) {
	b := batcher(t)
	ctx, cancel := context.WithCancel(t.Ctx)
	cancel()
	calls := []store.Eval{{Script: scripts.Counter, Keys: t.Keys("a", 2)}, {Script: scripts.Counter, Keys: t.Keys("b", 2)}}
	b.EvalBatch(ctx, calls)
	for i, c := range calls {
		if !errors.Is(c.Err, context.Canceled) || errors.Is(c.Err, store.ErrUnavailable) {
			t.Errorf("call %d: got error %v, want %v alone", i, c.Err, context.Canceled)
		}
		t.Holds(store.Value{}, c.Keys, "call %d must not run", i)
	}
}

// borrowed returns a string that shares memory with b.
func borrowed(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
