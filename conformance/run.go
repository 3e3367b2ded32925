package conformance

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/internal/report"
)

// declared lists the checks that are expected to fail, and why. who names the culprit in
// messages: store or algorithm. field is the field that declares them.
type declared struct {
	reasons    map[string]string
	who, field string
}

// serves reports whether this process only serves a check of another process. If b can
// open the state of the check, serves first serves until the other process has finished.
func serves(t *testing.T, b Backend) bool {
	where, child := suite.Where()
	if child && b.Open != nil {
		suite.Serve(t.Context(), b.Open(t, where))
		t.SkipNow()
	}
	return child
}

// run runs the checks of groups on b, up to b.Parallel at once.
func run(t *testing.T, b Backend, groups []suite.Group, d declared) {
	if serves(t, b) {
		return
	}
	b.Brief = b.Brief || testing.Short()
	known := suite.Names(groups)
	for _, c := range b.faults() {
		if c.name == "" || strings.ContainsAny(c.name, "/ ") {
			t.Errorf("conformance: Backend.Faults has the key %q: it must be a word, without a slash and without a space", c.name)
		}
		known = append(known, "Faults/"+c.name)
	}
	if b.Strict && len(b.Faults) == 0 && d.who == "store" && d.reasons["Faults"] == "" {
		t.Errorf("conformance: Backend.Strict is true, and Backend.Faults is empty, so no check covers a failure of the database: give functions for its faults, or declare \"Faults\" in Backend.Unsupported")
	}
	for name := range d.reasons {
		if !slices.Contains(known, name) && (name != "Faults" || len(b.Faults) > 0 || d.who != "store") {
			t.Errorf("conformance: %s has the key %q: it must be the name of a check", d.field, name)
		}
	}
	if record := b.Record; record != nil {
		var mu sync.Mutex
		b.Record = func(o Outcome) {
			mu.Lock()
			defer mu.Unlock()
			record(o)
		}
	}
	var recorder *report.Recorder
	if b.Report != nil {
		set := report.Settings{
			Keys: b.Keys != nil, Peer: b.Peer != nil, Processes: b.Where != nil && b.Open != nil, Reopen: b.Reopen != nil,
			DropScripts: b.DropScripts != nil, Faults: len(b.Faults) > 0, Brief: b.Brief, Seed: b.Seed,
		}
		r := b.Report
		recorder = report.Start(t, report.Report{File: r.File, Store: r.Store, Client: r.Client, Server: r.Server, Settings: set}, known)
	}
	free := make(chan struct{}, max(b.Parallel, 1))
	var alone sync.RWMutex
	start := func(wg *sync.WaitGroup, f func()) {
		if b.Parallel > 1 {
			wg.Go(f)
			return
		}
		f()
	}
	var all sync.WaitGroup
	for _, g := range groups {
		start(&all, func() {
			t.Run(g.Name, func(t *testing.T) {
				var own sync.WaitGroup
				for _, c := range g.Checks {
					start(&own, func() {
						lock := alone.RLocker()
						if c.Alone {
							lock = &alone
						}
						free <- struct{}{}
						lock.Lock()
						defer func() { lock.Unlock(); <-free }()
						t.Run(c.Name, func(t *testing.T) {
							judge(t, b, recorder, Outcome{Check: g.Name + "/" + c.Name, Promise: c.Text}, d, func(*Outcome) found {
								r := suite.Run(t, b.host(recorder), c)
								return found{r.Failures, r.Skipped, r.Note, r.Seed, fmt.Sprintf("seed %d, check at %s\n", r.Seed, c.At())}
							})
						})
					})
				}
				own.Wait()
			})
		})
	}
	all.Wait()
	runFaults(t, b, recorder, d)
}

// found is what a check has found.
type found struct {
	failures []string
	skipped  string // why it was skipped, or empty
	note     string // what the check could not see
	seed     uint64
	where    string // the seed and the source line of the check, for people
}

// judge runs a check, which may add to out, and reports the outcome to t, to the recorder, and
// to the backend.
func judge(t *testing.T, b Backend, recorder *report.Recorder, out Outcome, d declared, check func(out *Outcome) found) {
	t.Helper()
	var f found
	reason, known := d.reasons[out.Check]
	start := time.Now()
	defer func() {
		if b.Strict && t.Skipped() && !known {
			f.failures = []string{fmt.Sprintf("skipped (%s), and Backend.Strict is true: give what the check needs, or declare it in %s",
				cmp.Or(out.Skipped, "by a function of the Backend"), d.field)}
			out.Skipped = ""
			t.Error(f.failures[0])
		}
		noted := report.Check{Name: out.Check, Promise: out.Promise, Reason: out.Skipped, Failures: f.failures, Seed: f.seed}
		if out.Fault != nil {
			noted.Fault = out.Fault.String()
		}
		recorder.Check(noted, time.Since(start), out.Passed, t.Failed())
		if b.Record != nil {
			b.Record(out)
		}
	}()
	f = check(&out)
	if (t.Failed() || t.Skipped()) && len(f.failures) == 0 {
		return // a function of the Backend failed or skipped the test
	}
	switch {
	case known && f.skipped == "" && len(f.failures) == 0:
		out.Passed = true
		t.Logf("declared unsupported (%s), and it passed: if it always does, remove it from %s", reason, d.field)
	case known:
		out.Skipped, f.failures = d.who+" does not support it: "+reason, nil
		t.Skip(out.Skipped)
	case f.skipped != "":
		out.Skipped = f.skipped
		t.Skip(out.Skipped)
	case len(f.failures) > 0:
		out.Failure = fmt.Sprintf("broken: %s\n%s%s", out.Promise, f.where, strings.Join(f.failures, "\n"))
		t.Error(out.Failure)
	default:
		out.Passed = true
		t.Log(strings.TrimSpace(out.Promise + "\n" + f.note))
	}
}
