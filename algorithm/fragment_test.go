package algorithm_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// fragment returns a fragment with that Lua, one argument and the state "count".
func fragment(lua string) *algorithm.Fragment {
	return &algorithm.Fragment{
		Name: "test", Lua: lua, Args: 1, State: []string{"count"},
		Check: func(store.Tx, int, int64, []store.Arg) (algorithm.State, bool, error) {
			return algorithm.State{}, true, nil
		},
		Commit: func(store.Tx, int, int64, []store.Arg, algorithm.State, time.Duration) {},
	}
}

const soundLua = `-- test: what stands here is for readers.
-- check
local count = redis.call('GET', KEYS[1]) or 0
local ok = count + 0 < ARGV[1] + 0
-- commit
redis.call('SET', KEYS[1], count + 1, 'PX', 1000 + slack)
`

func TestComposeRefuses(t *testing.T) {
	t.Parallel()
	sound := fragment(soundLua)
	many := make([]*algorithm.Fragment, algorithm.MaxRules+1)
	for i := range many {
		many[i] = sound
	}
	change := func(f func(*algorithm.Fragment)) []*algorithm.Fragment {
		c := *sound
		f(&c)
		return []*algorithm.Fragment{&c}
	}
	lua := func(old, new string) []*algorithm.Fragment {
		if !strings.Contains(soundLua, old) {
			t.Fatalf("the sound fragment does not hold %q", old)
		}
		return []*algorithm.Fragment{fragment(strings.Replace(soundLua, old, new, 1))}
	}
	lister := func(lua string) *algorithm.Fragment {
		f := fragment(lua)
		f.Entries = func(store.Tx, int, algorithm.State) ([]string, error) { return nil, nil }
		return f
	}
	listed := func(part string) []*algorithm.Fragment { return []*algorithm.Fragment{lister(soundLua + part)} }
	for _, tt := range []struct {
		name      string
		fragments []*algorithm.Fragment
		says      string // "": it composes
	}{
		{"sound", []*algorithm.Fragment{sound}, ""},
		{"16", many[:16], ""},
		{"none", nil, "0 rules"},
		{"17", many, "17 rules"},
		{"nil", []*algorithm.Fragment{sound, nil}, "fragment 2"},
		{"no name", change(func(f *algorithm.Fragment) { f.Name = "" }), "Name"},
		{"no check in Go", change(func(f *algorithm.Fragment) { f.Check = nil }), "Check"},
		{"no commit in Go", change(func(f *algorithm.Fragment) { f.Commit = nil }), "Commit"},
		{"too much state", change(func(f *algorithm.Fragment) { f.State = strings.Fields("a b c d e f g") }), "at most 6"},
		{"fewer arguments than none", change(func(f *algorithm.Fragment) { f.Args = -1 }), "arguments"},

		{"no Lua", []*algorithm.Fragment{fragment("")}, "-- check"},
		{"no check", lua("-- check\n", ""), "-- check"},
		{"no commit", lua("-- commit\n", ""), "-- commit"},
		{"two checks", lua("-- commit\n", "-- check\n"), "-- check"},
		{"two commits", lua("-- commit\n", "-- commit\n-- commit\n"), "-- commit"},
		{"the wrong way round", []*algorithm.Fragment{fragment("-- commit\nlocal ok, count = 1, 2\n-- check\n")}, "-- check"},
		{"indented", lua("-- check\n", " -- check\n"), "-- check"},
		{"more on the line", lua("-- check\n", "-- check this\n"), "-- check"},

		{"entries in Lua alone", lua("-- commit\n", "-- commit\n-- entries\nlocal entries = {}\n"), "-- entries"},
		{"entries in Go alone", listed(""), "-- entries"},
		{"entries before the commit", []*algorithm.Fragment{lister("-- check\nlocal ok, count = 1, 2\n-- entries\nlocal entries = {}\n-- commit\n")}, "-- entries"},
		{"no list", listed("-- entries\nlocal list = {}\n"), "local entries"},
		{"a list of state", listed("-- entries\nlocal entries = {count}\n"), ""},
		{"a list of a second key", listed("-- entries\nlocal entries = redis.call('LRANGE', KEYS[2], 0, 1)\n"), "KEYS[2]"},

		{"no ok", lua("local ok =", "local fine ="), "local ok"},
		{"ok is global", lua("local ok =", "ok ="), "local ok"},
		{"ok in the commit", []*algorithm.Fragment{fragment("-- check\nlocal count = 1\n-- commit\nlocal ok = true\n")}, "local ok"},
		{"no state", lua("local count =", "local n ="), "local count"},
		{"state in the commit", []*algorithm.Fragment{fragment("-- check\nlocal ok = true\n-- commit\nlocal count = 1\n")}, "local count"},
		{"its own now", lua("local ok =", "local now = 1\nlocal ok ="), " is given"},
		{"its own slack", lua("local ok =", "local a, slack = 1, 2\nlocal ok ="), " is given"},

		{"a second key", lua("KEYS[1]", "KEYS[2]"), "KEYS[2]"},
		{"key 0", lua("KEYS[1]", "KEYS[0]"), "KEYS[0]"},
		{"a second argument", lua("ARGV[1]", "ARGV[2]"), "ARGV[2]"},
		{"argument 0", lua("ARGV[1]", "ARGV[0]"), "ARGV[0]"},
		{"an argument of a high number", lua("ARGV[1]", "ARGV[99999999999999999999]"), "ARGV"},
		{"a key of a variable number", lua("KEYS[1]", "KEYS[count]"), "KEYS"},
		{"a key behind a space", lua("KEYS[1]", "KEYS [1]"), "KEYS"},
		{"a key between spaces", lua("KEYS[1]", "KEYS[ 1 ]"), "KEYS"},
		{"all arguments", lua("ARGV[1]", "#ARGV"), "ARGV"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, err := algorithm.Compose(tt.fragments...)
			switch {
			case tt.says == "" && (err != nil || p == nil):
				t.Errorf("Compose = %v, %v, want a program", p, err)
			case tt.says != "" && (err == nil || p != nil):
				t.Errorf("Compose = %v, %v, want an error that says %q", p, err, tt.says)
			case tt.says != "" && !strings.Contains(err.Error(), tt.says):
				t.Errorf("Compose: %v, want %q in it", err, tt.says)
			}
		})
	}
}

