package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/internal/report"
	"github.com/weir-go/weir/store"
)

var conformCommand = &command{
	name:    "conform",
	args:    "[URL]",
	summary: "Prove that a server keeps the promises that limiters need.",
	example: "weir conform -report redis.json redis://localhost:6379",
	text: `
The conformance suite makes about 60,000 calls, or 20,000 with -brief. Its keys begin with
"weirtest-", belong to this run alone, and are deleted after it. The keys of others are not
touched. If the server has more than 100,000 keys, the suite does not list keys, and checks less.
After Ctrl-C, keys of the check that ran are left, and expire.

Without URL, the store is that of -store. Faults are not tested: nobody can stop, pause and promote
servers through a URL. The tests in conformance/integration do that, on servers of their own.

The exit code is 1 if a check failed, and 3 if the server cannot run the checks, for example because
the user lacks a right: docs/reference/stores.md lists those that are needed. The report says why
checks were skipped.`,
	flags: func(t *tool, set *flag.FlagSet) func(context.Context, []string) error {
		url, c := storeFlag(set), &conform{tool: t, output: formatFlag(set)}
		client := set.String("client", "", "the `client`: "+strings.Join(slices.Sorted(maps.Keys(clients)), ", ")+"; the default is goredis, valkey for valkey://, postgres for postgres://")
		set.StringVar(&c.report, "report", "", "write the report to `FILE`, which ends in .json, and to a .md for people")
		set.StringVar(&c.pattern, "run", "", "run only the checks whose names match the regular `expression`, for example ^GCRA/")
		set.BoolVar(&c.brief, "brief", false, "let random checks try less, which is quicker")
		set.IntVar(&c.parallel, "parallel", 1, "the `number` of checks that run at once; more is quicker over a slow network")
		set.Uint64Var(&c.seed, "seed", 0, "the `seed` of random checks, from a failure; 0 means a new one for each check")
		set.BoolVar(&c.flush, "script-flush", false, "also test what happens if the server loses its scripts: SCRIPT FLUSH disturbs other users for a moment")
		set.BoolVar(&c.migrate, "migrate", false, "create the table of store/postgres if it does not exist")
		return func(ctx context.Context, args []string) error {
			if len(args) > 1 {
				return usagef("there are %d arguments: give one URL at most", len(args))
			}
			if len(args) == 1 {
				url = &args[0]
			}
			target, err := t.target(*url, *client)
			if err != nil {
				return err
			}
			return c.run(ctx, target)
		}
	},
}

// mostKeys is the largest number of keys on a server of which the suite lists keys. A
// check lists them several times.
const mostKeys = 100_000

// A conform is a run of the suite.
type conform struct {
	*tool
	output   *format
	report   string
	pattern  string
	brief    bool
	parallel int
	seed     uint64
	flush    bool
	migrate  bool

	server *server
	checks []string // that run
	done   int
	note   string // why keys are not listed

	mu       sync.Mutex
	failures strings.Builder // what the failed checks say
}

func (c *conform) run(ctx context.Context, at *target) error {
	if err := c.choose(); err != nil {
		return err
	}
	file, remove, err := c.reportFile()
	if err != nil {
		return err
	}
	defer remove()
	s, err := c.dial(ctx, at)
	if err != nil {
		return err
	}
	defer s.close()
	c.server = s
	if c.migrate && s.migrate != nil {
		if err := s.migrate(ctx); err != nil {
			return err
		}
	}
	lists, err := c.listsKeys(ctx)
	if err != nil {
		return err
	}
	report := &conformance.Report{File: file, Store: at.client, Client: at.describe(), Server: s.product(ctx)}
	if *c.output == "text" {
		c.printf("%s %s on %s\n", report.Store, "("+report.Client+")", report.Server)
		if c.note != "" {
			c.printf("%s\n", c.note)
		}
	}
	err = suite(ctx, c.checks, c.backend(report, lists))
	c.progress("")
	if err != nil {
		return err
	}
	c.print(c.err, c.secrets.remove(c.failures.String()))
	return c.summary(file)
}

