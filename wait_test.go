package weir_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/denycache"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store/memory"
)

// leaves calls l.Wait n times at once for key, and returns when the calls returned nil, in order.
func leaves(t *testing.T, l *weir.Limiter, n int, key ...string) []time.Duration {
	t.Helper()
	var mu sync.Mutex
	var left []time.Duration
	var wg sync.WaitGroup
	start := time.Now()
	for range n {
		wg.Go(func() {
			res, err := l.Wait(t.Context(), key...)
			mu.Lock()
			defer mu.Unlock()
			left = append(left, time.Since(start))
			if err != nil || !res.Allowed || res.Granted != 1 {
				t.Errorf("got %+v, %v", res, err)
			}
		})
	}
	wg.Wait()
	slices.Sort(left)
	return left
}

// TestWait has how long WaitFor waits for a token that comes each hour, from a bucket
// of two. Reserve needs MaxWait or a deadline. If there are both, the earlier one applies. If they
// fail, nothing stays consumed.
func TestWait(t *testing.T) {
	t.Parallel()
	const h, µs = time.Hour, time.Microsecond
	denied, late := weir.ErrDenied, context.DeadlineExceeded
	unbounded := errors.New("")
	for _, tt := range []struct {
		name    string
		maxWait time.Duration
		within  time.Duration // until the deadline; 0 means no deadline
		before  int64         // tokens consumed before
		cost    int64
		want    error
		says    string
		delay   time.Duration
	}{
		{"there", weir.Never, 0, 0, 2, nil, "", 0},
		{"any wait", weir.Never, 0, 5, 1, nil, "", 4 * h},
		{"a wait", h, 0, 2, 1, nil, "", h},
		{"a wait that is too short", h - µs, 0, 2, 1, denied, `denied by rule "gcra": 0 of 2 tokens remain: retry after 1µs`, 0},
		{"a deadline", 0, h, 2, 1, nil, "", h},
		{"a wait within a deadline", h, 9 * h, 3, 1, denied, "", 0},
		{"a deadline within a wait", 9 * h, h, 3, 1, denied, "", 0},
		{"never", weir.Never, 0, 0, 3, denied, `denied by rule "gcra": its limit is 2: the request can never be allowed`, 0},
		{"no bound", 0, 0, 0, 1, unbounded, "Request.MaxWait is 0 and the context has no deadline: set MaxWait, for example to weir.Never", 0},
		{"a negative wait", -1, 0, 0, 1, unbounded, "Request.MaxWait is -1ns", 0},
		{"a deadline that has passed", h, -1, 0, 1, late, "", 0},
		{"a deadline that is as good as passed", h, 999, 0, 1, late, "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				st := memory.New(nil)
				l := weirtest.New(t, st, algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 2})
				for range tt.before {
					weirtest.Allow(t, l, weir.Request{Key: keyU.Key, MaxWait: weir.Never})
				}
				before, ctx, start := dump(t, st), t.Context(), time.Now()
				if tt.within != 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.within)
					defer cancel()
				}
				res, err := l.WaitFor(ctx, weir.Request{Key: keyU.Key, Cost: tt.cost, MaxWait: tt.maxWait})
				if took := time.Since(start); took != tt.delay {
					t.Errorf("it took %v, want %v", took, tt.delay)
				}
				if tt.want == nil {
					if err != nil || !res.Allowed || res.Delay != tt.delay {
						t.Errorf("got %+v, %v, want a Delay of %v", res, err, tt.delay)
					}
					return
				}
				if err == nil || tt.want != unbounded && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) || res.Allowed || (tt.want == denied) != (res.RetryAfter > 0) {
					t.Errorf("got %+v, %v, want %v %q", res, err, tt.want, tt.says)
				}
				if after := dump(t, st); !slices.Equal(before, after) {
					t.Errorf("changed %q to %q", before, after)
				}
			})
		})
	}
}

