// Package stores holds the checks of a store.
package stores

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	{Name: "Unreadable", Text: "a value that the store cannot read is a foreign value, and not a missing key: nothing overwrites it, and it can be deleted", Run: checkUnreadable},
	{Name: "Atomic", Text: "the calls of Eval on a key are linearizable, the times of calls have the same order, a read-only call reads its clock after its keys, and MGet reads the keys of a slot atomically", Run: checkAtomic},
	{Name: "Peer", Text: "the calls of several stores with the same state are linearizable, even if one runs between the steps of another", Run: checkPeer},
	{Name: "Processes", Text: "the calls of several processes on a key are linearizable, and the calls of a process that was killed hold no key", Run: checkProcesses},
	{Name: "ProcessWait", Text: "a call that waits for a key of another process ends when its context does", Run: checkProcessWait},
	{Name: "OwnReply", Text: "every caller gets the reply to its own call", Run: checkOwnReply},
	{Name: "ScriptError", Text: "if a script fails, the error is ErrScript, nothing is written, and the reply is unchanged", Run: checkScriptError},
	{Name: "Panic", Text: "if a form panics, the error is ErrScript, nothing is written, the reply is unchanged, and later calls are served", Run: checkPanic},
	{Name: "GoForm", Text: "a store that runs no Lua returns ErrNoGoForm for a script without Go form", Run: checkGoForm},
	{Name: "CrossSlot", Text: "if keys have different slots, the error is ErrCrossSlot; without keys there is an error too; in both cases nothing runs", Run: checkCrossSlot},
	{Name: "MGet", Text: "MGet returns one value per key, in order, over any slots; a key that is missing, or that holds no string, is Nil", Run: checkMGet},
	{Name: "Set", Text: "a sorted set is ordered by score and then by text; members of any text can be added, moved, counted, found, removed and trimmed; a set without members is missing", Run: checkSet},
	{Name: "Large", Text: "a sorted set holds 6,000 members and 1.2 MB of texts", Run: checkLarge},
	{Name: "Expiry", Text: "a key expires at the end of its last TTL, and not before, even if its value changes and it keeps its TTL", Run: checkExpiry},
	{Name: "Delete", Text: "a deleted key is missing, whatever it held", Run: checkDelete},
	{Name: "Cancelled", Text: "a call whose context is done returns the context's own error and the slice that it got, and runs nothing", Run: checkCancelled},
	{Name: "Interrupted", Text: "if the context of a call ends while its form runs, later calls are served", Run: checkInterrupted},
	{Name: "Durable", Text: "a store that is closed and opened again has its state and its TTLs", Run: checkDurable, Alone: true},
	{Name: "Time", Text: "Time returns the real time, in microseconds or finer, by the clock that scripts read", Run: checkTime},
	{Name: "Borrowed", Text: "if a store says that it borrows strings, it keeps no string after the call, and does not say so for another store", Run: checkBorrowed},
	{Name: "Closed", Text: "a store whose database, file or client was closed is unavailable", Run: checkClosed},
	{Name: "ScriptLoss", Text: "if the server has lost a script, the script is sent again, and runs once", Run: checkScriptLoss, Alone: true},
}

func checkReply(t *suite.T) {
	before := []store.Value{store.BulkValue("before")}
	got := suite.Must[[]store.Value](t, "Eval")(t.Store.Eval(t.Ctx, scripts.Kinds, t.Keys("a", 1), nil, before))
	t.Equal(got, slices.Concat(before, scripts.KindsReply), "a script whose reply has every kind of value:\ngot  %v\nwant %v")
}

func checkArgs(t *suite.T) {
	args := []store.Arg{
		store.StringArg(""), store.StringArg("a\x00b\r\n\xff{}%"), store.IntArg(0), store.IntArg(-7),
		store.IntArg(1<<53 - 1), store.ConstArg(42), store.StringArg(strings.Repeat("x", 10_000)),
	}
	got := t.Eval(scripts.Echo, t.Keys("a", 1), args...)
	if len(got) != len(args) {
		t.Fatalf("a script that returns its %d arguments returned %d values", len(args), len(got))
	}
	for i, a := range args {
		if got[i] != store.BulkValue(a.String()) {
			t.Errorf("argument %d arrived as %s, and was sent as %s", i, shown(got[i].Str()), shown(a.String()))
		}
	}
}

