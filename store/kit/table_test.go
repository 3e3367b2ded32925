package kit

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
)

// A table is a DB in memory. All transactions wait for each other.
type table struct {
	lock chan struct{}

	mu      sync.Mutex // for tests that look at the entries
	entries map[string]string
	keys    []string // of entries, sorted
	fail    func(op string) error
	ops     int // Get, Put, Delete and Scan
	seen    int // entries that Scan has shown
}

func newTable() *table {
	return &table{lock: make(chan struct{}, 1), entries: map[string]string{}, fail: func(string) error { return nil }}
}

func (t *table) Begin(ctx context.Context, write bool) (Tx, error) {
	select {
	case t.lock <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := t.fail("begin"); err != nil {
		<-t.lock
		return nil, err
	}
	return &tableTx{t: t, write: write, undo: map[string]*string{}}, nil
}

type tableTx struct {
	t     *table
	write bool
	undo  map[string]*string
}

func (x *tableTx) Get(key []byte) ([]byte, error) {
	x.t.ops++
	if v, ok := x.t.entries[string(key)]; ok {
		return []byte(v), x.t.fail("get")
	}
	return nil, x.t.fail("get")
}

func (x *tableTx) Put(key, value []byte) error {
	text := string(value)
	x.set(string(key), &text)
	return x.t.fail("put")
}

func (x *tableTx) Delete(key []byte) error {
	x.set(string(key), nil)
	return x.t.fail("delete")
}

func (x *tableTx) set(key string, value *string) {
	if !x.write {
		panic("a transaction that only reads changes an entry")
	}
	x.t.ops++
	if _, ok := x.undo[key]; !ok {
		x.undo[key] = nil
		if old, ok := x.t.entries[key]; ok {
			x.undo[key] = &old
		}
	}
	x.t.set(key, value)
}

func (t *table) set(key string, value *string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, ok := slices.BinarySearch(t.keys, key)
	switch {
	case value != nil:
		t.entries[key] = *value
		if !ok {
			t.keys = slices.Insert(t.keys, at, key)
		}
	case ok:
		delete(t.entries, key)
		t.keys = slices.Delete(t.keys, at, at+1)
	}
}

func (x *tableTx) Scan(from, to []byte, backward bool, visit func(key, value []byte) bool) error {
	x.t.ops++
	low, _ := slices.BinarySearch(x.t.keys, string(from))
	high, _ := slices.BinarySearch(x.t.keys, string(to))
	keys := slices.Clone(x.t.keys[low:max(low, high)])
	if backward {
		slices.Reverse(keys)
	}
	for _, key := range keys {
		x.t.seen++
		if !visit([]byte(key), []byte(x.t.entries[key])) {
			break
		}
	}
	return x.t.fail("scan")
}

func (x *tableTx) Commit() error {
	if err := x.t.fail("commit"); err != nil {
		return err
	}
	x.end()
	return nil
}

func (x *tableTx) Rollback() error {
	for key, value := range x.undo {
		x.t.set(key, value)
	}
	x.end()
	return nil
}

func (x *tableTx) end() {
	if x.t == nil {
		panic(errors.New("a transaction ends twice"))
	}
	<-x.t.lock
	x.t = nil
}

// snapshot returns the entries.
func (t *table) snapshot() map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.entries)
}
