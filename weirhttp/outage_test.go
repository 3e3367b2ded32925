package weirhttp_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirhttp"
)

// A request over the share of the process is answered with 429. A request that is denied
// without a count can be within its limit, and is answered with 503 unless it can never
// be allowed.
func TestDegraded(t *testing.T) {
	type answer struct {
		status int
		after  string
		body   string
		cost   string
	}
	for _, tt := range []struct {
		name    string
		options outage.Options
		want    []answer
	}{
		{"closed", outage.Options{}, []answer{
			{503, "1", "temporary-reduced-capacity", ""},
			{429, "", "quota-exceeded", "four"},
		}},
		{"local", outage.Options{Fallback: outage.Local, Processes: 2}, []answer{
			{204, "", "", ""},
			{429, "1", "quota-exceeded", ""},
			{429, "", "quota-exceeded", "four"},
		}},
		{"the process's memory is full", outage.Options{Fallback: outage.Local, Processes: 2, MaxKeys: 1}, []answer{
			{204, "", "", ""},
			{503, "1", "temporary-reduced-capacity", "1, of another caller"},
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			lim, err := weir.New("test", down{memory.New(nil)}, algorithm.FixedWindow{Limit: 3, Window: time.Hour}, nil)
			if err != nil {
				t.Fatal(err)
			}
			tt.options.Failures = 1
			if lim, err = lim.Wrap(outage.New(&tt.options).Wrap); err != nil {
				t.Fatal(err)
			}
			request := func(r *http.Request) (weir.Request, error) {
				req, err := all(r)
				switch cost := r.Header.Get("Cost"); cost {
				case "", "four":
					req.Cost = int64(len(cost))
				default:
					req.Key = weir.KeyOf(cost)
				}
				return req, err
			}
			limit, errs := newMiddleware(t, lim, request, weirhttp.Options{})
			for i, want := range tt.want {
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r.Header.Set("Cost", want.cost)
				w := serve(limit(new(counting)), r)
				if w.Code != want.status || w.Header().Get("Retry-After") != want.after || !strings.Contains(w.Body.String(), want.body) {
					t.Errorf("%s: request %d: got %d, %v and %s, want %+v", tt.name, i, w.Code, w.Header(), w.Body, want)
				}
			}
			if len(*errs) != 0 {
				t.Errorf("%s: got errors %v", tt.name, *errs)
			}
		})
	}
}

// unsure is lim, whose store decides, and whose outage.Breaker denies each request all
// the same, because the reply came too late. While away is set, nothing else reaches the
// store.
func unsure(lim *weir.Limiter, away *bool) *weir.Limiter {
	return wrapped(lim, func(next weir.Decider) weir.Decider {
		return deciderFunc(func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
			switch {
			case r.Op != weir.Consume && *away:
				return weir.Result{}, store.ErrUnavailable
			case r.Op != weir.Consume:
				return next.Decide(ctx, r, each)
			}
			_, err := next.Decide(ctx, r, each)
			return weir.Result{Delay: weir.Never, RetryAfter: time.Second, Degraded: store.ErrUnavailable}, err
		})
	})
}

// A lease or a turn that the store may hold is returned if an outage.Breaker denies the
// request. If that fails, the outage is not reported for each request.
func TestDegradedHeld(t *testing.T) {
	for _, away := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			want := func(what string, lim *weir.Limiter, free int64) {
				t.Helper()
				synctest.Wait()
				if away {
					free = 0
				}
				if res, err := lim.Peek(t.Context(), "all"); err != nil || res.Remaining != free {
					t.Errorf("away %v: %s: %+v, %v, want %d remaining", away, what, res, err, free)
				}
			}
			with := func(id string, wait time.Duration) weirhttp.RequestFunc {
				return func(r *http.Request) (weir.Request, error) {
					req, err := all(r)
					req.ID, req.MaxWait = id, wait
					return req, err
				}
			}
			leases := newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: time.Hour})
			limit, errs := newMiddleware(t, unsure(leases, &away), with("", 0), weirhttp.Options{})
			next := new(counting)
			if w := serve(limit(next), httptest.NewRequest(http.MethodGet, "/", nil)); w.Code != 503 || next.calls > 0 {
				t.Errorf("got %d and %d calls, want 503 and none", w.Code, next.calls)
			}
			want("middleware", leases, 1)
			if len(*errs) > 0 {
				t.Errorf("got errors %v", *errs)
			}
			turns := newLimiter(t, algorithm.LeakyBucket{Rate: algorithm.PerHour(1), Queue: 5})
			rt := &weirhttp.Transport{Limiter: unsure(turns, &away), Base: new(service), Request: all}
			if err := send(t.Context(), t, rt, "http://a.test"); !errors.Is(err, weir.ErrDenied) {
				t.Errorf("got %v, want ErrDenied", err)
			}
			want("transport", turns, 6)
			// A request with a MaxWait and an ID can repeat an earlier one, which stays.
			rt.Request = with("1", 0)
			if err := send(t.Context(), t, rt, "http://a.test"); !errors.Is(err, weir.ErrDenied) {
				t.Errorf("got %v, want ErrDenied", err)
			}
			want("transport with an ID", turns, 0)
			for id, free := range map[string]int64{"": 6, "1": 0} {
				turns := newLimiter(t, algorithm.LeakyBucket{Rate: algorithm.PerHour(1), Queue: 5})
				limit, _ := newMiddleware(t, unsure(turns, &away), with(id, time.Minute), weirhttp.Options{})
				serve(limit(next), httptest.NewRequest(http.MethodGet, "/", nil))
				want("middleware with a MaxWait and the ID "+id, turns, free)
			}
		})
	}
}

