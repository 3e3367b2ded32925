package weirgrpc_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirgrpc"
)

// retries is a service config that retries RESOURCE_EXHAUSTED, with a backoff that no
// test mistakes for a pushback.
var retries = grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy": {
	"maxAttempts": 5, "initialBackoff": "1000s", "maxBackoff": "1000s", "backoffMultiplier": 1,
	"retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`)

// A client with a retryPolicy retries when the pushback has passed, and is then allowed. It gets the
// answer at once if the call can never be allowed, or if the retry would come after its deadline.
func TestRetryPolicy(t *testing.T) {
	for name, tt := range map[string]struct {
		cost     int64
		deadline time.Duration
		want     codes.Code
		took     time.Duration
		attempts int // that reach the server
	}{
		"in time":            {1, time.Minute + time.Millisecond, codes.OK, time.Minute, 2},
		"after the deadline": {1, time.Minute - time.Millisecond, codes.ResourceExhausted, 0, 1},
		"never":              {2, time.Hour, codes.ResourceExhausted, 0, 1},
	} {
		each(t, name, func(t *testing.T, call callFunc) {
			s, req := new(service), weir.Request{Key: weir.KeyOf("all")}
			limit, errs := newInterceptor(t, newLimiter(t, algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 1}), func(context.Context, string) (weir.Request, error) { return req, nil }, weirgrpc.Options{})
			c := serve(t, s, limit, retries)
			if err := call(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), tt.deadline)
			defer cancel()
			req.Cost = tt.cost
			start := time.Now()
			err := call(ctx, c)
			took := time.Since(start)
			synctest.Wait()
			if _, got := s.seen(); status.Code(err) != tt.want || took != tt.took || len(got) != 1+tt.attempts || len(errs.all()) > 0 {
				t.Errorf("got %v after %v, the server ended calls with %v, errors %v, want %+v", err, took, got, errs.all(), tt)
			}
		})
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

// denial returns the code of a call that was denied, the trailer, the RetryInfo and the violations.
func denial(t *testing.T, err error, trailer metadata.MD) string {
	t.Helper()
	text := []string{status.Code(err).String()}
	if ms, ok := trailer["grpc-retry-pushback-ms"]; ok {
		text[0] += fmt.Sprint(" ", ms)
	}
	retry, quota := details(t, err)
	if retry != nil {
		text[0] += fmt.Sprint(" ", retry.RetryDelay.AsDuration())
	}
	for _, v := range quota.GetViolations() {
		text = append(text, fmt.Sprintf("%s %d %s: %s%s", v.QuotaId, v.QuotaValue, v.QuotaMetric, v.Subject, v.Description))
	}
	return strings.Join(text, " | ")
}

