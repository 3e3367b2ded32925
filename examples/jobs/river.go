package jobs

import (
	"context"
	"fmt"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/weir-go/weir"
)

// River snoozes denied jobs: river.Config{Middleware: []rivertype.Middleware{River(lim)}}.
func River(lim *weir.Limiter) river.WorkerMiddlewareFunc {
	return func(ctx context.Context, job *rivertype.JobRow, work func(context.Context) error) error {
		err := Run(ctx, lim, job.Queue, fmt.Sprint("river/", job.ID), work)
		if after := RetryAfter(err); after > 0 {
			return river.JobSnooze(after)
		}
		return err
	}
}
