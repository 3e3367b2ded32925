package weirgrpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/gate"
	"github.com/weir-go/weir/internal/guard"
)

// pushback is the trailer that says when to retry: see gRFC A6.
const pushback = "grpc-retry-pushback-ms"

// texts are those of the statuses of calls that are not passed on.
var texts = map[codes.Code]string{
	codes.ResourceExhausted: "the rate limit is exceeded",
	codes.InvalidArgument:   "the call lacks what it is limited by",
	codes.Unavailable:       "the rate limiter is not available",
	codes.Canceled:          "the caller has cancelled the call",
	codes.DeadlineExceeded:  "the deadline of the call has passed",
}

// newStatus returns the status of a call that is not passed on.
func newStatus(code codes.Code) *status.Status {
	return status.New(code, cmp.Or(texts[code], "the call could not be limited"))
}

// codeOf returns the code for an error of a RequestFunc or a Decider.
func codeOf(ctx context.Context, err error) codes.Code {
	switch {
	case errors.Is(err, ErrNoKey):
		return codes.InvalidArgument
	case !guard.Unknown(err):
		return codes.Internal
	}
	if code := ended(ctx); code != codes.OK {
		return code
	}
	return codes.Unavailable
}

// deniedCode returns the code for a denied call.
func deniedCode(res *weir.Result) codes.Code {
	if gate.Unsure(res) {
		return codes.Unavailable
	}
	return codes.ResourceExhausted
}

// ended returns the code for a call whose context has ended, or whose deadline has
// passed. If neither is so, it returns OK.
func ended(ctx context.Context) codes.Code {
	// A context can end a little after its deadline. On a server, it can also be
	// cancelled at its deadline, because the client ends the call.
	deadline, ok := ctx.Deadline()
	switch err := ctx.Err(); {
	case ok && time.Until(deadline) < time.Microsecond, errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case err != nil:
		return codes.Canceled
	}
	return codes.OK
}

// deny sets the trailer of a denied call, and returns its status. each has the results of
// the rules.
func (c *call) deny(res *weir.Result, each []weir.Result, setTrailer func(metadata.MD) error) error {
	after := gate.RetryAfter(res, each, cmp.Or(c.s.opts.LeaseRetryAfter, 100*time.Millisecond))
	if after > 0 {
		if err := setTrailer(metadata.Pairs(pushback, milliseconds(c.ctx, after))); err != nil {
			c.report(fmt.Errorf("weirgrpc: the trailer %s cannot be set: %w", pushback, err))
		}
	}
	code := deniedCode(res)
	details := retryInfo(after)
	if code == codes.ResourceExhausted && !c.s.opts.HideRules {
		details = append(details, violations(each)...)
	}
	st, err := newStatus(code).WithDetails(details...)
	if err != nil { // not with these messages
		c.report(fmt.Errorf("weirgrpc: the details of the status cannot be set: %w", err))
		st = newStatus(code)
	}
	return st.Err()
}

// milliseconds returns d in milliseconds, rounded up. It returns -1 if d is Never, does
// not fit into 32 bits, or ends after the deadline of ctx.
func milliseconds(ctx context.Context, d time.Duration) string {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	deadline, ok := ctx.Deadline()
	if d == weir.Never || ms > math.MaxInt32 || ok && d > time.Until(deadline) {
		ms = -1
	}
	return strconv.FormatInt(ms, 10)
}

// retryInfo returns when to retry, if that is known.
func retryInfo(after time.Duration) []protoadapt.MessageV1 {
	if after <= 0 || after == weir.Never {
		return nil
	}
	return []protoadapt.MessageV1{&errdetails.RetryInfo{RetryDelay: durationpb.New(after)}}
}

// violations returns which rules deny a call, if that is known.
func violations(each []weir.Result) []protoadapt.MessageV1 {
	failure := new(errdetails.QuotaFailure)
	for i := range each {
		rule := &each[i]
		if rule.Allowed {
			continue
		}
		v := &errdetails.QuotaFailure_Violation{
			Description: fmt.Sprintf("at most %d tokens in %v", rule.Limit, rule.Window),
			QuotaMetric: "tokens",
			QuotaId:     strings.ToValidUTF8(rule.Rule, "\uFFFD"), // protobuf allows nothing else
			QuotaValue:  rule.Limit,
		}
		switch {
		case rule.Type == weir.PauseRule:
			v.Description, v.QuotaMetric, v.QuotaValue = "paused", "pauses", 0
		case rule.Type == weir.LeaseRule:
			v.Description, v.QuotaMetric = fmt.Sprintf("at most %d leases at once", rule.Limit), "leases"
		case rule.Window == 0:
			v.Description = fmt.Sprintf("at most %d tokens", rule.Limit)
		}
		failure.Violations = append(failure.Violations, v)
	}
	if failure.Violations == nil {
		return nil
	}
	return []protoadapt.MessageV1{failure}
}
