package outage_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// longProbe is so long that no probe is sent in a test.
const longProbe = 100 * 365 * 24 * time.Hour

// A share of n answers like the limit when each request costs n times as much. An
// algorithm that has an element for each token answers like its limit divided by n.
func TestShares(t *testing.T) {
	const n = 3
	for _, tt := range []struct {
		name      string
		algorithm weir.Rule
		divided   algorithm.Algorithm // nil if costs are multiplied
		reserves  bool
		refunds   bool
	}{
		{"GCRA", weir.Rule{Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(2), Burst: 20}}, nil, true, true},
		{"GCRA of a fraction", weir.Rule{Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(7), Burst: 22}}, nil, true, true},
		{"TokenBucket", weir.Rule{Algorithm: algorithm.TokenBucket{Capacity: 20, Refill: algorithm.PerSecond(3)}}, nil, true, true},
		{"LeakyBucket", weir.Rule{Algorithm: algorithm.LeakyBucket{Rate: algorithm.PerSecond(5), Queue: 30}}, nil, true, true},
		{"FixedWindow", weir.Rule{Algorithm: weirtest.Window(20, 5*time.Second)}, nil, false, true},
		{"aligned FixedWindow", weir.Rule{Algorithm: algorithm.FixedWindow{Limit: 20, Window: 5 * time.Second, Aligned: true}}, nil, false, true},
		{"SlidingCounter", weir.Rule{Algorithm: algorithm.SlidingCounter{Limit: 20, Window: 5 * time.Second}}, nil, false, true},
		{"SlidingBuckets", weir.Rule{Algorithm: algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: 2 * time.Second, Limit: 10}, {Window: 8 * time.Second, Limit: 25}}}}, nil, false, true},
		{"a pointer", weir.Rule{Algorithm: &algorithm.SlidingLog{Limit: 20, Window: 5 * time.Second}}, algorithm.SlidingLog{Limit: 6, Window: 5 * time.Second}, false, true},
		{"SlidingLog", weir.Rule{Algorithm: algorithm.SlidingLog{Limit: 20, Window: 5 * time.Second}}, algorithm.SlidingLog{Limit: 6, Window: 5 * time.Second}, false, true},
		{"MetadataWindow", weir.Rule{Algorithm: algorithm.MetadataWindow{Limit: 20, Window: 5 * time.Second}}, algorithm.MetadataWindow{Limit: 6, Window: 5 * time.Second}, false, false},
		{"a struct around a Step", weir.Rule{Algorithm: around{algorithm.SlidingLog{Limit: 20, Window: 5 * time.Second}}}, nil, false, true},
		{"a struct around a Meter", weir.Rule{Algorithm: around{weirtest.Window(20, 5*time.Second)}}, nil, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := weirtest.NewFaulty()
				st.Set(weirtest.Down)
				l := onOutage(t, weirtest.NewPolicy(t, st, weirtest.Rules(tt.algorithm)), outage.Options{Fallback: outage.Local, Processes: n, Probe: longProbe})
				factor, ref := int64(n), tt.algorithm
				if tt.divided != nil {
					factor, ref.Algorithm = 1, tt.divided
				}
				same := &shareTest{t: t, share: l, whole: weirtest.NewPolicy(t, memory.New(nil), weirtest.Rules(ref)), factor: factor}
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
						same.refund(r.Key, ids[max(0, len(ids)-1-rnd.IntN(3))])
						continue
					}
					if same.decide(r) {
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

// An around is an algorithm that package weir does not know.
type around struct{ algorithm.Algorithm }

// A shareTest compares a share with the whole limit.
type shareTest struct {
	t            *testing.T
	share, whole *weir.Limiter
	factor       int64
}

func (s *shareTest) decide(r weir.Request) bool {
	s.t.Helper()
	each := make([]weir.Result, 1)
	got, err := s.share.Decide(s.t.Context(), r, each)
	weirtest.Degraded(s.t, got, err)
	each[0].Delay = got.Delay
	if got != each[0] {
		s.t.Fatalf("%+v: got %+v, and for its rule %+v", r, got, each[0])
	}
	whole := r
	if whole.Cost *= s.factor; r.Op == weir.TakeUpTo {
		peek, err := s.whole.Decide(s.t.Context(), weir.Request{Key: r.Key, Op: weir.Peek}, nil)
		if err != nil {
			s.t.Fatal(err)
		}
		most := min(r.Cost, peek.Remaining/s.factor)
		whole.Op, whole.Cost = weir.Consume, max(most, 1)*s.factor
	}
	want, err := s.whole.Decide(s.t.Context(), whole, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	want.Degraded = got.Degraded
	if !got.Allowed && want.RetryAfter == weir.Never { // the share can never allow it: the limit may
		want.RetryAfter = got.RetryAfter
	}
	want.Granted /= s.factor
	want.Limit /= s.factor
	want.Remaining /= s.factor
	if got != want {
		s.t.Fatalf("%+v:\ngot  %+v\nwant %+v", r, got, want)
	}
	return got.Allowed
}

func (s *shareTest) refund(key weir.Key, id string) {
	s.t.Helper()
	got, err1 := s.share.Refund(s.t.Context(), weir.Request{Key: key, ID: id})
	want, err2 := s.whole.Refund(s.t.Context(), weir.Request{Key: key, ID: id})
	want.Cost /= s.factor
	// What the share did not decide may have been decided by the store, which is down.
	if got != want || err2 != nil || errors.Is(err1, store.ErrUnavailable) == got.Found {
		s.t.Fatalf("refund: got %v, %v, want %v, %v", got, err1, want, err2)
	}
}

// A limit that has no share is an error of Wrap, and of With.
func TestNoShare(t *testing.T) {
	st := weirtest.NewFaulty()
	st.Set(weirtest.Down)
	local := outage.Options{Fallback: outage.Local, Processes: 4}
	for _, tt := range []struct {
		rule weir.Rule
		is   error
		want string
	}{
		{weir.Rule{Algorithm: weirtest.Window(3, time.Hour)}, weir.ErrInvalidRule, `rule "fixedwindow": its limit is 3, and the share of each of 4 processes is less than one token`},
		{weir.Rule{Algorithm: weirtest.Window(39, time.Hour), Cost: 10}, weir.ErrInvalidRule, `rule "fixedwindow": its limit is 39, and the share of each of 4 processes is less than its Cost`},
		{weir.Rule{Algorithm: algorithm.Concurrency{Limit: 3, Lease: time.Minute}}, weir.ErrInvalidRule, `its limit is 3`},
		{weir.Rule{Algorithm: around{algorithm.Concurrency{Limit: 30, Lease: time.Minute}}}, weir.ErrUnsupported, `a concurrency holds leases`},
		{weir.Rule{Algorithm: weirtest.Capped(algorithm.SlidingLog{Limit: 3000, Window: time.Minute}, 1000)}, weir.ErrUnsupported, `a slidinglog can consume at most 1000 at once`},
	} {
		l := weirtest.NewPolicy(t, st, weirtest.Rules(tt.rule))
		_, err := l.Wrap(outage.New(&local).Wrap)
		wantError(t, err, tt.is, tt.want)
		advice := "set Fallback to Closed or Open"
		if tt.is == weir.ErrInvalidRule {
			advice = "set Floor, or " + advice
		}
		if !strings.HasPrefix(err.Error(), "outage: rule ") || !strings.HasSuffix(err.Error(), "; or "+advice) {
			t.Errorf("got %v, want that it names the rule, and the other Fallbacks", err)
		}
	}
	l := onOutage(t, weirtest.New(t, st, weirtest.Window(40, time.Hour)), local)
	res, err := l.Allow(t.Context(), "ann")
	if res = weirtest.Degraded(t, res, err); !res.Allowed || res.Limit != 10 {
		t.Errorf("got %+v, want it allowed by a limit of 10", res)
	}
	if small, err := l.With(weir.Rule{Algorithm: weirtest.Window(3, time.Hour)}); small != nil {
		t.Error("With a limit that has no share: got a limiter")
	} else {
		wantError(t, err, weir.ErrInvalidRule, `rule "fixedwindow": its limit is 3`)
	}
	// One process has all of it.
	all := onOutage(t, weirtest.New(t, st, weirtest.Window(3, time.Hour)), outage.Options{Fallback: outage.Local, Processes: 1})
	res, err = all.Allow(t.Context(), "ann")
	if res = weirtest.Degraded(t, res, err); !res.Allowed || res.Remaining != 2 {
		t.Errorf("got %+v, want 2 left", res)
	}
}

// A limit that is changed after New has no effect, even on shares.
func TestShareOfAPointer(t *testing.T) {
	t.Parallel()
	st := weirtest.NewFaulty()
	st.Set(weirtest.Down)
	log := &algorithm.SlidingLog{Limit: 10, Window: time.Minute}
	l := weirtest.New(t, st, log)
	log.Limit = 1000
	l = onOutage(t, l, outage.Options{Fallback: outage.Local, Processes: 2})
	res, err := l.Allow(t.Context(), "ann")
	if res = weirtest.Degraded(t, res, err); res.Limit != 5 {
		t.Errorf("got %+v, want half of 10", res)
	}
}

// A large cost of a third-party Step stays above the capacity.
func TestShareOfHugeCost(t *testing.T) {
	st := weirtest.NewFaulty()
	st.Set(weirtest.Down)
	l := onOutage(t, weirtest.New(t, st, algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: time.Second, Limit: contract.MaxTokens}}}),
		outage.Options{Fallback: outage.Local, Processes: 1 << 20})
	for _, cost := range []int64{1 << 33, 1 << 34, 1 << 52, 1<<53 - 1} {
		res, err := l.AllowN(t.Context(), cost, "ann")
		if res = weirtest.Degraded(t, res, err); res.Allowed || res.RetryAfter != outage.DefaultProbe {
			t.Errorf("cost %d: got %+v, want it denied until the next probe", cost, res)
		}
	}
	res, err := l.AllowN(t.Context(), 1<<33-1, "ann")
	if res = weirtest.Degraded(t, res, err); !res.Allowed || res.Remaining != 0 {
		t.Errorf("got %+v, want it allowed", res)
	}
}

