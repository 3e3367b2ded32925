package weir_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/denycache"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store/memory"
)

// sleepers calls l.Wait n times at once for key, and returns when the calls returned nil,
// in order.
func sleepers(t *testing.T, l *weir.Limiter, n int, key ...string) []time.Duration {
	t.Helper()
	var mu sync.Mutex
	var left []time.Duration
	var wg sync.WaitGroup
	start := time.Now()
	for range n {
		wg.Go(func() {
			if _, err := l.Wait(t.Context(), key...); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			left = append(left, time.Since(start))
		})
	}
	wg.Wait()
	slices.Sort(left)
	return left
}

// most returns the largest number of times within a second.
func most(times []time.Duration) (n int) {
	for i, first := range times {
		end, _ := slices.BinarySearch(times, first+time.Second+1)
		n = max(n, end-i)
	}
	return n
}

// A thousand callers sleep through a pause, and then leave at the pace of the other rule,
// with two calls of the store each.
func TestPauseSleepers(t *testing.T) {
	t.Parallel()
	rate := algorithm.PerSecond(10)
	for _, pace := range []algorithm.Algorithm{
		algorithm.LeakyBucket{Rate: rate, Queue: 1000}, algorithm.GCRA{Rate: rate, Burst: 4}, algorithm.TokenBucket{Capacity: 4, Refill: rate},
	} {
		for _, wrap := range []weir.Wrapper{nil, denycache.New(nil).Wrap, outage.New(nil).Wrap, observe.Observer(func(context.Context, observe.Decision) {}).Wrap} {
			synctest.Test(t, func(t *testing.T) {
				st := weirtest.NewFaulty()
				l := weirtest.NewPolicy(t, st, weirtest.Rules(weir.Rule{Name: "pace", Algorithm: pace}, pauseRule))
				if wrap != nil {
					l = weirtest.Wrap(t, l, wrap)
				}
				pause(t, l, time.Minute, "u")
				st.Asked.Store(0)
				times := sleepers(t, l, 1000, "u")
				if n := most(times); n > 14 || times[0] != time.Minute || times[999] > 160*time.Second {
					t.Errorf("%T: callers left from %v to %v, %d in one second, want at most 14 from 1m0s", pace, times[0], times[999], n)
				}
				if n := st.Asked.Load(); n > 2000 {
					t.Errorf("%T: %d calls of the store, want at most 2000", pace, n)
				}
			})
		}
	}
}

// Who sleeps reserves nothing, so an open user who shares the pace does not wait behind
// the sleepers of a paused one.
func TestPauseOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := weirtest.NewPolicy(t, memory.New(nil), weir.Policy{Name: "t", Segments: []string{"tenant", "user"}, Rules: []weir.Rule{
			{Name: "pace", By: []string{"tenant"}, Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 4}}, pauseRule,
		}})
		pause(t, l, time.Minute, "acme", "ann")
		done := make(chan struct{})
		go func() {
			defer close(done)
			sleepers(t, l, 200, "acme", "ann")
		}()
		synctest.Wait()
		if took := sleepers(t, l, 4, "acme", "bob"); took[3] != 0 {
			t.Errorf("an open user waited %v, want 0 s", took[3])
		}
		<-done
	})
}

// A Resume opens the key for new callers at once. Who sleeps notices it, a shorter pause
// and a longer one at the end of the sleep.
func TestPauseSleeps(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		meanwhile func(t *testing.T, l *weir.Limiter, id string) // 10 s after the pause of a minute began
		first     time.Duration                                  // when the sleeper leaves
		later     time.Duration                                  // how long a later caller waits
	}{
		"nothing happens": {func(*testing.T, *weir.Limiter, string) {}, time.Minute, 50 * time.Second},
		"resumed":         {func(t *testing.T, l *weir.Limiter, id string) { resume(t, l, true, id, "u") }, time.Minute, 0},
		"longer":          {func(t *testing.T, l *weir.Limiter, _ string) { pause(t, l, 90*time.Second, "u") }, 100 * time.Second, 90 * time.Second},
		"resumed, and paused again": {func(t *testing.T, l *weir.Limiter, id string) {
			resume(t, l, true, id, "u")
			pause(t, l, 20*time.Second, "u")
		}, time.Minute, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := weirtest.NewPolicy(t, memory.New(nil), weirtest.Rules(pauseRule, rateRule))
				id := pause(t, l, time.Minute, "u")
				first := make(chan time.Duration)
				go func() { first <- sleepers(t, l, 1, "u")[0] }()
				time.Sleep(10 * time.Second)
				tt.meanwhile(t, l, id)
				if later := sleepers(t, l, 1, "u")[0]; later != tt.later {
					t.Errorf("a later caller waited %v, want %v", later, tt.later)
				}
				if got := <-first; got != tt.first {
					t.Errorf("the sleeper left after %v, want %v", got, tt.first)
				}
			})
		})
	}
}

