package weirhttp_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirhttp"
)

var (
	pauseRule = weir.Rule{Name: "pause", Algorithm: algorithm.Pause{}}
	fastRule  = weir.Rule{Name: "pace", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1000), Burst: 1000}}
)

// asks returns an answer that asks for a pause at request n, and no other.
func asks(n int, seconds string) func(int, *http.Request) (*http.Response, error) {
	return func(i int, _ *http.Request) (*http.Response, error) {
		if i == n {
			return response(429, nil, "Retry-After", seconds), nil
		}
		return response(200, nil), nil
	}
}

// A shorter pause does not end a longer one.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{start: time.Now(), answer: func(n int, _ *http.Request) (*http.Response, error) {
			time.Sleep(time.Duration(n+1) * 100 * time.Millisecond)
			return response(429, nil, "Retry-After", []string{"10", "1", "0"}[n]), nil
		}}
		rt := &weirhttp.Transport{Limiter: newLimiter(t, fastRule.Algorithm), Base: s}
		done := make(chan error)
		for range 2 {
			go func() { done <- send(t.Context(), t, rt, "http://a.test") }()
			synctest.Wait()
		}
		err := errors.Join(<-done, <-done, send(t.Context(), t, rt, "http://a.test"))
		if want := []time.Duration{0, 0, 10*time.Second + 100*time.Millisecond}; err != nil || !slices.Equal(s.times, want) {
			t.Errorf("requests left at %v, %v, want %v", s.times, err, want)
		}
	})
}

// Pauses that have ended are removed, so that many hosts do not fill the memory. What is
// left still holds.
func TestManyPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{start: time.Now(), answer: func(int, *http.Request) (*http.Response, error) {
			return response(429, nil, "Retry-After", "1"), nil
		}}
		rt := &weirhttp.Transport{Limiter: newLimiter(t, fastRule.Algorithm), Base: s}
		for round := range 3 {
			for i := range 2000 {
				if err := send(t.Context(), t, rt, fmt.Sprintf("http://%d-%d.test", round, i)); err != nil {
					t.Fatal(err)
				}
			}
			at := time.Since(s.start)
			if err := send(t.Context(), t, rt, fmt.Sprintf("http://%d-0.test", round)); err != nil || time.Since(s.start)-at != time.Second {
				t.Errorf("round %d: the pause of the first host was %v, %v, want 1s", round, time.Since(s.start)-at, err)
			}
			time.Sleep(time.Second)
			if n := weirhttp.Pauses(rt); n > 4100 {
				t.Errorf("round %d: there are %d pauses, want the ended ones to be removed", round, n)
			}
		}
	})
}

// A fleet has two processes that call one service. Each makes its own limiters.
type fleet struct {
	*service
	transports [2]*weirhttp.Transport
}

// The places of a pause: in one Transport, in the limiter, and in a limiter of pauses.
const (
	own    = "own"
	shared = "shared"
	apart  = "apart"
)

// newFleet returns a fleet whose limiters have the rules, over st. If the pauses are apart, a wrapper
// of the second process leaves the results of the rules out. If they are own, there is one process.
func newFleet(t *testing.T, st store.Store, pauses string, pace ...weir.Rule) *fleet {
	t.Helper()
	f := &fleet{service: &service{start: time.Now()}}
	for i := range f.transports {
		policy := func(name string, rules ...weir.Rule) *weir.Limiter {
			return weirtest.NewPolicy(t, st, weir.Policy{Name: name, Rules: rules})
		}
		tr := &weirhttp.Transport{Base: f}
		switch pauses {
		case own:
			tr.Limiter = policy("pace", pace...)
		case shared:
			tr.Limiter = policy("both", append(pace[:len(pace):len(pace)], pauseRule)...)
			tr.Pauses = tr.Limiter
		case apart:
			tr.Limiter, tr.Pauses = policy("pace", pace...), policy("pauses", pauseRule)
			if i == 1 {
				tr.Pauses = weirtest.Wrap(t, tr.Pauses, weirtest.Around(func(next weir.Decider) deciderFunc {
					return func(ctx context.Context, r weir.Request, _ []weir.Result) (weir.Result, error) {
						return next.Decide(ctx, r, nil)
					}
				}))
			}
		}
		f.transports[i] = tr
	}
	if pauses == own {
		f.transports[1] = f.transports[0]
	}
	return f
}

