package conformance

import (
	"cmp"
	"context"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A fake is a correct store with all that a store can have, so that no check is skipped:
// it has batches, lists its keys, borrows strings, loses scripts, and appears to run Lua.
// A mutant is a fake with one behaviour changed.
type fake struct {
	*memory.Store
	mu   sync.Mutex
	sets map[string]bool // keys that the suite made a set of
	shut atomic.Bool     // it was closed
	lost bool            // the scripts were dropped, and none was sent since
	memo any             // what a mutant remembers

	planted  map[string]bool // keys with a value that the fake cannot read: they hold a set
	watching atomic.Bool     // values can be planted, and changes are counted
	writes   atomic.Int64    // the changes
	mutation
}

// A mutation is what a mutant does wrong. A field that is nil changes nothing.
type mutation struct {
	eval  func(c call) ([]store.Value, error)
	mget  func(f *fake, ctx context.Context, keys []string, values []store.Value) ([]store.Value, error)
	time  func(f *fake, ctx context.Context) (time.Time, error)
	batch func(f *fake, ctx context.Context, calls []store.Eval)
	list  func(f *fake, ctx context.Context, prefix, cursor string, keys []string) ([]string, string, error)
	tx    func(c call, tx store.Tx) store.Tx
	after func(c call, tx store.Tx, reply []store.Value) // runs inside the step
	keys  func(key string) string                        // renames keys on their way to the store
	shut  func(method string) error                      // of a store that was closed; nil means ErrUnavailable

	policy   func(*weir.Policy)
	deadline error               // of CheckDeadline
	lends    bool                // it says that every store borrows strings
	peer     bool                // a peer's steps and the store's own interleave
	reopen   func(f *fake) *fake // what a store is after a restart
}

// A call is a call of Eval.
type call struct {
	f     *fake
	ctx   context.Context
	s     *store.Script
	keys  []string
	args  []store.Arg
	reply []store.Value
}

func newFake(m mutation) *fake {
	return &fake{Store: memory.New(nil), sets: map[string]bool{}, planted: map[string]bool{}, mutation: m}
}

func (m mutation) backend() Backend {
	return Backend{
		New: func(t *testing.T) store.Store {
			f := newFake(m)
			t.Cleanup(func() { f.shut.Store(true) })
			return f
		},
		Keys: func(_ *testing.T, st store.Store, part string) map[string]time.Duration {
			keys := map[string]time.Duration{}
			for key, ttl := range st.(*fake).All() {
				if strings.Contains(key, part) {
					keys[key] = ttl
				}
			}
			return keys
		},
		Peer: func(_ *testing.T, st store.Store) store.Store {
			if !m.peer {
				return st
			}
			return &fake{Store: st.(*fake).Store, sets: map[string]bool{}, mutation: torn("counter")}
		},
		Reopen: func(_ *testing.T, st store.Store) store.Store {
			if m.reopen == nil {
				return st
			}
			return m.reopen(st.(*fake))
		},
		DropScripts: func(_ *testing.T, st store.Store) {
			f := st.(*fake)
			f.mu.Lock()
			defer f.mu.Unlock()
			f.lost = true
		},
		Plant: func(t *testing.T, st store.Store, key string, raw []byte) {
			f := st.(*fake)
			f.watching.Store(true)
			f.planted[key] = true
			if _, err := f.Store.Eval(t.Context(), scripts.PushText, []string{key}, []store.Arg{store.StringArg(string(raw[:1]))}, nil); err != nil {
				t.Fatal(err)
			}
		},
		Writes: func(_ *testing.T, st store.Store) int64 {
			st.(*fake).watching.Store(true)
			return st.(*fake).writes.Load()
		},
		Seed: 1,
	}
}

// host returns the backend with the mutation of policies.
func (m mutation) host() suite.Host {
	h := m.backend().host(nil)
	h.Mutate = m.policy
	return h
}

// closed returns the error of a method if f was closed.
func (f *fake) closed(method string) error {
	switch {
	case !f.shut.Load():
		return nil
	case f.mutation.shut != nil:
		return f.mutation.shut(method)
	}
	return store.ErrUnavailable
}

func (f *fake) Eval(ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	c := call{f, ctx, s, keys, args, reply}
	if err := f.closed("Eval"); err != nil {
		return reply, err
	}
	if f.mutation.eval != nil {
		return f.mutation.eval(c)
	}
	return c.right()
}

// right is a correct Eval, but for the Tx that scripts see, and the names of keys.
func (c call) right() ([]store.Value, error) {
	f, s := c.f, c.s
	c.keys = f.renamed(c.keys)
	f.mu.Lock()
	f.lost = false
	if s == scripts.SetStep && c.args[2].String() == scripts.Member.Text {
		f.sets[strings.Clone(c.keys[0])] = true
	}
	f.mu.Unlock()
	switch {
	case s == scripts.LuaOnly:
		return append(c.reply, store.IntegerValue(1)), nil
	case f.tx == nil && f.after == nil && !f.watching.Load():
		return f.Store.Eval(c.ctx, s, c.keys, c.args, c.reply)
	}
	form := s.GoForm()
	// The script is not read-only, so that a mutant can write.
	return f.Store.Eval(c.ctx, store.NewScript(s.Name(), "", func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		c := c
		c.args = args
		if f.watching.Load() {
			tx = watched{tx, f, c.keys}
		}
		if f.tx != nil {
			tx = f.tx(c, tx)
		}
		start := len(reply)
		reply, err := form(tx, args, reply)
		if err == nil && f.after != nil {
			f.after(c, tx, reply[start:])
		}
		return reply, err
	}), c.keys, c.args, c.reply)
}