// choose sets the checks that run.
func (c *conform) choose() error {
	c.checks = conformance.Checks()
	if c.pattern == "" {
		return nil
	}
	pattern, err := regexp.Compile(c.pattern)
	if err != nil {
		return usagef("-run is %q: it must be a regular expression: %v", c.pattern, err)
	}
	c.checks = slices.DeleteFunc(c.checks, func(name string) bool { return !pattern.MatchString(name) })
	if len(c.checks) == 0 {
		return usagef("-run is %q: it must match the name of a check, for example Store/Atomic or GCRA/Exact", c.pattern)
	}
	return nil
}

// reportFile returns the name of the file of the report. Without -report, it is
// temporary.
func (c *conform) reportFile() (string, func(), error) {
	if c.report != "" {
		if !strings.HasSuffix(c.report, ".json") {
			return "", nil, usagef("-report is %q: it must end in .json", c.report)
		}
		probe, err := os.CreateTemp(filepath.Dir(c.report), ".weir-*")
		if err != nil {
			return "", nil, usagef("-report is %q: its directory cannot be written: %w", c.report, err)
		}
		_ = probe.Close()
		return c.report, func() {}, os.Remove(probe.Name())
	}
	dir, err := os.MkdirTemp("", "weir-")
	return filepath.Join(dir, "report.json"), func() { _ = os.RemoveAll(dir) }, err
}

// listsKeys reports whether the suite can list keys, or why not in c.note. The error says why
// nearly all checks would fail.
func (c *conform) listsKeys(ctx context.Context) (bool, error) {
	n, err := c.server.count(ctx)
	if errors.As(err, new(usageError)) {
		return false, err
	}
	prefix := "weirtest-" + rand.Text()
	lim, _ := weir.NewPolicy(c.server.store, weir.Policy{Name: "ready", Rules: []weir.Rule{
		{Name: "string", Algorithm: algorithm.FixedWindow{Limit: 1, Window: time.Minute}},
		{Name: "set", Algorithm: algorithm.SlidingLog{Limit: 1, Window: time.Minute}},
		{Name: "list", Algorithm: algorithm.MetadataWindow{Limit: 1, Window: time.Minute}},
	}}, &weir.Options{Prefix: prefix})
	readyErr := lim.Ready(ctx)
	if lister, ok := c.server.store.(store.Lister); ok && readyErr == nil {
		_, _, readyErr = lister.List(ctx, prefix, "", nil)
	}
	if unavailable(readyErr) || errors.Is(readyErr, store.ErrMisconfigured) {
		return false, fmt.Errorf("the server cannot run the checks: %w", readyErr)
	}
	if err == nil && n <= mostKeys {
		_, _ = lim.Allow(ctx, "key") // a key to list
		defer func() { _ = lim.Reset(ctx, "key") }()
		_, err = c.server.keys(ctx, prefix)
	}
	switch {
	case err != nil:
		c.note = "Keys cannot be listed, so the checks of TTLs and of prefixes are skipped: " + c.secrets.remove(err.Error())
	case n > mostKeys:
		c.note = fmt.Sprintf("The server has more than %d keys, so keys are not listed, and the checks of TTLs and of prefixes are skipped.", mostKeys)
	}
	return c.note == "", nil
}

