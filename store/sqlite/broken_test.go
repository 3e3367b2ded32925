package sqlite

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
)

var errDisk = errors.New("disk I/O error")

// A broken is a driver whose disk fails after some rows, and in every write.
type broken struct{ rows int }

func (b broken) Open(string) (driver.Conn, error)           { return b, nil }
func (b broken) Prepare(string) (driver.Stmt, error)        { return b, nil }
func (b broken) Begin() (driver.Tx, error)                  { return b, nil }
func (b broken) NumInput() int                              { return -1 }
func (b broken) Exec([]driver.Value) (driver.Result, error) { return nil, errDisk }
func (b broken) Query([]driver.Value) (driver.Rows, error)  { return &brokenRows{b.rows}, nil }
func (b broken) Commit() error                              { return errDisk }
func (b broken) Rollback() error                            { return nil }
func (b broken) Close() error                               { return nil }

type brokenRows struct{ left int }

func (r *brokenRows) Columns() []string { return []string{"key", "value"} }
func (r *brokenRows) Close() error      { return nil }
func (r *brokenRows) Next(row []driver.Value) error {
	if r.left--; r.left < 0 {
		return errDisk
	}
	row[0], row[1] = []byte("k"), []byte("v")
	return nil
}

func init() {
	sql.Register("broken", broken{1})
	sql.Register("broken at once", broken{0})
}

// TestBroken checks that no error of the disk reads as a missing entry, or as the last one.
func TestBroken(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"broken", "broken at once"} {
		db, err := sql.Open(name, "")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		all, err := prepare(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		x := &txn{tx: tx, all: all}
		if name == "broken at once" {
			if v, err := x.Get([]byte("k")); !errors.Is(err, errDisk) {
				t.Errorf("Get: got %q, %v, want %v", v, err, errDisk)
			}
		}
		for _, backward := range []bool{false, true} {
			if err := x.Scan([]byte("a"), []byte("z"), backward, func(_, _ []byte) bool { return true }); !errors.Is(err, errDisk) {
				t.Errorf("%s: Scan: got %v, want %v", name, err, errDisk)
			}
		}
		for call, err := range map[string]error{"Put": x.Put([]byte("k"), nil), "Delete": x.Delete([]byte("k")), "Commit": x.Commit()} {
			if !errors.Is(err, errDisk) {
				t.Errorf("%s: got %v, want %v", call, err, errDisk)
			}
		}
	}
}
