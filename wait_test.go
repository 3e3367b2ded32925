package weir_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A hundred waiters on one key go ahead one interval apart, in the order of their
// reservations. Each calls the store once.
func TestWaitInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const waiters, interval = 100, 10 * time.Millisecond
		var mu sync.Mutex
		var evals, ended []time.Duration
		start := time.Now()
		st := &weirtest.Hooked{Store: memory.New(nil), Before: func(context.Context, *store.Script) error {
			mu.Lock()
			defer mu.Unlock()
			evals = append(evals, time.Since(start))
			return nil
		}}
		l := weirtest.New(t, st, algorithm.GCRA{Rate: algorithm.Every(interval), Burst: 1})
		var wg sync.WaitGroup
		for range waiters {
			wg.Go(func() {
				res, err := l.Wait(t.Context(), "k")
				if err != nil || !res.Allowed || res.Granted != 1 {
					t.Errorf("got %+v, %v", res, err)
				}
				mu.Lock()
				defer mu.Unlock()
				ended = append(ended, res.Delay)
				if now := time.Since(start); now != res.Delay {
					t.Errorf("a waiter whose turn comes after %v went after %v", res.Delay, now)
				}
			})
		}
		wg.Wait()
		if len(evals) != waiters || slices.Max(evals) != 0 {
			t.Errorf("%d waiters called the store %d times, the last after %v, want once each, at once", waiters, len(evals), slices.Max(evals))
		}
		for i, d := range ended {
			if d != time.Duration(i)*interval {
				t.Fatalf("number %d went after %v, want %v", i, d, time.Duration(i)*interval)
			}
		}
	})
}

// WaitN waits until its tokens are available. If it fails, nothing stays consumed.
func TestWaitN(t *testing.T) {
	t.Parallel()
	hourly := algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 2}
	for _, tt := range []struct {
		name   string
		within time.Duration // until the deadline; 0 means no deadline
		cancel time.Duration // after which ctx is cancelled; 0 means never
		before int64         // tokens consumed before the wait
		cost   int64
		want   error
		says   string
		took   time.Duration
		evals  int
		reset  time.Duration // until the limit is fully reset
	}{
		{"there", 0, 0, 0, 2, nil, "", 0, 1, 2 * time.Hour},
		{"in time", 0, 0, 2, 1, nil, "", time.Hour, 1, 2 * time.Hour},
		{"just in time", time.Hour, 0, 2, 1, nil, "", time.Hour, 1, 2 * time.Hour},
		{"a microsecond too late", time.Hour - time.Microsecond, 0, 2, 1, weir.ErrDenied, `denied by rule "gcra": 0 of 2 tokens remain: retry after 1µs`, 0, 1, 2 * time.Hour},
		{"never", 0, 0, 0, 3, weir.ErrDenied, `denied by rule "gcra": its limit is 2: the request can never be allowed`, 0, 1, 0},
		{"negative", 0, 0, 0, -1, weir.ErrInvalidCost, "-1", 0, 0, 0},
		{"cancelled", 0, time.Minute, 2, 1, context.Canceled, "", time.Minute, 2, 2*time.Hour - time.Minute},
		{"cancelled with all tokens", 0, time.Minute, 1, 2, context.Canceled, "", time.Minute, 2, time.Hour - time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				st := &recorder{Store: memory.New(nil)}
				l := weirtest.New(t, st, hourly)
				if tt.before > 0 {
					weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("k"), Cost: tt.before})
				}
				st.evals = 0
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.within > 0 {
					ctx, cancel = context.WithTimeout(ctx, tt.within)
					defer cancel()
				}
				if tt.cancel > 0 {
					time.AfterFunc(tt.cancel, cancel)
				}
				start := time.Now()
				res, err := l.WaitN(ctx, tt.cost, "k")
				if !errors.Is(err, tt.want) || tt.want != nil && !strings.Contains(err.Error(), tt.says) {
					t.Errorf("got %+v, %v, want %v %q", res, err, tt.want, tt.says)
				}
				if (err == nil) != res.Allowed || errors.Is(err, weir.ErrDenied) != (res.RetryAfter > 0) {
					t.Errorf("got %+v with error %v", res, err)
				}
				if took := time.Since(start); took != tt.took || st.evals != tt.evals {
					t.Errorf("it took %v and %d calls, want %v and %d", took, st.evals, tt.took, tt.evals)
				}
				if after := weirtest.Left(t, l, "k"); after.ResetAfter != tt.reset {
					t.Errorf("left %+v, want it reset after %v", after, tt.reset)
				}
			})
		})
	}
}

