package postgres_test

import (
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/postgres"
)

// open returns a pool of the server that WEIR_POSTGRES_URL names, with the table. It
// skips the test if the variable is not set.
func open(t testing.TB) *pgxpool.Pool {
	t.Helper()
	url := os.Getenv("WEIR_POSTGRES_URL")
	if url == "" {
		t.Skip("WEIR_POSTGRES_URL is not set: it must be the URL of a PostgreSQL database")
	}
	pool := openAt(t, url)
	if err := postgres.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	return pool
}

func openAt(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// keys returns the keys that contain part and have not expired, with their TTLs.
func keys(t *testing.T, pool *pgxpool.Pool, part string) map[string]time.Duration {
	rows, err := pool.Query(t.Context(), `SELECT key, expires - (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
FROM weir WHERE position($1::bytea IN key) > 0`, []byte(part))
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	found := map[string]time.Duration{}
	for rows.Next() {
		var key []byte
		var left int64
		if err := rows.Scan(&key, &left); err != nil {
			t.Fatal(err)
		}
		if left > 0 {
			found[string(key)] = time.Duration(left) * time.Microsecond
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

func TestConformance(t *testing.T) {
	pool := open(t)
	conformance.Run(t, conformance.Backend{
		New:   func(*testing.T) store.Store { return postgres.New(pool) },
		Peer:  func(*testing.T, store.Store) store.Store { return postgres.New(pool) },
		Where: func(*testing.T, store.Store) string { return pool.Config().ConnString() },
		Open:  func(t *testing.T, where string) store.Store { return postgres.New(openAt(t, where)) },
		Reopen: func(t *testing.T, _ store.Store) store.Store {
			return postgres.New(openAt(t, pool.Config().ConnString()))
		},
		Keys:     func(t *testing.T, _ store.Store, part string) map[string]time.Duration { return keys(t, pool, part) },
		Plant:    func(t *testing.T, _ store.Store, key string, raw []byte) { plant(t, pool, key, raw) },
		Parallel: 4,
	})
}

// plant makes raw the numbers in the row of key.
func plant(t *testing.T, pool *pgxpool.Pool, key string, raw []byte) {
	if _, err := pool.Exec(t.Context(), `INSERT INTO weir (key, nums, expires)
VALUES ($1, $2, (extract(epoch FROM clock_timestamp() + interval '1 hour') * 1000000)::bigint)`, []byte(key), raw); err != nil {
		t.Fatal(err)
	}
}
