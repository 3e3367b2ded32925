package integration

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// keepBooks lets callers make random decisions with IDs, and settle each at another cost. decide
// makes a request, repeatedly until there is an answer. keepBooks returns how many decisions were
// answered as repeated. Until there was one, callers make up to 20 times as many decisions.
func keepBooks(t *testing.T, books []*lostBook, callers, decisions int, decide func(*rand.Rand, *weir.Limiter, weir.Request) (weir.Result, error)) int64 {
	var replayed atomic.Int64
	seed := rand.Uint64()
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(caller)))
			for i := 0; i < decisions || replayed.Load() == 0 && i < 20*decisions; i++ {
				b := books[rng.IntN(len(books))]
				r := weir.Request{Key: lostKey, Op: b.ops[rng.IntN(len(b.ops))], Cost: 1 + rng.Int64N(9), ID: fmt.Sprint(caller, "-", i)}
				res, err := decide(rng, b.lim, r)
				if err != nil || !res.Allowed || res.Granted != r.Cost {
					t.Errorf("seed %d: %s: %+v: got %+v, %v, want it allowed", seed, b.name, r, res, err)
					return
				}
				if res.Replayed {
					replayed.Add(1)
				}
				actual := b.least*r.Cost + rng.Int64N(2*r.Cost)
				settle := weir.Request{Key: r.Key, Op: weir.Settle, ID: r.ID, Actual: weir.ActualCost(actual)}
				if res, err := decide(rng, b.lim, settle); err != nil || !res.Allowed || res.Granted != actual {
					t.Errorf("seed %d: %s: %+v settled at %d: got %+v, %v", seed, b.name, r, actual, res, err)
					return
				}
				b.calls.Add(1)
				b.settled.Add(actual)
			}
		})
	}
	wg.Wait()
	return replayed.Load()
}

// compareBooks compares what the store holds with the sum of what was settled.
func compareBooks(t *testing.T, books []*lostBook) {
	t.Helper()
	for _, b := range books {
		tokens, calls := b.consumed(t)
		if tokens != b.settled.Load() || calls != b.calls.Load() {
			t.Errorf("%s: the store holds %d tokens of %d decisions, want %d, the sum of what was settled, of %d",
				b.name, tokens, calls, b.settled.Load(), b.calls.Load())
		}
	}
}

// A lostBook is a limiter, and what its rules must hold.
type lostBook struct {
	name           string
	lim            *weir.Limiter
	ops            []weir.Op
	least          int64        // 1 if a decision is never settled to less than its cost, or 0
	settled, calls atomic.Int64 // the sum of the settled costs, and the number of decisions
}

// lostKey is the key of all decisions of TestHarmfulProxy with an ID.
var lostKey = weir.KeyOf("ann")

// lostBooks returns a limiter on st for each algorithm that can refund, in a time that stands still.
// Its second rule counts the decisions. No limit is reached.
func lostBooks(t *testing.T, st store.Store) []*lostBook {
	t.Helper()
	const limit = 1_000_000
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var books []*lostBook
	for name, a := range map[string]algorithm.Algorithm{
		"FixedWindow":      algorithm.FixedWindow{Limit: limit, Window: time.Hour},
		"SlidingCounter":   algorithm.SlidingCounter{Limit: limit, Window: time.Hour},
		"SlidingBuckets":   algorithm.SlidingBuckets{Width: time.Minute, Spans: []algorithm.Span{{Window: time.Hour, Limit: limit}}},
		"SlidingLog":       algorithm.SlidingLog{Limit: limit, Window: time.Hour},
		"GCRA":             algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: limit},
		"GCRA of sevenths": algorithm.GCRA{Rate: algorithm.Rate{Count: 7, Period: time.Minute}, Burst: limit},
		"TokenBucket":      algorithm.TokenBucket{Capacity: limit, Refill: algorithm.PerMinute(1)},
		"LeakyBucket":      algorithm.LeakyBucket{Rate: algorithm.PerMinute(1), Queue: limit - 1},
	} {
		b := &lostBook{name: name, ops: []weir.Op{weir.Consume, weir.TakeUpTo, weir.Force}}
		switch name {
		case "LeakyBucket": // without a MaxWait, it allows only a Force
			b.ops, b.least = []weir.Op{weir.Force}, 1
		case "GCRA", "GCRA of sevenths", "TokenBucket": // several refunds can return too little
			b.least = 1
		}
		var err error
		b.lim, err = weir.NewPolicy(st, weir.Policy{Name: "lost " + name, Rules: []weir.Rule{
			{Name: "rule", Algorithm: a},
			{Name: "decisions", Algorithm: algorithm.FixedWindow{Limit: limit, Window: time.Hour}, Cost: 1},
		}}, &weir.Options{Clock: func() time.Time { return at }})
		if err != nil {
			t.Fatal(err)
		}
		books = append(books, b)
	}
	return books
}

// consumed returns how many tokens the rules of b hold as consumed, and for how many
// decisions.
func (b *lostBook) consumed(t *testing.T) (tokens, decisions int64) {
	t.Helper()
	var each [2]weir.Result
	await(t, "a Peek", func() bool { // the pool may hold broken connections
		_, err := b.lim.Decide(t.Context(), weir.Request{Key: lostKey, Op: weir.Peek}, each[:])
		if err != nil && !errors.Is(err, store.ErrUnavailable) {
			t.Fatal(err)
		}
		return err == nil
	})
	tokens = each[0].Limit - each[0].Remaining
	if b.name == "LeakyBucket" { // each token has a turn, one in each minute
		tokens = int64(each[0].ResetAfter / time.Minute)
	}
	return tokens, each[1].Limit - each[1].Remaining
}
