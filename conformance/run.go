package conformance

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/internal/report"
)

// declared holds the checks that are known to fail, with the reasons. who fails them: the
// store or the algorithm. field is the field that declares them.
type declared struct {
	reasons    map[string]string
	who, field string
}

// run runs the checks of groups on b, up to b.Parallel at once.
func run(t *testing.T, b Backend, groups []suite.Group, d declared) {
	b.Brief = b.Brief || testing.Short()
	known := suite.Names(groups)
	for name := range d.reasons {
		if !slices.Contains(known, name) {
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
		set := report.Settings{Keys: b.Keys != nil, Peer: b.Peer != nil, DropScripts: b.DropScripts != nil, Brief: b.Brief, Seed: b.Seed}
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
						t.Run(c.Name, func(t *testing.T) { judge(t, b, recorder, g.Name+"/"+c.Name, c, d) })
					})
				}
				own.Wait()
			})
		})
	}
	all.Wait()
}

// judge runs the check c, named name, on b, and reports the outcome to t, to the recorder,
// and to the backend.
func judge(t *testing.T, b Backend, recorder *report.Recorder, name string, c suite.Check, d declared) {
	t.Helper()
	out, noted, start := Outcome{Check: name}, report.Check{Name: name, Promise: c.Text}, time.Now()
	defer func() {
		noted.Reason = out.Skipped
		recorder.Check(noted, time.Since(start), out.Passed, t.Failed())
		if b.Record != nil {
			b.Record(out)
		}
	}()
	r := suite.Run(t, b.host(recorder), c)
	noted.Seed = r.Seed
	if (t.Failed() || t.Skipped()) && len(r.Failures) == 0 {
		return // a function of the Backend failed or skipped the test
	}
	switch reason, known := d.reasons[name]; {
	case known && r.Skipped == "" && len(r.Failures) == 0:
		t.Errorf("declared unsupported (%s), and it passes: remove it from %s", reason, d.field)
	case known:
		out.Skipped = d.who + " does not support it: " + reason
		t.Skip(out.Skipped)
	case r.Skipped != "":
		out.Skipped = r.Skipped
		t.Skip(r.Skipped)
	case len(r.Failures) > 0:
		t.Errorf("broken: %s\nseed %d, check at %s\n%s", c.Text, r.Seed, c.At(), strings.Join(r.Failures, "\n"))
	default:
		out.Passed = true
	}
}
