// Package integration runs the conformance suite with every store on every server of the
// matrix. go.mod requires the newest clients. oldest.mod, with -modfile, requires the
// clients that the root module does.
package integration

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/examples/patterns"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // it logs each failed dial
	servers.Main(m)
}

// notShort skips a test that takes minutes, if go test has the flag -short.
func notShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short")
	}
}

// share makes tests that take long and depend on the client share their cases between the two
// runs of .ci/run: the odd ones run with the newest clients, and the even ones with the oldest.
var share = flag.Int("share", 0, "run every second case of some tests: 1 or 2; 0 means all")

// shared reports whether case i is in this share.
func shared(i int) bool { return *share == 0 || i%2 == *share-1 }

// light reports whether this run leaves to the others what is the same Go for every client and
// server, or no Go at all. That is the first share, and a run with the race detector, which makes
// everything slow.
func light() bool { return weirtest.Race || *share == 1 }

// notLight skips a test in a light run.
func notLight(t *testing.T) {
	t.Helper()
	if light() {
		t.Skip("left to a run that is not light")
	}
}

// lanes has room for the parallel tests that keep a processor busy.
var lanes = make(chan struct{}, 4)

// busyParallel is t.Parallel for a test that keeps a processor busy: a few of these run at
// once. go test -parallel also counts tests that mostly wait.
func busyParallel(t *testing.T) {
	t.Parallel()
	lanes <- struct{}{}
	t.Cleanup(func() { <-lanes })
}

// lonely is held by the test that takes every lane.
var lonely sync.Mutex

// aloneParallel is t.Parallel for a test whose calls have a deadline and a cost to a
// server that is several processes. Meanwhile, no test runs that keeps a processor busy.
// On a busy machine, calls that miss their deadline close their connections, and
// connecting again makes the machine busier still.
func aloneParallel(t *testing.T) {
	t.Parallel()
	lonely.Lock()
	for range cap(lanes) {
		lanes <- struct{}{}
	}
	t.Cleanup(func() {
		for range cap(lanes) {
			<-lanes
		}
		lonely.Unlock()
	})
}

// progress prints the outcome of t when it ends, if WEIR_PROGRESS is 1 and t is not skipped.
func progress(t *testing.T) {
	if os.Getenv("WEIR_PROGRESS") != "1" {
		return
	}
	start := time.Now()
	t.Cleanup(func() {
		outcome := "ok  "
		switch {
		case t.Failed():
			outcome = "FAIL"
		case t.Skipped():
			return
		}
		fmt.Fprintf(os.Stderr, "%s %s %.1fs\n", outcome, t.Name(), time.Since(start).Seconds())
	})
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// processSkips are the checks that need another process, in which a test of this module
// would start its servers again.
var processSkips = map[string]string{
	"Store/Processes":   "backend gives no Where and Open",
	"Store/ProcessWait": "backend gives no Where and Open",
}

// externalSkips are the checks that would disturb other users of a server.
var externalSkips = map[string]string{
	"Store/ScriptLoss": "backend gives no DropScripts",
	"Batch/ScriptLoss": "backend gives no DropScripts",
}

// noWrites is skipped everywhere: the servers have other users, who write too.
var noWrites = map[string]string{"Limiter/Writes": "backend gives no Writes"}

// TestMatrix runs the suite and every published pattern with every adapter on every server. It
// compares the checks that ran with those that must run, so an early return is not taken for a pass.
func TestMatrix(t *testing.T) {
	t.Parallel()
	var m manifest
	t.Run("on", func(t *testing.T) {
		for i, a := range adapters {
			if a.onMiniredis() {
				t.Run(a.name+"/miniredis", func(t *testing.T) {
					busyParallel(t)
					progress(t)
					m.begin(a.name, "miniredis")
					m.run(t, a, "miniredis", i == 0, a.eachMiniredis, nil)
					runPatterns(t, a.eachMiniredis(t).st)
				})
			}
			for _, server := range a.servers() {
				t.Run(a.name+"/"+server.Name, func(t *testing.T) {
					busyParallel(t)
					progress(t)
					m.begin(a.name, server.Name)
					if reason := a.without(server); reason != "" {
						t.Skip(reason)
					}
					where := a.on(t, server)
					long := a.thorough(server) && (server.Name == "redis-8.0" || server.Name == "valkey-9.1")
					m.run(t, a, server.Name, long, where, matrixReport(t, a, server))
					runPatterns(t, where(t).st)
				})
			}
		}
	})
	m.compare(t)
}

// runPatterns runs every published pattern. It must print what it prints over the memory store, which
// the examples of package patterns check.
func runPatterns(t *testing.T, st store.Store) {
	for _, p := range patterns.All() {
		var got, want bytes.Buffer
		if err := p.Run(t.Context(), &want, memory.New(nil)); err != nil {
			t.Errorf("%s, memory: %v", p.Name, err)
		}
		if err := p.Run(t.Context(), &got, st); err != nil || want.Len() == 0 || got.String() != want.String() {
			t.Errorf("%s: %v, got:\n%s\nthe memory store prints:\n%s", p.Name, err, got.String(), want.String())
		}
	}
}

// A manifest has the outcome of each check, by store and server.
type manifest struct {
	mu       sync.Mutex
	begun    []string                       // adapter/server
	outcomes map[string]conformance.Outcome // by adapter/server/check
}

func (m *manifest) begin(adapter, server string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begun = append(m.begun, adapter+"/"+server)
}

// run runs every check on the stores of where: see adapter.backend. Random checks compare the
// answers of scripts, which do not depend on the adapter, so they are long with one adapter, on
// miniredis and on two servers. The race detector makes none of them better.
func (m *manifest) run(t *testing.T, a adapter, server string, long bool, where func(*testing.T) place, report *conformance.Report) {
	b := a.backend(where)
	b.Report = report
	b.Record = func(o conformance.Outcome) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.outcomes == nil {
			m.outcomes = map[string]conformance.Outcome{}
		}
		m.outcomes[a.name+"/"+server+"/"+o.Check] = o
	}
	if strings.HasPrefix(server, "external") {
		b.DropScripts = nil
	}
	b.Brief = !long || light()
	conformance.Run(t, b)
}

