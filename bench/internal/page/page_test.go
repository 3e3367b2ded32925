package page

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
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

// TestWorse checks that README.md and the page say what is worse first.
func TestWorse(t *testing.T) {
	r := read(t, sample)
	const worst, others, ratios = "| in memory, 1,000 keys: time | 550 ns | x/time/rate, 200 ns | 2.50 (2–3) |\n", "Weir is worse than a peer in 1.\n[Compared",
		"| redis_rate, go-redis | 0.50 | – | 0.50 | – | 0.70 | – |\n"
	files := makeFiles(t, r, read(t, ""))
	readme, text := files[Readme], files[Page]
	first, second := strings.Index(readme, worst), strings.Index(readme, others)
	if first < 0 || second < first || !strings.HasPrefix(readme, "Before\n"+begin) || !strings.HasSuffix(readme, end+"After\n") || strings.Contains(readme, "old") {
		t.Errorf("the part of README.md is\n%s", readme)
	}
	if !strings.Contains(files[Compare], ratios) {
		t.Errorf("the part of compare.md is\n%s", files[Compare])
	}
	if !strings.Contains(text, worst) || strings.Contains(text, "over go-redis: ") || !strings.Contains(text, "worse than a peer in 1 of 4 comparisons") {
		t.Errorf("the page is\n%s", text)
	}
	if !strings.Contains(text, "This run did not measure") {
		t.Error("the page does not say what was not measured")
	}
	if !strings.Contains(text, "provisional: the run had less than 10 rounds") || strings.Contains(text, "busy") {
		t.Error("the page does not say that two rounds are too few, or says that the machine was busy")
	}
	if busy := makeFiles(t, read(t, "load: 5.0\n"+sample), read(t, ""))[Page]; !strings.Contains(busy, "a load average of 5.0") {
		t.Error("the page does not say that the machine was busy")
	}
	if _, err := Make(r, read(t, ""), "no marks", begin+end); err == nil {
		t.Error("a README.md without marks is no error")
	}
	if _, err := Make(r, read(t, ""), begin+end, "no marks"); err == nil {
		t.Error("a compare.md without marks is no error")
	}
	if _, err := Make(read(t, "goos: linux\n"), r, begin+end, begin+end); err == nil {
		t.Error("no results are no error")
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

// TestLarge checks whose results of the command large a run keeps, and that the page tells
// whether the machine was busy then.
func TestLarge(t *testing.T) {
	const busy = "load: 1.6\n"
	large := func(config, ns string) string {
		return config + "gomaxprocs: 2\ncpu: Other CPU\nBenchmarkLarge/impl=weir-gcra/keys=1000000-2 1 " + ns + " ns/op\n"
	}
	value := func(r *Results) []float64 { return r.series[series{"Large/impl=weir-gcra/keys=1000000", "ns/op"}] }
	for _, config := range []string{"", busy} {
		r := read(t, sample)
		r.SetLarge(read(t, large(config, "5")))
		text := makeFiles(t, r, read(t, ""))[Page]
		if got := value(r); !slices.Equal(got, []float64{5}) || strings.Contains(text, "Other CPU") || strings.Contains(text, "load average of 1.6") != (config == busy) {
			t.Errorf("%q: the results of large are %v, and the page is\n%s", config, got, text)
		}
		kept := read(t, busy+sample)
		kept.KeepLarge(r)
		if got, want := len(value(kept)), map[string]int{"": 1, busy: 0}[config]; got != want {
			t.Errorf("%q: %d results of large are kept, want %d", config, got, want)
		}
		r.SetLarge(read(t, large("", "7")))
		text = makeFiles(t, r, read(t, ""))[Page]
		if got := value(r); !slices.Equal(got, []float64{7}) || strings.Contains(text, "load average") {
			t.Errorf("%q: after another run, the results of large are %v, and the page is\n%s", config, got, text)
		}
	}
}

// TestServers checks what the page says about the servers.
func TestServers(t *testing.T) {
	const redis, postgres = "server: Redis 7.0.15 as a process\n", "postgres: PostgreSQL 18.6 as a process\n"
	for _, tt := range []struct{ config, want string }{
		{"", "The same cores ran no server.\n"},
		{postgres, "The same cores ran PostgreSQL 18.6 as a process.\n"},
		{redis + postgres, "The same cores ran Redis 7.0.15 as a process,\nand PostgreSQL 18.6 as a process.\n"},
	} {
		if got := read(t, tt.config).machine(); !strings.Contains(got, tt.want) {
			t.Errorf("%q: got\n%s\nwant %q", tt.config, got, tt.want)
		}
	}
}

// TestWorseAsShown checks that a ratio which tables show as 1.00 is not worse.
func TestWorseAsShown(t *testing.T) {
	for _, tt := range []struct {
		ratio stat
		want  bool
	}{
		{stat{1.2, 1.01, 1.3}, true},
		{stat{1.001, 1.001, 1.001}, false},
		{stat{1.2, 0.99, 1.3}, false},
	} {
		if got := tt.ratio.worse(); got != tt.want {
			t.Errorf("%s: worse is %v, want %v", tt.ratio, got, tt.want)
		}
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
