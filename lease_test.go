package weir_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/sleep"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

var oneJob = algorithm.Concurrency{Limit: 1, Lease: time.Minute}

// A lease has one holder. It is held until it is released or expires.
func TestLease(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	l := weirtest.NewPolicy(t, weirtest.NewStore(c), weirtest.Rules(weir.Rule{Name: "jobs", Algorithm: oneJob}, weir.Rule{Name: "rate", Algorithm: weirtest.PerSecond}))
	ctx := t.Context()
	first, err := l.TryAcquire(ctx, weir.Request{Key: weir.KeyOf("u")})
	if err != nil || !first.Allowed || first.Granted != 1 || first.ID() == "" {
		t.Fatalf("got %+v, %v", first, err)
	}
	_, err = l.TryAcquire(ctx, weir.Request{Key: weir.KeyOf("u")})
	var denied *weir.DeniedError
	if !errors.As(err, &denied) || !errors.Is(err, weir.ErrDenied) || denied.Result.Rule != "jobs" || denied.Result.RetryAfter != time.Minute {
		t.Errorf("a second lease: %v, want it denied by jobs for 1m", err)
	}
	if res := weirtest.Left(t, weirtest.Only(t, l, "rate"), "u"); res.Remaining != 4 {
		t.Errorf("rate: %+v, want that a denied request consumes nothing", res)
	}

	c.Advance(59 * time.Second)
	if err := first.Renew(ctx); err != nil {
		t.Errorf("Renew: %v", err)
	}
	c.Advance(59 * time.Second)
	if res := weirtest.Left(t, l, "u"); res.Allowed {
		t.Errorf("after Renew: %+v, want it held", res)
	}
	c.Advance(time.Second)
	second, err := l.TryAcquire(ctx, weir.Request{Key: weir.KeyOf("u")})
	if err != nil || second.ID() == first.ID() {
		t.Fatalf("after the lease: got %+v, %v", second, err)
	}
	if err := first.Renew(ctx); !errors.Is(err, weir.ErrLeaseLost) || !strings.HasPrefix(err.Error(), "weir: ") {
		t.Errorf("Renew of a lease that has expired: %v, want ErrLeaseLost", err)
	}
	for i, tt := range []struct {
		lease *weir.Lease
		want  bool
	}{{first, false}, {second, true}, {second, false}} {
		if held, err := tt.lease.Release(ctx); held != tt.want || err != nil {
			t.Errorf("Release %d: got %v, %v, want %v", i, held, err, tt.want)
		}
	}
	if err := second.Renew(ctx); !errors.Is(err, weir.ErrLeaseLost) {
		t.Errorf("Renew of a lease that was released: %v, want ErrLeaseLost", err)
	}
}

// Leases can also be renewed and released by ID, with an Op. Renew and Release consume
// nothing from the other rules.
func TestLeaseByID(t *testing.T) {
	t.Parallel()
	l := weirtest.NewPolicy(t, weirtest.NewStore(weirtest.NewClock()), weirtest.Rules(weir.Rule{Name: "rate", Algorithm: weirtest.PerSecond}, weir.Rule{Name: "jobs", Algorithm: oneJob}))
	r := weir.Request{Key: weir.KeyOf("u"), ID: "job-1"}
	weirtest.Allow(t, l, r)
	each := make([]weir.Result, 2)
	r.Op = weir.Renew
	res, err := l.Decide(t.Context(), r, each)
	if err != nil || !res.Allowed || res.Granted != 0 || res.Rule != "jobs" || each[0] != (weir.Result{}) || each[1] != res {
		t.Errorf("Renew: got %+v, %v, each %+v", res, err, each)
	}
	other := r
	other.ID = "job-2"
	if res, err := l.Decide(t.Context(), other, nil); err != nil || res.Allowed || res.RetryAfter != weir.Never {
		t.Errorf("Renew of a lease that is not held: got %+v, %v, want a denied request with Never", res, err)
	}
	for i, want := range []bool{true, false} {
		r.Op = weir.Release
		if res, err := l.Decide(t.Context(), r, each); err != nil || res != (weir.Result{Allowed: want}) {
			t.Errorf("Release %d: got %+v, %v, want %v", i, res, err, want)
		}
	}
	if res := weirtest.Left(t, l, "u"); !res.Allowed || res.Remaining != 1 {
		t.Errorf("in the end: %+v, want a free lease", res)
	}
	if res := weirtest.Left(t, weirtest.Only(t, l, "rate"), "u"); res.Remaining != 4 {
		t.Errorf("rate: %+v, want one token consumed", res)
	}
}

