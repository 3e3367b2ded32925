package outage_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
)

var twoLeases = algorithm.Concurrency{Limit: 4, Lease: time.Minute}

// A lease that the process gave can be renewed and released, even after the outage. A
// lease of the store can be renewed and released after it.
func TestOutageLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		l := onOutage(t, weirtest.New(t, st, twoLeases), outage.Options{Fallback: outage.Local, Processes: 2})
		acquire := func() *weir.Lease {
			t.Helper()
			lease, err := l.TryAcquire(t.Context(), weir.Request{Key: weir.KeyOf("ann")})
			if err != nil {
				t.Fatal(err)
			}
			return lease
		}
		kept, released := acquire(), acquire()
		st.Set(weirtest.Down)
		fail(t, l)
		one, two := acquire(), acquire()
		if one.Degraded == nil || one.Remaining != 1 || two.Remaining != 0 {
			t.Errorf("got %+v, %+v", one.Result, two.Result)
		}
		var denied *weir.DeniedError
		_, err := l.TryAcquire(t.Context(), weir.Request{Key: weir.KeyOf("ann")})
		if !errors.As(err, &denied) || denied.Result.RetryAfter != outage.DefaultProbe || !strings.HasPrefix(err.Error(), `weir: denied by rule "concurrency": outage: the store did not decide: `) {
			t.Errorf("got %v, want it denied for %v", err, outage.DefaultProbe)
		}
		if err := kept.Renew(t.Context()); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
		if was, err := released.Release(t.Context()); was || !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("got %v, %v, want ErrUnavailable", was, err)
		}
		time.Sleep(30 * time.Second)
		res, err := l.Decide(t.Context(), weir.Request{Key: weir.KeyOf("ann"), Op: weir.Renew, ID: one.ID()}, nil)
		if res = weirtest.Degraded(t, res, err); !res.Allowed || !strings.Contains(res.Degraded.Error(), "the process holds it") {
			t.Errorf("renew: got %+v", res)
		}
		if was, err := two.Release(t.Context()); !was || err != nil {
			t.Errorf("release: got %v, %v", was, err)
		}
		st.Set(weirtest.Up)
		time.Sleep(20 * time.Second)
		for _, lease := range []*weir.Lease{one, kept} {
			if err := lease.Renew(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if was, err := released.Release(t.Context()); !was || err != nil {
			t.Errorf("release: got %v, %v", was, err)
		}
		if was, err := one.Release(t.Context()); !was || err != nil {
			t.Errorf("release after the outage: got %v, %v", was, err)
		}
		if was, err := one.Release(t.Context()); was || err != nil {
			t.Errorf("second release: got %v, %v", was, err)
		}
		if err := one.Renew(t.Context()); !errors.Is(err, weir.ErrLeaseLost) {
			t.Errorf("renew after release: got %v", err)
		}
		if res := weirtest.Left(t, l, "ann"); res.Remaining != 3 || res.Degraded != nil {
			t.Errorf("got %+v, want 3 free leases in the store", res)
		}
		// A lease that nobody releases expires.
		st.Set(weirtest.Down)
		fail(t, l)
		acquire()
		acquire()
		time.Sleep(twoLeases.Lease)
		acquire()
	})
}

// KeepAlive keeps a lease across the beginning and the end of an outage: a lease of the
// store, and one of the process.
func TestOutageKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		l := onOutage(t, weirtest.New(t, st, twoLeases), outage.Options{Fallback: outage.Local, Processes: 2})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		keep := func() {
			lease, err := l.TryAcquire(t.Context(), weir.Request{Key: weir.KeyOf("ann")})
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() { lease.KeepAlive(ctx, func(err error) { t.Error(err) }) })
		}
		keep()
		st.Set(weirtest.Hang)
		time.Sleep(5 * time.Second)
		keep()
		time.Sleep(30 * time.Second) // less than a lease
		st.Set(weirtest.Up)
		time.Sleep(10 * time.Minute)
		cancel()
		wg.Wait()
	})
}

// Acquire waits for the end of an outage if it is denied. Wait returns the denial at
// once.
func TestOutageWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		st.Set(weirtest.Down)
		l := onOutage(t, weirtest.New(t, st, twoLeases), outage.Options{})
		start := time.Now()
		time.AfterFunc(30*time.Second, func() { st.Set(weirtest.Up) })
		lease, err := l.Acquire(t.Context(), weir.Request{Key: weir.KeyOf("ann")})
		if took := time.Since(start); err != nil || lease.Degraded != nil || took < 30*time.Second || took > 30*time.Second+outage.DefaultProbe+250*time.Millisecond {
			t.Errorf("got %v after %v", err, took)
		}
		st.Set(weirtest.Down)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := l.Acquire(ctx, weir.Request{Key: weir.KeyOf("ann")}); !errors.Is(err, weir.ErrDenied) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want both errors", err)
		}

		limiter := func(o outage.Options) *weir.Limiter {
			return onOutage(t, weirtest.New(t, st, algorithm.GCRA{Rate: algorithm.PerSecond(2), Burst: 4}), o)
		}
		start = time.Now()
		var denied *weir.DeniedError
		res, err := limiter(outage.Options{}).Wait(t.Context(), "ann")
		if !errors.As(err, &denied) || res != denied.Result || res.RetryAfter != outage.DefaultProbe || time.Since(start) != 0 {
			t.Errorf("closed: got %+v, %v after %v", res, err, time.Since(start))
		}
		res, err = limiter(outage.Options{Fallback: outage.Open}).Wait(t.Context(), "ann")
		weirtest.Degraded(t, res, err)
		if time.Since(start) != 0 {
			t.Errorf("open: it waited %v", time.Since(start))
		}
		shared := limiter(outage.Options{Fallback: outage.Local, Processes: 2})
		for range 5 {
			if res, err = shared.Wait(t.Context(), "ann"); weirtest.Degraded(t, res, err).Limit != 2 {
				t.Errorf("got %+v", res)
			}
		}
		if took := time.Since(start); took != 3*time.Second { // a share of 1 per second, after a burst of 2
			t.Errorf("local: five requests took %v, want 3s", took)
		}
		// If the caller goes, the wait is refunded.
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second/2, cancel)
		if _, err := shared.Wait(ctx, "ann"); err != context.Canceled {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
		if _, err := shared.Wait(t.Context(), "ann"); err != nil || time.Since(start) != 4*time.Second {
			t.Errorf("got %v after %v, want the place of the caller that went", err, time.Since(start))
		}
	})
}
