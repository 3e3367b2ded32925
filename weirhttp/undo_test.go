package weirhttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/guard"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirhttp"
)

// A request with a MaxWait reaches the handler when it is its turn. If the turn would come after its
// MaxWait or its deadline, or if the key is paused, it is denied at once, and reserves nothing: the
// next request gets the turn. If it ends while it waits, the turn is refunded.
func TestMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := weirtest.NewPolicy(t, memory.New(nil), weirtest.Rules(weir.Rule{Name: "pace", Algorithm: algorithm.LeakyBucket{Rate: algorithm.PerMinute(1), Queue: 10}}, pauseRule))
		start := time.Now()
		for i, tt := range []struct {
			wait, deadline, cancel, pause, took time.Duration
			heedless                            bool // the Decider heeds no deadline
			want                                int
			after                               string
		}{
			{weir.Never, time.Second, time.Hour, 0, 0, false, 204, ""},
			{weir.Never, time.Second, time.Hour, 0, 0, false, 429, "59"},
			{weir.Never, time.Minute - time.Microsecond, time.Hour, 0, 0, false, 429, "1"},
			{time.Minute - time.Microsecond, time.Hour, time.Hour, 0, 0, false, 429, "1"},
			{time.Minute, time.Hour, time.Hour, 0, time.Minute, false, 204, ""},
			{weir.Never, time.Hour, time.Second, 0, time.Minute + time.Second, false, 499, ""},
			{weir.Never, time.Second, time.Hour, 0, time.Minute + 2*time.Second, true, 503, ""},
			{weir.Never, time.Hour, time.Hour, 0, 2 * time.Minute, false, 204, ""},
			{weir.Never, time.Hour, time.Hour, 2 * time.Minute, 2 * time.Minute, false, 429, "120"},
		} {
			limit, errs := newMiddleware(t, deciderFunc(func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
				if tt.heedless && r.Op == weir.Consume {
					r.MaxWait = weir.Never
				}
				return lim.Decide(ctx, r, each)
			}), asking(weir.Request{MaxWait: tt.wait}), weirhttp.Options{FailOpen: true})
			if tt.pause > 0 {
				if _, err := lim.Pause(t.Context(), tt.pause, "all"); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), tt.deadline)
			time.AfterFunc(tt.cancel, cancel)
			w := serve(ctx, limit(new(counting)))
			cancel()
			if took := time.Since(start); w.Code != tt.want || took != tt.took || w.Header().Get("Retry-After") != tt.after || (len(*errs) == 1) != (tt.want == 503) {
				t.Errorf("request %d: got status %d after %v, Retry-After %q, errors %v, want %+v", i, w.Code, took, w.Header().Get("Retry-After"), *errs, tt)
			}
		}
	})
}

