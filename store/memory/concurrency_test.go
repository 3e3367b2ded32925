package memory_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// within fails the test if f does not return within d, most likely because of a deadlock.
func within(t *testing.T, d time.Duration, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(d): // real time, because the test may hang
		t.Fatal("not done in time")
	}
}

// add returns a script that adds 1 to n keys.
func add(n int) *store.Script {
	return store.NewScript("add", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
		for i := range n {
			nums, _, err := tx.Get(i)
			if err != nil {
				return nil, err
			}
			tx.Put(i, store.Nums{Tag: store.Tag{'t', '1'}, Len: 1, N: [store.MaxNums]int64{nums.N[0] + 1}}, time.Hour)
		}
		return reply, nil
	})
}

// Concurrent scripts with several keys, in any order, do not deadlock and lose no update.
func TestConcurrentSteps(t *testing.T) {
	t.Parallel()
	const keys, callers, rounds, perStep = 40, 8, 500, 4
	st := memory.New(&memory.Options{MaxKeys: 1 << 17}) // all shards
	script := add(perStep)
	within(t, time.Minute, func() {
		var wg sync.WaitGroup
		for caller := range callers {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(caller), 1))
				for range rounds {
					names := make([]string, perStep)
					for i, n := range r.Perm(keys)[:perStep] {
						names[i] = fmt.Sprintf("{k}%d", n)
					}
					if _, err := st.Eval(context.Background(), script, names, nil, nil); err != nil {
						t.Error(err)
						return
					}
					_ = st.Len()
				}
			})
		}
		wg.Wait()
	})
	var sum, n int64
	for key := range st.All() {
		nums, _ := store.ParseNums(get(t, st, key)[0])
		sum += nums.N[0]
		n++
	}
	if sum != callers*rounds*perStep || n != keys {
		t.Errorf("%d keys hold %d, want %d holding %d", n, sum, keys, callers*rounds*perStep)
	}
}

// MGet reads the keys of one slot atomically.
func TestMGetIsAtomic(t *testing.T) {
	t.Parallel()
	st := memory.New(&memory.Options{MaxKeys: 1 << 17})
	keys := []string{"{k}0", "{k}1", "{k}2", "{k}3", "{k}4", "{k}5", "{k}6", "{k}7"}
	script := add(len(keys))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = st.Eval(context.Background(), script, keys, nil, nil)
				}
			}
		})
	}
	torn := 0
	for range 20_000 {
		texts := get(t, st, keys...)
		for _, text := range texts[1:] {
			if text != texts[0] {
				if torn++; torn == 1 {
					t.Errorf("one MGet of keys that every step sets to one value read %q", texts)
				}
				break
			}
		}
	}
	close(stop)
	wg.Wait()
	if torn > 0 {
		t.Errorf("%d of 20000 reads saw half of a step", torn)
	}
}

// The store never holds more than MaxKeys keys, while concurrent scripts evict keys,
// expired keys are removed, and the clock moves.
func TestConcurrentFlood(t *testing.T) {
	t.Parallel()
	const max = 1 << 12
	c := newClock()
	st := memory.New(&memory.Options{MaxKeys: max, Now: c.now})
	script := add(3)
	within(t, time.Minute, func() {
		var wg sync.WaitGroup
		for caller := range 4 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(caller), 2))
				for range 5000 {
					var names [3]string
					for i := range names {
						names[i] = fmt.Sprintf("{k}%d.%d", i, r.IntN(20_000))
					}
					_, _ = st.Eval(context.Background(), script, names[:], nil, nil)
					c.advance(time.Duration(r.IntN(1000)) * time.Millisecond)
				}
			})
		}
		wg.Go(func() {
			for range 20 {
				for range st.All() {
				}
			}
		})
		wg.Wait()
	})
	if got := st.Len(); got > max {
		t.Errorf("%d keys, want at most %d", got, max)
	}
}

// If the clock panics, no shard stays locked.
func TestClockPanics(t *testing.T) {
	t.Parallel()
	armed := false
	st := memory.New(&memory.Options{Now: func() time.Time {
		if armed {
			panic("bomb")
		}
		return epoch
	}})
	if err := set(st, time.Hour, 1, "a"); err != nil {
		t.Fatal(err)
	}
	armed = true
	for name, call := range map[string]func(){
		"Eval": func() { _ = set(st, time.Hour, 1, "a") },
		"MGet": func() { get(t, st, "a") },
		"All":  func() { _ = maps.Collect(st.All()) },
	} {
		func() {
			defer func() {
				if p := recover(); p != "bomb" {
					t.Errorf("%s recovered %v, want the panic of the clock", name, p)
				}
			}()
			call()
		}()
		within(t, 10*time.Second, func() { st.Len() })
	}
}
