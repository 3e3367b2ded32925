package integration

import (
	"bytes"
	"cmp"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-go/weir/conformance/integration/internal/reports"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/internal/report"
)

// buildTool builds cmd/weir as a static program, which is removed when t ends.
func buildTool(t *testing.T) string {
	t.Helper()
	servers.Need(t)
	file := filepath.Join(t.TempDir(), "weir")
	c := exec.CommandContext(t.Context(), "go", "build", "-o", file, ".")
	c.Dir, c.Env = filepath.Join(root, "cmd/weir"), append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return file
}

// runTool runs the program file with a store, and returns its exit code and its output.
func runTool(t *testing.T, file, storeURL string, env []string, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	c := exec.CommandContext(t.Context(), file, args...)
	c.Env = append(append(os.Environ(), "WEIR_STORE="+storeURL), env...)
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// toolURL returns the URL of a server for cmd/weir, and the environment that it needs.
func toolURL(t *testing.T, s *servers.Server, scheme string) (string, []string) {
	t.Helper()
	if s.Kind == servers.Postgres {
		adminPool(t, s)
		return s.PostgresURL(limiterRole, limiterPassword, ""), nil
	}
	s.Start(t)
	e, query := s.Admin(), url.Values{}
	var env []string
	if e.TLS != nil {
		scheme += "s"
		example := httptest.NewTLSServer(nil)
		defer example.Close()
		file := filepath.Join(t.TempDir(), "ca.pem")
		block := &pem.Block{Type: "CERTIFICATE", Bytes: example.Certificate().Raw}
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		env = []string{"SSL_CERT_FILE=" + file}
	}
	if e.Kind != servers.Single {
		scheme += "+" + string(e.Kind)
	}
	if e.Kind == servers.Sentinel {
		query.Set("master_name", e.Master)
	}
	query["addr"] = e.Addrs[1:]
	if len(e.Addrs) == 1 {
		delete(query, "addr")
	}
	u := url.URL{Scheme: scheme, Host: e.Addrs[0], RawQuery: query.Encode()}
	if e.User != "" {
		u.User = url.UserPassword(e.User, e.Password)
	}
	return u.String(), env
}

// TestTool shows that weir conform runs the checks of the matrix on each kind of server. Only the
// checks of batches run, because TestMatrix runs all, or with WEIR_TOOL_RUN, those that match it.
func TestTool(t *testing.T) {
	notShort(t)
	notLight(t)
	published, err := reports.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	program := buildTool(t)
	pattern := cmp.Or(os.Getenv("WEIR_TOOL_RUN"), "^Batch/")
	for _, test := range []struct{ client, server string }{
		{"goredis", "redis-8.0"}, {"goredis", "redis-cluster-8.0"}, {"goredis", "sentinel-8.0"}, {"goredis", "tls-8.0"},
		{"rueidis", "redis-cluster-8.0"}, {"rueidis", "sentinel-8.0"}, {"redigo", "tls-8.0"}, {"redigo", "redis-cluster-8.0"},
		{"valkey", "valkey-9.1"}, {"valkey", "tls-8.0"}, {"postgres", "postgres-18"},
	} {
		t.Run(test.client+"-"+test.server, func(t *testing.T) {
			busyParallel(t)
			progress(t)
			all := slices.Concat(servers.All(), servers.AllPostgres())
			server := all[slices.IndexFunc(all, func(s *servers.Server) bool { return s.Name == test.server })]
			storeURL, env := toolURL(t, server, map[bool]string{true: "valkey", false: "redis"}[test.client == "valkey"])
			file := filepath.Join(t.TempDir(), "report.json")
			code, out, errs := runTool(t, program, storeURL, env,
				"conform", "-client", test.client, "-brief", "-script-flush", "-run", pattern, "-report", file)
			if code != 0 || errs != "" {
				t.Errorf("the exit code is %d\n%s%s", code, out, errs)
			}
			if server.Admin().Password != "" && strings.Contains(out+errs, server.Admin().Password) {
				t.Error("the output has the password")
			}
			compareReport(t, published, test.client+"-"+test.server, file)
		})
	}
}

// compareReport compares what a report says of the store and the server with the published one of
// that name.
func compareReport(t *testing.T, published *reports.Reports, name, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got report.Report
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(published.Runs, func(r reports.Run) bool { return r.Name == name })
	if i < 0 {
		t.Fatalf("there is no report %q", name)
	}
	want := published.Runs[i]
	type head struct {
		Store, Client, Server, Type string
		Batch                       bool
		Settings                    report.Settings
	}
	if g, w := (head{got.Store, got.Client, got.Server, got.Type, got.Batch, got.Settings}), (head{want.Store, want.Client, want.Server, want.Type, want.Batch, want.Settings}); g != w {
		t.Errorf("got %+v\nwant %+v", g, w)
	}
	if got.Passed == 0 || got.Failed > 0 {
		t.Errorf("%d checks passed, and %d failed", got.Passed, got.Failed)
	}
}

// TestToolOperates runs the commands of operators against a server, a cluster and
// PostgreSQL.
func TestToolOperates(t *testing.T) {
	notShort(t)
	notLight(t)
	program := buildTool(t)
	id := regexp.MustCompile(`^[A-Z2-7]{26}\n$`)
	limits, err := filepath.Abs(filepath.Join(root, "cmd/weir/testdata/limits.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"redis-8.0", "redis-cluster-8.0", "postgres-18"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := slices.Concat(servers.All(), servers.AllPostgres())
			server := all[slices.IndexFunc(all, func(s *servers.Server) bool { return s.Name == name })]
			storeURL, env := toolURL(t, server, "redis")
			tool := func(want int, args ...string) string {
				t.Helper()
				code, out, errs := runTool(t, program, storeURL, env, args...)
				if code != want {
					t.Errorf("%q: the exit code is %d, want %d\n%s%s", args, code, want, out, errs)
				}
				return out
			}
			key := []string{"-prefix", "weirtool", limits, "api", "acme", "ann"}
			paused := tool(0, slices.Concat([]string{"pause", "-for", "5m"}, key)...)
			if !id.MatchString(paused) {
				t.Errorf("pause printed %q", paused)
			}
			if out := tool(1, slices.Concat([]string{"explain", "-short"}, key)...); !strings.Contains(out, `denied by rule "pause"`) {
				t.Errorf("explain printed %q", out)
			}
			if out := tool(0, "list", "-prefix", "weirtool", limits, "api", "acme"); !strings.Contains(out, "tenant=acme user=ann") {
				t.Errorf("list printed %q", out)
			}
			tool(0, slices.Concat([]string{"resume", "-id", strings.TrimSpace(paused)}, key)...)
			tool(1, slices.Concat([]string{"resume", "-id", strings.TrimSpace(paused)}, key)...)
			if out := tool(0, slices.Concat([]string{"explain"}, key)...); !strings.Contains(out, "weirtool:api:{acme}:user.f2:ann (slot 11304)") {
				t.Errorf("explain printed %q", out)
			}
			tool(0, slices.Concat([]string{"reset", "-yes"}, key)...)
			tool(2, slices.Concat([]string{"reset"}, key)...) // nobody can be asked
		})
	}
}
