package integration

import (
	"context"
	"flag"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/postgres"
)

// A postgresFault is a server, and a fault of it without Begin and End.
type postgresFault struct {
	conformance.Fault
	server *servers.Server
	admin  *pgxpool.Pool
	proxy  *toxiproxy.Proxy // nil if the callers use no proxy
}

// postgresFaults completes the fault of each check that PostgreSQL takes part in. A server
// that is killed loses nothing, because the system keeps what it has written.
var postgresFaults = map[string]func(t *testing.T, f *postgresFault){
	"Restart": func(t *testing.T, f *postgresFault) {
		f.Begin = func() { f.server.Nodes[0].Kill(t) }
		f.End = func() { f.server.Nodes[0].Restart(t) }
	},
	"ConnectionsKilled": func(t *testing.T, f *postgresFault) {
		f.Fault = during(f.Fault, 20*time.Millisecond, func() { f.disconnect(t) })
	},
	"Paused": func(t *testing.T, f *postgresFault) {
		f.Begin = func() { f.server.Nodes[0].Pause(t) }
		f.End = func() { f.server.Nodes[0].Unpause(t) }
	},
	"ClosedPort": func(t *testing.T, f *postgresFault) { f.Fault = closePort(t, f.proxy, f.Fault) },
	"BlackHole":  func(t *testing.T, f *postgresFault) { f.Fault = acceptNothing(t, f.proxy, f.Fault) },
	"Latency":    func(t *testing.T, f *postgresFault) { f.Fault = poison(t, f.proxy, f.Fault, "latency", lateReply) },
	"Reset": func(t *testing.T, f *postgresFault) {
		f.Fault = poison(t, f.proxy, f.Fault, "limit_data", `{"bytes":4099}`)
	},
	"HalfOpen": func(t *testing.T, f *postgresFault) { f.Fault = poison(t, f.proxy, f.Fault, "timeout", noReply) },
	"ReadOnly": func(t *testing.T, f *postgresFault) { // the server is a standby
		f.Begin = func() {
			sql(t, f.admin, "COPY (SELECT) TO '/var/lib/postgresql/weir/standby.signal'")
			f.server.Nodes[0].Kill(t)
			f.server.Nodes[0].Restart(t)
		}
		f.End = func() {
			f.admin.Reset()
			if number(t, f.admin, "SELECT pg_is_in_recovery()::int") == 0 {
				t.Error("the server was no standby")
			}
			sql(t, f.admin, "SELECT pg_promote()")
		}
	},
	"NoReplicas": func(t *testing.T, f *postgresFault) { // commits wait for a standby
		setting := func(value string) {
			sql(t, f.admin, "ALTER SYSTEM SET synchronous_standby_names = '"+value+"'")
			sql(t, f.admin, "SELECT pg_reload_conf()")
		}
		f.Begin = func() { setting("nobody") }
		f.End = func() { setting("") }
	},
	"NoPermission": func(t *testing.T, f *postgresFault) {
		f.Begin = func() { sql(t, f.admin, "REVOKE UPDATE ON weir FROM limiter") }
		f.End = func() { sql(t, f.admin, "GRANT UPDATE ON weir TO limiter") }
	},
	"WrongPassword": func(t *testing.T, f *postgresFault) {
		f.Begin = func() { sql(t, f.admin, "ALTER ROLE limiter PASSWORD 'other'"); f.disconnect(t) }
		f.End = func() { sql(t, f.admin, "ALTER ROLE limiter PASSWORD '"+limiterPassword+"'") }
	},
	"TooManyClients": func(t *testing.T, f *postgresFault) {
		f.Begin = func() { sql(t, f.admin, "ALTER ROLE limiter CONNECTION LIMIT 0"); f.disconnect(t) }
		f.End = func() { sql(t, f.admin, "ALTER ROLE limiter CONNECTION LIMIT -1") }
	},
}

// proxied are the checks whose callers use a proxy.
var proxied = []string{"ClosedPort", "BlackHole", "Latency", "Reset", "HalfOpen"}