func checkKeys(t *suite.T) {
	long := strings.Repeat("k", 8300) // the key of a limiter can have about as many bytes
	var keys []string
	for _, name := range slices.Concat(alike, []string{
		"plain", "", "a b", "\x00", "\x00\x00", "\r\n", "\xff", "\xfe", "\xff\xfe", "\ufffd", "}{", "ключ",
		long + "1", long + "2", long + long + long + "1", long + long + long + "2", strings.Repeat(long, 9) + "1", strings.Repeat(long, 9) + "2",
	}) {
		keys = append(keys, t.Key("tag", name))
	}
	for _, tag := range []string{"Tag", "TAG", "tag ", "tag/", "t\u00e1g", "tag\x00"} {
		keys = append(keys, t.Key(tag, "a"))
	}
	for i, key := range keys {
		t.Put(key, int64(i))
	}
	for i, v := range t.MGet(keys...) {
		n, ok := store.ParseNums(v.Str())
		switch j := n.N[0]; {
		case !ok || j < 0 || j >= int64(len(keys)):
			t.Errorf("a script put p1 %d to the key %s, of %d bytes: MGet returns %v", i, shown(keys[i]), len(keys[i]), v)
		case j != int64(i):
			t.Errorf("the key %s, of %d bytes, has the value of the key %s, of %d bytes: they must be two keys", shown(keys[i]), len(keys[i]), shown(keys[j]), len(keys[j]))
		}
	}
	t.Eval(scripts.Put, []string{keys[1], keys[0]}, scripts.LongMillis, store.IntArg(11), store.IntArg(10))
	if got := t.MGet(keys[0], keys[1]); got[0].Str() != "p1 10" || got[1].Str() != "p1 11" {
		t.Errorf("one script set two keys to 10 and 11: they hold %v and %v, want p1 10 and p1 11", got[0], got[1])
	}
}

// alike are texts that must not be taken for each other: by an alphabet, by Unicode, as
// numbers or as paths, nor because something at their ends is removed.
var alike = []string{
	"a", "A", "a ", "a  ", " a", "a\t", "a\n", "a\x00", "a\x00\x00", "e", "E", "\u00e9", "\u00c9", "e\u0301", "ss", "SS", "\u00df", "\u1e9e", "fi", "\ufb01",
	"i", "I", "\u0130", "\u0131", "k", "\u212a", "1", "01", "1.0", "+1", "1e0", "b", "/a/b", "a/b", "./a/b", "a//b", "a/./b", "a/b/", "a/../b", "a%2Fb", `a\b`, "a%61", "aa",
}

// shown returns s in quotes, or its beginning and its end.
func shown(s string) string {
	if len(s) > 100 {
		return strconv.Quote(s[:60]) + "…" + strconv.Quote(s[len(s)-20:])
	}
	return strconv.Quote(s)
}