// Wait sleeps for the rest of Delay. If its context ends before, it refunds the tokens,
// unless another request can use them. After a refund, no Wait goes ahead.
func TestReservationWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := weirtest.New(t, memory.New(nil), algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 1})
		start := time.Now()
		reserve := func(id string) *weir.Reservation {
			t.Helper()
			r, err := l.Reserve(t.Context(), weir.Request{Key: keyU.Key, MaxWait: weir.Never, ID: id})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		wait := func(what string, r *weir.Reservation, within time.Duration, want error, at time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			if err := r.Wait(ctx); !errors.Is(err, want) || want == nil && err != nil || time.Since(start) != at {
				t.Errorf("%s: got %v after %v, want %v after %v", what, err, time.Since(start), want, at)
			}
		}
		wait("a token that is available", reserve(""), time.Hour, nil, 0)

		r := reserve("")
		time.Sleep(20 * time.Second) // other work
		wait("after other work", r, time.Hour, nil, time.Minute)
		wait("again", r, time.Hour, nil, time.Minute)
		wait("again, too late", r, -1, nil, time.Minute) // which refunds nothing
		if res := weirtest.Left(t, l, "u"); res.RetryAfter != time.Minute {
			t.Errorf("after a Wait went ahead: left %+v, want the next token in a minute", res)
		}

		r = reserve("")
		wait("too long", r, time.Second, context.DeadlineExceeded, time.Minute+time.Second)
		if res := weirtest.Left(t, l, "u"); res.RetryAfter != 59*time.Second {
			t.Errorf("after a wait that was too long: left %+v, want the next token in 59s", res)
		}
		wantError(t, r.Wait(t.Context()), nil, "was cancelled")
		if gave, err := r.Cancel(t.Context()); gave || err != nil {
			t.Errorf("Cancel after the refund: got %v, %v, want false", gave, err)
		}

		r = reserve("x")
		wait("too long, with an ID", r, time.Second, context.DeadlineExceeded, time.Minute+2*time.Second)
		wait("again, with an ID", r, time.Hour, nil, 2*time.Minute)

		r = reserve("")
		time.AfterFunc(time.Second, func() {
			for _, want := range []bool{true, false} {
				if gave, err := r.Cancel(t.Context()); gave != want || err != nil {
					t.Errorf("Cancel during Wait: got %v, %v, want %v", gave, err, want)
				}
			}
			if next := reserve(""); next.Delay != 59*time.Second {
				t.Errorf("got %+v, want it to go in place of the cancelled one", next)
			}
		})
		wantError(t, r.Wait(t.Context()), nil, "was cancelled")

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		before := weirtest.Left(t, l, "u").ResetAfter
		if res, err := l.Wait(ctx, "u"); err != context.Canceled || res != (weir.Result{}) || weirtest.Left(t, l, "u").ResetAfter != before-time.Second {
			t.Errorf("Wait until ctx ends: got %+v, %v", res, err)
		}
	})
}

// If a Wait goes ahead, no other Wait refunds the tokens, even if its context ends at that moment.
// If a Wait refunds them, no other goes ahead.
func TestReservationManyWaits(t *testing.T) {
	t.Parallel()
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			l := weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 1})
			weirtest.Allow(t, l, keyU)
			r, err := l.Reserve(t.Context(), weir.Request{Key: keyU.Key, MaxWait: weir.Never})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), r.Delay)
			defer cancel()
			waits := make(chan bool)
			for range 4 {
				go func() { waits <- r.Wait(ctx) == nil }()
			}
			gone := false
			for range 4 {
				gone = <-waits || gone
			}
			if refunded := weirtest.Left(t, l, "u").ResetAfter == time.Minute; refunded == gone {
				t.Fatalf("a Wait went ahead: %t, and the tokens were refunded: %t", gone, refunded)
			}
		})
	}
}

// pause pauses key, and returns the ID of the pause.
func pause(t testing.TB, l *weir.Limiter, d time.Duration, key ...string) string {
	t.Helper()
	id, err := l.Pause(t.Context(), d, key...)
	if err != nil || id == "" {
		t.Fatalf("Pause of %q for %v: got %q, %v", key, d, id, err)
	}
	return id
}