// Acquire returns at most a quarter of a second after a release, and when a lease
// expires.
func TestAcquireWaits(t *testing.T) {
	t.Parallel()
	for _, release := range []bool{true, false} {
		t.Run(fmt.Sprint("released: ", release), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				st := &recorder{Store: memory.New(nil)}
				l := weirtest.New(t, st, oneJob)
				first, err := l.TryAcquire(t.Context(), weir.Request{Key: weir.KeyOf("u")})
				if err != nil {
					t.Fatal(err)
				}
				after, slack := time.Minute, time.Duration(0)
				if release {
					after, slack = 10*time.Second, 250*time.Millisecond
					time.AfterFunc(after, func() { _, _ = first.Release(t.Context()) })
				}
				start := time.Now()
				second, err := l.Acquire(t.Context(), weir.Request{Key: weir.KeyOf("u")})
				if err != nil || !second.Allowed {
					t.Fatalf("got %+v, %v", second, err)
				}
				if took := time.Since(start); took < after || took > after+slack {
					t.Errorf("it took %v, want %v and at most %v", took, after, slack)
				}
				if most := 10 + int(after/(250*time.Millisecond)); st.evals > most {
					t.Errorf("%d calls of the store, want at most %d", st.evals, most)
				}
			})
		})
	}
}

// If ctx ends, Acquire returns the error of ctx joined with ErrDenied, and holds no
// lease. A request that can never be allowed is denied at once.
func TestAcquireFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := weirtest.New(t, memory.New(nil), oneJob)
		first, err := l.TryAcquire(t.Context(), weir.Request{Key: weir.KeyOf("u")})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		second, err := l.Acquire(ctx, weir.Request{Key: weir.KeyOf("u")})
		if second != nil || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, weir.ErrDenied) {
			t.Errorf("got %+v, %v, want both errors", second, err)
		}
		wantError(t, err, nil, `denied by rule "concurrency"`)
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("it took %v, want 3s", took)
		}
		if second, err := l.Acquire(ctx, weir.Request{Key: weir.KeyOf("u")}); second != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the deadline: got %+v, %v", second, err)
		}
		if _, err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}

		start = time.Now()
		deny := weirtest.Wrap(t, l, weirtest.Around(func(weir.Decider) denier { return denier{} }))
		if lease, err := deny.Acquire(t.Context(), weir.Request{Key: weir.KeyOf("u")}); lease != nil || !errors.Is(err, weir.ErrDenied) {
			t.Errorf("what can never pass: got %+v, %v, want ErrDenied", lease, err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %v, want no time", took)
		}
	})
}

// A denier is a wrapper that denies every request with RetryAfter Never.
type denier struct{}

func (denier) Decide(context.Context, weir.Request, []weir.Result) (weir.Result, error) {
	return weir.Result{Delay: weir.Never, RetryAfter: weir.Never, Rule: "denier"}, nil
}

// If a wrapper denies a request and sets no RetryAfter, Acquire waits between two
// attempts.
func TestAcquirePauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		l := weirtest.Wrap(t, weirtest.New(t, memory.New(nil), oneJob), weirtest.Around(func(weir.Decider) blocked { return blocked{&calls} }))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if lease, err := l.Acquire(ctx, weir.Request{Key: weir.KeyOf("u")}); lease != nil || !errors.Is(err, weir.ErrDenied) || calls > 10 {
			t.Errorf("got %+v, %v after %d attempts, want at most 10", lease, err, calls)
		}
	})
}

// A blocked is a wrapper that denies every request, and counts them.
type blocked struct{ calls *int }

