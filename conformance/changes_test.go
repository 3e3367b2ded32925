package conformance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir/conformance/internal/changes"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// runChanges runs n random histories of an algorithm, and returns the first error.
func runChanges(ctx context.Context, kind string, n int, newStore func(*memory.Store) store.Store) error {
	for seed := range uint64(n) {
		now := changes.Start
		st := newStore(memory.New(&memory.Options{Now: func() time.Time { return now }}))
		if err := changes.Run(ctx, seed, kind, st, func(d time.Duration) { now = now.Add(d) }, seed%4 == 3); err != nil {
			return err
		}
	}
	return nil
}

// From the last decision under another limit on, the new limit holds.
func TestChanges(t *testing.T) {
	t.Parallel()
	n := 4000
	if testing.Short() {
		n = 400
	}
	for _, kind := range slices.Sorted(maps.Keys(changes.Kinds)) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			if err := runChanges(t.Context(), kind, n, func(st *memory.Store) store.Store { return st }); err != nil {
				t.Error(err)
			}
		})
	}
}

// Stores that keep the wrong TTL, or windows that keep their end, are found.
func TestChangesMutants(t *testing.T) {
	t.Parallel()
	kept := txChanged(func(tx store.Tx, had func(int) bool) store.Tx {
		return keptTTLs{tx, had}
	})
	cells, sets := []string{"TokenBucket", "SlidingCounter"}, []string{"SlidingLog", "Concurrency"}
	for _, kind := range slices.Concat(cells, sets) {
		t.Run("a limit keeps the TTL of another/"+kind, func(t *testing.T) {
			t.Parallel()
			if err := runChanges(t.Context(), kind, 2000, kept); err == nil {
				t.Error("no history fails")
			}
		})
	}
	for _, kind := range []string{"FixedWindow", "MetadataWindow"} {
		t.Run("a window of another limit keeps its end/"+kind, func(t *testing.T) {
			t.Parallel()
			if err := runChanges(t.Context(), kind, 2000, txChanged(func(tx store.Tx, _ func(int) bool) store.Tx { return keptEdges{tx} })); err == nil {
				t.Error("no history fails")
			}
		})
	}
}

// txChanged returns a maker of stores whose scripts see another Tx. had reports whether a key is
// there before the step.
func txChanged(change func(tx store.Tx, had func(i int) bool) store.Tx) func(*memory.Store) store.Store {
	return func(st *memory.Store) store.Store {
		f := newFake(mutation{tx: func(_ *fake, _ *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
			return change(tx, func(i int) bool {
				_, ok, err := tx.Get(i)
				return ok || err != nil // the key holds a set
			})
		}})
		f.Store = st
		return f
	}
}

// keptTTLs sets the TTL of a key only if the key is missing.
type keptTTLs struct {
	store.Tx
	had func(i int) bool
}

func (k keptTTLs) Put(i int, n store.Nums, ttl time.Duration) {
	if k.had(i) {
		k.Keep(i, n)
		return
	}
	k.Tx.Put(i, n, ttl)
}

func (k keptTTLs) Add(i int, m store.Member, ttl time.Duration) {
	if k.had(i) {
		ttl = 0
	}
	k.Tx.Add(i, m, ttl)
}

// keptEdges writes the end of a window that it read, if it has not passed.
type keptEdges struct{ store.Tx }

func (k keptEdges) Put(i int, n store.Nums, ttl time.Duration) {
	if old, ok, err := k.Get(i); ok && err == nil && old.N[0] > k.Now() && n.Tag == old.Tag {
		n.N[0] = old.N[0]
	}
	k.Tx.Put(i, n, ttl)
}

func (k keptEdges) Add(i int, m store.Member, ttl time.Duration) {
	var was, edge, count int64
	if old, ok, _ := k.At(i, 0); ok {
		if _, err := fmt.Sscanf(old.Text, "m2 %d", &was); err == nil && was > k.Now() {
			if _, err := fmt.Sscanf(m.Text, "m2 %d %d", &edge, &count); err == nil {
				m.Text = fmt.Sprintf("m2 %d %d ", was, count)
			}
		}
	}
	k.Tx.Add(i, m, ttl)
}
