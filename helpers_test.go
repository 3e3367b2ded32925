package weir_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// epoch is the start of virtual time.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A capped is an algorithm that can consume at most most tokens at once.
type capped struct {
	algorithm.Algorithm
	most int64
}

func (c capped) NewLimit() (*contract.Limit, error) {
	l, err := c.Algorithm.NewLimit()
	if err != nil {
		return nil, err
	}
	other := *l
	other.MaxCost = c.most
	return &other, nil
}

// A clock shows the time that a test sets.
type clock struct{ micros atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.micros.Store(epoch.UnixMicro())
	return c
}

func (c *clock) now() time.Time          { return time.UnixMicro(c.micros.Load()) }
func (c *clock) advance(d time.Duration) { c.micros.Add(d.Microseconds()) }

// newStore returns a memory store whose clock is c.
func newStore(c *clock) *memory.Store { return memory.New(&memory.Options{Now: c.now}) }

// mustNew returns a limiter named "t" with one rule that has no name.
func mustNew(t testing.TB, st store.Store, a algorithm.Algorithm) *weir.Limiter {
	t.Helper()
	l, err := weir.New("t", st, a, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// mustPolicy returns a limiter for p. If p has no name, the name is "t".
func mustPolicy(t testing.TB, st store.Store, p weir.Policy) *weir.Limiter {
	t.Helper()
	if p.Name == "" {
		p.Name = "t"
	}
	l, err := weir.NewPolicy(st, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// rules returns a policy whose keys have one segment.
func rules(list ...weir.Rule) weir.Policy { return weir.Policy{Rules: list} }

var perSecond = algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 5}

func window(limit int64, d time.Duration) algorithm.FixedWindow {
	return algorithm.FixedWindow{Limit: limit, Window: d}
}

// A recorder is a store that records its calls.
type recorder struct {
	store.Store
	mu    sync.Mutex
	keys  []string
	evals int
	mgets int
	times int
}

func (r *recorder) calls() int { return r.evals + r.mgets + r.times }

func (r *recorder) Eval(ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	r.mu.Lock()
	r.evals++
	r.keys = slices.Clone(keys)
	r.mu.Unlock()
	return r.Store.Eval(ctx, s, keys, args, reply)
}

func (r *recorder) MGet(ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
	r.mgets++
	r.keys = slices.Clone(keys)
	return r.Store.MGet(ctx, keys, values)
}

func (r *recorder) Time(ctx context.Context) (time.Time, error) {
	r.times++
	return r.Store.Time(ctx)
}

// A hooked store calls eval before each Eval, and returns its error. If lose is not nil,
// it makes the call, and then returns lose, as if the reply was lost.
type hooked struct {
	store.Store
	eval func(ctx context.Context, s *store.Script) error
	lose error
}

func (h *hooked) Eval(ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	if h.eval != nil {
		if err := h.eval(ctx, s); err != nil {
			return reply, err
		}
	}
	if h.lose != nil {
		_, _ = h.Store.Eval(context.WithoutCancel(ctx), s, keys, args, nil)
		return reply, h.lose
	}
	return h.Store.Eval(ctx, s, keys, args, reply)
}

// dump returns every key of st with its value, in order.
func dump(t testing.TB, st *memory.Store) []string {
	t.Helper()
	var lines []string
	for key := range st.All() {
		values, err := st.MGet(t.Context(), []string{key}, nil)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, key+" = "+values[0].Str())
	}
	slices.Sort(lines)
	return lines
}

// keysIn returns every key of st, in order.
func keysIn(st *memory.Store) []string { return slices.Sorted(maps.Keys(maps.Collect(st.All()))) }

// change runs f on one key of st.
func change(t testing.TB, st store.Store, key string, f func(tx store.Tx)) {
	t.Helper()
	script := store.NewScript("change", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
		f(tx)
		return reply, nil
	})
	if _, err := st.Eval(t.Context(), script, []string{key}, nil, nil); err != nil {
		t.Fatal(err)
	}
}

// plant sets key to the value with this tag and the integers n.
func plant(t testing.TB, st store.Store, key string, tag store.Tag, n ...int64) {
	t.Helper()
	change(t, st, key, func(tx store.Tx) {
		nums := store.Nums{Tag: tag, Len: uint8(len(n))}
		copy(nums.N[:], n)
		tx.Put(0, nums, time.Hour)
	})
}

// remove deletes key.
func remove(t testing.TB, st store.Store, key string) {
	t.Helper()
	change(t, st, key, func(tx store.Tx) { tx.Del(0) })
}

// allow fails the test unless the request is allowed.
func allow(t testing.TB, l *weir.Limiter, r weir.Request) weir.Result {
	t.Helper()
	res, err := l.Decide(t.Context(), r, nil)
	if err != nil || !res.Allowed {
		t.Fatalf("%+v: got %+v, %v, want it allowed", r, res, err)
	}
	return res
}

// left returns the result of a Peek at key.
func left(t testing.TB, l *weir.Limiter, key ...string) weir.Result {
	t.Helper()
	res, err := l.Peek(t.Context(), key...)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// number returns a short name, which differs for each i.
func number(i int) string { return fmt.Sprint("k", i) }