// A concurrency limit holds a lease while the handler runs, even if a wrapper leaves out the results of
// the rules, and hides its limiter.
func TestLease(t *testing.T) {
	lim := newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: time.Hour})
	limit, errs := newMiddleware(t, deciderFunc(func(ctx context.Context, r weir.Request, _ []weir.Result) (weir.Result, error) {
		return lim.Decide(ctx, r, nil)
	}), all, weirhttp.Options{})
	w := serve(t.Context(), limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if n := remaining(t, lim); n != 0 {
			t.Errorf("%d leases are free during the handler", n)
		}
	})))
	if w.Code != 200 || remaining(t, lim) != 1 || len(*errs) > 0 {
		t.Errorf("got status %d, errors %v and %d free leases, want 1", w.Code, *errs, remaining(t, lim))
	}
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
				end.opts.Reject = func(w http.ResponseWriter, _ *http.Request, why weirhttp.Rejection) {
					if end.status == 499 || why.Status != end.status || why.Err == nil {
						t.Errorf("%s, %+v: got rejection %+v", name, end, why)
					}
				}
				limit, errs := newMiddleware(t, observed{lim, func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
					if r.Op != weir.Consume {
						undos++
					} else if lost {
						time.AfterFunc(tt.late, func() { _, _ = lim.Decide(context.WithoutCancel(ctx), r, nil) })
						<-ctx.Done()
						return weir.Result{}, ctx.Err()
					}
					return lim.Decide(ctx, r, each)
				}}, asking(tt.req), end.opts)
				ctx, cancel := context.WithTimeout(t.Context(), end.deadline)
				time.AfterFunc(end.cancel, cancel)
				start, change := time.Now(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { r.Header.Set("Changed", "yes") })
				if w := serve(ctx, limit(change)); w.Code != end.status || time.Since(start) != 100*time.Millisecond {
					t.Errorf("%s, %+v: got status %d after %v", name, end, w.Code, time.Since(start))
				}
				sleep := func(http.ResponseWriter, *http.Request) {
					time.Sleep(time.Minute)
					synctest.Wait()
					if got := (held{undos, remaining(t, lim)}); got != want || len(*errs) != end.errs {
						t.Errorf("%s, %+v: got %+v, errors %v, want %+v", name, end, got, *errs, want)
					}
				}
				if lost = false; tt.req.ID == "" {
					sleep(nil, nil)
				} else if w := serve(t.Context(), limit(http.HandlerFunc(sleep))); w.Code != 200 { // a retry
					t.Errorf("%s: the retry got status %d", name, w.Code)
				}
			})
		}
	}
}

// An undo is repeated only after a lost reply: not after the handler, nor after an answer of the
// store. Nothing is undone if the store was not asked, or if there is no lease under an ID of the
// caller. An undo that fails after a degraded denial is not reported for each request.
func TestNoLateGrant(t *testing.T) {
	for name, tt := range map[string]struct {
		gone     bool // the client, before the decision
		id       string
		allowed  bool
		degraded error
		err      error // after which the client has gone
		undos    int
		errs     int
	}{
		"a handler":                   {false, "", true, nil, nil, 1, 1},
		"an answer":                   {false, "", false, nil, store.ErrScript, 1, 1},
		"a denial":                    {false, "", false, nil, nil, 0, 0},
		"an outage":                   {false, "", false, store.ErrUnavailable, nil, 4, 0},
		"an outage, the caller's ID":  {false, "mine", false, store.ErrUnavailable, nil, 0, 0},
		"an outage, without a call":   {false, "", false, guard.ErrUnsent, nil, 0, 0},
		"a client that had gone":      {true, "", false, nil, context.Canceled, 0, 0},
		"the caller's ID, had gone":   {true, "mine", false, nil, context.Canceled, 0, 0},
		"the caller's ID, a handler":  {false, "mine", true, nil, nil, 1, 1},
		"the caller's ID, has gone":   {false, "mine", false, nil, context.Canceled, 0, 0},
		"the caller's ID, an answer ": {false, "mine", false, nil, store.ErrScript, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			undos := 0
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			jobs := newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: time.Hour})
			limit, errs := newMiddleware(t, observed{jobs, func(_ context.Context, r weir.Request, _ []weir.Result) (weir.Result, error) {
				if r.Op != weir.Consume {
					undos++
					return weir.Result{}, store.ErrUnavailable
				}
				if tt.err != nil {
					cancel()
				}
				return weir.Result{Type: weir.LeaseRule, Rule: "job", Allowed: tt.allowed, Degraded: tt.degraded}, tt.err
			}}, asking(weir.Request{ID: tt.id}), weirhttp.Options{FailOpen: true})
			if tt.gone {
				cancel()
			}
			w := httptest.NewRecorder()
			limit(new(counting)).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			time.Sleep(time.Minute)
			if synctest.Wait(); undos != tt.undos || len(*errs) != tt.errs || tt.err != nil && (w.Code != 499 || w.Body.Len() > 0) {
				t.Errorf("%s: status %d, %d undos, errors %v, want %+v", name, w.Code, undos, *errs, tt)
			}
		})
	}
}
