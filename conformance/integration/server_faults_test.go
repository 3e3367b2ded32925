package integration

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
)

// This file makes single servers suffer.

func init() {
	for name, maker := range map[string]faultMaker{
		"ScriptFlush":       scriptFlush,
		"Restart":           restart,
		"ConnectionsKilled": connectionsKilled,
		"Paused":            paused,
		"ClosedPort":        closedPort,
		"BlackHole":         blackHole,
		"Latency":           toxic("latency", fmt.Sprintf(`{"latency":%d}`, 2*conformance.CallTime.Milliseconds())),
		"Reset":             toxic("limit_data", `{"bytes":1999}`),
		"HalfOpen":          toxic("timeout", `{"timeout":0}`),
		"Loading":           loading,
		"ReadOnly":          readOnly,
		"MasterDown":        masterDown,
		"NoReplicas":        setting("NOREPLICAS", []any{"min-replicas-to-write", "1"}, []any{"min-replicas-to-write", "0"}),
		"Misconf":           misconf,
		"Busy":              busy,
		"NoPermission":      noPermission,
		"WrongPassword":     wrongPassword,
		"TooManyClients":    tooManyClients,
		"OutOfMemory":       setting("OOM", []any{"maxmemory", "1"}, []any{"maxmemory", "0"}),
		"Eviction":          eviction,
	} {
		faultMakers[name] = maker
	}
}

// single starts a server for a, and returns it with a client of its own.
func (a adapter) single(t *testing.T, args ...string) (*servers.Server, *redis.Client) {
	t.Helper()
	server := servers.NewSingle(t, cmp.Or(a.version, "redis-8.0"), args...)
	return server, server.Nodes[0].Client(t)
}

// during returns a fault that lasts while f is called every now and then.
func during(c conformance.Fault, every time.Duration, f func()) conformance.Fault {
	var stop func()
	c.Begin = func() { stop = again(every, f) }
	c.End = func() { stop() }
	return c
}

func scriptFlush(t *testing.T, a adapter, _ string) conformance.Fault {
	server, rdb := a.single(t)
	return during(a.suffers(t, server.Endpoint, rdb), 2*time.Millisecond, func() { must(t, rdb, "SCRIPT", "FLUSH") })
}

func restart(t *testing.T, a adapter, _ string) conformance.Fault {
	server, rdb := a.single(t)
	f := a.suffers(t, server.Endpoint, rdb)
	f.Loses = true // it keeps nothing on disk
	f.Begin = func() { server.Nodes[0].Kill(t) }
	f.End = func() { server.Nodes[0].Restart(t) }
	return f
}

func connectionsKilled(t *testing.T, a adapter, _ string) conformance.Fault {
	server, rdb := a.single(t)
	return during(a.suffers(t, server.Endpoint, rdb), 20*time.Millisecond, func() { must(t, rdb, "CLIENT", "KILL", "TYPE", "normal") })
}

func paused(t *testing.T, a adapter, _ string) conformance.Fault {
	server, rdb := a.single(t)
	f := a.suffers(t, server.Endpoint, rdb)
	f.Begin = func() { server.Nodes[0].Pause(t) }
	f.End = func() { server.Nodes[0].Unpause(t) }
	return f
}

// behind starts a server behind a proxy, and returns the fault over that.
func behind(t *testing.T, a adapter) (*toxiproxy.Proxy, conformance.Fault) {
	t.Helper()
	server, rdb := a.single(t)
	proxy := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "weather", "127.0.0.1:0", server.Addrs[0])
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Stop)
	e := server.Endpoint
	e.Addrs = []string{proxy.Listen}
	return proxy, a.suffers(t, e, rdb)
}

func closedPort(t *testing.T, a adapter, _ string) conformance.Fault {
	proxy, f := behind(t, a)
	f.Begin = proxy.Stop
	f.End = func() {
		if err := proxy.Start(); err != nil {
			t.Error(err)
		}
	}
	return f
}

