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
// whatever its end is, even if its caller has gone, or an outage was passed on. The handler works for
// 20 s, and its lease of 9 s is renewed.
func TestSettle(t *testing.T) {
	type seen struct {
		code         codes.Code
		errs         int
		ends         int32
		during, left [2]int64 // tokens and places
	}
	settle := func(ctx context.Context) error { return weirgrpc.Settle(ctx, weir.ActualCost(5)) }
	for name, tt := range map[string]struct {
		handle  func(context.Context) error
		refunds bool  // Options.RefundPanics
		left    int64 // tokens, afterwards
		asks    bool  // for another cost
		code    codes.Code
	}{
		"nothing":         {func(context.Context) error { return nil }, true, 7, false, codes.OK},
		"an error":        {func(context.Context) error { return status.Error(codes.NotFound, "nothing") }, true, 7, false, codes.NotFound},
		"Settle":          {settle, false, 5, true, codes.OK},
		"Refund":          {func(ctx context.Context) error { return errors.Join(settle(ctx), weirgrpc.Refund(ctx)) }, false, 10, true, codes.OK},
		"panic":           {func(context.Context) error { panic("handler") }, false, 7, false, codes.Aborted},
		"panic, refunded": {func(context.Context) error { panic("handler") }, true, 10, true, codes.Aborted},
	} {
		for _, lease := range []bool{false, true} {
			for _, how := range []string{"at once", "gone", "outage"} {
				each(t, fmt.Sprintf("%s, lease %v, %s", name, lease, how), func(t *testing.T, call callFunc) {
					rules := []weir.Rule{{Name: "tokens", Algorithm: algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerDay(10)}}}
					req := weir.Request{Cost: 3}
					if lease {
						rules = append(rules, weir.Rule{Name: "places", Algorithm: algorithm.Concurrency{Limit: 2, Lease: 9 * time.Second}, Cost: 1})
					} else {
						req.ID = "work"
					}
					lim, err := weir.NewPolicy(memory.New(nil), weir.Policy{Name: "work", Rules: rules}, &weir.Options{Settles: true})
					if err != nil {
						t.Fatal(err)
					}
					left := func() [2]int64 {
						each := make([]weir.Result, 2)
						if _, err := lim.Decide(context.Background(), weir.Request{Key: weir.KeyOf("all"), Op: weir.Peek}, each); err != nil {
							t.Error(err)
						}
						return [2]int64{each[0].Remaining, each[1].Remaining}
					}
					var ends atomic.Int32
					limit, errs := newInterceptor(t, wrapped(t, lim, func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
						if r.Op == weir.Consume && how == "outage" {
							return weir.Result{}, store.ErrUnavailable
						} else if r.Op != weir.Consume && r.Op != weir.Renew {
							ends.Add(1)
						}
						return lim.Decide(ctx, r, each)
					}), asking(req), weirgrpc.Options{FailOpen: true, RefundPanics: tt.refunds})
					ctx, cancel := context.WithCancel(t.Context())
					var during [2]int64
					err = call(ctx, serve(t, &service{handle: func(ctx context.Context) error {
						if how == "gone" {
							cancel()
						}
						time.Sleep(20 * time.Second)
						during = left()
						return tt.handle(ctx)
					}}, limit))
					time.Sleep(20 * time.Second)
					cancel()
					synctest.Wait()

					want := seen{tt.code, 0, 0, [2]int64{7, 0}, [2]int64{tt.left, 0}}
					if lease || tt.asks {
						want.ends = 1
					}
					if lease {
						want.during[1], want.left[1] = 1, 2
					}
					switch how {
					case "gone":
						want.code = codes.Canceled
					case "outage":
						if want.errs, want.during[0], want.left[0] = 1, 10, 10; tt.asks {
							want.errs = 2 // the decision is not found
						}
						if lease {
							want.ends, want.during[1] = 3, 2 // the end is repeated: the grant can come later
						}
					}
					if got := (seen{status.Code(err), len(errs.all()), ends.Load(), during, left()}); got != want {
						t.Errorf("got %+v, errors %v, want %+v", got, errs.all(), want)
					}
				})
			}
		}
	}
}

// In a limiter without Options.Settles, here of a plan, Settle is an error for OnError, and the
// lease is released. Without an ID, or a limit, Settle returns an error.
func TestSettleUnsupported(t *testing.T) {
	each(t, "a plan", func(t *testing.T, call callFunc) {
		lim := newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: time.Hour})
		rate := newLimiter(t, algorithm.FixedWindow{Limit: 1, Window: time.Hour})
		limit, errs := newInterceptor(t, rate, all, weirgrpc.Options{Plan: func(context.Context, string) (weir.Decider, error) { return lim, nil }})
		settle := &service{handle: func(ctx context.Context) error { return weirgrpc.Settle(ctx, weir.ActualCost(1)) }}
		err := call(t.Context(), serve(t, settle, limit))
		if list := errs.all(); err != nil || len(list) != 1 || !errors.Is(list[0], weir.ErrUnsupported) || free(t, lim) != 1 {
			t.Errorf("got %v, errors %v, %d free leases", err, list, free(t, lim))
		}
		for _, request := range []weirgrpc.RequestFunc{all, refusing(weirgrpc.ErrUnlimited)} {
			limit, _ = newInterceptor(t, rate, request, weirgrpc.Options{})
			if err := call(t.Context(), serve(t, settle, limit)); err == nil || !strings.Contains(err.Error(), "no decision with an ID") {
				t.Errorf("got %v", err)
			}
		}
	})
}