// Reserve needs MaxWait or a deadline. If there are both, the earlier one applies.
func TestReserveBound(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		maxWait time.Duration
		within  time.Duration // until the deadline; 0 means no deadline
		before  int64
		want    error // if it is nil and delay is negative, any error
		delay   time.Duration
	}{
		{"no bound", 0, 0, 0, nil, -1},
		{"a negative wait", -1, 0, 0, nil, -1},
		{"a negative wait within a deadline", -1, time.Hour, 0, nil, -1},
		{"a wait", time.Second, 0, 1, nil, time.Second},
		{"a wait that is too short", time.Second - 1, 0, 1, weir.ErrDenied, 0},
		{"any wait", weir.Never, 0, 1000, nil, 1000 * time.Second},
		{"a deadline", 0, time.Second, 1, nil, time.Second},
		{"a deadline that is too short", 0, time.Second - 1, 1, weir.ErrDenied, 0},
		{"a wait within a deadline", time.Second, time.Minute, 2, weir.ErrDenied, 0},
		{"a deadline within a wait", time.Minute, time.Second, 2, weir.ErrDenied, 0},
		{"any wait within a deadline", weir.Never, 2 * time.Second, 2, nil, 2 * time.Second},
		{"a deadline that has passed", time.Minute, -1, 0, context.DeadlineExceeded, 0},
		{"a deadline that is as good as passed", time.Minute, 999, 0, context.DeadlineExceeded, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				st := &recorder{Store: memory.New(nil)}
				l := weirtest.New(t, st, algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1})
				for range tt.before {
					weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("k"), MaxWait: weir.Never})
				}
				before := dump(t, st.Store.(*memory.Store))
				ctx := t.Context()
				if tt.within != 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.within)
					defer cancel()
				}
				r, err := l.Reserve(ctx, weir.Request{Key: weir.KeyOf("k"), MaxWait: tt.maxWait})
				if tt.want == nil && tt.delay >= 0 {
					if err != nil || r.Delay != tt.delay || !r.Allowed {
						t.Errorf("got %+v, %v, want a reservation in %v", r, err, tt.delay)
					}
					return
				}
				if err == nil || r != nil || !errors.Is(err, tt.want) && tt.want != nil {
					t.Errorf("got %+v, %v, want %v", r, err, tt.want)
				}
				if after := dump(t, st.Store.(*memory.Store)); !slices.Equal(before, after) {
					t.Errorf("changed %q to %q", before, after)
				}
			})
		})
	}
}

// Cancel refunds the tokens of a reservation once. A later reservation can then have
// them.
func TestReservationCancel(t *testing.T) {
	t.Parallel()
	l := weirtest.NewPolicy(t, weirtest.NewStore(weirtest.NewClock()), weir.Policy{Segments: []string{"tenant", "user"}, Rules: []weir.Rule{
		{Name: "all", By: []string{"tenant"}, Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 1}},
		{Name: "user", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1}, Cost: 1},
	}})
	r := weir.Request{Key: weir.KeyOf("a", "u"), MaxWait: time.Minute}
	var list []*weir.Reservation
	for range 2 {
		res, err := l.Reserve(t.Context(), r)
		if err != nil || !res.Allowed {
			t.Fatalf("got %+v, %v", res, err)
		}
		list = append(list, res)
	}
	if d := list[1].Delay; d != time.Second {
		t.Errorf("the second goes after %v, want the later of both rules, 1s", d)
	}
	for _, want := range []bool{true, false} {
		if gave, err := list[1].Cancel(t.Context()); gave != want || err != nil {
			t.Errorf("Cancel: got %v, %v, want %v", gave, err, want)
		}
	}
	if res := weirtest.Allow(t, l, r); res.Delay != time.Second {
		t.Errorf("the next: got %+v, want it to go in place of the second", res)
	}
}

