package weirhttp_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirhttp"
)

var (
	pauseRule = weir.Rule{Name: "pause", Algorithm: algorithm.Pause{}}
	fastRule  = weir.Rule{Name: "pace", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1000), Burst: 1000}}
)

// A fleet has two processes that call one service. Each makes its own limiters. If the second
// has a limiter of pauses, its wrapper leaves the results of the rules out.
type fleet struct {
	*service
	transports [2]*weirhttp.Transport
}

// newFleet returns a fleet whose limiters have the rules, over st. If apart is true, the
// pauses are in a limiter of their own.
func newFleet(t *testing.T, st store.Store, apart bool, pace weir.Rule) *fleet {
	t.Helper()
	f := &fleet{service: &service{start: time.Now()}}
	for i := range f.transports {
		policy := func(name string, rules ...weir.Rule) *weir.Limiter {
			return weirtest.NewPolicy(t, st, weir.Policy{Name: name, Rules: rules})
		}
		tr := &weirhttp.Transport{Base: f}
		if apart {
			tr.Limiter, tr.Pauses = policy("pace", pace), policy("pauses", pauseRule)
			if i == 1 {
				tr.Pauses = weirtest.Wrap(t, tr.Pauses, weirtest.Around(func(next weir.Decider) deciderFunc {
					return func(ctx context.Context, r weir.Request, _ []weir.Result) (weir.Result, error) {
						return next.Decide(ctx, r, nil)
					}
				}))
			}
		} else {
			tr.Limiter = policy("both", pauseRule, pace)
			tr.Pauses = tr.Limiter
		}
		f.transports[i] = tr
	}
	return f
}

// asks returns an answer that asks for a pause at request n, and no other.
func asks(n int, seconds string) func(int, *http.Request) (*http.Response, error) {
	return func(i int, _ *http.Request) (*http.Response, error) {
		if i == n {
			return response(429, nil, "Retry-After", seconds), nil
		}
		return response(200, nil), nil
	}
}

// What a server asks of one process, all processes obey: those that come later, and those
// that wait for their turn. They then go at their pace.
func TestSharedPause(t *testing.T) {
	for _, apart := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, memory.New(nil), apart, weir.Rule{Name: "pace", Algorithm: algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: 100}})
			f.answer = asks(0, "10")
			var wg sync.WaitGroup
			for i := range 6 {
				wg.Go(func() {
					if err := send(t.Context(), t, f.transports[i%2], "http://a.test"); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
			}
			wg.Wait()
			want := []time.Duration{0}
			for i := range 5 {
				want = append(want, time.Duration(10+i)*time.Second)
			}
			if slices.Sort(f.times); !slices.Equal(f.times, want) {
				t.Errorf("pauses apart: %v: requests left at %v, want %v", apart, f.times, want)
			}
		})
	}
}

// A request that need not wait makes one call of the store. Keys do not share pauses.
func TestSharedPauseCalls(t *testing.T) {
	for apart, want := range map[bool]int64{false: 1, true: 2} {
		synctest.Test(t, func(t *testing.T) {
			st := weirtest.NewFaulty()
			f := newFleet(t, st, apart, fastRule)
			f.answer = asks(1, "10")
			for n := range int64(2) {
				if err := send(t.Context(), t, f.transports[0], "http://a.test"); err != nil {
					t.Fatal(err)
				}
				if got := st.Asked.Load(); got != want+n*(want+1) { // the second request begins a pause
					t.Errorf("apart %v: %d calls of the store", apart, got)
				}
			}
			if err := send(t.Context(), t, f.transports[1], "http://b.test"); err != nil || time.Since(f.start) > 0 {
				t.Errorf("another host: %v after %v", err, time.Since(f.start))
			}
		})
	}
}

