package page

import (
	"strings"
	"testing"
)

// former has one comparison more than sample, and no allocations. With 1,000 keys, the
// ratio is 1.5 in both rounds, so the intervals do not overlap.
const former = `go: go1.26.0
gomaxprocs: 2
goos: linux
goarch: amd64
cpu: Some CPU
BenchmarkMemory/impl=weir-bucket/keys=1-2 10 300.0 ns/op
BenchmarkMemory/impl=xtimerate-syncmap/keys=1-2 10 200.0 ns/op
BenchmarkMemory/impl=weir-bucket/keys=1000-2 10 300.0 ns/op
BenchmarkMemory/impl=xtimerate-syncmap/keys=1000-2 10 200.0 ns/op
BenchmarkMemory/impl=weir-bucket/keys=1000-2 10 450.0 ns/op
BenchmarkMemory/impl=xtimerate-syncmap/keys=1000-2 10 300.0 ns/op
server: Redis 7.0.15 as a process
BenchmarkRedis/impl=weir-bucket/callers=1-2 10 100000 ns/op 40.00 received-B/op 100.0 sent-B/op
BenchmarkRedis/impl=redis_rate/callers=1-2 10 200000 ns/op 60.00 received-B/op 140.3 sent-B/op
`

// TestAgain checks what the page says about an earlier run, with the comparisons of both.
func TestAgain(t *testing.T) {
	got := makeFiles(t, read(t, sample), read(t, former))[Page]
	for _, want := range []string{`An earlier run of 2 rounds had the same kind of machine, Go and servers.
Two runs can differ more than the rounds of one.
The intervals of both overlap in 2 of 3 comparisons, and the ratios differ by at most 67 %
(in memory, 1,000 keys: time, x/time/rate).
`, "| ratio | earlier run |\n", "| 2.50 (2–3) | 1.50 |\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q:\n%s", want, got)
		}
	}
}

// TestAgainWithout checks that the page has no section, and no link to it, if there is
// nothing to compare.
func TestAgainWithout(t *testing.T) {
	const other = "BenchmarkMemory/impl=weir-bucket/keys=1-2 10 300.0 ns/op\nBenchmarkMemory/impl=throttled/keys=1-2 10 300.0 ns/op\n"
	for name, earlier := range map[string]*Results{
		"no earlier run":             read(t, ""),
		"no comparison of both runs": read(t, "gomaxprocs: 2\n"+other),
	} {
		if text := makeFiles(t, read(t, sample), earlier)[Page]; strings.Contains(text, "earlier run") || strings.Contains(text, "earlier-run") {
			t.Errorf("%s: the page is\n%s", name, text)
		}
	}
}

// TestRanBefore checks what the page says about the machine of the earlier run.
func TestRanBefore(t *testing.T) {
	config := func(cpu, toolchain, servers string) *Results {
		return read(t, "gomaxprocs: 2\ngoos: linux\ngoarch: amd64\ncpu: "+cpu+"\ngo: "+toolchain+"\n"+servers+strings.Repeat("BenchmarkA-2 1 1 ns/op\n", 10))
	}
	const (
		redis    = "server: Redis 7.0.15 as a process\n"
		postgres = "postgres: PostgreSQL 18.6 as a process\n"
		same     = "An earlier run of 10 rounds had the same kind of machine, Go and servers."
		unlike   = "Unlike this run, an earlier run of 10 rounds had "
	)
	for _, tt := range []struct {
		earlier, now *Results
		want         string
	}{
		{config("A", "go1.26.0", ""), config("A", "go1.26.0", ""), same},
		{config("A", "go1.26.0", redis+postgres), config("A", "go1.26.0", redis+postgres), same},
		{config("A", "go1.26.0", redis+postgres), config("A", "go1.26.0", redis), unlike + "Redis 7.0.15 as a process,\nand PostgreSQL 18.6 as a process."},
		{config("A", "go1.26.0", ""), config("A", "go1.26.0", redis), unlike + "no server."},
		{config("B", "go1.25.0", redis), config("A", "go1.26.0", redis), unlike + "2 cores of B (linux/amd64), Go 1.25.0."},
		{config("A", "go1.26.0", redis+"load: 5.0\n"), config("A", "go1.26.0", redis), unlike + "a load average of 5.0."},
	} {
		if got := tt.earlier.ranBefore(tt.now); got != tt.want {
			t.Errorf("got\n%s\nwant\n%s", got, tt.want)
		}
	}
}
