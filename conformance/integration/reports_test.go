package integration

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	redigoclient "github.com/gomodule/redigo/redis"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/mna/redisc"
	"github.com/redis/go-redis/v9"
	rueidisclient "github.com/redis/rueidis"
	valkeyclient "github.com/valkey-io/valkey-go"

	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/conformance/integration/internal/reports"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/internal/report"
)

// clients are the clients by store, each with a function of its module.
var clients = map[string]struct {
	name     string
	function any
}{
	"goredis":  {"go-redis", redis.NewClient},
	"rueidis":  {"rueidis", rueidisclient.NewClient},
	"redigo":   {"redigo", redigoclient.Dial},
	"valkey":   {"valkey-go", valkeyclient.NewClient},
	"postgres": {"pgx", pgxpool.NewWithConfig},
}

// versionOf returns the version of the module that has a function, or "?". It is in the
// name of the source file: the build information of a test has no versions.
func versionOf(function any) string {
	f := runtime.FuncForPC(reflect.ValueOf(function).Pointer())
	file, _ := f.FileLine(f.Entry())
	if m := regexp.MustCompile(`@(v[^/]+)/`).FindStringSubmatch(filepath.ToSlash(file)); m != nil {
		return m[1]
	}
	return "?"
}

// reportDir is the directory for reports of the matrix. If it is empty, there are none.
var reportDir = os.Getenv("WEIR_REPORTS")

// reportOf returns the report of a run with a store on a server, or nil if there is none.
func reportOf(storeName, serverName, product string) *conformance.Report {
	if reportDir == "" || strings.HasPrefix(serverName, "external") {
		return nil
	}
	c := clients[storeName]
	return &conformance.Report{
		File:   filepath.Join(reportDir, storeName+"-"+serverName+".json"),
		Store:  storeName,
		Client: c.name + " " + versionOf(c.function),
		Server: product,
	}
}

// matrixReport returns the report of a run on server, which has started, or nil if there is
// none.
func matrixReport(t *testing.T, a adapter, server *servers.Server) *conformance.Report {
	t.Helper()
	r := reportOf(a.name, server.Name, "")
	if r == nil {
		return nil
	}
	info, err := servers.Client(t, server.Admin()).Info(t.Context(), "server").Result()
	if err != nil {
		t.Fatal(err)
	}
	r.Server = productOf(info) + map[servers.Kind]string{servers.Cluster: ", cluster", servers.Sentinel: ", Sentinel"}[server.Kind]
	if server.TLS != nil {
		r.Server += ", TLS"
	}
	if a.name == "redigo" && server.Kind == servers.Cluster {
		r.Client += ", redisc " + versionOf((*redisc.Cluster).Get)
	}
	return r
}

// productOf returns the name and the version in a reply to INFO. The others too give a
// redis_version: the version of the Redis that they forked or that they are like.
func productOf(info string) string {
	for _, product := range []string{"Valkey", "Redict", "Dragonfly", "Kvrocks", "Redis"} {
		if m := regexp.MustCompile(`(?m)^` + strings.ToLower(product) + `_version:(\S+)`).FindStringSubmatch(info); m != nil {
			return product + " " + m[1]
		}
	}
	return "a server of unknown version"
}

const root = "../.."

// TestReports checks that docs/conformance has what its data gives, and no other file.
func TestReports(t *testing.T) {
	all, err := reports.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range all.Files() {
		if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(got) != want {
			t.Errorf("%s is not what the reports give (%v): run make reports", name, err)
		}
	}
	got, err := filepath.Glob(filepath.Join(root, "docs/conformance/*"))
	if want := []string{filepath.Join(root, reports.Page), filepath.Join(root, reports.Data)}; err != nil || !slices.Equal(got, want) {
		t.Errorf("docs/conformance has %q (%v), want %q", got, err, want)
	}
}

// TestReportsComplete checks that docs/conformance has a report for each store on each server
// of the matrix that the store can use, and no other report. A server whose image is optional
// can be left out, for all stores.
func TestReportsComplete(t *testing.T) {
	all, err := reports.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, r := range all.Runs {
		got = append(got, r.Name)
	}
	add := func(s *servers.Server, stores ...string) {
		for i, name := range stores {
			stores[i] = name + "-" + s.Name
		}
		if !s.Optional() || slices.ContainsFunc(stores, func(name string) bool { return slices.Contains(got, name) }) {
			want = append(want, stores...)
		}
	}
	for _, s := range servers.All() {
		var stores []string
		for _, a := range adapters {
			if a.lacks[s.Kind] == "" && !strings.HasPrefix(s.Name, "external") {
				stores = append(stores, a.name)
			}
		}
		add(s, stores...)
	}
	for _, s := range servers.AllPostgres() {
		add(s, "postgres")
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the reports are\n%q\nwant\n%q\nrun make reports", got, want)
	}
}

// TestReportsCollect checks that runs that failed, that ended early or that differ in their checks
// are not collected, and that neither times nor seeds are.
func TestReportsCollect(t *testing.T) {
	for _, tt := range []struct {
		says, result string // of the second run
		checks       []string
	}{
		{"", report.Passed, []string{"A", "B"}},
		{"the result of the run", report.Failed, []string{"A", "B"}},
		{"the result of the run", report.Incomplete, []string{"A", "B"}},
		{"a.json", report.Passed, []string{"B"}},
	} {
		dir := t.TempDir()
		if _, err := reports.Collect(dir); err == nil {
			t.Error("no reports are no error")
		}
		for name, r := range map[string]report.Report{"a.json": {Result: report.Passed}, "b.json": {Result: tt.result}} {
			checks := []string{"A", "B"}
			if name == "b.json" {
				checks = tt.checks
			}
			r.Started, r.Millis = time.Now(), 98
			for _, check := range checks {
				r.Checks = append(r.Checks, report.Check{Name: check, Result: report.Skipped, Seed: 98, Millis: 98})
			}
			if err := os.WriteFile(filepath.Join(dir, name), r.JSON(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		all, err := reports.Collect(dir)
		if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%+v: got %v, want an error that says %q", tt, err, tt.says)
		}
		if err == nil && regexp.MustCompile("98|started|milliseconds|seed").MatchString(all.Files()[reports.Data]) {
			t.Errorf("the data has a time or a seed:\n%s", all.Files()[reports.Data])
		}
	}
}
