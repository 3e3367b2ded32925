package bench

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/weir-go/weir"
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
	ask := func(st store.Store, want bool, a algorithm.Algorithm) func(ctx context.Context, key string) error {
		lim, err := weir.New(benchName, st, a, nil)
		if err != nil {
			b.Fatal(err)
		}
		return func(ctx context.Context, key string) error {
			res, err := lim.Allow(ctx, key)
			if err == nil && res.Allowed != want {
				err = fmt.Errorf("the request for %q: allowed %v, want %v", key, res.Allowed, want)
			}
			return err
		}
	}
	gcra, once := algorithm.GCRA{Rate: algorithm.PerSecond(perSecond), Burst: burst}, algorithm.FixedWindow{Limit: 1, Window: 24 * time.Hour}
	st := sqlite.New(db)
	if err := ask(st, true, once)(b.Context(), "0"); err != nil {
		b.Fatal(err)
	}
	denied := ask(st, false, once)
	for _, r := range []row{
		{"floor", func(ctx context.Context, key string) error { return readWrite(ctx, db, key) }},
		{"weir-gcra", ask(st, true, gcra)},
		{"weir-coalesce", ask(store.Coalesce(st), true, gcra)},
		{"weir-denied", func(ctx context.Context, _ string) error { return denied(ctx, "0") }},
	} {
		for _, callers := range []int{1, 16} {
			if r.name == "floor" && callers > 1 {
				continue // without a wait for the lock, it would fail
			}
			draws := drawKeys(remoteKeys)
			b.Run(fmt.Sprintf("impl=%s/callers=%d/keys=%d", r.name, callers, remoteKeys), func(b *testing.B) {
				fromCallers(b, callers, func(i int) error { return r.ask(b.Context(), draws.at(i)) })
			})
		}
	}
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

// BenchmarkSQLiteLog shows that the cost of a sorted set does not grow with its members. Each
// request is allowed by a log that is full, except that one entry has expired.
func BenchmarkSQLiteLog(b *testing.B) {
	for _, entries := range []int64{10, 100, 1000} {
		b.Run(fmt.Sprintf("entries=%d", entries), func(b *testing.B) {
			now := time.Now()
			lim, err := weir.New(benchName, sqlite.New(sqliteFile(b)), algorithm.SlidingLog{Limit: entries, Window: time.Duration(entries) * time.Second}, &weir.Options{Clock: func() time.Time { now = now.Add(time.Second); return now }})
			if err != nil {
				b.Fatal(err)
			}
			ask := func() {
				if res, err := lim.Allow(b.Context(), "log"); err != nil || !res.Allowed {
					b.Fatalf("got %+v, %v, want an allowed request", res, err)
				}
			}
			for range entries {
				ask()
			}
			for b.Loop() {
				ask()
			}
		})
	}
}
