// Package boltstore keeps the state of limiters in a bbolt file, for one process. It is a
// template for stores over other databases: docs/reference/backends.md says what they must do.
package boltstore

import (
	"bytes"
	"context"
	"errors"

	bolt "go.etcd.io/bbolt"

	"github.com/weir-go/weir/store/kit"
)

// New returns a store that uses db. Make one store for each database: its calls wait for each
// other as long as their contexts allow. The store never closes db.
func New(db *bolt.DB) *kit.Store { return kit.New("boltstore", file{db}) }

// A file is the bucket "weir" of a database, as package kit needs it.
type file struct{ db *bolt.DB }

// Check lets weir.New return an error if the store cannot work.
func (f file) Check() error {
	if f.db == nil {
		return errors.New("the database is nil: it must come from bolt.Open")
	}
	return nil
}

// Begin implements [kit.DB].
func (f file) Begin(_ context.Context, write bool) (kit.Tx, error) {
	t, err := f.db.Begin(write)
	if err != nil {
		return nil, err
	}
	b := t.Bucket([]byte("weir"))
	if b == nil && write {
		b, err = t.CreateBucket([]byte("weir"))
	}
	if err != nil {
		return nil, errors.Join(err, t.Rollback())
	}
	return tx{b, t}, nil
}

// A tx is a transaction. Its Put and Delete are those of the bucket.
type tx struct {
	*bolt.Bucket // nil if nothing was written yet
	tx           *bolt.Tx
}

// Get implements [kit.Tx].
func (t tx) Get(key []byte) ([]byte, error) {
	if t.Bucket == nil {
		return nil, nil
	}
	return t.Bucket.Get(key), nil
}

// Scan implements [kit.Tx].
func (t tx) Scan(from, to []byte, backward bool, visit func(key, value []byte) bool) error {
	if t.Bucket == nil {
		return nil
	}
	c := t.Cursor()
	key, value := c.Seek(from)
	next := c.Next
	if backward {
		if key, _ = c.Seek(to); key == nil {
			key, value = c.Last()
		} else {
			key, value = c.Prev()
		}
		next = c.Prev
	}
	for key != nil && bytes.Compare(from, key) <= 0 && bytes.Compare(key, to) < 0 && visit(key, value) {
		key, value = next()
	}
	return nil
}

// Commit implements [kit.Tx].
func (t tx) Commit() error { return t.tx.Commit() }

// Rollback implements [kit.Tx].
func (t tx) Rollback() error { return t.tx.Rollback() }