func (b blocked) Decide(context.Context, weir.Request, []weir.Result) (weir.Result, error) {
	*b.calls++
	return weir.Result{}, nil
}

// A client can notice a deadline before the context does. The lease is released all the
// same.
func TestAcquirePastDeadline(t *testing.T) {
	t.Parallel()
	for name, acquire := range map[string]func(l *weir.Limiter, ctx context.Context) (*weir.Lease, error){
		"Acquire": func(l *weir.Limiter, ctx context.Context) (*weir.Lease, error) {
			return l.Acquire(ctx, weir.Request{Key: weir.KeyOf("u")})
		},
		"TryAcquire": func(l *weir.Limiter, ctx context.Context) (*weir.Lease, error) {
			return l.TryAcquire(ctx, weir.Request{Key: weir.KeyOf("u")})
		},
	} {
		mem := memory.New(nil)
		st := &weirtest.Hooked{Store: mem, Lose: fmt.Errorf("store: %w", context.DeadlineExceeded)}
		st.Before = func(_ context.Context, s *store.Script) error {
			if strings.HasSuffix(s.Name(), ".release") {
				st.Lose = nil
			}
			return nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if lease, err := acquire(weirtest.New(t, st, oneJob), ctx); lease != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got %+v, %v", name, lease, err)
		}
		if keys := keysIn(mem); len(keys) > 0 {
			t.Errorf("%s: left %q", name, keys)
		}
	}
}

// If the client notices the deadline first, after a denial, the error is still a denial.
func TestAcquireDeniedEarly(t *testing.T) {
	t.Parallel()
	st := &weirtest.Hooked{Store: memory.New(nil)}
	l := weirtest.New(t, st, oneJob)
	if _, err := l.TryAcquire(t.Context(), weir.Request{Key: weir.KeyOf("u")}); err != nil {
		t.Fatal(err)
	}
	calls := 0
	st.Before = func(context.Context, *store.Script) error {
		if calls++; calls > 1 {
			return fmt.Errorf("store: %w", context.DeadlineExceeded)
		}
		return nil
	}
	if _, err := l.Acquire(overdue{t.Context()}, weir.Request{Key: weir.KeyOf("u")}); !errors.Is(err, weir.ErrDenied) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want ErrDenied and the deadline", err)
	}
	calls = 0
	if _, err := l.Acquire(t.Context(), weir.Request{Key: weir.KeyOf("u")}); errors.Is(err, weir.ErrDenied) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a deadline: got %v, want the error of the store", err)
	}
}

// An overdue context has a deadline that has passed, and does not know it yet.
type overdue struct{ context.Context }

func (overdue) Deadline() (time.Time, bool) { return time.Unix(1, 0), true }

// The lease of a lost reply is released, even if the store denied the later attempts
// because of another rule.
func TestAcquireDegradedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memory.New(nil)
		st := &weirtest.Hooked{Store: mem, Lose: fmt.Errorf("lost: %w", store.ErrUnavailable)}
		calls := 0
		st.Before = func(context.Context, *store.Script) error {
			if calls++; calls > 1 {
				st.Lose = nil
			}
			return nil
		}
		plain := weirtest.NewPolicy(t, st, weirtest.Rules(
			weir.Rule{Name: "jobs", Algorithm: oneJob, Cost: 1},
			weir.Rule{Name: "starts", Algorithm: algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 1}}))
		l := weirtest.Wrap(t, plain, outage.New(&outage.Options{Budget: time.Hour, Failures: 1000}).Wrap)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if lease, err := l.Acquire(ctx, weir.Request{Key: weir.KeyOf("u")}); lease != nil || !errors.Is(err, weir.ErrDenied) || calls < 3 {
			t.Errorf("got %+v, %v after %d calls, want ErrDenied", lease, err, calls)
		}
		if res := weirtest.Left(t, weirtest.Only(t, plain, "jobs"), "u"); res.Remaining != 1 {
			t.Errorf("got %+v, want that the lease is free", res)
		}
	})
}

