package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/postgres"
)

// This file tests what only the PostgreSQL store promises.

func noStatements(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec }

// newestPostgres returns the newest released PostgreSQL server of the matrix.
func newestPostgres() *servers.Server {
	all := servers.AllPostgres()
	return all[slices.IndexFunc(all, func(s *servers.Server) bool { return s.Name == "postgres-18" })]
}

// count returns a script that adds 1 to its key, for an hour. It calls held while it holds
// the lock of the key.
func countingScript(held func()) *store.Script {
	return store.NewScript("count", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
		held()
		n, _, err := tx.Get(0)
		if err != nil {
			return nil, err
		}
		n.Tag, n.Len, n.N[0] = store.Tag{'v', '1'}, 1, n.N[0]+1
		tx.Put(0, n, time.Hour)
		return append(reply, store.IntegerValue(n.N[0])), nil
	})
}

// add adds 1 to the key, and returns its number.
func add(ctx context.Context, st store.Store, key string) (int64, error) {
	reply, err := st.Eval(ctx, countingScript(func() {}), []string{key}, nil, nil)
	if err != nil {
		return 0, err
	}
	return reply[0].Int(), nil
}

// postgresKey returns a key that no other test uses.
func postgresKey(t *testing.T) string { return fmt.Sprintf("%s-%d", t.Name(), time.Now().UnixNano()) }

// hold locks key in a transaction that does not end until release is called. Its error is
// then sent to the channel.
func hold(t *testing.T, st store.Store, key string) (release func(), result <-chan error) {
	locked, released, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		script := countingScript(func() { close(locked); <-released })
		_, err := st.Eval(context.Background(), script, []string{key}, nil, nil)
		done <- err
	}()
	release = sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	<-locked
	return release, done
}

// TestPostgresDeadline checks that a deadline ends the wait for a lock, on both sides.
func TestPostgresDeadline(t *testing.T) {
	t.Parallel()
	admin := adminPool(t, newestPostgres())
	pool := limiterPool(t, newestPostgres(), param("application_name", "waiting"))
	st, other := postgres.New(limiterPool(t, newestPostgres())), postgres.New(pool)
	free := postgresKey(t)
	if _, err := add(t.Context(), other, free); err != nil { // opens a connection
		t.Fatal(err)
	}

	const wait, atOnce = 400 * time.Millisecond, 300 * time.Millisecond
	quickest, kept := time.Hour, false
	for range 20 { // because the machine can be slow
		key := postgresKey(t)
		release, result := hold(t, st, key)
		opened := pool.Stat().NewConnsCount()
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		start := time.Now()
		_, err := add(ctx, other, key)
		cancel()
		took := time.Since(start) - wait
		_, errFree := add(t.Context(), other, free)
		same := pool.Stat().NewConnsCount() == opened
		await(t, "the server to cancel the statements that wait", func() bool {
			return number(t, admin, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'waiting' AND wait_event = 'advisory'") == 0
		})
		release()
		if lost := <-result; lost != nil {
			t.Error(lost)
		}
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("got %v, want %v alone", err, context.DeadlineExceeded)
		}
		if n, err := add(t.Context(), other, key); n != 2 || err != nil {
			t.Errorf("got %d, %v, want 2: a call whose deadline had passed ran", n, err)
		}
		quickest = min(quickest, took)
		if errors.Is(errFree, store.ErrUnavailable) { // a late machine: the old deadline ended the connection
			continue
		}
		if errFree != nil {
			t.Errorf("a call on another key: %v", errFree)
		}
		if kept = kept || same; kept && quickest <= atOnce {
			break
		}
	}
	if quickest > atOnce {
		t.Errorf("it returned %v after the deadline: want at most %v", quickest, atOnce)
	}
	if !kept {
		t.Error("each call whose deadline passed while it waited for a lock closed its connection")
	}
}

// TestPostgresVanished checks that a process that stops while it holds a lock loses the lock,
// and that its call then changes nothing.
func TestPostgresVanished(t *testing.T) {
	t.Parallel()
	st, other := postgres.New(limiterPool(t, newestPostgres(), impatiently)), postgres.New(limiterPool(t, newestPostgres()))
	key := postgresKey(t)
	release, result := hold(t, st, key)
	if n, err := add(t.Context(), other, key); n != 1 || err != nil { // it waits until the server ends the other
		t.Errorf("got %d, %v, want 1", n, err)
	}
	release()
	if err := <-result; !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("the call that stopped returned %v, want %v", err, store.ErrUnavailable)
	}
	if n, err := add(t.Context(), st, key); n != 2 || err != nil {
		t.Errorf("got %d, %v, want 2", n, err)
	}
}