// Composing renames the locals of a fragment and renumbers its key and its arguments,
// and leaves everything else as it is.
func TestComposeRenames(t *testing.T) {
	t.Parallel()
	const third = 3 // the fragment stands third, behind two of one argument each
	for _, tt := range []struct{ name, lua, want string }{
		{"a local", "count = count + 1", "count3 = count3 + 1"},
		{"a list of locals", "local a, b,c = 1, 2, 3; return a + b + c", "local a3, b3,c3 = 1, 2, 3; return a3 + b3 + c3"},
		{"key and argument", "redis.call('SET', KEYS[1], ARGV[1])", "redis.call('SET', KEYS[3], ARGV[4])"},
		{"given names", "return now + slack", "return now + slack"},
		{"names of which a local is a part", "local n = 1; next(nn, n, an)", "local n3 = 1; next(nn, n3, an)"},
		{"what is no local", "string.format('%d', tonumber(x))", "string.format('%d', tonumber(x))"},
		{"a field", "local err = v.err; return v.ok, v.count", "local err3 = v.err; return v.ok, v.count"},
		{"a method", "return v:count(ok)", "return v:count(ok3)"},
		{"behind a concatenation", "return 'a'..count..'b'", "return 'a'..count3..'b'"},
		{"behind a spaced concatenation", "return 'a' .. count", "return 'a' .. count3"},
		{"strings", `return 'ok count now KEYS[1] ARGV[1]' .. "ok KEYS[1]"`, `return 'ok count now KEYS[1] ARGV[1]' .. "ok KEYS[1]"`},
		{"a string with the other quote", `return 'a "' .. count .. '" b'`, `return 'a "' .. count3 .. '" b'`},
		{"a string with a comment mark", `return '-- ok' .. count`, `return '-- ok' .. count3`},
		{"a string with an escaped quote", `return 'it\'s ok' .. count`, `return 'it\'s ok' .. count3`},
		{"a string with an escaped backslash", `return '\\' .. count`, `return '\\' .. count3`},
		{"comments", "local z = 1 -- ok, count: 'KEYS[1]\nreturn z", "local z3 = 1 -- ok, count: 'KEYS[1]\nreturn z3"},
		{"a comment about a local", "-- the local string is not a name\nreturn string.len('')", "-- the local string is not a name\nreturn string.len('')"},
		{"a string about a local", "return tonumber('local tonumber')", "return tonumber('local tonumber')"},
		{"foreign", "return redis.error_reply('WEIRFOREIGN 1')", "return redis.error_reply('WEIRFOREIGN 3')"},
		{"foreign in a comment", "-- WEIRFOREIGN 1", "-- WEIRFOREIGN 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			first := fragment(soundLua)
			f := fragment("-- check\nlocal ok, count = true, 0\ndo\n" + tt.lua + "\nend\n-- commit\nif ok then\n" + tt.lua + "\nend\n")
			p := mustCompose(t, first, first, f)
			for _, want := range []string{
				"local ok3, count3 = true, 0\ndo\n" + tt.want + "\nend\n",
				"if ok3 then\n" + tt.want + "\nend\n",
			} {
				if !strings.Contains(p.Decide.Lua(), want) {
					t.Errorf("rule %d of\n%s\nwant in it\n%s", third, p.Decide.Lua(), want)
				}
			}
		})
	}
}

