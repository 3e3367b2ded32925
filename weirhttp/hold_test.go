package weirhttp_test

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/guard"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirhttp"
)

// A request with a MaxWait reaches the handler when it is its turn. If the turn would come
// after its MaxWait or its deadline, or if the key is paused, it is denied at once, and
// reserves nothing: the next request gets the turn.
func TestMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := weirtest.NewPolicy(t, memory.New(nil), weirtest.Rules(weir.Rule{Name: "pace", Algorithm: algorithm.LeakyBucket{Rate: algorithm.PerMinute(1), Queue: 10}}, pauseRule))
		wait := weir.Never
		limit, errs := newMiddleware(t, lim, func(r *http.Request) (weir.Request, error) {
			req, err := all(r)
			req.MaxWait = wait
			return req, err
		}, weirhttp.Options{})
		start := time.Now()
		for i, tt := range []struct {
			wait, timeout, pause, took time.Duration
			want                       int
			after                      string
		}{
			{weir.Never, time.Second, 0, 0, 204, ""},
			{weir.Never, time.Second, 0, 0, 429, "59"},
			{weir.Never, time.Minute - time.Microsecond, 0, 0, 429, "1"},
			{time.Minute - time.Microsecond, time.Hour, 0, 0, 429, "1"},
			{time.Minute, time.Hour, 0, time.Minute, 204, ""},
			{weir.Never, time.Hour, 0, 2 * time.Minute, 204, ""},
			{weir.Never, time.Hour, 2 * time.Minute, 2 * time.Minute, 429, "120"},
		} {
			if tt.pause > 0 {
				if _, err := lim.Pause(t.Context(), tt.pause, "all"); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), tt.timeout)
			wait = tt.wait
			w := serve(limit(new(counting)), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
			cancel()
			if took := time.Since(start); w.Code != tt.want || took != tt.took || w.Header().Get("Retry-After") != tt.after {
				t.Errorf("request %d: got status %d after %v, Retry-After %q, want %+v", i, w.Code, took, w.Header().Get("Retry-After"), tt)
			}
		}
		if len(*errs) > 0 {
			t.Errorf("got errors %v, want none", *errs)
		}
	})
}

// A request that ends during its wait is refunded. The decider does not heed the
// deadline.
func TestMaxWaitEnds(t *testing.T) {
	for _, tt := range []struct {
		cancel, deadline time.Duration
		want, errs       int
	}{{time.Second, time.Hour, 499, 0}, {time.Hour, time.Second, 503, 1}} {
		synctest.Test(t, func(t *testing.T) {
			lim := newLimiter(t, algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 1})
			patient := deciderFunc(func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
				if r.MaxWait > 0 {
					r.MaxWait = weir.Never
				}
				return lim.Decide(ctx, r, each)
			})
			limit, errs := newMiddleware(t, patient, func(r *http.Request) (weir.Request, error) {
				req, err := all(r)
				req.MaxWait = weir.Never
				return req, err
			}, weirhttp.Options{FailOpen: true})
			var next counting
			serve(limit(&next), nil)
			ctx, cancel := context.WithTimeout(t.Context(), tt.deadline)
			defer cancel()
			time.AfterFunc(tt.cancel, cancel)
			w := serve(limit(&next), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
			if w.Code != tt.want || next.calls != 1 || len(*errs) != tt.errs {
				t.Errorf("got status %d, %d calls, errors %v, want %d and one call", w.Code, next.calls, *errs, tt.want)
			}
			res, err := lim.Peek(t.Context(), "all")
			if err != nil || res.RetryAfter != 59*time.Second {
				t.Errorf("got %+v, %v: want to retry after 59s, as if the second request had not been made", res, err)
			}
		})
	}
}

// A concurrency limit holds a lease while the handler runs, even if it panics, and even
// if a wrapper leaves out the results of the rules.
func TestLease(t *testing.T) {
	lim := newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: time.Hour})
	testLease(t, lim)
	testLease(t, deciderFunc(func(ctx context.Context, r weir.Request, _ []weir.Result) (weir.Result, error) {
		return lim.Decide(ctx, r, nil)
	}))
}

