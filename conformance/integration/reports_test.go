package integration

import (
	"maps"
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

// TestVersionOf checks that the versions of all clients are known.
func TestVersionOf(t *testing.T) {
	for store, c := range clients {
		if got := versionOf(c.function); !strings.HasPrefix(got, "v") {
			t.Errorf("%s: the version of %s is %q", store, c.name, got)
		}
	}
	if got := versionOf(versionOf); got != "?" {
		t.Errorf("the version of this module is %q", got)
	}
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

func TestProductOf(t *testing.T) {
	for info, want := range map[string]string{
		"# Server\r\nredis_version:6.0.16\r\nredis_mode:standalone\r\n":                            "Redis 6.0.16",
		"# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1\r\nx:1\r\n": "Valkey 8.1.1",
		"# Server\r\nredict_version:7.3.6\r\nredict_mode:standalone\r\nredis_version:7.2.4\r\n":    "Redict 7.3.6",
		"": "a server of unknown version",
	} {
		if got := productOf(info); got != want {
			t.Errorf("%q: got %q, want %q", info, got, want)
		}
	}
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

// TestReportFiles checks the files that invented reports give.
func TestReportFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, r report.Report) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), r.JSON(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	of := func(store, server, result string, passed, skipped int) report.Report {
		r := report.Report{
			Store: store, Client: store + " v1", Server: server, Type: "*" + store + ".Store", Weir: "v2",
			Settings: report.Settings{Keys: true}, Started: time.Now(), Result: result, Passed: passed, Skipped: skipped, Millis: 99,
			Checks: []report.Check{{Name: "A", Result: result, Seed: 98, Millis: 97}, {Name: "B", Result: report.Passed, Seed: 98, Millis: 97}},
		}
		if skipped > 0 {
			r.Checks[1] = report.Check{Name: "B", Result: report.Skipped, Reason: "no b", Seed: 98, Millis: 97}
		}
		return r
	}
	if _, err := reports.Collect(dir); err == nil {
		t.Error("no reports are no error")
	}
	write("b-x.json", of("b", "X 1", report.Passed, 7, 0))
	write("a-x.json", of("a", "X 1", report.Passed, 5, 2))
	write("a-y.json", of("a", "Y 1", report.Passed, 4, 3))
	all, err := reports.Collect(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := all.Files()
	const table = "| Server | a | b |\n|---|---|---|\n| X 1 | 5 (2) | 7 (0) |\n| Y 1 | 4 (3) | – |\n\n"
	page := files[reports.Page]
	for _, want := range []string{
		"of the 2 checks", table,
		"| a | a v1 |\n| b | b v1 |\n\n",
		"|---|---|---|\n| B | no b | a |\n\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("want\n%s\nin\n%s", want, page)
		}
	}
	data := files[reports.Data]
	if regexp.MustCompile("9[789]|started|milliseconds|seed").MatchString(data) {
		t.Errorf("the data has a time or a seed:\n%s", data)
	}
	if len(files) != 2 {
		t.Errorf("there are %d files", len(files))
	}

	// The data gives all files again.
	other := t.TempDir()
	if err := os.MkdirAll(filepath.Dir(filepath.Join(other, reports.Data)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, reports.Data), []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
	if all, err = reports.Read(other); err != nil {
		t.Fatal(err)
	}
	if again := all.Files(); !maps.Equal(again, files) {
		t.Errorf("the files are\n%q\nand, from the data,\n%q", files, again)
	}

	for _, result := range []string{report.Failed, report.Incomplete, ""} {
		write("c-x.json", of("c", "X 1", result, 7, 0))
		if _, err := reports.Collect(dir); err == nil {
			t.Errorf("the result %q is no error", result)
		}
	}
	r := of("c", "X 1", report.Passed, 7, 0)
	r.Checks = r.Checks[1:]
	write("c-x.json", r)
	if _, err := reports.Collect(dir); err == nil || !strings.Contains(err.Error(), "a-x.json") {
		t.Errorf("runs of different checks: error %v", err)
	}
}
