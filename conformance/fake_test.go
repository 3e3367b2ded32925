package conformance

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A fake is a correct store with everything that a store can have, so that it
// skips no rule: it takes batches, borrows strings, forgets scripts, and passes for
// a store that runs Lua. A mutant is a fake with one behaviour changed.
type fake struct {
	*memory.Store
	mu   sync.Mutex
	sets map[string]bool // keys that the suite made a set of
	lost bool            // the scripts were dropped, and none was sent since
	memo any             // what a mutant remembers
	mutation
}

// A mutation is what a mutant does otherwise. What is nil is as it should be.
type mutation struct {
	eval  func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error)
	mget  func(f *fake, ctx context.Context, keys []string, values []store.Value) ([]store.Value, error)
	time  func(f *fake, ctx context.Context) (time.Time, error)
	batch func(f *fake, ctx context.Context, calls []store.Eval)
	tx    func(f *fake, s *store.Script, args []store.Arg, tx store.Tx) store.Tx
	after func(f *fake, s *store.Script, tx store.Tx, reply []store.Value) // runs inside the step
	wrap  func(algorithm.Algorithm) algorithm.Algorithm
	peer  bool // a peer's steps and the store's own interleave
}

func newFake(m mutation) *fake {
	return &fake{Store: memory.New(nil), sets: map[string]bool{}, mutation: m}
}

func (m mutation) backend() Backend {
	return Backend{
		New: func(*testing.T) store.Store { return newFake(m) },
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
		DropScripts: func(_ *testing.T, st store.Store) {
			f := st.(*fake)
			f.mu.Lock()
			defer f.mu.Unlock()
			f.lost = true
		},
		Seed: 1,
		wrap: m.wrap,
	}
}

func (f *fake) Eval(ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	if f.mutation.eval != nil {
		return f.mutation.eval(f, ctx, s, keys, args, reply)
	}
	return f.right(ctx, s, keys, args, reply)
}

// right is Eval as it should be, but for the view that scripts get.
func (f *fake) right(ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	f.mu.Lock()
	f.lost = false
	if s == setScript {
		f.sets[strings.Clone(keys[0])] = true
	}
	f.mu.Unlock()
	switch {
	case s == luaOnly:
		return append(reply, store.IntegerValue(1)), nil
	case f.tx == nil && f.after == nil:
		return f.Store.Eval(ctx, s, keys, args, reply)
	}
	form := s.GoForm()
	return f.Store.Eval(ctx, store.NewScript(s.Name(), s.Lua(), func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if f.tx != nil {
			tx = f.tx(f, s, args, tx)
		}
		start := len(reply)
		reply, err := form(tx, args, reply)
		if err == nil && f.after != nil {
			f.after(f, s, tx, reply[start:])
		}
		return reply, err
	}), keys, args, reply)
}

// BorrowsStrings reports true: what a fake notes, it copies.
func (f *fake) BorrowsStrings(st store.Store) bool { return st == store.Store(f) }

func (f *fake) scriptsLost() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost
}

func (f *fake) MGet(ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
	if f.mutation.mget != nil {
		return f.mutation.mget(f, ctx, keys, values)
	}
	return f.Store.MGet(ctx, keys, values)
}

func (f *fake) Time(ctx context.Context) (time.Time, error) {
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
	for i := range calls {
		c := &calls[i]
		c.Reply, c.Err = f.right(ctx, c.Script, c.Keys, c.Args, c.Reply)
	}
}

// A txFunc is a view of which a mutant changes what it gets and puts.
type txFunc struct {
	store.Tx
	now func() int64
	get func(n store.Nums, ok bool, err error) (store.Nums, bool, error)
	put func(i int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration)
	del func(i int)
}

func (t txFunc) Now() int64 {
	if t.now != nil {
		return t.now()
	}
	return t.Tx.Now()
}

func (t txFunc) Get(i int, tag store.Tag) (store.Nums, bool, error) {
	n, ok, err := t.Tx.Get(i, tag)
	if t.get != nil {
		return t.get(n, ok, err)
	}
	return n, ok, err
}

func (t txFunc) Put(i int, n store.Nums, ttl time.Duration) {
	if t.put != nil {
		n, ttl = t.put(i, n, ttl)
	}
	t.Tx.Put(i, n, ttl)
}

func (t txFunc) Del(i int) {
	if t.del != nil {
		t.del(i)
		return
	}
	t.Tx.Del(i)
}

// A badAlgorithm is an algorithm of which a mutant changes the arguments, the
// check, what its fragment does besides, or the verdict.
type badAlgorithm struct {
	algorithm.Algorithm
	args    func(args []store.Arg)
	check   func(tx store.Tx, now int64, args []store.Arg) store.Tx
	verbs   func(f *algorithm.Fragment)
	anyCost bool // CheckRequest lets everything pass
	verdict func(v algorithm.Verdict, committed bool, s algorithm.State, r algorithm.Request) algorithm.Verdict
	entries func(list []algorithm.Entry) []algorithm.Entry
}

type badLimit struct {
	algorithm.Limit
	bad      *badAlgorithm
	fragment *algorithm.Fragment
}

func (b *badAlgorithm) NewLimit() (algorithm.Limit, error) {
	limit, err := b.Algorithm.NewLimit()
	if err != nil {
		return nil, err
	}
	fragment := *limit.Fragment()
	if b.check != nil {
		right := fragment.Check
		fragment.Check = func(tx store.Tx, key int, now int64, args []store.Arg) (algorithm.State, bool, error) {
			return right(b.check(tx, now, args), key, now, args)
		}
	}
	if b.verbs != nil {
		b.verbs(&fragment)
	}
	return &badLimit{Limit: limit, bad: b, fragment: &fragment}, nil
}

func (l *badLimit) CheckRequest(r algorithm.Request) error {
	if c, ok := l.Limit.(algorithm.RequestChecker); ok && !l.bad.anyCost {
		return c.CheckRequest(r)
	}
	return nil
}

func (l *badLimit) Entries(texts []string) ([]algorithm.Entry, error) {
	list, err := l.Limit.(algorithm.Lister).Entries(texts)
	if l.bad.entries != nil {
		list = l.bad.entries(list)
	}
	return list, err
}

func (l *badLimit) Fragment() *algorithm.Fragment { return l.fragment }

func (l *badLimit) AppendArgs(args []store.Arg, r algorithm.Request) []store.Arg {
	start := len(args)
	args = l.Limit.AppendArgs(args, r)
	if l.bad.args != nil {
		l.bad.args(args[start:])
	}
	return args
}

func (l *badLimit) Verdict(now int64, committed bool, s algorithm.State, r algorithm.Request) algorithm.Verdict {
	v := l.Limit.Verdict(now, committed, s, r)
	if l.bad.verdict != nil {
		v = l.bad.verdict(v, committed, s, r)
	}
	return v
}

// bad returns a mutation of one algorithm alone.
func bad[A algorithm.Algorithm](b badAlgorithm) mutation {
	return mutation{wrap: func(a algorithm.Algorithm) algorithm.Algorithm {
		if _, ok := a.(A); !ok {
			return a
		}
		bad := b
		bad.Algorithm = a
		return &bad
	}}
}
