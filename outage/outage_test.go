package outage_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/outage"
)

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

// An outage costs its first calls the budget. Then the store is asked once in each
// interval, until it answers.
func TestOutage(t *testing.T) {
	for _, f := range []weirtest.Fault{weirtest.Hang, weirtest.Down} {
		synctest.Test(t, func(t *testing.T) {
			st := weirtest.NewFaulty()
			l := onOutage(t, weirtest.New(t, st, weirtest.Window(10, 24*time.Hour)), outage.Options{Fallback: outage.Open})
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
			st.Set(f)
			cost := time.Duration(0)
			if f == weirtest.Hang {
				cost = outage.DefaultBudget
			}
			for i := range outage.DefaultFailures {
				if i > 0 && f == weirtest.Down { // the breaker does not open before the budget has passed
					time.Sleep(outage.DefaultBudget / (outage.DefaultFailures - 1))
				}
				if res, took := allow(); res.Degraded == nil || !res.Allowed || took != cost || strings.Contains(res.Degraded.Error(), "heeds") {
					t.Errorf("failure %d: got %+v after %v, want a degraded answer after %v", i, res, took, cost)
				}
			}
			opened := time.Now()
			for time.Since(opened) < 3*outage.DefaultProbe {
				asked, since := st.Asked.Load(), time.Since(opened)
				due := since > 0 && since%outage.DefaultProbe == 0
				res, took := allow()
				if got := st.Asked.Load() > asked; got != due || res.Degraded == nil || !due && took != 0 {
					t.Errorf("%v after the breaker opened: got %+v after %v, asked the store: %v, want %v", since, res, took, got, due)
				}
				time.Sleep(outage.DefaultProbe/4 - took)
			}
			st.Set(weirtest.Up)
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

// Each answer says why the store did not decide that request.
func TestOutageCauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		l := onOutage(t, weirtest.New(t, st, weirtest.Window(10, time.Hour)), outage.Options{Fallback: outage.Open, Failures: 10})
		for range 2 {
			for f, late := range map[weirtest.Fault]bool{weirtest.Hang: true, weirtest.Down: false} {
				st.Set(f)
				res, err := l.Allow(t.Context(), "ann")
				if res = weirtest.Degraded(t, res, err); strings.Contains(res.Degraded.Error(), "within the budget") != late {
					t.Errorf("fault %v: got %v", f, res.Degraded)
				}
			}
		}
	})
}

// An answer of the store ends a series of failures. So the loss of one master of three
// does not open the breaker, and the other masters decide, even if many requests per
// second fail one after the other by chance.
func TestOutageOfOneMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		l := onOutage(t, weirtest.New(t, st, weirtest.Window(1<<40, 24*time.Hour)), outage.Options{})
		rnd := rand.New(rand.NewPCG(1, 1))
		longest, failures := 0, 0
		for range 60_000 { // 1,000 requests per second
			lost := rnd.IntN(3) == 0
			st.Set(weirtest.Up)
			if failures++; lost {
				st.Set(weirtest.Down)
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
		if longest < outage.DefaultFailures {
			t.Errorf("at most %d requests failed one after the other", longest)
		}
	})
}

// With the longest Probe, the store is never asked again, and no RetryAfter overflows.
func TestOutageNeverProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		l := onOutage(t, weirtest.New(t, st, weirtest.Window(10, 24*time.Hour)), outage.Options{Probe: weir.Never})
		st.Set(weirtest.Down)
		fail(t, l)
		asked := st.Asked.Load()
		for range 100 {
			time.Sleep(24 * time.Hour)
			res, err := l.Allow(t.Context(), "ann")
			if weirtest.Degraded(t, res, err).RetryAfter < 24*time.Hour {
				t.Fatalf("got %+v, want a long RetryAfter", res)
			}
		}
		if n := st.Asked.Load() - asked; n != 0 {
			t.Errorf("the store was asked %d times", n)
		}
	})
}