// of returns a call of a batch.
func (f *fake) of(ctx context.Context, e *store.Eval) call {
	return call{f, ctx, e.Script, e.Keys, e.Args, e.Reply}
}

// A watched Tx counts changes, and does not read what was planted.
type watched struct {
	store.Tx
	f    *fake
	keys []string
}

func (w watched) err(i int) error {
	if w.f.planted[w.keys[i]] {
		return store.ForeignAt(i)
	}
	return nil
}

func (w watched) At(i int, fromEnd int64) (store.Member, bool, error) {
	m, ok, err := w.Tx.At(i, fromEnd)
	return m, ok, cmp.Or(err, w.err(i))
}

func (w watched) Count(i int, after int64) (above, all int64, err error) {
	above, all, err = w.Tx.Count(i, after)
	return above, all, cmp.Or(err, w.err(i))
}

func (w watched) Score(i int, text string) (score int64, ok bool, err error) {
	score, ok, err = w.Tx.Score(i, text)
	return score, ok, cmp.Or(err, w.err(i))
}

func (w watched) Put(i int, n store.Nums, ttl time.Duration) {
	w.f.writes.Add(1)
	w.Tx.Put(i, n, ttl)
}

func (w watched) Add(i int, m store.Member, ttl time.Duration) {
	w.f.writes.Add(1)
	w.Tx.Add(i, m, ttl)
}

// CheckDeadline returns nil: the calls of a fake end with their contexts.
func (f *fake) CheckDeadline() error { return f.deadline }

// renamed returns the names that keys have in the store.
func (f *fake) renamed(keys []string) []string {
	if f.keys == nil {
		return keys
	}
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = f.keys(strings.Clone(key))
	}
	return names
}

// BorrowsStrings reports true: a fake copies the strings that it keeps.
func (f *fake) BorrowsStrings(st store.Store) bool { return f.lends || st == store.Store(f) }

// has reports whether key is not missing.
func (f *fake) has(key string) bool {
	_, ok := maps.Collect(f.All())[key]
	return ok
}

func (f *fake) scriptsLost() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost
}

func (f *fake) MGet(ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
	if err := f.closed("MGet"); err != nil {
		return values, err
	}
	if f.mutation.mget != nil {
		return f.mutation.mget(f, ctx, keys, values)
	}
	return f.Store.MGet(ctx, f.renamed(keys), values)
}

func (f *fake) Time(ctx context.Context) (time.Time, error) {
	if err := f.closed("Time"); err != nil {
		return time.Time{}, err
	}
	if f.mutation.time != nil {
		return f.mutation.time(f, ctx)
	}
	return f.Store.Time(ctx)
}

func (f *fake) EvalBatch(ctx context.Context, calls []store.Eval) {
	if f.mutation.batch != nil {
		f.mutation.batch(f, ctx, calls)
		return
	}
	f.rightBatch(ctx, calls)
}

// rightBatch is a correct EvalBatch, but for what right does.
func (f *fake) rightBatch(ctx context.Context, calls []store.Eval) {
	for i := range calls {
		c := &calls[i]
		if c.Err = f.closed("EvalBatch"); c.Err != nil {
			continue
		}
		c.Reply, c.Err = f.of(ctx, c).right()
	}
}

func (f *fake) List(ctx context.Context, prefix, cursor string, keys []string) ([]string, string, error) {
	if f.mutation.list != nil {
		return f.mutation.list(f, ctx, prefix, cursor, keys)
	}
	return f.Store.List(ctx, prefix, cursor, keys)
}
