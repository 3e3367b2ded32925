package jobs

import (
	"context"
	"time"

	"github.com/hibiken/asynq"

	"github.com/weir-go/weir"
)

// Asynq limits the handlers of a mux: mux.Use(Asynq(lim)).
func Asynq(lim *weir.Limiter) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			queue, _ := asynq.GetQueueName(ctx)
			id, _ := asynq.GetTaskID(ctx)
			return Run(ctx, lim, queue, id, func(ctx context.Context) error { return next.ProcessTask(ctx, t) })
		})
	}
}

// AsynqConfig is the configuration of a server with Asynq: add your own fields.
var AsynqConfig = asynq.Config{
	IsFailure: func(err error) bool { return RetryAfter(err) == 0 },
	RetryDelayFunc: func(n int, err error, t *asynq.Task) time.Duration {
		if after := RetryAfter(err); after > 0 {
			return after + time.Second // asynq truncates times to seconds
		}
		return asynq.DefaultRetryDelayFunc(n, err, t)
	},
}
