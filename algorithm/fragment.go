package algorithm

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/store"
)

// A Fragment is an algorithm's atomic step, in Lua and in Go, in a form that
// can be composed with others. The two forms must mean the same, which package
// conformance proves: by Run for the built-in algorithms, by RunAlgorithm for others.
type Fragment struct {
	// Name is a short word of lower-case letters and digits. It names the
	// script, and the rule of a limiter that has one rule alone.
	Name string

	// Lua is the source in sections, each behind a line that names it: "--
	// check", "-- commit", and then, for those functions of the fragment that
	// there are, "-- entries", "-- upto" and "-- take", "-- charge", "-- refund".
	// What stands before the first is a comment for readers.
	//
	// It uses the fragment's keys as KEYS[1] to KEYS[Keys] and its arguments as
	// ARGV[1] to ARGV[Args], as literals, and can read two locals: now, in
	// microseconds, and, where it writes, slack, the milliseconds by which to
	// lengthen every TTL. Its own names are all local, and end in no digit.
	// Composing renumbers and renames them. It uses no long strings or
	// comments, [[ ]].
	//
	// The check reads, and sets the local ok and the locals of State, integers
	// from 0 to 2^53; it writes nothing. If key n holds someone else's value,
	// it ends with return redis.error_reply('WEIRFOREIGN n'), n a literal too.
	// The commit writes, in commands that cannot fail for type or arity, and
	// gives each key a TTL. The others are described at their functions.
	Lua string

	// Keys is the number of keys, at most MaxKeys; 0 means 1. All share a
	// cluster slot.
	Keys int

	// Args is the number of arguments, which [Limit].AppendArgs appends.
	Args int

	// State names the locals that the check reports, at most MaxState.
	State []string

	// Sets says that the key holds a sorted set, or a list in a server, which
	// MGet cannot read.
	Sets bool

	// Check is the check in Go. Its first key is key number key of tx, and the
	// others follow. It reports the state and whether the request passes.
	Check func(tx store.Tx, key int, now int64, args []store.Arg) (State, bool, error)

	// Commit is the commit in Go, given what Check returned.
	Commit func(tx store.Tx, key int, now int64, args []store.Arg, s State, slack time.Duration)

	// Entries, of a fragment whose limit is a [Lister], lists what the key keeps
	// of requests, given what Check returned, the oldest first. It is nil for
	// others. In Lua, it follows the check, sets the local entries, a table of
	// strings, and writes nothing.
	Entries func(tx store.Tx, key int, s State) ([]string, error)

	// Fit returns how many tokens would pass, given what Check returned for the
	// arguments of cost 1; fewer than 1 means none. Nil means that a part of what
	// is asked for cannot be taken. In Lua, it follows the check, and sets the
	// local fit.
	Fit func(now int64, args []store.Arg, s State) int64

	// Take, which comes with Fit, makes of the arguments for cost 1, in place,
	// those for n tokens. In Lua, it stands between the check, made with the
	// arguments for cost 1, and the commit, and changes the check's locals so that
	// the commit takes as many tokens as take says, a local that is given.
	Take func(args []store.Arg, n int64)

	// Charge returns what [Fragment].Refund needs to know of tokens that were
	// taken, given what Commit was given: where they were put, four integers from
	// 0 to 2^53-1; and for how many microseconds they can still be given back. Nil
	// means that this limit's tokens have no marker. In Lua, it follows the
	// commit, and sets the locals charge, a string of the four integers with single
	// spaces between, and life.
	Charge func(now int64, args []store.Arg, s State, note Note) (c Charge, life int64)

	// Refund gives back what is left of a charge, given what Check returned for
	// the arguments of cost 1, and reports whether that was anything. What has
	// come back by itself since, or belongs to a window that is over, is not
	// given again. It writes with a TTL of 0, as what a key holds then matters no
	// longer than before. Without Charge it goes by its arguments alone: what a
	// lease holds, say. Nil means that nothing can be given back. In Lua, it
	// follows the check; was is given, a table of the charge's four strings; it
	// writes in commands that cannot fail, SET with KEEPTTL, and sets gave, which
	// is given, to 1 if anything was given back.
	Refund func(tx store.Tx, key int, now int64, args []store.Arg, s State, was Charge, note Note) (gave bool)

	// Notes says that a refund moves what was taken behind it, so that charges of
	// before are to be read otherwise. What that takes is a note: four integers
	// as of a charge, which Charge and Refund are given, and can replace, with the
	// microseconds for which it matters. In Lua, note is given, a table of four
	// strings, or false if there is none; to replace it, they set keep, a string as
	// charge is, and kept, the microseconds.
	Notes bool

	// Reserves says that the limit heeds [Request].MaxWait.
	Reserves bool

	// Leases says that the limit is on what goes on at once, and heeds
	// [Request].Lease: Refund, without Charge, ends the lease.
	Leases bool
}

