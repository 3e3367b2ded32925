package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCommitted checks that the page, the part of README.md and the committed results are what
// these results give.
func TestCommitted(t *testing.T) {
	root := filepath.Join("..", "..")
	files, err := write(root, filepath.Join("..", results), filepath.Join("..", large))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil || string(got) != want {
			t.Errorf("%s is not what the results give (%v): run `go run ./run page` in bench", name, err)
		}
		if strings.Contains(want, "%!") || strings.Contains(want, "NaN") || strings.Contains(want, "did not measure") {
			t.Errorf("%s has a defect of formatting, or lacks a benchmark", name)
		}
	}
}

// sample has two rounds of two limiters in memory, of which weir is slower, one round of two
// limiters on a server, and what the page does not show.
const sample = `go: go1.26.0
gomaxprocs: 2
goos: linux
goarch: amd64
cpu: Some CPU
BenchmarkMemory/impl=weir-bucket/keys=1000-2 10 200.0 ns/op 0 B/op 0 allocs/op
BenchmarkMemory/impl=xtimerate-syncmap/keys=1000-2 10 100.0 ns/op 0 B/op 0 allocs/op
BenchmarkMemory/impl=weir-bucket/keys=1000-2 10 900.0 ns/op 0 B/op 0 allocs/op
BenchmarkMemory/impl=xtimerate-syncmap/keys=1000-2 10 300.0 ns/op 0 B/op 0 allocs/op
server: Redis 7.0.15 as a process
BenchmarkRedis/impl=weir-bucket/callers=1-2 10 100000 ns/op 40.00 received-B/op 100.0 sent-B/op 9 allocs/op
BenchmarkRedis/impl=redis_rate/callers=1-2 10 200000 ns/op 60.00 received-B/op 140.0 sent-B/op 18 allocs/op
BenchmarkRules/impl=rules-16-2 10 80.00 server-cpu-µs/op
BenchmarkOther-2 10 3 ns/op
`

// TestWrite checks what the files say of the sample.
func TestWrite(t *testing.T) {
	const worst = "| in memory: time, 1,000 keys | 550 ns | x/time/rate, 200 ns | 2.50 (2–3) |\n"
	root := t.TempDir()
	put := func(name, text string) string {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	put("README.md", "Before\n"+begin+"old\n"+end+"After\n")
	now := put("now", sample)
	many := put("many", "gomaxprocs: 2\nload: 1.6\nBenchmarkLarge/impl=weir-gcra/keys=10000000-2 10 5 ns/op\n")
	files, err := write(root, now, many)
	if err != nil {
		t.Fatal(err)
	}
	for name, wants := range map[string][]string{ // in this order
		"README.md": {"Before\n" + begin, worst, "all 4 comparisons. Weir is worse than a peer in 1.\n", end + "After\n"},
		"docs/performance.md": {
			"from 2 rounds on 2 cores of Some CPU (linux/amd64), with go1.26.0", "ran Redis 7.0.15 as a process.\n", "less than 10 rounds", "load average of 1.6",
			"in 1 of 4 comparisons", worst, "| redis_rate, go-redis | 0.50 | – | 0.50 | – | 0.70 | – |\n", "a decision 5 ns", "| 16 | 80 |\n", "did not measure Algorithms, ",
		},
		"bench/results.txt": {"cpu: Some CPU\n", "Memory/impl=weir-bucket/keys=1000-2 10 900 ns/op", "server: Redis", "rules-16-2"},
		"bench/large.txt":   {"load: 1.6\n", "keys=10000000-2 10 5 ns/op\n"},
	} {
		rest := files[name]
		for _, want := range wants {
			_, after, ok := strings.Cut(rest, want)
			if !ok {
				t.Errorf("%s: no %q in\n%s", name, want, files[name])
			}
			rest = after
		}
		for _, lack := range []string{"old\n", "Other-2"} {
			if strings.Contains(files[name], lack) {
				t.Errorf("%s has %q", name, lack)
			}
		}
	}
	for what, broken := range map[string]string{"a syntax error": "BenchmarkX 1 many ns/op\n", "no file": ""} {
		path := filepath.Join(root, "nothing")
		if broken != "" {
			path = put("broken", broken)
		}
		if _, err := write(root, path, many); err == nil {
			t.Errorf("%s is no error", what)
		}
	}
	put("README.md", "no marks")
	if _, err := write(root, now, many); err == nil {
		t.Error("a README.md without marks is no error")
	}
}

func TestNumber(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0", 0.523: "0.52", 4: "4", 9.876: "9.88", 45.67: "45.7", 99.97: "100", 171.4: "171", 1234: "1,230", 12345: "12,300", 1_000_000: "1,000,000",
	} {
		if got := number(x); got != want {
			t.Errorf("%v: got %s, want %s", x, got, want)
		}
	}
}

// TestKeep checks that the results lack the lines that say what did not run, and are otherwise
// what the benchmarks print.
func TestKeep(t *testing.T) {
	var out strings.Builder
	skipped := map[string]bool{}
	if err := keep(&out, []byte("goos: linux\nskipped: BenchmarkB: no server\nBenchmarkA 1 2 ns/op\n"), skipped); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != "goos: linux\nBenchmarkA 1 2 ns/op\n" || !skipped["skipped: BenchmarkB: no server"] {
		t.Errorf("got %q, skipped %v", got, skipped)
	}
}
