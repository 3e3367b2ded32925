package outage_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store/memory"
)

// With a Floor, N processes over one store that fails now and then allow at most the
// limit and one request each in a window, or twice the limit if that is more.
func TestFloorBound(t *testing.T) {
	const n, wide = 10, time.Minute
	for _, tt := range []struct {
		limit, cost int64
		algorithm   func(limit int64) algorithm.Algorithm
	}{
		{3, 0, func(limit int64) algorithm.Algorithm {
			return algorithm.FixedWindow{Limit: limit, Window: wide, Aligned: true}
		}},
		{1, 0, func(limit int64) algorithm.Algorithm {
			return algorithm.FixedWindow{Limit: limit, Window: wide, Aligned: true}
		}},
		{25, 5, func(limit int64) algorithm.Algorithm {
			return algorithm.FixedWindow{Limit: limit, Window: wide, Aligned: true}
		}},
		{47, 0, func(limit int64) algorithm.Algorithm {
			return algorithm.FixedWindow{Limit: limit, Window: wide, Aligned: true}
		}},
		{3, 0, func(limit int64) algorithm.Algorithm { return algorithm.SlidingLog{Limit: limit, Window: wide} }},
		{3, 0, func(limit int64) algorithm.Algorithm { return algorithm.SlidingCounter{Limit: limit, Window: wide} }},
	} {
		floor := max(tt.cost, 1)
		bound := tt.limit + max(n*floor, tt.limit) // of a window
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(uint64(tt.limit), 6))
			backend := memory.New(nil)
			var stores [n]*weirtest.Faulty
			var processes [n]*weir.Limiter
			for i := range processes {
				stores[i] = &weirtest.Faulty{Store: backend}
				l := weirtest.NewPolicy(t, stores[i], weirtest.Rules(weir.Rule{Algorithm: tt.algorithm(tt.limit), Cost: tt.cost}))
				processes[i] = onOutage(t, l, outage.Options{Fallback: outage.Local, Processes: n, Floor: true})
			}
			counts := map[int64]int64{}
			alone := [n]int64{} // the windows in which a process allowed a request without the store
			for range 4000 {
				i := rnd.IntN(n)
				if rnd.IntN(20) == 0 {
					f := []weirtest.Fault{weirtest.Up, weirtest.Down, weirtest.Lost}[rnd.IntN(3)]
					for j := range stores {
						stores[j].Set(f)
					}
				}
				res, err := processes[i].Allow(t.Context(), "ann")
				if err != nil {
					t.Fatal(err)
				}
				at := time.Now().Unix() / int64(wide/time.Second)
				if res.Allowed {
					counts[at] += floor
				}
				if res.Allowed && res.Degraded != nil {
					alone[i]++
				}
				if counts[at] > bound {
					t.Fatalf("%+v: %d tokens in a window, want at most %d", tt, counts[at], bound)
				}
				time.Sleep(time.Duration(rnd.IntN(600)) * time.Millisecond)
			}
			for i, windows := range alone {
				if windows == 0 {
					t.Errorf("%+v: process %d allowed no request during an outage", tt, i)
				}
			}
		})
	}
}

// With a Floor, a plan with a small limit has a share, and a plan with a large limit has
// no more than its share.
func TestFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		st.Set(weirtest.Down)
		l := onOutage(t, weirtest.New(t, st, weirtest.Window(40, time.Hour)), outage.Options{Fallback: outage.Local, Processes: 10, Floor: true})
		for limit, want := range map[int64]int64{40: 4, 3: 1, 1: 1, 19: 1, 20: 2} {
			plan := weirtest.With(t, l, weir.Rule{Algorithm: weirtest.Window(limit, time.Hour)})
			key, allowed := weirtest.Number(int(limit)), int64(0)
			for range 10 {
				res, err := plan.Allow(t.Context(), key)
				if weirtest.Degraded(t, res, err).Allowed {
					allowed++
				}
			}
			if allowed != want {
				t.Errorf("limit %d: a process allowed %d, want %d", limit, allowed, want)
			}
		}
		leases := onOutage(t, weirtest.New(t, st, algorithm.Concurrency{Limit: 3, Lease: time.Minute}), outage.Options{Fallback: outage.Local, Processes: 10, Floor: true})
		if _, err := leases.TryAcquire(t.Context(), weir.Request{Key: weir.KeyOf("ann")}); err != nil {
			t.Errorf("the first lease: %v", err)
		}
		if _, err := leases.TryAcquire(t.Context(), weir.Request{Key: weir.KeyOf("ann")}); err == nil {
			t.Error("a second lease was acquired")
		}
	})
}

