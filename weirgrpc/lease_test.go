package weirgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirgrpc"
)

// A lease is renewed in time until the handler returns: if replies take long, if another lease of the
// key ends much later, if a shadow rule has shorter leases than the others, and if a rule without a
// Window is no lease. Then it is released.
func TestRenew(t *testing.T) {
	const s, short = time.Second, 600 * time.Millisecond
	jobs := func(lease time.Duration) weir.Rule {
		return weir.Rule{Name: "jobs", Algorithm: algorithm.Concurrency{Limit: 2, Lease: lease}}
	}
	next := weir.Rule{Name: "next", Algorithm: algorithm.Concurrency{Limit: 2, Lease: short}, Shadow: true}
	windowless := weir.Rule{Name: "rate", Algorithm: weirtest.Windowless(weirtest.Window(9, 3*s), 0)}
	for name, tt := range map[string]struct {
		lease   time.Duration
		rules   []weir.Rule   // the first one has leases of that time
		opaque  bool          // the Decider hides its limiter
		reply   time.Duration // how long a reply takes
		earlier time.Duration // the lease time of another lease of the key, in the rule jobs
		step    time.Duration // of the clock, after that lease
	}{
		"a lease":                {30 * s, []weir.Rule{jobs(30 * s)}, false, 0, 0, 0},
		"of an opaque Decider":   {30 * s, []weir.Rule{jobs(30 * s), windowless}, true, 0, 0, 0},
		"slow replies":           {3 * s, []weir.Rule{jobs(3 * s)}, true, 2100 * time.Millisecond, 0, 0},
		"slow replies, a second": {s, []weir.Rule{jobs(s)}, true, 700 * time.Millisecond, 0, 0},
		"a longer lease before":  {short, []weir.Rule{jobs(short)}, false, 0, time.Minute, 0},
		"the clock steps back":   {short, []weir.Rule{jobs(short)}, false, 0, short, -time.Hour},
		"a shorter shadow rule":  {short, []weir.Rule{next, jobs(time.Hour)}, false, 0, time.Minute, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			var step time.Duration
			st := memory.New(&memory.Options{Now: func() time.Time { return time.Now().Add(step) }})
			lim := weirtest.NewPolicy(t, st, weirtest.Rules(tt.rules...))
			watched := weirtest.Only(t, lim, tt.rules[0].Name)
			if tt.earlier > 0 {
				weirtest.Allow(t, weirtest.NewPolicy(t, st, weirtest.Rules(jobs(tt.earlier))), weir.Request{Key: weir.KeyOf("all"), ID: "other"})
				step = tt.step
			}
			var renewed atomic.Int64
			f := deciderFunc(func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
				if r.Op == weir.Renew {
					renewed.Add(1)
				}
				res, err := lim.Decide(ctx, r, each)
				time.Sleep(tt.reply)
				return res, err
			})
			d := weir.Decider(f)
			if !tt.opaque {
				d = wrapped(t, lim, f)
			}
			limit, errs := newInterceptor(t, d, all, weirgrpc.Options{})
			var during int64
			err := watch(t.Context(), serve(t, &service{handle: func(context.Context) error {
				during = free(t, watched)
				for range 200 {
					if time.Sleep(tt.lease / 20); free(t, watched) > during {
						t.Errorf("%s: the lease has expired while the handler runs", name)
						break
					}
				}
				return nil
			}}, limit))
			synctest.Wait() // a renewal can begin when the handler returns
			after, n := free(t, watched), renewed.Load()
			time.Sleep(time.Hour)
			if err != nil || after != during+1 || n < 10 || n > 40 || renewed.Load() != n || len(errs.all()) > 0 {
				t.Errorf("%s: got %v, %d and then %d free leases, %d and then %d renewals, errors %v: want 10 to 40 in 10 lease times", name, err, during, after, n, renewed.Load(), errs.all())
			}
		})
	}
}