// KeepAlive holds a lease until its context ends. It renews the lease each time that a
// third of the lease time has passed.
func TestKeepAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &recorder{Store: memory.New(nil)}
		l := weirtest.New(t, st, oneJob)
		lease, err := l.TryAcquire(t.Context(), weir.Request{Key: weir.KeyOf("u")})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour+time.Second)
		defer cancel()
		st.evals = 0
		lease.KeepAlive(ctx, func(err error) { t.Errorf("lost: %v", err) })
		if st.evals != 180 {
			t.Errorf("%d renewals in an hour, want 180", st.evals)
		}
		if held, err := lease.Release(t.Context()); !held || err != nil {
			t.Errorf("Release: got %v, %v", held, err)
		}
	})
}

// KeepAlive renews the leases of shadow rules in time, even if they are shorter. A
// renewal that fails does not lose the lease of the enforced rule earlier.
func TestKeepAliveShadow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		next := func(d time.Duration) weir.Rule {
			return weir.Rule{Name: "next", Algorithm: algorithm.Concurrency{Limit: 2, Lease: d}, Shadow: true}
		}
		l := weirtest.NewPolicy(t, st, weirtest.Rules(weir.Rule{Name: "jobs", Algorithm: oneJob}, next(time.Hour)))
		l = weirtest.With(t, l, next(600*time.Millisecond)) // a plan's
		shadow := weirtest.Only(t, l, "next")
		lease, err := l.TryAcquire(t.Context(), weir.Request{Key: weir.KeyOf("u")})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		lost := make(chan time.Time, 1)
		go lease.KeepAlive(ctx, func(error) { lost <- time.Now() })
		for range 1000 {
			if time.Sleep(100 * time.Millisecond); weirtest.Left(t, shadow, "u").Remaining != 1 {
				t.Fatal("the lease of the shadow rule has expired")
			}
		}
		synctest.Wait()
		start := time.Now()
		st.Set(weirtest.Down)
		if took := (<-lost).Sub(start); took < oneJob.Lease-time.Second || took > oneJob.Lease {
			t.Errorf("the lease was lost after an outage of %v, want about %v", took, oneJob.Lease)
		}
	})
}

// A shadow rule leaves a renewal as much time as it has without the shadow rule.
func TestKeepAliveShadowSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &weirtest.Hooked{Store: memory.New(nil)}
		l := weirtest.NewPolicy(t, st, weirtest.Rules(
			weir.Rule{Name: "jobs", Algorithm: oneJob},
			weir.Rule{Name: "next", Algorithm: algorithm.Concurrency{Limit: 2, Lease: 600 * time.Millisecond}, Shadow: true},
		))
		lease, err := l.TryAcquire(t.Context(), weir.Request{Key: weir.KeyOf("u")})
		if err != nil {
			t.Fatal(err)
		}
		st.Before = func(ctx context.Context, _ *store.Script) error { return sleep.For(ctx, 5*time.Second) }
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		lease.KeepAlive(ctx, func(err error) { t.Errorf("lost: %v", err) })
	})
}

// KeepAlive counts from the last renewal, so it keeps the lease if it is started late,
// and if each renewal takes long.
func TestKeepAliveLate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ started, renewal time.Duration }{
		{started: 55 * time.Second},
		{started: 55 * time.Second, renewal: 4 * time.Second},
		{renewal: 19 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			st := &weirtest.Hooked{Store: memory.New(nil)}
			l := weirtest.New(t, st, oneJob)
			lease, err := l.TryAcquire(t.Context(), weir.Request{Key: weir.KeyOf("u")})
			if err != nil {
				t.Fatal(err)
			}
			st.Before = func(context.Context, *store.Script) error {
				time.Sleep(tt.renewal)
				return nil
			}
			time.Sleep(tt.started)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			start := time.Now()
			lease.KeepAlive(ctx, func(err error) { t.Errorf("%+v: lost after %v: %v", tt, time.Since(start), err) })
		})
	}
}

