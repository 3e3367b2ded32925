package weir_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

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

// remove deletes key.
func remove(t testing.TB, st store.Store, key string) {
	t.Helper()
	weirtest.Change(t, st, key, func(tx store.Tx) { tx.Del(0) })
}
