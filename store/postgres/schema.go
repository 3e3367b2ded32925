package postgres

import (
	"context"
	_ "embed"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Schema is the SQL that creates the table weir and its index, unless they exist.
// [Migrate] runs it. If a tool manages your schema, give it this text.
//
//go:embed schema.sql
var Schema string

// migrating keeps two calls of Migrate apart: CREATE TABLE IF NOT EXISTS alone can fail
// if two sessions run it at once.
const migrating = "SELECT pg_advisory_xact_lock(8601128490103);\n"

// migrated reports whether the table and its index exist. CREATE INDEX IF NOT EXISTS
// waits for a vacuum of the table even if the index exists, and all decisions wait behind
// it.
const migrated = `SELECT EXISTS (SELECT FROM pg_indexes
	WHERE schemaname = current_schema() AND tablename = 'weir' AND indexname = 'weir_span')`

// Migrate creates the table weir in the first schema of the search path, unless the table
// exists. It can be called at every start of a process, and by several processes at once.
// If the table does not exist, Migrate needs the privilege to create tables.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	if pool == nil {
		return errNil
	}
	var exists bool
	if err := pool.QueryRow(ctx, migrated).Scan(&exists); err != nil {
		return failed(ctx, "migrate", err)
	}
	if exists {
		return nil
	}
	// Without arguments, pgx sends all statements together, and they are one transaction.
	if _, err := pool.Exec(ctx, migrating+Schema); err != nil {
		return failed(ctx, "migrate", err)
	}
	return nil
}

// sweepRows is the number of rows that a statement of Sweep deletes.
const sweepRows = 1000

// sweep deletes rows that expired more than ten minutes ago. No call uses such a row any
// more: see idle.
const sweep = `WITH dead AS (
	SELECT key FROM weir
	WHERE span < floor(extract(epoch FROM now()) / 600)::bigint - 1
	LIMIT $1 FOR UPDATE SKIP LOCKED
)
DELETE FROM weir USING dead WHERE weir.key = dead.key`

// Sweep deletes the rows that expired 10 to 20 minutes ago or earlier, and returns their
// number. An expired row changes no decision: it only uses space. So call Sweep from time
// to time, in one process, for example every ten minutes:
//
//	for range time.Tick(10 * time.Minute) {
//		if _, err := st.Sweep(ctx); err != nil {
//			log.Print(err)
//		}
//	}
//
// It deletes up to 1,000 rows in each transaction, and skips rows that are locked.
func (s *Store) Sweep(ctx context.Context) (int64, error) {
	if err := s.Check(); err != nil {
		return 0, err
	}
	total := int64(0)
	for {
		tag, err := s.pool.Exec(ctx, sweep, sweepRows)
		if err != nil {
			return total, failed(ctx, "sweep", err)
		}
		total += tag.RowsAffected()
		if tag.RowsAffected() < sweepRows {
			return total, nil
		}
	}
}
