// Package report writes the reports of package conformance.
package report

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/store"
)

// Settings are the fields of conformance.Backend that change what is checked.
type Settings struct {
	Keys        bool   `json:"keys"` // the field is set, as for the other bools
	Peer        bool   `json:"peer"`
	Processes   bool   `json:"processes,omitzero"` // Where and Open are set
	Reopen      bool   `json:"reopen,omitzero"`
	DropScripts bool   `json:"drop_scripts"`
	Faults      bool   `json:"faults"`
	Brief       bool   `json:"brief"`
	Seed        uint64 `json:"seed,string,omitzero"` // 0: each check had a new seed
}

// The results of a run and of a check. The result of a run is Passed, Failed or Incomplete.
const (
	Passed     = "passed"
	Skipped    = "skipped"
	Failed     = "failed"
	NotRun     = "not run"
	Incomplete = "incomplete"
)

// A Report says what a run of the suite found.
type Report struct {
	File     string    `json:"-"` // the name of the JSON file
	Store    string    `json:"store"`
	Client   string    `json:"client,omitempty"`
	Server   string    `json:"server,omitempty"`
	Type     string    `json:"type,omitempty"` // the Go type of the store
	Batch    bool      `json:"batch"`          // the store is a store.Batcher
	Weir     string    `json:"weir"`           // the version of this module
	Go       string    `json:"go,omitempty"`   // the version of Go
	OS       string    `json:"os,omitempty"`   // the system and the processor, for example linux/amd64
	Race     bool      `json:"race,omitempty"` // the race detector was on
	Settings Settings  `json:"settings"`
	Started  time.Time `json:"started,omitzero"`
	Millis   int64     `json:"milliseconds,omitzero"`
	Result   string    `json:"result"`
	Passed   int       `json:"passed"` // the number of checks; also the next three
	Skipped  int       `json:"skipped"`
	Failed   int       `json:"failed"`
	NotRun   int       `json:"not_run"`
	Checks   []Check   `json:"checks"`
}

// A Check says what a run found about one check.
type Check struct {
	Name     string   `json:"name"`
	Result   string   `json:"result"`
	Promise  string   `json:"promise,omitempty"`  // what the check tests, if it failed
	Failures []string `json:"failures,omitempty"` // what it found, if it failed
	Reason   string   `json:"reason,omitempty"`   // why it was skipped
	Fault    string   `json:"fault,omitempty"`    // what happened during a fault
	Seed     uint64   `json:"seed,string,omitzero"`
	Millis   int64    `json:"milliseconds,omitzero"`
}

// A Recorder collects the outcomes of a run. If it is nil, it does nothing.
type Recorder struct {
	mu sync.Mutex
	r  Report
}

// claimed has the absolute names of the files that runs of this process have written.
var claimed sync.Map

// Start writes a report of a run of the checks called names in which no check has run yet.
// r has the File, the Store, the Client, the Server and the Settings. When t ends, the
// report is replaced. So if the process ends early, the report says that the run is
// incomplete.
func Start(t testing.TB, r Report, names []string) *Recorder {
	t.Helper()
	file, err := filepath.Abs(r.File)
	switch _, again := claimed.LoadOrStore(file, true); {
	case err != nil:
		t.Fatalf("conformance: Report.File is %q: %v", r.File, err)
	case !strings.HasSuffix(r.File, ".json"):
		t.Fatalf("conformance: Report.File is %q: it must end in .json", r.File)
	case r.Store == "":
		t.Fatal("conformance: Report.Store is empty: it must be the name of the store")
	case again:
		t.Fatalf("conformance: Report.File is %q: another run has written it, or -count is above 1: each run needs a file of its own", r.File)
	}
	r.File = file // the test may change its directory
	_, source, _, _ := runtime.Caller(0)
	r.Weir, r.Started = version(source), time.Now()
	r.Go, r.OS, r.Race = runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH, raced()
	for _, name := range names {
		r.Checks = append(r.Checks, Check{Name: name, Result: NotRun})
	}
	rec := &Recorder{r: r}
	rec.r.count(false)
	if err := rec.r.write(); err != nil {
		t.Fatalf("conformance: the report cannot be written: %v", err)
	}
	t.Cleanup(func() {
		rec.mu.Lock()
		defer rec.mu.Unlock()
		rec.r.Millis = time.Since(rec.r.Started).Milliseconds()
		rec.r.count(t.Failed())
		if err := rec.r.write(); err != nil {
			t.Errorf("conformance: the report cannot be written: %v", err)
		}
	})
	return rec
}

