package bench

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/bench/internal/server"
)

var record = flag.Bool("record", false, "write the measured ratios of instructions to instructions.txt and memoryinstructions.txt")

// TestInstructions fails if a decision of any algorithm costs a server more instructions
// than instructions.txt says, by more than a twentieth. The unit is an allowed decision of
// redis_rate in the same run.
func TestInstructions(t *testing.T) {
	if !counted {
		t.Skip("WEIR_BENCH_CALLGRIND is not 1: instructions are not counted")
	}
	rdb := connect(t)
	const n = 16 * depth
	count := func(s scene) float64 {
		s.prepare(t)
		m := startMeter(t, rdb)
		s.askAll(t, n, s.allowed, s.key)
		m.uncount(t)
		return float64(m.instructions) / n
	}
	rate := newRedisRate(rdb, time.Second/perSecond)
	path := []string{"full"}
	unit := count(scene{remote: rate, allowed: true, key: func(int) []string { return path }, prepare: func(t testing.TB) {
		if ok, err := rate.allow(context.Background(), path...); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}})
	rate.forget(t, path...)
	got := map[string]float64{}
	for _, c := range contestants {
		for _, allowed := range []bool{true, false} {
			got[c.name+" "+decision(allowed)] = count(c.scene(t, rdb, 100, allowed)) / unit
		}
	}
	full, err := server.Version(t.Context(), rdb)
	if err != nil {
		t.Fatal(err)
	}
	version := full[:strings.LastIndex(full, ".")] // without the last number
	t.Logf("redis_rate: %.0f instructions", unit)
	checkRatios(t, "instructions.txt", version, "redis_rate", got)
}

// checkRatios fails t if a ratio is more than a twentieth above the one in the file. With
// the flag -record, it writes the file instead. The first line of the file is the version of
// what was measured. If it is another version, checkRatios skips t. Each other line has a
// name of two words, and its ratio to the instructions of unit.
func checkRatios(t *testing.T, file, version, unit string, got map[string]float64) {
	t.Helper()
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(got)) {
		fmt.Fprintf(&lines, "%s %.3f\n", name, got[name])
	}
	t.Logf("%s:\n%s", version, &lines)
	if *record {
		if err := os.WriteFile(file, []byte(version+"\n"+lines.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	first, rest, _ := strings.Cut(string(text), "\n")
	if first != version {
		t.Skipf("this is %s: %s has the instructions of %s", version, file, first)
	}
	want := map[string]float64{}
	for line := range strings.Lines(rest) {
		var name, decision string
		var ratio float64
		if _, err := fmt.Sscan(line, &name, &decision, &ratio); err != nil {
			t.Fatalf("%s: %q: %v", file, line, err)
		}
		want[name+" "+decision] = ratio
	}
	if !slices.Equal(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))) {
		t.Errorf("%s has other names: run this test with -record", file)
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if ratio := got[name]; ratio > 1.05*want[name] {
			t.Errorf("%s: %.3f times the instructions of %s, and %.3f is recorded: make it cheaper, or run this test with -record and say why", name, ratio, unit, want[name])
		}
	}
}
