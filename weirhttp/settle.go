package weirhttp

import (
	"context"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/gate"
)

// Settle makes actual the cost of a request. Its handler calls it with the context of the
// request:
//
//	err := weirhttp.Settle(r.Context(), weir.ActualCost(tokens))
//
// It only records actual, and the last Settle or [Refund] counts. When the handler has
// returned, even if the client has gone, the middleware settles the decision, in the call
// that also releases its lease. If nothing is recorded, or the zero Actual, the request
// costs what it consumed at first.
//
// If the decision was not found, or costs less than actual afterwards, or if the store did
// not answer within a second, [Options].OnError gets an error: [weir.Limiter.Finish] has
// the rules. With a rule that holds leases, the limiter needs weir's Options.Settles.
//
// Settle returns an error only if the request has no decision with an ID, or if its handler
// has returned. The RequestFunc sets the ID, unless a rule holds leases or the request has a
// MaxWait: then the middleware makes one. If a request goes through several middlewares,
// Settle is for the innermost whose request has an ID. A handler that leaves work running
// uses the limiter itself, without this middleware.
func Settle(ctx context.Context, actual weir.Actual) error {
	return gate.Record(ctx, "weirhttp", actual)
}

// Refund is [Settle] with [weir.ActualRefund], for work that failed: the request costs
// nothing, and its ID ends.
func Refund(ctx context.Context) error {
	return gate.Record(ctx, "weirhttp", weir.ActualRefund())
}
