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
	"github.com/weir-go/weir/internal/weirtest"
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