// TestPostgresDenied checks that a denied request writes nothing to the log of the server.
func TestPostgresDenied(t *testing.T) {
	t.Parallel()
	servers.Need(t)
	server := servers.NewPostgres(t, "autovacuum=off", "wal_level=minimal", "max_wal_senders=0")
	admin := adminPool(t, server)
	lim := newLimiter(t, postgres.New(limiterPool(t, server)), "denied", algorithm.FixedWindow{Limit: 1, Window: time.Hour})
	log := func() int64 {
		return number(t, admin, "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")
	}
	allow := func(want bool) {
		t.Helper()
		if res, err := lim.Allow(t.Context(), "ann"); err != nil || res.Allowed != want {
			t.Fatalf("got %+v, %v, want allowed: %v", res, err, want)
		}
	}
	start := log()
	allow(true)
	allow(false) // the first read of a row marks it as committed
	before := log()
	for range 20 {
		allow(false)
	}
	if after := log(); before == start || after != before {
		t.Errorf("an allowed request wrote %d bytes, want some, and 20 denied requests wrote %d, want 0", before-start, after-before)
	}
}

// TestPostgresPrivileges checks that each word of the GRANT in docs/reference/stores.md is
// necessary. TestPostgres checks that they suffice.
func TestPostgresPrivileges(t *testing.T) {
	t.Parallel()
	admin := adminPool(t, newestPostgres())
	words := []string{"SELECT", "INSERT", "UPDATE", "DELETE"}
	for i, missing := range words {
		role := "without_" + strings.ToLower(missing)
		rest := append(append([]string(nil), words[:i]...), words[i+1:]...)
		// Two sessions cannot change the privileges of a table at once: see prepareLimiter.
		sql(t, admin, "SELECT pg_advisory_xact_lock(1); CREATE ROLE "+role+" LOGIN PASSWORD 'secret'; GRANT "+strings.Join(rest, ", ")+" ON weir TO "+role)
		st := postgres.New(openPool(t, newestPostgres().PostgresURL(role, limiterPassword, "")))
		lim := newLimiter(t, st, role, algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 20})
		_, allowed := lim.Allow(t.Context(), "ann")
		reset := lim.Reset(t.Context(), "ann")
		_, swept := st.Sweep(t.Context())
		err := errors.Join(allowed, reset, swept)
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "GRANT") {
			t.Errorf("without %s: got %v, want %v that names the GRANT", missing, err, store.ErrUnavailable)
		}
	}
}

// TestPostgresForeign checks that rows that the store did not write are foreign, and that
// errors of forms and of the server leave the connection open.
func TestPostgresForeign(t *testing.T) {
	t.Parallel()
	admin := adminPool(t, newestPostgres())
	pool := limiterPool(t, newestPostgres())
	st, key := postgres.New(pool), postgresKey(t)
	for i, values := range []string{
		"'x', NULL, NULL", "'v1 1', '{1}', '{a}'", "NULL, '{1,2}', '{a}'", "NULL, '{1,NULL}', '{a,b}'", "NULL, '{1,2}', '{a,NULL}'",
	} {
		key := fmt.Sprint(key, i)
		insert := "INSERT INTO weir (key, nums, scores, texts, expires) VALUES ($1, " + values + ", 9000000000000000)"
		sql(t, admin, insert, []byte(key))
		if _, err := add(t.Context(), st, key); !errors.Is(err, store.ErrForeign) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: got %v, want an ErrForeign that names %q", values, err, key)
		}
	}
	if n := pool.Stat().NewConnsCount(); n != 1 {
		t.Errorf("the errors of forms took %d connections, want 1", n)
	}
	lost := limiterPool(t, newestPostgres(), param("search_path", "nowhere"), func(c *pgxpool.Config) { c.AfterConnect = postgres.Prepare })
	for range 5 {
		if _, err := add(t.Context(), postgres.New(lost), key); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "Migrate") {
			t.Errorf("without the table: got %v, want %v that names Migrate", err, store.ErrUnavailable)
		}
	}
	if n := lost.Stat().NewConnsCount(); n != 1 {
		t.Errorf("the errors of the server took %d connections, want 1", n)
	}
}

// An interrupter is a tracer that calls a function before a batch is sent, or when it has ended.
type interrupter struct {
	patient
	begins, ends func()
}

func (i *interrupter) TraceBatchStart(ctx context.Context, c *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	i.begins()
	return i.patient.TraceBatchStart(ctx, c, data)
}

func (i *interrupter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) { i.ends() }

// TestPostgresInterrupted ends the context of a call before anything is sent, and after the server
// has rejected a statement. In both cases, the server and pgx still agree on which statements are
// prepared. In the first case, the connection stays open.
func TestPostgresInterrupted(t *testing.T) {
	t.Parallel()
	nothing := func() {}
	for _, tt := range []struct {
		name, path, says string // what a call returns whose context has not ended, or ""
		conns            int64
	}{{"before", "public", "", 1}, {"after", "nowhere", "Migrate", 2}} {
		i := &interrupter{patient{t}, nothing, nothing}
		pool := limiterPool(t, newestPostgres(), param("search_path", tt.path), func(c *pgxpool.Config) { c.MaxConns, c.ConnConfig.Tracer = 1, i })
		st, key := postgres.New(pool), postgresKey(t)
		call := func(ctx context.Context) {
			t.Helper()
			if _, err := add(ctx, st, key); (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s: got %v, want an error that says %q", tt.name, err, tt.says)
			}
		}
		call(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		if tt.name == "before" {
			i.begins = cancel
		} else {
			i.ends = cancel
		}
		if _, err := add(ctx, st, key); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want %v", tt.name, err, context.Canceled)
		}
		i.begins, i.ends = nothing, nothing
		call(t.Context())
		if n := pool.Stat().NewConnsCount(); n != tt.conns {
			t.Errorf("%s: the calls took %d connections, want %d", tt.name, n, tt.conns)
		}
	}
}

