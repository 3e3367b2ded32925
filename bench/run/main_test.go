package main

import (
	"os"
	"strings"
	"testing"

	"github.com/weir-go/weir/bench/internal/page"
)

// TestGather checks which results each command keeps, and with which it compares them: full
// with those that it replaces, the others with those of the earlier run.
func TestGather(t *testing.T) {
	t.Chdir(t.TempDir())
	const (
		weir  = "Memory/impl=weir-bucket/keys=1"
		peer  = "Memory/impl=xtimerate-syncmap/keys=1"
		large = "Large/impl=weir-gcra/keys=1000000"
		parts = "<!-- bench/run writes this part from bench/results.txt. -->\n<!-- end -->\n"
	)
	for path, text := range map[string]string{
		results: large + " ns/op 2\n" + weir + " ns/op 1\n" + peer + " ns/op 1\n",
		earlier: weir + " ns/op 3\n" + peer + " ns/op 1\n",
		latest:  "Benchmark" + weir + "-2 9 4 ns/op\nBenchmark" + peer + "-2 9 1 ns/op\nBenchmark" + large + "-2 9 5 ns/op\n",
	} {
		if err := os.WriteFile(path, []byte("gomaxprocs: 2\n"+text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	lines := func(ns, large string) string {
		return "gomaxprocs: 2\n" + large + weir + " ns/op " + ns + "\n" + peer + " ns/op 1\n"
	}
	const old, measured = large + " ns/op 2\n", large + " ns/op 5\n"
	for _, tt := range []struct{ command, now, earlier string }{
		{"page", lines("1", old), lines("3", "")},
		{"quick", lines("4", old), lines("3", "")},
		{"full", lines("4", old), lines("1", old)},
		{"large", lines("1", measured), lines("3", "")},
	} {
		now, before, err := gather(tt.command)
		if err != nil {
			t.Fatal(err)
		}
		files, err := page.Make(now, before, parts, parts)
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]string{page.Now: tt.now, page.Earlier: tt.earlier} {
			if got := files[path]; got != want {
				t.Errorf("%s: %s is\n%s\nwant\n%s", tt.command, path, got, want)
			}
		}
	}
	for _, path := range []string{results, earlier, latest} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	now, before, err := gather("page")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := page.Make(now, before, parts, parts); err == nil || !strings.Contains(err.Error(), "no results") {
		t.Errorf("a page without results: error %v", err)
	}
}
