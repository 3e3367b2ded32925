package outage_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
)

// working returns a limiter of work with two places and 10 tokens for a day, and the same in a
// Breaker with the share of one of two processes.
func working(t *testing.T, st store.Store) (plain, l *weir.Limiter) {
	t.Helper()
	plain, err := weir.NewPolicy(st, weir.Policy{Name: "work", Rules: []weir.Rule{
		{Name: "parallel", Algorithm: algorithm.Concurrency{Limit: 2, Lease: time.Minute}, Cost: 1},
		{Name: "tokens", Algorithm: algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerDay(10)}},
	}}, &weir.Options{Settles: true})
	if err != nil {
		t.Fatal(err)
	}
	return plain, onOutage(t, plain, outage.Options{Fallback: outage.Local, Processes: 2, Failures: 1 << 30})
}

// A Finish that only the share has made can be sent again, to the store.
func TestOutageFinishAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		plain, l := working(t, st)
		st.Set(weirtest.Lost)
		lease, err := l.TryAcquire(t.Context(), weir.Request{Key: weir.KeyOf("ann"), Cost: 3})
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range []weirtest.Fault{weirtest.Down, weirtest.Up} {
			st.Set(fault)
			if done, err := lease.Finish(t.Context(), weir.ActualCost(1)); err != nil || !done.Found {
				t.Errorf("%v: got %+v, %v", fault, done, err)
			}
		}
		each := make([]weir.Result, 2)
		weirtest.Decide(t, plain, weir.Request{Key: weir.KeyOf("ann"), Op: weir.Peek}, each...)
		if each[0].Remaining != 2 || each[1].Remaining != 9 {
			t.Errorf("the store has %d places and %d tokens, want 2 and 9", each[0].Remaining, each[1].Remaining)
		}
	})
}

// A Finish ends a piece of work in the store, in the process's share, or in both, and says what
// either of them found.
func TestOutageFinish(t *testing.T) {
	for _, tt := range []struct {
		name         string
		here, stored bool // where the work was begun
		late         bool // its lease has ended by then
		down         bool // the store is away again
		actual       weir.Actual
		want         weir.Settlement
		tokens       int64 // that are left in the store
	}{
		{"nowhere", false, false, false, false, weir.ActualCost(1), weir.Settlement{}, 10},
		{"in the store", false, true, false, false, weir.ActualCost(1), weir.Settlement{Found: true, Held: true, Cost: 1}, 9},
		{"in the store, which is away", false, true, false, true, weir.ActualCost(1), weir.Settlement{}, 7},
		{"in the share", true, false, false, false, weir.ActualCost(1), weir.Settlement{Found: true, Held: true, Cost: 1}, 10},
		{"in the share, and the store is away", true, false, false, true, weir.ActualCost(1), weir.Settlement{Found: true, Held: true, Cost: 1}, 10},
		{"in the share, late", true, false, true, true, weir.Actual{}, weir.Settlement{Found: true, Cost: 3}, 10},
		{"in both", true, true, false, false, weir.ActualRefund(), weir.Settlement{Found: true, Held: true}, 10},
		{"in both, late", true, true, true, false, weir.ActualCost(2), weir.Settlement{Found: true, Cost: 2}, 8},
		{"above the share's bound", true, true, false, false, weir.ActualCost(400_000), weir.Settlement{Found: true, Held: true, Cost: 400_000}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			st := weirtest.NewFaulty()
			plain, l := working(t, st)
			r := weir.Request{Key: weir.KeyOf("ann"), ID: "a", Cost: 3}
			if tt.here {
				st.Set(weirtest.Down)
				if res, err := l.Decide(t.Context(), r, nil); err != nil || !res.Allowed || res.Degraded == nil {
					t.Fatalf("%s: got %+v, %v", tt.name, res, err)
				}
				st.Set(weirtest.Up)
			}
			if tt.stored {
				weirtest.Decide(t, plain, r)
			}
			if tt.late {
				time.Sleep(2 * time.Minute)
			}
			if tt.down {
				st.Set(weirtest.Down)
			}
			done, err := l.Finish(t.Context(), r, tt.actual)
			if done != tt.want || errors.Is(err, store.ErrUnavailable) != (tt.down && !tt.here) || err != nil && !tt.down {
				t.Errorf("%s: got %+v, %v, want %+v", tt.name, done, err, tt.want)
			}
			st.Set(weirtest.Up)
			each := make([]weir.Result, 2)
			r.Op = weir.Peek
			weirtest.Decide(t, plain, r, each...)
			if held := tt.stored && tt.down; each[1].Remaining != tt.tokens || (each[0].Remaining < 2) != held {
				t.Errorf("%s: %d tokens and %d places are left in the store, want %d tokens, held: %t", tt.name, each[1].Remaining, each[0].Remaining, tt.tokens, held)
			}
			st.Set(weirtest.Down)
			if res, err := l.Peek(t.Context(), "ann"); err != nil || tt.here && each[0].Remaining == 2 && res.Rule == "parallel" && res.Remaining == 0 {
				t.Errorf("%s: got %+v, %v, want the place of the share to be free", tt.name, res, err)
			}
		})
	}
}