// Names of different rules never meet, whatever digits they end in.
func TestComposeNamesDiffer(t *testing.T) {
	t.Parallel()
	var fragments []*algorithm.Fragment
	for range algorithm.MaxRules {
		fragments = append(fragments, fragment(
			"-- check\nlocal ok, count, count1, x, x1, x_1, x1_1 = true, 0, 1, 2, 3, 4, 5\n-- commit\nredis.call('SET', KEYS[1], x1, 'PX', 1)\n"))
	}
	p, err := algorithm.Compose(fragments...)
	if err != nil {
		return // refusing such names is as good
	}
	seen := map[string]int{}
	declared := regexp.MustCompile(`(?m)^local (ok\S*, .*) = true`)
	for i, m := range declared.FindAllStringSubmatch(p.Decide.Lua(), -1) {
		for _, name := range strings.Split(m[1], ", ") {
			if other, ok := seen[name]; ok {
				t.Errorf("rules %d and %d both have a local %s", other+1, i+1, name)
			}
			seen[name] = i
		}
	}
	if len(seen) == 0 {
		t.Error("found no locals to compare")
	}
}

// A local is renamed however its declaration is laid out.
func TestComposeFindsLocals(t *testing.T) {
	t.Parallel()
	for _, declaration := range []string{
		"local v = 1", "local  v = 1", "local\tv = 1", "local u, v = 1, 2", "local u , v = 1, 2", "local u,v = 1, 2", "local u,\n  v = 1, 2",
	} {
		t.Run(fmt.Sprintf("%q", declaration), func(t *testing.T) {
			t.Parallel()
			p, err := algorithm.Compose(fragment("-- check\n" + declaration + "\nlocal ok, count = true, v\n-- commit\nredis.call('SET', KEYS[1], v, 'PX', 1)\n"))
			if err != nil {
				return // refusing it is as good
			}
			if want := "redis.call('SET', KEYS[1], v1, 'PX', 1)"; !strings.Contains(p.Decide.Lua(), want) {
				t.Errorf("got\n%s\nwant in it %s", p.Decide.Lua(), want)
			}
		})
	}
	t.Run("local function", func(t *testing.T) {
		t.Parallel()
		p, err := algorithm.Compose(fragment("-- check\nlocal function f(a) return a end\nlocal ok, count = true, f(1)\n-- commit\n"))
		if err == nil && !strings.Contains(p.Decide.Lua(), "local function f") {
			t.Errorf("got\n%s\nwant it to be Lua still", p.Decide.Lua())
		}
	})
}