// backend returns the server as the suite takes it.
func (c *conform) backend(report *conformance.Report, lists bool) conformance.Backend {
	open := func(t *testing.T, _ store.Store) store.Store {
		st, closeStore, err := c.server.open(t.Context())
		c.must(t, err)
		t.Cleanup(closeStore)
		return st
	}
	b := conformance.Backend{
		New:      func(*testing.T) store.Store { return c.server.store },
		Parallel: c.parallel, Seed: c.seed, Brief: c.brief, Report: report,
		Peer: open, Reopen: open,
		Record: func(o conformance.Outcome) {
			c.done++
			c.progress(fmt.Sprintf("%d of %d: %s", c.done, len(c.checks), o.Check))
			c.fail(o.Check, o.Failure)
		},
	}
	if lists {
		b.Keys = func(t *testing.T, _ store.Store, part string) map[string]time.Duration {
			found, err := c.server.keys(t.Context(), part)
			c.must(t, err)
			return found
		}
	}
	if c.server.plant != nil {
		b.Plant = func(t *testing.T, _ store.Store, key string, raw []byte) {
			c.must(t, c.server.plant(t.Context(), key, raw))
		}
	}
	if c.flush && c.server.dropScripts != nil {
		b.DropScripts = func(t *testing.T, _ store.Store) {
			c.must(t, c.server.dropScripts(t.Context()))
		}
	}
	return b
}

// must ends the test of a check after an error of the server.
func (c *conform) must(t *testing.T, err error) {
	if err != nil {
		c.fail(strings.TrimPrefix(t.Name(), suiteName+"/"), err.Error())
		t.Fatal(err)
	}
}

// fail notes what a failed check says.
func (c *conform) fail(check, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if text != "" {
		fmt.Fprintf(&c.failures, "--- %s\n    %s\n", check, strings.ReplaceAll(text, "\n", "\n    "))
	}
}

// progress replaces the line of the terminal that says how far the run is.
func (c *conform) progress(line string) {
	if c.shown {
		fmt.Fprint(os.Stderr, "\r\x1b[K"+line)
	}
}

// summary prints the report in file, and returns errNo if a check failed or did not run.
func (c *conform) summary(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var r report.Report
	if err := json.Unmarshal(text, &r); err != nil {
		return err
	}
	for _, k := range r.Checks {
		for i, failure := range k.Failures { // it may have an error of the client
			k.Failures[i] = c.secrets.remove(failure)
		}
	}
	text = r.JSON()
	if err := errors.Join(os.WriteFile(file, text, 0o644), os.WriteFile(report.MarkdownName(file), []byte(r.Markdown()), 0o644)); err != nil {
		return err
	}
	if *c.output == "json" {
		c.print(c.out, string(text))
	} else {
		c.printSummary(&r)
	}
	if c.passed(&r) {
		return nil
	}
	last := fmt.Sprintf("%d of %d checks failed", r.Failed, len(c.checks))
	if i := slices.IndexFunc(r.Checks, func(k report.Check) bool { return k.Result == report.Failed }); i >= 0 {
		last += "; the first is " + r.Checks[i].Name
	}
	c.print(c.err, last+"\n")
	return errNo
}

// passed reports whether every check that was chosen passed or was skipped.
func (c *conform) passed(r *report.Report) bool {
	return r.Result != report.Failed && r.Failed == 0 && r.Passed > 0 && r.Passed+r.Skipped == len(c.checks)
}

func (c *conform) printSummary(r *report.Report) {
	for _, k := range r.Checks {
		switch k.Result {
		case report.Failed:
			c.printf("failed   %s: %s\n", k.Name, k.Promise)
		case report.Skipped:
			c.printf("skipped  %s: %s\n", k.Name, k.Reason)
		}
	}
	verdict := "FAILED"
	switch {
	case c.passed(r) && r.NotRun > 0:
		verdict = "PASSED IN PART"
	case c.passed(r):
		verdict = "PASSED"
	case r.Failed == 0 && r.Result != report.Failed:
		verdict = "INCOMPLETE"
	}
	c.printf("%s: %d checks passed, %d skipped, %d failed", verdict, r.Passed, r.Skipped, r.Failed)
	if r.NotRun > 0 {
		c.printf(", %d not run", r.NotRun)
	}
	c.printf(", in %.1f s\n", float64(r.Millis)/1000)
	if out := r.LeftOut(); out != "" {
		c.printf("Left out: %s.\n", out)
	}
	if c.report != "" {
		c.printf("The report is in %s and %s.\n", quoted(c.report), quoted(strings.TrimSuffix(c.report, ".json")+".md"))
	}
}
