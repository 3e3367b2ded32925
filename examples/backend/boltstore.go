// Package boltstore keeps the state of limiters in a bbolt file, for one process. It is a
// template for stores over other databases: docs/reference/backends.md says what they must do.
package boltstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/gob"
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/weir-go/weir/store"
)

// A Store keeps the state of limiters in the bucket "weir" of a database. Make one with [New].
// It is safe for concurrent use.
type Store struct {
	db   *bolt.DB
	turn chan struct{} // holds an element during a transaction that can write
	next []byte        // where sweep continues; guarded by turn
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Checker = (*Store)(nil)
)

// New returns a store that uses db. The store never closes db.
func New(db *bolt.DB) *Store { return &Store{db: db, turn: make(chan struct{}, 1)} }

// Check implements [store.Checker], so that weir.New returns an error for a Store that cannot work.
func (s *Store) Check() error {
	if s == nil || s.db == nil || s.turn == nil {
		return errors.New("boltstore: the database is nil, or the Store is a zero value: call New with a database from bolt.Open")
	}
	return nil
}

// Eval implements [store.Store]. It runs the Go form of script in one transaction.
func (s *Store) Eval(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	out := reply
	err := store.CheckKeys(keys)
	if err == nil {
		err = s.transact(ctx, !script.ReadOnly(), func(b *bolt.Bucket, now int64) (changes int, err error) {
			held := make([]store.Content, len(keys))
			for i, key := range keys {
				held[i] = read(b, key, now).Content
			}
			tx := store.NewLoaded(now, held)
			if out, err = script.Run(tx, keys, args, reply); err != nil {
				return 0, err
			}
			for _, c := range tx.Changes() {
				if err := write(b, keys[c.Key], c, now); err != nil {
					return 0, unavailable(err)
				}
				changes++
			}
			return changes, nil
		})
	}
	if err != nil {
		return reply, fmt.Errorf("boltstore: eval %s: %w", script.Name(), err)
	}
	return out, nil
}

// MGet implements [store.Store].
func (s *Store) MGet(ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
	err := s.transact(ctx, false, func(b *bolt.Bucket, now int64) (int, error) {
		for _, key := range keys {
			var v store.Value // Nil
			if r := read(b, key, now); r.Content.Kind == store.Numbers {
				v = store.BulkValue(r.Content.Nums.String())
			}
			values = append(values, v)
		}
		return 0, nil
	})
	if err != nil {
		return values, fmt.Errorf("boltstore: mget: %w", err)
	}
	return values, nil
}

// Time implements [store.Store]. It returns the time of the machine, which scripts use too.
func (s *Store) Time(ctx context.Context) (time.Time, error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, fmt.Errorf("boltstore: time: %w", err)
	}
	return time.Now(), nil
}

// transact runs f in a transaction, and commits it if f made changes. If write is true, no
// other transaction writes at the same time. The clock is read after the transaction began.
func (s *Store) transact(ctx context.Context, write bool, f func(b *bolt.Bucket, now int64) (changes int, err error)) error {
	if write { // bbolt waits for its lock without the context
		select {
		case s.turn <- struct{}{}:
			defer func() { <-s.turn }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	tx, err := s.db.Begin(write)
	if err != nil {
		return unavailable(err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit, it does nothing
	if err := ctx.Err(); err != nil {
		return err
	}
	b := tx.Bucket([]byte("weir"))
	if b == nil && write {
		if b, err = tx.CreateBucket([]byte("weir")); err != nil {
			return unavailable(err)
		}
	}
	now := time.Now().UnixMicro()
	changes, err := f(b, now)
	if err != nil || changes == 0 {
		return err
	}
	if err = s.sweep(b, now, 2*changes); err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return unavailable(err)
	}
	return nil
}

// sweep looks at the next n keys, and deletes those that have expired. It looks at more keys
// than calls write, so expired keys do not fill the file.
func (s *Store) sweep(b *bolt.Bucket, now int64, n int) error {
	for range n {
		key, value := b.Cursor().Seek(s.next)
		if key == nil {
			s.next = nil // begin again
			return nil
		}
		s.next = append(bytes.Clone(key), 0)
		if decode(value, now).Content.Kind == store.Missing {
			if err := b.Delete(s.next[:len(key)]); err != nil {
				return err
			}
		}
	}
	return nil
}

func unavailable(err error) error { return fmt.Errorf("%w: %w", store.ErrUnavailable, err) }

// A row is the value of a key in the database, in the format of package gob.
type row struct {
	Content store.Content
	Expires int64 // in microseconds since the Unix epoch
}

// read returns the row of key. It is the zero row if the key is missing.
func read(b *bolt.Bucket, key string, now int64) row {
	if b == nil { // nothing was written yet
		return row{}
	}
	return decode(b.Get(name(key)), now)
}

func decode(value []byte, now int64) (r row) {
	switch {
	case value == nil:
	case gob.NewDecoder(bytes.NewReader(value)).Decode(&r) != nil:
		return row{Content: store.Content{Kind: store.Other}}
	case r.Expires <= now:
		return row{}
	}
	return r
}

func write(b *bolt.Bucket, key string, c store.Change, now int64) error {
	if c.Deleted {
		return b.Delete(name(key))
	}
	r := row{c.Content, now + c.TTL.Microseconds()}
	if c.TTL == 0 { // the key keeps its TTL
		r.Expires = read(b, key, now).Expires
	}
	var value bytes.Buffer
	if err := gob.NewEncoder(&value).Encode(r); err != nil {
		return err
	}
	return b.Put(name(key), value.Bytes())
}

// name returns the key in the database. It shortens the keys that bbolt would reject, and
// those of the same length, so that no two keys become the same.
func name(key string) []byte {
	if len(key) < bolt.MaxKeySize {
		return []byte(key)
	}
	sum := sha256.Sum256([]byte(key))
	return append([]byte(key[:bolt.MaxKeySize-len(sum)]), sum[:]...)
}