// What the status and the trailer of a denied call say. The trailer has whole milliseconds, rounded up,
// or -1 if a retry makes no sense. No key is in the status.
func TestDenied(t *testing.T) {
	const limit32, never = (1<<31 - 1) * time.Millisecond, weir.Never
	in := func(d time.Duration) weir.Result {
		return weir.Result{Rule: "r", Limit: 2, Window: time.Minute, RetryAfter: d}
	}
	lease := weir.Result{Type: weir.LeaseRule, Rule: "jobs", Limit: 2, RetryAfter: time.Hour}
	pause := weir.Result{Type: weir.PauseRule, Rule: "pause", Limit: algorithm.MaxTokens, RetryAfter: 90 * time.Second}
	degraded := func(err error, after time.Duration) weir.Result {
		return weir.Result{Rule: "r", Window: time.Second, Degraded: err, RetryAfter: after}
	}
	hide := weirgrpc.Options{HideRules: true}
	for name, tt := range map[string]struct {
		res  weir.Result
		each []weir.Result // nil means that a wrapper left them out
		opts weirgrpc.Options
		want string
	}{
		"a minute":                      {in(time.Minute), nil, hide, "ResourceExhausted [60000] 1m0s"},
		"a little more than a second":   {in(time.Second + 1), nil, hide, "ResourceExhausted [1001] 1.000000001s"},
		"the last of 32 bits":           {in(limit32), nil, hide, "ResourceExhausted [2147483647] 596h31m23.647s"},
		"more than 32 bits":             {in(limit32 + 1), nil, hide, "ResourceExhausted [-1] 596h31m23.647000001s"},
		"after the deadline":            {in(time.Hour + 1), nil, hide, "ResourceExhausted [-1] 1h0m0.000000001s"},
		"never":                         {in(never), nil, hide, "ResourceExhausted [-1]"},
		"almost never":                  {in(never - 1), nil, hide, "ResourceExhausted [-1] 2562047h47m16.854775806s"},
		"no time":                       {in(0), nil, hide, "ResourceExhausted"},
		"a lease":                       {lease, nil, hide, "ResourceExhausted [100] 100ms"},
		"a lease, with an option":       {lease, nil, weirgrpc.Options{HideRules: true, LeaseRetryAfter: 1500 * time.Microsecond}, "ResourceExhausted [2] 1.5ms"},
		"a rule":                        {in(time.Second), nil, weirgrpc.Options{}, "ResourceExhausted [1000] 1s | r 2 tokens: at most 2 tokens in 1m0s"},
		"rules":                         {pause, []weir.Result{in(1), {Rule: "free", Allowed: true}, pause, lease}, weirgrpc.Options{}, "ResourceExhausted [90000] 1m30s | r 2 tokens: at most 2 tokens in 1m0s | pause 0 pauses: paused | jobs 2 leases: at most 2 leases at once"},
		"no Window, and a name":         {weir.Result{Rule: "a\xff", Limit: 3}, nil, weirgrpc.Options{}, "ResourceExhausted | a\uFFFD 3 tokens: at most 3 tokens"},
		"no rule":                       {weir.Result{}, nil, weirgrpc.Options{}, "ResourceExhausted"},
		"an outage":                     {degraded(store.ErrUnavailable, time.Second), nil, weirgrpc.Options{}, "Unavailable [1000] 1s"},
		"above the limit in an outage":  {degraded(store.ErrUnavailable, never), nil, hide, "ResourceExhausted [-1]"},
		"over the share of the process": {degraded(fmt.Errorf("%w: %w", store.ErrUnavailable, weir.ErrDenied), time.Second), nil, hide, "ResourceExhausted [1000] 1s"},
	} {
		each(t, name, func(t *testing.T, call callFunc) {
			s := new(service)
			limit, errs := newInterceptor(t, deciderFunc(func(_ context.Context, _ weir.Request, each []weir.Result) (weir.Result, error) {
				copy(each, tt.each)
				return tt.res, nil
			}), weirgrpc.By(weirgrpc.Text("secret")), tt.opts)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			if name != "after the deadline" {
				ctx = t.Context()
			}
			defer cancel()
			var trailer metadata.MD
			err := call(ctx, serve(t, s, limit), grpc.Trailer(&trailer))
			calls, _ := s.seen()
			if got := denial(t, err, trailer); got != tt.want || calls > 0 || len(errs.all()) > 0 {
				t.Errorf("got  %s\nwant %s\nand %d calls of the handler, errors %v", got, tt.want, calls, errs.all())
			}
			if wire, err := proto.Marshal(status.Convert(err).Proto()); err != nil || strings.Contains(string(wire), "secret") {
				t.Errorf("got %q, %v: it must not contain the key", wire, err)
			}
		})
	}
}

// The largest status fits into 8 KiB, the header limit of many clients, also in base64.
func TestLargestStatus(t *testing.T) {
	var p weir.Policy
	for i := range weir.MaxRules {
		p.Rules = append(p.Rules, weir.Rule{
			Name:      strings.Repeat(string(rune('a'+i)), weir.MaxSegment),
			Algorithm: algorithm.FixedWindow{Limit: 1 << 40, Window: 300 * 24 * time.Hour}, Cost: 1 << 40,
		})
	}
	lim := weirtest.NewPolicy(t, memory.New(nil), p)
	weirtest.Allow(t, lim, weir.Request{Key: weir.KeyOf("all")})
	limit, _ := newInterceptor(t, lim, all, weirgrpc.Options{})
	err := check(t.Context(), serve(t, new(service), limit, grpc.WithMaxHeaderListSize(8<<10)))
	if _, quota := details(t, err); len(slices.Compact(quota.GetViolations())) != weir.MaxRules {
		t.Errorf("got %v, want %d violations", err, weir.MaxRules)
	}
}
