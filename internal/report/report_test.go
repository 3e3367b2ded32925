package report

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/store"
)

var update = flag.Bool("update", false, "write testdata")

// A fakeT is the test of a run: end ends it.
type fakeT struct {
	testing.TB
	cleanup func()
	failed  bool
	texts   []string
}

func (f *fakeT) Helper()           {}
func (f *fakeT) Failed() bool      { return f.failed }
func (f *fakeT) Cleanup(fn func()) { f.cleanup = fn }
func (f *fakeT) Fatal(args ...any) { f.Fatalf("%s", args...) }
func (f *fakeT) Errorf(format string, args ...any) {
	f.failed = true
	f.texts = append(f.texts, fmt.Sprintf(format, args...))
}

type fatal struct{}

func (f *fakeT) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	panic(fatal{})
}

// start returns what Start does with a fake test that Start ends.
func start(f *fakeT, r Report, names ...string) *Recorder {
	defer func() {
		if cause := recover(); cause != nil && cause != (fatal{}) {
			panic(cause)
		}
	}()
	return Start(f, r, names)
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// decode reads a report. Its text must be what its values give.
func decode(t *testing.T, name string) *Report {
	t.Helper()
	text := read(t, name)
	r := new(Report)
	if err := json.Unmarshal([]byte(text), r); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, text)
	}
	if again := string(r.JSON()); again != text {
		t.Errorf("the JSON is\n%s\nand, once read,\n%s", text, again)
	}
	if want := r.Markdown(); read(t, MarkdownName(name)) != want {
		t.Errorf("the Markdown is not what the JSON gives:\n%s\nwant\n%s", read(t, MarkdownName(name)), want)
	}
	return r
}

// A listStore is a store that sends batches.
type listStore struct{ store.Store }

func (listStore) EvalBatch(context.Context, []store.Eval) {}

// TestGolden compares the report of a run with the files in testdata.
func TestGolden(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "mine.json")
	f := &fakeT{TB: t}
	rec := start(f, Report{
		File: file, Store: "mine", Client: "a|b <v1.2>", Server: "Redis 8.0.2",
		Settings: Settings{Keys: true, Peer: true, Processes: true, Seed: 1<<64 - 1},
	}, "Store/A", "Store/B", "Store/C", "Store/D", "GCRA/A")
	if r := decode(t, file); r.Result != Incomplete || r.NotRun != 5 || r.Passed != 0 {
		t.Errorf("before the end, the report says %s, %+v", r.Result, r)
	}
	rec.Store(listStore{})
	rec.Check(Check{Name: "GCRA/A", Promise: "a", Fault: "6 calls", Seed: 5}, 1234567*time.Microsecond, true, false)
	rec.Check(Check{Name: "Store/A", Promise: "a", Seed: 5}, time.Millisecond, true, false)
	rec.Check(Check{Name: "Store/B", Promise: "b", Seed: 6, Reason: "store does not support it:\na | b"}, 2*time.Millisecond, false, false)
	rec.Check(Check{Name: "Store/C", Promise: "a key <k> & its TTL", Failures: []string{"got 1\n2", "got 3"}, Fault: "5 calls", Seed: 7}, 3*time.Millisecond, true, true) // the check passed, and a cleanup failed
	rec.Check(Check{Name: "Store/D", Promise: "d"}, 4*time.Millisecond, false, false)                                                                                     // the Backend skipped it
	if r := decode(t, file); r.Result != Incomplete || r.NotRun != 5 {
		t.Errorf("before the end, the report says %s, %+v", r.Result, r)
	}
	f.failed = true
	rec.r.Started = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	rec.r.Weir, rec.r.Go, rec.r.OS, rec.r.Race = "v1.2.3", "go1.26.0", "linux/amd64", false
	f.cleanup()
	r := decode(t, file)
	if r.Millis < 60_000 { // since Started
		t.Errorf("the run took %d ms", r.Millis)
	}
	r.Millis = 98_760
	for name, got := range map[string]string{"golden.json": string(r.JSON()), "golden.md": r.Markdown()} {
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want := read(t, path); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), "*")); len(left) != 2 {
		t.Errorf("the files are %q", left)
	}
}

// TestResult checks that a report says Passed only if every check ran, none failed, one
// passed, and the test did not fail.
func TestResult(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		checks     string // p, s, f and n: the results of checks
		testFailed bool
		want       string
		text       string
	}{
		{"pp", false, Passed, "**Passed.** Of 2 checks: 2 passed,"},
		{"ps", false, Passed, "**Passed.** Of 2 checks: 1 passed, 1 skipped,"},
		{"pf", true, Failed, "**Failed.** Of 2 checks"},
		{"pf", false, Failed, "**Failed.** Of"},
		{"nf", true, Failed, "1 failed, 1 not run."},
		{"pn", false, Incomplete, "**Incomplete.** Not all checks ran."},
		{"ss", false, Incomplete, "**Incomplete.** "},
		{"", false, Incomplete, "**Incomplete.** "},
		{"pp", true, Failed, "**Failed.** The test failed outside of its checks. Of 2"},
	} {
		r := &Report{}
		for _, c := range tt.checks {
			r.Checks = append(r.Checks, Check{Name: "A", Result: map[rune]string{'p': Passed, 's': Skipped, 'f': Failed, 'n': NotRun}[c]})
		}
		r.count(tt.testFailed)
		if r.Result != tt.want {
			t.Errorf("%q, failed %v: got %s, want %s", tt.checks, tt.testFailed, r.Result, tt.want)
		}
		if got := r.Markdown(); !strings.Contains(got, tt.text) || strings.Contains(got, "**Passed") != (tt.want == Passed) {
			t.Errorf("%q, failed %v: want %q in\n%s", tt.checks, tt.testFailed, tt.text, got)
		}
	}
}

