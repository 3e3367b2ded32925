// Package sqlite implements a store that keeps the state of limiters in a SQLite file. It
// is for the processes of one machine: they share the limits, and the limits survive a
// restart. It works with every driver for [database/sql], for example modernc.org/sqlite,
// which needs no cgo:
//
//	db, err := sql.Open("sqlite", "file:limits.db?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)")
//	if err != nil {
//		return err
//	}
//	db.SetMaxIdleConns(4)
//	lim, err := weir.New("api", sqlite.New(db), algorithm.TokenBucket{Capacity: 20, Refill: algorithm.PerSecond(10)}, nil)
//
// With github.com/mattn/go-sqlite3, the name is "sqlite3", and the DSN is
// "file:limits.db?_journal_mode=WAL&_synchronous=NORMAL".
//
// # The database
//
// Give the store its own [sql.DB] for its own file, without _txlock in its DSN. The
// journal mode must be WAL, and the file must be on a disk of the machine, not on a
// network. The store creates its table, weir, when it is first used. The clock of scripts
// is the clock of the machine. If somebody deletes or replaces the file, calls return
// [store.ErrMisconfigured] after at most a second.
//
// With synchronous=NORMAL, no decision is lost if a process ends or crashes. If the
// machine loses power, the last decisions can be lost. With synchronous=FULL, the default
// of SQLite, none is, and each decision waits for the disk.
//
// # Costs
//
// A decision is a transaction. The decisions of all processes run one after the other,
// because SQLite has one lock for all writes of a file. If the request is denied, nothing
// is written. A Peek takes no lock. If many goroutines decide at once, [store.Coalesce]
// makes one transaction of several decisions, which saves commits:
//
//	store.Coalesce(sqlite.New(db))
//
// A decision on a sorted set, for example of a SlidingLog, reads and writes a few rows,
// however many members the set has. Decisions also delete rows that have expired, a few
// at a time.
//
// # Contexts
//
// If another process holds the lock, a call waits in steps of at most 5 ms until its
// context ends. Without a deadline, it waits for ever. The store sets the busy_timeout of
// each connection to 0, because the driver would wait without looking at the context.
package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/kit"
)

// New returns a store that uses db. It neither opens nor reads the database. The store
// never closes db.
func New(db *sql.DB) *kit.Store { return kit.New("sqlite", &database{db: db}) }

// A database is the table weir of a file.
type database struct {
	db    *sql.DB
	stmts atomic.Pointer[statements] // nil until the table exists

	mu     sync.Mutex
	known  map[any]time.Time // when the driver's connections were set up
	opened os.FileInfo       // the file of the first one; nil if it is no file of the system
}

// Check implements [store.Checker].
func (d *database) Check() error {
	if d.db == nil {
		return errors.New("the database is nil: it must be a *sql.DB")
	}
	return nil
}

// Waits between attempts to get the lock of the file.
const (
	leastWait = 50 * time.Microsecond
	mostWait  = 5 * time.Millisecond
)

// Begin implements [kit.DB].
func (d *database) Begin(ctx context.Context, write bool) (kit.Tx, error) {
	for n := 1; ; n++ {
		t, err := d.begin(ctx, write)
		if err == nil {
			return t, nil
		}
		if !busy(err) {
			return nil, explain(err)
		}
		if ended := kit.Wait(ctx, n, leastWait, mostWait); ended != nil {
			return nil, fmt.Errorf("%w: %w", ended, err)
		}
	}
}

// busy reports whether another connection holds a lock. The drivers have different types
// of errors, but the text is SQLite's.
func busy(err error) bool { return strings.Contains(err.Error(), "database is locked") }

// hints say what to do about an error that comes again until somebody corrects it.
var hints = map[string]string{
	"file is not a database":       "name another file in the DSN",
	"no such column":               "another table has the name weir: give the store a file of its own",
	"readonly database":            "let the process write the file and its directory",
	"unable to open database file": "create the directory, and let the process write it",
	"database or disk is full":     "free the disk, or raise max_page_count",
	"malformed":                    "the file is damaged: restore it, or delete it and start all processes again",
	"no such table: weir":          "somebody has dropped the table weir: start the process again",
}

func explain(err error) error {
	for text, hint := range hints {
		if strings.Contains(err.Error(), text) {
			return fmt.Errorf("%w: %w: %s", store.ErrMisconfigured, err, hint)
		}
	}
	return err
}