// A request that may not wait so long gets an ErrPaused at once, in every process. It wraps
// the denial if the limiter has the pause.
func TestSharedPauseTooLong(t *testing.T) {
	for _, apart := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, memory.New(nil), apart, fastRule)
			f.answer = asks(0, "10")
			if err := send(t.Context(), t, f.transports[0], "http://a.test"); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			err := send(ctx, t, f.transports[1], "http://a.test")
			var denied *weir.DeniedError
			if !errors.Is(err, weirhttp.ErrPaused) || !errors.Is(err, weir.ErrDenied) || errors.As(err, &denied) == apart || time.Since(f.start) > 0 {
				t.Errorf("apart %v: got %v after %v, want an ErrPaused at once", apart, err, time.Since(f.start))
			}
		})
	}
}

// A limit as high as a pause's pauses nobody: neither its denial of a turn, nor its
// answer to the peek at the pauses.
func TestSharedPauseHighLimit(t *testing.T) {
	for _, apart := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			high := weir.Rule{Name: "high", Algorithm: weirtest.Windowless(weirtest.PerSecond, algorithm.MaxTokens)}
			lim := weirtest.NewPolicy(t, memory.New(nil), weirtest.Rules(high, pauseRule))
			for _, cost := range []int64{5, 5, 5} {
				weirtest.Decide(t, lim, weir.Request{Key: weir.KeyOf("all"), Cost: cost, MaxWait: weir.Never})
			}
			f := &service{start: time.Now()}
			tr := &weirhttp.Transport{Base: f, Limiter: lim, Pauses: lim, Request: func(*http.Request) (weir.Request, error) {
				return weir.Request{Key: weir.KeyOf("all"), MaxWait: 6 * time.Second}, nil
			}}
			if apart {
				tr.Limiter = weirtest.NewPolicy(t, memory.New(nil), weirtest.Rules(fastRule))
			}
			err := send(t.Context(), t, tr, "http://a.test")
			if errors.Is(err, weirhttp.ErrPaused) || errors.Is(err, weir.ErrDenied) == apart || time.Since(f.start) > 0 {
				t.Errorf("apart %v: got %v after %v, want a denial by the limit at once, or no wait", apart, err, time.Since(f.start))
			}
		})
	}
}

// During an outage, each process keeps its own pause, and the response is returned.
func TestSharedPauseOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		f := newFleet(t, st, true, fastRule)
		local := weirtest.NewPolicy(t, memory.New(nil), weir.Policy{Name: "pace", Rules: []weir.Rule{fastRule}})
		for _, tr := range f.transports {
			tr.Limiter = local
		}
		f.answer = asks(0, "10")
		st.Set(weirtest.Down)
		for _, i := range []int{0, 1, 0} {
			if err := send(t.Context(), t, f.transports[i], "http://a.test"); err != nil {
				t.Fatal(err)
			}
		}
		if want := []time.Duration{0, 0, 10 * time.Second}; !slices.Equal(f.times, want) {
			t.Errorf("requests left at %v, want %v", f.times, want)
		}
	})
}

// An operator resumes a pause for the processes that have not been asked for it.
func TestSharedPauseResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memory.New(nil), false, fastRule)
		f.answer = asks(0, "10")
		_ = send(t.Context(), t, f.transports[0], "http://a.test")
		if ok, err := f.transports[1].Pauses.Resume(t.Context(), weirhttp.PauseID, "a.test"); !ok || err != nil {
			t.Fatal(ok, err)
		}
		for _, i := range []int{1, 0} {
			_ = send(t.Context(), t, f.transports[i], "http://a.test")
		}
		if want := []time.Duration{0, 0, 10 * time.Second}; !slices.Equal(f.times, want) {
			t.Errorf("requests left at %v, want %v", f.times, want)
		}
	})
}

// Jitter adds up to a tenth of the wait, and never exceeds what a request may wait.
func TestJitter(t *testing.T) {
	for _, limit := range []time.Duration{time.Hour, 105 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := &service{start: time.Now(), answer: asks(0, "100")}
			tr := &weirhttp.Transport{Limiter: newLimiter(t, fastRule.Algorithm), Base: s, Jitter: true}
			_ = send(t.Context(), t, tr, "http://a.test")
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					if err := send(ctx, t, tr, "http://a.test"); err != nil {
						t.Errorf("limit %v: %v", limit, err)
					}
				})
			}
			wg.Wait()
			slices.Sort(s.times)
			first, last := s.times[1], s.times[50]
			if first < 100*time.Second || last > min(110*time.Second, limit) || last-first < time.Second {
				t.Errorf("limit %v: requests left from %v to %v, want them spread from 100 s to 110 s", limit, first, last)
			}
		})
	}
}