// TestStartErrors checks that a report that cannot be written fails the test, and that an
// earlier one is not changed then.
func TestStartErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "taken.md.tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	first := filepath.Join(dir, "first.json")
	if rec := start(&fakeT{TB: t}, Report{File: first, Store: "s"}, "A"); rec == nil {
		t.Fatal("the first run cannot write a report")
	}
	for _, tt := range []struct {
		r    Report
		want string
	}{
		{Report{File: "", Store: "s"}, `Report.File is "": it must end in .json`},
		{Report{File: filepath.Join(dir, "report.md"), Store: "s"}, "it must end in .json"},
		{Report{File: filepath.Join(dir, "a.json")}, "Report.Store is empty"},
		{Report{File: first, Store: "s"}, "another run has written it, or -count"},
		{Report{File: filepath.Join(dir, ".", "x", "..", "first.json"), Store: "s"}, "another run has written it, or -count"},
		{Report{File: filepath.Join(dir, "no", "such.json"), Store: "s"}, "cannot be written"},
		{Report{File: filepath.Join(dir, "taken.json"), Store: "s"}, "cannot be written"},
	} {
		f := &fakeT{TB: t}
		if start(f, tt.r, "A"); len(f.texts) != 1 || !strings.Contains(f.texts[0], tt.want) {
			t.Errorf("%+v: got %q, want %q", tt.r, f.texts, tt.want)
		}
		if f.cleanup != nil {
			t.Errorf("%+v: a report is written when the test ends", tt.r)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "taken.json")); err == nil {
		t.Error("the JSON was written without the Markdown")
	}
}

// TestEndErrors checks that the files of a run that cannot be written at its end fail the
// test, and still say that the run is incomplete.
func TestEndErrors(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a.json")
	f := &fakeT{TB: t}
	rec := start(f, Report{File: file, Store: "s"}, "A")
	rec.Check(Check{Name: "A"}, 0, true, false)
	if err := os.Mkdir(MarkdownName(file)+".tmp", 0o755); err != nil {
		t.Fatal(err)
	}
	if f.cleanup(); len(f.texts) != 1 || !strings.Contains(f.texts[0], "cannot be written") {
		t.Errorf("got %q", f.texts)
	}
	if r := decode(t, file); r.Result != Incomplete {
		t.Errorf("the report says %s", r.Result)
	}
}

// TestNil checks that a run without a report can use the recorder.
func TestNil(t *testing.T) {
	t.Parallel()
	var rec *Recorder
	rec.Store(listStore{})
	rec.Check(Check{Name: "A"}, 0, true, false)
}

// TestLeftOut checks that a report says what the run did not test.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		r    Report
		want string
	}{
		{Report{Passed: 2, Settings: Settings{Faults: true}}, ""},
		{Report{Passed: 2}, "faults"},
		{Report{Skipped: 1, Settings: Settings{Faults: true}}, "1 skipped check"},
		{Report{Skipped: 2, NotRun: 3, Settings: Settings{Brief: true}}, "2 skipped checks; 3 not run; most tries of random checks, because the run was brief; faults"},
	} {
		if got := tt.r.LeftOut(); got != tt.want {
			t.Errorf("%+v: got %q, want %q", tt.r, got, tt.want)
		}
		if page := tt.r.Markdown(); strings.Contains(page, "**Left out:** "+tt.want+".\n") != (tt.want != "") {
			t.Errorf("%+v: the page is\n%s", tt.r, page)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"/home/me/go/pkg/mod/github.com/weir-go/weir@v1.2.3/internal/report/report.go": "v1.2.3",
		"github.com/weir-go/weir@v1.2.3-0.2026-abc/internal/report/report.go":          "v1.2.3-0.2026-abc", // -trimpath
		"/home/me/go/pkg/mod/example.com/fork@v0.1.0/internal/report/report.go":        "fork v0.1.0",
		"/home/me@work/weir/internal/report/report.go":                                 "(devel)",
		"/home/me/service/vendor/github.com/weir-go/weir/internal/report/report.go":    "(devel)",
		"github.com/weir-go/weir/internal/report/report.go":                            "(devel)",
		"": "(devel)",
	} {
		if got := version(file); got != want {
			t.Errorf("%s: got %q, want %q", file, got, want)
		}
	}
}
