package algorithm

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/store"
)

// A Fragment is an algorithm's atomic step, in Lua and in Go, in a form that can be
// composed with others. The two forms must mean the same; for the built-in algorithms package
// conformance proves it.
type Fragment struct {
	// Name is a short word of lower-case letters and digits. It names the script, and
	// the rule of a limiter that has one rule alone.
	Name string

	// Lua is the source of the check and the commit, each behind a line "-- check"
	// or "-- commit"; what stands before the first is a comment for readers.
	//
	// It uses the fragment's key as KEYS[1] and its arguments as ARGV[1] to
	// ARGV[Args], as literals, and can read two locals: now, in microseconds, and, in the
	// commit, slack, the milliseconds by which to lengthen every TTL. Its own
	// names are all local, and end in no digit. Composing renumbers and renames
	// them. It uses no long strings or comments, [[ ]].
	//
	// The check reads, and sets the local ok and the locals of State, integers
	// from 0 to 2^53; it writes nothing. A key that holds someone else's value ends it with
	// return redis.error_reply('WEIRFOREIGN 1'). The commit writes, in commands that
	// cannot fail for type or arity, and gives each key a TTL.
	Lua string

	// Args is the number of arguments, which [Limit].AppendArgs appends.
	Args int

	// State names the locals that the check reports, at most MaxState.
	State []string

	// Sets says that the key holds a sorted set, which MGet cannot read.
	Sets bool

	// Check is the check in Go. The key is key number key of tx. It reports the state
	// and whether the request passes.
	Check func(tx store.Tx, key int, now int64, args []store.Arg) (State, bool, error)

	// Commit is the commit in Go, given what Check returned.
	Commit func(tx store.Tx, key int, now int64, args []store.Arg, s State, slack time.Duration)
}

// token finds what composing changes, and what could be taken for it: strings,
// comments, and the names of fields behind a dot that is no concatenation.
var token = regexp.MustCompile(`--[^\n]*|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|\b(?:KEYS|ARGV)\[\d+\]|\.\.|[.:]?\b[A-Za-z_]\w*`)

var (
	section = regexp.MustCompile(`(?m)^-- (?:check|commit)$`)
	locals  = regexp.MustCompile(`\blocal\s+(?:function\s+)?([A-Za-z_]\w*(?:\s*,\s*[A-Za-z_]\w*)*)`)
	foreign = regexp.MustCompile(`WEIRFOREIGN \d+`)
	word    = regexp.MustCompile(`^[a-z0-9]+$`)
)

// source returns the check and the commit as rule number n of a script, its
// arguments behind the first args others, and its locals' names with n appended.
func (f *Fragment) source(n, args int) (check, commit string, err error) {
	at := section.FindAllStringIndex(f.Lua, -1)
	if len(at) != 2 || f.Lua[at[0][0]:at[0][1]] != "-- check" || f.Lua[at[1][0]:at[1][1]] != "-- commit" {
		return "", "", f.errorf("Lua must have one line \"-- check\" and, after it, one line \"-- commit\"")
	}
	check, commit = strings.TrimSpace(f.Lua[at[0][1]:at[1][0]]), strings.TrimSpace(f.Lua[at[1][1]:])
	own := map[string]bool{}
	declared(own, check)
	for _, name := range append([]string{"ok"}, f.State...) {
		if !own[name] {
			return "", "", f.errorf("the check must set a local %s", name)
		}
	}
	declared(own, commit)
	for name := range own {
		switch last := name[len(name)-1]; {
		case name == "now" || name == "slack":
			return "", "", f.errorf("now and slack are given: name its own locals otherwise")
		case '0' <= last && last <= '9':
			return "", "", f.errorf("the local %s ends in a digit, which the number of the rule follows", name)
		}
	}

	change := func(t string) string {
		switch {
		case t == "KEYS" || t == "ARGV":
			err = f.errorf("%s can be used only as %s[1], with a literal number", t, t)
		case strings.HasPrefix(t, "KEYS["):
			if t != "KEYS[1]" {
				err = f.errorf("it has one key, and uses %s", t)
			}
			return "KEYS[" + strconv.Itoa(n) + "]"
		case strings.HasPrefix(t, "ARGV["):
			i, bad := strconv.Atoi(t[len("ARGV[") : len(t)-1])
			if bad != nil || i < 1 || i > f.Args {
				err = f.errorf("it has %d arguments, and uses %s", f.Args, t)
			}
			return "ARGV[" + strconv.Itoa(args+i) + "]"
		case t[0] == '\'' || t[0] == '"':
			return foreign.ReplaceAllString(t, "WEIRFOREIGN "+strconv.Itoa(n))
		case own[t]:
			return t + strconv.Itoa(n)
		}
		return t
	}
	check = token.ReplaceAllStringFunc(check, change)
	commit = token.ReplaceAllStringFunc(commit, change)
	return check + "\n", commit + "\n", err
}

// declared adds to own the names that lua declares local.
func declared(own map[string]bool, lua string) {
	code := token.ReplaceAllStringFunc(lua, func(t string) string {
		if strings.HasPrefix(t, "--") || t[0] == '\'' || t[0] == '"' {
			return ""
		}
		return t
	})
	for _, m := range locals.FindAllStringSubmatch(code, -1) {
		for name := range strings.SplitSeq(m[1], ",") {
			own[strings.TrimSpace(name)] = true
		}
	}
}

func (f *Fragment) errorf(format string, args ...any) error {
	return fmt.Errorf("fragment %s: "+format, append([]any{f.Name}, args...)...)
}
