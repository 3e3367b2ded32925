package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const version = "redis-8.0"

// The faults last as long as servers take to notice them: these tests wait in
// real time.

func TestSingle(t *testing.T) {
	t.Parallel()
	gone(t, func(t *testing.T) *Server {
		server := NewSingle(t, version, "--maxmemory", "3mb", "--requirepass", "secret")
		rdb := Client(t, server.Endpoint)
		if got, err := rdb.ConfigGet(t.Context(), "maxmemory").Result(); err != nil || got["maxmemory"] != "3145728" {
			t.Errorf("maxmemory: got %v, %v", got, err)
		}
		set(t, rdb, "a")
		node := server.Nodes[0]
		node.Pause(t)
		if err := pingOnce(t, node); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("paused: got %v", err)
		}
		node.Unpause(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := poll(ctx, func() error { return pingOnce(t, node) }); err != nil {
			t.Errorf("unpaused: got %v", err)
		}
		node.Kill(t)
		if err := pingOnce(t, node); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("killed: got %v", err)
		}
		node.Restart(t)
		if n, err := rdb.Exists(t.Context(), "a").Result(); err != nil || n != 0 {
			t.Errorf("restarted: got %d keys, %v, want none", n, err)
		}
		node.Pause(t) // what is paused is to be removed too
		return server
	})
}

func TestReplicated(t *testing.T) {
	t.Parallel()
	gone(t, func(t *testing.T) *Server {
		server := NewReplicated(t, version, "--min-replicas-to-write", "1", "--requirepass", "secret")
		rdb, replica := Client(t, server.Endpoint), Client(t, server.Nodes[1].Endpoint())
		set(t, rdb, "a")
		eventually(t, func() error { return replica.Get(t.Context(), "a").Err() })
		if err := replica.Set(t.Context(), "a", 1, 0).Err(); err == nil || !strings.HasPrefix(err.Error(), "READONLY") {
			t.Errorf("on the replica: got %v, want READONLY", err)
		}
		if err := rdb.Do(t.Context(), "FAILOVER").Err(); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error { return replica.Set(t.Context(), "b", 1, 0).Err() })
		server.Nodes[0].Kill(t)
		eventually(t, func() error {
			if err := replica.Set(t.Context(), "b", 1, 0).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOREPLICAS") {
				return fmt.Errorf("got %v, want NOREPLICAS", err)
			}
			return nil
		})
		return server
	})
}

func TestCluster(t *testing.T) {
	t.Parallel()
	gone(t, func(t *testing.T) *Server {
		server := NewCluster(t, version)
		master, replica := server.Nodes[0], Client(t, server.Nodes[masters].Endpoint())
		key := "b" // of slot 3300, which is the first master's
		set(t, Client(t, server.Endpoint), key)
		began := time.Now()
		master.Kill(t)
		eventually(t, func() error { return replica.Get(t.Context(), key).Err() })
		t.Logf("promoted after %v", time.Since(began).Round(time.Millisecond))
		master.Restart(t)
		old := Client(t, master.Endpoint()).(*redis.Client)
		eventually(t, func() error { return inStep(t.Context(), old) })
		return server
	})
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	gone(t, func(t *testing.T) *Server {
		server := NewSentinel(t, version, "--requirepass", "secret")
		rdb := Client(t, server.Endpoint)
		set(t, rdb, "a")
		replica := Client(t, server.Nodes[1].Endpoint())
		eventually(t, func() error { return replica.Get(t.Context(), "a").Err() })
		server.Sentinels[0].Kill(t)
		began := time.Now()
		server.Nodes[0].Kill(t)
		eventually(t, func() error { return rdb.Set(t.Context(), "b", 1, 0).Err() })
		t.Logf("promoted after %v", time.Since(began).Round(time.Millisecond))
		if err := rdb.Get(t.Context(), "a").Err(); err != nil {
			t.Errorf("the replica has not succeeded its master: %v", err)
		}
		server.Sentinels[0].Restart(t)
		server.Nodes[0].Restart(t)
		old := Client(t, server.Nodes[0].Endpoint()).(*redis.Client)
		eventually(t, func() error { return inStep(t.Context(), old) })
		return server
	})
}

func TestTLS(t *testing.T) {
	t.Parallel()
	gone(t, func(t *testing.T) *Server {
		server := NewTLS(t, "valkey-8.1")
		e := server.Endpoint
		if err := Client(t, e).Get(t.Context(), "weir:a").Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("got %v, want no such key", err)
		}
		if err := Client(t, e).Get(t.Context(), "a").Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
			t.Errorf("another key: got %v, want NOPERM", err)
		}
		e.User, e.Password = "", ""
		if err := Client(t, e).Get(t.Context(), "weir:a").Err(); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
			t.Errorf("without user: got %v, want NOAUTH", err)
		}
		e.TLS = nil
		if err := Client(t, e).Ping(t.Context()).Err(); err == nil || isReply(err) {
			t.Errorf("without TLS: got %v, want no reply", err)
		}
		return server
	})
}

// TestReaper lets a process that has servers die, with one of them paused.
func TestReaper(t *testing.T) {
	const variable = "WEIR_TEST_DIE"
	if os.Getenv(variable) != "" {
		server := NewReplicated(t, version)
		server.Nodes[0].Pause(t)
		fmt.Println("run", runID, "begun")
		self, _ := os.FindProcess(os.Getpid())
		_ = self.Kill()
		time.Sleep(time.Minute)
	}
	t.Parallel()
	if err := engine(); err != nil {
		t.Skip(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestReaper$")
	cmd.Env = append(os.Environ(), variable+"=1")
	out, err := cmd.Output()
	if err == nil || !bytes.HasPrefix(out, []byte("run ")) {
		t.Fatalf("got %q, %v, want to hear of a run that was killed", out, err)
	}
	run := strings.Fields(string(out))[1]
	eventually(t, func() error { return noContainers(t.Context(), runLabel+"="+run) })
}

// gone runs f as a test, and checks that its server is removed after it.
func gone(t *testing.T, f func(t *testing.T) *Server) {
	t.Helper()
	var server *Server
	t.Run("fresh", func(t *testing.T) {
		began := time.Now()
		server = f(t)
		t.Logf("all took %v", time.Since(began).Round(time.Millisecond))
	})
	if server == nil {
		return // skipped, or failed
	}
	if err := noContainers(t.Context(), serverLabel+"="+server.id); err != nil {
		t.Error(err)
	}
	for _, node := range server.Nodes {
		if conn, err := net.Dial("tcp", node.Addr); err == nil {
			_ = conn.Close()
			t.Errorf("%s is still there", node.Addr)
		}
	}
}

func noContainers(ctx context.Context, label string) error {
	ids, err := docker(ctx, "ps", "--all", "--quiet", "--filter", "label="+label)
	if err == nil && ids != "" {
		err = fmt.Errorf("containers were left: %s", ids)
	}
	return err
}

func set(t *testing.T, rdb redis.UniversalClient, key string) {
	t.Helper()
	if err := rdb.Set(t.Context(), key, 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
}

// pingOnce asks the node once, over a new connection.
func pingOnce(t *testing.T, node *Node) error {
	e := node.Endpoint()
	rdb := redis.NewClient(&redis.Options{Addr: node.Addr, Password: e.Password, ReadTimeout: 500 * time.Millisecond, MaxRetries: -1})
	defer rdb.Close()
	return rdb.Ping(t.Context()).Err()
}

func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

func eventually(t *testing.T, f func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := poll(ctx, f); err != nil {
		t.Fatal(err)
	}
}
