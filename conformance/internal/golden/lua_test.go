package golden

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-go/weir/internal/luatool"
)

// luas are the versions of Lua that servers have.
var luas = []string{"lua5.1", "lua5.4"}

// TestLua replays the golden vectors on a fake server in each version of Lua: the replies and
// what the keys hold must be those of the files.
func TestLua(t *testing.T) {
	t.Parallel()
	for _, lua := range luas {
		t.Run(lua, func(t *testing.T) {
			t.Parallel()
			path := luatool.Need(t, lua)
			steps := 0
			for _, f := range files(t) {
				steps += len(f.Steps)
				got, err := f.run(path, t.TempDir(), "exact")
				if diff := differ(got, f.lines()); err != nil || diff != "" {
					t.Errorf("%s: %v %s", f.Name, err, diff)
				}
			}
			if steps < 600 {
				t.Errorf("%d steps were replayed, want at least 600", steps)
			}
		})
	}
}

// TestLuaEdges compares what the scripts do in all versions of Lua if the keys hold other values
// than in the vectors, for example numbers around 2^53 and 2^63, and if the clock is the server's.
func TestLuaEdges(t *testing.T) {
	t.Parallel()
	for _, f := range files(t) {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			var outs [][]string
			for _, lua := range luas {
				out, err := f.run(luatool.Need(t, lua), t.TempDir(), "edges")
				if err != nil {
					t.Fatal(err)
				}
				outs = append(outs, out)
			}
			if diff := differ(outs[1], outs[0]); diff != "" {
				t.Errorf("%s differs from %s: %s", luas[1], luas[0], diff)
			}
		})
	}
}

// TestLuaUnportable makes the scripts unportable, in one way at a time: they pass in Lua 5.1, and fail
// in Lua 5.4.
func TestLuaUnportable(t *testing.T) {
	t.Parallel()
	for _, m := range []struct{ name, old, new, mode string }{
		{"unpack is a global", "(table.unpack or unpack)(", "unpack(", "exact"},
		{"%d of a number with a fraction", "life - life % 1 + slack", "life + slack", "exact"},
		{"a number as text", "string.format('%d;', n > 0 and n or 0)", "((n > 0 and n or 0) .. ';')", "exact"},
		{"an infinite score is a number", "score == 'inf' or score == '-inf'", "false", "edges"},
		{"a number from text is an integer", "+ 0.0", "+ 0", "edges"},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			changed, failed := false, ""
			for _, f := range files(t) {
				for sha, text := range f.Scripts {
					f.Scripts[sha] = strings.ReplaceAll(text, m.old, m.new)
					changed = changed || f.Scripts[sha] != text
				}
				var outs [][]string
				for _, lua := range luas {
					out, err := f.run(luatool.Need(t, lua), t.TempDir(), m.mode)
					if err != nil {
						t.Fatal(err)
					}
					outs = append(outs, out)
				}
				if m.mode == "exact" {
					if diff := differ(outs[0], f.lines()); diff != "" {
						t.Errorf("%s, %s: %s", luas[0], f.Name, diff)
					}
				}
				if diff := differ(outs[1], outs[0]); diff != "" {
					failed = f.Name
					break
				}
			}
			if !changed || failed == "" {
				t.Errorf("no history fails in %s; scripts were changed: %t", luas[1], changed)
			}
		})
	}
}

// run runs testdata/replay.lua over f, and returns the lines that it writes. temp is an empty
// directory.
func (f *File) run(lua, temp, mode string) ([]string, error) {
	file := filepath.Join(temp, f.Name+".lua")
	if err := os.WriteFile(file, []byte(f.source()), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(lua, "replay.lua", file, mode)
	cmd.Dir = "testdata"
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", lua, err, errs.String())
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n"), nil
}

// source returns the scripts and the calls of f as a Lua program that returns a table.
func (f *File) source() string {
	var b strings.Builder
	list := func(texts []string) {
		b.WriteString("{")
		for _, text := range texts {
			b.WriteString(literal(text) + ", ")
		}
		b.WriteString("}")
	}
	b.WriteString("return {\nscripts = {\n")
	for _, sha := range slices.Sorted(maps.Keys(f.Scripts)) {
		fmt.Fprintf(&b, "[%s] = %s,\n", literal(sha), literal(f.Scripts[sha]))
	}
	b.WriteString("},\nsteps = {\n")
	for _, s := range f.Steps {
		fmt.Fprintf(&b, "{ at = %d, calls = {", s.At)
		for _, c := range s.Calls {
			fmt.Fprintf(&b, "{ sha = %s, keys = ", literal(c.SHA))
			list(c.Keys)
			b.WriteString(", args = ")
			list(c.Args)
			b.WriteString(" },")
		}
		b.WriteString("} },\n")
	}
	b.WriteString("} }\n")
	return b.String()
}

// literal returns text as a string of Lua.
func literal(text string) string { return `"` + quote(text) + `"` }

// lines returns the lines that testdata/replay.lua has to write for f.
func (f *File) lines() []string {
	var lines []string
	for i, s := range f.Steps {
		lines = append(lines, fmt.Sprint("step ", i))
		for _, c := range s.Calls {
			line := "reply"
			for _, v := range c.Reply {
				switch v := v.(type) {
				case string:
					line += " s" + quote(v)
				case float64: // an integer in JSON
					line += fmt.Sprintf(" i%.0f", v)
				default:
					line += " n"
				}
			}
			lines = append(lines, line)
		}
		var contents []string
		for key, c := range s.Keys {
			line := fmt.Sprintf("key %s %d", quote(key), c.TTL)
			if c.List == nil && c.Set == nil {
				line += " s" + quote(c.Text)
			}
			for _, text := range c.List {
				line += " l" + quote(text)
			}
			for _, m := range c.Set {
				line += fmt.Sprintf(" z%s=%d", quote(m.Text), m.Score)
			}
			contents = append(contents, line)
		}
		slices.Sort(contents)
		lines = append(lines, contents...)
	}
	return lines
}

// quote does what quote in testdata/redis.lua does.
func quote(text string) string {
	return special.ReplaceAllStringFunc(text, func(c string) string {
		var b strings.Builder
		for _, c := range []byte(c) {
			fmt.Fprintf(&b, `\%03d`, c)
		}
		return b.String()
	})
}

var special = regexp.MustCompile(`[^0-9A-Za-z;:._{}-]`)

// differ returns the first line in which got differs from want, with the line of its step, or "".
func differ(got, want []string) string {
	step := ""
	for i := range min(len(got), len(want)) {
		if strings.HasPrefix(want[i], "step") {
			step = want[i]
		}
		if got[i] != want[i] {
			return fmt.Sprintf("%s\ngot  %s\nwant %s", step, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		return fmt.Sprintf("%d lines, want %d", len(got), len(want))
	}
	return ""
}
