package conformance

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/internal/report"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// readReport reads the report in file. Its Markdown must start with the same result.
func readReport(t *testing.T, file string) report.Report {
	t.Helper()
	var r report.Report
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	page, errPage := os.ReadFile(strings.TrimSuffix(file, ".json") + ".md")
	if err != nil || errPage != nil {
		t.Fatal(err, errPage)
	}
	if want := "\n\n**" + strings.ToUpper(r.Result[:1]) + r.Result[1:] + ".**"; !strings.Contains(string(page), want) {
		t.Errorf("%s has %s, but the Markdown is\n%s", file, r.Result, page)
	}
	return r
}

// TestReport runs the suite on the memory store. The report must have the same outcomes as
// Record, in the order of Checks. The run leaves no key behind.
func TestReport(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "memory.json")
	outcomes := map[string]Outcome{}
	shared := memory.New(&memory.Options{MaxKeys: 1 << 20})
	t.Run("run", func(t *testing.T) {
		Run(t, Backend{
			New:      func(*testing.T) store.Store { return shared },
			Peer:     func(_ *testing.T, st store.Store) store.Store { return st },
			Reopen:   func(_ *testing.T, st store.Store) store.Store { return st },
			Record:   func(o Outcome) { outcomes[o.Check] = o },
			Report:   &Report{File: file, Store: "memory", Client: "none", Server: "this process"},
			Parallel: 8, Brief: true, Seed: 7,
		})
	})
	for key, ttl := range shared.All() {
		t.Errorf("left behind: %q for %v", key, ttl)
	}
	r := readReport(t, file)
	var names []string
	passed := 0
	for _, c := range r.Checks {
		names = append(names, c.Name)
		o := outcomes[c.Name]
		if (c.Result == report.Passed) != o.Passed || (c.Result == report.Skipped) != (o.Skipped != "") || c.Reason != o.Skipped || c.Promise != "" || c.Seed != 7 {
			t.Errorf("the report has %+v, and the outcome is %+v", c, o)
		}
		if o.Passed {
			passed++
		}
	}
	if !slices.Equal(names, Checks()) {
		t.Errorf("the report has the checks %q", names)
	}
	if r.Result != report.Passed || r.Passed != passed || r.Skipped != len(names)-passed || r.Skipped == 0 || r.Failed+r.NotRun != 0 {
		t.Errorf("of %d checks, %d passed; the report says %s: %d passed, %d skipped, %d failed, %d not run",
			len(names), passed, r.Result, r.Passed, r.Skipped, r.Failed, r.NotRun)
	}
	if r.Store != "memory" || r.Client != "none" || r.Server != "this process" || r.Type != "*memory.Store" || r.Weir != "(devel)" ||
		r.Go != runtime.Version() || r.OS != runtime.GOOS+"/"+runtime.GOARCH || r.Race != weirtest.Race ||
		r.Settings != (report.Settings{Peer: true, Reopen: true, Brief: true, Seed: 7}) || time.Since(r.Started) > time.Hour || r.Millis == 0 {
		r.Checks = nil
		t.Errorf("the report says %+v", r)
	}
	if _, batch := store.Store(memory.New(nil)).(store.Batcher); r.Batch != batch {
		t.Errorf("Batch is %v, want %v", r.Batch, batch)
	}
}

