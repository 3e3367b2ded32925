package algorithm_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/compose"
)

var pin = flag.Bool("pin", false, "write testdata/scripts.sha1 again")

// TestPinnedScripts fails if the SHA-1 of a script changes. Users notice such a change: a
// server caches scripts, a dashboard can count by SHA-1, and during a deployment two
// versions of a program share keys. So a change must be intended. CHANGELOG.md describes
// it under Unreleased, and says what happens to keys that the old script wrote. Then run
//
//	go test ./algorithm -run TestPinnedScripts -pin
func TestPinnedScripts(t *testing.T) {
	t.Parallel()
	const file = "testdata/scripts.sha1"
	gcra, third := algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1}, algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 1}
	window := algorithm.FixedWindow{Limit: 1, Window: time.Second}
	texts := map[string]string{}
	var got strings.Builder
	for _, tt := range []struct {
		name   string
		cost   int64
		limits []algorithm.Algorithm
	}{
		{"whole interval", 0, []algorithm.Algorithm{gcra}},
		{"interval of parts", 0, []algorithm.Algorithm{third}},
		{"window", 0, []algorithm.Algorithm{window}},
		{"calendar of UTC", 0, []algorithm.Algorithm{algorithm.Calendar{Limit: 1, Every: algorithm.Day}}},
		{"calendar of UTC with a carry", 0, []algorithm.Algorithm{algorithm.Calendar{Limit: 1, Every: algorithm.Day, Carry: 1}}},
		{"window with metadata", 0, []algorithm.Algorithm{algorithm.MetadataWindow{Limit: 1, Window: time.Second}}},
		{"counter", 0, []algorithm.Algorithm{algorithm.SlidingCounter{Limit: 1, Window: time.Second}}},
		{"bucket", 0, []algorithm.Algorithm{algorithm.TokenBucket{Capacity: 1, Refill: algorithm.PerSecond(1)}}},
		{"queue", 0, []algorithm.Algorithm{algorithm.LeakyBucket{Rate: algorithm.PerSecond(1)}}},
		{"queue of parts", 0, []algorithm.Algorithm{algorithm.LeakyBucket{Rate: algorithm.PerSecond(3)}}},
		{"log", 0, []algorithm.Algorithm{algorithm.SlidingLog{Limit: 1, Window: time.Second}}},
		{"leases", 0, []algorithm.Algorithm{algorithm.Concurrency{Limit: 1, Lease: time.Second}}},
		{"pauses", 0, []algorithm.Algorithm{algorithm.Pause{}}},
		{"a rule that can be paused", 0, []algorithm.Algorithm{gcra, algorithm.Pause{}}},
		{"spans of 1 and 3 buckets", 0, []algorithm.Algorithm{buckets(3, 1)}},
		{"two rules", 0, []algorithm.Algorithm{gcra, window}},
		{"two rules with costs", 1, []algorithm.Algorithm{gcra, window}},
		{"a lease with a bill", 1, []algorithm.Algorithm{gcra, window, algorithm.Concurrency{Limit: 1, Lease: time.Second}, algorithm.Pause{}}},
	} {
		var rules []compose.Rule
		for _, a := range tt.limits {
			rules = append(rules, compose.Rule{Limit: mustLimit(t, a), Cost: tt.cost, Life: tt.cost * time.Hour.Microseconds()})
		}
		p, err := compose.New(rules)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range p.Verbs() {
			s := p.Script(v)
			line := fmt.Sprintf("%s  %s: %s\n", s.SHA(), tt.name, s.Name())
			texts[line] = s.Lua()
			got.WriteString(line)
		}
	}
	if *pin {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	pinned, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for line := range strings.Lines(string(pinned)) {
		want[line] = true
	}
	for line, lua := range texts {
		if !want[line] {
			t.Errorf("not pinned: %sits text is\n%s", line, lua)
		}
		delete(want, line)
	}
	for line := range want {
		t.Errorf("pinned, and no script: %s", line)
	}
}