func checkNums(t *suite.T) {
	want := []store.Value{store.BulkValue("c1 1"), store.BulkValue("d1 2"), store.BulkValue("c1 3"), {}, {}}
	t.Equal(t.Eval(scripts.Steps, t.Keys("steps", 1)), want, "a script set its key to c1 1, to d1 2, to c1 3 with Keep, deleted it, and set it to c1 4 with Keep, which does nothing to a missing key; after each it read:\ngot  %v\nwant %v")
	t.Holds(store.BulkValue("c1 5"), t.Keys("steps", 1), "the script at last set its key to c1 5")
	key := t.Keys("wide", 1)
	held := store.Value{}
	const top = 1<<53 - 1
	for _, list := range [][]int64{{1}, {0, 0}, {top, top - 1, top - 2, top - 3, top - 4, top - 5, top - 6, top - 7, top - 8}, {5, 6, 7}, {}, {0, 0, 0, 0, 0, 0, 0, 0, 0}, {0}} {
		args, text := []store.Arg{}, "c1"
		for _, n := range list {
			args, text = append(args, store.IntArg(n)), text+" "+strconv.FormatInt(n, 10)
		}
		t.Equal(t.Eval(scripts.Wide, key, args...)[0], held, "a script read the numbers that another had written: got %v, want %v")
		held = store.BulkValue(text)
		t.Holds(held, key, "a script set the numbers %v", list)
	}
	t.Eval(scripts.Keep, key, store.IntArg(8))
	t.Holds(store.BulkValue("p1 8"), key, "a value that was replaced and keeps its TTL")
	t.Change(t.Keys("set", 1)[0], scripts.SetChange{Add: scripts.Member})
	t.Put(t.Keys("set", 1)[0], 9)
	if v, n := t.MGet(t.Keys("set", 1)[0])[0], t.Look(t.Keys("set", 1)...)[0].Int(); v.Str() != "p1 9" || n != 9 {
		t.Errorf("a script put the number 9 in place of a sorted set: MGet returns %v, want p1 9, and a script reads %d, want 9", v, n)
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
				t.Errorf("%s of a key that holds %s: got error %v, want none", method, foreignHeld[i], err)
			case right:
				t.Delete(t.Store, keys[:1]...)
			default:
				isForeign(t, got, err, reply, key, "%s of a key that holds %s", method, foreignHeld[i])
			}
		}
		t.Equal(t.MGet(keys...), before, "%s of foreign values, which must write nothing: the keys hold %v, and held %v before", method)
	}
}

// foreignHeld says what the keys of checkForeign hold.
var foreignHeld = []string{"nothing", "a number", "a sorted set", "a number of another tag"}

// isForeign checks that a call with the reply before returned an ErrForeign that names
// key, and before.
func isForeign(t *suite.T, got []store.Value, err error, before []store.Value, key, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if !errors.Is(err, store.ErrForeign) || errors.Is(err, store.ErrScript) || errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), `"`+key+`"`) {
		t.Errorf("%s: got error %v, want an ErrForeign that names %q, and is neither ErrScript nor ErrUnavailable", what, err, key)
	}
	if !slices.Equal(got, before) {
		t.Errorf("%s: got reply %v, want the unchanged %v", what, got, before)
	}
}

// unreadable are values that no store can have written. All are texts and rows of other
// programs.
var unreadable = []string{"x", "12", `{"`, "\xff\x00 of another program", strings.Repeat("\x80\x00z", 3000)}

// checkUnreadable plants values that the store cannot read. A store that runs Lua holds
// any text, which a script can write.
func checkUnreadable(t *suite.T) {
	for i, raw := range unreadable {
		keys := t.Keys(strconv.Itoa(i), 2) // one written first, one planted
		t.Plant(keys[1], raw)
		before := t.MGet(keys...)
		for m, method := range scripts.Methods {
			reply := []store.Value{store.IntegerValue(7)}
			got, err := t.Store.Eval(t.Ctx, scripts.Read, keys, []store.Arg{store.IntArg(int64(m))}, reply)
			isForeign(t, got, err, reply, keys[1], "%s of a key with the planted value %s", method, shown(raw))
		}
		t.Equal(t.MGet(keys...), before, "scripts read the planted value %s, and must write nothing: MGet returns %v, and before them %v", shown(raw))
		t.Delete(t.Store, keys[1])
		t.Equal(t.Look(keys[1])[0], store.IntegerValue(-1), "a script deleted a key with the planted value %s: another reads %v, want %v, which is a missing key", shown(raw))
	}
}

// checkAtomic checks that a history of concurrent fetch-and-adds is linearizable: every
// value is returned once, both keys agree, and a call that began after another had ended
// gets a greater value, and a later time.
func checkAtomic(t *suite.T) { linearizable(t, t.Store) }

// steps notes where the times of the calls on a key went back. Some clocks step back at
// times. Valkey 9.1's did so 6 times in 5 million scripts, by up to 61 µs on an idle
// machine. A store that reads its clock too early, or several clocks, does so often.
type steps struct {
	n     int
	at    int64
	first string // what was seen at the first of them
}

