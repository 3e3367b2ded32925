package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-go/weir/internal/report"
)

// TestConform shows that a sound server passes, and that a broken one is named by the
// checks that fail.
func TestConform(t *testing.T) {
	for _, test := range []struct {
		url, run string
		code     int
		out, err []string // parts
	}{
		{"redis://sound", "^Store/(Reply|Atomic|Borrowed)$", exitOK, []string{
			"goredis (go-redis ", ") on Fake 1\n", "\nLeft out: 1 skipped check; ", " not run; most tries of random checks, because the run was brief; faults.\n", "skipped  Store/Borrowed: store does not borrow strings\nPASSED IN PART: 2 checks passed, 1 skipped, 0 failed, ",
		}, nil},
		{"redis://twice", "^Store/(Reply|Atomic)$", exitNo, []string{
			"\nfailed   Store/Atomic: ", "FAILED: 1 checks passed, 0 skipped, 1 failed, ",
		}, []string{"--- Store/Atomic\n    broken: ", "\n    seed ", "\n1 of 2 checks failed; the first is Store/Atomic\n"}},
		{"redis://ttls", "^GCRA/(Exact|TTL)$", exitNo, []string{
			"\nfailed   GCRA/TTL: ", "FAILED: 1 checks passed, 0 skipped, 1 failed, ",
		}, []string{"--- GCRA/TTL\n    broken: "}},
		{"redis://acl", "^GCRA/(Exact|TTL)$", exitOK, []string{"Keys cannot be listed, so the checks of TTLs and of prefixes are skipped: ", "skipped  GCRA/TTL: backend gives no Keys", "PASSED IN PART: 1 checks passed, 1 skipped"}, nil},
		{"redis://replica", "^GCRA/", exitUnavailable, nil, []string{"weir conform: the server cannot run the checks: weir: Ready: store misconfigured: the server is a replica\n"}},
		{"redis://full", "^GCRA/", exitUnavailable, nil, []string{"weir conform: the server cannot run the checks: weir: Ready: store unavailable\n"}},
		{"redis://large", "^GCRA/(Exact|TTL)$", exitOK, []string{"The server has more than 100000 keys", "skipped  GCRA/TTL"}, nil},
	} {
		t.Run(test.url, func(t *testing.T) {
			t.Parallel()
			o := tellProcess(t, "conform", "-brief", "-run", test.run, test.url)
			if o.code != test.code {
				t.Errorf("the exit code is %d, want %d", o.code, test.code)
			}
			for _, want := range test.out {
				if !strings.Contains(o.out, want) {
					t.Errorf("no %q in the output", want)
				}
			}
			for _, want := range test.err {
				if !strings.Contains(o.err, want) {
					t.Errorf("no %q in the errors", want)
				}
			}
			if test.err == nil && o.err != "" || test.out == nil && (o.out != "" || strings.Count(o.err, "\n") > 1) {
				t.Error("there is more")
			}
			if t.Failed() {
				t.Logf("output:\n%s\nerrors:\n%s", o.out, o.err)
			}
		})
	}
}

// TestConformSecrets shows that neither the output nor the files have the secrets of a
// failure.
func TestConformSecrets(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "r.json")
	r := report.Report{Store: "s", Checks: []report.Check{{Name: "A", Result: report.Failed, Failures: []string{"dial: s3cretive"}}}}
	if err := os.WriteFile(file, r.JSON(), 0o644); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	output := format("json")
	c := &conform{tool: &tool{out: &out, err: &out, secrets: secrets{"s3cretive"}}, output: &output}
	if err := c.summary(file); err != errNo {
		t.Errorf("error %v, want %v", err, errNo)
	}
	for _, name := range []string{file, report.MarkdownName(file)} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(text)
	}
	if got := out.String(); strings.Contains(got, "s3cret") || strings.Count(got, "dial: xxxxx") != 3 {
		t.Errorf("the output and the files are\n%s", got)
	}
}

// TestConformReport shows that -report and -o json give the same report.
func TestConformReport(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "r.json")
	o := tellProcess(t, "conform", "-run", "^Store/Reply$", "-seed", "7", "-report", file, "-o", "json", "valkey://sound")
	text, err := os.ReadFile(file)
	if err != nil || o.out != string(text) {
		t.Errorf("the file has\n%s (%v)\nthe output has\n%s%s", text, err, o.out, o.err)
	}
	var r struct {
		Store, Client, Server string
		Passed                int
		Settings              struct {
			Keys, Peer, Brief bool
			Seed              string
		}
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if r.Store != "valkey" || !strings.HasPrefix(r.Client, "valkey-go ") || r.Server != "Fake 1" || r.Passed != 1 || !r.Settings.Keys || !r.Settings.Peer || r.Settings.Brief || r.Settings.Seed != "7" {
		t.Errorf("got %+v", r)
	}
	if _, err := os.Stat(strings.TrimSuffix(file, ".json") + ".md"); err != nil {
		t.Error(err)
	}
}
