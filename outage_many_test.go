package weir_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// DoMany answers each request.
func TestOutageDoMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFaulty()
		l := onOutage(t, mustNew(t, st, window(40, time.Hour)), local4)
		requests := []weir.Request{
			{Key: weir.KeyOf("ann"), Cost: 9}, {Key: weir.KeyOf("")}, {Key: weir.KeyOf("ann"), Cost: 2}, {Key: weir.KeyOf("bob"), Op: weir.Peek},
			{Key: weir.KeyOf("bob"), Op: weir.Reset},
		}
		for _, f := range []fault{up, hang, down} {
			st.set(f)
			for range 3 {
				if answers := l.DoMany(t.Context(), []weir.Request{{Key: weir.KeyOf("cat"), Op: weir.Peek}}); (answers[0].Result.Degraded == nil) != (f == up) {
					t.Errorf("got %+v", answers)
				}
			}
			answers := l.DoMany(t.Context(), requests)
			for i, a := range answers {
				switch {
				case i == 1:
					if !errors.Is(a.Err, weir.ErrInvalidKey) {
						t.Errorf("%v: request %d: got %v", f, i, a.Err)
					}
				case i == 4 && f != up:
					if !errors.Is(a.Err, store.ErrUnavailable) {
						t.Errorf("%v: request %d: got %v", f, i, a.Err)
					}
				case a.Err != nil || (a.Result.Degraded != nil) != (f != up) || i == 0 && a.Result.Allowed != (f != down) || i == 2 && a.Result.Allowed != (f == up):
					t.Errorf("%v: request %d: got %+v", f, i, a)
				}
			}
		}
	})
}

// A faultyBatcher sends batches to a faulty store. Its requests with the index bad are
// unavailable.
type faultyBatcher struct {
	*faulty
	batches []int
	bad     int
}

func (b *faultyBatcher) EvalBatch(ctx context.Context, calls []store.Eval) {
	b.batches = append(b.batches, len(calls))
	err := b.call(ctx, func(ctx context.Context) error {
		for i := range calls {
			c := &calls[i]
			if c.Reply, c.Err = b.Store.Eval(ctx, c.Script, c.Keys, c.Args, c.Reply); i == b.bad {
				c.Reply, c.Err = nil, store.ErrUnavailable
			}
		}
		return nil
	})
	for i := range calls {
		if err != nil {
			calls[i].Err = err
		}
	}
}

// DoMany sends batches while the store works, within the budget each. The fallback answers
// each request that the store did not decide. A batch without any answer is one failure.
func TestOutageBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &faultyBatcher{faulty: newFaulty(), bad: -1}
		l := onOutage(t, mustNew(t, st, window(400, time.Hour)), weir.Outage{Fallback: weir.FailLocal, Processes: 4, Failures: 3})
		requests := make([]weir.Request, 250)
		for i := range requests {
			requests[i].Key = weir.KeyOf("ann")
		}
		requests[7].Key = weir.KeyOf("")
		many := func(wantDegraded, wantBatches, wantAsked int, took time.Duration) {
			t.Helper()
			st.batches = nil
			asked, start := st.asked.Load(), time.Now()
			answers := l.DoMany(t.Context(), requests)
			n := 0
			for i, a := range answers {
				switch {
				case i == 7:
					if !errors.Is(a.Err, weir.ErrInvalidKey) {
						t.Errorf("got %+v, want ErrInvalidKey", a)
					}
				case a.Err != nil:
					t.Errorf("request %d: got %v", i, a.Err)
				case a.Result.Degraded != nil:
					n++
				}
			}
			if n != wantDegraded || len(st.batches) != wantBatches || int(st.asked.Load()-asked) != wantAsked || time.Since(start) != took {
				t.Errorf("%d degraded, batches of %v, %d calls, %v: want %d, %d batches, %d calls, %v",
					n, st.batches, st.asked.Load()-asked, time.Since(start), wantDegraded, wantBatches, wantAsked, took)
			}
		}
		many(0, 3, 3, 0)
		st.bad = 3 // one of each batch
		for range 5 {
			many(3, 3, 3, 0)
		}
		st.bad = -1
		st.set(down)
		many(249, 3, 3, 0)
		time.Sleep(weir.DefaultOutageBudget)
		many(249, 1, 1, 0) // opens the breaker
		many(249, 0, 0, 0)
		st.set(up)
		time.Sleep(weir.DefaultOutageProbe)
		many(0, 2, 99+2, 0) // the first 100 one by one, with a probe
		st.set(hang)
		many(249, 3, 3, 3*weir.DefaultOutageBudget)
		many(249, 0, 0, 0)
		time.Sleep(weir.DefaultOutageProbe)
		many(249, 0, 1, weir.DefaultOutageBudget)
		// The end of the caller's context is the error of each request, and no failure.
		st.set(up)
		time.Sleep(weir.DefaultOutageProbe)
		many(0, 2, 99+2, 0)
		st.set(hang)
		for range 4 {
			ctx, cancel := context.WithTimeout(t.Context(), weir.DefaultOutageBudget/2)
			for i, a := range l.DoMany(ctx, requests) {
				if i != 7 && !errors.Is(a.Err, context.DeadlineExceeded) {
					t.Fatalf("got %+v, want %v", a, context.DeadlineExceeded)
				}
			}
			cancel()
		}
		st.set(up)
		many(0, 3, 3, 0)
		// Late answers are the store's. Three late batches open the breaker.
		st.set(slow)
		many(0, 3, 3, 6*time.Second)
		many(249, 0, 0, 0)
	})
}

// Many callers of a store that fails and comes back race.
func TestOutageRace(t *testing.T) {
	t.Parallel()
	st := &faulty{Store: memory.New(nil)}
	base := onOutage(t, mustNew(t, st, window(1<<30, time.Hour)), weir.Outage{Fallback: weir.FailLocal, Processes: 2, Budget: time.Millisecond, Probe: time.Millisecond, Failures: 2})
	ended := make(chan struct{})
	var wg, changes sync.WaitGroup
	changes.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-ended:
				return
			case <-time.After(2 * time.Millisecond):
				st.set([]fault{up, down, hang}[i%3])
			}
		}
	})
	for range 8 {
		wg.Go(func() {
			l := mustWith(t, base, weir.Rule{Algorithm: window(1<<20, time.Hour)})
			for i := range 200 {
				r := weir.Request{Key: weir.KeyOf(number(i % 3)), ID: number(i)}
				if res, err := l.Decide(t.Context(), r, nil); err != nil || !res.Allowed {
					t.Errorf("got %+v, %v", res, err)
				}
				if _, err := l.Refund(t.Context(), r); err != nil && !errors.Is(err, store.ErrUnavailable) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	close(ended)
	changes.Wait()
}
