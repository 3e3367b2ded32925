package outage_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

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
// failure. Requests beside a Reset are sent one by one.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const Up, Down, Hang, Slow = weirtest.Up, weirtest.Down, weirtest.Hang, weirtest.Slow
		const budget, probe = outage.DefaultBudget, outage.DefaultProbe
		st := &faultyBatcher{Faulty: weirtest.NewFaulty()}
		l := onOutage(t, weirtest.New(t, st, weirtest.Window(400, time.Hour)), outage.Options{Fallback: outage.Local, Processes: 4, Failures: 3})
		requests := slices.Repeat([]weir.Request{{Key: weir.KeyOf("ann")}}, 250)
		requests[7].Key = weir.KeyOf("")
		for i, tt := range []struct {
			wait     time.Duration // before the call
			fault    weirtest.Fault
			bad      int           // the request of each batch that fails, or -1
			ninth    weir.Op       // of one request
			deadline time.Duration // of the caller; 0 means none
			degraded int
			batches  int
			asked    int // calls of the store
			took     time.Duration
		}{
			{0, Up, -1, weir.Consume, 0, 0, 3, 3, 0},
			{0, Up, 3, weir.Consume, 0, 3, 3, 3, 0},
			{budget, Up, 3, weir.Consume, 0, 3, 3, 3, 0},
			{0, Down, -1, weir.Consume, 0, 249, 3, 3, 0},
			{budget, Up, -1, weir.Consume, 0, 0, 3, 3, 0}, // ends the series of failures
			{0, Down, -1, weir.Consume, 0, 249, 3, 3, 0},
			{budget, Down, -1, weir.Consume, 0, 249, 1, 1, 0}, // opens the breaker
			{0, Down, -1, weir.Consume, 0, 249, 0, 0, 0},
			{probe, Up, -1, weir.Consume, 0, 0, 2, 99 + 2, 0}, // the first 100 one by one, with a probe
			{0, Hang, -1, weir.Consume, 0, 249, 3, 3, 3 * budget},
			{0, Hang, -1, weir.Consume, 0, 249, 0, 0, 0},
			{probe, Hang, -1, weir.Consume, 0, 249, 0, 1, budget},
			{probe, Up, -1, weir.Consume, 0, 0, 2, 99 + 2, 0},
			{0, Hang, -1, weir.Consume, budget / 2, 0, 3, 3, budget / 2}, // the caller's error, and no failure
			{budget, Hang, -1, weir.Consume, budget / 2, 0, 3, 3, budget / 2},
			{0, Up, -1, weir.Consume, 0, 0, 3, 3, 0},
			{0, Slow, -1, weir.Consume, 0, 0, 3, 3, 6 * time.Second}, // late answers are the store's, and open the breaker
			{0, Slow, -1, weir.Consume, 0, 249, 0, 0, 0},
			{0, Down, -1, weir.Reset, 0, 248, 0, 0, 0},
			{probe, Up, -1, weir.Reset, 0, 0, 2, 99 + 2, 0},
			{0, Up, -1, weir.Reset, 0, 0, 2, 99 + 2, 0},
		} {
			time.Sleep(tt.wait)
			ctx, cancel := context.WithCancel(t.Context())
			if tt.deadline > 0 {
				ctx, cancel = context.WithTimeout(ctx, tt.deadline)
			}
			st.Set(tt.fault)
			st.bad, st.batches, requests[9].Op = tt.bad, nil, tt.ninth
			asked, start, degraded := st.Asked.Load(), time.Now(), 0
			for n, a := range l.DoMany(ctx, requests) {
				var want error
				switch {
				case n == 7 && tt.deadline > 0:
					want = a.Err // either of both
				case n == 7:
					want = weir.ErrInvalidKey
				case tt.deadline > 0:
					want = context.DeadlineExceeded
				case n == 9 && tt.ninth == weir.Reset && tt.fault == Down:
					want = store.ErrUnavailable
				}
				if !errors.Is(a.Err, want) {
					t.Errorf("step %d, request %d: got %v, want %v", i, n, a.Err, want)
				}
				if a.Result.Degraded != nil {
					degraded++
				}
			}
			cancel()
			if degraded != tt.degraded || len(st.batches) != tt.batches || int(st.Asked.Load()-asked) != tt.asked || time.Since(start) != tt.took {
				t.Errorf("step %d: %d degraded, batches of %v, %d calls, %v: want %+v", i, degraded, st.batches, st.Asked.Load()-asked, time.Since(start), tt)
			}
		}
	})
}

// If a wrapper inside the Breaker decides one request at a time, each has the whole
// budget, and an observer around the wrapper changes nothing.
func TestManyOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slowly, seen := after(outage.DefaultBudget/2, nil), 0
		observer := observe.Observer(func(context.Context, observe.Decision) { seen++ })
		l := weirtest.Wrap(t, weirtest.New(t, memory.New(nil), weirtest.PerSecond), observer.Wrap, weirtest.Around(func(weir.Decider) *answering { return &slowly }))
		l = onOutage(t, l, outage.Options{})
		start := time.Now()
		for _, a := range l.DoMany(t.Context(), slices.Repeat([]weir.Request{{Key: weir.KeyOf("ann")}}, 150)) {
			weirtest.Healthy(t, a.Result, a.Err)
		}
		if took := time.Since(start); took != 150*outage.DefaultBudget/2 || seen != 150 {
			t.Errorf("150 requests took %v, want half of the budget each, and %d were seen", took, seen)
		}
	})
}