func testLease(t *testing.T, lim weir.Decider) {
	t.Helper()
	limit, errs := newMiddleware(t, lim, func(r *http.Request) (weir.Request, error) {
		req, err := all(r)
		req.ID = rand.Text()
		return req, err
	}, weirhttp.Options{})
	inner := new(counting)
	h := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if w := serve(limit(inner), nil); w.Code != 429 {
			t.Errorf("a second request at the same time: got status %d, want 429", w.Code)
		}
		if r.URL.Path == "/panic" {
			panic("handler")
		}
	}))
	for _, path := range []string{"/", "/panic", "/"} {
		func() {
			defer func() { _ = recover() }()
			if w := serve(h, httptest.NewRequest(http.MethodGet, path, nil)); w.Code != 200 {
				t.Errorf("%s: got status %d, want 200", path, w.Code)
			}
		}()
	}
	if w := serve(limit(inner), nil); w.Code != 204 || inner.calls != 1 || len(*errs) > 0 {
		t.Errorf("got status %d, %d calls, errors %v, want 204, 1 and none", w.Code, inner.calls, *errs)
	}
}

// An ID of a limiter without leases does no harm: a handler can use it for a refund.
func TestID(t *testing.T) {
	lim := newLimiter(t, algorithm.FixedWindow{Limit: 1, Window: time.Hour})
	req := weir.Request{Key: weir.KeyOf("all"), ID: "one"}
	limit, errs := newMiddleware(t, lim, func(*http.Request) (weir.Request, error) { return req, nil }, weirhttp.Options{})
	w := serve(limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if ok, err := lim.Refund(r.Context(), req); !ok.Found || err != nil {
			t.Errorf("refund: got %v, %v, want true", ok, err)
		}
	})), nil)
	if res, err := lim.Peek(t.Context(), "all"); err != nil || res.Remaining != 1 || w.Code != 200 || len(*errs) > 0 {
		t.Errorf("got status %d, errors %v, %+v, %v, want 200 and a full limit", w.Code, *errs, res, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w = serve(limit(new(counting)), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
	if w.Code != 499 || len(*errs) > 0 {
		t.Errorf("cancelled: got status %d, errors %v, want 499 and none", w.Code, *errs)
	}
}

// An observed Decider lets f answer instead of it.
type observed struct {
	weir.Decider
	f deciderFunc
}

func (o observed) Unwrap() weir.Decider { return o.Decider }

func (o observed) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	return o.f(ctx, r, each)
}

// A lease or a turn whose reply is lost is undone, if the middleware made the ID. If the store
// grants it after the undo, a later one undoes it. With FailOpen, nothing is undone, but the
// lease is released after the handler. An ID of the caller is not undone: a retry with it keeps
// its lease.
func TestLostReply(t *testing.T) {
	const late, end = 300 * time.Millisecond, 100 * time.Millisecond
	type held struct {
		undos int
		free  int64
	}
	job, turn := algorithm.Concurrency{Limit: 1, Lease: time.Hour}, algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 1}
	for name, tt := range map[string]struct {
		a    algorithm.Algorithm
		req  weir.Request
		late time.Duration // of the grant
		want [2]held       // without and with FailOpen
	}{
		"a lease":           {job, weir.Request{}, 0, [2]held{{1, 1}, {1, 1}}},
		"a lease, late":     {job, weir.Request{}, late, [2]held{{2, 1}, {2, 1}}},
		"a short lease":     {algorithm.Concurrency{Limit: 1, Lease: 900 * time.Millisecond}, weir.Request{}, late, [2]held{{1, 1}, {1, 1}}},
		"no lease":          {turn, weir.Request{}, late, [2]held{{0, 0}, {0, 0}}},
		"a turn":            {turn, weir.Request{MaxWait: time.Hour}, 0, [2]held{{1, 1}, {0, 0}}},
		"a turn, late":      {turn, weir.Request{MaxWait: time.Hour}, late, [2]held{{2, 1}, {0, 0}}},
		"the caller's":      {job, weir.Request{ID: "mine"}, late, [2]held{{0, 0}, {1, 0}}},
		"the caller's turn": {turn, weir.Request{MaxWait: time.Hour, ID: "mine"}, late, [2]held{{0, 0}, {0, 0}}},
	} {
		for _, end := range []struct {
			opts             weirhttp.Options
			cancel, deadline time.Duration
			status, errs     int
		}{
			{weirhttp.Options{}, end, time.Hour, 499, 0},
			{weirhttp.Options{}, time.Hour, end, 503, 1},
			{weirhttp.Options{Timeout: end}, time.Hour, time.Hour, 503, 1},
			{weirhttp.Options{Timeout: end, FailOpen: true}, time.Hour, time.Hour, 200, 1},
		} {
			synctest.Test(t, func(t *testing.T) {
				lim, undos, lost, want := newLimiter(t, tt.a), 0, true, tt.want[0]
				if end.opts.FailOpen {
					want = tt.want[1]
				}
				d := observed{lim, func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
					if r.Op != weir.Consume {
						undos++
					} else if lost {
						time.AfterFunc(tt.late, func() { _, _ = lim.Decide(context.WithoutCancel(ctx), r, nil) })
						<-ctx.Done()
						return weir.Result{}, ctx.Err()
					}
					return lim.Decide(ctx, r, each)
				}}
				request := func(*http.Request) (weir.Request, error) {
					req := tt.req
					req.Key = weir.KeyOf("all")
					return req, nil
				}
				limit, errs := newMiddleware(t, d, request, end.opts)
				ctx, cancel := context.WithTimeout(t.Context(), end.deadline)
				time.AfterFunc(end.cancel, cancel)
				change := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { r.Header.Set("Changed", "yes") })
				if w := serve(limit(change), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx)); w.Code != end.status {
					t.Errorf("%s, %+v: got status %d", name, end, w.Code)
				}
				sleep := func(http.ResponseWriter, *http.Request) {
					time.Sleep(time.Minute)
					synctest.Wait()
					if res, err := lim.Peek(t.Context(), "all"); err != nil || (held{undos, res.Remaining}) != want || len(*errs) != end.errs {
						t.Errorf("%s, %+v: got %+v, %v after %d undos, errors %v, want %+v", name, end, res, err, undos, *errs, want)
					}
				}
				if lost = false; tt.req.ID == "" {
					sleep(nil, nil)
				} else if w := serve(limit(http.HandlerFunc(sleep)), nil); w.Code != 200 { // a retry
					t.Errorf("%s: the retry got status %d", name, w.Code)
				}
			})
		}
	}
}

