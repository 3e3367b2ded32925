package outage_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// DoMany answers each request.
func TestOutageDoMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		l := onOutage(t, weirtest.New(t, st, weirtest.Window(40, time.Hour)), local4)
		requests := []weir.Request{
			{Key: weir.KeyOf("ann"), Cost: 9}, {Key: weir.KeyOf("")}, {Key: weir.KeyOf("ann"), Cost: 2}, {Key: weir.KeyOf("bob"), Op: weir.Peek},
			{Key: weir.KeyOf("bob"), Op: weir.Reset},
		}
		for _, f := range []weirtest.Fault{weirtest.Up, weirtest.Hang, weirtest.Down} {
			st.Set(f)
			for range 3 {
				if answers := l.DoMany(t.Context(), []weir.Request{{Key: weir.KeyOf("cat"), Op: weir.Peek}}); (answers[0].Result.Degraded == nil) != (f == weirtest.Up) {
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
				case i == 4 && f != weirtest.Up:
					if !errors.Is(a.Err, store.ErrUnavailable) {
						t.Errorf("%v: request %d: got %v", f, i, a.Err)
					}
				case a.Err != nil || (a.Result.Degraded != nil) != (f != weirtest.Up) || i == 0 && a.Result.Allowed != (f != weirtest.Down) || i == 2 && a.Result.Allowed != (f == weirtest.Up):
					t.Errorf("%v: request %d: got %+v", f, i, a)
				}
			}
		}
	})
}

// A faultyBatcher sends batches to a faulty store. Its requests with the index bad are
// unavailable.
type faultyBatcher struct {
	*weirtest.Faulty
	batches []int
	bad     int
}

func (b *faultyBatcher) EvalBatch(ctx context.Context, calls []store.Eval) {
	b.batches = append(b.batches, len(calls))
	err := b.Call(ctx, func(ctx context.Context) error {
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

// DoMany sends batches while the store works, within the budget each. The fallback
// answers each request that the store did not decide. A batch without any answer is one
// failure.
func TestOutageBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &faultyBatcher{Faulty: weirtest.NewFaulty(), bad: -1}
		l := onOutage(t, weirtest.New(t, st, weirtest.Window(400, time.Hour)), outage.Options{Fallback: outage.Local, Processes: 4, Failures: 3})
		requests := make([]weir.Request, 250)
		for i := range requests {
			requests[i].Key = weir.KeyOf("ann")
		}
		requests[7].Key = weir.KeyOf("")
		many := func(wantDegraded, wantBatches, wantAsked int, took time.Duration) {
			t.Helper()
			st.batches = nil
			asked, start := st.Asked.Load(), time.Now()
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
			if n != wantDegraded || len(st.batches) != wantBatches || int(st.Asked.Load()-asked) != wantAsked || time.Since(start) != took {
				t.Errorf("%d degraded, batches of %v, %d calls, %v: want %d, %d batches, %d calls, %v",
					n, st.batches, st.Asked.Load()-asked, time.Since(start), wantDegraded, wantBatches, wantAsked, took)
			}
		}
		many(0, 3, 3, 0)
		st.bad = 3 // one of each batch
		for range 5 {
			many(3, 3, 3, 0)
		}
		st.bad = -1
		st.Set(weirtest.Down)
		many(249, 3, 3, 0)
		time.Sleep(outage.DefaultBudget)
		st.Set(weirtest.Up)
		many(0, 3, 3, 0) // ends the series of failures
		st.Set(weirtest.Down)
		many(249, 3, 3, 0)
		time.Sleep(outage.DefaultBudget)
		many(249, 1, 1, 0) // opens the breaker
		many(249, 0, 0, 0)
		st.Set(weirtest.Up)
		time.Sleep(outage.DefaultProbe)
		many(0, 2, 99+2, 0) // the first 100 one by one, with a probe
		st.Set(weirtest.Hang)
		many(249, 3, 3, 3*outage.DefaultBudget)
		many(249, 0, 0, 0)
		time.Sleep(outage.DefaultProbe)
		many(249, 0, 1, outage.DefaultBudget)
		// The end of the caller's context is the error of each request, and no failure.
		st.Set(weirtest.Up)
		time.Sleep(outage.DefaultProbe)
		many(0, 2, 99+2, 0)
		st.Set(weirtest.Hang)
		for range 4 {
			ctx, cancel := context.WithTimeout(t.Context(), outage.DefaultBudget/2)
			for i, a := range l.DoMany(ctx, requests) {
				if i != 7 && !errors.Is(a.Err, context.DeadlineExceeded) {
					t.Fatalf("got %+v, want %v", a, context.DeadlineExceeded)
				}
			}
			cancel()
		}
		st.Set(weirtest.Up)
		many(0, 3, 3, 0)
		// Late answers are the store's. Three late batches open the breaker.
		st.Set(weirtest.Slow)
		many(0, 3, 3, 6*time.Second)
		many(249, 0, 0, 0)
	})
}

// If a wrapper inside the Breaker decides one request at a time, each has the whole
// budget, and an observer around the wrapper changes nothing.
func TestOutageManyOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slowly := weirtest.Around(func(next weir.Decider) tardy { return tardy{next} })
		seen := 0
		observer := observe.Observer(func(context.Context, observe.Decision) { seen++ })
		for _, inner := range [][]weir.Wrapper{{slowly}, {observer.Wrap, slowly}} {
			l := weirtest.Wrap(t, weirtest.New(t, memory.New(nil), weirtest.Window(400, time.Hour)), inner...)
			l = onOutage(t, l, outage.Options{})
			start := time.Now()
			for i, a := range l.DoMany(t.Context(), slices.Repeat([]weir.Request{{Key: weir.KeyOf("ann")}}, 150)) {
				weirtest.Healthy(t, a.Result, a.Err)
				if a.Result.Remaining != int64(399-i) {
					t.Fatalf("request %d: got %+v", i, a.Result)
				}
			}
			if took := time.Since(start); took != 150*outage.DefaultBudget/2 {
				t.Errorf("150 requests took %v, want half of the budget each", took)
			}
		}
		if seen != 150 {
			t.Errorf("the observer saw %d decisions, want 150", seen)
		}
	})
}

// A tardy is a Decider whose decisions take half of the default budget.
type tardy struct{ next weir.Decider }

func (d tardy) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	select {
	case <-time.After(outage.DefaultBudget / 2):
		return d.next.Decide(ctx, r, each)
	case <-ctx.Done():
		return weir.Result{}, ctx.Err()
	}
}

// Many callers of a store that fails and comes back race.
func TestOutageRace(t *testing.T) {
	t.Parallel()
	st := &weirtest.Faulty{Store: memory.New(nil)}
	base := onOutage(t, weirtest.New(t, st, weirtest.Window(1<<30, time.Hour)), outage.Options{Fallback: outage.Local, Processes: 2, Budget: time.Millisecond, Probe: time.Millisecond, Failures: 2})
	ended := make(chan struct{})
	var wg, changes sync.WaitGroup
	changes.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-ended:
				return
			case <-time.After(2 * time.Millisecond):
				st.Set([]weirtest.Fault{weirtest.Up, weirtest.Down, weirtest.Hang}[i%3])
			}
		}
	})
	for range 8 {
		wg.Go(func() {
			l := weirtest.With(t, base, weir.Rule{Algorithm: weirtest.Window(1<<20, time.Hour)})
			for i := range 200 {
				r := weir.Request{Key: weir.KeyOf(weirtest.Number(i % 3)), ID: weirtest.Number(i)}
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
