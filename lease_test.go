package weir_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/guard"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

var keyU = weir.Request{Key: weir.KeyOf("u")}

// A lease has one holder. It is held until it is released or expires. Renew and Release consume
// nothing from the other rules.
func TestLease(t *testing.T) {
	t.Parallel()
	play(t, []trace{{name: "by ID", policies: rules(weir.Rule{Name: "jobs", Algorithm: oneJob}, window("starts", 9)), steps: []step{
		{0, 0, ask(1, "a"), "1: jobs 0 of 1, full in 1m0s", "0 8"},
		{0, 0, ask(1, "b"), "denied for 1m0s: jobs 0 of 1, full in 1m0s", "0 8"},
		{0, 0, do(weir.Renew, 0, "b"), "false", "0 8"},
		{59 * second, 0, do(weir.Renew, 0, "a"), "true", "0 8"},
		{59 * second, 0, weir.Request{Op: weir.Peek}, "denied for 1s", "0 8"},
		{second, 0, ask(1, "b"), "1", "0 7"},
		{0, 0, do(weir.Renew, 0, "a"), "false", "0 7"}, // it has expired
		{0, 0, do(weir.Release, 0, "a"), "false", "0 7"},
		{0, 0, do(weir.Release, 0, "b"), "true", "1 7"},
		{0, 0, do(weir.Release, 0, "b"), "false", "1 7"},
	}}})
	l := weirtest.NewPolicy(t, memory.New(nil), weirtest.Rules(window("starts", 9), weir.Rule{Name: "jobs", Algorithm: oneJob}))
	ctx, each := t.Context(), make([]weir.Result, 2)
	first, err := l.TryAcquire(ctx, keyU)
	if err != nil || !first.Allowed || first.Granted != 1 || first.ID() == "" {
		t.Fatalf("got %+v, %v", first, err)
	}
	var denied *weir.DeniedError
	if second, err := l.TryAcquire(ctx, keyU); second != nil || !errors.Is(err, weir.ErrDenied) || !errors.As(err, &denied) || denied.Result.Rule != "jobs" {
		t.Errorf("a second lease: %+v, %v, want it denied by jobs", second, err)
	}
	renew := weir.Request{Key: keyU.Key, Op: weir.Renew, ID: first.ID()}
	if res := weirtest.Decide(t, l, renew, each...); !res.Allowed || res.Granted != 0 || each[0] != (weir.Result{}) || each[1] != res || first.Renew(ctx) != nil {
		t.Errorf("Renew: got %+v, each %+v", res, each)
	}
	for _, want := range []bool{true, false} {
		if held, err := first.Release(ctx); held != want || err != nil {
			t.Errorf("Release: got %v, %v, want %v", held, err, want)
		}
	}
	wantError(t, first.Renew(ctx), weir.ErrLeaseLost, "it was released or has expired")
	if res := weirtest.Decide(t, l, renew); res.RetryAfter != weir.Never {
		t.Errorf("Renew of a lease that is not held: got %+v, want Never", res)
	}
}

// TestAcquire has how long Acquire waits for a lease that is held for a minute, and what it returns.
func TestAcquire(t *testing.T) {
	t.Parallel()
	bare := around(func(context.Context, weir.Decider, weir.Request, []weir.Result) (weir.Result, error) {
		return weir.Result{}, nil
	})
	for _, tt := range []struct {
		name    string
		release time.Duration // of the first lease; 0 means that it expires
		wrap    weir.Wrapper
		fails   bool // the client notices the deadline at the second call, before ctx does
		overdue bool // the deadline has passed by then
		within  time.Duration
		want    []error
		took    time.Duration
		slack   time.Duration
	}{
		{name: "released", release: 10 * second, within: time.Hour, took: 10 * second, slack: 250 * time.Millisecond},
		{name: "expired", within: time.Hour, took: time.Minute},
		{name: "ctx ends", within: 3 * second, want: []error{context.DeadlineExceeded, weir.ErrDenied}, took: 3 * second},
		{name: "can never be allowed", wrap: deny, within: time.Hour, want: []error{weir.ErrDenied}},
		{name: "denied without a RetryAfter", wrap: bare, within: second, want: []error{context.DeadlineExceeded, weir.ErrDenied}, took: second},
		{name: "the client notices the deadline", fails: true, overdue: true, within: time.Hour, want: []error{context.DeadlineExceeded, weir.ErrDenied}, slack: second},
		{name: "the client has another deadline", fails: true, within: time.Hour, want: []error{context.DeadlineExceeded}, slack: second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int64
				st := &weirtest.Hooked{Store: memory.New(nil), Before: func(context.Context, *store.Script) error {
					if calls.Add(1) == 3 && tt.fails {
						return fmt.Errorf("store: %w", context.DeadlineExceeded)
					}
					return nil
				}}
				l := weirtest.New(t, st, oneJob)
				first, err := l.TryAcquire(t.Context(), keyU)
				if err != nil {
					t.Fatal(err)
				}
				if tt.release > 0 {
					time.AfterFunc(tt.release, func() { _, _ = first.Release(t.Context()) })
				}
				if tt.wrap != nil {
					l = weirtest.Wrap(t, l, tt.wrap)
				}
				ctx, cancel := context.WithTimeout(t.Context(), tt.within)
				defer cancel()
				if tt.overdue {
					ctx = overdue{ctx}
				}
				start := time.Now()
				second, err := l.Acquire(ctx, keyU)
				for _, want := range tt.want {
					if !errors.Is(err, want) {
						t.Errorf("got %v, want %v", err, want)
					}
				}
				if (second != nil) != (len(tt.want) == 0) || errors.Is(err, weir.ErrDenied) && len(tt.want) == 1 && tt.wrap == nil {
					t.Errorf("got %+v, %v, want %v", second, err, tt.want)
				}
				if took := time.Since(start); took < tt.took || took > tt.took+tt.slack {
					t.Errorf("it took %v, want %v and at most %v", took, tt.took, tt.slack)
				}
				if most := 10 + int64(tt.took/(250*time.Millisecond)); calls.Load() > most {
					t.Errorf("%d calls of the store, want at most %d", calls.Load(), most)
				}
				if tt.name == "ctx ends" {
					wantError(t, err, nil, `Acquire: context deadline exceeded: denied by rule "concurrency"`)
					if _, err := l.Acquire(ctx, keyU); err != context.DeadlineExceeded {
						t.Errorf("after the deadline: got %v", err)
					}
				}
			})
		})
	}
}

