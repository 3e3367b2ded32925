package algorithm_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
)

// luaLocals is how many locals a Lua 5.1 function can have, less those of the inner
// blocks of one rule, which are indented and gone with it.
const luaLocals = 200 - 24

// buckets has a span of most buckets of a second, and others.
func buckets(most int, others ...int) algorithm.SlidingBuckets {
	a := algorithm.SlidingBuckets{Width: time.Second}
	for _, n := range append(others, most) {
		a.Spans = append(a.Spans, algorithm.Span{Window: time.Duration(n) * time.Second, Limit: 5})
	}
	return a
}

// fullPrograms are the built-in algorithms, each sixteen times over, and mixed.
func fullPrograms(t testing.TB) map[string]*algorithm.Program {
	t.Helper()
	builtIn := []*algorithm.Fragment{
		mustLimit(t, algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1}).Fragment(),
		mustLimit(t, algorithm.FixedWindow{Limit: 1, Window: time.Second}).Fragment(),
		mustLimit(t, algorithm.SlidingLog{Limit: 1, Window: time.Second}).Fragment(),
		mustLimit(t, buckets(64, 1, 16)).Fragment(),
		mustLimit(t, algorithm.TokenBucket{Capacity: 1, Refill: algorithm.PerSecond(1)}).Fragment(),
		mustLimit(t, algorithm.LeakyBucket{Rate: algorithm.PerSecond(3)}).Fragment(),
		mustLimit(t, buckets(128, 1, 2, 3, 4, 5, 6, 7)).Fragment(),
	}
	programs := map[string]*algorithm.Program{}
	var mixed []*algorithm.Fragment
	for i := range algorithm.MaxRules {
		mixed = append(mixed, builtIn[i%len(builtIn)])
	}
	programs["mixed"] = mustCompose(t, mixed...)
	for _, f := range builtIn {
		all := make([]*algorithm.Fragment, algorithm.MaxRules)
		for i := range all {
			all[i] = f
		}
		name := fmt.Sprintf("%s of %d", f.Name, max(f.Keys, 1))
		programs[name] = mustCompose(t, f)
		programs[fmt.Sprintf("%s, %d times", name, algorithm.MaxRules)] = mustCompose(t, all...)
	}
	return programs
}

// Sixteen rules of any kind fit into one Lua function.
func TestLuaLocals(t *testing.T) {
	t.Parallel()
	list := regexp.MustCompile(`^local (?:function )?([\w, ]+)`)
	begins, ends := regexp.MustCompile(`^(?:do|repeat|if .* then|for .* do|while .* do|local function .*)$`), regexp.MustCompile(`^(?:end|until)\b`)
	for name, p := range fullPrograms(t) {
		for _, s := range scriptsOf(t, p) {
			// What is indented is within a block of its fragment, with a few locals.
			n, most := 0, 0
			var outer []int // the number before each block
			for line := range strings.Lines(s.Lua()) {
				line = strings.TrimRight(line, "\n")
				if m := list.FindStringSubmatch(line); m != nil {
					n += strings.Count(m[1], ",") + 1
					most = max(most, n)
				}
				switch {
				case begins.MatchString(line):
					outer = append(outer, n)
				case ends.MatchString(line):
					n, outer = outer[len(outer)-1], outer[:len(outer)-1]
				}
			}
			if most < 1 || most > luaLocals || len(outer) > 0 {
				t.Errorf("%s: %s has %d locals at once, want at most %d", name, s.Name(), most, luaLocals)
			}
		}
	}
}

// The scripts are Lua 5.1, and read and set no global but what a server gives.
func TestLuaCompiles(t *testing.T) {
	t.Parallel()
	luac, err := exec.LookPath("luac5.1")
	if err != nil {
		t.Skip("no luac5.1 here: the Lua forms are not compiled")
	}
	given := map[string]bool{"redis": true, "KEYS": true, "ARGV": true, "string": true, "math": true, "tonumber": true, "unpack": true}
	global := regexp.MustCompile(`\b([GS]ETGLOBAL)\b.*; (\S+)`)
	for name, p := range fullPrograms(t) {
		for _, s := range scriptsOf(t, p) {
			t.Run(name+"/"+s.SHA()[:8], func(t *testing.T) {
				t.Parallel()
				file := filepath.Join(t.TempDir(), "script.lua")
				if err := os.WriteFile(file, []byte(s.Lua()), 0o600); err != nil {
					t.Fatal(err)
				}
				out, err := exec.Command(luac, "-p", "-l", file).CombinedOutput()
				if err != nil {
					t.Fatalf("%v: %s\n%s", err, out, s.Lua())
				}
				for _, m := range global.FindAllStringSubmatch(string(out), -1) {
					if m[1] == "SETGLOBAL" || !given[m[2]] {
						t.Errorf("%s %s", m[1], m[2])
					}
				}
			})
		}
	}
}
