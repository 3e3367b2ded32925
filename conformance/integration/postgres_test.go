package integration

import (
	"cmp"
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/postgres"
)

// The role of the limiters has no more privileges than docs/reference/stores.md says.
const (
	limiterRole     = "limiter"
	limiterPassword = "secret"
	prepareLimiter  = `SELECT pg_advisory_xact_lock(1);
DO $$ BEGIN CREATE ROLE limiter LOGIN PASSWORD 'secret'; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
GRANT SELECT, INSERT, UPDATE, DELETE ON weir TO limiter`
)

// openPool returns a pool that ends with t. The functions change its configuration.
func openPool(t testing.TB, url string, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = conns
	for _, f := range change {
		f(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// adminPool starts the server and prepares it for limiters. It returns a pool of the role
// that may do everything.
func adminPool(t testing.TB, server *servers.Server) *pgxpool.Pool {
	t.Helper()
	server.Start(t)
	admin := openPool(t, server.PostgresURL("", "", ""))
	if err := postgres.Migrate(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	sql(t, admin, prepareLimiter)
	return admin
}

// limiterPool starts and prepares the server. It returns a pool of the role of the limiters,
// whose transactions can stop for any time: see patient.
func limiterPool(t testing.TB, server *servers.Server, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	adminPool(t, server)
	return openPool(t, server.PostgresURL(limiterRole, limiterPassword, ""), append([]func(*pgxpool.Config){patiently(t)}, change...)...)
}

// patient lets the server wait for a process that stops while it holds locks. The store
// lets it wait for 5 s, and a busy machine can stop the process of a test for longer.
type patient struct{ testing.TB }

func patiently(t testing.TB) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.Tracer = patient{t} }
}

// TraceBatchStart changes the batch before it is sent.
func (p patient) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		if !strings.Contains(q.SQL, "pg_advisory_xact_lock") {
			continue
		}
		if len(q.Arguments) < 2 || q.Arguments[1] != "5000" {
			p.Errorf("the arguments of the lock are %v: the second must be the idle timeout", q.Arguments)
			continue
		}
		q.Arguments[1] = "0" // for ever
	}
	return ctx
}

func (patient) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (patient) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (patient) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (patient) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// impatiently undoes patiently, for a test of a process that stops.
func impatiently(c *pgxpool.Config) { c.ConnConfig.Tracer = nil }

// sql runs statements.
func sql(t testing.TB, pool *pgxpool.Pool, text string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(context.Background(), text, args...); err != nil {
		t.Errorf("%s: %v", text, err)
	}
}

// number returns the number that a query selects.
func number(t testing.TB, pool *pgxpool.Pool, query string, args ...any) (n int64) {
	t.Helper()
	if err := pool.QueryRow(context.Background(), query, args...).Scan(&n); err != nil {
		t.Errorf("%s: %v", query, err)
	}
	return n
}

// param sets a parameter of each connection.
func param(name, value string) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams[name] = value }
}

// TestPostgres runs the suite on PostgreSQL. It is brief on all versions but the newest
// released one. On the oldest, the client sends no prepared statements, and the role has
// another isolation level than the store needs.
func TestPostgres(t *testing.T) {
	t.Parallel()
	for i, server := range servers.AllPostgres() {
		t.Run(server.Name, func(t *testing.T) {
			oldest, newest := i == 0, server == newestPostgres()
			if !newest {
				notLight(t)
			}
			busyParallel(t)
			progress(t)
			var changes []func(*pgxpool.Config)
			if oldest {
				changes = append(changes, noStatements, param("default_transaction_isolation", "serializable"))
			}
			pool := limiterPool(t, server, changes...)
			var product string
			if err := pool.QueryRow(t.Context(), "SELECT 'PostgreSQL ' || split_part(current_setting('server_version'), ' ', 1)").Scan(&product); err != nil {
				t.Fatal(err)
			}
			if major := regexp.MustCompile(`^PostgreSQL (\d+)`).FindStringSubmatch(product); major == nil || server.Name != "postgres-"+major[1] {
				t.Errorf("the version of %s is %s", server.Name, product)
			}
			conformance.Run(t, conformance.Backend{
				New: func(t *testing.T) store.Store {
					if ofClosed(t) {
						return postgres.New(limiterPool(t, server, changes...))
					}
					return postgres.New(pool)
				},
				Peer:   func(t *testing.T, _ store.Store) store.Store { return postgres.New(limiterPool(t, server)) },
				Reopen: func(t *testing.T, _ store.Store) store.Store { return postgres.New(limiterPool(t, server)) },
				Keys: func(t *testing.T, _ store.Store, part string) map[string]time.Duration {
					return postgresKeys(t, pool, part)
				},
				Plant:    func(t *testing.T, _ store.Store, key string, raw []byte) { plantPostgres(t, pool, key, raw) },
				Report:   reportOf("postgres", server.Name, product),
				Parallel: 4,
				Brief:    !newest || light(),
				Record: func(o conformance.Outcome) {
					if reason := cmp.Or(processSkips[o.Check], externalSkips[o.Check], noWrites[o.Check]); !o.Passed && reason != o.Skipped {
						t.Errorf("%s: not passed: %s", o.Check, o.Skipped)
					}
				},
			})
		})
	}
}
