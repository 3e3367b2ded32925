// Package mutants runs the suite on copies of store/postgres, each with a mistake. It is
// compiled by TestPostgresMutants, which writes the list of the copies.
package mutants

import (
	"bytes"
	"net"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/store"
)

// name is the copy that the test uses, and the schema of its table, which exists.
var name = os.Getenv("WEIR_MUTANT")

// open returns a pool of the server at addr, or of its own address if addr is empty.
func open(t *testing.T, addr string) *pgxpool.Pool {
	t.Helper()
	u, err := url.Parse(os.Getenv("WEIR_POSTGRES_URL"))
	if err != nil {
		t.Fatal(err)
	}
	if addr != "" {
		u.Host = addr
	}
	query := url.Values{"search_path": {name}, "pool_max_conns": {"8"}}
	if addr != "" {
		query.Set("pool_max_conns", "4")
		query.Set("default_query_exec_mode", "exec") // each commit has its text
	}
	u.RawQuery = query.Encode()
	pool, err := pgxpool.New(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

// prepared returns a pool of the server, with the table.
func prepared(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := open(t, "")
	t.Cleanup(pool.Close)
	if err := copies[name].migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	return pool
}

func TestRun(t *testing.T) {
	pool := prepared(t)
	conformance.Run(t, conformance.Backend{
		New:  func(*testing.T) store.Store { return copies[name].open(pool) },
		Peer: func(*testing.T, store.Store) store.Store { return copies[name].open(pool) },
		Keys: func(t *testing.T, _ store.Store, part string) map[string]time.Duration {
			return postgresKeys(t, pool, part)
		},
		Brief: true, Parallel: 8,
	})
}

// TestRunFaults breaks connections: before the server gets a call, or, at a commit, so late
// that only its reply is lost.
func TestRunFaults(t *testing.T) {
	within := 5 * time.Second // for a call to fail, which some mistakes hide
	if name == "m00" {
		within = time.Minute // a busy machine needs long to connect all callers again
	}
	makers := map[string]func(*testing.T, string) conformance.Fault{}
	for check, late := range map[string]bool{"ConnectionsKilled": false, "Reset": true} {
		makers[check] = func(t *testing.T, _ string) conformance.Fault {
			prepared(t)
			p := &proxy{late: late}
			addr := p.listen(t)
			return conformance.Fault{
				Open: func() (store.Store, func()) {
					pool := open(t, addr)
					return copies[name].open(pool), pool.Close
				},
				Begin:   func() { p.set(true) },
				End:     func() { p.set(false) },
				Leaky:   true,
				Within:  within,
				Longest: 2 * time.Second,
			}
		}
	}
	conformance.RunFaults(t, conformance.Backend{Faults: makers})
}

// A proxy of the server breaks each connection after some calls, while it is set to.
type proxy struct {
	late bool // after the server got a commit
	mu   sync.Mutex
	bad  bool
}

func (p *proxy) set(bad bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bad = bad
}

func (p *proxy) isBad() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bad
}

func (p *proxy) listen(t *testing.T) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	u, err := url.Parse(os.Getenv("WEIR_POSTGRES_URL"))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(client, u.Host)
		}
	}()
	return l.Addr().String()
}

// serve copies both ways between client and the server at addr.
func (p *proxy) serve(client net.Conn, addr string) {
	defer client.Close()
	server, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer server.Close()
	broken := make(chan struct{})
	go func() { // from the server
		defer client.Close()
		buf := make([]byte, 1<<16)
		for {
			n, err := server.Read(buf)
			select {
			case <-broken: // the reply is lost
				return
			default:
			}
			if _, wrong := client.Write(buf[:n]); err != nil || wrong != nil {
				return
			}
		}
	}()
	buf := make([]byte, 1<<16)
	for calls := 0; ; {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		commits := bytes.Contains(buf[:n], []byte("COMMIT\x00"))
		if commits || !p.late {
			calls++
		}
		if calls < 5 || p.late && !commits || !p.isBad() {
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
			continue
		}
		if close(broken); p.late {
			_, _ = server.Write(buf[:n])
			time.Sleep(20 * time.Millisecond)
		}
		return
	}
}
