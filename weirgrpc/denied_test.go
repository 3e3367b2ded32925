package weirgrpc_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirgrpc"
)

const pushback = "grpc-retry-pushback-ms"

// retries is a service config that retries RESOURCE_EXHAUSTED, with a backoff that no
// test mistakes for a pushback.
var retries = grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy": {
	"maxAttempts": 5, "initialBackoff": "1000s", "maxBackoff": "1000s", "backoffMultiplier": 1,
	"retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`)

// counted returns request, and counts its calls: the attempts that reach the server.
func counted(n *int, request weirgrpc.RequestFunc) weirgrpc.RequestFunc {
	return func(ctx context.Context, method string) (weir.Request, error) {
		*n++
		return request(ctx, method)
	}
}

// A client with a retryPolicy retries when the pushback has passed, and is then allowed.
func TestRetryPolicy(t *testing.T) {
	for kind, call := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				attempts, s := 0, new(service)
				limit, errs := newInterceptor(t, newLimiter(t, algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 1}), counted(&attempts, all), weirgrpc.Options{})
				c, start := serve(t, s, limit, retries), time.Now()
				for i := range 3 {
					if err := call(t.Context(), c); err != nil {
						t.Fatal(err)
					}
					if took, want := time.Since(start), time.Duration(i)*time.Minute; took != want || attempts != 1+2*i || s.count() != 1+i {
						t.Errorf("call %d: got %v, %d attempts and %d calls of the handler, want %v, %d and %d", i, took, attempts, s.count(), want, 1+2*i, 1+i)
					}
				}
				if len(errs.all()) > 0 {
					t.Errorf("got errors %v, want none", errs.all())
				}
			})
		})
	}
}

// A client with a retryPolicy does not retry a call that can never be allowed.
func TestRetryPolicyNever(t *testing.T) {
	for kind, call := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				attempts, s := 0, new(service)
				limit, _ := newInterceptor(t, newLimiter(t, algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 1}), counted(&attempts, func(context.Context, string) (weir.Request, error) {
					return weir.Request{Key: weir.KeyOf("all"), Cost: 2}, nil
				}), weirgrpc.Options{})
				start := time.Now()
				err := call(t.Context(), serve(t, s, limit, retries))
				if status.Code(err) != codes.ResourceExhausted || attempts != 1 || s.count() > 0 || time.Since(start) > 0 {
					t.Errorf("got %v after %d attempts, %d calls of the handler and %v, want RESOURCE_EXHAUSTED after one attempt", err, attempts, s.count(), time.Since(start))
				}
			})
		})
	}
}

// A client with a retryPolicy gets the answer at once if the retry would come after its
// deadline, and retries if it would come before.
func TestRetryPolicyDeadline(t *testing.T) {
	for kind, call := range kinds {
		for _, left := range []time.Duration{time.Minute - time.Millisecond, time.Minute + time.Millisecond} {
			t.Run(kind+" "+left.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					attempts := 0
					limit, _ := newInterceptor(t, newLimiter(t, algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 1}), counted(&attempts, all), weirgrpc.Options{})
					c := serve(t, new(service), limit, retries)
					if err := call(t.Context(), c); err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithTimeout(t.Context(), left)
					defer cancel()
					want, wantTook, wantAttempts := codes.OK, time.Minute, 3
					if left < time.Minute {
						want, wantTook, wantAttempts = codes.ResourceExhausted, 0, 2
					}
					start := time.Now()
					err := call(ctx, c)
					if took := time.Since(start); status.Code(err) != want || took != wantTook || attempts != wantAttempts {
						t.Errorf("got %v after %v and %d attempts, want %v after %v and %d", err, took, attempts, want, wantTook, wantAttempts)
					}
					if retry, _ := details(t, err); err != nil && retry.GetRetryDelay().AsDuration() != time.Minute {
						t.Errorf("got %v, want a RetryInfo of a minute", retry)
					}
				})
			})
		}
	}
}

// details returns the details of a status.
func details(t *testing.T, err error) (retry *errdetails.RetryInfo, quota *errdetails.QuotaFailure) {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			retry = d
		case *errdetails.QuotaFailure:
			quota = d
		default:
			t.Errorf("got the detail %v", d)
		}
	}
	return retry, quota
}