// onMiniredis reports whether the suite runs with a on miniredis. It stands for the servers
// where there are none. Where there are, one adapter shows that its interpreter of Lua runs the
// scripts. In a light run, none does.
func (a adapter) onMiniredis() bool {
	return !servers.Available() || !light() && a.name == adapters[0].name
}

// thorough reports whether a is the adapter that stands for the others on the server.
func (a adapter) thorough(server *servers.Server) bool {
	n := slices.IndexFunc(adapters, func(a adapter) bool { return a.brief })
	return adapters[slices.Index(servers.All(), server)%n].name == a.name
}

// without returns why the suite does not run with a on a server of a.servers, or "" if it does.
func (a adapter) without(server *servers.Server) string {
	return cmp.Or(a.lacks[server.Kind], server.Missing())
}

// oneAdapter reports whether the suite runs with one adapter on a server, unless it writes
// reports: the server differs from the others in what scripts call, and not in what adapters
// send.
func oneAdapter(s *servers.Server) bool {
	switch s.Name {
	case "redis-8.6", "redis-cluster-8.6", "redict-7.3", "valkey-cluster-9.1", "redis-8.10", "valkey-9.2", "dragonfly", "kvrocks":
		return reportDir == ""
	}
	return false
}

// servers returns the servers on which the suite runs with a. For reports, those are all.
// In a light run, and so for the newest clients in .ci/run, they are the oldest server and a
// cluster. Otherwise, a version between the oldest and the
// newest has only the adapter that is thorough there, as have the servers of which oneAdapter is
// true.
func (a adapter) servers() []*servers.Server {
	return slices.DeleteFunc(slices.Clone(servers.All()), func(s *servers.Server) bool {
		switch {
		case strings.HasPrefix(s.Name, "external"):
			return false
		case light():
			return s.Name != "redis-6.0" && s.Name != "redis-cluster-8.0"
		}
		between := reportDir == "" && (s.Name == "redis-7.0" || s.Name == "valkey-8.1")
		return (between || oneAdapter(s)) && !a.thorough(s)
	})
}

// product returns every pair of adapter and server, and why the suite does not run with it,
// or "" if it does.
func product() map[string]string {
	pairs := map[string]string{}
	for _, a := range adapters {
		if a.onMiniredis() {
			pairs[a.name+"/miniredis"] = ""
		}
		for _, server := range a.servers() {
			pairs[a.name+"/"+server.Name] = a.without(server)
		}
	}
	return pairs
}