// blackHole lets a socket that nobody accepts from listen at the address: when
// its queue is full, the system drops whoever calls.
func blackHole(t *testing.T, a adapter, _ string) conformance.Fault {
	proxy, f := behind(t, a)
	_, port, _ := net.SplitHostPort(proxy.Listen)
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	hole := -1
	var waiting []net.Conn
	f.Begin = func() {
		proxy.Stop()
		if hole, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0); err == nil {
			err = syscall.SetsockoptInt(hole, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
		}
		if err == nil {
			err = syscall.Bind(hole, &syscall.SockaddrInet4{Port: number, Addr: [4]byte{127, 0, 0, 1}})
		}
		if err == nil {
			err = syscall.Listen(hole, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		for {
			conn, err := net.DialTimeout("tcp", proxy.Listen, 100*time.Millisecond)
			if err != nil {
				break
			}
			waiting = append(waiting, conn)
		}
	}
	f.End = func() {
		_ = syscall.Close(hole)
		for _, conn := range waiting {
			_ = conn.Close()
		}
		if err := proxy.Start(); err != nil {
			t.Error(err)
		}
	}
	return f
}

// toxic returns a maker of what a proxy does to replies.
func toxic(kind string, attributes string) faultMaker {
	return func(t *testing.T, a adapter, _ string) conformance.Fault {
		proxy, f := behind(t, a)
		f.Begin = func() {
			wrapper := fmt.Sprintf(`{"name":"weather","type":%q,"stream":"downstream","attributes":%s}`, kind, attributes)
			if _, err := proxy.Toxics.AddToxicJson(strings.NewReader(wrapper)); err != nil {
				t.Error(err)
			}
		}
		f.End = func() {
			if err := proxy.Toxics.RemoveToxic(context.Background(), "weather"); err != nil {
				t.Error(err)
			}
		}
		return f
	}
}

// loading restarts a server that has saved its data, which it then loads slowly.
func loading(t *testing.T, a adapter, _ string) conformance.Fault {
	server, rdb := a.single(t, "--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024")
	for i := range 1000 {
		must(t, rdb, "SET", "weather-"+strconv.Itoa(i), strings.Repeat("x", 100))
	}
	must(t, rdb, "SAVE")
	f := a.suffers(t, server.Endpoint, rdb)
	f.Loses = true // what came after the save
	f.Begin = func() {
		server.Nodes[0].Kill(t)
		server.Nodes[0].Restart(t) // returns when all is loaded
	}
	f.End = func() { answered(t, rdb, "LOADING") }
	return f
}

// readOnly lets a master hand over to its replica, behind an address that stays.
func readOnly(t *testing.T, a adapter, _ string) conformance.Fault {
	server := servers.NewReplicated(t, "redis-8.0")
	master, replica := server.Nodes[0].Client(t), server.Nodes[1].Client(t)
	role := func(rdb *redis.Client, want string) func() bool {
		return func() bool {
			info, _ := rdb.Info(context.Background(), "replication").Result()
			return strings.Contains(info, "role:"+want)
		}
	}
	f := a.suffers(t, server.Endpoint, master, replica)
	f.Begin = func() {
		must(t, master, "FAILOVER")
		await(t, "the replica to take over", role(replica, "master"))
	}
	f.End = func() {
		answered(t, master, "READONLY")
		must(t, replica, "FAILOVER")
		await(t, "the master to take over again", role(master, "master"))
	}
	return f
}

func masterDown(t *testing.T, a adapter, _ string) conformance.Fault {
	server, rdb := a.single(t, "--replica-serve-stale-data", "no")
	f := a.suffers(t, server.Endpoint, rdb)
	f.Begin = func() { must(t, rdb, "REPLICAOF", "127.0.0.1", "1") }
	f.End = func() {
		must(t, rdb, "REPLICAOF", "NO", "ONE")
		answered(t, rdb, "MASTERDOWN")
	}
	return f
}

// setting returns a maker of what CONFIG SET does and undoes, to which the server
// answers code.
func setting(code string, begin, end []any) faultMaker {
	return func(t *testing.T, a adapter, _ string) conformance.Fault {
		server, rdb := a.single(t)
		f := a.suffers(t, server.Endpoint, rdb)
		f.Begin = func() { must(t, rdb, append([]any{"CONFIG", "SET"}, begin...)...) }
		f.End = func() {
			must(t, rdb, append([]any{"CONFIG", "SET"}, end...)...)
			answered(t, rdb, code)
		}
		return f
	}
}

// misconf lets a server fail to save: nothing can be written to /proc.
func misconf(t *testing.T, a adapter, _ string) conformance.Fault {
	server, rdb := a.single(t, "--dir", "/proc", "--save", "3600", "1000000", "--stop-writes-on-bgsave-error", "no")
	f := a.suffers(t, server.Endpoint, rdb)
	f.Begin = func() {
		must(t, rdb, "BGSAVE")
		await(t, "the save to fail", func() bool {
			info, _ := rdb.Info(context.Background(), "persistence").Result()
			return strings.Contains(info, "rdb_last_bgsave_status:err")
		})
		must(t, rdb, "CONFIG", "SET", "stop-writes-on-bgsave-error", "yes")
	}
	f.End = func() {
		must(t, rdb, "CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
		answered(t, rdb, "MISCONF")
	}
	return f
}

func busy(t *testing.T, a adapter, _ string) conformance.Fault {
	server, rdb := a.single(t, "--lua-time-limit", "20")
	conn := rdb.Conn() // a busy server greets no new one
	t.Cleanup(func() { _ = conn.Close() })
	must(t, conn, "PING")
	f := a.suffers(t, server.Endpoint, rdb)
	f.Begin = func() {
		go func() { _ = rdb.WithTimeout(time.Minute).Eval(context.Background(), "while true do end", nil).Err() }()
		await(t, "the server to be busy", func() bool {
			err := conn.Ping(context.Background()).Err()
			return err != nil && strings.HasPrefix(err.Error(), "BUSY")
		})
	}
	f.End = func() {
		must(t, conn, "SCRIPT", "KILL")
		await(t, "the script to end", func() bool { return conn.Ping(context.Background()).Err() == nil })
		answered(t, rdb, "BUSY")
	}
	return f
}

func noPermission(t *testing.T, a adapter, _ string) conformance.Fault {
	server, rdb := a.single(t)
	f := a.suffers(t, server.Endpoint, rdb)
	f.Begin = func() { must(t, rdb, "ACL", "SETUSER", "default", "-eval", "-evalsha") }
	f.End = func() {
		must(t, rdb, "ACL", "SETUSER", "default", "+eval", "+evalsha")
		answered(t, rdb, "NOPERM")
	}
	return f
}

// wrongPassword changes the password and ends all connections, so that clients
// log in anew.
func wrongPassword(t *testing.T, a adapter, _ string) conformance.Fault {
	server, rdb := a.single(t, "--requirepass", "right")
	conn := rdb.Conn() // one that is logged in, and stays so
	t.Cleanup(func() { _ = conn.Close() })
	must(t, conn, "PING")
	f := a.suffers(t, server.Endpoint, rdb)
	f.Begin = func() {
		must(t, conn, "ACL", "SETUSER", "default", "resetpass", ">wrong")
		must(t, conn, "CLIENT", "KILL", "TYPE", "normal")
	}
	f.End = func() {
		must(t, conn, "ACL", "SETUSER", "default", "resetpass", ">right")
		answered(t, rdb, "WRONGPASS")
	}
	return f
}

func tooManyClients(t *testing.T, a adapter, _ string) conformance.Fault {
	server, rdb := a.single(t)
	conn := rdb.Conn()
	t.Cleanup(func() { _ = conn.Close() })
	must(t, conn, "PING")
	refused := func() string {
		info, _ := rdb.Info(context.Background(), "stats").Result()
		_, info, _ = strings.Cut(info, "rejected_connections:")
		n, _, _ := strings.Cut(info, "\r")
		return n
	}
	f := a.suffers(t, server.Endpoint, rdb)
	f.Begin = func() {
		must(t, conn, "CONFIG", "SET", "maxclients", "1")
		must(t, conn, "CLIENT", "KILL", "TYPE", "normal")
	}
	f.End = func() {
		must(t, conn, "CONFIG", "SET", "maxclients", "1000")
		if n := refused(); n == "0" {
			t.Error("no connection was refused")
		}
	}
	return f
}

// eviction lets a server throw keys away to make room for others.
func eviction(t *testing.T, a adapter, _ string) conformance.Fault {
	server, rdb := a.single(t, "--maxmemory-policy", "volatile-random")
	ctx := context.Background()
	f := a.suffers(t, server.Endpoint, rdb)
	f.Loses = true
	n := 0
	f = during(f, 5*time.Millisecond, func() {
		n++
		if err := rdb.Set(ctx, "weather-"+strconv.Itoa(n), strings.Repeat("x", 50_000), time.Hour).Err(); err != nil {
			t.Error(err)
		}
	})
	begin, end := f.Begin, f.End
	f.Begin = func() {
		info, _ := rdb.Info(ctx, "memory").Result()
		_, info, _ = strings.Cut(info, "used_memory:")
		info, _, _ = strings.Cut(info, "\r")
		used, err := strconv.Atoi(info)
		if err != nil {
			t.Fatal(err)
		}
		must(t, rdb, "CONFIG", "SET", "maxmemory", strconv.Itoa(used+1_500_000))
		begin()
	}
	f.End = func() {
		await(t, "an eviction", func() bool {
			info, err := rdb.Info(ctx, "stats").Result()
			return err == nil && !strings.Contains(info, "evicted_keys:0\r")
		})
		end()
		must(t, rdb, "CONFIG", "SET", "maxmemory", "0")
	}
	return f
}
