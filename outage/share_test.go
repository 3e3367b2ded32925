package outage_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// longProbe is so long that no probe is sent in a test.
const longProbe = 100 * 365 * 24 * time.Hour

// An around is an algorithm that package weir does not know.
type around struct{ algorithm.Algorithm }

// A share of 3 answers like the limit when each request costs 3 times as much. An
// algorithm that has an element for each token answers like its limit divided by 3.
func TestShares(t *testing.T) {
	const wide = 5 * time.Second
	for _, tt := range []struct {
		algorithm algorithm.Algorithm
		divided   algorithm.Algorithm // nil if costs are multiplied
		reserves  bool
		refunds   bool
	}{
		{algorithm.GCRA{Rate: algorithm.PerSecond(2), Burst: 20}, nil, true, true},
		{algorithm.GCRA{Rate: algorithm.PerSecond(7), Burst: 22}, nil, true, true},
		{algorithm.TokenBucket{Capacity: 20, Refill: algorithm.PerSecond(3)}, nil, true, true},
		{algorithm.LeakyBucket{Rate: algorithm.PerSecond(5), Queue: 30}, nil, true, true},
		{weirtest.Window(20, wide), nil, false, true},
		{algorithm.FixedWindow{Limit: 20, Window: wide, Aligned: true}, nil, false, true},
		{algorithm.SlidingCounter{Limit: 20, Window: wide}, nil, false, true},
		{algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: 2 * time.Second, Limit: 10}, {Window: 8 * time.Second, Limit: 25}}}, nil, false, true},
		{&algorithm.SlidingLog{Limit: 20, Window: wide}, algorithm.SlidingLog{Limit: 6, Window: wide}, false, true},
		{algorithm.MetadataWindow{Limit: 20, Window: wide}, algorithm.MetadataWindow{Limit: 6, Window: wide}, false, false},
		{around{algorithm.SlidingLog{Limit: 20, Window: wide}}, nil, false, true},
		{around{weirtest.Window(20, wide)}, nil, false, true},
	} {
		t.Run(fmt.Sprintf("%T", tt.algorithm), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := weirtest.NewFaulty()
				st.Set(weirtest.Down)
				factor, whole := int64(3), tt.algorithm
				if tt.divided != nil {
					factor, whole = 1, tt.divided
				}
				limit, share := weirtest.New(t, memory.New(nil), whole), weirtest.New(t, st, tt.algorithm)
				if log, ok := tt.algorithm.(*algorithm.SlidingLog); ok { // this has no effect any more
					log.Limit = 1000
				}
				share = onOutage(t, share, outage.Options{Fallback: outage.Local, Processes: 3, Probe: longProbe})
				decide := func(r weir.Request) bool {
					each := make([]weir.Result, 1)
					got, err := share.Decide(t.Context(), r, each)
					if each[0].Delay = weirtest.Degraded(t, got, err).Delay; got != each[0] {
						t.Fatalf("%+v: got %+v, and for its rule %+v", r, got, each[0])
					}
					if r.Op == weir.TakeUpTo {
						peek := weirtest.Decide(t, limit, weir.Request{Key: r.Key, Op: weir.Peek})
						r.Op, r.Cost = weir.Consume, max(min(r.Cost, peek.Remaining/factor), 1)
					}
					r.Cost *= factor
					want := weirtest.Decide(t, limit, r)
					want.Degraded = got.Degraded
					if !got.Allowed && want.RetryAfter == weir.Never { // the share can never allow it: the limit may
						want.RetryAfter = got.RetryAfter
					}
					want.Granted, want.Limit, want.Remaining = want.Granted/factor, want.Limit/factor, want.Remaining/factor
					if got != want {
						t.Fatalf("%+v:\ngot  %+v\nwant %+v", r, got, want)
					}
					return got.Allowed
				}
				rnd := rand.New(rand.NewPCG(2, 3))
				allowed, ids := 0, []string{}
				for i := range 2000 {
					r := weir.Request{Key: weir.KeyOf(weirtest.Number(rnd.IntN(2))), Cost: 1 + rnd.Int64N(4)}
					switch k := rnd.IntN(10); {
					case k == 0:
						r.Op = weir.Peek
					case k < 4:
						r.Op = weir.TakeUpTo
					case k < 6 && tt.reserves:
						r.MaxWait = time.Duration(rnd.IntN(4000)) * time.Millisecond
					case k < 8 && tt.refunds:
						r.ID = fmt.Sprint(r.Key, i)
						ids = append(ids, r.ID)
					case k == 8 && len(ids) > 0:
						undo := weir.Request{Key: r.Key, ID: ids[max(0, len(ids)-1-rnd.IntN(3))]}
						got, err1 := share.Refund(t.Context(), undo)
						want, err2 := limit.Refund(t.Context(), undo)
						want.Cost /= factor
						// What the share did not decide may have been decided by the
						// store, which is down.
						if got != want || err2 != nil || errors.Is(err1, store.ErrUnavailable) == got.Found {
							t.Fatalf("refund: got %v, %v, want %v, %v", got, err1, want, err2)
						}
						continue
					}
					if decide(r) {
						allowed++
					}
					time.Sleep(time.Duration(rnd.IntN(800_000)) * time.Microsecond)
				}
				if allowed < 100 || allowed > 1900 {
					t.Errorf("%d requests of 2000 were allowed: the test does not tell much", allowed)
				}
			})
		})
	}
}