// WaitFor sleeps only if the rule that is shown is the pause, the store decided, and the
// pause ends before the caller may no longer wait. Otherwise it is denied at once. After
// the sleep, MaxWait is what is left.
func TestPauseDenied(t *testing.T) {
	t.Parallel()
	const minute = time.Minute
	for _, tt := range []struct {
		name              string
		before            int64         // tokens consumed before the pause, of five; one comes each second
		maxWait, deadline time.Duration // 0 means none
		cost              int64
		rule              string // which denies; "" means that the request is allowed
		took              time.Duration
		after             time.Duration // RetryAfter
	}{
		{"in time by MaxWait", 0, minute + time.Microsecond, 0, 1, "", minute, 0},
		{"in time by the deadline", 0, 0, minute + time.Microsecond, 1, "", minute, 0},
		{"MaxWait ends with the pause", 0, minute, 0, 1, "pause", 0, minute},
		{"the deadline ends with the pause", 0, weir.Never, minute, 1, "pause", 0, minute},
		{"MaxWait ends before the deadline", 0, minute, time.Hour, 1, "pause", 0, minute},
		{"never", 0, weir.Never, 0, 6, "rate", 0, weir.Never},
		{"the debt lasts longer", 300, weir.Never, 90 * time.Second, 1, "rate", 0, 206 * time.Second},
		{"the debt is late after the pause", 82, weir.Never, 77 * time.Second, 1, "rate", minute, time.Second},
		{"the debt is in time after the pause", 82, weir.Never, 78 * time.Second, 1, "", 78 * time.Second, 0},
		{"the debt is late for MaxWait", 82, 77 * time.Second, 0, 1, "rate", minute, time.Second},
		{"the debt is in time for MaxWait", 82, 78 * time.Second, 0, 1, "", 78 * time.Second, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := weirtest.NewPolicy(t, memory.New(nil), weirtest.Rules(rateRule, pauseRule))
				if tt.before > 0 {
					weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u"), Op: weir.Force, Cost: tt.before})
				}
				pause(t, l, minute, "u")
				ctx, start := t.Context(), time.Now()
				if tt.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.deadline)
					defer cancel()
				}
				res, err := l.WaitFor(ctx, weir.Request{Key: weir.KeyOf("u"), Cost: tt.cost, MaxWait: tt.maxWait})
				if errors.Is(err, weir.ErrDenied) != (tt.rule != "") || tt.rule == "" && (err != nil || !res.Allowed || res.Rule != "rate") {
					t.Errorf("got %+v, %v, want it denied by %q", res, err, tt.rule)
				}
				if took := time.Since(start); took != tt.took || res.RetryAfter != tt.after || tt.rule != "" && res.Rule != tt.rule {
					t.Errorf("got %+v after %v, want the RetryAfter %v after %v", res, took, tt.after, tt.took)
				}
			})
		})
	}
}

// WaitFor does not mistake a limit as high as a pause's for a pause.
func TestWaitHighLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := weirtest.New(t, memory.New(nil), weirtest.Windowless(weirtest.PerSecond, algorithm.MaxTokens))
		for _, cost := range []int64{5, 5, 5} {
			weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u"), Cost: cost, MaxWait: weir.Never})
		}
		start := time.Now()
		if res, err := l.WaitFor(t.Context(), weir.Request{Key: weir.KeyOf("u"), MaxWait: 6 * time.Second}); !errors.Is(err, weir.ErrDenied) || time.Since(start) > 0 {
			t.Errorf("got %+v, %v after %v, want a denial at once", res, err, time.Since(start))
		}
	})
}

// Reserve never sleeps. A reservation made before the pause goes ahead at its turn, and
// none is made during the pause. A caller whose context ends during the sleep has
// consumed nothing.
func TestPauseReserve(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := weirtest.NewPolicy(t, memory.New(nil), weirtest.Rules(pauseRule, rateRule))
		r := weir.Request{Key: weir.KeyOf("u"), Cost: 5, MaxWait: weir.Never}
		weirtest.Allow(t, l, r)
		turn, err := l.Reserve(t.Context(), r)
		if err != nil || turn.Delay != 5*time.Second {
			t.Fatal(turn, err)
		}
		pause(t, l, time.Minute, "u")
		start := time.Now()
		if _, err := l.Reserve(t.Context(), r); !errors.Is(err, weir.ErrDenied) || time.Since(start) > 0 {
			t.Errorf("Reserve: %v after %v, want a denial at once", err, time.Since(start))
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Second, cancel)
		if err := turn.Wait(ctx); err != nil || time.Since(start) != 5*time.Second {
			t.Errorf("the reservation went ahead after %v, %v, want its turn after 5 s", time.Since(start), err)
		}
		if res, err := l.WaitFor(ctx, r); !errors.Is(err, context.Canceled) || res != (weir.Result{}) || time.Since(start) != 20*time.Second {
			t.Errorf("got %+v, %v after %v, want the error of the context after 20 s", res, err, time.Since(start))
		}
		if res := weirtest.Left(t, weirtest.Only(t, l, "rate"), "u"); res.Remaining != 5 {
			t.Errorf("got %+v, want 5 tokens", res)
		}
		// A repeat of a caller's own ID is still its decision after the pause.
		r.ID = "mine"
		time.Sleep(40 * time.Second)
		weirtest.Allow(t, l, r)
		pause(t, l, time.Second, "u")
		start = time.Now()
		if res, err := l.WaitFor(t.Context(), r); err != nil || !res.Replayed || time.Since(start) != time.Second {
			t.Errorf("a repeat: got %+v, %v after %v, want it after 1 s", res, err, time.Since(start))
		}
	})
}

// A degraded denial is no pause, so WaitFor does not sleep.
func TestPauseDegraded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := weirtest.NewPolicy(t, memory.New(nil), weirtest.Rules(pauseRule, rateRule))
		pause(t, l, time.Minute, "u")
		l = weirtest.Wrap(t, l, weirtest.Around(func(next weir.Decider) deciderFunc {
			return func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
				res, err := next.Decide(ctx, r, each)
				res.Degraded = errors.New("down")
				return res, err
			}
		}))
		start := time.Now()
		if res, err := l.Wait(t.Context(), "u"); !errors.Is(err, weir.ErrDenied) || res.Rule != "pause" || time.Since(start) > 0 {
			t.Errorf("got %+v, %v after %v, want a degraded denial at once", res, err, time.Since(start))
		}
	})
}