// resume ends a pause, and fails the test unless it was running as want says.
func resume(t testing.TB, l *weir.Limiter, want bool, id string, key ...string) {
	t.Helper()
	if ok, err := l.Resume(t.Context(), id, key...); ok != want || err != nil {
		t.Errorf("Resume of %q: got %v, %v, want %v", key, ok, err, want)
	}
}

// TestPause has what requests answer during a pause, and what goes on. Package conformance has the
// checks of the algorithm.
func TestPause(t *testing.T) {
	t.Parallel()
	begin := func(d time.Duration, id string) weir.Request { return weir.Request{Op: weir.Pause, For: d, ID: id} }
	end := func(id string) weir.Request { return do(weir.Resume, 0, id) }
	of := func(user string, r weir.Request) weir.Request { r.Key = weir.KeyOf("acme", user); return r }
	closed := func(left string) []step {
		return []step{
			{0, 0, begin(10*second, "a"), "true", left},
			{second, 0, begin(2*second, "b"), "true", left}, // a later, shorter one
			{0, 0, ask(1, ""), "denied for 9s: pause 0 of 9007199254740991, full in 9s", left},
			{0, 0, do(weir.TakeUpTo, 1, ""), "denied for 9s", left},
			{0, 0, weir.Request{MaxWait: time.Hour}, "denied for 9s", left}, // nobody reserves
			{0, 0, end("b"), "true", left},
			{0, 0, end("b"), "false", left},
			{9*second - time.Microsecond, 0, do(weir.Peek, 1, ""), "denied for 1µs", left},
			{time.Microsecond, 0, ask(2, ""), "2: rate 3 of 5, full in 2s", ""},
			{0, 0, begin(3*second, "mine"), "true", ""},
			{0, 0, begin(second, "mine"), "true", ""},
			{0, 0, begin(5*second+1, "mine"), "true", ""}, // rounded up
			{0, 0, ask(1, ""), "denied for 5.000001s", ""},
			{0, 0, end("mine"), "true", ""},
			{0, 0, ask(3, ""), "3: rate 0 of 5, full in 5s", ""},
		}
	}
	tenant := weir.Rule{Name: "tenant", By: []string{"tenant"}, Algorithm: algorithm.Pause{}}
	play(t, []trace{
		{name: "before a rule", policies: rules(pauseRule, rateRule), steps: closed("closed 5")},
		{name: "after a rule", policies: rules(rateRule, pauseRule, shadow(window("shadow", 9))), steps: closed("5 closed 9")[:2]},
		{name: "after two rules", policies: rules(rateRule, pauseRule), steps: closed("5 closed")},
		{name: "what goes on", policies: rules(pauseRule, minute("m", 60)), steps: []step{
			{0, 0, ask(20, "1"), "20", "open 40"},
			{0, 0, ask(30, "2"), "30", "open 10"},
			{0, 0, begin(time.Hour, "p"), "true", "closed 10"},
			{0, 0, settle(10, "2"), "found true, cost 10", "closed 30"},
			{0, 0, do(weir.Refund, 0, "1"), "found true, cost 0", "closed 50"},
			{0, 0, do(weir.Force, 90, ""), "90: m 0 of 60, full in 1m40s", "closed 0"},
			{0, 0, weir.Request{Op: weir.Reset}, "true", "open 60"},
		}},
		{name: "by tenant", policies: []weir.Policy{{Segments: []string{"tenant", "user"}, Rules: []weir.Rule{tenant, rateRule}}}, steps: []step{
			{0, 0, of("ann", begin(time.Hour, "p")), "true", "closed 5"},
			{0, 0, of("bob", ask(1, "")), "denied for 1h0m0s: tenant 0 of 9007199254740991, full in 1h0m0s", "closed 5"},
			{0, 0, of("bob", weir.Request{Op: weir.Reset}), "true", "closed 5"}, // which clears the rules of the full key
			{0, 0, of("bob", end("p")), "true", "open 5"},
		}},
	})
	l := weirtest.NewPolicy(t, memory.New(nil), weirtest.Rules(pauseRule, weir.Rule{Name: "jobs", Algorithm: oneJob}))
	lease, err := l.TryAcquire(t.Context(), keyU)
	if err != nil {
		t.Fatal(err)
	}
	pause(t, l, time.Hour, "u")
	if held, err := lease.Release(t.Context()); !held || err != nil || lease.Renew(t.Context()) == nil {
		t.Errorf("Release: %v, %v", held, err)
	}
	_, err = l.TryAcquire(t.Context(), keyU)
	wantError(t, err, weir.ErrDenied, `denied by rule "pause", which pauses the key: retry after`)
}