// If ctx ends and the reply is lost, the tokens are refunded, unless another request can
// use them. A client can notice a deadline before ctx does. After an outage, nothing is
// refunded.
func TestReserveLost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		id   string
		ends bool // ctx ends during the call
		lost error
		want error
		left int64
	}{
		{"cancelled", "", true, context.Canceled, context.Canceled, 2},
		{"cancelled, and unavailable", "", true, store.ErrUnavailable, context.Canceled, 2},
		{"past the deadline", "", false, context.DeadlineExceeded, context.DeadlineExceeded, 2},
		{"an outage", "", false, store.ErrUnavailable, store.ErrUnavailable, 0},
		{"cancelled, and another error", "", true, store.ErrScript, store.ErrScript, 0}, // nothing is known of the tokens
		{"cancelled, with an ID", "x", true, context.Canceled, context.Canceled, 0},
		{"past the deadline, with an ID", "x", false, context.DeadlineExceeded, context.DeadlineExceeded, 0},
		{"an outage, with an ID", "x", false, store.ErrUnavailable, store.ErrUnavailable, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			st := &weirtest.Hooked{Store: memory.New(nil)}
			l := weirtest.New(t, st, algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 2})
			request := weir.Request{Key: weir.KeyOf("k"), Cost: 2, ID: tt.id}
			methods := map[string]func(context.Context) (bool, error){
				"Reserve": func(ctx context.Context) (bool, error) { r, err := l.Reserve(ctx, request); return r != nil, err },
			}
			if tt.id == "" {
				methods["WaitN"] = func(ctx context.Context) (bool, error) {
					res, err := l.WaitN(ctx, 2, "k")
					return res != weir.Result{}, err
				}
			}
			for name, method := range methods {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				calls := 0
				st.Before = func(context.Context, *store.Script) error {
					st.Lose = nil
					if calls++; calls == 1 {
						st.Lose = tt.lost
						if tt.ends {
							cancel()
						}
					}
					return nil
				}
				something, err := method(ctx)
				st.Before, st.Lose = nil, nil
				if something || !errors.Is(err, tt.want) {
					t.Errorf("%s: got a result %v, %v, want none and %v", name, something, err, tt.want)
				}
				if res := weirtest.Left(t, l, "k"); res.Remaining != tt.left {
					t.Errorf("%s: left %+v, want %d", name, res, tt.left)
				}
				if tt.id != "" { // the caller can refund the tokens
					for _, want := range []bool{true, false} {
						if gave, err := l.Refund(t.Context(), request); gave.Found != want || err != nil {
							t.Errorf("Refund: got %v, %v, want %v", gave, err, want)
						}
					}
				}
				if err := l.Reset(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// If a client or a wrapper repeats the call, and the repeated request is denied, the
// tokens are refunded: only this request knows the ID.
func TestReserveRepeated(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), algorithm.LeakyBucket{Rate: algorithm.PerMinute(1), Queue: 10})
	weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf("k")})
	twice := weirtest.Wrap(t, l, weirtest.Around(func(next weir.Decider) impatient { return impatient{next} }))
	for name, call := range map[string]func() error{
		"Reserve": func() error {
			_, err := twice.Reserve(t.Context(), weir.Request{Key: weir.KeyOf("k"), MaxWait: time.Hour})
			return err
		},
		"Wait": func() error { _, err := twice.Wait(t.Context(), "k"); return err },
	} {
		if err := call(); !errors.Is(err, weir.ErrDenied) {
			t.Errorf("%s: got %v, want ErrDenied", name, err)
		}
		if res := weirtest.Left(t, l, "k"); res.ResetAfter != time.Minute {
			t.Errorf("%s: left %+v, want a full reset in a minute", name, res)
		}
	}
}

// An impatient Decider sends each Consume twice, the second time with a MaxWait of a
// second.
type impatient struct{ next weir.Decider }

func (d impatient) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	if r.Op == weir.Consume {
		if res, err := d.next.Decide(ctx, r, each); err != nil {
			return res, err
		}
		r.MaxWait = time.Second
	}
	return d.next.Decide(ctx, r, each)
}

