package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/kit"
)

// open returns a handle of the file. more are parameters of the DSN.
func open(t testing.TB, file string, more ...string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"+strings.Join(more, ""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxIdleConns(4)
	return db
}

const noLua = "it runs no Lua, so no server can lose a script"

func TestConformance(t *testing.T) {
	var mu sync.Mutex
	files, watchers := map[store.Store]string{}, map[store.Store]*sql.DB{}
	openStore := func(t *testing.T, file string) store.Store {
		st, watcher := New(open(t, file)), open(t, file)
		watcher.SetMaxOpenConns(1)
		mu.Lock()
		defer mu.Unlock()
		files[st], watchers[st] = file, watcher
		return st
	}
	of := func(st store.Store) (file string, watcher *sql.DB) {
		mu.Lock()
		defer mu.Unlock()
		return files[st], watchers[st]
	}
	conformance.Run(t, conformance.Backend{
		New:   func(t *testing.T) store.Store { return openStore(t, filepath.Join(t.TempDir(), "limits.db")) },
		Where: func(_ *testing.T, st store.Store) string { file, _ := of(st); return file },
		Open:  openStore,
		Reopen: func(t *testing.T, st store.Store) store.Store {
			file, _ := of(st)
			return openStore(t, file)
		},
		Keys: keys,
		Plant: func(t *testing.T, st store.Store, key string, raw []byte) {
			_, db := of(st)
			run(t, db, table)
			run(t, db, "REPLACE INTO weir (key, value) VALUES (?, ?)", []byte("k"+key), raw)
		},
		// The version grows with each transaction of another connection that writes.
		Writes: func(t *testing.T, st store.Store) (version int64) {
			_, db := of(st)
			if err := db.QueryRow("PRAGMA data_version").Scan(&version); err != nil {
				t.Fatal(err)
			}
			return version
		},
		Faults:      map[string]func(*testing.T, string) conformance.Fault{"Locked": locked, "QueryOnly": queryOnly},
		Parallel:    4,
		Strict:      true,
		Unsupported: map[string]string{"Store/ScriptLoss": noLua, "Batch/ScriptLoss": noLua},
	})
}

func run(t *testing.T, db *sql.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.Exec(statement, args...); err != nil {
		t.Error(err)
	}
}

// faultOf returns a fault of a store over db.
func faultOf(t *testing.T, db *sql.DB, begin, end func()) conformance.Fault {
	t.Helper()
	return conformance.Fault{Open: func() (store.Store, func()) { return New(db), func() { _ = db.Close() } }, Begin: begin, End: end}
}

// locked is a fault in which another connection holds the lock of the file.
func locked(t *testing.T, _ string) conformance.Fault {
	file := filepath.Join(t.TempDir(), "limits.db")
	other := open(t, file, "&_pragma=busy_timeout(60000)")
	other.SetMaxOpenConns(1)
	return faultOf(t, open(t, file), func() { run(t, other, "BEGIN IMMEDIATE") }, func() { run(t, other, "ROLLBACK") })
}

// queryOnly is a fault in which the database rejects writes.
func queryOnly(t *testing.T, _ string) conformance.Fault {
	db := open(t, filepath.Join(t.TempDir(), "limits.db"))
	db.SetMaxOpenConns(1) // the setting is of a connection
	return faultOf(t, db, func() { run(t, db, "PRAGMA query_only = true") }, func() { run(t, db, "PRAGMA query_only = false") })
}

// keys returns the keys that contain part and have not expired, with their TTLs.
func keys(t *testing.T, st store.Store, part string) map[string]time.Duration {
	t.Helper()
	found, err := st.(*kit.Store).TTLs(context.Background(), part)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// limiter returns a limiter of 1,000 requests over the file.
func limiter(t testing.TB, st store.Store) *weir.Limiter {
	t.Helper()
	lim, err := weir.New("api", st, algorithm.FixedWindow{Limit: 1000, Window: 24 * time.Hour}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return lim
}

// TestLocked shows that a call returns at its deadline while another connection has the
// lock, and that the next call works, on the same connection.
func TestLocked(t *testing.T) {
	for name, timeout := range map[string]string{"default": "", "busy_timeout": "&_pragma=busy_timeout(60000)"} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "limits.db")
			db, other := open(t, file, timeout), open(t, file)
			db.SetMaxOpenConns(1)
			st := New(db)
			lim := limiter(t, st)
			holder, err := other.Conn(t.Context())
			if err == nil {
				_, err = holder.ExecContext(t.Context(), "BEGIN IMMEDIATE")
			}
			if err != nil {
				t.Fatal(err)
			}
			for range 3 { // the first creates the table
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				start := time.Now()
				_, err = lim.Allow(ctx, "ann")
				cancel()
				if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > 20*time.Second {
					t.Fatalf("got error %v after %v, want context.DeadlineExceeded", err, took)
				}
				if _, err := holder.ExecContext(t.Context(), "ROLLBACK"); err != nil {
					t.Fatal(err) // the call waited for longer than the lock was held, if it is not held
				}
				next, stop := context.WithTimeout(t.Context(), 20*time.Second)
				if _, err := lim.Allow(next, "ann"); err != nil {
					t.Fatal(err)
				}
				stop()
				if _, err = holder.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := lim.Peek(t.Context(), "ann"); err != nil {
				t.Errorf("a Peek needs no lock: %v", err)
			}
		})
	}
}