// compare writes the manifest to manifest.txt. It fails if a check neither passed nor was
// skipped for a declared reason.
func (m *manifest) compare(t *testing.T) {
	if pattern := flag.Lookup("test.run").Value.String(); strings.Contains(pattern, "/") {
		t.Logf("no manifest of a run of %q alone", pattern)
		return
	}
	required := os.Getenv("WEIR_REQUIRE_DOCKER") == "1"
	var text strings.Builder
	pairs := product()
	want := slices.Sorted(maps.Keys(pairs))
	if slices.Sort(m.begun); !slices.Equal(m.begun, want) {
		t.Errorf("these pairs of store and server were begun: %q, want %q", m.begun, want)
	}
	for _, pair := range want {
		name, server, _ := strings.Cut(pair, "/")
		lack := pairs[pair]
		for _, check := range conformance.Checks() {
			o, ran := m.outcomes[pair+"/"+check]
			line := "passed"
			switch {
			case lack != "":
				line = "skipped: " + lack
				if ran {
					t.Errorf("%s %s: it ran, although: %s", pair, check, lack)
				}
			case ran && o.Passed:
			case ran && o.Skipped != "":
				line = "skipped: " + o.Skipped
				if reason := declared(name, server, check); reason == "" || !strings.Contains(o.Skipped, reason) {
					t.Errorf("%s %s: skipped without being declared: %s", pair, check, o.Skipped)
				}
			case ran:
				line = "FAILED"
				t.Errorf("%s %s: failed", pair, check)
			default:
				line = "not run" // no Docker engine
				if required || server == "miniredis" {
					t.Errorf("%s %s: not run", pair, check)
				}
			}
			fmt.Fprintf(&text, "%s %s %s %s\n", name, server, check, line)
		}
	}
	if err := os.WriteFile("manifest.txt", []byte(text.String()), 0o644); err != nil {
		t.Error(err)
	}
}

// declared returns the reason for which a check may be skipped, or "" if it may not.
func declared(name, server, check string) string {
	for _, a := range adapters {
		if a.name == name && a.skips[check] != "" {
			return a.skips[check]
		}
	}
	if strings.HasPrefix(server, "external") && externalSkips[check] != "" {
		return externalSkips[check]
	}
	if check == "Store/Closed" && (name == "rueidis" || name == "valkey") && strings.Contains(server, "cluster") {
		return "store works on" // the client closes its connections in the background
	}
	return cmp.Or(processSkips[check], noWrites[check])
}

// eachMaster calls f with a client of every master.
func eachMaster(ctx context.Context, c redis.UniversalClient, f func(context.Context, *redis.Client) error) error {
	if cluster, ok := c.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, f)
	}
	return f(ctx, c.(*redis.Client))
}

// keys lists the keys that contain part, with two round trips to each master.
func keys(t *testing.T, c redis.UniversalClient, part string) map[string]time.Duration {
	var mu sync.Mutex
	found := map[string]time.Duration{}
	err := eachMaster(t.Context(), c, func(ctx context.Context, node *redis.Client) error {
		for cursor := uint64(0); ; {
			names, next, err := node.Scan(ctx, cursor, "*"+part+"*", 100_000).Result()
			if err != nil {
				return err
			}
			ttls := make([]*redis.DurationCmd, len(names))
			_, err = node.Pipelined(ctx, func(p redis.Pipeliner) error {
				for i, name := range names {
					ttls[i] = p.PTTL(ctx, name)
				}
				return nil
			})
			if err != nil {
				return err
			}
			mu.Lock()
			for i, name := range names {
				if ttl := ttls[i].Val(); ttl != -2 { // -2: the key has expired since
					found[name] = ttl
				}
			}
			mu.Unlock()
			if cursor = next; cursor == 0 {
				return nil
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// unlink deletes the keys that contain part.
func unlink(t *testing.T, c redis.UniversalClient, part string) {
	t.Helper()
	_, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for key := range keys(t, c, part) {
			p.Unlink(t.Context(), key)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func flushScripts(t *testing.T, c redis.UniversalClient) {
	err := eachMaster(t.Context(), c, func(ctx context.Context, node *redis.Client) error {
		return node.ScriptFlush(ctx).Err()
	})
	if err != nil {
		t.Fatal(err)
	}
}