// The trailer and the RetryInfo say when the same call is allowed.
func TestDenied(t *testing.T) {
	const limit32 = (1<<31 - 1) * time.Millisecond
	window := func(d time.Duration) func(*testing.T) weir.Decider {
		return func(t *testing.T) weir.Decider {
			lim := newLimiter(t, algorithm.FixedWindow{Limit: 1, Window: d})
			if _, err := lim.Allow(t.Context(), "all"); err != nil { // the only token
				t.Fatal(err)
			}
			return lim
		}
	}
	held := func(t *testing.T) weir.Decider {
		lim := newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: time.Hour})
		if _, err := lim.Acquire(t.Context(), weir.Request{Key: weir.KeyOf("all")}); err != nil {
			t.Fatal(err)
		}
		return lim
	}
	answer := func(res weir.Result) func(*testing.T) weir.Decider {
		return func(*testing.T) weir.Decider { return denying(res) }
	}
	for _, tt := range []struct {
		name     string
		decider  func(*testing.T) weir.Decider
		hint     time.Duration // LeaseRetryAfter
		pushback string        // in milliseconds; empty means none
		retry    time.Duration // 0 means no RetryInfo
	}{
		{"a minute", window(time.Minute), 0, "60000", time.Minute},
		{"one microsecond more than a second", window(time.Second + time.Microsecond), 0, "1001", time.Second + time.Microsecond},
		{"a microsecond", window(time.Microsecond), 0, "1", time.Microsecond},
		{"the largest of 32 bits", window(limit32), 0, "2147483647", limit32},
		{"more than 32 bits", window(limit32 + time.Microsecond), 0, "-1", limit32 + time.Microsecond},
		{"never", answer(weir.Result{RetryAfter: weir.Never}), 0, "-1", 0},
		{"almost never", answer(weir.Result{RetryAfter: weir.Never - 1}), 0, "-1", weir.Never - 1},
		{"unknown", answer(weir.Result{}), 0, "", 0},
		{"a pause", answer(weir.Result{Type: weir.PauseRule, Rule: "pause", RetryAfter: 90 * time.Second}), 0, "90000", 90 * time.Second},
		{"a lease", held, 0, "100", 100 * time.Millisecond},
		{"a lease, with an option", held, 1500 * time.Microsecond, "2", 1500 * time.Microsecond},
	} {
		for kind, call := range kinds {
			t.Run(tt.name+", "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := new(service)
					limit, errs := newInterceptor(t, tt.decider(t), all, weirgrpc.Options{LeaseRetryAfter: tt.hint})
					var trailer metadata.MD
					err := call(t.Context(), serve(t, s, limit), grpc.Trailer(&trailer))
					if got := strings.Join(trailer[pushback], "|"); status.Code(err) != codes.ResourceExhausted || got != tt.pushback || s.count() > 0 {
						t.Errorf("got %v, pushback %q and %d calls of the handler, want RESOURCE_EXHAUSTED, %q and 0", err, got, s.count(), tt.pushback)
					}
					retry, _ := details(t, err)
					if (retry != nil) != (tt.retry > 0) || retry.GetRetryDelay().AsDuration() != tt.retry {
						t.Errorf("got RetryInfo %v, want %v", retry, tt.retry)
					}
					if len(errs.all()) > 0 {
						t.Errorf("got errors %v, want none", errs.all())
					}
				})
			})
		}
	}
}

// denying returns a Decider that always answers with res.
func denying(res weir.Result) weir.Decider {
	return deciderFunc(func(context.Context, weir.Request, []weir.Result) (weir.Result, error) { return res, nil })
}