// During an outage, a renewal is tried again ten times in the time between two. It is reported once, and a lost lease too. A renewal without an
// answer ends with the handler, and is not reported.
func TestRenewFails(t *testing.T) {
	for name, tt := range map[string]struct {
		fault func(ctx context.Context, lim *weir.Limiter) error // of each renewal while it holds
		until time.Duration                                      // how long it holds, after the first 35 s
		work  time.Duration                                      // how long the handler works
		want  error
		free  int64
	}{
		"an outage": {func(context.Context, *weir.Limiter) error { return store.ErrUnavailable }, 20 * time.Second, 5 * time.Minute, store.ErrUnavailable, 1},
		"no answer": {func(ctx context.Context, _ *weir.Limiter) error { <-ctx.Done(); return ctx.Err() }, time.Hour, 40*time.Second + time.Second/2, nil, 1},
		"another takes the place": {func(ctx context.Context, lim *weir.Limiter) error {
			if err := lim.Reset(ctx, "all"); err != nil {
				return err
			}
			_, err := lim.TryAcquire(ctx, weir.Request{Key: weir.KeyOf("all")})
			return err
		}, 10 * time.Second, time.Minute, weir.ErrLeaseLost, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			lim, start := newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: 30 * time.Second}), time.Now()
			var running, failed atomic.Int64
			limit, errs := newInterceptor(t, deciderFunc(func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
				if at := time.Since(start); r.Op == weir.Renew && at > 35*time.Second && at < 35*time.Second+tt.until {
					running.Add(1)
					defer running.Add(-1)
					if err := tt.fault(ctx, lim); err != nil {
						failed.Add(1)
						return weir.Result{}, err
					}
				}
				return lim.Decide(ctx, r, each)
			}), all, weirgrpc.Options{})
			err := check(t.Context(), serve(t, &service{handle: func(context.Context) error {
				for range 20 {
					if time.Sleep(tt.work / 20); free(t, lim) != 0 {
						t.Errorf("%s: the lease has expired", name)
					}
				}
				return nil
			}}, limit))
			synctest.Wait()
			list := errs.all()
			if err != nil || running.Load() != 0 || failed.Load() > 20 || free(t, lim) != tt.free || len(list) > 1 || (len(list) == 1) != (tt.want != nil) || !errors.Is(errors.Join(list...), tt.want) {
				t.Errorf("%s: got %v, %d renewals, %d failures, %d free leases, errors %v, want no renewal, at most 20, %d and %v", name, err, running.Load(), failed.Load(), free(t, lim), list, tt.free, tt.want)
			}
		})
	}
}

// What the store may hold of a call that does not reach its handler is undone, even if its caller has
// gone. An undo that fails after a degraded denial is not reported for each call.
func TestUndo(t *testing.T) {
	lease := func() algorithm.Algorithm { return algorithm.Concurrency{Limit: 1, Lease: time.Hour} }
	turn := func() algorithm.Algorithm { return algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 1} }
	lost := func(ctx context.Context, _ error) (weir.Result, error) { <-ctx.Done(); return weir.Result{}, ctx.Err() }
	denied := func(context.Context, error) (weir.Result, error) {
		return weir.Result{RetryAfter: time.Second, Degraded: store.ErrUnavailable}, nil
	}
	for name, tt := range map[string]struct {
		limit   func() algorithm.Algorithm
		answer  func(ctx context.Context, err error) (weir.Result, error) // instead of the store's
		req     weir.Request
		timeout time.Duration
		away    error // the answer to the undo
		want    codes.Code
		errs    int
		free    int64
	}{
		"cancelled":             {lease, lost, weir.Request{}, 0, nil, codes.Canceled, 0, 1},
		"cancelled, and away":   {lease, lost, weir.Request{}, 0, store.ErrUnavailable, codes.Canceled, 1, 0},
		"the caller's ID":       {lease, lost, weir.Request{ID: "mine"}, 0, nil, codes.Canceled, 0, 0},
		"a timeout":             {lease, lost, weir.Request{}, time.Second, nil, codes.Unavailable, 1, 1},
		"a timeout, and away":   {lease, lost, weir.Request{}, time.Second, store.ErrUnavailable, codes.Unavailable, 2, 0},
		"degraded":              {lease, denied, weir.Request{}, 0, nil, codes.Unavailable, 0, 1},
		"degraded, and away":    {lease, denied, weir.Request{}, 0, store.ErrUnavailable, codes.Unavailable, 0, 0},
		"cancelled in its wait": {turn, nil, weir.Request{MaxWait: weir.Never}, 0, nil, codes.Canceled, 0, 1},
	} {
		each(t, name, func(t *testing.T, call callFunc) {
			lim, s := newLimiter(t, tt.limit()), new(service)
			if tt.answer == nil {
				weirtest.Allow(t, lim, weir.Request{Key: weir.KeyOf("all")})
			}
			limit, errs := newInterceptor(t, wrapped(t, lim, func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
				if r.Op != weir.Consume && tt.away != nil {
					return weir.Result{}, tt.away
				}
				res, err := lim.Decide(ctx, r, each)
				if r.Op == weir.Consume && tt.answer != nil {
					return tt.answer(ctx, err)
				}
				return res, err
			}), asking(tt.req), weirgrpc.Options{Timeout: tt.timeout})
			c := serve(t, s, limit)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(2*time.Second, cancel)
			_ = call(ctx, c)
			time.Sleep(time.Minute)
			synctest.Wait()
			if calls, got := s.seen(); fmt.Sprint(got) != fmt.Sprint([]codes.Code{tt.want}) || calls > 0 || len(errs.all()) != tt.errs || free(t, lim) != tt.free {
				t.Errorf("got %v, %d calls of the handler, errors %v and %d free, want %v, %d and %d", got, calls, errs.all(), free(t, lim), tt.want, tt.errs, tt.free)
			}
		})
	}
}
