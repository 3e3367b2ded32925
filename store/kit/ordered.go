package kit

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/engine"
)

// A DB is a database with transactions over entries of bytes that are ordered by their
// keys. It must be safe for concurrent use. If it also has a method Check() error,
// weir.New returns the error of that method.
type DB interface {
	// Begin begins a transaction, which reads a consistent snapshot. If write is true,
	// the transaction can write. Begin then waits until no other such transaction is
	// open, in any process, and the snapshot has what the last one wrote. A Store itself
	// begins only one such transaction at a time.
	//
	// Begin returns the error of ctx soon after ctx has ended, even while it waits.
	// [Wait] helps if the database cannot do so.
	Begin(ctx context.Context, write bool) (Tx, error)
}

// A Tx is a transaction of a [DB]. One goroutine at a time uses it. It can return any
// error, which the kit makes a [store.ErrUnavailable]. If the error lasts until somebody
// corrects a setting, wrap [store.ErrMisconfigured].
//
// The keys of entries have 1 to 2,050 bytes, and the values at most some hundred. Both
// can have any bytes. The kit does not change a slice that it passes or gets.
type Tx interface {
	// Get returns the value of an entry as the transaction left it, or nil if there is
	// none. The value is valid until the next call of a method of the Tx.
	Get(key []byte) ([]byte, error)

	// Put adds an entry, or replaces it.
	Put(key, value []byte) error

	// Delete deletes an entry, if it exists.
	Delete(key []byte) error

	// Scan calls visit for each entry whose key is at least from and less than to, in the
	// order of the bytes of the keys, or from the last to the first if backward is true.
	// It ends when visit returns false. The slices are valid until visit returns. visit
	// calls no method of the Tx.
	Scan(from, to []byte, backward bool, visit func(key, value []byte) bool) error

	// Commit ends the transaction, and makes its changes durable as far as the user has
	// asked for. If it returns an error, Rollback follows.
	Commit() error

	// Rollback ends the transaction and discards its changes. It must succeed even if the
	// context of Begin has ended. If it cannot, for example because the connection is
	// lost, it closes the connection. It is not called after a Commit that returned nil.
	Rollback() error
}

// A Store is a store over a [DB]: a [store.Store], [store.Batcher], [store.Borrower],
// [store.Checker] and [store.Lister]. Make one with [New]. It is safe for concurrent use. The
// methods of a zero Store return an error, and so does Check of a nil Store.
//
// It writes an entry for each key, and another for each member of a sorted set, so a
// decision on a large set reads and writes only a few entries. Each call that writes may
// also delete a few entries that have expired.
type Store struct {
	base
	name   string
	db     DB
	turn   chan struct{} // holds an element during a transaction that can write
	writes atomic.Uint64
}

var (
	_ store.Store    = (*Store)(nil)
	_ store.Batcher  = (*Store)(nil)
	_ store.Borrower = (*Store)(nil)
	_ store.Checker  = (*Store)(nil)
	_ store.Lister   = (*Store)(nil)
)

// New returns a store over db. It calls no method of db. The errors of the store begin
// with name, which is the name of the author's package.
//
// The clock of scripts is the clock of the process, so if several machines share the
// database, their clocks must agree.
func New(name string, db DB) *Store {
	s := &Store{name: name, db: db, turn: make(chan struct{}, 1)}
	s.base = newBase(name, (*ordered)(s), s, func() error {
		if db == nil {
			return errors.New("the database is nil")
		}
		return nil
	}, db)
	return s
}

// Check implements [store.Checker]. It returns what the Check of the adapter returns, if
// it has one.
func (s *Store) Check() error {
	if s == nil {
		return engine.ErrZero
	}
	return s.base.Check()
}

// listed is the number of keys that a call of List reads.
const listed = 1000

