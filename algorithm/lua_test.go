package algorithm_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/weirtest"
)

// buckets returns a limit whose spans have these lengths, in buckets of one second. most
// is the longest.
func buckets(most int, others ...int) algorithm.SlidingBuckets {
	a := algorithm.SlidingBuckets{Width: time.Second}
	for _, n := range append(others, most) {
		a.Spans = append(a.Spans, algorithm.Span{Window: time.Duration(n) * time.Second, Limit: 5})
	}
	return a
}

// builtIn are limits of all kinds of this package.
func builtIn(t testing.TB) []*contract.Limit {
	t.Helper()
	var limits []*contract.Limit
	for _, a := range []algorithm.Algorithm{
		algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1},
		algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 1},
		algorithm.FixedWindow{Limit: 1, Window: time.Second},
		algorithm.Calendar{Limit: 1, Every: algorithm.Month, Zone: "Europe/Berlin"},
		algorithm.Calendar{Limit: 1, Every: algorithm.Day, Zone: "Europe/Berlin", Carry: 1},
		algorithm.SlidingCounter{Limit: 1, Window: time.Second},
		algorithm.TokenBucket{Capacity: 1, Refill: algorithm.PerSecond(1)},
		algorithm.LeakyBucket{Rate: algorithm.PerSecond(1)},
		algorithm.LeakyBucket{Rate: algorithm.PerSecond(3)},
		algorithm.SlidingLog{Limit: 1, Window: time.Second},
		algorithm.MetadataWindow{Limit: 1, Window: time.Second},
		algorithm.Concurrency{Limit: 1, Lease: time.Second},
		algorithm.Pause{},
		buckets(64, 1, 16),
		buckets(128, 1, 2, 3, 4, 5, 6, 7),
	} {
		limits = append(limits, mustLimit(t, a))
	}
	return limits
}

// manyPrograms returns programs of the built-in kinds: each kind alone, and sixteen rules of
// mixed kinds; with a Cost and without.
func manyPrograms(t testing.TB) map[string]*compose.Program {
	t.Helper()
	limits, programs := builtIn(t), map[string]*compose.Program{}
	add := func(name string, rules []compose.Rule) {
		p, err := compose.New(rules)
		if err != nil {
			t.Fatal(err)
		}
		programs[name] = p
	}
	var mixed []compose.Rule
	for i := range compose.MaxRules {
		mixed = append(mixed, compose.Rule{Limit: limits[i%len(limits)], Cost: int64(i % 2)})
	}
	add("mixed", mixed)
	for i, l := range limits {
		keys := 1
		if k, ok := l.Kind.(*contract.StepKind); ok {
			keys = max(k.Keys, 1)
		}
		name := fmt.Sprintf("%s %d of %d keys", l.Kind.Common().Name, i, keys)
		add(name, []compose.Rule{{Limit: l}})
		add(name+", own cost", []compose.Rule{{Limit: l, Cost: 1}})
	}
	return programs
}

// Luacheck finds nothing in the scripts that .ci/luacheckrc does not allow: no error of syntax, and
// no global but those of a server. It is slow, so it is skipped with -short.
func TestLuacheck(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes half a minute of processor time")
	}
	t.Parallel()
	luacheck, dir := weirtest.NeedProgram(t, "luacheck"), t.TempDir()
	const config = "../.ci/luacheckrc"
	if _, err := os.Stat(config); err != nil { // go test notes it, and so runs again if it changes
		t.Fatal(err)
	}
	for _, p := range manyPrograms(t) {
		for _, v := range p.Verbs() {
			s := p.Script(v)
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%.40s-%s.lua", s.Name(), s.SHA()[:8])), []byte(s.Lua()), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if out, err := exec.Command(luacheck, "--quiet", "--no-color", "--config", config, dir).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// Keys are literals. Every number is formatted before it is sent. A read-only script
// calls no command that writes.
func TestLuaText(t *testing.T) {
	t.Parallel()
	key, command := regexp.MustCompile(`KEYS(\W\w*\W?)`), regexp.MustCompile(`redis\.p?call\('(\w+)'`)
	reads := map[string]bool{"GET": true, "MGET": true, "EXISTS": true, "TIME": true, "LINDEX": true, "LRANGE": true, "ZRANGE": true, "ZCOUNT": true, "ZCARD": true, "ZSCORE": true}
	literal := regexp.MustCompile(`^\[[1-9]\d*\]$`)
	for name, p := range manyPrograms(t) {
		for _, v := range p.Verbs() {
			s := p.Script(v)
			for _, m := range key.FindAllStringSubmatch(s.Lua(), -1) {
				if !literal.MatchString(m[1]) {
					t.Errorf("%s: %s has KEYS%s", name, s.Name(), m[1])
				}
			}
			for _, m := range command.FindAllStringSubmatch(s.Lua(), -1) {
				if s.ReadOnly() && !reads[m[1]] {
					t.Errorf("%s: %s calls %s", name, s.Name(), m[1])
				}
			}
			for _, bad := range []string{"$", "@", "tostring", "%s", "replicate_commands"} {
				if regexp.MustCompile(regexp.QuoteMeta(bad) + `[a-z(]`).MatchString(s.Lua()) {
					t.Errorf("%s: %s has %s in\n%s", name, s.Name(), bad, s.Lua())
				}
			}
		}
	}
}
