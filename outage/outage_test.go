package outage_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/outage"
)

var local4 = outage.Options{Fallback: outage.Local, Processes: 4}

// onOutage returns l in a Breaker.
func onOutage(t testing.TB, l *weir.Limiter, o outage.Options) *weir.Limiter {
	t.Helper()
	return weirtest.Wrap(t, l, outage.New(&o).Wrap)
}

// wantError is weirtest.WantError for the errors of this package.
func wantError(t testing.TB, err, want error, says string) {
	t.Helper()
	weirtest.WantError(t, err, want, "outage", says)
}

// fail makes enough calls to open the breaker of l, with the default settings.
func fail(t testing.TB, l *weir.Limiter) {
	t.Helper()
	for i := range outage.DefaultFailures {
		if i > 0 {
			time.Sleep(outage.DefaultBudget / (outage.DefaultFailures - 1))
		}
		if res, err := l.Peek(t.Context(), "someone"); err != nil || res.Degraded == nil {
			t.Fatalf("got %+v, %v, want a degraded answer", res, err)
		}
	}
}

// An outage costs its first calls the budget. Then one call in each interval is sent to
// the store, however many callers there are, until the store answers. A denial can be
// retried when the next probe is due, and not before.
func TestOutage(t *testing.T) {
	for _, f := range []weirtest.Fault{weirtest.Hang, weirtest.Down} {
		synctest.Test(t, func(t *testing.T) {
			st := weirtest.NewFaulty()
			l := onOutage(t, weirtest.New(t, st, weirtest.Window(10, 24*time.Hour)), outage.Options{Probe: 3 * time.Second})
			allow := func() (weir.Result, time.Duration) {
				start := time.Now()
				res, err := l.Allow(t.Context(), "ann")
				if err != nil {
					t.Error(err)
				}
				return res, time.Since(start)
			}
			if res, took := allow(); res.Degraded != nil || res.Remaining != 9 || took != 0 {
				t.Errorf("healthy: got %+v after %v", res, took)
			}
			st.Set(f)
			cost := time.Duration(0)
			if f == weirtest.Hang {
				cost = outage.DefaultBudget
			}
			for i := range outage.DefaultFailures {
				if i > 0 && f == weirtest.Down { // the breaker does not open before the budget has passed
					time.Sleep(outage.DefaultBudget / (outage.DefaultFailures - 1))
				}
				if res, took := allow(); res.Degraded == nil || res.Allowed || took != cost || strings.Contains(res.Degraded.Error(), "heeds") {
					t.Errorf("failure %d: got %+v after %v, want a degraded answer after %v", i, res, took, cost)
				}
			}
			probe := func(want int64) {
				t.Helper()
				asked := st.Asked.Load()
				var wg sync.WaitGroup
				for range 8 {
					wg.Go(func() {
						if res, took := allow(); res.Degraded == nil || want == 0 && took != 0 {
							t.Errorf("got %+v after %v, want a degraded answer", res, took)
						}
					})
				}
				if wg.Wait(); st.Asked.Load()-asked != want {
					t.Errorf("%d of 8 calls were sent to the store, want %d", st.Asked.Load()-asked, want)
				}
			}
			wait := func(want time.Duration) {
				t.Helper()
				if res, _ := allow(); res.RetryAfter != want {
					t.Errorf("got the RetryAfter %v, want %v", res.RetryAfter, want)
				}
			}
			spent := time.Duration(0) // of the interval
			for range 3 {
				probe(0)
				time.Sleep(time.Second - spent + time.Nanosecond)
				wait(2 * time.Second) // rounded up to microseconds
				time.Sleep(2*time.Second - time.Microsecond)
				wait(time.Microsecond)
				time.Sleep(time.Microsecond - time.Nanosecond)
				probe(1)
				spent = cost
			}
			time.Sleep(3*time.Second - spent - time.Microsecond)
			st.Set(weirtest.Up)
			probe(0)
			time.Sleep(time.Microsecond)
			for i := range int64(4) {
				if res, _ := allow(); res.Degraded != nil || res.Remaining != 8-i {
					t.Errorf("back: got %+v, want the second token of the store's limit consumed", res)
				}
			}
		})
	}
}

// With the longest Probe, the store is never asked again, and no RetryAfter overflows.
func TestOutageNeverProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		l := onOutage(t, weirtest.New(t, st, weirtest.PerSecond), outage.Options{Probe: weir.Never})
		st.Set(weirtest.Down)
		fail(t, l)
		for range 100 {
			time.Sleep(24 * time.Hour)
			if res, err := l.Allow(t.Context(), "ann"); weirtest.Degraded(t, res, err).RetryAfter < 24*time.Hour {
				t.Fatalf("got %+v, want a long RetryAfter", res)
			}
		}
		if n := st.Asked.Load(); n != outage.DefaultFailures {
			t.Errorf("the store was asked %d times", n)
		}
	})
}

// When the share's memory is full, a new key is denied, and known keys are decided as
// before. Keys that have expired make room.
func TestOutageFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		st.Set(weirtest.Down)
		l := onOutage(t, weirtest.New(t, st, weirtest.Window(40, time.Hour)), outage.Options{Fallback: outage.Local, Processes: 4, MaxKeys: 100})
		for _, tt := range []struct{ first, keys, times, want int }{{0, 1000, 1, 100}, {0, 100, 20, 9 * 100}, {2000, 1000, 1, 100}} {
			allowed := 0
			for range tt.times {
				for i := range tt.keys {
					res, err := l.Allow(t.Context(), weirtest.Number(tt.first+i))
					if res = weirtest.Degraded(t, res, err); res.Allowed {
						allowed++
					} else if res.RetryAfter > outage.DefaultProbe || tt.times == 1 && res.Limit != 40 {
						t.Fatalf("got %+v", res)
					}
				}
			}
			if allowed != tt.want {
				t.Errorf("%+v: %d requests were allowed", tt, allowed)
			}
			if tt.times > 1 {
				time.Sleep(time.Hour + 2*time.Second)
			}
		}
	})
}
