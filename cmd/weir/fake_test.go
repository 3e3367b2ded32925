package main

import (
	"cmp"
	"context"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A fake is a server in the memory of the test, with the defects that it is told to have.
type fake struct {
	torn     bool  // scripts of several callers run at once
	keepsAll bool  // keys lose their TTLs
	hides    bool  // keys cannot be listed
	fails    error // of every script
	many     int64

	mu   sync.Mutex
	rows map[string]row
}

type row struct {
	held    store.Content
	expires int64
}

func (f *fake) read(keys []string, now int64) []store.Content {
	held := make([]store.Content, len(keys))
	for i, key := range keys {
		if r := f.rows[key]; r.expires > now {
			held[i] = r.held
		}
	}
	return held
}

func (f *fake) Eval(ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	if err := store.CheckKeys(keys); err != nil {
		return reply, err
	}
	if err := cmp.Or(ctx.Err(), f.fails); err != nil {
		return reply, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now().UnixMicro()
	tx := store.NewLoaded(now, f.read(keys, now))
	if f.torn {
		f.mu.Unlock()
		runtime.Gosched()
	}
	out, err := s.Run(tx, keys, args, reply)
	if f.torn {
		f.mu.Lock()
	}
	if err != nil {
		return reply, err
	}
	for _, c := range tx.Changes() {
		r := row{c.Content, f.rows[keys[c.Key]].expires}
		if c.TTL > 0 {
			r.expires = now + c.TTL.Microseconds()
		}
		if c.Deleted {
			r.expires = 0
		}
		f.rows[strings.Clone(keys[c.Key])] = r
	}
	return out, nil
}

func (f *fake) MGet(ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.read(keys, time.Now().UnixMicro()) {
		var v store.Value
		if h.Kind == store.Numbers {
			v = store.BulkValue(h.Nums.String())
		}
		values = append(values, v)
	}
	return values, ctx.Err()
}

func (f *fake) Time(ctx context.Context) (time.Time, error) { return time.Now(), ctx.Err() }

func (f *fake) keys(_ context.Context, part string) (map[string]time.Duration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	found, now := map[string]time.Duration{}, time.Now().UnixMicro()
	for key, r := range f.rows {
		switch {
		case r.expires <= now || !strings.Contains(key, part):
		case f.keepsAll:
			found[key] = -1
		default:
			found[key] = time.Duration(r.expires-now) * time.Microsecond
		}
	}
	if f.hides && len(found) > 0 { // SCAN is allowed, and PTTL is not
		return nil, store.ErrUnavailable
	}
	return found, nil
}

// server returns f as the tool takes it.
func (f *fake) server() *server {
	f.rows = map[string]row{"of another": {expires: 1 << 62}}
	return &server{
		store:   f,
		open:    func(context.Context) (store.Store, func(), error) { return f, func() {}, nil },
		product: func(context.Context) string { return "Fake 1" },
		count:   func(context.Context) (int64, error) { return max(f.many, int64(len(f.rows))), nil },
		keys:    f.keys,
		close:   func() {},
	}
}

// A memoryServer is a server in the memory of the test, whose clock stands still.
type memoryServer struct {
	now   time.Time
	store *memory.Store
}

func newMemoryServer() *memoryServer {
	m := &memoryServer{now: time.Date(2026, 11, 25, 10, 3, 0, 0, time.UTC)}
	m.store = memory.New(&memory.Options{Now: func() time.Time { return m.now }})
	return m
}

func (m *memoryServer) dial() (*server, error) {
	return &server{store: m.store, close: func() {}}, nil
}