// What a server asks of one process, all obey: requests that come later, and those that wait for their
// turn when the pause begins. They then leave at the limiter's pace. Each of them consumes one token,
// and holds no lease during the pause that it finds.
func TestPauseOfWaiting(t *testing.T) {
	for _, pauses := range []string{own, shared, apart} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, memory.New(nil), pauses,
				weir.Rule{Name: "pace", Algorithm: algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: 10}},
				weir.Rule{Name: "hour", Algorithm: algorithm.GCRA{Rate: algorithm.PerHour(10), Burst: 10}})
			f.answer = func(n int, _ *http.Request) (*http.Response, error) {
				if n == 0 {
					time.Sleep(500 * time.Millisecond) // the others wait for their turn
				}
				return asks(0, "10")(n, nil)
			}
			leases := newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: time.Minute})
			done := make(chan error)
			start := func(i int) {
				go func() { done <- send(t.Context(), t, f.transports[i%2], "http://a.test") }()
				synctest.Wait()
			}
			for i := range 4 {
				start(i)
			}
			time.Sleep(time.Second)
			f.transports[0].Leases = leases
			start(0)                                                                           // finds the pause
			if n := weirtest.Left(t, leases, "a.test").Remaining; n != 1 && pauses != shared { // there, its turn meets the pause
				t.Errorf("pauses %s: a request that waits for the end of a pause holds a lease", pauses)
			}
			for range 5 {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			slices.Sort(f.times)
			for i := 1; i < len(f.times); i++ {
				if f.times[i]-f.times[i-1] < time.Second || f.times[i] < 10*time.Second+500*time.Millisecond {
					t.Errorf("pauses %s: requests left at %v: want none in the pause of 10.5 s, and then at most one each second", pauses, f.times)
					break
				}
			}
			if len(f.times) != 5 || f.times[4] > 18*time.Second {
				t.Errorf("pauses %s: requests left at %v, want 5 of them within 18 s", pauses, f.times)
			}
			if res := weirtest.Left(t, weirtest.Only(t, f.transports[0].Limiter, "hour"), "a.test"); res.Remaining != 5 {
				t.Errorf("pauses %s: got %+v, want 5 tokens left of 10 after 5 requests", pauses, res)
			}
		})
	}
}

// When the second and the third request leave, after the first one began a pause. The second is of
// another process. A request that may not wait so long gets an ErrPaused at once, and consumes nothing.
func TestPauseEnds(t *testing.T) {
	const s = time.Second
	for name, tt := range map[string]struct {
		pauses           string
		maxWait, timeout time.Duration // of the second request
		after            func(*testing.T, *fleet, *weirtest.Faulty)
		second, third    time.Duration
		want             error // of the second request
	}{
		"own":                   {own, 0, time.Hour, nil, 10 * s, 10 * s, nil},
		"shared":                {shared, 0, time.Hour, nil, 10 * s, 10 * s, nil},
		"apart":                 {apart, 0, time.Hour, nil, 10 * s, 10 * s, nil},
		"own, long enough":      {own, 10*s + time.Microsecond, 10*s + time.Millisecond, nil, 10 * s, 10 * s, nil},
		"own, MaxWait":          {own, 10 * s, time.Hour, nil, 0, 10 * s, weirhttp.ErrPaused},
		"own, the deadline":     {own, 0, 10 * s, nil, 0, 10 * s, weirhttp.ErrPaused},
		"shared, MaxWait":       {shared, 10 * s, time.Hour, nil, 0, 10 * s, weirhttp.ErrPaused},
		"shared, the deadline":  {shared, 0, 10 * s, nil, 0, 10 * s, weirhttp.ErrPaused},
		"apart, MaxWait":        {apart, 10 * s, time.Hour, nil, 0, 10 * s, weirhttp.ErrPaused},
		"shared, but resumed":   {shared, 0, time.Hour, resume, 0, 10 * s, nil},
		"apart, but resumed":    {apart, 0, time.Hour, resume, 0, 10 * s, nil},
		"apart, a limit denies": {apart, 0, time.Hour, full, 0, 10 * s, nil},
		"apart, and an outage":  {apart, 0, time.Hour, down, 0, 10 * s, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			st := weirtest.NewFaulty()
			f := newFleet(t, st, tt.pauses, weir.Rule{Name: "pace", Algorithm: algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 3}})
			f.answer = asks(0, "10")
			if err := send(t.Context(), t, f.transports[0], "http://a.test"); err != nil {
				t.Fatal(err)
			}
			if n, want := st.Asked.Load(), map[string]int64{own: 1, shared: 2, apart: 3}[tt.pauses]; n != want { // for the request, and for the pause
				t.Errorf("%s: %d calls of the store, want %d", name, n, want)
			}
			if tt.after != nil {
				tt.after(t, f, st)
			}
			other := f.transports[1]
			other.Request = asking(weir.Request{Key: weir.KeyOf("a.test"), MaxWait: tt.maxWait})
			ctx, cancel := context.WithTimeout(t.Context(), tt.timeout)
			defer cancel()
			err := send(ctx, t, other, "http://a.test")
			var denied *weir.DeniedError
			switch {
			case !errors.Is(err, tt.want), time.Since(f.start) != tt.second,
				errors.Is(err, weir.ErrDenied) != (err != nil), errors.As(err, &denied) != (err != nil && tt.pauses == shared):
				t.Errorf("%s: got %v after %v, want %v after %v", name, err, time.Since(f.start), tt.want, tt.second)
			}
			other.Request = nil
			if err := send(t.Context(), t, f.transports[0], "http://a.test"); err != nil || time.Since(f.start).Round(s) != tt.third {
				t.Errorf("%s: the third request left after %v, %v, want %v", name, time.Since(f.start), err, tt.third)
			}
			if left := weirtest.Left(t, f.transports[0].Limiter, "a.test").Remaining; tt.after == nil && (left == 0) != (tt.want == nil) {
				t.Errorf("%s: %d tokens are left of 3", name, left)
			}
		})
	}
}

