package jobs

import (
	"context"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/weir-go/weir"
)

// Temporal runs the work of an activity.
func Temporal(ctx context.Context, lim *weir.Limiter, work func(context.Context) error) error {
	info := activity.GetInfo(ctx)
	err := Run(ctx, lim, info.TaskQueue, info.WorkflowExecution.RunID+"/"+info.ActivityID, work)
	if after := RetryAfter(err); after > 0 {
		return temporal.NewApplicationErrorWithOptions("denied", "RateLimit", temporal.ApplicationErrorOptions{
			Cause: err, NextRetryDelay: after, Category: temporal.ApplicationErrorCategoryBenign,
		})
	}
	return err
}
