package page

import (
	"strings"
	"testing"
)

// section returns the section about another run, or "".
func section(t *testing.T, r, earlier *Results) string {
	_, text, ok := strings.Cut(makeFiles(t, r, earlier)[Page], "## Compared with an earlier run\n\n")
	if !ok {
		return ""
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// former has one comparison more than sample, and no allocations. With 1,000 keys, the
// ratio is 1.5 in both rounds, so the intervals do not overlap.
const former = `go: go1.26.0
gomaxprocs: 2
goos: linux
goarch: amd64
cpu: Some CPU
BenchmarkMemory/impl=weir-gcra/keys=1-2 10 300.0 ns/op
BenchmarkMemory/impl=xtimerate-syncmap/keys=1-2 10 200.0 ns/op
BenchmarkMemory/impl=weir-gcra/keys=1000-2 10 300.0 ns/op
BenchmarkMemory/impl=xtimerate-syncmap/keys=1000-2 10 200.0 ns/op
BenchmarkMemory/impl=weir-gcra/keys=1000-2 10 450.0 ns/op
BenchmarkMemory/impl=xtimerate-syncmap/keys=1000-2 10 300.0 ns/op
server: Redis 7.0.15 as a process
BenchmarkRedis/impl=weir-gcra/callers=1-2 10 100000 ns/op 40.00 received-B/op 100.0 sent-B/op
BenchmarkRedis/impl=redis_rate/callers=1-2 10 200000 ns/op 60.00 received-B/op 140.3 sent-B/op
`

// TestAgain checks the section that compares two runs: it has the comparisons of both, in
// the order of this run.
func TestAgain(t *testing.T) {
	got := section(t, read(t, sample), read(t, former))
	const want = `An earlier run of 2 rounds was made on a machine of the same kind, with the same version of Go.
The server was the same.

The 95 % confidence intervals overlap in 1 of 2 comparisons of times, and in 1 of 1 comparisons
of bytes and allocations.
In the others, the earlier ratio is bold.
The medians differ by at most 67 %: 2.50 in this run and 1.50 in the earlier run
(in memory, 1,000 keys: time, x/time/rate).
Weir is worse than the peer in both runs in 1 comparisons, and in one run in 0 comparisons.

An interval says how much the rounds of one run vary, and wide intervals overlap more easily. Two
runs can differ more than the rounds of one: the machine can be another one, even if it is of the
same kind, and weir can change between the runs.

| One decision | peer | ratio in this run | ratio in the earlier run |
|---|---|---|---|
| in memory, 1,000 keys: time | x/time/rate | 2.50 (2–3) | **1.50** |
| over go-redis: bytes on the wire | redis_rate | 0.70 | 0.70 |
| over go-redis: time, one caller | redis_rate | 0.50 | 0.50 |
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestAgainSame checks that nothing is bold if all intervals overlap.
func TestAgainSame(t *testing.T) {
	r := read(t, sample)
	got := section(t, r, r)
	if !strings.Contains(got, "and in 2 of 2 comparisons\nof bytes and allocations.\nThe medians differ by at most 0 %: ") || strings.Contains(got, "bold") || strings.Contains(got, "**") {
		t.Errorf("got\n%s", got)
	}
}

// TestAgainWithout checks that the page has no section, and no link to it, if there is
// nothing to compare.
func TestAgainWithout(t *testing.T) {
	const other = "BenchmarkMemory/impl=weir-gcra/keys=1-2 10 300.0 ns/op\nBenchmarkMemory/impl=throttled/keys=1-2 10 300.0 ns/op\n"
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
		begin    = "An earlier run of 10 rounds was made on "
		same     = begin + "a machine of the same kind, with the same version of Go.\n"
	)
	for _, tt := range []struct {
		earlier, now *Results
		want         string
	}{
		{config("A", "go1.26.0", ""), config("A", "go1.26.0", ""), same + "There was no server."},
		{config("A", "go1.26.0", redis), config("A", "go1.26.0", redis), same + "The server was the same."},
		{config("A", "go1.26.0", redis+postgres), config("A", "go1.26.0", redis+postgres), same + "The servers were the same."},
		{config("A", "go1.26.0", redis), config("A", "go1.26.0", redis+postgres), same + "The server was Redis 7.0.15 as a process."},
		{config("A", "go1.26.0", redis+postgres), config("A", "go1.26.0", redis), same + "The servers were Redis 7.0.15 as a process,\nand PostgreSQL 18.6 as a process."},
		{config("A", "go1.26.0", ""), config("A", "go1.26.0", redis), same + "There was no server."},
		{config("B", "go1.26.0", redis), config("A", "go1.26.0", redis), begin + "2 cores of B (linux/amd64), with the same version of Go.\nThe server was the same."},
		{config("A", "go1.25.0", redis), config("A", "go1.26.0", redis), begin + "a machine of the same kind, with Go 1.25.0.\nThe server was the same."},
		{config("A", "go1.26.0", redis+"load: 5.0\n"), config("A", "go1.26.0", redis),
			same + "The server was the same.\n**The machine of the earlier run was busy, with a load average of 5.0.**"},
	} {
		if got := tt.earlier.ranBefore(tt.now); got != tt.want {
			t.Errorf("got\n%s\nwant\n%s", got, tt.want)
		}
	}
}
