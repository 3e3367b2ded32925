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

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirgrpc"
)

// A settleCase is a way in which a call ends.
type settleCase struct {
	handle  []func(context.Context) error
	refunds bool  // Options.RefundPanics
	left    int64 // tokens, afterwards
	asks    bool  // for another cost
	code    codes.Code
}

// What the handler says last is what its call costs, and the place is free when it has returned,
// even if its caller has gone, or the decision was unknown. The handler works for 20 s, and its
// lease of 9 s is renewed.
func TestSettle(t *testing.T) {
	settle := func(ctx context.Context) error { return weirgrpc.Settle(ctx, weir.ActualCost(5)) }
	panics := func(context.Context) error { panic("handler") }
	type calls = []func(context.Context) error
	for name, tt := range map[string]settleCase{
		"nothing":            {nil, true, 7, false, codes.OK},
		"Settle":             {calls{settle}, false, 5, true, codes.OK},
		"Refund":             {calls{weirgrpc.Refund}, false, 10, true, codes.OK},
		"Settle then Refund": {calls{settle, weirgrpc.Refund}, false, 10, true, codes.OK},
		"panic":              {calls{panics}, false, 7, false, codes.Aborted},
		"panic, refunded":    {calls{panics}, true, 10, true, codes.Aborted},
	} {
		for kind, call := range kinds {
			for _, lease := range []bool{false, true} {
				for _, how := range []string{"at once", "gone", "lost reply", "outage"} {
					t.Run(fmt.Sprintf("%s, %s, lease %v, %s", name, kind, lease, how), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { tt.run(t, call, lease, how) })
					})
				}
			}
		}
	}
}

func (tt settleCase) run(t *testing.T, call func(context.Context, healthpb.HealthClient, ...grpc.CallOption) error, lease bool, how string) {
	rules := []weir.Rule{{Name: "tokens", Algorithm: algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerDay(10)}}}
	req := weir.Request{Key: weir.KeyOf("all"), Cost: 3}
	if lease {
		rules = append(rules, weir.Rule{Name: "places", Algorithm: algorithm.Concurrency{Limit: 2, Lease: 9 * time.Second}, Cost: 1})
	} else {
		req.ID = "work"
	}
	lim, err := weir.NewPolicy(memory.New(nil), weir.Policy{Name: "work", Rules: rules}, &weir.Options{Settles: true})
	if err != nil {
		t.Fatal(err)
	}
	left := func() [2]int64 { // tokens and places
		each := make([]weir.Result, 2)
		if _, err := lim.Decide(context.Background(), weir.Request{Key: weir.KeyOf("all"), Op: weir.Peek}, each); err != nil {
			t.Error(err)
		}
		return [2]int64{each[0].Remaining, each[1].Remaining}
	}
	var ends atomic.Int32
	d := wrapped(lim, func(next weir.Decider) weir.Decider {
		return deciderFunc(func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
			switch {
			case r.Op == weir.Renew:
			case r.Op != weir.Consume:
				ends.Add(1)
			case how == "lost reply":
				_, _ = next.Decide(ctx, r, each)
				return weir.Result{}, store.ErrUnavailable
			case how == "outage":
				return weir.Result{}, store.ErrUnavailable
			}
			return next.Decide(ctx, r, each)
		})
	})
	limit, errs := newInterceptor(t, d, of(req, nil), weirgrpc.Options{FailOpen: true, RefundPanics: tt.refunds})
	ctx, cancel := context.WithCancel(t.Context())
	var during [2]int64
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

	unknown, found := how == "lost reply" || how == "outage", how != "outage"
	wantErrs, wantEnds, wantDuring, wantLeft := 0, int32(0), [2]int64{7}, [2]int64{tt.left}
	if how == "gone" {
		tt.code = codes.Canceled
	}
	if unknown {
		wantErrs++
	}
	if !found {
		if wantDuring[0], wantLeft[0] = 10, 10; tt.asks {
			wantErrs++
		}
	}
	if lease || tt.asks {
		wantEnds = 1
	}
	if lease {
		if wantDuring[1], wantLeft[1] = 1, 2; unknown {
			wantDuring[1] = 2 // it has expired, because nobody knew that it was held
		}
		if !found {
			wantEnds = 3 // the last one comes later
		}
	}
	if status.Code(err) != tt.code || len(errs.all()) != wantErrs || ends.Load() != wantEnds || during != wantDuring || left() != wantLeft {
		t.Errorf("got %v, errors %v, %d ends, %v and then %v, want %v, %d, %d, %v and %v", err, errs.all(), ends.Load(), during, left(), tt.code, wantErrs, wantEnds, wantDuring, wantLeft)
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