// A renewal of KeepAlive that hangs does not lose a lease that its user renewed
// meanwhile.
func TestKeepAliveBeside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var renewals atomic.Int64
		st := &weirtest.Hooked{Store: memory.New(nil)}
		st.Before = func(ctx context.Context, s *store.Script) error {
			if strings.HasSuffix(s.Name(), ".renew") && renewals.Add(1) == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		lease, err := weirtest.New(t, st, algorithm.Concurrency{Limit: 1, Lease: 1200 * time.Millisecond}).TryAcquire(t.Context(), weir.Request{Key: weir.KeyOf("u")})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		time.AfterFunc(800*time.Millisecond, func() {
			if err := lease.Renew(ctx); err != nil {
				t.Error(err)
			}
		})
		lease.KeepAlive(ctx, func(err error) { t.Errorf("lost: %v", err) })
	})
}

// KeepAlive returns when the lease is released, and does not call lost.
func TestKeepAliveEndsWithRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := weirtest.New(t, memory.New(nil), oneJob)
		lease, err := l.TryAcquire(t.Context(), weir.Request{Key: weir.KeyOf("u")})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { lease.KeepAlive(t.Context(), func(err error) { t.Errorf("lost: %v", err) }) })
		time.Sleep(90 * time.Second)
		if held, err := lease.Release(t.Context()); !held || err != nil {
			t.Errorf("Release: got %v, %v", held, err)
		}
		wg.Wait()
		if took := time.Since(start); took != 90*time.Second {
			t.Errorf("it ended after %v, want 1m30s", took)
		}
		lease.KeepAlive(t.Context(), func(err error) { t.Errorf("lost after Release: %v", err) })
	})
}

// KeepAlive reports a lost lease once. If another process released the lease, it reports
// that at the next renewal. If an outage lasts, it reports that when the lease expires.
func TestKeepAliveLost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		outage  [2]time.Duration // from, to
		ended   bool             // another process releases the lease after 10 s
		hangs   bool             // calls in the outage return when their context ends
		want    time.Duration    // when the lease is lost; 0 means never
		because error
	}{
		{"ended", [2]time.Duration{}, true, false, 20 * time.Second, weir.ErrLeaseLost},
		{"a short outage", [2]time.Duration{15 * time.Second, 50 * time.Second}, false, false, 0, nil},
		{"a long outage", [2]time.Duration{15 * time.Second, time.Hour}, false, false, time.Minute, store.ErrUnavailable},
		{"a long outage later", [2]time.Duration{30 * time.Second, time.Hour}, false, false, 80 * time.Second, store.ErrUnavailable},
		{"a short outage in which calls hang", [2]time.Duration{15 * time.Second, 30 * time.Second}, false, true, 0, nil},
		{"a long outage in which calls hang", [2]time.Duration{15 * time.Second, time.Hour}, false, true, time.Minute, context.DeadlineExceeded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				st := &weirtest.Hooked{Store: memory.New(nil), Before: func(ctx context.Context, _ *store.Script) error {
					now := time.Since(start)
					switch {
					case now < tt.outage[0] || now >= tt.outage[1]:
						return nil
					case tt.hangs:
						<-ctx.Done()
						return ctx.Err()
					default:
						return store.ErrUnavailable
					}
				}}
				l := weirtest.New(t, st, oneJob)
				lease, err := l.TryAcquire(t.Context(), weir.Request{Key: weir.KeyOf("u")})
				if err != nil {
					t.Fatal(err)
				}
				if tt.ended {
					time.AfterFunc(10*time.Second, func() {
						_, _ = l.Decide(t.Context(), weir.Request{Key: weir.KeyOf("u"), Op: weir.Release, ID: lease.ID()}, nil)
					})
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				calls := 0
				lease.KeepAlive(ctx, func(err error) {
					calls++
					if took := time.Since(start); took != tt.want {
						t.Errorf("lost after %v, want %v", took, tt.want)
					}
					if !errors.Is(err, weir.ErrLeaseLost) || !errors.Is(err, tt.because) {
						t.Errorf("got %v, want ErrLeaseLost because of %v", err, tt.because)
					}
				})
				if (calls == 1) != (tt.want > 0) || calls > 1 {
					t.Errorf("lost was called %d times", calls)
				}
			})
		})
	}
}
