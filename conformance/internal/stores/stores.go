// Package stores holds the checks of a store.
package stores

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

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
	lengths, args := []string{}, []store.Arg{scripts.LongMillis}
	for n := range int64(256) {
		lengths, args = append(lengths, t.Key("lengths", strings.Repeat("k", int(n)))), append(args, store.IntArg(n))
	}
	t.Eval(scripts.Put, lengths[128:], args[:129]...)
	t.Eval(scripts.Put, lengths, args...)
	for i, v := range t.MGet(lengths...) {
		t.Equal(v, store.BulkValue("p1 "+strconv.Itoa(i)), "one script set keys of many lengths, of which the longer half existed: the key of %d bytes holds %v, want %v", len(lengths[i]))
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
		keys := []string{t.Key("a", "x"), t.Key(tag, "x"), t.Key("a", "y")}
		before := []store.Value{store.IntegerValue(5)}
		got, err := t.Store.Eval(t.Ctx, scripts.Put, keys, []store.Arg{scripts.LongMillis, store.IntArg(1), store.IntArg(2), store.IntArg(3)}, before)
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
