package integration

import (
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

// This file makes single servers fail.

func init() {
	for name, maker := range map[string]faultMaker{
		"ScriptFlush":       scriptFlush,
		"Restart":           restart,
		"ConnectionsKilled": connectionsKilled,
		"Paused":            paused,
		"ClosedPort":        closedPort,
		"BlackHole":         blackHole,
		"Latency":           toxic("latency", lateReply),
		"Reset":             toxic("limit_data", `{"bytes":599}`),
		"HalfOpen":          toxic("timeout", noReply),
		"Loading":           loading,
		"ReadOnly":          readOnly,
		"MasterDown": replies("MASTERDOWN", []any{"REPLICAOF", "127.0.0.1", "1"}, []any{"REPLICAOF", "NO", "ONE"},
			"--replica-serve-stale-data", "no"),
		"NoReplicas": replies("NOREPLICAS", []any{"CONFIG", "SET", "min-replicas-to-write", "1"}, []any{"CONFIG", "SET", "min-replicas-to-write", "0"}),
		"Misconf":    misconf,
		"Busy":       busy,
		"NoPermission": replies("NOPERM", []any{"ACL", "SETUSER", "default", "-eval", "-evalsha"},
			[]any{"ACL", "SETUSER", "default", "+eval", "+evalsha"}),
		"WrongPassword":  wrongPassword,
		"TooManyClients": tooManyClients,
		"OutOfMemory":    replies("OOM", []any{"CONFIG", "SET", "maxmemory", "1"}, []any{"CONFIG", "SET", "maxmemory", "0"}),
		"Eviction":       eviction,
	} {
		faultMakers[name] = maker
	}
}

// These are attributes of toxics.
var (
	lateReply = fmt.Sprintf(`{"latency":%d}`, 2*conformance.CallTime.Milliseconds())
	noReply   = `{"timeout":0}`
)

// during returns a fault in which f is called at intervals.
func during(c conformance.Fault, every time.Duration, f func()) conformance.Fault {
	var stop func()
	c.Begin = func() { stop = again(every, f) }
	c.End = func() { stop() }
	return c
}

func scriptFlush(t *testing.T, a adapter, _ string) conformance.Fault {
	server, rdb := a.single(t)
	return during(a.fault(t, server.Endpoint, rdb), 2*time.Millisecond, func() { must(t, rdb, "SCRIPT", "FLUSH") })
}

func restart(t *testing.T, a adapter, _ string) conformance.Fault {
	server, rdb := a.single(t)
	f := a.fault(t, server.Endpoint, rdb)
	f.Loses = true // the server saves nothing on disk
	f.Begin = func() { server.Nodes[0].Kill(t) }
	f.End = func() { server.Nodes[0].Restart(t) }
	return f
}

func connectionsKilled(t *testing.T, a adapter, _ string) conformance.Fault {
	server, rdb := a.single(t)
	return during(a.fault(t, server.Endpoint, rdb), 20*time.Millisecond, func() { must(t, rdb, "CLIENT", "KILL", "TYPE", "normal") })
}

func paused(t *testing.T, a adapter, _ string) conformance.Fault {
	server, rdb := a.single(t)
	f := a.fault(t, server.Endpoint, rdb)
	f.Begin = func() { server.Nodes[0].Pause(t) }
	f.End = func() { server.Nodes[0].Unpause(t) }
	return f
}

// behind starts a server behind a proxy, and returns the fault over that.
func behind(t *testing.T, a adapter) (*toxiproxy.Proxy, conformance.Fault) {
	t.Helper()
	server, rdb := a.single(t)
	proxy := startProxy(t, server)
	e := server.Endpoint
	e.Addrs = []string{proxy.Listen}
	return proxy, a.fault(t, e, rdb)
}

// startProxy starts a proxy of the server, which ends with t.
func startProxy(t *testing.T, server *servers.Server) *toxiproxy.Proxy {
	t.Helper()
	proxy := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "fault", "127.0.0.1:0", server.Addrs[0])
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Stop)
	return proxy
}

func closedPort(t *testing.T, a adapter, _ string) conformance.Fault {
	proxy, f := behind(t, a)
	return closePort(t, proxy, f)
}

// closePort makes f a fault in which the proxy does not listen.
func closePort(t *testing.T, proxy *toxiproxy.Proxy, f conformance.Fault) conformance.Fault {
	f.Begin = proxy.Stop
	f.End = func() {
		if err := proxy.Start(); err != nil {
			t.Error(err)
		}
	}
	return f
}

func blackHole(t *testing.T, a adapter, _ string) conformance.Fault {
	proxy, f := behind(t, a)
	return acceptNothing(t, proxy, f)
}