// TestCancelled shows that a call whose context ends, or whose form panics, leaves a
// connection without a transaction, whatever it was doing.
func TestCancelled(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "limits.db"))
	db.SetMaxOpenConns(1)
	st, before := New(db), connection(t, db)
	for _, readOnly := range []bool{true, false} {
		for name, end := range map[string]func(cancel func()){
			"cancelled":  func(cancel func()) { cancel() },
			"panic":      func(func()) { panic("mine") },
			"afterwards": func(func()) {},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			form := func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
				tx.Now()
				end(cancel)
				time.Sleep(5 * time.Millisecond) // so that what watches ctx sees it
				if !readOnly {
					tx.Put(0, store.Nums{}, time.Hour)
				}
				_, _, err := tx.Get(0)
				return reply, err
			}
			script := store.NewScript("s", "", form)
			if readOnly {
				script = store.NewReadOnlyScript("s", "", form)
			}
			_, err := st.Eval(ctx, script, []string{name}, nil, nil)
			want := map[string]error{"cancelled": context.Canceled, "panic": store.ErrScript}[name]
			if err != nil && !errors.Is(err, want) {
				t.Errorf("%s: got error %v, want %v", name, err, want)
			}
			cancel()
			// A connection is free, without a transaction, and no lock is held.
			next, stop := context.WithTimeout(t.Context(), 20*time.Second)
			if _, err := limiter(t, st).Allow(next, "ann"); err != nil {
				t.Fatalf("%s: the next call: %v", name, err)
			}
			stop()
			if values, err := st.MGet(t.Context(), []string{name}, nil); err != nil || (values[0].Kind() == store.Nil) != (name != "afterwards" || readOnly) {
				t.Errorf("%s: the key holds %v, error %v", name, values, err)
			}
			if after := connection(t, db); after != before {
				t.Errorf("%s: the connection was closed", name)
			}
		}
	}
}

// connection returns the only connection of db, as the driver made it.
func connection(t *testing.T, db *sql.DB) (raw any) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err == nil {
		err = errors.Join(conn.Raw(func(c any) error { raw = c; return nil }), conn.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestSettings shows that a setting with which the store cannot work is an error that
// says what to do.
func TestSettings(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, bytes.Repeat([]byte("no database "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	for dsn, want := range map[string]string{
		":memory:":                      "use package memory",
		"file::memory:?cache=shared":    "use package memory",
		"file:" + dir + "/plain.db":     "_pragma=journal_mode(WAL)",
		"file:" + dir + "/none/weir.db": "create the directory",
		"file:" + text:                  "name another file",
	} {
		db, err := sql.Open("sqlite", dsn)
		if err != nil {
			t.Fatal(err)
		}
		_, err = limiter(t, New(db)).Allow(t.Context(), "ann")
		if !errors.Is(err, store.ErrMisconfigured) || !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one that says %q", dsn, err, want)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, st := range []*kit.Store{nil, {}, New(nil)} {
		if _, err := weir.New("api", st, algorithm.FixedWindow{Limit: 1, Window: time.Hour}, nil); err == nil {
			t.Error("weir.New returned no error")
		}
	}
}

// TestReplaced shows that a file that is no longer the one first opened is an error, even
// of a new connection.
func TestReplaced(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limits.db")
	d := &database{db: open(t, file)}
	lim := limiter(t, kit.New("sqlite", d))
	for n, change := range []func() error{
		func() error { return nil },
		func() error { return os.Remove(file) },
		func() error { return os.WriteFile(file, nil, 0o600) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		clear(d.known) // a second has passed
		_, known := lim.Allow(t.Context(), "ann")
		conn, _ := d.db.Conn(t.Context()) // so that the next call opens another
		_, fresh := lim.Allow(t.Context(), "ann")
		_ = conn.Close()
		if wrong := n > 0; errors.Is(known, store.ErrMisconfigured) != wrong || errors.Is(fresh, store.ErrMisconfigured) != wrong {
			t.Errorf("change %d: got %v, and %v on a new connection", n, known, fresh)
		}
	}
}