// If a Wait goes ahead, no other Wait refunds the tokens. If a Wait refunds them, no
// other goes ahead. In real time, the contexts end at about the moment at which the
// tokens are available. The clock of the store stands still, so that no token is
// refilled.
func TestReservationManyWaits(t *testing.T) {
	t.Parallel()
	const delay = time.Millisecond
	l := weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), algorithm.GCRA{Rate: algorithm.Every(delay), Burst: 1})
	for i := range 500 {
		key := fmt.Sprint(i)
		weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf(key)})
		r, err := l.Reserve(t.Context(), weir.Request{Key: weir.KeyOf(key), MaxWait: weir.Never})
		if err != nil || r.Delay != delay {
			t.Fatal(r, err)
		}
		end := time.Now().Add(delay)
		var wg sync.WaitGroup
		var gone, late atomic.Int64
		for range 4 {
			wg.Go(func() {
				ctx, cancel := context.WithDeadline(t.Context(), end)
				defer cancel()
				switch err := r.Wait(ctx); {
				case err == nil:
					gone.Add(1)
				case errors.Is(err, context.DeadlineExceeded):
					late.Add(1)
				}
			})
		}
		wg.Wait()
		refunded := weirtest.Left(t, l, key).ResetAfter == delay
		if refunded != (gone.Load() == 0) || gone.Load() == 0 && late.Load() == 0 {
			t.Fatalf("%d went ahead, %d were late; refunded: %t", gone.Load(), late.Load(), refunded)
		}
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
			r, err := l.Reserve(t.Context(), weir.Request{Key: weir.KeyOf("k"), MaxWait: weir.Never, ID: id})
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

		r = reserve("")
		wait("too long", r, time.Second, context.DeadlineExceeded, time.Minute+time.Second)
		if res := weirtest.Left(t, l, "k"); res.RetryAfter != 59*time.Second {
			t.Errorf("after a wait that was too long: left %+v, want the next token in 59s", res)
		}
		err := r.Wait(t.Context())
		wantError(t, err, nil, "was cancelled")
		if gave, err := r.Cancel(t.Context()); gave || err != nil {
			t.Errorf("Cancel after the refund: got %v, %v, want false", gave, err)
		}

		r = reserve("x")
		wait("too long, with an ID", r, time.Second, context.DeadlineExceeded, time.Minute+2*time.Second)
		wait("again, with an ID", r, time.Hour, nil, 2*time.Minute)

		r = reserve("")
		go func() {
			time.Sleep(time.Second)
			if gave, err := r.Cancel(t.Context()); !gave || err != nil {
				t.Errorf("Cancel during Wait: got %v, %v", gave, err)
			}
		}()
		err = r.Wait(t.Context())
		wantError(t, err, nil, "was cancelled")
	})
}

// Reserve keeps the ID of the caller.
func TestReservationKeepsID(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), weirtest.PerSecond)
	r := weir.Request{Key: weir.KeyOf("k"), ID: "order-17", MaxWait: time.Second}
	if _, err := l.Reserve(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if gave, err := l.Refund(t.Context(), r); !gave.Found || err != nil {
		t.Errorf("Refund: got %v, %v", gave, err)
	}
}

// A repeated reservation whose turn comes too late is denied, and keeps its tokens. So
// does a request with an ID that package outage denies.
func TestReserveDeniedWithID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &weirtest.Hooked{Store: memory.New(nil)}
		queue := weirtest.New(t, st, algorithm.LeakyBucket{Rate: algorithm.PerMinute(1), Queue: 10})
		l := weirtest.Wrap(t, queue, outage.New(nil).Wrap)
		r := weir.Request{Key: weir.KeyOf("k"), MaxWait: weir.Never, ID: "x"}
		check := func(what string, reservation *weir.Reservation, err error, rest time.Duration) {
			t.Helper()
			if !errors.Is(err, weir.ErrDenied) || reservation != nil {
				t.Fatalf("%s: got %+v, %v, want an ErrDenied", what, reservation, err)
			}
			if gave, err := queue.Refund(t.Context(), r); !gave.Found || err != nil {
				t.Errorf("%s: Refund: got %v, %v", what, gave, err)
			}
			if left := weirtest.Left(t, queue, "k"); left.ResetAfter != rest {
				t.Errorf("%s: %+v, want a full reset in %v", what, left, rest)
			}
		}
		st.Lose = store.ErrUnavailable
		reservation, err := l.Reserve(t.Context(), r)
		st.Lose = nil
		check("during an outage", reservation, err, 0)

		weirtest.Decide(t, queue, weir.Request{Key: r.Key})
		if _, err := queue.Reserve(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		reservation, err = queue.Reserve(ctx, r)
		check("repeated", reservation, err, time.Minute)
	})
}
