package jobs

import (
	"context"

	"github.com/weir-go/weir"
)

// A Job is one of a pool.
type Job struct {
	Queue string
	Do    func()
}

// Worker runs jobs, each at its turn: for range 8 { go Worker(ctx, lim, jobs, undone) }.
func Worker(ctx context.Context, lim *weir.Limiter, jobs <-chan Job, undone func(Job, error)) {
	for job := range jobs {
		if _, err := lim.Wait(ctx, job.Queue); err != nil {
			undone(job, err) // for example, its turn is after the deadline
			continue
		}
		job.Do()
	}
}