// A Charge is where the tokens of a decision were put, in a fragment's own terms.
type Charge [4]int64

// A Note is what refunds have left, of a fragment with Notes. Its methods do nothing
// for others.
type Note struct {
	Charge
	Held bool // there is one

	keep *Charge
	life *int64
}

// Keep makes c the note, for as long as life microseconds.
func (n Note) Keep(c Charge, life int64) {
	if n.keep != nil {
		*n.keep, *n.life = c, life
	}
}

// MaxKeys is the most keys that a fragment can have.
const MaxKeys = 128

func (f *Fragment) keys() int { return max(f.Keys, 1) }

// tokens returns lua with everything that composing changes, and what could be
// taken for it, replaced: strings, comments, KEYS[n] and ARGV[n], and names,
// those of fields with their dot. (A regular expression took milliseconds for a
// fragment with many keys.)
func tokens(lua string, change func(string) string) string {
	var out strings.Builder
	for i := 0; i < len(lua); {
		end := i + 1
		switch c := lua[i]; {
		case strings.HasPrefix(lua[i:], "--"):
			for end < len(lua) && lua[end] != '\n' {
				end++
			}
		case strings.HasPrefix(lua[i:], ".."):
			out.WriteString("..")
			i += 2
			continue
		case c == '\'' || c == '"':
			for end < len(lua) && lua[end] != c && lua[end] != '\n' {
				if lua[end] == '\\' {
					end++
				}
				end++
			}
			end = min(end+1, len(lua))
		case nameByte(c) || (c == '.' || c == ':') && end < len(lua) && nameByte(lua[end]):
			for end < len(lua) && nameByte(lua[end]) {
				end++
			}
			if name := lua[i:end]; name == "KEYS" || name == "ARGV" {
				end += len(index(lua[end:]))
			}
		default:
			out.WriteByte(c)
			i = end
			continue
		}
		out.WriteString(change(lua[i:end]))
		i = end
	}
	return out.String()
}

func nameByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

// index is the [n] that lua begins with, if any.
func index(lua string) string {
	end := 1
	for end < len(lua) && '0' <= lua[end] && lua[end] <= '9' {
		end++
	}
	if end > 1 && lua[0] == '[' && end < len(lua) && lua[end] == ']' {
		return lua[:end+1]
	}
	return ""
}

var (
	foreign = regexp.MustCompile(`WEIRFOREIGN \d+`)
	word    = regexp.MustCompile(`^[a-z0-9]+$`)
)

// sectionNames are those of the sections of a fragment's Lua.
var sectionNames = []string{"check", "commit", "entries", "upto", "take", "charge", "refund"}

// sections returns the sections of lua, in the order in which they stand.
func sections(lua string) (names, texts []string) {
	start := 0 // of the text under way
	for at := 0; at < len(lua); {
		end := len(lua)
		if n := strings.IndexByte(lua[at:], '\n'); n >= 0 {
			end = at + n + 1
		}
		if name, ok := strings.CutPrefix(strings.TrimSuffix(lua[at:end], "\n"), "-- "); ok && slices.Contains(sectionNames, name) {
			if len(names) > 0 {
				texts = append(texts, lua[start:at])
			}
			names, start = append(names, name), end
		}
		at = end
	}
	if len(names) > 0 {
		texts = append(texts, lua[start:])
	}
	return names, texts
}

// A source is a fragment's Lua as a part of a script.
type source struct{ check, commit, entries, upto, take, charge, refund string }

// given are the locals that a script declares for its fragments.
var given = []string{"now", "slack", "take", "was", "gave", "note", "keep", "kept"}

