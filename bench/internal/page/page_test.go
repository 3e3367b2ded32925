package page

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../../.."

func readFile(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func read(t *testing.T, text string) *Results {
	t.Helper()
	r, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// makeFiles makes the files, with a README.md and a compare.md that have nothing else.
func makeFiles(t *testing.T, r, earlier *Results) map[string]string {
	t.Helper()
	files, err := Make(r, earlier, "Before\n"+begin+"old\n"+end+"After\n", begin+end)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestCommitted checks that the page, its charts and the part of README.md are what the
// committed results give, and that these have nothing else.
func TestCommitted(t *testing.T) {
	r, earlier := read(t, readFile(t, Now)), read(t, "")
	if text, err := os.ReadFile(filepath.Join(root, Earlier)); err == nil {
		earlier = read(t, string(text))
	}
	files, err := Make(r, earlier, readFile(t, Readme), readFile(t, filepath.FromSlash(Compare)))
	if err != nil {
		t.Fatal(err)
	}
	charts, err := filepath.Glob(filepath.Join(root, ChartDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range charts {
		if files[ChartDir+"/"+filepath.Base(path)] == "" {
			t.Errorf("%s is not on the page: remove it", path)
		}
	}
	if len(charts) == 0 {
		t.Error("there are no charts")
	}
	for name, want := range files {
		if got := readFile(t, filepath.FromSlash(name)); got != want {
			t.Errorf("%s is not what %s gives: run `go run ./run page` in bench", name, Now)
		}
		if strings.Contains(want, "%!") || strings.Contains(want, "NaN") {
			t.Errorf("%s has a defect of formatting", name)
		}
	}
}

// sample has two rounds of two limiters in memory, of which weir is slower, and one round of
// two limiters on a server.
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
BenchmarkRules/impl=rules-16-2 10 30000 ns/op 80.00 server-cpu-µs/op
`

// TestRatio checks that a ratio is the median of the ratios of the rounds.
func TestRatio(t *testing.T) {
	r := read(t, sample)
	a, b := series{"Memory/impl=weir-bucket/keys=1000", "ns/op"}, series{"Memory/impl=xtimerate-syncmap/keys=1000", "ns/op"}
	if got, ok := r.ratio(a, b); !ok || got != (stat{2.5, 2, 3}) {
		t.Errorf("the ratio is %+v, %v, want 2.5 from 2 to 3", got, ok)
	}
	a.name, b.name, a.unit, b.unit = "Redis/impl=weir-bucket/callers=1", "Redis/impl=redis_rate/callers=1", "wire-B/op", "wire-B/op"
	if got, ok := r.ratio(a, b); !ok || got.median != 0.7 {
		t.Errorf("the ratio of bytes is %+v, %v, want 0.7", got, ok)
	}
	if got, ok := r.stat("Rules/impl=rules-16", cpu); !ok || got.median != 80 {
		t.Errorf("the rules take %+v, %v, want 80", got, ok)
	}
	if _, ok := r.ratio(a, series{"no such benchmark", "ns/op"}); ok {
		t.Error("a ratio to nothing is no error")
	}
}

// former has one comparison more than sample, and no allocations. With 1,000 keys, the
// ratio is 1.5 in both rounds, so the intervals do not overlap.
const former = `go: go1.25.0
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

// TestPages checks what the pages say of the sample, and of an earlier run.
func TestPages(t *testing.T) {
	const worst, again = "| in memory, 1,000 keys: time | 550 ns | x/time/rate, 200 ns | 2.50 (2–3) |", "earlier run"
	for name, tt := range map[string]struct {
		now, earlier string
		file         string
		want         []string // in this order
		lacks        string
	}{
		"the worst first":      {sample, "", Readme, []string{"Before\n" + begin, worst + "\n", "Weir is worse than a peer in 1.\n[Compared", end + "After\n"}, "old"},
		"ratios":               {sample, "", Compare, []string{"| redis_rate, go-redis | 0.50 | – | 0.50 | – | 0.70 | – |\n"}, "ulule"},
		"the page":             {sample, "", Page, []string{"provisional: the run had less than 10 rounds", "worse than a peer in 1 of 4 comparisons", worst + "\n", "This run did not measure Algorithms, Around, "}, "machine was busy"},
		"one server":           {sample, "", Page, []string{"The same cores ran Redis 7.0.15 as a process.\n"}, again},
		"two servers":          {sample + "postgres: PostgreSQL 18.6\n", "", Page, []string{"The same cores ran Redis 7.0.15 as a process,\nand PostgreSQL 18.6.\n"}, again},
		"a busy machine":       {"load: 5.0\n" + sample, "", Page, []string{"a load average of 5.0"}, again},
		"an earlier run":       {sample, former, Page, []string{"| ratio | earlier run |\n", worst + " 1.50 |\n", "Unlike this run, an earlier run of 2 rounds had Go 1.25.0.\nTwo runs can differ", "The intervals of both overlap in 2 of 3 comparisons, and the ratios differ by at most 67 %\n(in memory, 1,000 keys: time, x/time/rate).\n"}, "%!"},
		"the same machine":     {sample, sample, Page, []string{"An earlier run of 2 rounds had the same kind of machine, Go and servers."}, "Unlike"},
		"another machine":      {sample, "cpu: B\nload: 5.0\nserver: \n" + strings.Replace(strings.Replace(sample, "cpu: Some CPU\n", "", 1), "server: Redis 7.0.15 as a process\n", "", 1), Page, []string{"had 2 cores of B (linux/amd64), no server, a load average of 5.0."}, "same kind"},
		"nothing to compare":   {sample, "gomaxprocs: 2\nBenchmarkMemory/impl=weir-bucket/keys=1-2 10 300.0 ns/op\nBenchmarkMemory/impl=throttled/keys=1-2 10 300.0 ns/op\n", Page, []string{worst}, again},
		"a ratio shown as one": {"Memory/impl=weir-bucket/keys=1 ns/op 1001\nMemory/impl=throttled/keys=1 ns/op 1000\n", "", Page, []string{"worse than a peer in 0 of 1 comparisons"}, "| One decision | weir |"},
	} {
		text := makeFiles(t, read(t, tt.now), read(t, tt.earlier))[tt.file]
		rest := text
		for _, want := range tt.want {
			_, after, ok := strings.Cut(rest, want)
			if !ok {
				t.Errorf("%s: no %q in\n%s", name, want, text)
			}
			rest = after
		}
		if strings.Contains(text, tt.lacks) {
			t.Errorf("%s: %q is in\n%s", name, tt.lacks, text)
		}
	}
	for _, tt := range []struct{ results, readme, compare string }{
		{sample, "no marks", begin + end}, {sample, begin + end, "no marks"}, {"goos: linux\n", begin + end, begin + end},
	} {
		if _, err := Make(read(t, tt.results), read(t, ""), tt.readme, tt.compare); err == nil {
			t.Errorf("%+v is no error", tt)
		}
	}
}

// TestText checks that the pages are the same from the results that they need.
func TestText(t *testing.T) {
	r, earlier := read(t, sample), read(t, former)
	files := makeFiles(t, r, earlier)
	for _, name := range []string{Now, Earlier} {
		if text := files[name]; strings.Contains(text, " B/op") || !strings.Contains(text, "cpu: Some CPU\n") {
			t.Errorf("%s has what no page needs, or lacks a setting:\n%s", name, text)
		}
	}
	if want := "\nMemory/impl=weir-bucket/keys=1000 ns/op 200 900\n"; !strings.Contains(files[Now], want) {
		t.Errorf("want %q in\n%s", want, files[Now])
	}
	if strings.Contains(files[Earlier], "keys=1 ") {
		t.Errorf("%s has a comparison that no page needs:\n%s", Earlier, files[Earlier])
	}
	if again := makeFiles(t, read(t, files[Now]), read(t, files[Earlier])); !maps.Equal(again, files) {
		t.Errorf("the files are\n%q\nand, from the results in them,\n%q", files, again)
	}
	rules := read(t, "gomaxprocs: 2\nRules/impl=rules-2 ns/op 7\n")
	if got, ok := rules.stat("Rules/impl=rules-2", "ns/op"); !ok || got.median != 7 {
		t.Errorf("a name that ends in the number of threads: got %v, %v", got, ok)
	}
}

// TestMerge checks that the results of the command large are kept apart, with the load of its
// machine.
func TestMerge(t *testing.T) {
	large := read(t, "large-load: 1.6\ncpu: Other CPU\nMemory/impl=weir-gcra/keys=1 ns/op 3\nLarge/impl=weir-gcra/keys=1000000 ns/op 5\n")
	r := Merge(read(t, sample), large)
	text := makeFiles(t, r, read(t, ""))
	if page := text[Page]; !strings.Contains(page, "load average of 1.6") || strings.Contains(page, "Other CPU") {
		t.Errorf("the page is\n%s", page)
	}
	if now := text[Now]; !strings.Contains(now, "\nLarge/impl=weir-gcra/keys=1000000 ns/op 5\n") || strings.Contains(now, "keys=1 ") {
		t.Errorf("the results are\n%s", now)
	}
	if r = Merge(r, read(t, "Large/impl=weir-gcra/keys=1000000 ns/op 7\n")); strings.Contains(r.Text(), "load") || !strings.Contains(r.Text(), " ns/op 7\n") {
		t.Errorf("after another run, the results are\n%s", r.Text())
	}
}

func TestSummarize(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		want   stat
	}{
		{[]float64{7}, stat{7, 7, 7}},
		{[]float64{3, 1, 2}, stat{2, 1, 3}},
		{[]float64{5, 4, 3, 2, 1, 6}, stat{3.5, 1, 6}},
		{[]float64{10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, stat{5.5, 2, 9}}, // 97.9 %; from 3 to 8 is 89 %
		{[]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}, stat{10.5, 6, 15}},
	} {
		if got, ok := summarize(tt.values); !ok || got != tt.want {
			t.Errorf("%v: got %+v, want %+v", tt.values, got, tt.want)
		}
	}
	if _, ok := summarize(nil); ok {
		t.Error("nothing has a median")
	}
}

func TestNumber(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0", 0.523: "0.52", 4: "4", 9.876: "9.88", 45.67: "45.7", 99.97: "100", 171.4: "171",
		1234: "1,230", 12345: "12,300", 1_000_000: "1,000,000", -2.5: "−2.50",
	} {
		if got := number(x); got != want {
			t.Errorf("%v: got %s, want %s", x, got, want)
		}
	}
}

func TestReadErrors(t *testing.T) {
	for _, text := range []string{"BenchmarkX 1 2", "BenchmarkX 1 many ns/op", "BenchmarkX 1 2 ns/op 3", "X ns/op", "X ns/op many"} {
		if _, err := Read(strings.NewReader("goos: linux\n" + text + "\n")); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%q: error %v", text, err)
		}
	}
}