// While the number of processes changes, a process allows in each window at most the
// limit divided by the smallest number.
func TestSetProcesses(t *testing.T) {
	const limit, wide = 60, time.Minute
	for _, a := range []algorithm.Algorithm{
		algorithm.FixedWindow{Limit: limit, Window: wide, Aligned: true}, // its share counts in parts of tokens
		algorithm.SlidingLog{Limit: limit, Window: wide},                 // its share has a lower limit
	} {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(7, 7))
			st := weirtest.NewFaulty()
			st.Set(weirtest.Down)
			out := outage.New(&outage.Options{Fallback: outage.Local, Processes: 4, Probe: longProbe})
			l := weirtest.Wrap(t, weirtest.New(t, st, a), out.Wrap)
			n, fewest, window, allowed, full := int64(4), int64(4), int64(0), int64(0), 0
			for range 20_000 {
				if at := time.Now().Unix() / int64(wide/time.Second); at != window {
					window, fewest, allowed = at, n, 0
				}
				if rnd.IntN(200) == 0 {
					n = 1 + rnd.Int64N(10)
					if err := out.SetProcesses(int(n)); err != nil {
						t.Fatal(err)
					}
					fewest = min(fewest, n)
				}
				r := weir.Request{Key: weir.KeyOf("ann")}
				if rnd.IntN(3) == 0 { // refunded after a change
					r.ID = weirtest.Number(rnd.IntN(1 << 30))
				}
				res, err := l.Decide(t.Context(), r, nil)
				if weirtest.Degraded(t, res, err).Limit != limit/n {
					t.Fatalf("got %+v, want a share of %d", res, n)
				}
				if res.Allowed {
					allowed++
				}
				if allowed > limit/fewest {
					t.Fatalf("%T: %d requests were allowed in a window with at least %d processes, want at most %d", a, allowed, fewest, limit/fewest)
				}
				if allowed == limit/fewest {
					full++
				}
				if res.Allowed && r.ID != "" {
					n = 1 + rnd.Int64N(10)
					if err := out.SetProcesses(int(n)); err != nil {
						t.Fatal(err)
					}
					fewest = min(fewest, n)
					settled, err := l.Refund(t.Context(), r)
					if err == nil && settled.Kept == "" {
						allowed--
					}
				}
				time.Sleep(time.Duration(rnd.IntN(400)) * time.Millisecond)
			}
			if full == 0 {
				t.Errorf("%T: no window was full: the test does not tell much", a)
			}
		})
	}
}

// A number of processes of which a limit has no share is an error, and changes nothing.
func TestSetProcessesErrors(t *testing.T) {
	t.Parallel()
	st := weirtest.NewFaulty()
	st.Set(weirtest.Down)
	out := outage.New(&outage.Options{Fallback: outage.Local, Processes: 4})
	l := weirtest.Wrap(t, weirtest.New(t, st, weirtest.Window(40, time.Hour)), out.Wrap)
	share := func() int64 {
		res, err := l.Peek(t.Context(), "ann")
		return weirtest.Degraded(t, res, err).Limit
	}
	wantError(t, out.SetProcesses(0), nil, "SetProcesses: the number of processes is 0: it must be at least 1")
	wantError(t, out.SetProcesses(41), weir.ErrInvalidRule, `rule "fixedwindow" has a limit of which at most 40 processes have a share`)
	if got := share(); got != 10 {
		t.Errorf("after an error, the share is %d, want 10", got)
	}
	if err := out.SetProcesses(40); err != nil || share() != 1 {
		t.Errorf("got %v and a share of %d, want 1", err, share())
	}
	if _, err := l.With(weir.Rule{Algorithm: weirtest.Window(39, time.Hour)}); err == nil {
		t.Error("a limit of 39 has a share for each of 40 processes")
	}
	if err := out.SetProcesses(5); err != nil {
		t.Error(err)
	}
	weirtest.With(t, l, weir.Rule{Algorithm: weirtest.Window(30, time.Hour), Cost: 4})
	wantError(t, out.SetProcesses(8), weir.ErrInvalidRule, "at most 7 processes have a share")
	floor := outage.New(&outage.Options{Fallback: outage.Local, Processes: 4, Floor: true})
	weirtest.Wrap(t, weirtest.New(t, st, weirtest.Window(3, time.Hour)), floor.Wrap)
	if err := floor.SetProcesses(1000); err != nil {
		t.Error(err)
	}
	for _, b := range []*outage.Breaker{nil, new(outage.Breaker), outage.New(nil), outage.New(&outage.Options{Fallback: outage.Local})} {
		wantError(t, b.SetProcesses(4), nil, "the Breaker divides no limits")
	}
	_, err := weirtest.New(t, st, weirtest.PerSecond).Wrap(outage.New(&outage.Options{Fallback: outage.Open, Floor: true}).Wrap)
	wantError(t, err, nil, "Options.Floor is true and Fallback is Open: only Local uses Floor")
}

// With a Floor, the rate of a limit is divided by the number of processes if its burst
// has a token for each. Otherwise it is divided by the burst.
func TestFloorRate(t *testing.T) {
	const n = 10
	for _, tt := range []struct {
		algorithm algorithm.Algorithm
		want      int // in 60 s, at most
	}{
		{algorithm.GCRA{Rate: algorithm.PerMinute(120), Burst: n}, n + 120},
		{algorithm.LeakyBucket{Rate: algorithm.PerMinute(120), Queue: n - 1}, n + 120},
		{algorithm.GCRA{Rate: algorithm.PerMinute(120), Burst: 1}, n + n*120},
	} {
		synctest.Test(t, func(t *testing.T) {
			st := weirtest.NewFaulty()
			st.Set(weirtest.Down)
			var processes [n]*weir.Limiter
			for i := range processes {
				processes[i] = onOutage(t, weirtest.New(t, st, tt.algorithm), outage.Options{Fallback: outage.Local, Processes: n, Floor: true, Probe: longProbe})
			}
			allowed := 0
			for range 600 {
				for _, l := range processes {
					res, err := l.Allow(t.Context(), "ann")
					if weirtest.Degraded(t, res, err).Allowed {
						allowed++
					}
				}
				time.Sleep(time.Minute / 600)
			}
			if allowed > tt.want || allowed < tt.want*9/10 {
				t.Errorf("%+v: %d requests in a minute, want about %d", tt.algorithm, allowed, tt.want)
			}
		})
	}
}