// N processes over one store that fails now and then allow at most the limit and N shares
// in a window, which is at most twice the limit. With a Floor, a share is at least one
// request.
func TestBound(t *testing.T) {
	const wide = time.Minute
	window := func(limit int64) algorithm.Algorithm {
		return algorithm.FixedWindow{Limit: limit, Window: wide, Aligned: true}
	}
	for i, tt := range []struct {
		n         int64
		limit     int64
		cost      int64 // of the rule
		floor     bool
		algorithm algorithm.Algorithm
	}{
		{4, 50, 0, false, window(50)},
		{4, 51, 0, false, window(51)},
		{4, 50, 0, false, algorithm.SlidingLog{Limit: 50, Window: wide}},
		{10, 3, 0, true, window(3)},
		{10, 1, 0, true, window(1)},
		{10, 25, 5, true, window(25)},
		{10, 47, 0, true, window(47)},
		{10, 3, 0, true, algorithm.SlidingLog{Limit: 3, Window: wide}},
		{10, 3, 0, true, algorithm.SlidingCounter{Limit: 3, Window: wide}},
	} {
		synctest.Test(t, func(t *testing.T) {
			rnd, backend := rand.New(rand.NewPCG(uint64(i), 4)), memory.New(nil)
			stores, processes := make([]*weirtest.Faulty, tt.n), make([]*weir.Limiter, tt.n)
			for i := range processes {
				stores[i] = &weirtest.Faulty{Store: backend}
				l := weirtest.NewPolicy(t, stores[i], weirtest.Rules(weir.Rule{Algorithm: tt.algorithm, Cost: tt.cost}))
				processes[i] = onOutage(t, l, outage.Options{Fallback: outage.Local, Processes: int(tt.n), Floor: tt.floor})
			}
			request, share := max(tt.cost, 1), tt.limit/tt.n
			if tt.floor {
				share = max(share, request)
			}
			shared, local, alone := map[int64]int64{}, map[int64]int64{}, make([]bool, tt.n)
			for range 8000 {
				i := rnd.Int64N(tt.n)
				if rnd.IntN(20) == 0 { // the store, or the way from one process to it
					f := []weirtest.Fault{weirtest.Up, weirtest.Down, weirtest.Hang, weirtest.Lost}[rnd.IntN(4)]
					for j := range stores {
						if int64(j) == i || rnd.IntN(2) == 0 {
							stores[j].Set(f)
						}
					}
				}
				r := weir.Request{Key: weir.KeyOf("ann"), Op: weir.TakeUpTo, Cost: 1 + rnd.Int64N(3)}
				if tt.cost > 0 {
					r.Op = weir.Consume
				}
				res := weirtest.Decide(t, processes[i], r)
				if at := time.Now().Unix() / int64(wide/time.Second); res.Degraded == nil {
					if shared[at] += res.Granted; shared[at] > tt.limit {
						t.Fatalf("%+v: the store allowed %d in a window", tt, shared[at])
					}
				} else if res.Allowed {
					alone[i] = true
					if local[at] += res.Granted; local[at] > tt.n*share || local[at] > max(tt.limit, tt.n*request) {
						t.Fatalf("%+v: the processes allowed %d in a window, want at most %d", tt, local[at], tt.n*share)
					}
				}
				time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
			}
			for i := range alone {
				if !alone[i] {
					t.Errorf("%+v: process %d allowed no request during an outage", tt, i)
				}
			}
		})
	}
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
			allowed := 0
			l := onOutage(t, weirtest.New(t, st, tt.algorithm), outage.Options{Fallback: outage.Local, Processes: n, Floor: true, Probe: longProbe})
			for range 600 {
				if res, err := l.Allow(t.Context(), "ann"); weirtest.Degraded(t, res, err).Allowed {
					allowed += n // one for each process
				}
				time.Sleep(time.Minute / 600)
			}
			if allowed > tt.want || allowed < tt.want*9/10 {
				t.Errorf("%+v: %d requests in a minute, want about %d", tt.algorithm, allowed, tt.want)
			}
		})
	}
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
			change := func() {
				n = 1 + rnd.Int64N(10)
				if err := out.SetProcesses(int(n)); err != nil {
					t.Fatal(err)
				}
				fewest = min(fewest, n)
			}
			for range 20_000 {
				if at := time.Now().Unix() / int64(wide/time.Second); at != window {
					window, fewest, allowed = at, n, 0
				}
				if rnd.IntN(200) == 0 {
					change()
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
					change()
					if settled, err := l.Refund(t.Context(), r); err == nil && settled.Kept == "" {
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
