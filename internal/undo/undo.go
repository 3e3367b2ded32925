// Package undo undoes decisions whose request does not go ahead.
package undo

import (
	"context"
	"errors"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/guard"
)

// Request refunds a request with a MaxWait, and releases the lease of another one. The request
// has an ID. Request returns no error if the algorithm cannot refund, or has no leases.
func Request(ctx context.Context, d weir.Decider, req weir.Request) error {
	back := weir.Request{Key: req.Key, ID: req.ID, Op: weir.Release}
	if req.MaxWait > 0 {
		back.Op = weir.Refund
	}
	err := guard.Undo(ctx, func(ctx context.Context) (weir.Result, error) { return d.Decide(ctx, back, nil) })
	if errors.Is(err, weir.ErrUnsupported) {
		return nil
	}
	return err
}