// TestReportRed checks that no report says Passed if a run fails, ends early, or leaves
// checks out. Each run is in a process of its own, so that it can fail.
func TestReportRed(t *testing.T) {
	t.Parallel()
	const run = "^TestReportRed$/^run$"
	if file := os.Getenv("WEIR_TEST_REPORT"); file != "" {
		t.Run("run", func(t *testing.T) { redRun(t, file) })
		return
	}
	failure := map[string]string{
		"fails": "it is not", "strict": "there is none", "strict, New skips": "Backend.Strict", "strict, no faults": "Backend.Faults is empty",
	}
	for _, tt := range []struct {
		name, pattern string
		ok            bool // go test passes
		want          string
		results       []string // of A/one, A/two and B/one
	}{
		{"passes", run, true, report.Passed, []string{report.Passed, report.Skipped, report.Passed}},
		{"only A", run + "/A", true, report.Incomplete, []string{report.Passed, report.Skipped, report.NotRun}},
		{"fails", run, false, report.Failed, []string{report.Passed, report.Skipped, report.Failed}},
		{"fails late", run, false, report.Failed, []string{report.Passed, report.Skipped, report.Passed}},
		{"fails outside", run, false, report.Failed, []string{report.Passed, report.Skipped, report.Passed}},
		{"New fails", run, false, report.Failed, []string{report.Passed, report.Skipped, report.Failed}},
		{"New skips", run, true, report.Incomplete, []string{report.Passed, report.Skipped, report.NotRun}},
		{"unsupported passes", run, true, report.Passed, []string{report.Passed, report.Skipped, report.Passed}},
		{"strict", run, false, report.Failed, []string{report.Passed, report.Failed, report.Passed}},
		{"strict and declared", run, true, report.Passed, []string{report.Passed, report.Skipped, report.Passed}},
		{"strict, no faults", run, false, report.Failed, []string{report.Passed, report.Skipped, report.Passed}},
		{"strict, New skips", run, false, report.Failed, []string{report.Passed, report.Skipped, report.Failed}},
		{"panics", run, false, report.Failed, []string{report.Passed, report.Skipped, report.NotRun}},
		{"exits", run, false, report.Incomplete, []string{report.NotRun, report.NotRun, report.NotRun}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), tt.name+".json")
			green := `{"result": "passed"}`
			if err := os.WriteFile(file, []byte(green), 0o644); err != nil { // of an earlier run
				t.Fatal(err)
			}
			cmd := exec.Command(os.Args[0], "-test.run", tt.pattern)
			cmd.Env = append(os.Environ(), "WEIR_TEST_REPORT="+file)
			out, err := cmd.CombinedOutput()
			if (err == nil) != tt.ok {
				t.Errorf("go test returned %v, want success %v:\n%s", err, tt.ok, out)
			}
			r := readReport(t, file)
			var got []string
			for _, c := range r.Checks {
				got = append(got, c.Result)
				if (c.Promise == "it is kept") != (c.Result == report.Failed) {
					t.Errorf("%s: %s, and the promise is %q", c.Name, c.Result, c.Promise)
				}
				if want := failure[tt.name]; c.Result == report.Failed && !strings.Contains(strings.Join(c.Failures, "\n"), want) {
					t.Errorf("%s failed, and the report says %q, want %q", c.Name, c.Failures, want)
				}
			}
			if r.Result != tt.want || !slices.Equal(got, tt.results) {
				t.Errorf("the report says %s: %q, want %s: %q\n%s", r.Result, got, tt.want, tt.results, out)
			}
		})
	}
}

// redRun is a run of three checks, with the report in file. The file has the name of a case
// of TestReportRed.
func redRun(t *testing.T, file string) {
	how := strings.TrimSuffix(filepath.Base(file), ".json")
	b := Backend{
		New: func(t *testing.T) store.Store {
			switch last := strings.HasSuffix(t.Name(), "/B/one"); {
			case last && how == "fails late":
				t.Cleanup(func() { t.Error("late") })
			case last && how == "New fails":
				t.Fatal("no server")
			case last && strings.HasSuffix(how, "New skips"):
				t.Skip("no server")
			case last && how == "exits":
				os.Exit(1)
			case last && how == "panics":
				panic("no server")
			}
			return memory.New(nil)
		},
		Report: &Report{File: file, Store: "memory"},
	}
	b.Strict = strings.HasPrefix(how, "strict")
	d := declared{map[string]string{"Faults": "there are none"}, "store", "Backend.Unsupported"}
	switch how {
	case "unsupported passes":
		d.reasons["B/one"] = "it cannot"
	case "strict and declared", "strict, New skips":
		d.reasons["A/two"] = "it cannot"
	case "strict, no faults":
		d.reasons = map[string]string{"A/two": "it cannot"}
	}
	one := suite.Check{Name: "one", Text: "it is kept", Run: func(*suite.T) {}}
	two := suite.Check{Name: "two", Text: "it is kept", Run: func(t *suite.T) { t.Skipf("there is none") }}
	last := one
	if how == "fails" {
		last.Run = func(t *suite.T) { t.Errorf("it is not") }
	}
	run(t, b, []suite.Group{{Name: "A", Checks: []suite.Check{one, two}}, {Name: "B", Checks: []suite.Check{last}}}, d)
	if how == "fails outside" {
		t.Error("outside")
	}
}
