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
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirgrpc"
)

// free returns how many leases, or tokens, of the key of every call are free.
func free(t *testing.T, lim *weir.Limiter) int64 {
	t.Helper()
	res, err := lim.Peek(t.Context(), "all")
	if err != nil {
		t.Fatal(err)
	}
	return res.Remaining
}

// A lease is held while the handler runs, and released whatever ends the call.
func TestLease(t *testing.T) {
	for _, tt := range []struct {
		name   string
		handle func(context.Context) error
		want   codes.Code // that the client sees
	}{
		{"returns", func(context.Context) error { return nil }, codes.OK},
		{"fails", func(context.Context) error { return status.Error(codes.NotFound, "nothing") }, codes.NotFound},
		{"panics", func(context.Context) error { panic("handler") }, codes.Aborted},
		{"is cancelled", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, codes.Canceled},
	} {
		for kind, call := range kinds {
			t.Run(kind+" "+tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					lim := newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: time.Hour})
					limit, errs := newInterceptor(t, lim, all, weirgrpc.Options{})
					s := new(service)
					c := serve(t, s, limit)
					s.handle = func(ctx context.Context) error {
						if n := free(t, lim); n != 0 {
							t.Errorf("while the handler runs: got %d free leases, want none", n)
						}
						return tt.handle(ctx)
					}
					for range 2 {
						ctx, cancel := context.WithCancel(t.Context())
						done := make(chan error, 1)
						go func() { done <- call(ctx, c) }()
						synctest.Wait()
						if tt.want == codes.Canceled { // another call at the same time is denied
							if err := call(t.Context(), c); status.Code(err) != codes.ResourceExhausted {
								t.Errorf("a second call at the same time: got %v, want RESOURCE_EXHAUSTED", err)
							}
						}
						cancel()
						if err := <-done; status.Code(err) != tt.want {
							t.Errorf("got %v, want %v", err, tt.want)
						}
						synctest.Wait()
						if n := free(t, lim); n != 1 {
							t.Errorf("got %d free leases, want 1", n)
						}
					}
					if s.count() != 2 || len(errs.all()) > 0 {
						t.Errorf("got %d calls of the handler, errors %v, want 2 and none", s.count(), errs.all())
					}
				})
			})
		}
	}
}

// A lease is renewed until the handler returns, even after an outage, and is then
// released. Another rule without a Window is no lease to renew.
func TestRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := weirtest.NewPolicy(t, memory.New(nil), weirtest.Rules(
			weir.Rule{Name: "jobs", Algorithm: algorithm.Concurrency{Limit: 1, Lease: 30 * time.Second}},
			weir.Rule{Name: "rate", Algorithm: weirtest.Windowless(weirtest.Window(9, 3*time.Second), 0)}))
		var down atomic.Bool
		var renewed atomic.Int64
		d := deciderFunc(func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
			if r.Op == weir.Renew {
				renewed.Add(1)
				if down.Load() {
					return weir.Result{}, store.ErrUnavailable
				}
			}
			return lim.Decide(ctx, r, each)
		})
		limit, errs := newInterceptor(t, d, all, weirgrpc.Options{})
		s := new(service)
		c := serve(t, s, limit)
		s.handle = func(context.Context) error {
			for range 100 {
				if time.Sleep(7 * time.Second); free(t, lim) != 0 {
					t.Error("the lease has expired")
				}
			}
			time.Sleep(time.Second / 2)
			down.Store(true)
			time.Sleep(27500 * time.Millisecond) // the last renewal was at most 28 s ago
			down.Store(false)
			for range 100 {
				if time.Sleep(7 * time.Second); free(t, lim) != 0 {
					t.Error("the lease has expired after an outage")
				}
			}
			return nil
		}
		if err := watch(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // a renewal can begin when the handler returns
		n := renewed.Load()
		time.Sleep(time.Hour)
		if free(t, lim) != 1 || renewed.Load() != n || n < 100 || n > 300 {
			t.Errorf("got %d free leases, and %d and then %d renewals, want one lease, 100 to 300 renewals, and none after the end", free(t, lim), n, renewed.Load())
		}
		if list := errs.all(); len(list) != 1 || !errors.Is(list[0], store.ErrUnavailable) {
			t.Errorf("got errors %v, want the outage once", list)
		}
	})
}

