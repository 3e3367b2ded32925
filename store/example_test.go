package store_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/weir-go/weir/store"
)

// A Table is a store over a map. In its place can be any database that can lock, read and
// write rows.
type Table struct {
	mu   sync.Mutex
	rows map[string]row
}

type row struct {
	held    store.Content
	expires time.Time
}

var _ store.Store = (*Table)(nil)

// Eval implements [store.Store]: it locks the rows, reads them, runs the Go form,
// and writes the changes.
func (t *Table) Eval(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	if err := store.CheckKeys(keys); err != nil {
		return reply, fmt.Errorf("table: eval %s: %w", script.Name(), err)
	}
	if err := ctx.Err(); err != nil {
		return reply, fmt.Errorf("table: eval %s: %w", script.Name(), err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()

	now := time.Now() // after the lock is taken
	held := make([]store.Content, len(keys))
	for i, key := range keys {
		held[i] = t.read(key, now)
	}
	tx := store.NewLoaded(now.UnixMicro(), held)
	reply, err := script.Run(tx, keys, args, reply)
	if err != nil {
		return reply, fmt.Errorf("table: eval %s: %w", script.Name(), err)
	}
	for _, c := range tx.Changes() {
		key := keys[c.Key]
		switch {
		case c.Deleted:
			delete(t.rows, key)
		case c.TTL == 0: // the key keeps its TTL
			t.rows[key] = row{c.Content, t.rows[key].expires}
		default:
			t.rows[key] = row{c.Content, time.UnixMicro(now.UnixMicro()).Add(c.TTL)}
		}
	}
	return reply, nil
}

// MGet implements [store.Store].
func (t *Table) MGet(ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
	if err := ctx.Err(); err != nil {
		return values, fmt.Errorf("table: mget: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for _, key := range keys {
		var v store.Value // Nil
		if h := t.read(key, now); h.Kind == store.Numbers {
			v = store.BulkValue(h.Nums.String())
		}
		values = append(values, v)
	}
	return values, nil
}

// Time implements [store.Store].
func (t *Table) Time(ctx context.Context) (time.Time, error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, fmt.Errorf("table: time: %w", err)
	}
	return time.Now(), nil
}

// read returns the value of key, which is missing if it has expired.
func (t *Table) read(key string, now time.Time) store.Content {
	if r, ok := t.rows[key]; ok && r.expires.After(now) {
		return r.held
	}
	return store.Content{}
}

// A store that runs no Lua reads the keys, runs the Go form over a Loaded, and writes
// the changes.
func ExampleNewLoaded() {
	visits := store.NewScript("visits", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
		tag := store.Tag{'v', '1'}
		n, ok, err := tx.Get(0)
		if err != nil {
			return nil, err
		}
		if ok && n.Tag != tag {
			return nil, store.ForeignAt(0)
		}
		count := n.N[0] + 1
		tx.Put(0, store.Nums{Tag: tag, Len: 1, N: [store.MaxNums]int64{count}}, time.Hour)
		return append(reply, store.IntegerValue(count)), nil
	})

	st := &Table{rows: map[string]row{}}
	for range 3 {
		reply, err := st.Eval(context.Background(), visits, []string{"user:42"}, nil, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(reply[0].Int())
	}
	values, err := st.MGet(context.Background(), []string{"user:42"}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(values[0].Str())
	// Output:
	// 1
	// 2
	// 3
	// v1 3
}
