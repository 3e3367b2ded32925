package observe_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/store"
)

// deny makes top count n denials of key.
func deny(top *observe.TopDenied, key string, n int) {
	for range n {
		top.Observe(context.Background(), observe.Decision{Request: weir.Request{Key: weir.KeyOf(key)}})
	}
}

// TopDenied counts denied requests, and nothing else.
func TestTopDenied(t *testing.T) {
	t.Parallel()
	var top observe.TopDenied
	l := weirtest.Wrap(t, weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), weirtest.Window(1, time.Minute)), top.Wrap)
	for key, n := range map[string]int{"ann": 4, "bob": 1, "cy": 3, strings.Repeat("x", 2000): 9} {
		for range n {
			weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf(key)})
			weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf(key), Op: weir.Peek})
		}
	}
	weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf("cy"), Op: weir.TakeUpTo, Cost: 2})
	_, _ = l.Allow(t.Context(), "") // an error
	top.Observe(t.Context(), observe.Decision{Request: weir.Request{Key: weir.KeyOf("ann")}, Result: weir.Result{Degraded: store.ErrUnavailable}})
	want := []observe.DeniedKey{{Key: weir.KeyOf("ann"), Denied: 3}, {Key: weir.KeyOf("cy"), Denied: 3}}
	if got := top.Keys(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if top.Clear(); len(top.Keys()) != 0 {
		t.Errorf("after Clear: got %v", top.Keys())
	}
	deny(&top, "ann", 1)
	if got := top.Keys(); len(got) != 1 || got[0].Denied != 1 {
		t.Errorf("after Clear and a denial: got %v", got)
	}
}

// The promise of Space-Saving holds for random denials: a key is there if it has more
// than 1/Size of them, Denied is never too low, and at most Over too high.
func TestTopDeniedBounds(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for round := range 50 {
		size := 1 + rng.IntN(20)
		top, real, total := observe.TopDenied{Size: size}, map[string]int64{}, int64(0)
		for range 2000 {
			key := fmt.Sprint(int(rng.ExpFloat64() * 10))
			deny(&top, key, 1)
			real[key]++
			total++
		}
		found := map[string]bool{}
		keys := top.Keys()
		for i, k := range keys {
			name := k.Key.Segments()[0]
			found[name] = true
			if n := real[name]; k.Denied < n || k.Denied-k.Overcount > n || i > 0 && keys[i-1].Denied < k.Denied {
				t.Fatalf("seed %d, round %d: %v of %d denials is at place %d of %v", seed, round, k, n, i, keys)
			}
		}
		if len(keys) > size {
			t.Fatalf("seed %d, round %d: %d keys, want at most %d", seed, round, len(keys), size)
		}
		for name, n := range real {
			if n*int64(size) > total && !found[name] {
				t.Fatalf("seed %d, round %d: %s has %d of %d denials, and is not among %d keys", seed, round, name, n, total, size)
			}
		}
	}
}

// Many goroutines count together. The zero value counts 100 keys.
func TestTopDeniedConcurrent(t *testing.T) {
	t.Parallel()
	var top observe.TopDenied
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				deny(&top, fmt.Sprint("key", g, i), 1)
				deny(&top, "all", 1)
				_ = top.Keys()
			}
		})
	}
	wg.Wait()
	if got := top.Keys(); len(got) != 100 || got[0].Key != weir.KeyOf("all") || got[0].Denied < 400 {
		t.Errorf("got %d keys, the first is %v", len(got), got[0])
	}
}