// A handler that goes on after its call was cancelled keeps its lease.
func TestRenewAfterCancel(t *testing.T) {
	for kind, call := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lim := newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: 30 * time.Second})
				limit, errs := newInterceptor(t, lim, all, weirgrpc.Options{})
				end := make(chan struct{})
				c := serve(t, &service{handle: func(context.Context) error { <-end; return nil }}, limit)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				if err := call(ctx, c); status.Code(err) != codes.Canceled {
					t.Errorf("got %v, want CANCELED", err)
				}
				time.Sleep(time.Hour)
				if n := free(t, lim); n != 0 {
					t.Errorf("while the handler runs: got %d free leases, want none", n)
				}
				close(end)
				synctest.Wait()
				if n := free(t, lim); n != 1 || len(errs.all()) > 0 {
					t.Errorf("got %d free leases, errors %v, want 1 and none", n, errs.all())
				}
			})
		})
	}
}

// The end of the handler ends a renewal for which the store has no answer, and reports
// nothing.
func TestRenewEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: 30 * time.Second})
		var running atomic.Int64
		d := deciderFunc(func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
			if r.Op == weir.Renew {
				running.Add(1)
				defer running.Add(-1)
				<-ctx.Done()
				return weir.Result{}, ctx.Err()
			}
			return lim.Decide(ctx, r, each)
		})
		limit, errs := newInterceptor(t, d, all, weirgrpc.Options{})
		c := serve(t, &service{handle: func(context.Context) error {
			if time.Sleep(10*time.Second + time.Second/2); running.Load() != 1 {
				t.Errorf("got %d renewals at once, want 1", running.Load())
			}
			return nil
		}}, limit)
		err := check(t.Context(), c)
		synctest.Wait()
		if err != nil || running.Load() != 0 || free(t, lim) != 1 || len(errs.all()) > 0 {
			t.Errorf("got %v, %d renewals, %d free leases, errors %v, want no renewal and 1 lease", err, running.Load(), free(t, lim), errs.all())
		}
	})
}

// A lost lease is reported once, and never takes the lease of another holder.
func TestLeaseLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: 30 * time.Second})
		limit, errs := newInterceptor(t, lim, all, weirgrpc.Options{})
		s := new(service)
		c := serve(t, s, limit)
		s.handle = func(ctx context.Context) error {
			if err := lim.Reset(ctx, "all"); err != nil {
				t.Error(err)
			}
			if _, err := lim.TryAcquire(ctx, weir.Request{Key: weir.KeyOf("all")}); err != nil {
				t.Error(err)
			}
			time.Sleep(29 * time.Second)
			return nil
		}
		if err := check(t.Context(), c); err != nil {
			t.Error(err)
		}
		if list := errs.all(); len(list) != 1 || !errors.Is(list[0], weir.ErrLeaseLost) || free(t, lim) != 0 {
			t.Errorf("got errors %v and %d free leases, want one ErrLeaseLost and none", list, free(t, lim))
		}
	})
}

// If a call ends during the decision, the lease may be held: it is released.
func TestLeaseOfLostReply(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Second} { // the caller ends the call, or the Timeout the decision
		for kind, call := range kinds {
			t.Run(kind+" "+timeout.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					lim := newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: time.Hour})
					lost := deciderFunc(func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
						res, err := lim.Decide(ctx, r, each)
						if r.Op == weir.Consume { // the store has decided, and the reply is lost
							<-ctx.Done()
							return weir.Result{}, ctx.Err()
						}
						return res, err
					})
					limit, errs := newInterceptor(t, lost, all, weirgrpc.Options{Timeout: timeout})
					c := serve(t, new(service), limit)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					time.AfterFunc(2*time.Second, cancel)
					want, wantErrs := codes.Canceled, 0
					if timeout > 0 {
						want, wantErrs = codes.Unavailable, 1
					}
					err := call(ctx, c)
					synctest.Wait()
					if status.Code(err) != want || len(errs.all()) != wantErrs || free(t, lim) != 1 {
						t.Errorf("got %v, errors %v, %d free leases, want %v, %d and 1", err, errs.all(), free(t, lim), want, wantErrs)
					}
				})
			})
		}
	}
}