// TestPostgresReadOnly checks a connection that accepts no writes. A decision fails, even if
// it would be a denial, and the connection is closed.
func TestPostgresReadOnly(t *testing.T) {
	t.Parallel()
	writable := postgres.New(limiterPool(t, newestPostgres()))
	pool := limiterPool(t, newestPostgres(), param("default_transaction_read_only", "on"))
	st := postgres.New(pool)
	limiter := func(st store.Store) *weir.Limiter {
		return newLimiter(t, st, t.Name(), algorithm.FixedWindow{Limit: 1, Window: time.Hour})
	}
	if res, err := limiter(writable).Allow(t.Context(), "ann"); err != nil || !res.Allowed {
		t.Fatalf("got %+v, %v, want an allowed request", res, err)
	}
	if res, err := limiter(st).Allow(t.Context(), "ann"); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "writes") {
		t.Errorf("got %+v, %v, want %v", res, err, store.ErrUnavailable)
	}
	await(t, "the connection to be closed", func() bool { return pool.Stat().TotalConns() == 0 })
	if res, err := limiter(st).Peek(t.Context(), "ann"); err != nil || res.Allowed {
		t.Errorf("Peek: got %+v, %v, want a denied request", res, err)
	}
}

// TestPostgresMigrate checks that Migrate needs no privilege and waits for no lock if the
// table exists. If it waited, all decisions would wait behind it. A vacuum holds the
// lock, which does not conflict with decisions.
func TestPostgresMigrate(t *testing.T) {
	t.Parallel()
	admin := adminPool(t, newestPostgres())
	sql(t, admin, "CREATE SCHEMA migrate; GRANT USAGE ON SCHEMA migrate TO limiter")
	inSchema := param("search_path", "migrate")
	pool := limiterPool(t, newestPostgres(), inSchema, param("lock_timeout", "1s"))
	for schema, says := range map[string]string{"migrate": "GRANT CREATE ON the schema", "nowhere": "USAGE"} {
		err := postgres.Migrate(t.Context(), limiterPool(t, newestPostgres(), param("search_path", schema)))
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), says) {
			t.Errorf("a role that cannot create tables in schema %s: got %v, want %v that says %q", schema, err, store.ErrUnavailable, says)
		}
	}
	if err := postgres.Migrate(t.Context(), openPool(t, newestPostgres().PostgresURL("", "", ""), inSchema)); err != nil {
		t.Fatal(err)
	}
	conn, err := admin.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Rollback(context.Background())
	if _, err := conn.Exec(t.Context(), "LOCK TABLE migrate.weir IN SHARE UPDATE EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	if err := postgres.Migrate(t.Context(), pool); err != nil {
		t.Error(err)
	}
}

// TestPostgresSweep checks which rows Sweep deletes, and that several processes can migrate.
func TestPostgresSweep(t *testing.T) {
	t.Parallel()
	admin := adminPool(t, newestPostgres())
	sql(t, admin, "CREATE SCHEMA sweep AUTHORIZATION limiter")
	pool := limiterPool(t, newestPostgres(), param("search_path", "sweep"))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := postgres.Migrate(t.Context(), pool); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	const put = `INSERT INTO sweep.weir (key, nums, expires)
SELECT ($1::text || i)::bytea, 'v1 1', (extract(epoch FROM now()) + $3::int) * 1000000 FROM generate_series(1, $2::int) AS i`
	sql(t, admin, put, "old", 2500, -1201)
	sql(t, admin, put, "locked", 1, -1201)
	sql(t, admin, put, "expired", 1, -599)
	sql(t, admin, put, "live", 1, 600)
	conn, err := admin.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Rollback(context.Background())
	if _, err := conn.Exec(t.Context(), "SELECT FROM sweep.weir WHERE key = 'locked1' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	st := postgres.New(pool)
	if n, err := st.Sweep(t.Context()); n != 2500 || err != nil {
		t.Errorf("Sweep: got %d, %v, want 2500", n, err)
	}
	if n := number(t, admin, "SELECT count(*) FROM sweep.weir"); n != 3 {
		t.Errorf("%d rows are left, want 3", n)
	}
	// An expired row is missing, and can be written again.
	if n, err := add(t.Context(), st, "expired1"); n != 1 || err != nil {
		t.Errorf("got %d, %v, want 1", n, err)
	}
}
