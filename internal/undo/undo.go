// Package undo undoes decisions whose request does not go ahead.
package undo

import (
	"context"
	"errors"
	"time"

	"github.com/weir-go/weir"
)

// Time is the time limit of a refund or a release.
const Time = time.Second

// Request refunds a request with a MaxWait, and releases the lease of another one. The request
// has an ID. Request does not stop if ctx ends, and takes at most Time. It returns no error if the
// algorithm cannot refund, or has no leases.
func Request(ctx context.Context, d weir.Decider, req weir.Request) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Time)
	defer cancel()
	back := weir.Request{Key: req.Key, ID: req.ID, Op: weir.Release}
	if req.MaxWait > 0 {
		back.Op = weir.Refund
	}
	_, err := d.Decide(ctx, back, nil)
	if errors.Is(err, weir.ErrUnsupported) {
		return nil
	}
	return err
}