// An ID of a limiter without leases does no harm: a handler can use it for a refund.
func TestID(t *testing.T) {
	lim := newLimiter(t, weirtest.Windowless(algorithm.FixedWindow{Limit: 1, Window: time.Hour}, 0)) // which is no lease
	req := weir.Request{Key: weir.KeyOf("all"), ID: "one"}
	var ops []weir.Op
	d := deciderFunc(func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
		ops = append(ops, r.Op)
		return lim.Decide(ctx, r, each)
	})
	limit, errs := newInterceptor(t, d, of(req, nil), weirgrpc.Options{})
	err := check(t.Context(), serve(t, &service{handle: func(ctx context.Context) error {
		s, err := lim.Refund(ctx, req)
		if !s.Found {
			t.Error("nothing was refunded")
		}
		return err
	}}, limit))
	if err != nil || free(t, lim) != 1 || len(errs.all()) > 0 || len(ops) != 1 {
		t.Errorf("got %v, errors %v, %d tokens, the ops %v, want a full limit and a Consume", err, errs.all(), free(t, lim), ops)
	}
}

// A request with a MaxWait reaches the handler when it is its turn.
func TestMaxWait(t *testing.T) {
	for kind, call := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lim := newLimiter(t, algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: 10})
				limit, _ := newInterceptor(t, lim, of(weir.Request{Key: weir.KeyOf("all"), MaxWait: 5 * time.Second}, nil), weirgrpc.Options{})
				c := serve(t, new(service), limit)
				start := time.Now()
				for i := range 3 {
					if err := call(t.Context(), c); err != nil || time.Since(start) != time.Duration(i)*time.Second {
						t.Errorf("call %d: got %v after %v, want none after %d s", i, err, time.Since(start), i)
					}
				}
				// The turn comes in 1 s, which is after the deadline: the call is denied
				// at once.
				ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
				defer cancel()
				if err := call(ctx, c); status.Code(err) != codes.ResourceExhausted || time.Since(start) != 2*time.Second {
					t.Errorf("got %v after %v, want RESOURCE_EXHAUSTED at once", err, time.Since(start))
				}
			})
		})
	}
}

// A call that is cancelled during its wait is refunded, and does not reach the handler.
func TestMaxWaitCancelled(t *testing.T) {
	for kind, call := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lim := newLimiter(t, algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 1})
				limit, errs := newInterceptor(t, lim, of(weir.Request{Key: weir.KeyOf("all"), MaxWait: weir.Never}, nil), weirgrpc.Options{FailOpen: true})
				s := new(service)
				var server answers
				c := serveAnd(t, s, limit, &server)
				if err := call(t.Context(), c); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				_ = call(ctx, c)
				synctest.Wait()
				if got := server.all(); len(got) != 2 || got[1] != codes.Canceled || s.count() != 1 || len(errs.all()) > 0 {
					t.Errorf("got %v, %d calls of the handler, errors %v, want CANCELED for the second call", got, s.count(), errs.all())
				}
				if res, err := lim.Peek(t.Context(), "all"); err != nil || res.RetryAfter != 59*time.Second {
					t.Errorf("got %+v, %v: want to retry after 59s, as if the second call had not been made", res, err)
				}
			})
		})
	}
}

// A lease is renewed in time if replies take long.
func TestRenewSlow(t *testing.T) {
	for _, tt := range []struct{ lease, reply time.Duration }{{3 * time.Second, 2100 * time.Millisecond}, {time.Second, 700 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			lim := newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: tt.lease})
			late := deciderFunc(func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
				res, err := lim.Decide(ctx, r, each)
				time.Sleep(tt.reply)
				return res, err
			})
			limit, errs := newInterceptor(t, late, all, weirgrpc.Options{})
			s := new(service)
			c := serve(t, s, limit)
			s.handle = func(context.Context) error {
				for range 100 {
					time.Sleep(100 * time.Millisecond)
					if free(t, lim) != 0 {
						t.Errorf("lease %v, replies after %v: the lease is lost while the handler runs", tt.lease, tt.reply)
						return nil
					}
				}
				return nil
			}
			if err := kinds["unary"](t.Context(), c); err != nil || len(errs.all()) > 0 {
				t.Errorf("got %v, errors %v", err, errs.all())
			}
		})
	}
}