func (d *database) begin(ctx context.Context, write bool) (kit.Tx, error) {
	stmts, err := d.prepared(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := d.conn(ctx)
	if err != nil {
		return nil, err
	}
	// The transaction must end when the kit says so, not when ctx ends: its statements
	// take microseconds, and a driver that interrupts one closes the connection.
	tx, err := conn.BeginTx(context.Background(), &sql.TxOptions{ReadOnly: !write})
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	t := &txn{conn: conn, tx: tx, all: stmts}
	if write {
		// BEGIN takes no lock, unless the DSN says so. This takes the lock for writes,
		// before anything is read, so that the snapshot has what the last transaction
		// wrote.
		if _, err := tx.Stmt(stmts.lock).Exec(); err != nil {
			_ = t.Rollback()
			return nil, err
		}
	}
	return t, nil
}

// conn returns a connection that is set up.
func (d *database) conn(ctx context.Context) (*sql.Conn, error) {
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if err := d.setUp(conn); err != nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // it may have opened another file
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// mostKnown is the number of connections from which the known ones are set up again.
const mostKnown = 128

// setUp sets up conn when it is first used, and once a second, to notice that somebody has
// deleted or replaced the file.
func (d *database) setUp(conn *sql.Conn) error {
	var raw any
	if err := conn.Raw(func(c any) error { raw = c; return nil }); err != nil {
		return err
	}
	comparable := reflect.TypeOf(raw).Comparable()
	d.mu.Lock()
	known := comparable && time.Since(d.known[raw]) < time.Second
	d.mu.Unlock()
	if known {
		return nil
	}
	if _, err := conn.ExecContext(context.Background(), "PRAGMA busy_timeout = 0"); err != nil {
		return err
	}
	file, err := settings(conn)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	info, err := os.Stat(file)
	switch {
	case d.opened == nil:
		d.opened = info
	case err != nil || !os.SameFile(info, d.opened):
		return fmt.Errorf("%w: somebody has deleted or replaced the file %s: end all processes that use it, and start them again", store.ErrMisconfigured, file)
	}
	if d.known == nil || len(d.known) == mostKnown {
		d.known = map[any]time.Time{}
	}
	if comparable {
		d.known[raw] = time.Now()
	}
	return nil
}

// settings returns the file of the database, or an error if the store cannot work with
// its settings.
func settings(conn *sql.Conn) (file string, err error) {
	var mode string
	row := conn.QueryRowContext(context.Background(), "SELECT (SELECT file FROM pragma_database_list WHERE name = 'main'), (SELECT journal_mode FROM pragma_journal_mode)")
	err = row.Scan(&file, &mode)
	switch {
	case err != nil:
	case file == "":
		err = fmt.Errorf("%w: the database is in memory or temporary: name a file in the DSN, or use package memory", store.ErrMisconfigured)
	case mode != "wal":
		err = fmt.Errorf("%w: the journal mode of %s is %s: it must be wal, so add _pragma=journal_mode(WAL) to the DSN, or for go-sqlite3, _journal_mode=WAL", store.ErrMisconfigured, file, mode)
	}
	return file, err
}

// A statements are the prepared statements of all connections.
type statements struct{ lock, get, put, del, up, down *sql.Stmt }

const table = "CREATE TABLE IF NOT EXISTS weir (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"

// prepared returns the statements. The first time, it creates the table.
func (d *database) prepared(ctx context.Context) (*statements, error) {
	if s := d.stmts.Load(); s != nil {
		return s, nil
	}
	conn, err := d.conn(ctx)
	if err != nil {
		return nil, err
	}
	_, err = conn.ExecContext(context.Background(), table)
	if err := errors.Join(err, conn.Close()); err != nil { // before prepare, which needs a connection too
		return nil, err
	}
	s, err := prepare(ctx, d.db)
	if err != nil || !d.stmts.CompareAndSwap(nil, s) {
		s.close()
	}
	return d.stmts.Load(), err
}

func prepare(ctx context.Context, db *sql.DB) (*statements, error) {
	s := new(statements)
	for _, p := range []struct {
		stmt **sql.Stmt
		text string
	}{
		{&s.lock, "DELETE FROM weir WHERE false"},
		{&s.get, "SELECT value FROM weir WHERE key = ?"},
		{&s.put, "INSERT INTO weir (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"},
		{&s.del, "DELETE FROM weir WHERE key = ?"},
		{&s.up, "SELECT key, value FROM weir WHERE key >= ? AND key < ? ORDER BY key"},
		{&s.down, "SELECT key, value FROM weir WHERE key >= ? AND key < ? ORDER BY key DESC"},
	} {
		var err error
		if *p.stmt, err = db.PrepareContext(ctx, p.text); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *statements) close() {
	for _, stmt := range []*sql.Stmt{s.lock, s.get, s.put, s.del, s.up, s.down} {
		if stmt != nil {
			_ = stmt.Close()
		}
	}
}

// A txn is a transaction. Its statements have no context: see begin.
type txn struct {
	conn *sql.Conn
	tx   *sql.Tx
	all  *statements
}

// Get implements [kit.Tx].
func (t *txn) Get(key []byte) ([]byte, error) {
	value := []byte{}
	err := t.tx.Stmt(t.all.get).QueryRow(key).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return value, err
}

// Put implements [kit.Tx].
func (t *txn) Put(key, value []byte) error {
	if value == nil {
		value = []byte{} // nil would be NULL
	}
	_, err := t.tx.Stmt(t.all.put).Exec(key, value)
	return err
}

// Delete implements [kit.Tx].
func (t *txn) Delete(key []byte) error {
	_, err := t.tx.Stmt(t.all.del).Exec(key)
	return err
}

// Scan implements [kit.Tx].
func (t *txn) Scan(from, to []byte, backward bool, visit func(key, value []byte) bool) error {
	stmt := t.all.up
	if backward {
		stmt = t.all.down
	}
	rows, err := t.tx.Stmt(stmt).Query(from, to)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var key, value sql.RawBytes
	for more := true; more && rows.Next(); {
		if err := rows.Scan(&key, &value); err != nil {
			return err
		}
		more = visit(key, value)
	}
	return rows.Err()
}

// Commit implements [kit.Tx].
func (t *txn) Commit() error {
	err := t.tx.Commit()
	if err == nil {
		return t.conn.Close()
	}
	return err
}

// Rollback implements [kit.Tx]. If the transaction cannot be rolled back, or a commit of
// it has failed, it closes the connection.
func (t *txn) Rollback() error {
	err := t.tx.Rollback()
	if err != nil {
		_ = t.conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	return errors.Join(err, t.conn.Close())
}
