package weirhttp

import (
	"context"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/gate"
)

// Settle makes actual the cost of a request, which its handler calls with the context of
// the request:
//
//	weirhttp.Settle(r.Context(), weir.ActualCosts(usage))
//
// Settle only records actual, in place of what an earlier Settle or [Refund] recorded. When
// the handler has returned, even if the client has gone, the middleware settles the
// decision as [weir.Limiter.Finish] does, in one call of at most one second. Without a
// Settle or a Refund, and after a Settle with the zero Actual, the request costs what it
// consumed at first.
//
// If the decision could not be settled, was not found, or costs less than actual,
// [Options].OnError gets an error. An amount of 0 keeps the ID, and ActualRefund is Refund.
//
// Settle returns an error only if the request has no decision with an ID, or its handler
// has returned. The RequestFunc sets the ID. If a rule holds leases or the request has a
// MaxWait, the middleware makes one that is missing. If a request goes through several
// middlewares, Settle is for the innermost that has an ID.
func Settle(ctx context.Context, actual weir.Actual) error {
	return gate.Record(ctx, "weirhttp", actual)
}

// Refund is [Settle] for a request that costs nothing: its handler calls it if the work
// failed. It ends the ID, as [weir.Limiter.Refund] does.
func Refund(ctx context.Context) error {
	return gate.Record(ctx, "weirhttp", weir.ActualRefund())
}