// N processes over one store that fails now and then allow at most the limit and N shares
// in a window: at most twice the limit.
func TestOutageBound(t *testing.T) {
	const limit, n, wide = 50, 4, time.Minute
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 4))
			backend := memory.New(nil)
			var stores [n]*weirtest.Faulty
			var processes [n]*weir.Limiter
			for i := range processes {
				stores[i] = &weirtest.Faulty{Store: backend}
				l := weirtest.New(t, stores[i], algorithm.FixedWindow{Limit: limit, Window: wide, Aligned: true})
				processes[i] = onOutage(t, l, outage.Options{Fallback: outage.Local, Processes: n})
			}
			shared, local := map[int64]int64{}, map[int64]int64{}
			most := int64(0)
			for range 4000 {
				i := rnd.IntN(n)
				if rnd.IntN(20) == 0 { // the store, or the way from one process to it
					f := []weirtest.Fault{weirtest.Up, weirtest.Down, weirtest.Hang, weirtest.Lost}[rnd.IntN(4)]
					for j := range stores {
						if j == i || rnd.IntN(2) == 0 {
							stores[j].Set(f)
						}
					}
				}
				res, err := processes[i].TakeUpTo(t.Context(), 1+rnd.Int64N(3), "ann")
				if err != nil {
					t.Fatal(err)
				}
				at := time.Now().Unix() / int64(wide/time.Second)
				if res.Degraded == nil {
					shared[at] += res.Granted
				} else {
					local[at] += res.Granted
				}
				if got := shared[at]; got > limit {
					t.Fatalf("seed %d: the store allowed %d in a window, want at most %d", seed, got, limit)
				}
				if got := local[at]; got > limit/n*n {
					t.Fatalf("seed %d: the processes allowed %d in a window, want at most %d", seed, got, limit/n*n)
				}
				most = max(most, shared[at]+local[at])
				time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
			}
			if most <= limit {
				t.Errorf("seed %d: at most %d were allowed in a window: want more than the limit of %d, otherwise there was no outage", seed, most, limit)
			}
		})
	}
}