// disconnect closes the connections of the callers.
func (f *postgresFault) disconnect(t *testing.T) {
	sql(t, f.admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'limiter'")
}

// postgresTurn limits how many of these checks run at once. A server is several processes,
// and if a machine has little time for each, calls fail without a fault.
var postgresTurn = make(chan struct{}, 1)

// newPostgresFault starts a server for the check.
func newPostgresFault(t *testing.T, check string) *postgresFault {
	postgresTurn <- struct{}{}
	t.Cleanup(func() { <-postgresTurn })
	server := servers.NewPostgres(t, "scram_iterations=1")
	f := &postgresFault{server: server, admin: adminPool(t, server)}
	addr := ""
	if slices.Contains(proxied, check) {
		f.proxy = startProxy(t, server)
		addr = f.proxy.Listen
	}
	f.Fault = conformance.Fault{
		Open: func() (store.Store, func()) {
			config, err := pgxpool.ParseConfig(server.PostgresURL(limiterRole, limiterPassword, addr))
			if err != nil {
				t.Fatal(err)
			}
			config.MaxConns, config.ConnConfig.ConnectTimeout, config.AfterConnect = conns/4, 2*time.Second, postgres.Prepare
			pool, err := pgxpool.NewWithConfig(context.Background(), config)
			if err != nil {
				t.Fatal(err)
			}
			for range config.MaxConns { // a busy machine would need seconds to connect all callers
				conn, err := pool.Acquire(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Release()
			}
			return postgres.New(pool), pool.Close
		},
		Conns: func() int {
			n := 0
			err := f.admin.QueryRow(context.Background(), "SELECT count(*) FROM pg_stat_activity WHERE usename = 'limiter'").Scan(&n)
			if err != nil {
				return -1 // not known: the server has closed the connection of admin
			}
			return n
		},
		// pgx v5.7 and earlier leave a goroutine behind each connection that fails in a pipeline.
		Leaky:   true,
		Longest: 2 * time.Second, // a machine that runs the whole matrix is slow
		Within:  10 * time.Second,
	}
	postgresFaults[check](t, f)
	return f
}

// TestPostgresFaults makes real servers fail while callers use them. It can update a table of
// the outcomes in docs/reference/stores.md.
func TestPostgresFaults(t *testing.T) {
	notShort(t)
	servers.Need(t)
	progress(t)
	makers := map[string]func(*testing.T, string) conformance.Fault{}
	for name := range postgresFaults {
		makers[name] = func(t *testing.T, _ string) conformance.Fault { return newPostgresFault(t, name).Fault }
	}
	var mu sync.Mutex
	outcomes := map[string]conformance.FaultOutcome{}
	t.Run("on", func(t *testing.T) {
		conformance.RunFaults(t, makers, func(o conformance.FaultOutcome) {
			mu.Lock()
			defer mu.Unlock()
			outcomes[strings.TrimPrefix(o.Check, "Faults/")] = o
		})
	})
	if pattern := flag.Lookup("test.run").Value.String(); pattern != "" && pattern != "TestPostgresFaults" {
		return
	}
	var text strings.Builder
	text.WriteString(faultHead)
	for _, check := range conformance.FaultChecks() {
		name := strings.TrimPrefix(check, "Faults/")
		if postgresFaults[name] == nil {
			continue
		}
		o, ran := outcomes[name]
		switch {
		case !ran:
			t.Errorf("%s was not run: the checks are %v", name, slices.Sorted(maps.Keys(outcomes)))
		case o.Unavailable+o.Cancelled == 0:
			t.Errorf("%s: no call failed, so there was no fault", name)
		}
		text.WriteString("| " + name + ": " + o.Promise + " " + faultCells("postgres", o))
	}
	t.Log("\n" + text.String())
	if *update && !t.Failed() {
		put(t, "../../docs/reference/stores.md", "<!-- faults of postgres -->\n", "<!-- end of faults of postgres -->\n", text.String())
	}
}