// An operator resumes a pause for the processes that have not been asked for it.
func resume(t *testing.T, f *fleet, _ *weirtest.Faulty) {
	if ok, err := f.transports[1].Pauses.Resume(t.Context(), weirhttp.PauseID, "a.test"); !ok || err != nil {
		t.Fatal(ok, err)
	}
}

// During an outage, each process keeps its own pause. The pace is kept elsewhere.
func down(t *testing.T, f *fleet, st *weirtest.Faulty) {
	for _, tr := range f.transports {
		tr.Limiter = newLimiter(t, fastRule.Algorithm)
	}
	st.Set(weirtest.Down)
}

// A limit of Pauses that denies is no pause.
func full(t *testing.T, f *fleet, _ *weirtest.Faulty) {
	window := weir.Rule{Name: "full", Algorithm: algorithm.FixedWindow{Limit: 1, Window: time.Hour}}
	f.transports[1].Pauses = weirtest.NewPolicy(t, memory.New(nil), weirtest.Rules(window, pauseRule))
	weirtest.Allow(t, f.transports[1].Pauses, weir.Request{Key: weir.KeyOf("a.test")})
}

// Jitter adds up to a tenth of the wait, and never exceeds what a request may wait. A request draws it
// once: if the pause is extended while it sleeps, the second sleep is longer by the same part.
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
		part, second := first/1000, f.times[0].Seconds()-first
		if part < 1 || part >= 1.1 || math.Abs(second/(1999-first)-part) > 1e-6 {
			t.Errorf("asked at %v, and left after %v: want both sleeps longer by the same part", asked, f.times[0])
		}
	})
}

// A pause that begins while a request waits for its lease holds the request too.
func TestPauseDuringLease(t *testing.T) {
	for _, paced := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, memory.New(nil), apart, fastRule)
			tr := f.transports[0]
			if !paced {
				tr.Limiter = nil
			}
			tr.Leases = newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: time.Hour})
			held, err := tr.Leases.TryAcquire(t.Context(), weir.Request{Key: weir.KeyOf("a.test")})
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error)
			go func() { done <- send(t.Context(), t, tr, "http://a.test") }()
			synctest.Wait()
			_, err = f.transports[1].Pauses.Pause(t.Context(), time.Minute, "a.test")
			_, err2 := held.Release(t.Context())
			if err := errors.Join(err, err2, <-done); err != nil || len(f.times) != 1 || f.times[0] != time.Minute {
				t.Errorf("with a pace %v: requests left at %v, %v, want one at the end of the pause", paced, f.times, err)
			}
		})
	}
}

// If the context ends while Pauses is asked about a turn, the turn is refunded, unless
// another request with its ID can use it.
func TestPauseGivesUp(t *testing.T) {
	for _, late := range []bool{false, true} { // after the wait, and before it because of a lease
		for _, id := range []string{"", "mine"} {
			synctest.Test(t, func(t *testing.T) {
				pace := newLimiter(t, algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 1})
				weirtest.Allow(t, pace, weir.Request{Key: weir.KeyOf("all")})
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
				tr := &weirhttp.Transport{Limiter: pace, Pauses: weirtest.NewPolicy(t, st, weirtest.Rules(pauseRule)), Base: &service{}, Request: asking(weir.Request{ID: id})}
				if late {
					tr.Leases = newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: time.Hour})
				}
				start := time.Now()
				err := send(ctx, t, tr, "http://a.test")
				// Without the turn, one token is there after the first minute.
				if waited := time.Since(start); !errors.Is(err, context.Canceled) || late != (waited == 0) || !late && waited != time.Minute {
					t.Errorf("late %v: got %v, and the request waited %v", late, err, waited)
				}
				time.Sleep(time.Until(start.Add(time.Minute)))
				if n := remaining(t, pace); (n == 1) != (id == "") {
					t.Errorf("late %v, ID %q: got %d tokens", late, id, n)
				}
			})
		}
	}
}
