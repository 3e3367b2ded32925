// Package jobs limits the jobs of River, asynq and Temporal, and of a pool of goroutines.
// The code is for copying: docs/guide/jobs.md explains it.
package jobs

import (
	"context"
	"errors"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// New returns a limiter of queues.
func New(st store.Store) (*weir.Limiter, error) {
	return weir.NewPolicy(st, weir.Policy{
		Name:     "jobs",
		Segments: []string{"queue"},
		Rules: []weir.Rule{
			{Name: "places", Algorithm: algorithm.Concurrency{Limit: 2, Lease: time.Minute}, Cost: 1},
			{Name: "pace", Algorithm: algorithm.TokenBucket{Capacity: 3, Refill: algorithm.PerSecond(1)}},
			{Name: "pause", Algorithm: algorithm.Pause{}},
		},
	}, &weir.Options{Settles: true})
}

// Run runs a job, or returns a *weir.DeniedError at once.
func Run(ctx context.Context, lim *weir.Limiter, queue, id string, job func(context.Context) error) error {
	lease, err := lim.TryAcquire(ctx, weir.Request{Key: weir.KeyOf(queue), ID: id})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go lease.KeepAlive(ctx, cancel)
	defer lease.Finish(context.WithoutCancel(ctx), weir.Actual{}) // if it fails, the lease expires
	return job(ctx)
}

// RetryAfter returns when to try a denied job again, or 0 if err is another error, or the job
// can never be allowed.
func RetryAfter(err error) time.Duration {
	var denied *weir.DeniedError
	if !errors.As(err, &denied) || denied.Result.RetryAfter == weir.Never {
		return 0
	}
	if denied.Result.Type == weir.LeaseRule { // until a lease expires: most are released earlier
		return min(denied.Result.RetryAfter, 5*time.Second)
	}
	return denied.Result.RetryAfter
}
