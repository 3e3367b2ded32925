package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	redigoclient "github.com/gomodule/redigo/redis"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/redigo"
)

// haproxyConfig is what docs/reference/stores.md recommends, except for short times: the
// idle time closes connections that the clients' pools keep.
const haproxyConfig = `global
  stats socket %s
defaults
  mode tcp
  timeout connect 1s
  timeout client %d
  timeout server %[2]d
  timeout check 2s
frontend limits
  bind %[3]s
  default_backend redis
backend redis
  option tcp-check
  tcp-check send info\ replication\r\nquit\r\n
  tcp-check expect string role:master
  default-server check inter 100ms fall 2 rise 1 on-marked-down shutdown-sessions
`

// HAProxy closes connections that are idle, or whose reply takes as long. rueidis and valkey-go
// ping an idle connection after a second.
const (
	proxyIdle = time.Second      // where connections are to be closed
	proxyWait = 10 * time.Second // where a busy server may be late
)

// An haproxy is a running HAProxy, which sends connections to the master of a server.
type haproxy struct {
	servers.Endpoint
	socket string // for commands
}

// startHAProxy starts HAProxy in front of the nodes of the server. It closes connections
// that are idle for that long, and ends with t.
func startHAProxy(t *testing.T, server *servers.Server, idle time.Duration) *haproxy {
	t.Helper()
	path, err := exec.LookPath("haproxy")
	switch {
	case err == nil:
	case os.Getenv("WEIR_REQUIRE_DOCKER") == "1":
		t.Fatalf("haproxy is not installed, and WEIR_REQUIRE_DOCKER is 1: %v", err)
	default:
		t.Skip("haproxy is not installed")
	}
	dir, err := os.MkdirTemp("", "haproxy") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	h := &haproxy{Endpoint: server.Endpoint, socket: filepath.Join(dir, "socket")}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.Addrs = []string{l.Addr().String()}
	defer l.Close() // HAProxy inherits it, so nobody else can take the port
	listener, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	config := fmt.Sprintf(haproxyConfig, h.socket, idle.Milliseconds(), "fd@3")
	for i, n := range server.Nodes {
		config += fmt.Sprintf("  server node%d %s\n", i, n.Addr)
	}
	file := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var output strings.Builder
	cmd := exec.Command(path, "-db", "-f", file)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &output, &output, []*os.File{listener}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(output.String())
		}
	})
	h.awaitMaster(t, 0, len(server.Nodes))
	return h
}

// awaitMaster waits until HAProxy sends connections to one of the nodes, and to no other. At its
// start, it takes all for masters.
func (h *haproxy) awaitMaster(t *testing.T, master, nodes int) {
	t.Helper()
	await(t, "HAProxy to find the master", func() bool {
		for i := range nodes {
			if state := h.column(fmt.Sprint("node", i), 17); (i == master) != (state == "UP") || state == "" {
				return false
			}
		}
		return true
	})
}

// column returns a column of the row in the statistics of HAProxy, or "" if there is none.
func (h *haproxy) column(row string, number int) string {
	conn, err := net.Dial("unix", h.socket)
	if err != nil {
		return ""
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "show stat\n"); err != nil {
		return ""
	}
	text, _ := io.ReadAll(conn)
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, ","); len(cells) > number && cells[1] == row {
			return cells[number]
		}
	}
	return ""
}

// TestHAProxy lets a master and its replica behind HAProxy change roles. What holds for a server
// holds behind HAProxy too: no call is sent twice, and every error is ErrUnavailable or the
// context's. HAProxy finds the new master, and no token is lost.
func TestHAProxy(t *testing.T) {
	notShort(t)
	servers.Need(t)
	for _, a := range adapters {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			progress(t)
			failover := func(t *testing.T, _ string) conformance.Fault {
				server := servers.NewReplicated(t, "redis-8.0")
				master, h := server.Nodes[0].Client(t), startHAProxy(t, server, proxyWait)
				f := a.fault(t, h.Endpoint)
				f.Conns = nil  // HAProxy has connections too
				f.Loses = true // a Peek may be answered by the demoted server
				f.Begin = func() { must(t, master, "FAILOVER") }
				f.End = func() { h.awaitMaster(t, 1, 2) }
				return f
			}
			conformance.RunFaults(t, conformance.Backend{Faults: map[string]func(*testing.T, string) conformance.Fault{"ReadOnly": failover}, Record: func(o conformance.Outcome) {
				t.Logf("%s: %v", o.Check, o.Fault)
				if o.Fault != nil && o.Fault.Excess > 0 {
					t.Errorf("%d tokens that were granted were lost", o.Fault.Excess)
				}
			}})
		})
	}
}

// TestHAProxyIdle lets HAProxy close the connections that a pool keeps. A call over such a
// connection is ErrUnavailable and consumes nothing, and none is made if the client's idle time
// is shorter than the proxy's.
func TestHAProxyIdle(t *testing.T) {
	notShort(t)
	servers.Need(t)
	short := adapter{name: "redigo, IdleTimeout", bounded: func(e servers.Endpoint, timeout time.Duration) (store.Store, func(), error) {
		p := &redigoclient.Pool{
			MaxIdle: conns, IdleTimeout: proxyIdle / 2,
			DialContext: func(ctx context.Context) (redigoclient.Conn, error) {
				return redigoclient.DialContext(ctx, "tcp", e.Addrs[0], redigoclient.DialConnectTimeout(timeout))
			},
		}
		return redigo.New(p), sync.OnceFunc(func() { _ = p.Close() }), nil
	}}
	for _, a := range append([]adapter{short}, adapters...) {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			server, _ := a.single(t)
			h := startHAProxy(t, server, proxyIdle)
			const limit = 1000
			lim := newLimiter(t, a.once(t, h.Endpoint), "idle", algorithm.FixedWindow{Limit: limit, Window: 24 * time.Hour})
			granted := int64(0)
			allow := func() error {
				res, err := lim.Allow(t.Context(), "ann")
				granted += res.Granted
				return err
			}
			busy := func() { // makes the client open connections
				var wg sync.WaitGroup
				errs := make([]error, conns)
				for i := range errs {
					wg.Go(func() { _, errs[i] = lim.Allow(t.Context(), "ann") })
				}
				wg.Wait()
				if err := errors.Join(errs...); err != nil {
					t.Fatal(err)
				}
				granted += conns
			}
			busy()
			opened, _ := strconv.Atoi(h.column("FRONTEND", 5)) // the most so far
			await(t, "HAProxy to close idle connections", func() bool { return h.column("FRONTEND", 4) == "0" })
			failures := 0
			for range conns {
				err := allow()
				if err == nil {
					continue
				}
				failures++
				if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrMisconfigured) {
					t.Errorf("got %v, want %v", err, store.ErrUnavailable)
				}
			}
			t.Logf("HAProxy closed %d connections, and %d of the next %d calls failed", opened, failures, conns)
			if opened == 0 || failures > opened {
				t.Errorf("%d calls failed for %d connections that were closed", failures, opened)
			}
			switch a.name {
			case short.name, "goredis": // it looks at a connection before it uses it
				if failures > 0 {
					t.Errorf("%d calls failed, want none", failures)
				}
			case "redigo":
				if failures == 0 {
					t.Error("no call failed: HAProxy closed no connection that the pool kept")
				}
			}
			if err := allow(); err != nil {
				t.Error(err)
			}
			if res, err := lim.Peek(t.Context(), "ann"); err != nil || limit-res.Remaining != granted {
				t.Errorf("%d tokens were consumed, %v, want the %d that were granted", limit-res.Remaining, err, granted)
			}
		})
	}
}
