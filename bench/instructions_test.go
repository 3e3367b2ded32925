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

var record = flag.Bool("record", false, "write what TestInstructions measures to "+recorded)

// recorded has what a decision of each algorithm costs a server, in units of what one of
// redis_rate costs it in the same run. Its first line is the version of the server.
const recorded = "instructions.txt"

// TestInstructions fails if a decision of any algorithm costs a server more instructions
// than is recorded, by more than a twentieth.
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
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(got)) {
		lines = append(lines, fmt.Sprintf("%s %.3f\n", name, got[name]))
	}
	t.Logf("redis_rate: %.0f instructions\n%s", unit, strings.Join(lines, ""))
	full, err := server.Version(t.Context(), rdb)
	if err != nil {
		t.Fatal(err)
	}
	version := strings.TrimPrefix(full[:strings.LastIndex(full, ".")], "Redis ") // without the last number
	if *record {
		if err := os.WriteFile(recorded, []byte(version+"\n"+strings.Join(lines, "")), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	first, rest, _ := strings.Cut(string(text), "\n")
	if first != version {
		t.Skipf("the server is Redis %s: the instructions of Redis %s are recorded", version, first)
	}
	want := map[string]float64{}
	for line := range strings.Lines(rest) {
		var name, decision string
		var ratio float64
		if _, err := fmt.Sscan(line, &name, &decision, &ratio); err != nil {
			t.Fatalf("%s: %q: %v", recorded, line, err)
		}
		want[name+" "+decision] = ratio
	}
	if !slices.Equal(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))) {
		t.Errorf("%s has other algorithms: run this test with -record", recorded)
	}
	for name, ratio := range got {
		if ratio > 1.05*want[name] {
			t.Errorf("%s: %.3f of redis_rate's instructions, and %.3f is recorded: make it cheaper, or run this test with -record and say why", name, ratio, want[name])
		}
	}
}
