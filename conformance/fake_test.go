package conformance

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A fake is a correct store with all that a store can have, so that no check is skipped:
// it has batches, borrows strings, loses scripts, and appears to run Lua. A mutant is a
// fake with one behaviour changed.
type fake struct {
	*memory.Store
	mu   sync.Mutex
	sets map[string]bool // keys that the suite made a set of
	lost bool            // the scripts were dropped, and none was sent since
	memo any             // what a mutant remembers
	mutation
}

// A mutation is what a mutant does wrong. A field that is nil changes nothing.
type mutation struct {
	eval  func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error)
	mget  func(f *fake, ctx context.Context, keys []string, values []store.Value) ([]store.Value, error)
	time  func(f *fake, ctx context.Context) (time.Time, error)
	batch func(f *fake, ctx context.Context, calls []store.Eval)
	tx    func(f *fake, s *store.Script, args []store.Arg, tx store.Tx) store.Tx
	after func(f *fake, s *store.Script, tx store.Tx, reply []store.Value) // runs inside the step
	keys  func(key string) string                                          // renames keys on their way to the store

	wrap   func(algorithm.Algorithm) algorithm.Algorithm
	policy func(*weir.Policy)
	peer   bool // a peer's steps and the store's own interleave
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
		Seed:   1,
		wrap:   m.wrap,
		policy: m.policy,
	}
}

func (f *fake) Eval(ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	if f.mutation.eval != nil {
		return f.mutation.eval(f, ctx, s, keys, args, reply)
	}
	return f.right(ctx, s, keys, args, reply)
}