// A limiter that cannot pause is an error before the first request is sent.
func TestSharedPauseMisuse(t *testing.T) {
	s := new(service)
	tr := &weirhttp.Transport{Limiter: newLimiter(t, fastRule.Algorithm), Base: s}
	tr.Pauses = tr.Limiter
	err := send(t.Context(), t, tr, "http://a.test")
	weirtest.WantError(t, err, weir.ErrUnsupported, "weirhttp", "Transport.Pauses: weir: Pause: no rule pauses keys")
	if len(s.times) > 0 {
		t.Error("the request was sent")
	}
}

// A pause that begins while a request waits for its lease holds the request too.
func TestSharedPauseLease(t *testing.T) {
	for _, paced := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, memory.New(nil), true, fastRule)
			tr := f.transports[0]
			if !paced {
				tr.Limiter = nil
			}
			tr.Leases = newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: time.Hour})
			held, err := tr.Leases.TryAcquire(t.Context(), weir.Request{Key: weir.KeyOf("a.test")})
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := send(t.Context(), t, tr, "http://a.test"); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
			if _, err := f.transports[1].Pauses.Pause(t.Context(), time.Minute, "a.test"); err != nil {
				t.Fatal(err)
			}
			if ok, err := held.Release(t.Context()); !ok || err != nil {
				t.Fatal(ok, err)
			}
			wg.Wait()
			if len(f.times) != 1 || f.times[0] != time.Minute {
				t.Errorf("with a pace %v: requests left at %v, want one at the end of the pause", paced, f.times)
			}
		})
	}
}

// If the context ends while Pauses is asked about a turn, the turn is refunded, unless
// another request with its ID can use it.
func TestSharedPauseGivesUp(t *testing.T) {
	for _, late := range []bool{false, true} { // after the wait, and before it because of a lease
		for _, id := range []string{"", "mine"} {
			synctest.Test(t, func(t *testing.T) {
				pace := newLimiter(t, algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 1})
				weirtest.Allow(t, pace, weir.Request{Key: weir.KeyOf("a.test")})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				n := -1 // the first Peek comes before the turn
				st := &weirtest.Hooked{Store: memory.New(nil), Before: func(context.Context, *store.Script) error {
					if n++; n == 1 {
						cancel()
						return context.Canceled
					}
					return nil
				}}
				tr := &weirhttp.Transport{
					Limiter: pace,
					Pauses:  weirtest.NewPolicy(t, st, weir.Policy{Name: "pauses", Rules: []weir.Rule{pauseRule}}),
					Base:    &service{},
					Request: func(*http.Request) (weir.Request, error) {
						return weir.Request{Key: weir.KeyOf("a.test"), ID: id}, nil
					},
				}
				if late {
					tr.Leases = newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: time.Hour})
				}
				start := time.Now()
				if err := send(ctx, t, tr, "http://a.test"); !errors.Is(err, context.Canceled) {
					t.Errorf("got %v, want the error of the context", err)
				}
				// Without the turn, one token is there after the first minute.
				if waited := time.Since(start); late != (waited == 0) || !late && waited != time.Minute {
					t.Errorf("late %v: the request waited %v", late, waited)
				}
				time.Sleep(time.Until(start.Add(time.Minute)))
				if res := weirtest.Left(t, pace, "a.test"); res.Allowed != (id == "") {
					t.Errorf("late %v, ID %q: got %+v", late, id, res)
				}
			})
		}
	}
}

