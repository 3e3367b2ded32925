package weirgrpc

import (
	"context"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/gate"
)

// Settle makes actual the cost of a call. Its handler calls it with its context, or with
// that of its stream:
//
//	err := weirgrpc.Settle(ctx, weir.ActualCost(tokens))
//
// It only records actual, and the last Settle or [Refund] counts. When the handler has
// returned, even if the caller has gone, the interceptor settles the decision, in the call
// that also releases its lease. If nothing is recorded, or the zero Actual, the call costs
// what it consumed at first.
//
// If the decision was not found, or costs less than actual afterwards, or if the store did
// not answer within a second, [Options].OnError gets an error: [weir.Limiter.Finish] has
// the rules. With a rule that holds leases, the limiter needs weir's Options.Settles.
//
// Settle returns an error only if the call has no decision with an ID, or if its handler
// has returned. The RequestFunc sets the ID, unless a rule holds leases or the request has a
// MaxWait: then the interceptor makes one. If a call goes through several interceptors,
// Settle is for the innermost whose request has an ID. A handler that leaves work running
// uses the limiter itself, without this interceptor.
func Settle(ctx context.Context, actual weir.Actual) error {
	return gate.Record(ctx, "weirgrpc", actual)
}

// Refund is [Settle] with [weir.ActualRefund], for work that failed: the call costs
// nothing, and its ID ends.
func Refund(ctx context.Context) error {
	return gate.Record(ctx, "weirgrpc", weir.ActualRefund())
}