// right is a correct Eval, but for the Tx that scripts see, and the names of keys.
func (f *fake) right(ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	keys = f.renamed(keys)
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
	// The script is not read-only, so that a mutant can write.
	return f.Store.Eval(ctx, store.NewScript(s.Name(), "", func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
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
func (f *fake) BorrowsStrings(st store.Store) bool { return st == store.Store(f) }

// has reports whether key is not missing.
func (f *fake) has(key string) bool {
	for other := range f.All() {
		if other == key {
			return true
		}
	}
	return false
}

func (f *fake) scriptsLost() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost
}

func (f *fake) MGet(ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
	if f.mutation.mget != nil {
		return f.mutation.mget(f, ctx, keys, values)
	}
	return f.Store.MGet(ctx, f.renamed(keys), values)
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

// A txFunc is a Tx of which a mutant changes some methods.
type txFunc struct {
	store.Tx
	now    func() int64
	get    func(i int, n store.Nums, ok bool, err error) (store.Nums, bool, error)
	put    func(i int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration)
	keep   func(i int, n store.Nums)
	del    func(i int)
	count  func(i int, after int64) (above, all int64, err error)
	score  func(i int, text string) (int64, bool, error)
	at     func(i int, fromEnd int64) (store.Member, bool, error)
	add    func(i int, m store.Member, ttl time.Duration)
	remove func(i int, text string)
	trim   func(i int, n int64)
}

func (t txFunc) Now() int64 {
	if t.now != nil {
		return t.now()
	}
	return t.Tx.Now()
}

func (t txFunc) Get(i int) (store.Nums, bool, error) {
	n, ok, err := t.Tx.Get(i)
	if t.get != nil {
		return t.get(i, n, ok, err)
	}
	return n, ok, err
}

func (t txFunc) Put(i int, n store.Nums, ttl time.Duration) {
	if t.put != nil {
		n, ttl = t.put(i, n, ttl)
	}
	t.Tx.Put(i, n, ttl)
}

func (t txFunc) Keep(i int, n store.Nums) {
	if t.keep != nil {
		t.keep(i, n)
		return
	}
	if t.put != nil { // a value is changed however it is written
		n, _ = t.put(i, n, 0)
	}
	t.Tx.Keep(i, n)
}

func (t txFunc) Del(i int) {
	if t.del != nil {
		t.del(i)
		return
	}
	t.Tx.Del(i)
}

func (t txFunc) Count(i int, after int64) (above, all int64, err error) {
	if t.count != nil {
		return t.count(i, after)
	}
	return t.Tx.Count(i, after)
}

func (t txFunc) Score(i int, text string) (int64, bool, error) {
	if t.score != nil {
		return t.score(i, text)
	}
	return t.Tx.Score(i, text)
}

func (t txFunc) At(i int, fromEnd int64) (store.Member, bool, error) {
	if t.at != nil {
		return t.at(i, fromEnd)
	}
	return t.Tx.At(i, fromEnd)
}

func (t txFunc) Add(i int, m store.Member, ttl time.Duration) {
	if t.add != nil {
		t.add(i, m, ttl)
		return
	}
	t.Tx.Add(i, m, ttl)
}

func (t txFunc) Remove(i int, text string) {
	if t.remove != nil {
		t.remove(i, text)
		return
	}
	t.Tx.Remove(i, text)
}

func (t txFunc) Trim(i int, n int64) {
	if t.trim != nil {
		t.trim(i, n)
		return
	}
	t.Tx.Trim(i, n)
}

// A flaw is what an algorithm does wrong. A field that is nil changes nothing.
type flaw struct {
	limit func(l *contract.Limit)
	kind  func(k *contract.Kind)
	meter func(m *badMeter, args []store.Arg) // of a kind with a Meter
	step  func(s *badStep, args []store.Arg)  // of a kind with a Step
}

// A badMeter is a Meter of which a flaw sets some functions.
type badMeter struct {
	contract.Meter
	settle func(now int64, c contract.Cell) contract.Cell
	room   func(now, at int64, c contract.Cell) int64
	take   func(c contract.Cell, n int64) contract.Cell
	ends   func(c contract.Cell) int64
	ready  func(now int64, c contract.Cell, n, wait int64) int64
	refund func(now int64, c contract.Cell, ch contract.Charge, note contract.Cell) (contract.Cell, contract.Cell)
}

func (m *badMeter) Settle(now int64, c contract.Cell) contract.Cell {
	if m.settle != nil {
		return m.settle(now, c)
	}
	return m.Meter.Settle(now, c)
}

func (m *badMeter) Room(now, at int64, c contract.Cell) int64 {
	if m.room != nil {
		return m.room(now, at, c)
	}
	return m.Meter.Room(now, at, c)
}

func (m *badMeter) Take(c contract.Cell, n int64) contract.Cell {
	if m.take != nil {
		return m.take(c, n)
	}
	return m.Meter.Take(c, n)
}

func (m *badMeter) Ends(c contract.Cell) int64 {
	if m.ends != nil {
		return m.ends(c)
	}
	return m.Meter.Ends(c)
}

func (m *badMeter) Ready(now int64, c contract.Cell, n, wait int64) int64 {
	if m.ready != nil {
		return m.ready(now, c, n, wait)
	}
	return m.Meter.Ready(now, c, n, wait)
}

// A badRefunder is a badMeter whose Meter is a Refunder.
type badRefunder struct{ *badMeter }

func (m badRefunder) Refund(now int64, c contract.Cell, ch contract.Charge, note contract.Cell) (contract.Cell, contract.Cell) {
	if m.refund != nil {
		return m.refund(now, c, ch, note)
	}
	return m.right(now, c, ch, note)
}

// right is Refund without the flaw.
func (m *badMeter) right(now int64, c contract.Cell, ch contract.Charge, note contract.Cell) (contract.Cell, contract.Cell) {
	return m.Meter.(contract.Refunder).Refund(now, c, ch, note)
}

// A badStep is a Step of which a flaw sets some functions.
type badStep struct {
	contract.Step
	read   func(tx store.Tx, key int, now int64, a contract.Ask) (contract.State, error)
	room   func(now int64, s contract.State, a contract.Ask) int64
	write  func(tx store.Tx, key int, now int64, s contract.State, n int64, a contract.Ask, gen int64, slack time.Duration) error
	answer func(now int64, s contract.State, n int64, a contract.Ask) contract.Answer
	mark   func(now int64, s contract.State, n, gen int64) (contract.Cell, int64)
	refund func(tx store.Tx, key int, now int64, s contract.State, a contract.Ask, mark contract.Cell, n, gen int64) (bool, error)
	parse  func(texts []string) ([]contract.Entry, error)
}

func (b *badStep) Read(tx store.Tx, key int, now int64, a contract.Ask) (contract.State, error) {
	if b.read != nil {
		return b.read(tx, key, now, a)
	}
	return b.Step.Read(tx, key, now, a)
}

func (b *badStep) Room(now int64, s contract.State, a contract.Ask) int64 {
	if b.room != nil {
		return b.room(now, s, a)
	}
	return b.Step.Room(now, s, a)
}

func (b *badStep) Write(tx store.Tx, key int, now int64, s contract.State, n int64, a contract.Ask, gen int64, slack time.Duration) error {
	if b.write != nil {
		return b.write(tx, key, now, s, n, a, gen, slack)
	}
	return b.Step.Write(tx, key, now, s, n, a, gen, slack)
}

func (b *badStep) Answer(now int64, s contract.State, n int64, a contract.Ask) contract.Answer {
	if b.answer != nil {
		return b.answer(now, s, n, a)
	}
	return b.Step.Answer(now, s, n, a)
}

// A badStepRefunder is a badStep whose Step is a StepRefunder.
type badStepRefunder struct{ *badStep }

func (b badStepRefunder) Mark(now int64, s contract.State, n, gen int64) (contract.Cell, int64) {
	if b.mark != nil {
		return b.mark(now, s, n, gen)
	}
	return b.Step.(contract.StepRefunder).Mark(now, s, n, gen)
}

func (b badStepRefunder) Refund(tx store.Tx, key int, now int64, s contract.State, a contract.Ask, mark contract.Cell, n, gen int64) (bool, error) {
	if b.refund != nil {
		return b.refund(tx, key, now, s, a, mark, n, gen)
	}
	return b.Step.(contract.StepRefunder).Refund(tx, key, now, s, a, mark, n, gen)
}

// A badLister is a badStep whose Step is a Lister.
type badLister struct{ *badStep }

func (b badLister) Entries(tx store.Tx, key int, s contract.State) ([]string, error) {
	return b.Step.(contract.Lister).Entries(tx, key, s)
}

func (b badLister) Parse(texts []string) ([]contract.Entry, error) {
	if b.parse != nil {
		return b.parse(texts)
	}
	return b.Step.(contract.Lister).Parse(texts)
}

// A flawedKinds has the kinds with one flaw, by the right ones, so that all limits of one
// kind share one.
type flawedKinds struct {
	flaw
	mu    sync.Mutex
	kinds map[*contract.Kind]*contract.Kind
}

func (f *flawedKinds) of(right *contract.Kind) *contract.Kind {
	f.mu.Lock()
	defer f.mu.Unlock()
	if k, ok := f.kinds[right]; ok {
		return k
	}
	k := *right
	if right.Meter != nil && f.meter != nil {
		k.Meter = func(args []store.Arg) contract.Meter {
			m := &badMeter{Meter: right.Meter(args)}
			f.meter(m, args)
			if _, ok := m.Meter.(contract.Refunder); ok {
				return badRefunder{m}
			}
			return m
		}
	}
	if right.Step != nil && f.step != nil {
		k.Step = func(args []store.Arg) contract.Step {
			s := &badStep{Step: right.Step(args)}
			f.step(s, args)
			switch s.Step.(type) {
			case contract.StepRefunder:
				return badStepRefunder{s}
			case contract.Lister:
				return badLister{s}
			}
			return s
		}
	}
	if f.kind != nil {
		f.kind(&k)
	}
	if f.kinds == nil {
		f.kinds = map[*contract.Kind]*contract.Kind{}
	}
	f.kinds[right] = &k
	return &k
}

// A badAlgorithm is an algorithm with a flaw.
type badAlgorithm struct {
	algorithm.Algorithm
	*flawedKinds
}

func (b *badAlgorithm) NewLimit() (*contract.Limit, error) {
	right, err := b.Algorithm.NewLimit()
	if err != nil {
		return nil, err
	}
	l := *right
	l.Args = slices.Clone(l.Args)
	l.Kind = b.of(l.Kind)
	if b.limit != nil {
		b.limit(&l)
	}
	return &l, nil
}

// bad returns a mutation that gives one algorithm a flaw.
func bad[A algorithm.Algorithm](f flaw) mutation {
	kinds := &flawedKinds{flaw: f}
	return mutation{wrap: func(a algorithm.Algorithm) algorithm.Algorithm {
		if _, ok := a.(A); !ok {
			return a
		}
		return &badAlgorithm{a, kinds}
	}}
}