// TestKeepAlive has how long KeepAlive holds a lease of a minute, and how it ends. It renews the
// lease whenever a third of the lease time has passed, and reports a lost lease once.
func TestKeepAlive(t *testing.T) {
	t.Parallel()
	const s = time.Second
	short := weir.Rule{Name: "next", Algorithm: algorithm.Concurrency{Limit: 2, Lease: 600 * time.Millisecond}, Shadow: true}
	for _, tt := range []struct {
		name     string
		shadow   []weir.Rule
		started  time.Duration    // after the lease was acquired
		takes    time.Duration    // a renewal
		outage   [2]time.Duration // from, to
		hangs    bool             // calls in the outage return when their context ends
		ended    time.Duration    // when another process releases the lease
		released time.Duration    // when its holder releases it
		renewed  time.Duration    // when its holder renews it
		lost     time.Duration    // when the lease is lost; 0 means never
		because  error
		renewals int64 // calls in 10 minutes; 0: any
	}{
		{name: "nothing happens", renewals: 30},
		{name: "started late", started: 55 * s},
		{name: "slow", takes: 19 * s},
		{name: "a shorter shadow rule", shadow: []weir.Rule{short}, renewals: 6000},
		{name: "a shorter shadow rule, and slow", shadow: []weir.Rule{short}, takes: 5 * s},
		{name: "a shorter shadow rule, and an outage", shadow: []weir.Rule{short}, outage: [2]time.Duration{100*s + s/2, time.Hour}, lost: 160*s + 2*s/5, because: store.ErrUnavailable},
		{name: "released", released: 90 * s},
		{name: "released by another process", ended: 10 * s, lost: 20 * s, because: weir.ErrLeaseLost},
		{name: "a short outage", outage: [2]time.Duration{15 * s, 50 * s}},
		{name: "a long outage", outage: [2]time.Duration{15 * s, time.Hour}, lost: time.Minute, because: store.ErrUnavailable},
		{name: "a short outage in which calls hang", outage: [2]time.Duration{15 * s, 30 * s}, hangs: true},
		{name: "a long outage in which calls hang", outage: [2]time.Duration{15 * s, time.Hour}, hangs: true, lost: time.Minute, because: context.DeadlineExceeded},
		{name: "a call that hangs beside another renewal", started: 55 * s, outage: [2]time.Duration{54 * s, 56 * s}, hangs: true, renewed: 57 * s},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var renewals atomic.Int64
				start := time.Now()
				st := &weirtest.Hooked{Store: memory.New(nil), Before: func(ctx context.Context, script *store.Script) error {
					if strings.HasSuffix(script.Name(), ".renew") {
						renewals.Add(1)
					}
					switch now := time.Since(start); {
					case now < tt.outage[0] || now >= tt.outage[1]:
						if now > 0 {
							return guard.Sleep(ctx, tt.takes)
						}
						return nil
					case tt.hangs:
						<-ctx.Done()
						return ctx.Err()
					default:
						return store.ErrUnavailable
					}
				}}
				l := weirtest.NewPolicy(t, st, weirtest.Rules(append(tt.shadow, weir.Rule{Name: "jobs", Algorithm: oneJob})...))
				lease, err := l.TryAcquire(t.Context(), keyU)
				if err != nil {
					t.Fatal(err)
				}
				at := func(after time.Duration, f func()) {
					if after > 0 {
						time.AfterFunc(after, f)
					}
				}
				at(tt.ended, func() {
					_, _ = l.Decide(t.Context(), weir.Request{Key: keyU.Key, Op: weir.Release, ID: lease.ID()}, nil)
				})
				at(tt.released, func() { _, _ = lease.Release(t.Context()) })
				at(tt.renewed, func() { _ = lease.Renew(t.Context()) })
				time.Sleep(tt.started)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute+s)
				defer cancel()
				calls := 0
				lease.KeepAlive(ctx, func(err error) {
					calls++
					if took := time.Since(start); took != tt.lost {
						t.Errorf("lost after %v, want %v", took, tt.lost)
					}
					if !errors.Is(err, weir.ErrLeaseLost) || !errors.Is(err, tt.because) {
						t.Errorf("got %v, want ErrLeaseLost because of %v", err, tt.because)
					}
				})
				took := time.Since(start)
				if (calls == 1) != (tt.lost > 0) || calls > 1 || tt.released > 0 && took != tt.released {
					t.Errorf("lost was called %d times; it returned after %v", calls, took)
				}
				if n := renewals.Load(); tt.renewals > 0 && (n < tt.renewals || n > tt.renewals+tt.renewals/10) {
					t.Errorf("%d renewals, want %d", n, tt.renewals)
				}
				if tt.released > 0 {
					lease.KeepAlive(t.Context(), func(err error) { t.Errorf("lost after Release: %v", err) })
				}
			})
		})
	}
}
