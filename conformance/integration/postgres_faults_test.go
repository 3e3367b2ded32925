package integration

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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
	"TooManyClients": func(t *testing.T, f *postgresFault) { // others have all connections
		var others []*pgx.Conn
		f.Begin = func() {
			f.disconnect(t)
			for range maxConnections {
				conn, err := pgx.Connect(t.Context(), f.server.PostgresURL("other", limiterPassword, ""))
				if err != nil {
					break
				}
				others = append(others, conn)
			}
			f.disconnect(t) // who has connected again before them
		}
		f.End = func() {
			if len(others) == maxConnections {
				t.Error("connections are left")
			}
			for _, conn := range others {
				_ = conn.Close(context.Background())
			}
		}
		sql(t, f.admin, "CREATE ROLE other LOGIN PASSWORD '"+limiterPassword+"'")
	},
	"Misconf": func(t *testing.T, f *postgresFault) { // the disk of the table is full
		const filler, space = servers.SmallDisk + "/filler", servers.SmallDisk + "/space"
		sql(t, f.admin, "COPY (SELECT) TO PROGRAM 'mkdir "+space+"'")
		sql(t, f.admin, "CREATE TABLESPACE small LOCATION '"+space+"'")
		sql(t, f.admin, "ALTER TABLE weir SET TABLESPACE small")
		var reader pgx.Tx
		f.Begin = func() {
			// While it can read old rows, each UPDATE needs new space. There is none after
			// these rows have taken what was left in the pages of the table.
			var err error
			if reader, err = f.admin.BeginTx(context.Background(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead}); err != nil {
				t.Fatal(err)
			}
			if _, err := reader.Exec(context.Background(), "SELECT FROM weir"); err != nil {
				t.Error(err)
			}
			sql(t, f.admin, "COPY (SELECT) TO PROGRAM 'cat /dev/zero >"+filler+" 2>/dev/null || true'")
			var reply *pgconn.PgError
			for i := 0; ; i++ {
				_, err := f.admin.Exec(context.Background(), "INSERT INTO weir (key, nums, expires) VALUES ($1, 'v1 1', 9000000000000000)", fmt.Append(nil, "full ", i))
				if errors.As(err, &reply) && reply.Code == "53100" { // disk_full
					return
				}
				if err != nil || i == 10_000 {
					t.Errorf("the disk is not full after %d rows: %v", i, err)
					return
				}
			}
		}
		f.End = func() {
			sql(t, f.admin, "COPY (SELECT) TO PROGRAM 'rm "+filler+"'")
			if err := reader.Rollback(context.Background()); err != nil {
				t.Error(err)
			}
		}
	},
	"MasterKilled":      standbyPromoted,
	"MasterKilledStill": standbyPromoted,
}

// maxConnections is the number of connections that roles other than admin can have.
const maxConnections = 25

// standbyPromoted kills a server, and promotes its standby. The callers find it by its address.
func standbyPromoted(t *testing.T, f *postgresFault) {
	standby := openPool(t, f.server.PostgresURL("", "", f.server.Nodes[1].Addr))
	f.Loses = true
	f.Confirm = func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var at string
		if err := f.admin.QueryRow(ctx, "SELECT pg_current_wal_lsn()::text").Scan(&at); err != nil {
			return err
		}
		for {
			var has bool
			if err := standby.QueryRow(ctx, "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", at).Scan(&has); has || err != nil {
				return err
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	f.Begin = func() { f.server.Nodes[0].Kill(t) }
	f.End = func() { sql(t, standby, "SELECT pg_promote()") }
	f.Conns = nil // admin is a client of the other server
}

// proxied are the checks whose callers use a proxy.
var proxied = []string{"ClosedPort", "BlackHole", "Latency", "Reset", "HalfOpen"}

// disconnect closes the connections of the callers.
func (f *postgresFault) disconnect(t *testing.T) {
	sql(t, f.admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'limiter'")
}

// postgresTurn limits how many of these checks run at once. A server is several processes,
// and if a machine has little time for each, calls fail without a fault.
var postgresTurn = make(chan struct{}, 2)

// newPostgresFault starts a server for the check.
func newPostgresFault(t *testing.T, check string) *postgresFault {
	postgresTurn <- struct{}{}
	t.Cleanup(func() { <-postgresTurn })
	start := servers.NewPostgres
	if strings.HasPrefix(check, "MasterKilled") {
		start = servers.NewPostgresReplicated
	}
	server := start(t, "scram_iterations=1", "superuser_reserved_connections=20", fmt.Sprint("max_connections=", maxConnections+20))
	f := &postgresFault{server: server, admin: adminPool(t, server)}
	addr := strings.Join(server.Addrs, ",")
	if slices.Contains(proxied, check) {
		f.proxy = startProxy(t, server)
		addr = f.proxy.Listen
	}
	f.Fault = conformance.Fault{
		Open: func() (store.Store, func()) {
			config, err := pgxpool.ParseConfig(server.PostgresURL(limiterRole, limiterPassword, addr) + "?target_session_attrs=read-write")
			if err != nil {
				t.Fatal(err)
			}
			config.MaxConns, config.ConnConfig.ConnectTimeout, config.AfterConnect = conns/4, 2*time.Second, postgres.Prepare
			pool, err := pgxpool.NewWithConfig(context.Background(), config)
			if err != nil {
				t.Fatal(err)
			}
			for range config.MaxConns { // a busy machine would need seconds to connect all callers
				var conn *pgxpool.Conn
				await(t, "a connection", func() bool { // postgres.Prepare has only 2 s
					if conn, err = pool.Acquire(context.Background()); err != nil {
						t.Log(err)
					}
					return err == nil
				})
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

// TestPostgresFaults makes real servers fail while callers use them. It can update the outcomes in
// ../reports/faults.md. It is not parallel, for the reason of postgresTurn.
func TestPostgresFaults(t *testing.T) {
	notShort(t)
	servers.Need(t)
	progress(t)
	makers := map[string]func(*testing.T, string) conformance.Fault{}
	for name := range postgresFaults {
		makers[name] = func(t *testing.T, _ string) conformance.Fault {
			return newPostgresFault(t, name).Fault
		}
	}
	var mu sync.Mutex
	outcomes := map[string]conformance.Outcome{}
	t.Run("on", func(t *testing.T) {
		conformance.RunFaults(t, conformance.Backend{Faults: makers, Record: func(o conformance.Outcome) {
			mu.Lock()
			defer mu.Unlock()
			outcomes[strings.TrimPrefix(o.Check, "Faults/")] = o
		}})
	})
	if pattern := flag.Lookup("test.run").Value.String(); pattern != "" && pattern != "TestPostgresFaults" {
		t.Logf("%+v", outcomes)
		return
	}
	rows := map[string][]*conformance.FaultOutcome{}
	for name := range postgresFaults {
		o, ran := outcomes[name]
		if !ran {
			t.Errorf("%s was not run: the checks are %v", name, slices.Sorted(maps.Keys(outcomes)))
			continue
		}
		t.Logf("%s: %s", name, o.Fault)
		rows[name+": "+o.Promise] = append(rows[name+": "+o.Promise], o.Fault)
	}
	if *update && !t.Failed() {
		putFaults(t, 3, rows)
	}
}
