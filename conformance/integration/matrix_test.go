// Package integration runs the conformance suite on every store, client and
// server of the matrix. go.mod requires the newest clients; oldest.mod, with
// -modfile, those that the root module does.
package integration

import (
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

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // it tells of each dial that fails
	servers.Main(m)
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// miniredisUnsupported are the rules that miniredis cannot keep.
var miniredisUnsupported = map[string]string{
	"Store/Expiry": "miniredis lets keys expire when it is told to, not with time",
	"Hygiene/TTL":  "miniredis lets keys expire when it is told to, not with time",
}

// externalSkips are the rules that would disturb the other users of a server.
var externalSkips = map[string]string{
	"Store/ScriptLoss": "backend gives no DropScripts",
	"Batch/ScriptLoss": "backend gives no DropScripts",
}

// TestMatrix runs every adapter on every server, and holds what was run
// against what was to be run, so that an early return cannot pass for a pass.
func TestMatrix(t *testing.T) {
	var m manifest
	t.Run("on", func(t *testing.T) {
		for _, a := range adapters {
			t.Run(a.name+"/miniredis", func(t *testing.T) {
				t.Parallel()
				m.begin(a.name, "miniredis")
				e := servers.Endpoint{Kind: servers.Single, Addrs: []string{miniredis.RunT(t).Addr()}}
				m.run(t, a, "miniredis", e, e, miniredisUnsupported)
			})
			for _, server := range servers.All() {
				t.Run(a.name+"/"+server.Name, func(t *testing.T) {
					t.Parallel()
					m.begin(a.name, server.Name)
					if reason := a.lacks[server.Kind]; reason != "" {
						t.Skip(reason)
					}
					server.Start(t)
					e := server.Endpoint
					if e.User != "" {
						e = server.Grant(t, "~weir* "+servers.ACL+" "+a.words[server.Kind])
					}
					m.run(t, a, server.Name, e, server.Admin(), nil)
				})
			}
		}
	})
	m.compare(t)
}

// A manifest is what became of each rule, by store and server.
type manifest struct {
	mu       sync.Mutex
	begun    []string                       // adapter/server
	outcomes map[string]conformance.Outcome // by adapter/server/rule
}

func (m *manifest) begin(adapter, server string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begun = append(m.begun, adapter+"/"+server)
}

// run checks every rule on the store that a makes of e. The suite itself looks
// into the server, and empties its script cache, by way of admin.
func (m *manifest) run(t *testing.T, a adapter, server string, e, admin servers.Endpoint, unsupported map[string]string) {
	rdb := servers.Client(t, admin)
	b := conformance.Backend{
		New:         func(t *testing.T) store.Store { return a.store(t, e) },
		Keys:        func(t *testing.T, _ store.Store, part string) map[string]time.Duration { return keys(t, rdb, part) },
		Peer:        func(t *testing.T, _ store.Store) store.Store { return a.store(t, e) },
		DropScripts: func(t *testing.T, _ store.Store) { flushScripts(t, rdb) },
		Unsupported: unsupported,
		Record: func(o conformance.Outcome) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.outcomes == nil {
				m.outcomes = map[string]conformance.Outcome{}
			}
			m.outcomes[a.name+"/"+server+"/"+o.Rule] = o
		},
	}
	if strings.HasPrefix(server, "external") {
		b.DropScripts = nil
	}
	conformance.Run(t, b)
}

// product returns every pair of adapter and server, and the kind of the server.
func product() map[string]servers.Kind {
	pairs := map[string]servers.Kind{}
	for _, a := range adapters {
		pairs[a.name+"/miniredis"] = servers.Single
		for _, server := range servers.All() {
			pairs[a.name+"/"+server.Name] = server.Kind
		}
	}
	return pairs
}

// compare writes the manifest to manifest.txt, and fails if a rule was neither
// passed nor skipped for a declared reason.
func (m *manifest) compare(t *testing.T) {
	if pattern := flag.Lookup("test.run").Value.String(); pattern != "" && pattern != "TestMatrix" {
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
		lack := lacks(name, pairs[pair])
		for _, rule := range conformance.Rules() {
			o, ran := m.outcomes[pair+"/"+rule]
			line := "passed"
			switch {
			case lack != "":
				line = "skipped: " + lack
				if ran {
					t.Errorf("%s %s: run, although: %s", pair, rule, lack)
				}
			case ran && o.Passed: // as it should be
			case ran && o.Skipped != "":
				line = "skipped: " + o.Skipped
				if reason := declared(name, server, rule); reason == "" || !strings.Contains(o.Skipped, reason) {
					t.Errorf("%s %s: skipped without being declared: %s", pair, rule, o.Skipped)
				}
			case ran:
				line = "FAILED"
				t.Errorf("%s %s: failed", pair, rule)
			default:
				line = "not run" // no Docker engine
				if required || server == "miniredis" {
					t.Errorf("%s %s: not run", pair, rule)
				}
			}
			fmt.Fprintf(&text, "%s %s %s %s\n", name, server, rule, line)
		}
	}
	if err := os.WriteFile("manifest.txt", []byte(text.String()), 0o644); err != nil {
		t.Error(err)
	}
}

// lacks is the reason for which an adapter is not run on servers of a kind, ""
// if it is.
func lacks(name string, kind servers.Kind) string {
	for _, a := range adapters {
		if a.name == name {
			return a.lacks[kind]
		}
	}
	return ""
}

// declared is the reason for which a rule may be skipped, "" if it may not.
func declared(name, server, rule string) string {
	for _, a := range adapters {
		if a.name == name && a.skips[rule] != "" {
			return a.skips[rule]
		}
	}
	switch {
	case server == "miniredis":
		return miniredisUnsupported[rule]
	case strings.HasPrefix(server, "external"):
		return externalSkips[rule]
	}
	return ""
}

// eachMaster calls f with a client of every master.
func eachMaster(ctx context.Context, c redis.UniversalClient, f func(context.Context, *redis.Client) error) error {
	if cluster, ok := c.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, f)
	}
	return f(ctx, c.(*redis.Client))
}

// keys lists the keys that contain part.
func keys(t *testing.T, c redis.UniversalClient, part string) map[string]time.Duration {
	var mu sync.Mutex
	found := map[string]time.Duration{}
	err := eachMaster(t.Context(), c, func(ctx context.Context, node *redis.Client) error {
		for it := node.Scan(ctx, 0, "*"+part+"*", 10_000).Iterator(); ; {
			if !it.Next(ctx) {
				return it.Err()
			}
			ttl, err := node.PTTL(ctx, it.Val()).Result()
			if err != nil {
				return err
			}
			mu.Lock()
			found[it.Val()] = ttl
			mu.Unlock()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func flushScripts(t *testing.T, c redis.UniversalClient) {
	err := eachMaster(t.Context(), c, func(ctx context.Context, node *redis.Client) error {
		return node.ScriptFlush(ctx).Err()
	})
	if err != nil {
		t.Fatal(err)
	}
}
