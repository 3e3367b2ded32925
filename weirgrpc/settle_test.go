package weirgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirgrpc"
)

// What the handler says last is what its call costs, and the place is free when it has returned,
// even if its caller has gone, or the decision was unknown. The handler works for 20 s, and its
// lease of 9 s is renewed.
func TestSettle(t *testing.T) {
	settle := func(ctx context.Context) error { return weirgrpc.Settle(ctx, weir.ActualCost(5)) }
	panics := func(context.Context) error { panic("handler") }
	type calls []func(context.Context) error
	for name, tt := range map[string]struct {
		handle  calls
		refunds bool  // Options.RefundPanics
		left    int64 // tokens, afterwards
	}{
		"nothing":            {nil, true, 7},
		"Settle":             {calls{settle}, false, 5},
		"Refund":             {calls{weirgrpc.Refund}, false, 10},
		"Settle then Refund": {calls{settle, weirgrpc.Refund}, false, 10},
		"panic":              {calls{panics}, false, 7},
		"panic, refunded":    {calls{panics}, true, 10},
	} {
		for kind, call := range kinds {
			for _, lease := range []bool{false, true} {
				for _, how := range []string{"at once", "gone", "lost reply", "outage"} {
					t.Run(fmt.Sprintf("%s, %s, lease %v, %s", name, kind, lease, how), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							rules := []weir.Rule{{Name: "tokens", Algorithm: algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerDay(10)}}}
							if lease {
								rules = append(rules, weir.Rule{Name: "places", Algorithm: algorithm.Concurrency{Limit: 2, Lease: 9 * time.Second}, Cost: 1})
							}
							lim, err := weir.NewPolicy(memory.New(nil), weir.Policy{Name: "work", Rules: rules}, &weir.Options{Settles: true})
							if err != nil {
								t.Fatal(err)
							}
							left := func() string {
								each := make([]weir.Result, 2)
								if _, err := lim.Decide(context.Background(), weir.Request{Key: weir.KeyOf("all"), Op: weir.Peek}, each); err != nil {
									t.Error(err)
								}
								return fmt.Sprint(each[0].Remaining, " ", each[1].Remaining)
							}
							var ends atomic.Int32
							d := wrapped(lim, func(next weir.Decider) weir.Decider {
								return deciderFunc(func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
									switch {
									case r.Op != weir.Consume:
										if r.Op != weir.Renew {
											ends.Add(1)
										}
									case how == "lost reply":
										_, _ = next.Decide(ctx, r, each)
										return weir.Result{}, store.ErrUnavailable
									case how == "outage":
										return weir.Result{}, store.ErrUnavailable
									}
									return next.Decide(ctx, r, each)
								})
							})
							req := weir.Request{Key: weir.KeyOf("all"), Cost: 3}
							if !lease {
								req.ID = "work"
							}
							limit, errs := newInterceptor(t, d, of(req, nil), weirgrpc.Options{FailOpen: true, RefundPanics: tt.refunds})
							ctx, cancel := context.WithCancel(t.Context())
							during := ""
							c := serve(t, &service{handle: func(ctx context.Context) error {
								if how == "gone" {
									cancel()
								}
								time.Sleep(20 * time.Second)
								during = left()
								for _, call := range tt.handle {
									if err := call(ctx); err != nil {
										t.Error(err)
									}
								}
								return nil
							}}, limit)
							err = call(ctx, c)
							time.Sleep(20 * time.Second)
							cancel()
							synctest.Wait()
							asks := name != "nothing" && name != "panic"
							want := map[bool]codes.Code{true: codes.Aborted, false: codes.OK}[strings.Contains(name, "panic")]
							wantErrs, wantEnds, wantDuring, wantLeft := 0, int32(0), "7 0", fmt.Sprint(tt.left, " 0")
							if how == "gone" {
								want = codes.Canceled
							}
							if how == "lost reply" || how == "outage" {
								wantErrs++
							}
							if how == "outage" {
								if wantDuring, wantLeft = "10 0", "10 0"; asks {
									wantErrs++
								}
							}
							if lease || asks {
								wantEnds = 1
							}
							if lease {
								if wantLeft = strings.TrimSuffix(wantLeft, "0") + "2"; how == "lost reply" || how == "outage" {
									wantDuring = strings.TrimSuffix(wantDuring, "0") + "2" // nobody knows that the lease must be renewed
								} else {
									wantDuring = "7 1"
								}
								if how == "outage" {
									wantEnds = 3 // the last would come after this
								}
							}
							if status.Code(err) != want || len(errs.all()) != wantErrs || ends.Load() != wantEnds || during != wantDuring || left() != wantLeft {
								t.Errorf("got %v, errors %v, %d ends, %s and then %s, want %v, %d, %d, %s and %s", err, errs.all(), ends.Load(), during, left(), want, wantErrs, wantEnds, wantDuring, wantLeft)
							}
						})
					})
				}
			}
		}
	}
}

// In a limiter without Options.Settles, here of a plan, Settle is an error for OnError, and the
// lease is released. Without an ID, or a limit, Settle returns an error.
func TestSettleUnsupported(t *testing.T) {
	for kind, call := range kinds {
		lim := newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: time.Hour})
		rate := newLimiter(t, algorithm.FixedWindow{Limit: 1, Window: time.Hour})
		limit, errs := newInterceptor(t, rate, all, weirgrpc.Options{Plan: func(context.Context, string) (weir.Decider, error) { return lim, nil }})
		settle := &service{handle: func(ctx context.Context) error { return weirgrpc.Settle(ctx, weir.ActualCost(1)) }}
		if err := call(t.Context(), serve(t, settle, limit)); err != nil {
			t.Error(err)
		}
		if list := errs.all(); len(list) != 1 || !errors.Is(list[0], weir.ErrUnsupported) || free(t, lim) != 1 {
			t.Errorf("%s: got errors %v, %d free leases", kind, list, free(t, lim))
		}
		settle.handle = func(ctx context.Context) error {
			if err := weirgrpc.Refund(ctx); err == nil || !strings.Contains(err.Error(), "no decision with an ID") {
				t.Errorf("%s: got %v", kind, err)
			}
			return nil
		}
		for _, request := range []weirgrpc.RequestFunc{all, of(weir.Request{ID: "work"}, weirgrpc.ErrUnlimited)} {
			limit, _ = newInterceptor(t, rate, request, weirgrpc.Options{})
			if err := call(t.Context(), serve(t, settle, limit)); err != nil {
				t.Error(err)
			}
		}
	}
}