// acceptNothing makes f a fault in which a socket that accepts no connection listens at the
// address of the proxy. When its queue is full, the system drops connection attempts.
func acceptNothing(t *testing.T, proxy *toxiproxy.Proxy, f conformance.Fault) conformance.Fault {
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

// toxic returns a maker of a fault in which a proxy delays or cuts replies.
func toxic(kind string, attributes string) faultMaker {
	return func(t *testing.T, a adapter, _ string) conformance.Fault {
		proxy, f := behind(t, a)
		return poison(t, proxy, f, kind, attributes)
	}
}

// poison makes f a fault in which the proxy has a toxic.
func poison(t *testing.T, proxy *toxiproxy.Proxy, f conformance.Fault, kind, attributes string) conformance.Fault {
	f.Begin = func() {
		wrapper := fmt.Sprintf(`{"name":"fault","type":%q,"stream":"downstream","attributes":%s}`, kind, attributes)
		if _, err := proxy.Toxics.AddToxicJson(strings.NewReader(wrapper)); err != nil {
			t.Error(err)
		}
	}
	f.End = func() {
		if err := proxy.Toxics.RemoveToxic(context.Background(), "fault"); err != nil {
			t.Error(err)
		}
	}
	return f
}

// loading restarts a server that has saved its data, and loads it slowly.
func loading(t *testing.T, a adapter, _ string) conformance.Fault {
	server, rdb := a.single(t, "--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024")
	for i := range 1000 {
		must(t, rdb, "SET", "fault-"+strconv.Itoa(i), strings.Repeat("x", 100))
	}
	must(t, rdb, "SAVE")
	f := a.fault(t, server.Endpoint, rdb)
	f.Loses = true // what was written after the save
	f.Begin = func() {
		server.Nodes[0].Kill(t)
		server.Nodes[0].Restart(t) // returns when all data is loaded
	}
	f.End = func() { answered(t, rdb, "LOADING") }
	return f
}

// readOnly makes a master and its replica change roles. The address of the server stays.
func readOnly(t *testing.T, a adapter, _ string) conformance.Fault {
	server := servers.NewReplicated(t, "redis-8.0")
	master, replica := server.Nodes[0].Client(t), server.Nodes[1].Client(t)
	role := func(rdb *redis.Client, want string) func() bool {
		return func() bool {
			info, _ := rdb.Info(context.Background(), "replication").Result()
			return strings.Contains(info, "role:"+want)
		}
	}
	f := a.fault(t, server.Endpoint, master, replica)
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

// replies returns a maker of a fault that one command begins and another ends. The server of these
// arguments replies with errors of that code.
func replies(code string, begin, end []any, args ...string) faultMaker {
	return func(t *testing.T, a adapter, _ string) conformance.Fault {
		server, rdb := a.single(t, args...)
		f := a.fault(t, server.Endpoint, rdb)
		f.Begin = func() { must(t, rdb, begin...) }
		f.End = func() {
			must(t, rdb, end...)
			answered(t, rdb, code)
		}
		return f
	}
}

// misconf makes a server fail to save: it cannot write to /proc.
func misconf(t *testing.T, a adapter, _ string) conformance.Fault {
	server, rdb := a.single(t, "--dir", "/proc", "--save", "3600", "1000000", "--stop-writes-on-bgsave-error", "no")
	f := a.fault(t, server.Endpoint, rdb)
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
	conn := rdb.Conn() // a busy server accepts no new connection
	t.Cleanup(func() { _ = conn.Close() })
	must(t, conn, "PING")
	f := a.fault(t, server.Endpoint, rdb)
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

// wrongPassword changes the password and closes all connections, so clients log in again.
func wrongPassword(t *testing.T, a adapter, _ string) conformance.Fault {
	server, rdb := a.single(t, "--requirepass", "right")
	conn := rdb.Conn() // it stays logged in
	t.Cleanup(func() { _ = conn.Close() })
	must(t, conn, "PING")
	f := a.fault(t, server.Endpoint, rdb)
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
	f := a.fault(t, server.Endpoint, rdb)
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

// eviction makes a server evict keys to make room for others.
func eviction(t *testing.T, a adapter, _ string) conformance.Fault {
	server, rdb := a.single(t, "--maxmemory-policy", "volatile-random")
	ctx := context.Background()
	f := a.fault(t, server.Endpoint, rdb)
	f.Loses = true
	n := 0
	f = during(f, 5*time.Millisecond, func() {
		n++
		if err := rdb.Set(ctx, "fault-"+strconv.Itoa(n), strings.Repeat("x", 50_000), time.Hour).Err(); err != nil {
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