// source returns the Lua as that of rule number n of a script, its keys and
// arguments behind the first keys and args others, and its locals' names with n
// appended.
func (f *Fragment) source(n, keys, args int) (src source, err error) {
	type part struct {
		name string
		text *string
		sets []string
	}
	parts := []part{{"check", &src.check, append([]string{"ok"}, f.State...)}, {"commit", &src.commit, nil}}
	if f.Entries != nil {
		parts = append(parts, part{"entries", &src.entries, []string{"entries"}})
	}
	if f.Fit != nil {
		parts = append(parts, part{"upto", &src.upto, []string{"fit"}}, part{"take", &src.take, nil})
	}
	if f.Charge != nil {
		parts = append(parts, part{"charge", &src.charge, []string{"charge", "life"}})
	}
	if f.Refund != nil {
		parts = append(parts, part{"refund", &src.refund, nil})
	}
	found, texts := sections(f.Lua)
	var want []string
	for _, p := range parts {
		want = append(want, p.name)
	}
	if !slices.Equal(found, want) {
		return src, f.errorf("Lua must have, for the functions that it has, one line each, in this order: \"-- %s\"; it has \"-- %s\"",
			strings.Join(want, "\", \"-- "), strings.Join(found, "\", \"-- "))
	}
	own := map[string]bool{}
	for i, p := range parts {
		*p.text = strings.TrimSpace(texts[i])
		declared(own, *p.text)
		for _, name := range p.sets {
			if !own[name] {
				return src, f.errorf("the %s must set a local %s", p.name, name)
			}
		}
	}
	for name := range own {
		switch last := name[len(name)-1]; {
		case slices.Contains(given, name):
			return src, f.errorf("%s is given: name its own locals otherwise", name)
		case '0' <= last && last <= '9':
			return src, f.errorf("the local %s ends in a digit, which the number of the rule follows", name)
		}
	}

	// moved is the number of one of most things, once before others stand before them.
	moved := func(literal string, before, most int, what, used string) string {
		i, bad := strconv.Atoi(literal)
		if bad != nil || i < 1 || i > most {
			err = f.errorf("it has %d %s, and uses %s", most, what, used)
		}
		return strconv.Itoa(before + i)
	}
	change := func(t string) string {
		switch {
		case t == "KEYS" || t == "ARGV":
			err = f.errorf("%s can be used only as %s[1], with a literal number", t, t)
		case strings.HasPrefix(t, "KEYS["):
			return "KEYS[" + moved(t[len("KEYS["):len(t)-1], keys, f.keys(), "keys", t) + "]"
		case strings.HasPrefix(t, "ARGV["):
			return "ARGV[" + moved(t[len("ARGV["):len(t)-1], args, f.Args, "arguments", t) + "]"
		case t[0] == '\'' || t[0] == '"':
			if !strings.Contains(t, "WEIRFOREIGN") {
				return t
			}
			return foreign.ReplaceAllStringFunc(t, func(t string) string {
				return "WEIRFOREIGN " + moved(t[len("WEIRFOREIGN "):], keys, f.keys(), "keys", t)
			})
		case t == "was" || t == "note": // a table of them, so as to be one local
			return t + "[" + strconv.Itoa(n) + "]"
		case own[t]:
			return t + strconv.Itoa(n)
		}
		return t
	}
	for _, p := range parts {
		*p.text = tokens(*p.text, change) + "\n"
	}
	return src, err
}

// declared adds to own the names that lua declares local.
func declared(own map[string]bool, lua string) {
	code := tokens(lua, func(t string) string {
		switch {
		case strings.HasPrefix(t, "--") || t[0] == '\'' || t[0] == '"':
			return ""
		case t == "local":
			return "\x00local" // where a declaration begins
		}
		return t
	})
	for part := range strings.SplitSeq(code, "\x00") {
		part, ok := strings.CutPrefix(part, "local")
		for ok {
			part = strings.TrimLeft(part, " \t\n")
			end := 0
			for end < len(part) && nameByte(part[end]) {
				end++
			}
			name := part[:end]
			if part = strings.TrimLeft(part[end:], " \t\n"); name == "function" {
				continue
			}
			if name != "" {
				own[name] = true
			}
			part, ok = strings.CutPrefix(part, ",")
		}
	}
}

func (f *Fragment) errorf(format string, args ...any) error {
	return fmt.Errorf("fragment %s: "+format, append([]any{f.Name}, args...)...)
}
