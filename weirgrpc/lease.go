package weirgrpc

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/guard"
)

const (
	// minRenew is the shortest time between two attempts to renew a lease.
	minRenew = time.Millisecond

	// renewTime is the time limit of one attempt to renew a lease.
	renewTime = time.Second
)

// thirdOf returns a third of the lease time, or 0 if nobody says how long it is. each has the
// results of the rules.
func (c *call) thirdOf(each []weir.Result) time.Duration {
	span := cmp.Or(c.req.Lease, weir.Never)
	for i := range each {
		if each[i].Type == weir.LeaseRule {
			// The last lease of the rule expires after ResetAfter. It is the new one or a
			// later one.
			span = min(span, each[i].ResetAfter)
		}
	}
	if span <= 0 { // a wrapper did not say
		return 0
	}
	return max(span/3, minRenew)
}

// renew renews the lease whenever a third of the lease time has passed, until ctx ends, because
// the handler has returned.
func (c *call) renew(ctx context.Context) {
	failing := false // the last attempt has failed
	for wait := c.third - time.Since(c.renewed); guard.Sleep(ctx, max(wait, minRenew)) == nil; {
		c.renewed = time.Now()
		once, cancel := context.WithTimeout(ctx, renewTime)
		res, err := c.req.Decider.Decide(once, weir.Request{Key: c.req.Key, ID: c.req.ID, Op: weir.Renew}, nil)
		cancel()
		wait = c.third - time.Since(c.renewed)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !failing {
				c.report(fmt.Errorf("weirgrpc: the lease could not be renewed: %w", err))
			}
			wait = c.third / 10
		case !res.Allowed:
			c.report(fmt.Errorf("weirgrpc: %w: it expired before it could be renewed, and the handler still runs", weir.ErrLeaseLost))
			return
		}
		failing = err != nil
	}
}