// List implements [store.Lister]. It reads up to 1,000 keys, in their order, so no key
// comes twice. It does not list keys of 2,000 bytes or more, because the database has
// only their beginning and their SHA-256.
func (s *Store) List(ctx context.Context, prefix, cursor string, keys []string) ([]string, string, error) {
	if err := s.Check(); err != nil {
		return keys, "", err
	}
	last, err := hex.DecodeString(cursor)
	if err != nil {
		return keys, "", fmt.Errorf("%s: list: the cursor is %.80q: it must be empty, or what List returned", s.name, cursor)
	}
	if err := ctx.Err(); err != nil {
		return keys, "", fmt.Errorf("%s: list: %w", s.name, err)
	}
	from, to := after(prefixKey, prefix)
	if cursor != "" {
		from = append(last, 0)
	}
	out, n := keys, 0
	err = s.transact(ctx, false, func(tx Tx) (bool, error) {
		now := time.Now().UnixMicro()
		return false, tx.Scan(from, to, false, func(key, value []byte) bool {
			n, last = n+1, append(last[:0], key...)
			if h := parseHead(value); h.holds(now) != store.Missing && len(key) <= longKey {
				out = append(out, string(key[1:]))
			}
			return n < listed
		})
	})
	if err != nil {
		return keys, "", engine.Failed(ctx, &s.base, "list", err)
	}
	if n < listed {
		return out, "", nil
	}
	return out, hex.EncodeToString(last), nil
}

// TTLs returns the keys whose names contain part, with the times until they expire. It
// reads every key, in one transaction: it is for the field Keys of a conformance.Backend.
// A key of 2,000 bytes or more is shortened.
func (s *Store) TTLs(ctx context.Context, part string) (map[string]time.Duration, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	found := map[string]time.Duration{}
	err := s.transact(ctx, false, func(tx Tx) (bool, error) {
		now := time.Now().UnixMicro()
		return false, tx.Scan([]byte{prefixKey}, []byte{prefixKey + 1}, false, func(key, value []byte) bool {
			if h := parseHead(value); h.holds(now) != store.Missing && strings.Contains(string(key[1:]), part) {
				found[string(key[1:])] = time.Duration(h.expires-now) * time.Microsecond
			}
			return true
		})
	})
	if err != nil {
		return nil, engine.Failed(ctx, &s.base, "ttls", err)
	}
	return found, nil
}

// An ordered is the engine of a Store.
type ordered Store

// Groups implements [engine.Engine]. Each transaction has up to 128 calls.
func (s *ordered) Groups(calls []*store.Eval) (groups [][]*store.Eval, atOnce int) {
	return slices.Collect(slices.Chunk(calls, 128)), 1
}

func (s *ordered) Now(context.Context) (time.Time, error) { return time.Now(), nil }

func (s *ordered) Get(ctx context.Context, keys []string) ([]store.Value, error) {
	list := make([]store.Value, len(keys))
	err := (*Store)(s).transact(ctx, false, func(tx Tx) (bool, error) {
		heads := make([]head, len(keys))
		for i, key := range keys {
			var err error
			if heads[i], err = readHead(tx, entry(prefixKey, shorten(key, longKey))); err != nil {
				return false, err
			}
		}
		now := time.Now().UnixMicro()
		for i, h := range heads {
			list[i] = engine.ValueOf(store.Content{Kind: h.holds(now), Nums: h.nums})
		}
		return false, nil
	})
	return list, err
}

func (s *ordered) Run(ctx context.Context, calls []*store.Eval) ([]engine.Result, error) {
	write := false
	for _, c := range calls {
		write = write || !c.Script.ReadOnly()
	}
	list := make([]engine.Result, len(calls))
	err := (*Store)(s).transact(ctx, write, func(tx Tx) (bool, error) {
		made, changed := 0, false
		for i, c := range calls {
			f, err := load(tx, c.Keys)
			if err != nil {
				return false, err
			}
			list[i].Reply, list[i].Err = c.Script.Run(f, c.Keys, c.Args, c.Reply)
			switch {
			case f.err != nil:
				return false, f.err // the form may have ignored it
			case list[i].Err != nil:
				continue
			}
			wrote, more, err := f.write()
			if err != nil {
				return false, err
			}
			made, changed = made+more, changed || wrote
		}
		if !changed {
			return false, nil
		}
		if s.writes.Add(1)%sweepEvery == 0 {
			made++
		}
		return true, sweep(tx, time.Now().UnixMicro(), 2*made)
	})
	return list, err
}

// transact runs f in a transaction, and commits it if f wrote something.
func (s *Store) transact(ctx context.Context, write bool, f func(tx Tx) (wrote bool, err error)) error {
	if write {
		select {
		case s.turn <- struct{}{}:
			defer func() { <-s.turn }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	tx, err := s.db.Begin(ctx, write)
	if err != nil {
		return err
	}
	committed := false
	defer func() { // even if f panics
		if !committed {
			_ = tx.Rollback()
		}
	}()
	wrote, err := f(tx)
	if err != nil || !wrote {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	committed = true
	return nil
}