// The QuotaFailure has one violation for each rule that denies, and never a key.
func TestViolations(t *testing.T) {
	lim, err := weir.NewPolicy(memory.New(nil), weir.Policy{Name: "t", Rules: []weir.Rule{
		{Name: "second\xff", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 2}},
		{Name: "day", Algorithm: algorithm.FixedWindow{Limit: 100, Window: 24 * time.Hour}},
		{Name: "running", Algorithm: algorithm.Concurrency{Limit: 2, Lease: time.Hour}},
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const secret = "secret"
	request := weirgrpc.By(weirgrpc.Text(secret))
	for range 2 { // these leases stay held
		req, err := request(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		req.ID = rand.Text()
		if res, err := lim.Decide(t.Context(), req, nil); err != nil || !res.Allowed {
			t.Fatal(res, err)
		}
	}
	for _, tt := range []struct {
		name string
		d    weir.Decider
		hide bool
		want []string
	}{
		{"two rules", lim, false, []string{
			"second\uFFFD 2 tokens: at most 2 tokens in 2s",
			"running 2 leases: at most 2 leases at once",
		}},
		{"hidden", lim, true, nil},
		{"a pause, and no quota", denying(weir.Result{Type: weir.PauseRule, Rule: "pause", Limit: algorithm.MaxTokens}), false, []string{"pause 0 pauses: paused"}},
		{"no Window", denying(weir.Result{Rule: "mine", Limit: 3}), false, []string{"mine 3 tokens: at most 3 tokens"}},
		{"the highest limit, and no Window", denying(weir.Result{Rule: "mine", Limit: algorithm.MaxTokens}), false, []string{"mine 9007199254740991 tokens: at most 9007199254740991 tokens"}},
		{"a wrapper without the results of the rules", denying(weir.Result{Rule: "mine", Limit: 3, Window: time.Minute}), false, []string{"mine 3 tokens: at most 3 tokens in 1m0s"}},
		{"a wrapper without a rule", denying(weir.Result{}), false, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			limit, errs := newInterceptor(t, tt.d, request, weirgrpc.Options{HideRules: tt.hide})
			err := check(t.Context(), serve(t, new(service), limit))
			_, quota := details(t, err)
			var got []string
			for _, v := range quota.GetViolations() {
				got = append(got, fmt.Sprintf("%s %d %s: %s%s", v.QuotaId, v.QuotaValue, v.QuotaMetric, v.Subject, v.Description))
			}
			if !slices.Equal(got, tt.want) || status.Code(err) != codes.ResourceExhausted || len(errs.all()) > 0 {
				t.Errorf("got %q (%v), errors %v, want %q", got, err, errs.all(), tt.want)
			}
			wire, err2 := proto.Marshal(status.Convert(err).Proto())
			if err2 != nil || strings.Contains(string(wire), secret) {
				t.Errorf("got %q, %v: it must not contain the key", wire, err2)
			}
		})
	}
}

// The largest status fits into 8 KiB, the header limit of many clients, also in base64.
func TestLargestStatus(t *testing.T) {
	var p weir.Policy
	p.Name = "t"
	for i := range weir.MaxRules {
		p.Rules = append(p.Rules, weir.Rule{
			Name:      strings.Repeat(string(rune('a'+i)), weir.MaxSegment),
			Algorithm: algorithm.FixedWindow{Limit: 1 << 40, Window: 300 * 24 * time.Hour}, Cost: 1 << 40,
		})
	}
	lim, err := weir.NewPolicy(memory.New(nil), p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := lim.Allow(t.Context(), "all"); err != nil || !res.Allowed {
		t.Fatal(res, err)
	}
	limit, _ := newInterceptor(t, lim, all, weirgrpc.Options{})
	err = check(t.Context(), serve(t, new(service), limit, grpc.WithMaxHeaderListSize(8<<10)))
	if _, quota := details(t, err); len(quota.GetViolations()) != weir.MaxRules {
		t.Errorf("got %v, want %d violations", err, weir.MaxRules)
	}
}

// gRPC retries no call whose header was sent, so a header that another interceptor sets
// prevents the retry.
func TestRetryPolicyHeader(t *testing.T) {
	attempts := 0
	limit, _ := newInterceptor(t, denying(weir.Result{RetryAfter: time.Millisecond}), counted(&attempts, all), weirgrpc.Options{})
	conn := start(t, new(service), []grpc.UnaryServerInterceptor{
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			if err := grpc.SetHeader(ctx, metadata.Pairs("x", "y")); err != nil {
				t.Error(err)
			}
			return handler(ctx, req)
		}, limit.Unary,
	}, nil, retries)
	if err := check(t.Context(), healthpb.NewHealthClient(conn)); status.Code(err) != codes.ResourceExhausted || attempts != 1 {
		t.Errorf("got %v after %d attempts, want RESOURCE_EXHAUSTED after one", err, attempts)
	}
}

// A call that is denied without the store ends with UNAVAILABLE, unless it can never be
// allowed, or the caller is over the share of the process.
func TestDegraded(t *testing.T) {
	for _, tt := range []struct {
		after    time.Duration
		degraded error
		want     codes.Code
	}{
		{time.Second, store.ErrUnavailable, codes.Unavailable},
		{weir.Never, store.ErrUnavailable, codes.ResourceExhausted},
		{time.Second, fmt.Errorf("%w: %w", store.ErrUnavailable, weir.ErrDenied), codes.ResourceExhausted},
	} {
		synctest.Test(t, func(t *testing.T) {
			limit, errs := newInterceptor(t, denier{weir.Result{Rule: "r", Window: time.Second, RetryAfter: tt.after, Degraded: tt.degraded}}, all, weirgrpc.Options{})
			s := new(service)
			c := serve(t, s, limit)
			for kind, call := range kinds {
				if got := status.Code(call(t.Context(), c)); got != tt.want {
					t.Errorf("%s, %+v: got %v", kind, tt, got)
				}
			}
			if s.count() != 0 || len(errs.all()) != 0 {
				t.Errorf("%d calls of the handler and errors %v, want none", s.count(), errs.all())
			}
		})
	}
}

// A denier answers every request with a Result.
type denier struct{ weir.Result }

func (d denier) Decide(context.Context, weir.Request, []weir.Result) (weir.Result, error) {
	return d.Result, nil
}