// A thousand callers sleep through a pause, and then leave at the pace of the other rule,
// with two calls of the store each. Who sleeps reserves nothing, so an open user who shares the
// pace does not wait behind them.
func TestPauseSleepers(t *testing.T) {
	t.Parallel()
	rate := algorithm.PerSecond(10)
	for _, pace := range []algorithm.Algorithm{algorithm.LeakyBucket{Rate: rate, Queue: 1000}, algorithm.GCRA{Rate: rate, Burst: 4}} {
		for _, wrap := range []weir.Wrapper{weirtest.Pass, denycache.New(nil).Wrap, outage.New(nil).Wrap} {
			synctest.Test(t, func(t *testing.T) {
				st := weirtest.NewFaulty()
				l := weirtest.Wrap(t, weirtest.NewPolicy(t, st, weir.Policy{Segments: []string{"tenant", "user"}, Rules: []weir.Rule{{Name: "pace", By: []string{"tenant"}, Algorithm: pace}, pauseRule}}), wrap)
				pause(t, l, time.Minute, "acme", "ann")
				st.Asked.Store(0)
				done := make(chan []time.Duration)
				go func() { done <- leaves(t, l, 1000, "acme", "ann") }()
				synctest.Wait()
				if took := leaves(t, l, 1, "acme", "bob"); took[0] != 0 {
					t.Errorf("%T: an open user waited %v, want 0 s", pace, took)
				}
				times := <-done
				inSecond := 0
				for i, first := range times {
					end, _ := slices.BinarySearch(times, first+time.Second+1)
					inSecond = max(inSecond, end-i)
				}
				if inSecond > 14 || times[0] != time.Minute || times[999] > 160*time.Second {
					t.Errorf("%T: callers left from %v to %v, %d in one second, want at most 14 from 1m0s", pace, times[0], times[999], inSecond)
				}
				if n := st.Asked.Load(); n > 2001 {
					t.Errorf("%T: %d calls of the store, want at most 2001", pace, n)
				}
			})
		}
	}
}

