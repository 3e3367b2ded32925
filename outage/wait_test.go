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
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/outage"
)

// Acquire waits for the end of an outage if it is denied. Wait returns the denial at
// once, and does not wait with Open.
func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		st.Set(weirtest.Down)
		start := time.Now()
		gcra := weirtest.New(t, st, algorithm.GCRA{Rate: algorithm.PerSecond(2), Burst: 1})
		var denied *weir.DeniedError
		res, err := onOutage(t, gcra, outage.Options{}).Wait(t.Context(), "ann")
		if !errors.As(err, &denied) || res != denied.Result || res.RetryAfter != outage.DefaultProbe || !strings.HasPrefix(err.Error(), `weir: denied by rule "gcra": outage: the store did not decide: `) {
			t.Errorf("closed: got %+v, %v", res, err)
		}
		open := onOutage(t, gcra, outage.Options{Fallback: outage.Open})
		for range 5 {
			res, err = open.Wait(t.Context(), "ann")
			weirtest.Degraded(t, res, err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("Wait took %v", took)
		}
		leases := onOutage(t, weirtest.New(t, st, algorithm.Concurrency{Limit: 4, Lease: time.Minute}), outage.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := leases.Acquire(ctx, weir.Request{Key: weir.KeyOf("ann")}); !errors.Is(err, weir.ErrDenied) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want both errors", err)
		}
		start = time.Now()
		time.AfterFunc(30*time.Second, func() { st.Set(weirtest.Up) })
		lease, err := leases.Acquire(t.Context(), weir.Request{Key: weir.KeyOf("ann")})
		if late := time.Since(start) - 30*time.Second; err != nil || lease.Degraded != nil || late < 0 || late > outage.DefaultProbe+250*time.Millisecond {
			t.Errorf("got %v, %v after the end of the outage", err, late)
		}
	})
}

// KeepAlive keeps a lease across the beginning and the end of an outage: a lease of the
// store, and one of the process.
func TestKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		l := onOutage(t, weirtest.New(t, st, algorithm.Concurrency{Limit: 4, Lease: time.Minute}), outage.Options{Fallback: outage.Local, Processes: 2})
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
