package weirgrpc

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/weir-go/weir"
)

const (
	// minRenew is the shortest time between two attempts to renew a lease.
	minRenew = time.Millisecond

	// renewTime is the time limit of one attempt to renew a lease.
	renewTime = time.Second
)

// A lease is held while a handler runs. It is renewed when a third of the lease time has
// passed.
type lease struct {
	call  call
	third time.Duration

	mu      sync.Mutex
	timer   *time.Timer
	end     context.CancelFunc
	failing bool // the last attempt to renew has failed
	stopped bool
}

// keep returns the lease that c holds, and renews it. each has the results of the rules.
// The decision began at start.
func (c *call) keep(start time.Time, each []weir.Result) *lease {
	span := cmp.Or(c.req.Lease, weir.Never)
	for i := range each {
		if each[i].Type == weir.LeaseRule {
			// The last lease of the rule expires after ResetAfter. It is the new one or a
			// later one.
			span = min(span, each[i].ResetAfter)
		}
	}
	if span <= 0 { // a wrapper did not say
		return nil
	}
	l := &lease{call: *c, third: max(span/3, minRenew)}
	ctx, stop := context.WithCancel(context.WithoutCancel(c.ctx))
	l.mu.Lock() // until timer is set
	defer l.mu.Unlock()
	l.end = stop
	l.timer = time.AfterFunc(l.next(start), func() { l.renew(ctx) })
	return l
}

// next returns the time until the next renewal, if the last one, or the decision, began
// at start.
func (l *lease) next(start time.Time) time.Duration {
	return max(l.third-time.Since(start), minRenew)
}

// renew renews the lease, and starts the timer for the next time. ctx ends when the
// handler has returned.
func (l *lease) renew(ctx context.Context) {
	once, cancel := context.WithTimeout(ctx, renewTime)
	defer cancel()
	start := time.Now()
	res, err := l.call.req.Decider.Decide(once, weir.Request{Key: l.call.req.Key, ID: l.call.req.ID, Op: weir.Renew}, nil)
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.next(start)
	switch first := !l.failing; {
	case l.stopped:
		return
	case err != nil:
		l.failing = true
		next = max(l.third/10, minRenew)
		if first {
			l.call.report(fmt.Errorf("weirgrpc: the lease could not be renewed: %w", err))
		}
	case !res.Allowed:
		l.call.report(fmt.Errorf("weirgrpc: %w: it expired before it could be renewed, and the handler still runs", weir.ErrLeaseLost))
		return
	default:
		l.failing = false
	}
	l.timer.Reset(next)
}

// stop ends the renewal of the lease. A nil lease is not renewed.
func (l *lease) stop() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	l.timer.Stop()
	l.end()
}
