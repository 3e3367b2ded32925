package weir_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A fault is what a faulty store does with a call.
type fault int32

const (
	up   fault = iota
	down       // it is unavailable
	hang       // it does not answer until the context ends
	lost       // it makes the call, and does not answer until the context ends
	slow       // it answers after 2 s, whatever the context does
)

// A faulty is a store with a fault.
type faulty struct {
	store.Store
	fault atomic.Int32
	asked atomic.Int64 // calls
}

func newFaulty() *faulty { return &faulty{Store: memory.New(nil)} }

func (f *faulty) set(to fault) { f.fault.Store(int32(to)) }

// call calls f.Store with call, if there is no fault. A hanging or slow store takes that long.
func (f *faulty) call(ctx context.Context, call func(ctx context.Context) error) error {
	f.asked.Add(1)
	switch fault(f.fault.Load()) {
	case down:
		return fmt.Errorf("faulty: %w", store.ErrUnavailable)
	case lost:
		_ = call(ctx)
		fallthrough
	case hang:
		<-ctx.Done()
		return fmt.Errorf("faulty: %w", ctx.Err())
	case slow:
		time.Sleep(2 * time.Second)
		ctx = context.WithoutCancel(ctx)
	}
	return call(ctx)
}

func (f *faulty) Eval(ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) (out []store.Value, err error) {
	out = reply
	err = f.call(ctx, func(ctx context.Context) error {
		out, err = f.Store.Eval(ctx, s, keys, args, reply)
		return err
	})
	return out, err
}

func (f *faulty) MGet(ctx context.Context, keys []string, values []store.Value) (out []store.Value, err error) {
	err = f.call(ctx, func(ctx context.Context) error {
		out, err = f.Store.MGet(ctx, keys, values)
		return err
	})
	return out, err
}

func (f *faulty) Time(ctx context.Context) (now time.Time, err error) {
	err = f.call(ctx, func(ctx context.Context) error {
		now, err = f.Store.Time(ctx)
		return err
	})
	return now, err
}

// onOutage returns l.OnOutage(o).
func onOutage(t testing.TB, l *weir.Limiter, o weir.Outage) *weir.Limiter {
	t.Helper()
	l, err := l.OnOutage(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// fail makes enough calls to open the breaker of l, with the default settings.
func fail(t testing.TB, l *weir.Limiter) {
	t.Helper()
	for i := range weir.DefaultOutageFailures {
		if i > 0 {
			time.Sleep(weir.DefaultOutageBudget / (weir.DefaultOutageFailures - 1))
		}
		if res, err := l.Peek(t.Context(), "someone"); err != nil || res.Degraded == nil {
			t.Fatalf("got %+v, %v, want a degraded answer", res, err)
		}
	}
}

// degraded fails the test unless res is the answer of a fallback.
func degraded(t testing.TB, res weir.Result, err error) weir.Result {
	t.Helper()
	if err != nil || !errors.Is(res.Degraded, store.ErrUnavailable) {
		t.Fatalf("got %+v, %v, want a degraded answer", res, err)
	}
	return res
}

// healthy fails the test unless the store made the decision res.
func healthy(t testing.TB, res weir.Result, err error) weir.Result {
	t.Helper()
	if err != nil || res.Degraded != nil {
		t.Fatalf("got %+v, %v, want an answer of the store", res, err)
	}
	return res
}

// An outage costs its first calls the budget. Then the store is asked once in each interval,
// until it answers.
func TestOutage(t *testing.T) {
	for _, f := range []fault{hang, down} {
		synctest.Test(t, func(t *testing.T) {
			st := newFaulty()
			l := onOutage(t, mustNew(t, st, window(10, 24*time.Hour)), weir.Outage{Fallback: weir.FailOpen})
			allow := func() (weir.Result, time.Duration) {
				start := time.Now()
				res, err := l.Allow(t.Context(), "ann")
				if err != nil {
					t.Fatal(err)
				}
				return res, time.Since(start)
			}
			if res, took := allow(); res.Degraded != nil || res.Remaining != 9 || took != 0 {
				t.Errorf("healthy: got %+v after %v", res, took)
			}
			st.set(f)
			cost := time.Duration(0)
			if f == hang {
				cost = weir.DefaultOutageBudget
			}
			for i := range weir.DefaultOutageFailures {
				if i > 0 && f == down { // the breaker does not open before the budget has passed
					time.Sleep(weir.DefaultOutageBudget / (weir.DefaultOutageFailures - 1))
				}
				if res, took := allow(); res.Degraded == nil || !res.Allowed || took != cost || strings.Contains(res.Degraded.Error(), "heeds") {
					t.Errorf("failure %d: got %+v after %v, want a degraded answer after %v", i, res, took, cost)
				}
			}
			opened := time.Now()
			for time.Since(opened) < 3*weir.DefaultOutageProbe {
				asked, since := st.asked.Load(), time.Since(opened)
				due := since > 0 && since%weir.DefaultOutageProbe == 0
				res, took := allow()
				if got := st.asked.Load() > asked; got != due || res.Degraded == nil || !due && took != 0 {
					t.Errorf("%v after the breaker opened: got %+v after %v, asked the store: %v, want %v", since, res, took, got, due)
				}
				time.Sleep(weir.DefaultOutageProbe/4 - took)
			}
			st.set(up)
			if res, _ := allow(); res.Degraded != nil || res.Remaining != 8 {
				t.Errorf("back: got %+v, want the second token of the store's limit consumed", res)
			}
			for range 3 {
				if res, _ := allow(); res.Degraded != nil {
					t.Errorf("after the outage: got %+v", res)
				}
			}
		})
	}
}

// An answer of the store ends a series of failures. So the loss of one master of three does
// not open the breaker, and the other masters decide: also if many requests per second fail
// one after the other by chance.
func TestOutageOfOneMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFaulty()
		l := onOutage(t, mustNew(t, st, window(1<<40, 24*time.Hour)), weir.Outage{})
		rnd := rand.New(rand.NewPCG(1, 1))
		longest, failures := 0, 0
		for range 60_000 { // 1,000 requests per second
			lost := rnd.IntN(3) == 0
			st.set(up)
			if failures++; lost {
				st.set(down)
			} else {
				failures = 0
			}
			longest = max(longest, failures)
			res, err := l.Allow(t.Context(), "ann")
			if err != nil || lost != (res.Degraded != nil) {
				t.Fatalf("got %+v, %v; the key's master is lost: %v", res, err, lost)
			}
			time.Sleep(time.Millisecond)
		}
		if longest < weir.DefaultOutageFailures {
			t.Errorf("at most %d requests failed one after the other", longest)
		}
	})
}

// With the longest Probe, the store is never asked again, and no RetryAfter overflows.
func TestOutageNeverProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFaulty()
		l := onOutage(t, mustNew(t, st, window(10, 24*time.Hour)), weir.Outage{Probe: weir.Never})
		st.set(down)
		fail(t, l)
		asked := st.asked.Load()
		for range 100 {
			time.Sleep(24 * time.Hour)
			res, err := l.Allow(t.Context(), "ann")
			if degraded(t, res, err).RetryAfter < 24*time.Hour {
				t.Fatalf("got %+v, want a long RetryAfter", res)
			}
		}
		if n := st.asked.Load() - asked; n != 0 {
			t.Errorf("the store was asked %d times", n)
		}
	})
}