// An undo is repeated only after a lost reply: not after the handler, nor after an answer of the
// store. Nothing is undone if the store was not asked.
func TestNoLateGrant(t *testing.T) {
	lease := weir.Result{Type: weir.LeaseRule, Rule: "job"}
	for name, tt := range map[string]struct {
		gone     bool // the client, before the decision
		allowed  bool
		degraded error
		err      error // after which the client has gone
		undos    int
	}{
		"a handler":                 {false, true, nil, nil, 1},
		"an answer":                 {false, false, nil, store.ErrScript, 1},
		"a denial":                  {false, false, nil, nil, 0},
		"an outage":                 {false, false, store.ErrUnavailable, nil, 4},
		"an outage, without a call": {false, false, guard.ErrUnsent, nil, 0},
		"a client that has gone":    {true, false, nil, context.Canceled, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			undos := 0
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			jobs := newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: time.Hour})
			limit, _ := newMiddleware(t, observed{jobs, func(_ context.Context, r weir.Request, _ []weir.Result) (weir.Result, error) {
				if r.Op != weir.Consume {
					undos++
					return weir.Result{}, store.ErrUnavailable
				}
				if tt.err != nil {
					cancel()
				}
				lease.Allowed, lease.Degraded = tt.allowed, tt.degraded
				return lease, tt.err
			}}, all, weirhttp.Options{})
			if tt.gone {
				cancel()
			}
			serve(limit(new(counting)), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
			time.Sleep(time.Minute)
			if synctest.Wait(); undos != tt.undos {
				t.Errorf("%s: %d undos, want %d", name, undos, tt.undos)
			}
		})
	}
}
