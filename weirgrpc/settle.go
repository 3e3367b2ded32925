package weirgrpc

import (
	"context"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/gate"
)

// Settle makes actual the cost of a call, which its handler calls with its context, or
// with that of its stream:
//
//	weirgrpc.Settle(ctx, weir.ActualCosts(usage))
//
// Settle only records actual, in place of what an earlier Settle or [Refund] recorded. When
// the handler has returned, even if the caller has gone, the interceptor settles the
// decision as [weir.Limiter.Finish] does, within a second. Without a Settle or a Refund, and
// after a Settle with the zero Actual, the call costs what it consumed at first.
//
// If the decision could not be settled, was not found, or costs less than actual,
// [Options].OnError gets an error. An amount of 0 keeps the ID, and ActualRefund is Refund.
//
// Settle returns an error only if the call has no decision with an ID, or its handler has
// returned. The RequestFunc sets the ID. If a rule holds leases or the request has a
// MaxWait, the interceptor makes one that is missing. If a call goes through several
// interceptors, Settle is for the innermost that has an ID.
func Settle(ctx context.Context, actual weir.Actual) error {
	return gate.Record(ctx, "weirgrpc", actual)
}

// Refund is [Settle] for a call that costs nothing: its handler calls it if the work
// failed. It ends the ID, as [weir.Limiter.Refund] does.
func Refund(ctx context.Context) error {
	return gate.Record(ctx, "weirgrpc", weir.ActualRefund())
}