// A lease is renewed in time even if another lease of the key ends much later, or if a
// shadow rule has shorter leases than the others.
func TestRenewByLimit(t *testing.T) {
	const short = 600 * time.Millisecond
	for name, earlier := range map[string]func(t *testing.T, st store.Store, now *time.Duration){
		"the lease time was lowered": func(t *testing.T, st store.Store, _ *time.Duration) {
			acquire(t, st, algorithm.Concurrency{Limit: 2, Lease: time.Minute})
		},
		"the clock steps back": func(t *testing.T, st store.Store, now *time.Duration) {
			acquire(t, st, algorithm.Concurrency{Limit: 2, Lease: short})
			*now = -time.Hour
		},
	} {
		for _, shadow := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, shadow %v", name, shadow), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var step time.Duration
					st := memory.New(&memory.Options{Now: func() time.Time { return time.Now().Add(step) }})
					rules := []weir.Rule{{Name: "jobs", Algorithm: algorithm.Concurrency{Limit: 2, Lease: short}}}
					if shadow {
						rules[0].Algorithm = algorithm.Concurrency{Limit: 2, Lease: time.Hour}
						rules = append(rules, weir.Rule{Name: "next", Algorithm: algorithm.Concurrency{Limit: 2, Lease: short}, Shadow: true})
					}
					earlier(t, st, &step)
					lim, err := weir.NewPolicy(st, weir.Policy{Name: "test", Rules: rules}, nil)
					if err != nil {
						t.Fatal(err)
					}
					watched, err := lim.Only(rules[len(rules)-1].Name)
					if err != nil {
						t.Fatal(err)
					}
					limit, errs := newInterceptor(t, wrapped(lim, func(next weir.Decider) weir.Decider { return next }), all, weirgrpc.Options{})
					c := serve(t, &service{handle: func(ctx context.Context) error {
						before := free(t, watched)
						for range 100 {
							if time.Sleep(50 * time.Millisecond); free(t, watched) > before {
								t.Error("the lease has expired while the handler runs")
								break
							}
						}
						return nil
					}}, limit)
					if err := kinds["unary"](t.Context(), c); err != nil || len(errs.all()) > 0 {
						t.Errorf("got %v, errors %v", err, errs.all())
					}
				})
			})
		}
	}
}

// acquire acquires a lease that is neither renewed nor released.
func acquire(t *testing.T, st store.Store, jobs algorithm.Concurrency) {
	t.Helper()
	lim, err := weir.NewPolicy(st, weir.Policy{Name: "test", Rules: []weir.Rule{{Name: "jobs", Algorithm: jobs}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lim.TryAcquire(t.Context(), weir.Request{Key: weir.KeyOf("all")}); err != nil {
		t.Fatal(err)
	}
}

// A lease that the store may hold is released if an outage.Breaker denies the call. If that
// fails, the outage is not reported for each call.
func TestDegradedHeld(t *testing.T) {
	for _, away := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			lim := newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: time.Hour})
			unsure := wrapped(lim, func(next weir.Decider) weir.Decider {
				return deciderFunc(func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
					if r.Op == weir.Consume {
						_, err := next.Decide(ctx, r, each)
						return weir.Result{RetryAfter: time.Second, Degraded: store.ErrUnavailable}, err
					}
					if away {
						return weir.Result{}, store.ErrUnavailable
					}
					return next.Decide(ctx, r, each)
				})
			})
			limit, errs := newInterceptor(t, unsure, all, weirgrpc.Options{})
			err := check(t.Context(), serve(t, new(service), limit))
			synctest.Wait()
			if status.Code(err) != codes.Unavailable || (free(t, lim) == 0) != away || len(errs.all()) > 0 {
				t.Errorf("away %v: got %v, %d free leases, errors %v", away, err, free(t, lim), errs.all())
			}
		})
	}
}
