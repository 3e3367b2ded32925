package memory_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// idRules returns rules of every layout: a cell, a sorted set, and a ring of several
// keys.
func idRules() map[string]algorithm.Algorithm {
	return map[string]algorithm.Algorithm{
		"FixedWindow":    algorithm.FixedWindow{Limit: 10, Window: time.Hour},
		"GCRA":           algorithm.GCRA{Rate: algorithm.PerHour(10), Burst: 10},
		"SlidingLog":     algorithm.SlidingLog{Limit: 10, Window: time.Hour},
		"SlidingBuckets": algorithm.SlidingBuckets{Spans: []algorithm.Span{{Limit: 10, Window: time.Hour}}, Width: 10 * time.Minute},
	}
}

// After a flood of new keys, a repeat of a decision with an ID consumes nothing, unless
// its tokens were evicted too.
func TestFloodChargesNoRepeatTwice(t *testing.T) {
	t.Parallel()
	const callers = 50
	for name, a := range idRules() {
		for _, id := range []string{"", "x"} { // the flood has IDs too
			t.Run(name+id, func(t *testing.T) {
				t.Parallel()
				c := newClock()
				lim, err := weir.New("t", memory.New(&memory.Options{MaxKeys: 1000, Now: c.now}), a, nil)
				if err != nil {
					t.Fatal(err)
				}
				decide := func(r weir.Request) weir.Result {
					t.Helper()
					res, err := lim.Decide(t.Context(), r, nil)
					if err != nil {
						t.Fatal(err)
					}
					return res
				}
				repeat := func(i int) weir.Request {
					return weir.Request{Key: weir.KeyOf(fmt.Sprint("caller", i)), ID: "job"}
				}
				for i := range callers {
					decide(repeat(i))
				}
				replayed, evicted := 0, 0
				for flood := range 5000 {
					c.advance(time.Millisecond)
					decide(weir.Request{Key: weir.KeyOf(fmt.Sprint("new", flood)), ID: id})
					if flood%100 != 99 {
						continue
					}
					r := repeat(flood / 100)
					r.Op = weir.Peek
					left := decide(r).Remaining
					r.Op = weir.Consume
					if left == 10 {
						evicted++
					}
					if res := decide(r); res.Replayed {
						replayed++
					} else if left < 10 {
						t.Fatalf("after %d new keys, a repeat of a caller with %d tokens left got %+v: it consumed twice", flood+1, left, res)
					}
				}
				if replayed == 0 || evicted == 0 {
					t.Errorf("%d repeats were recognized, and %d callers were evicted: want some of each", replayed, evicted)
				}
			})
		}
	}
}

// No key outlives the marker of its decision, however many shards there are and whatever
// happens at once.
func TestFloodEvictsKeysBeforeMarkers(t *testing.T) {
	t.Parallel()
	for name, a := range idRules() {
		for _, max := range []int{100, 1 << 12} { // one shard, and four
			t.Run(fmt.Sprint(name, max), func(t *testing.T) {
				t.Parallel()
				c := newClock()
				st := memory.New(&memory.Options{MaxKeys: max, Now: c.now})
				lim, err := weir.New("t", st, a, nil)
				if err != nil {
					t.Fatal(err)
				}
				const floods = 4
				full := make([]int, floods)
				within(t, time.Minute, func() {
					var wg sync.WaitGroup
					for flood := range floods {
						wg.Go(func() {
							for i := range max {
								c.advance(time.Millisecond)
								r := weir.Request{Key: weir.KeyOf(fmt.Sprintf("%d.%d", flood, i)), ID: "job"}
								if _, err := lim.Decide(context.Background(), r, nil); errors.Is(err, store.ErrUnavailable) {
									full[flood]++
								} else if err != nil {
									t.Error(err)
								}
							}
						})
					}
					wg.Wait()
				})
				for flood, n := range full {
					if n > max/50 {
						t.Errorf("flood %d: %d of %d new callers were rejected", flood, n, max)
					}
				}
				marked, keys := map[string]bool{}, []string(nil)
				for key := range st.All() {
					if caller, _, ok := strings.Cut(key, ":%id="); ok {
						marked[caller] = true
					} else {
						keys = append(keys, key)
					}
				}
				for _, key := range keys {
					caller := key
					if name == "SlidingBuckets" {
						caller = key[:strings.LastIndexByte(key, ':')]
					}
					if !marked[caller] {
						t.Fatalf("the store holds %q without the marker of its decision", key)
					}
				}
				if len(keys) < max/4 || st.Len() > max {
					t.Errorf("the store holds %d keys of rules and %d keys, want at least %d and at most %d", len(keys), st.Len(), max/4, max)
				}
			})
		}
	}
}

// The markers of a key are as safe as the key. If its last request was denied, a flood
// evicts none of them.
func TestFloodKeepsMarkersOfDeniedKeys(t *testing.T) {
	t.Parallel()
	for name, a := range idRules() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClock()
			lim, err := weir.New("t", memory.New(&memory.Options{MaxKeys: 100, Now: c.now}), a, nil)
			if err != nil {
				t.Fatal(err)
			}
			request := func(id int) weir.Result {
				t.Helper()
				res, err := lim.Decide(t.Context(), weir.Request{Key: weir.KeyOf("ann"), ID: fmt.Sprint("job", id)}, nil)
				if err != nil {
					t.Fatal(err)
				}
				return res
			}
			for id := range 10 {
				request(id)
			}
			if request(10).Allowed {
				t.Fatal("want the eleventh request denied")
			}
			for i := range 1000 {
				c.advance(time.Millisecond)
				if _, err := lim.Decide(t.Context(), weir.Request{Key: weir.KeyOf(fmt.Sprint("new", i)), ID: "x"}, nil); err != nil {
					t.Fatalf("new key %d: %v", i, err)
				}
			}
			for id := range 10 {
				if res := request(id); !res.Replayed {
					t.Errorf("the repeat of job %d got %+v, want it recognized", id, res)
				}
			}
		})
	}
}

// A key with more IDs than the store holds is rejected until some of them expire. It does
// not shut out new keys, which evict it.
func TestMoreIDsThanKeys(t *testing.T) {
	t.Parallel()
	const max = 100
	c := newClock()
	st := memory.New(&memory.Options{MaxKeys: max, Now: c.now})
	lim, err := weir.New("t", st, algorithm.FixedWindow{Limit: 1000, Window: time.Hour}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(key, id string) (weir.Result, error) {
		c.advance(time.Millisecond)
		return lim.Decide(t.Context(), weir.Request{Key: weir.KeyOf(key), ID: id}, nil)
	}
	for i := range 3 * max {
		res, err := ask("ann", fmt.Sprint(i))
		if full := i >= max-1; full != errors.Is(err, store.ErrUnavailable) || full == res.Allowed {
			t.Fatalf("ID %d: got %+v, %v, want it rejected: %t", i, res, err, full)
		}
	}
	if res, err := ask("ann", "0"); err != nil || !res.Replayed {
		t.Errorf("the repeat of the first ID: got %+v, %v, want it recognized", res, err)
	}
	for i := range 3 * max {
		if res, err := ask(fmt.Sprint("new", i), "x"); err != nil || !res.Allowed {
			t.Fatalf("new key %d: got %+v, %v", i, res, err)
		}
	}
	if st.Len() > max {
		t.Errorf("the store holds %d keys, want at most %d", st.Len(), max)
	}
}
