package bench

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/sqlite"
)

func sqliteFile(tb testing.TB) *sql.DB {
	tb.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(tb.TempDir(), "limits.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	db.SetMaxIdleConns(4)
	return db
}

// BenchmarkSQLite makes decisions on a SQLite file. Each caller asks one after the other. The
// floor is a transaction that reads a row and writes it.
func BenchmarkSQLite(b *testing.B) {
	db := sqliteFile(b)
	once := algorithm.FixedWindow{Limit: 1, Window: 24 * time.Hour}
	st := sqlite.New(db)
	if err := decides(b, st, true, once, "denied")(b.Context(), "0"); err != nil {
		b.Fatal(err)
	}
	denied := decides(b, st, false, once, "denied")
	benchRows(b, []row{
		{name: "floor", ask: func(ctx context.Context, key string) error { return readWrite(ctx, db, key) }, alone: true}, // without a wait for the lock
		{name: "weir-gcra", ask: decides(b, st, true, gcra, "one")},
		{name: "weir-coalesce", ask: decides(b, store.Coalesce(st), true, gcra, "one")},
		{name: "weir-denied", ask: func(ctx context.Context, _ string) error { return denied(ctx, "0") }},
	}, []load{{1, remoteKeys}, {16, remoteKeys}}, plainly)
}

// readWrite reads and writes a row in a transaction.
func readWrite(ctx context.Context, db *sql.DB, key string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit, it does nothing
	var value []byte
	_ = tx.QueryRowContext(ctx, "SELECT value FROM weir WHERE key = ?", []byte(key)).Scan(&value)
	if _, err := tx.ExecContext(ctx, "INSERT INTO weir (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", []byte(key), []byte("n1 1767225600000000 g2 1767225600000000")); err != nil {
		return err
	}
	return tx.Commit()
}
