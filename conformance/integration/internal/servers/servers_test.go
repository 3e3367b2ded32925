package servers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
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
			rdb := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: server.Addrs, IsClusterMode: server.Cluster})
			defer rdb.Close()
			for i := range 100 {
				key := fmt.Sprintf("servers:%d", i)
				if err := rdb.Set(ctx, key, i, time.Minute).Err(); err != nil {
					t.Fatal(err)
				}
			}
			if strings.HasPrefix(server.Name, "external") {
				return
			}
			for _, addr := range server.Addrs {
				checkNode(t, server, addr)
			}
			if server.Cluster && len(server.Nodes) != nodes {
				t.Errorf("got %d nodes, want %d", len(server.Nodes), nodes)
			}
		})
	}
}

func checkNode(t *testing.T, server *Server, addr string) {
	t.Helper()
	node := dial(addr)
	defer node.Close()
	info, err := node.Info(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	// Valkey gives a redis_version too, that of the Redis it forked from.
	field, mode := "\nredis_version:", "\nredis_mode:standalone"
	kind, version, _ := strings.Cut(strings.Replace(server.Name, "-cluster", "", 1), "-")
	if kind == "valkey" {
		field, mode = "\nvalkey_version:", "\nserver_mode:standalone"
	}
	if server.Cluster {
		mode = strings.Replace(mode, "standalone", "cluster", 1)
	}
	for _, want := range []string{field + version + ".", mode} {
		if !strings.Contains(info, want) {
			t.Errorf("%s: INFO has no %q", addr, strings.TrimSpace(want))
		}
	}
}
