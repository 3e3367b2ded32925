package integration

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// postgresKeys lists the keys that contain part and have not expired, with their TTLs.
func postgresKeys(t *testing.T, pool *pgxpool.Pool, part string) map[string]time.Duration {
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

// plantPostgres makes raw the numbers in the row of key.
func plantPostgres(t *testing.T, pool *pgxpool.Pool, key string, raw []byte) {
	if _, err := pool.Exec(t.Context(), `INSERT INTO weir (key, nums, expires)
VALUES ($1, $2, (extract(epoch FROM clock_timestamp() + interval '1 hour') * 1000000)::bigint)`, []byte(key), raw); err != nil {
		t.Fatal(err)
	}
}