// WaitFor sleeps only if the rule that is shown is the pause, the store decided, and the
// pause ends before the caller may no longer wait. Otherwise it is denied at once. After
// the sleep, MaxWait is what is left. Who sleeps notices a Resume, a shorter pause and a longer one
// at the end of the sleep.
func TestPauseWait(t *testing.T) {
	t.Parallel()
	const minute = time.Minute
	high := weir.Rule{Name: "high", Algorithm: weirtest.Windowless(weirtest.PerSecond, algorithm.MaxTokens)} // as high as a pause's
	degraded := around(func(ctx context.Context, next weir.Decider, r weir.Request, each []weir.Result) (weir.Result, error) {
		res, err := next.Decide(ctx, r, each)
		res.Degraded = errors.New("down")
		return res, err
	})
	for _, tt := range []struct {
		name              string
		rule              weir.Rule     // beside the pause
		before            int64         // tokens consumed before the pause, of five; one comes each second
		maxWait, deadline time.Duration // 0 means none
		cost              int64
		wrap              weir.Wrapper
		meanwhile         func(l *weir.Limiter, id string) // 10 s after the pause began
		want              string                           // the rule that denies; "" means that the request is allowed
		took              time.Duration
		after             time.Duration // RetryAfter
	}{
		{"in time by MaxWait", rateRule, 0, minute + time.Microsecond, 0, 1, weirtest.Pass, nil, "", minute, 0},
		{"in time by the deadline", rateRule, 0, 0, minute + time.Microsecond, 1, weirtest.Pass, nil, "", minute, 0},
		{"MaxWait ends with the pause", rateRule, 0, minute, 0, 1, weirtest.Pass, nil, "pause", 0, minute},
		{"the deadline ends with the pause", rateRule, 0, weir.Never, minute, 1, weirtest.Pass, nil, "pause", 0, minute},
		{"MaxWait ends before the deadline", rateRule, 0, minute, time.Hour, 1, weirtest.Pass, nil, "pause", 0, minute},
		{"never", rateRule, 0, weir.Never, 0, 6, weirtest.Pass, nil, "rate", 0, weir.Never},
		{"the debt lasts longer", rateRule, 300, weir.Never, 90 * time.Second, 1, weirtest.Pass, nil, "rate", 0, 206 * time.Second},
		{"the debt is late after the pause", rateRule, 82, weir.Never, 77 * time.Second, 1, weirtest.Pass, nil, "rate", minute, time.Second},
		{"the debt is in time after the pause", rateRule, 82, weir.Never, 78 * time.Second, 1, weirtest.Pass, nil, "", 78 * time.Second, 0},
		{"the debt is late for MaxWait", rateRule, 82, 77 * time.Second, 0, 1, weirtest.Pass, nil, "rate", minute, time.Second},
		{"the debt is in time for MaxWait", rateRule, 82, 78 * time.Second, 0, 1, weirtest.Pass, nil, "", 78 * time.Second, 0},
		{"resumed", rateRule, 0, weir.Never, 0, 1, weirtest.Pass, func(l *weir.Limiter, id string) { resume(t, l, true, id, "u") }, "", minute, 0},
		{"a longer pause", rateRule, 0, weir.Never, 0, 1, weirtest.Pass, func(l *weir.Limiter, _ string) { pause(t, l, 90*time.Second, "u") }, "", 100 * time.Second, 0},
		{"a degraded denial", rateRule, 0, weir.Never, 0, 1, degraded, nil, "pause", 0, minute},
		{"a limit as high", high, 300, 90 * time.Second, 0, 1, weirtest.Pass, nil, "high", 0, 206 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := weirtest.NewPolicy(t, memory.New(nil), weirtest.Rules(tt.rule, pauseRule))
			for range tt.before {
				weirtest.Allow(t, l, weir.Request{Key: keyU.Key, MaxWait: weir.Never})
			}
			id := pause(t, l, minute, "u")
			if tt.meanwhile != nil {
				time.AfterFunc(10*time.Second, func() { tt.meanwhile(l, id) })
			}
			ctx, start := t.Context(), time.Now()
			if tt.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tt.deadline)
				defer cancel()
			}
			res, err := weirtest.Wrap(t, l, tt.wrap).WaitFor(ctx, weir.Request{Key: keyU.Key, Cost: tt.cost, MaxWait: tt.maxWait})
			if errors.Is(err, weir.ErrDenied) != (tt.want != "") || tt.want == "" && (err != nil || !res.Allowed || res.Rule != "rate") {
				t.Errorf("%s: got %+v, %v, want it denied by %q", tt.name, res, err, tt.want)
			}
			if tt.want != "" && strings.Contains(err.Error(), "which pauses the key") != (tt.want == "pause" && tt.name != "a degraded denial") {
				t.Errorf("%s: got %v", tt.name, err)
			}
			if took := time.Since(start); took != tt.took || res.RetryAfter != tt.after || tt.want != "" && res.Rule != tt.want {
				t.Errorf("%s: got %+v after %v, want the RetryAfter %v after %v", tt.name, res, took, tt.after, tt.took)
			}
		})
	}
}

// Reserve never sleeps. A reservation made before the pause goes ahead at its turn, and
// none is made during the pause. A caller whose context ends during the sleep has
// consumed nothing.
func TestPauseReserve(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := weirtest.NewPolicy(t, memory.New(nil), weirtest.Rules(pauseRule, rateRule))
		r := weir.Request{Key: keyU.Key, Cost: 5, MaxWait: weir.Never}
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
		if left := leftOf(t, l, keyU.Key); left != "closed 5" {
			t.Errorf("%s left, want 5 tokens", left)
		}
	})
}

