package stores

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/store"
)

// ListChecks are the checks of a store that lists its keys.
var ListChecks = []suite.Check{
	{Name: "Prefix", Text: "List lists every key that begins with the prefix, whatever bytes the prefix has, and no other key", Run: checkListPrefix},
	{Name: "Meanwhile", Text: "a key that exists during a whole listing is listed, even if other keys are added and deleted between the calls", Run: checkListMeanwhile},
	{Name: "Misuse", Text: "if the cursor is not one of List, there is an error; if the context is done, it is the context's own; in both cases the keys are unchanged", Run: checkListMisuse},
}

// listing lists the keys that begin with prefix, and calls between after each call but
// the last.
func listing(t *suite.T, prefix string, between func()) []string {
	l, list := t.Lister(), []string{"before"}
	for cursor := ""; ; between() {
		var err error
		if list, cursor, err = l.List(t.Ctx, prefix, cursor, list); err != nil || list[0] != "before" {
			t.Fatalf("List of the prefix %q: got error %v and %d keys, want no error, and first the keys of the slice that it got", prefix, err, len(list))
		}
		if cursor == "" {
			break
		}
	}
	list = list[1:]
	slices.Sort(list)
	return slices.Compact(list) // a key can come twice
}

// checkListPrefix lists keys whose names have characters that mean something in a pattern
// of a glob, of LIKE and of a regular expression. Each of them is the prefix of some, and
// as a pattern it would match others.
func checkListPrefix(t *suite.T) {
	t.Lister() // or the check is skipped
	names := []string{
		"", "a", "A", "ab", "aXb", "a*b", "a*", "*", "?", "a?", "??", "[a]", "[^a]", "[", "]", `\`, `\*`, `\\`, `a\b`, `a\`, "%", "a%", "%25", "_", "a_b",
		"^a", "a$", ".", ".*", "(a)", "{", "}", "'", `"`, "\x00", "a\x00b", "\r\n", " ", "\xff", "a\xff", "\xff\xff", "\xfe", "é", "ключ", strings.Repeat("a", 300),
	}
	all, sets := map[string]bool{}, map[string]bool{}
	for i, name := range names {
		key := t.Key("tag", name)
		all[key], sets[key] = true, i%4 == 3
		if sets[key] {
			t.Change(key, scripts.SetChange{Add: scripts.Member})
			continue
		}
		t.Put(key, int64(i))
	}
	gone := t.Key("tag", "a*gone")
	t.Put(gone, 1)
	t.Delete(t.Store, gone)
	prefixes := append([]string{t.Prefix, t.Prefix + ":{t", t.Key("other", "")}, slices.Sorted(maps.Keys(all))...)
	held := t.List("")
	for _, prefix := range prefixes {
		want := begin(all, prefix)
		got := listing(t, prefix, func() {})
		if !slices.Equal(got, want) {
			t.Errorf("List of the prefix %q, of which %d keys begin with it: it lacks %s, and has %s besides", prefix, len(want), without(want, got, sets), without(got, want, sets))
		}
		if keys := begin(held, prefix); t.Lists() && !slices.Equal(keys, want) {
			t.Errorf("Backend.Keys, which is a function of the test and not of the store, was asked for the %d keys that begin with %q: it lacks %s, and has %s besides", len(want), prefix, without(want, keys, sets), without(keys, want, sets))
		}
	}
}

// without lists those of keys that are not in other, and says which of them hold sets.
func without(keys, other []string, sets map[string]bool) string {
	var list []string
	for _, key := range keys {
		if !slices.Contains(other, key) {
			list = append(list, shown(key)+map[bool]string{true: " (a sorted set)"}[sets[key]])
		}
	}
	if list == nil {
		return "none"
	}
	return strings.Join(list, ", ")
}

// begin returns the keys that begin with prefix, sorted.
func begin[V any](keys map[string]V, prefix string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(keys)), func(key string) bool { return !strings.HasPrefix(key, prefix) })
}

// checkListMeanwhile lists keys of many slots while their number rises and falls.
func checkListMeanwhile(t *suite.T) {
	t.Lister() // or the check is skipped
	const slots = 40
	each := max(t.Times(2400), 1200) / slots // more than a call lists
	var stay []string
	put := func(name string) []string {
		var keys []string
		for slot := range slots {
			var some []string
			for i := range each {
				some = append(some, t.Key(strconv.Itoa(slot), name+strconv.Itoa(i)))
			}
			keys = append(keys, some...)
			args := append([]store.Arg{scripts.LongMillis}, slices.Repeat([]store.Arg{store.IntArg(1)}, each)...)
			t.Eval(scripts.Put, some, args...)
		}
		return keys
	}
	remove := func(keys []string) {
		for some := range slices.Chunk(keys, each) {
			t.Delete(t.Store, some...)
		}
	}
	early := put("early")
	stay = put("stay")
	var late []string
	turn := 0
	got := listing(t, t.Prefix, func() {
		switch turn++; turn {
		case 1:
			remove(early)
		case 2:
			late = put("late")
		case 3:
			remove(late)
		}
	})
	missing := slices.DeleteFunc(slices.Clone(stay), func(key string) bool {
		_, found := slices.BinarySearch(got, key)
		return found
	})
	if len(missing) > 0 {
		t.Errorf("%d of %d keys that were there all the time are not listed, for example %q", len(missing), len(stay), missing[0])
	}
	if other := slices.DeleteFunc(got, func(key string) bool { return strings.HasPrefix(key, t.Prefix) }); len(other) > 0 {
		t.Errorf("keys with another prefix are listed, for example %q", other[0])
	}
}

func checkListMisuse(t *suite.T) {
	l, before := t.Lister(), []string{"before"}
	t.Put(t.Key("a", "x"), 1)
	for _, cursor := range []string{"x", "no cursor", "-1", "\x00", "127.0.0.1:1 x"} {
		if got, next, err := l.List(t.Ctx, t.Prefix, cursor, before); err == nil || next != "" || !slices.Equal(got, before) {
			t.Errorf("List with the cursor %q: got keys %q, cursor %q and error %v, want the unchanged keys %q, no cursor, and an error", cursor, got, next, err, before)
		}
	}
	ctx, cancel := context.WithCancel(t.Ctx)
	cancel()
	if got, next, err := l.List(ctx, t.Prefix, "", before); !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUnavailable) || next != "" || !slices.Equal(got, before) {
		t.Errorf("List whose context is done: got keys %q, cursor %q and error %v, want the unchanged keys %q, no cursor, and %v without ErrUnavailable", got, next, err, before, context.Canceled)
	}
}