// After a shared pause, the requests of all processes leave at the pace of the other
// rule: no second has more than its burst allows, wherever the pause is.
func TestSharedPausePace(t *testing.T) {
	for pauses, calls := range map[string]int64{"in the limiter": 3, "apart": 4, "not shared": 2} { // of each request
		synctest.Test(t, func(t *testing.T) {
			st := weirtest.NewFaulty()
			f := newFleet(t, st, pauses == "apart", weir.Rule{Name: "pace", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 4}})
			if _, err := f.transports[0].Pauses.Pause(t.Context(), time.Minute, "a.test"); err != nil {
				t.Fatal(err)
			}
			if pauses == "not shared" { // only the rule of the limiter
				f.transports[0].Pauses, f.transports[1].Pauses = nil, nil
			}
			st.Asked.Store(0)
			var wg sync.WaitGroup
			for i := range 300 {
				wg.Go(func() {
					if err := send(t.Context(), t, f.transports[i%2], "http://a.test"); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			slices.Sort(f.times)
			most := 0
			for i, first := range f.times {
				end, _ := slices.BinarySearch(f.times, first+time.Second+1)
				most = max(most, end-i)
			}
			if len(f.times) != 300 || f.times[0] != time.Minute || most > 14 {
				t.Errorf("pauses %s: %d requests left from %v, %d in one second, want at most 14", pauses, len(f.times), f.times[0], most)
			}
			if n := st.Asked.Load(); n > 300*calls {
				t.Errorf("pauses %s: %d calls of the store, want at most %d of each request", pauses, n, calls)
			}
		})
	}
}

// If a rule counts a unit, requests wait for the end of a pause too. A request without
// Costs is not sent.
func TestTransportCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, f := memory.New(nil), &service{start: time.Now()}
		lim := weirtest.NewPolicy(t, st, counted)
		for i, tt := range []struct {
			request weirhttp.RequestFunc
			pauses  *weir.Limiter
			sent    time.Duration
			want    error
		}{
			{weirhttp.WithCosts(all, ofBytes(10, nil)), lim, 0, nil},
			{weirhttp.WithCosts(all, ofBytes(1, nil)), lim, 6 * time.Minute, nil},
			{weirhttp.WithCosts(all, ofBytes(1, nil)), weirtest.Only(t, lim, "pause"), 12 * time.Minute, nil},
			{all, lim, 0, weir.ErrInvalidCost},
			{nil, lim, 0, weir.ErrInvalidCost},
		} {
			if i == 1 {
				if _, err := lim.Pause(t.Context(), 5*time.Minute, "all"); err != nil {
					t.Fatal(err)
				}
			}
			err := send(t.Context(), t, &weirhttp.Transport{Limiter: lim, Pauses: tt.pauses, Request: tt.request, Base: f}, "http://a.test")
			if !errors.Is(err, tt.want) || err != nil && !strings.HasPrefix(err.Error(), "weirhttp: the request has no Costs: use WithCosts: ") {
				t.Errorf("request %d: got %v, want %v", i, err, tt.want)
			}
			if n := len(f.times); err == nil && f.times[n-1].Round(time.Millisecond) != tt.sent {
				t.Errorf("request %d was sent after %v, want %v", i, f.times[n-1], tt.sent)
			}
		}
	})
}

// A request draws its jitter once: if the pause is extended while it sleeps, the second
// sleep is longer by the same part as the first.
func TestJitterOnce(t *testing.T) {
	for _, apart := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			var mu sync.Mutex
			var asked []float64 // in seconds
			st := &weirtest.Hooked{Store: memory.New(nil), Before: func(context.Context, *store.Script) error {
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, time.Since(start).Seconds())
				return nil
			}}
			f := newFleet(t, st, apart, fastRule)
			tr := f.transports[0]
			tr.Jitter = true
			pause := func() {
				if _, err := tr.Pauses.Pause(t.Context(), 1000*time.Second, "a.test"); err != nil {
					t.Fatal(err)
				}
			}
			pause()
			done := make(chan error)
			go func() { done <- send(t.Context(), t, tr, "http://a.test") }()
			time.Sleep(999 * time.Second)
			pause() // until 1999 s
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			first := asked[3] // after two pauses and the first question
			second := f.times[0].Seconds() - first
			if part := first / 1000; part < 1 || part >= 1.1 || math.Abs(second/(1999-first)-part) > 1e-6 {
				t.Errorf("apart %v: asked at %v, and left after %v: want both sleeps longer by the same part", apart, asked, f.times[0])
			}
		})
	}
}
