package servers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) { Main(m) }

// TestServers holds each server to its name, since what the others find out is
// said of that version.
func TestServers(t *testing.T) {
	for _, server := range All() {
		t.Run(server.Name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			server.Start(t)
			t.Logf("ready after %v at %v", time.Since(began).Round(time.Millisecond), server.Addrs)

			ctx := t.Context()
			rdb := Client(t, server.Endpoint)
			for i := range 100 {
				key := fmt.Sprintf("weirtest-servers-%d", i)
				if err := rdb.Set(ctx, key, i, time.Minute).Err(); err != nil {
					t.Fatal(err)
				}
			}
			if strings.HasPrefix(server.Name, "external") {
				return
			}
			for _, node := range server.Nodes {
				checkNode(t, server, node)
			}
			if want := map[Kind]int{Single: 1, Cluster: nodes, Sentinel: 2}[server.Kind]; len(server.Nodes) != want {
				t.Errorf("got %d nodes, want %d", len(server.Nodes), want)
			}
			if server.Kind == Sentinel && len(server.Sentinels) != sentinels {
				t.Errorf("got %d sentinels, want %d", len(server.Sentinels), sentinels)
			}
		})
	}
}

func checkNode(t *testing.T, server *Server, node *Node) {
	t.Helper()
	rdb := node.dial()
	defer rdb.Close()
	info, err := rdb.Info(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	// Forks give a redis_version too: the version of the Redis that they forked.
	kind, version, versioned := strings.Cut(server.version, "-")
	if !versioned {
		return
	}
	field, mode := "\n"+kind+"_version:", "\n"+kind+"_mode:standalone"
	if kind == "valkey" {
		mode = "\nserver_mode:standalone"
	}
	if server.Kind == Cluster {
		mode = strings.Replace(mode, "standalone", "cluster", 1)
	}
	if !strings.HasSuffix(server.Name, "-"+version) {
		t.Errorf("the version is %s", version)
	}
	for _, want := range []string{field + version + ".", mode} {
		if !strings.Contains(info, want) {
			t.Errorf("%s: INFO has no %q", node.Addr, strings.TrimSpace(want))
		}
	}
}

// TestMissing checks that only an optional image that no variable names can be missing.
func TestMissing(t *testing.T) {
	Need(t)
	before := optional
	t.Cleanup(func() {
		optional = before
		delete(images, "none-1")
	})
	images["none-1"] = "weir-none:1"
	if got := missing("none-1"); got != "" {
		t.Errorf("a required image: got %q", got)
	}
	optional = append(slices.Clone(optional), "none-1", "redis-8.0")
	const want = `the engine has no image "weir-none:1", and WEIR_IMAGE_NONE_1 names no other`
	if got := missing("none-1"); got != want {
		t.Errorf("an optional image: got %q, want %q", got, want)
	}
	if got := missing("redis-8.0"); got != "" {
		t.Errorf("an image that is there: got %q", got)
	}
	t.Setenv("WEIR_IMAGE_NONE_1", "weir-none:2")
	if got := missing("none-1"); got != "" {
		t.Errorf("an image that a variable names: got %q", got)
	}
}