// lanesOf returns a whole limit of 10 tokens, and a lane that keeps 4 of them.
func lanesOf(t *testing.T, c *weirtest.Clock, of func(n int64) algorithm.Algorithm) (whole, lane *weir.Limiter) {
	whole = weirtest.New(t, weirtest.NewStore(c), of(10))
	return whole, weirtest.With(t, whole, weir.Rule{Algorithm: of(6)})
}

// reserving has the algorithms whose tokens can be reserved, at 1 per second.
var reserving = map[string]func(n int64) algorithm.Algorithm{
	"GCRA": func(n int64) algorithm.Algorithm {
		return algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: n}
	},
	"TokenBucket": func(n int64) algorithm.Algorithm {
		return algorithm.TokenBucket{Capacity: n, Refill: algorithm.PerSecond(1)}
	},
	"AtOnce": func(n int64) algorithm.Algorithm {
		return algorithm.TokenBucket{Capacity: n, Refill: algorithm.Rate{Count: 2, Period: 2 * time.Second}, AtOnce: true}
	},
	"LeakyBucket": func(n int64) algorithm.Algorithm {
		return algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: n - 1}
	},
}

// A lane whose requests wait books what is refilled while they wait, out of the tokens that it
// keeps. A LeakyBucket keeps places in its queue, however long they wait.
func TestLaneWaits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		algorithm  string
		wait       time.Duration
		lane, left int
	}{
		{"GCRA", 0, 6, 4},
		{"GCRA", 999 * time.Millisecond, 6, 4},
		{"GCRA", 2 * time.Second, 8, 2},
		{"GCRA", 4 * time.Second, 10, 0},
		{"GCRA", time.Hour, 100, 0},
		{"TokenBucket", 0, 6, 4},
		{"TokenBucket", 2 * time.Second, 8, 2},
		{"TokenBucket", time.Hour, 100, 0},
		{"AtOnce", time.Second, 6, 4},
		{"AtOnce", 2 * time.Second, 8, 2},
		{"LeakyBucket", 2 * time.Second, 3, 7},
		{"LeakyBucket", time.Hour, 6, 4},
	} {
		whole, lane := lanesOf(t, weirtest.NewClock(), reserving[tt.algorithm])
		count := func(l *weir.Limiter, wait time.Duration) (n int) {
			for n < 100 && weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf("u"), MaxWait: wait}).Allowed {
				n++
			}
			return n
		}
		got, wait := count(lane, tt.wait), time.Duration(0)
		if tt.algorithm == "LeakyBucket" {
			wait = time.Hour
		}
		if left := count(whole, wait); got != tt.lane || left != tt.left {
			t.Errorf("%s, MaxWait %v: the lane consumed %d, and left %d, want %d and %d", tt.algorithm, tt.wait, got, left, tt.lane, tt.left)
		}
	}
}

// While the whole limit uses tokens that a lane keeps, only the whole limit can refund a
// decision of the lane in full.
func TestLaneRefunds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		algorithm string
		byWhole   bool
		want      int64 // the tokens left
	}{
		{"GCRA", false, 1},
		{"GCRA", true, 5},
		{"TokenBucket", false, 1},
		{"TokenBucket", true, 5},
		{"AtOnce", false, 1},
		{"AtOnce", true, 5},
	} {
		whole, lane := lanesOf(t, weirtest.NewClock(), reserving[tt.algorithm])
		r := weir.Request{Key: weir.KeyOf("u"), Cost: 4, ID: "job"}
		weirtest.Allow(t, lane, r)
		weirtest.Allow(t, whole, weir.Request{Key: r.Key, Cost: 5})
		by := lane
		if tt.byWhole {
			by = whole
		}
		if _, err := by.Refund(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if got := weirtest.Left(t, whole, "u").Remaining; got != tt.want {
			t.Errorf("%s, refunded by the whole limit %v: %d tokens are left, want %d", tt.algorithm, tt.byWhole, got, tt.want)
		}
	}
}