// Store notes the store under test.
func (rec *Recorder) Store(st store.Store) {
	if rec == nil {
		return
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.r.Type = fmt.Sprintf("%T", st)
	_, rec.r.Batch = st.(store.Batcher)
}

// Check notes the outcome of the check c, which took d. failed says that its test failed.
// If the check did not pass and did not fail, and there is no reason, it was not run.
func (rec *Recorder) Check(c Check, d time.Duration, passed, failed bool) {
	if rec == nil {
		return
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	i := slices.IndexFunc(rec.r.Checks, func(known Check) bool { return known.Name == c.Name })
	c.Millis = d.Milliseconds()
	switch {
	case failed:
		c.Result = Failed
	case passed:
		c.Result = Passed
	case c.Reason != "":
		c.Result = Skipped
	default:
		c.Result = NotRun
	}
	if c.Result != Failed {
		c.Promise, c.Failures = "", nil
	}
	rec.r.Checks[i] = c
}

// count counts the checks and sets the result. failed says that the test of the run failed.
func (r *Report) count(failed bool) {
	n := map[string]int{}
	for _, c := range r.Checks {
		n[c.Result]++
	}
	r.Passed, r.Skipped, r.Failed, r.NotRun = n[Passed], n[Skipped], n[Failed], n[NotRun]
	switch {
	case failed || r.Failed > 0:
		r.Result = Failed
	case r.NotRun > 0 || r.Passed == 0:
		r.Result = Incomplete
	default:
		r.Result = Passed
	}
}

// LeftOut says what a run did not test, or is empty.
func (r *Report) LeftOut() string {
	var parts []string
	switch {
	case r.Skipped == 1:
		parts = append(parts, "1 skipped check")
	case r.Skipped > 1:
		parts = append(parts, fmt.Sprintf("%d skipped checks", r.Skipped))
	}
	if r.NotRun > 0 {
		parts = append(parts, fmt.Sprintf("%d not run", r.NotRun))
	}
	if r.Settings.Brief {
		parts = append(parts, "most tries of random checks, because the run was brief")
	}
	if !r.Settings.Faults {
		parts = append(parts, "faults")
	}
	return strings.Join(parts, "; ")
}

// raced reports whether the race detector is on.
func raced() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// version returns the version of this module, given the name of this source file. In the
// module cache, a directory is called weir@v1.2.3. The build information of a test
// has no versions: see https://go.dev/issue/76926. With -trimpath, a directory that replaces
// this module has the version that go.mod requires.
func version(file string) string {
	module := path.Dir(path.Dir(path.Dir(filepath.ToSlash(file))))
	name, version, ok := strings.Cut(path.Base(module), "@")
	switch {
	case !ok:
		return "(devel)" // a clone or a vendor directory, whose name is private
	case name != "weir":
		return name + " " + version // a fork
	default:
		return version
	}
}

// JSON returns the text of the file.
func (r *Report) JSON() []byte {
	// Each check has one line, so that a report is short and a difference is easy to read.
	checks := make([]string, len(r.Checks))
	for i, c := range r.Checks {
		checks[i] = "\t\t" + string(encode(c, ""))
	}
	head := *r
	head.Checks = []Check{}
	text := strings.TrimSuffix(string(encode(head, "\t")), "[]\n}")
	return []byte(text + "[\n" + strings.Join(checks, ",\n") + "\n\t]\n}\n")
}

// encode encodes v, which has no value that JSON lacks. It leaves <, > and & as they are.
func encode(v any, indent string) []byte {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return []byte(strings.TrimSpace(b.String()))
}

// write writes both files. If it cannot write one, it replaces neither.
func (r *Report) write() error {
	texts := map[string][]byte{r.File: r.JSON(), MarkdownName(r.File): []byte(r.Markdown())}
	for name, text := range texts {
		if err := os.WriteFile(name+".tmp", text, 0o644); err != nil {
			return err
		}
	}
	for name := range texts {
		if err := os.Rename(name+".tmp", name); err != nil {
			return err
		}
	}
	return nil
}

// MarkdownName returns the name of the Markdown file beside the JSON file.
func MarkdownName(file string) string { return strings.TrimSuffix(file, ".json") + ".md" }

// Markdown returns the report as a page.
func (r *Report) Markdown() string {
	var w strings.Builder
	title := r.Store
	if r.Server != "" {
		title += " on " + r.Server
	}
	fmt.Fprintf(&w, "# Conformance of %s\n\n", escape(title))
	switch {
	case r.Result == Passed:
		w.WriteString("**Passed.**")
	case r.Result != Failed:
		w.WriteString("**Incomplete.** Not all checks ran.")
	case r.Failed == 0:
		w.WriteString("**Failed.** The test failed outside of its checks.")
	default:
		w.WriteString("**Failed.**")
	}
	fmt.Fprintf(&w, " Of %d checks: %d passed, %d skipped, %d failed, %d not run.\n\n",
		len(r.Checks), r.Passed, r.Skipped, r.Failed, r.NotRun)
	if out := r.LeftOut(); out != "" {
		fmt.Fprintf(&w, "**Left out:** %s.\n\n", out)
	}

	w.WriteString("| | |\n|---|---|\n")
	row := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&w, "| %s | %s |\n", name, escape(text))
		}
	}
	yes := map[bool]string{true: "yes", false: "no"}
	row("Store", r.Store)
	row("Client", r.Client)
	row("Server", r.Server)
	row("Go type of the store", r.Type)
	row("Version of weir", r.Weir)
	row("Go", r.Go)
	row("System", r.OS)
	row("Race detector", map[bool]string{true: "on", false: "off"}[r.Race])
	row("Sends batches", yes[r.Batch])
	row("Keys can be listed (`Keys`)", yes[r.Settings.Keys])
	row("A second client exists (`Peer`)", yes[r.Settings.Peer])
	row("Another process can open the state (`Where`, `Open`)", yes[r.Settings.Processes])
	row("The store can be closed and opened again (`Reopen`)", yes[r.Settings.Reopen])
	row("Scripts can be lost (`DropScripts`)", yes[r.Settings.DropScripts])
	row("The server fails (`Faults`)", yes[r.Settings.Faults])
	row("Random checks", map[bool]string{true: "brief", false: "full"}[r.Settings.Brief])
	if r.Settings.Seed != 0 {
		row("Seed", fmt.Sprint(r.Settings.Seed))
	}
	row("Start", r.Started.UTC().Format(time.RFC3339))
	row("Duration", fmt.Sprintf("%.1f s", float64(r.Millis)/1000))

	r.table(&w, Failed, "Failed", "Promise that the check tests, seed, and what it found", func(c Check) string {
		text := c.Promise
		if c.Seed != 0 {
			text += fmt.Sprintf(" (seed %d)", c.Seed)
		}
		for _, part := range append(c.Failures, c.Fault) {
			if part != "" {
				text += "\n" + part
			}
		}
		return text
	})
	r.table(&w, NotRun, "Not run", "", nil)
	r.table(&w, Skipped, "Skipped", "Reason", func(c Check) string { return c.Reason })
	r.table(&w, Passed, "Passed", "Duration", func(c Check) string {
		return strings.TrimSuffix(fmt.Sprintf("%d ms; %s", c.Millis, c.Fault), "; ")
	})
	return w.String()
}

// table writes the checks with a result, if there are any. If of is not nil, it returns the
// text of a second column.
func (r *Report) table(w *strings.Builder, result, title, column string, of func(Check) string) {
	head := fmt.Sprintf("\n## %s\n\n| Check | %s |\n|---|---|\n", title, column)
	if of == nil {
		head = fmt.Sprintf("\n## %s\n\n| Check |\n|---|\n", title)
	}
	for _, c := range r.Checks {
		if c.Result != result {
			continue
		}
		w.WriteString(head + "| " + escape(c.Name) + " |")
		if head = ""; of != nil {
			w.WriteString(" " + escape(of(c)) + " |")
		}
		w.WriteByte('\n')
	}
}

// escaper makes a text that somebody else wrote one cell of a table, without markup.
var escaper = strings.NewReplacer("\\", `\\`, "|", `\|`, "<", "&lt;", "&", "&amp;", "*", `\*`, "_", `\_`, "[", `\[`, "`", "\\`", "\r", "", "\n", "<br>")

func escape(text string) string { return escaper.Replace(text) }