// back notes that the call that read n, or one that only read then, had an earlier time
// than the call before.
func (s *steps) back(n int64, format string, args ...any) {
	if s.n > 0 && s.at == n {
		return // another call in the same step
	}
	if s.n++; s.n == 1 {
		s.first = fmt.Sprintf(format, args...)
	}
	s.at = n
}

func (s *steps) check(t *suite.T) {
	const most = 2
	if s.n > most {
		t.Errorf("the time of calls on a key went back %d times, and a clock that steps back may do so %d times. The first time, %s", s.n, most, s.first)
	}
}

// linearizable counts with concurrent calls to all of stores. All callers have two keys in common,
// and each has a key of its own, which can be locked before them or after them. Two other
// keys are deleted when they would reach four, and a third counts the calls on them.
func linearizable(t *suite.T, stores ...store.Store) {
	const workers, each = 8, 40
	type op struct {
		n, now     int64 // a call that only reads gets the n of the next call; its now is 0, which has no order
		read       int64 // the clock of a call that only reads
		turn       int64 // the number of calls before, of a call on the keys that are deleted
		begin, end time.Time
	}
	ops, turns := make([][]op, workers), make([][]op, workers) // turns are on the keys that are deleted
	var wg sync.WaitGroup
	for w := range workers {
		call := func(s *store.Script, keys []string, args ...store.Arg) op {
			if w%4 > 1 { // half of the callers name the keys in the other order
				slices.Reverse(keys)
				slices.Reverse(args)
			}
			o, st, c := op{begin: time.Now()}, stores[w%len(stores)], []store.Eval{{Script: s, Keys: keys, Args: args}}
			if b, ok := st.(store.Batcher); ok && w%4%3 == 0 {
				b.EvalBatch(t.Ctx, c)
			} else {
				c[0].Reply, c[0].Err = st.Eval(t.Ctx, s, keys, args, nil)
			}
			reply := c[0].Reply
			if o.end = time.Now(); c[0].Err != nil || len(reply) != len(keys)+1 {
				t.Fatalf("Eval %s of %d keys, beside others: got reply %v and error %v, want %d integers and no error", s.Name(), len(keys), reply, c[0].Err, len(keys)+1)
			}
			if w%4 > 1 {
				slices.Reverse(reply[:len(keys)])
			}
			o.turn = reply[len(keys)-1].Int()
			if o.n, o.now = max(reply[0].Int(), 0), reply[len(keys)].Int(); reply[0] != reply[1] {
				t.Errorf("a script is not atomic: it read %d and %d from two keys that always change together", reply[0].Int(), reply[1].Int())
			}
			return o
		}
		t.Goes(&wg, func() {
			for i := range each {
				ops[w] = append(ops[w], call(scripts.CounterThree, append(t.Keys("a", 2), t.Key("a", "own"+strconv.Itoa(w)))))
				if i%4 == 0 {
					o := call(scripts.Look, t.Keys("a", 2), store.IntArg(2))
					o.now, o.read = 0, o.now
					ops[w] = append(ops[w], o)
					if v := t.MGet(t.Keys("a", 2)...); v[0] != v[1] {
						t.Errorf("MGet is not atomic: it read %v and %v from keys of one slot that always change together", v[0], v[1])
					}
				}
				turns[w] = append(turns[w], call(scripts.CounterThree, append(t.Keys("turn", 2), t.Key("turn", "calls")), store.IntArg(4), store.IntArg(4), store.IntArg(0)))
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
	var clock steps
	for _, o := range all {
		switch {
		case o.n < n:
			t.Fatalf("a script is not atomic: two calls that add 1 to the keys read the same value %d, so the step of one was lost", o.n)
		case o.n > n:
			t.Fatalf("no call that adds 1 to the keys read the value %d, and one read %d: a step ran twice", n, o.n)
		case o.now > 0 && o.now < now:
			clock.back(n, "the call that read the value %d had the time %d µs, and the next call, which read %d, had %d µs, which is %d µs earlier. Either the clock is read before the keys are locked, or not all calls use the same clock", n-1, now, o.n, o.now, now-o.now)
		case o.read > 0 && o.read < now:
			clock.back(n, "a read-only call read what was written at %d µs, and its own time was %d µs, which is %d µs earlier: want its clock to be read after its keys, or after the snapshot of them", now, o.read, now-o.read)
		}
		if o.now > 0 {
			n, now = n+1, o.now
		}
		if o.end.Before(latest) {
			t.Errorf("a call that read the value %d ended before a call began that read a smaller value: a call that begins later must read what earlier ones wrote", o.n)
		}
		if o.begin.After(latest) {
			latest = o.begin
		}
	}
	clock.check(t)
	all = slices.Concat(turns...)
	slices.SortFunc(all, func(a, b op) int { return cmp.Compare(a.turn, b.turn) })
	for i, o := range all {
		if o.turn != int64(i) || o.n != int64(i%4) {
			t.Fatalf("a script is not atomic: each call adds 1 to keys, or deletes them if they would reach 4, and adds 1 to another key; call %d read %d, and %d from the other key, want %d and %d", i, o.n, o.turn, i%4, i)
		}
	}
}

func checkOwnReply(t *suite.T) {
	var wg sync.WaitGroup
	for w := range 8 {
		t.Goes(&wg, func() {
			for i := range 50 {
				want := strconv.Itoa(w) + "/" + strconv.Itoa(i)
				if reply := t.Eval(scripts.Echo, t.Keys(strconv.Itoa(w), 1), store.StringArg(want)); len(reply) != 1 || reply[0].Str() != want {
					t.Fatalf("a script that returns its argument %q, beside others: got reply %v", want, reply)
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
			t.Errorf("a form wrote, and then failed with the error %q; it ran %d times (0: the store ran the Lua): got error %q, want one that is %q, and not both ErrScript and ErrUnavailable; after ErrUnavailable the form must not run again", fails, runs, fmt.Sprint(err), want)
		}
		if !slices.Equal(got, before) {
			t.Errorf("a script failed with %v: got reply %v, want the unchanged %v", fails, got, before)
		}
		t.Holds(store.Value{}, keys, "a script failed with %v after it had written, which must have no effect", fails)
	}
}

func checkGoForm(t *suite.T) {
	reply, err := t.Store.Eval(t.Ctx, scripts.LuaOnly, t.Keys("a", 1), nil, nil)
	if !errors.Is(err, store.ErrNoGoForm) && (err != nil || len(reply) != 1 || reply[0].Int() != 1) {
		t.Errorf("Eval of a script that has no Go form: got reply %v and error %v, want [1] from a store that runs Lua, and ErrNoGoForm from another", reply, err)
	}
}

func checkCrossSlot(t *suite.T) {
	for _, tag := range []string{"b", "A", "a ", "\u00e1"} {
		keys := []string{t.Key("a", "x"), t.Key(tag, "x")}
		before := []store.Value{store.IntegerValue(5)}
		got, err := t.Store.Eval(t.Ctx, scripts.Put, keys, []store.Arg{scripts.LongMillis, store.IntArg(1), store.IntArg(2)}, before)
		if !errors.Is(err, store.ErrCrossSlot) {
			t.Errorf("Eval with the hash tags %q and %q, which have different slots: got error %v, want ErrCrossSlot", "a", tag, err)
		}
		if !slices.Equal(got, before) {
			t.Errorf("Eval with the hash tags %q and %q returned the reply %v, want the unchanged %v", "a", tag, got, before)
		}
		t.Holds(store.Value{}, keys, "Eval with the hash tags %q and %q, which must write nothing", "a", tag)
	}
	if _, err := t.Store.Eval(t.Ctx, scripts.Echo, nil, nil, nil); err == nil {
		t.Errorf("Eval without keys returned no error")
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

func checkBatchIndependent(t *suite.T) {
	b := batcher(t)
	batches(t, b, func() {})
	calls := make([]store.Eval, 1100)
	for i := range calls {
		calls[i] = store.Eval{Script: scripts.Echo, Keys: t.Keys(strconv.Itoa(i%50), 1), Args: []store.Arg{store.IntArg(int64(i))}, Err: errStale}
	}
	b.EvalBatch(t.Ctx, calls)
	for i, c := range calls {
		if want := []store.Value{store.BulkValue(strconv.Itoa(i))}; c.Err != nil || !slices.Equal(c.Reply, want) {
			t.Errorf("call %d of a batch of %d: got reply %v and error %v, want %v and none", i, len(calls), c.Reply, c.Err, want)
		}
	}
	// The keys of two calls, one after the other, are the same text, divided at another place.
	k := t.Key("alike", "")
	alike := []store.Eval{
		{Script: scripts.Counter, Keys: []string{k + "a", k + "b" + k + "c"}},
		{Script: scripts.Counter, Keys: []string{k + "a" + k + "b", k + "c"}},
	}
	b.EvalBatch(t.Ctx, alike)
	for i, c := range alike {
		if c.Err != nil || len(c.Reply) != 3 || c.Reply[0].Int() != 0 {
			t.Errorf("call %d of a batch, which adds 1 to the missing keys %q: got reply %v and error %v, want that it read 0 from both", i, c.Keys, c.Reply, c.Err)
		}
		t.Holds(store.BulkValue(scripts.Nums(scripts.CounterTag, 1).String()), c.Keys, "call %d of a batch, which adds 1 to missing keys", i)
	}
}

// errStale is the Err of calls before EvalBatch, which must set it to nil.
var errStale = errors.New("the Err from before the batch, which EvalBatch must set")

func checkBatchScriptLoss(t *suite.T) { batches(t, batcher(t), t.DropScripts) }

// batches counts with batches on pairs of keys, each batch after a call of before. Of the ten
// calls for a pair, three fail.
func batches(t *suite.T, b store.Batcher, before func()) {
	const pairs, turns, each = 10, 10, 7
	for round := range int64(3) {
		calls := make([]store.Eval, pairs*turns)
		for i := range calls {
			calls[i] = store.Eval{Script: scripts.Counter, Keys: t.Keys(strconv.Itoa(i%pairs), 2), Reply: []store.Value{store.BulkValue("before")}, Err: errStale}
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
			case errors.Is(c.Err, errStale):
				t.Errorf("batch %d, call %d: its Err was set before, and EvalBatch left it: it must set the Err of every call, to nil if the call succeeds", round, i)
			case len(c.Reply) == 0 || c.Reply[0].Str() != "before" || c.Err != nil && len(c.Reply) > 1:
				t.Errorf("batch %d, call %d, whose Reply held [before]: got reply %v and error %v, want the reply appended to it, and [before] if the call fails", round, i, c.Reply, c.Err)
			case i/pairs == 7 && c.Err != nil || want != nil && errors.Is(c.Err, want):
			case want != nil:
				t.Errorf("batch %d, call %d, which must fail: got reply %v and error %v, want %v", round, i, c.Reply, c.Err, want)
			case i/pairs == 7:
				t.Errorf("batch %d, call %d, which has no keys: got reply %v and no error, want one", round, i, c.Reply)
			case c.Err != nil:
				t.Errorf("batch %d, call %d: got error %v, want none: calls that fail must not affect the others", round, i, c.Err)
			case n < 0 || n >= each || got[i%pairs][n]:
				t.Errorf("batch %d, call %d, which adds 1 to two keys: it read %v, want the same number from %d to %d for both keys, and each number in one call of the batch: a call was lost, ran twice, or saw another one's update", round, i, c.Reply[1:], round*each, round*each+each-1)
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
			t.Errorf("call %d of a batch whose context was done: got error %v, want %v without ErrUnavailable", i, c.Err, context.Canceled)
		}
		t.Holds(store.Value{}, c.Keys, "call %d of a batch whose context was done, which must not run", i)
	}
}

// borrowed returns a string that shares memory with b.
func borrowed(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