// A request with an ID of its own can repeat an earlier one, which was served. If the
// repeated request is cancelled, or if its reply is lost, the earlier one keeps its
// tokens.
func TestEarlierKept(t *testing.T) {
	errFirst := errors.New("the first is cancelled while it waits, and the second goes on")
	for _, lost := range []error{nil, errFirst, context.Canceled, context.DeadlineExceeded} { // nil: the second is cancelled while it waits
		synctest.Test(t, func(t *testing.T) {
			request := func(r *http.Request) (weir.Request, error) {
				req, err := all(r)
				req.ID, req.MaxWait = r.Header.Get("ID"), weir.Never
				return req, err
			}
			for what, wrap := range map[string]func(*weir.Limiter) http.Handler{
				"middleware": func(lim *weir.Limiter) http.Handler {
					limit, _ := newMiddleware(t, lim, request, weirhttp.Options{})
					return limit(new(counting))
				},
				"transport": func(lim *weir.Limiter) http.Handler {
					rt := &weirhttp.Transport{Limiter: lim, Base: new(service), Request: request}
					return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
						if res, err := rt.RoundTrip(r); err == nil {
							_ = res.Body.Close()
						}
					})
				},
			} {
				plain := newLimiter(t, algorithm.LeakyBucket{Rate: algorithm.PerHour(1), Queue: 5})
				var fail func() // after the next decision
				h := wrap(wrapped(plain, func(next weir.Decider) weir.Decider {
					return deciderFunc(func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
						res, err := next.Decide(ctx, r, each)
						if fail != nil && r.Op == weir.Consume {
							fail()
							return weir.Result{}, lost
						}
						return res, err
					})
				}))
				ask := func(ctx context.Context, id string) {
					r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://a.test", nil)
					r.Header.Set("ID", id)
					serve(h, r)
				}
				start := time.Now()
				ask(t.Context(), "first")
				served := make(chan bool)
				first, cancelFirst := context.WithCancel(t.Context())
				go func() {
					defer close(served)
					ask(first, "x") // waits for an hour
				}()
				synctest.Wait()
				ctx, cancel := context.WithCancel(t.Context())
				switch lost {
				case nil:
					time.AfterFunc(time.Minute, cancel)
				case errFirst:
					time.AfterFunc(time.Minute, cancelFirst)
				default:
					fail = func() {
						if lost == context.Canceled {
							cancel()
						}
					}
				}
				ask(ctx, "x")
				cancel()
				synctest.Wait()
				fail = nil
				res, err := plain.Peek(t.Context(), "all")
				if want := 2*time.Hour - time.Since(start); err != nil || res.ResetAfter != want {
					t.Errorf("%s: %v: %+v, %v, want a full reset in %v", what, lost, res, err, want)
				}
				<-served
				cancelFirst()
			}
		})
	}
}

// A request with an ID and without a lease, which an outage.Breaker denies, is not
// released: the limiter would count an error.
func TestDegradedNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ops []weir.Op
		lim, err := unsure(newLimiter(t, algorithm.FixedWindow{Limit: 3, Window: time.Hour}), new(bool)).Wrap(observe.Observer(func(_ context.Context, d observe.Decision) {
			ops = append(ops, d.Request.Op)
		}).Wrap)
		if err != nil {
			t.Fatal(err)
		}
		limit, _ := newMiddleware(t, lim, func(r *http.Request) (weir.Request, error) {
			req, err := all(r)
			req.ID = "1"
			return req, err
		}, weirhttp.Options{})
		serve(limit(new(counting)), nil)
		synctest.Wait()
		if len(ops) != 1 {
			t.Errorf("%v, want one Consume", ops)
		}
	})
}
