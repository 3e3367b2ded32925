package jobs

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store/memory"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestPage checks that docs/guide/jobs.md shows the code as it is.
func TestPage(t *testing.T) {
	code := ""
	for _, file := range []string{"jobs.go", "river.go", "asynq.go", "temporal.go", "pool.go"} {
		code += string(must(os.ReadFile(file)))
	}
	blocks := strings.Split(string(must(os.ReadFile("../../docs/guide/jobs.md"))), "```golang\n")[1:]
	for _, block := range blocks {
		if block, _, _ := strings.Cut(block, "```"); !strings.Contains(code, block) || len(blocks) != 5 {
			t.Errorf("%d blocks, want 5; no file has this block of the page:\n%s", len(blocks), block)
		}
	}
}

// TestRun runs jobs inside one another. Two workers with one job share a place and a token,
// and the first to return stops the other.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := must(New(memory.New(nil)))
		run := func(id string, job func(context.Context)) error {
			return Run(t.Context(), lim, "mail", id, func(ctx context.Context) error { job(ctx); return ctx.Err() })
		}
		left := func(places, tokens int64) {
			t.Helper()
			for rule, want := range map[string]int64{"places": places, "pace": tokens} {
				if got := must(must(lim.Only(rule)).Peek(t.Context(), "mail")).Remaining; got != want {
					t.Errorf("%s: %d left, want %d", rule, got, want)
				}
			}
		}
		if after := RetryAfter(&weir.DeniedError{Result: weir.Result{RetryAfter: weir.Never}}); after != 0 {
			t.Errorf("a job that can never be allowed: retry after %v, want 0", after)
		}
		err := run("a", func(ctx context.Context) {
			left(1, 2)
			must(0, run("a", func(context.Context) { // redelivered
				left(1, 2)
				must(0, run("b", func(context.Context) {
					left(0, 1)
					time.Sleep(time.Minute) // the leases are renewed
					if after := RetryAfter(run("c", nil)); after != 5*time.Second {
						t.Errorf("no place is left: retry after %v, want 5s", after)
					}
					left(0, 3)
				}))
				left(1, 3)
			}))
			left(2, 3)
			time.Sleep(20 * time.Second) // a third of the lease time
			synctest.Wait()
			if !errors.Is(context.Cause(ctx), weir.ErrLeaseLost) {
				t.Errorf("the context ended with %v, want ErrLeaseLost", context.Cause(ctx))
			}
		})
		if err != context.Canceled {
			t.Errorf("got error %v, want that of the job", err)
		}
	})
}

// TestWorker runs jobs at the pace of the limiter. A job whose turn is after the deadline is
// handed back at once.
func TestWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := must(weir.New("pool", memory.New(nil), algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: 10}, nil))
		ctx, cancel := context.WithTimeout(t.Context(), 4500*time.Millisecond)
		defer cancel()
		start, jobs, got := time.Now(), make(chan Job), make(chan string, 7)
		for range 2 {
			go Worker(ctx, lim, jobs, func(Job, error) { got <- "undone" })
		}
		for range cap(got) {
			jobs <- Job{"mail", func() { got <- time.Since(start).String() }}
		}
		close(jobs)
		for _, want := range []string{"0s", "1s", "2s", "3s", "undone", "undone", "4s"} {
			if got := <-got; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
	})
}

// A framework delivers a job of the queue mail. It returns the delay that it is asked for,
// or an error that is no denial.
type framework func(lim *weir.Limiter, id int, job func(context.Context) error) (time.Duration, error)

func onRiver(lim *weir.Limiter, id int, job func(context.Context) error) (time.Duration, error) {
	err := River(lim).Work(context.Background(), &rivertype.JobRow{ID: int64(id), Queue: "mail"}, job)
	if snooze, ok := errors.AsType[*river.JobSnoozeError](err); ok {
		return snooze.Duration, nil
	}
	return 0, err
}

// onAsynq starts a server, which gives contexts to its tasks.
func onAsynq(t *testing.T) framework {
	opt := asynq.RedisClientOpt{Addr: miniredis.RunT(t).Addr()}
	started, done := make(chan context.Context), make(chan bool)
	server := asynq.NewServer(opt, asynq.Config{Queues: map[string]int{"mail": 1}, Concurrency: 6, LogLevel: asynq.FatalLevel})
	must(0, server.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		started <- ctx
		<-done
		return nil
	})))
	t.Cleanup(func() { close(done); server.Shutdown() })
	client, contexts := asynq.NewClient(opt), map[string]context.Context{}
	defer client.Close()
	for id := range 6 {
		must(client.Enqueue(asynq.NewTask("send", nil), asynq.TaskID(strconv.Itoa(id)), asynq.Queue("mail")))
	}
	for range 6 {
		ctx := <-started
		id, _ := asynq.GetTaskID(ctx)
		contexts[id] = ctx
	}
	return func(lim *weir.Limiter, id int, job func(context.Context) error) (time.Duration, error) {
		handler := Asynq(lim)(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error { return job(ctx) }))
		err := handler.ProcessTask(contexts[strconv.Itoa(id)], asynq.NewTask("send", nil))
		if err == nil || AsynqConfig.IsFailure(err) {
			return 0, err
		}
		return AsynqConfig.RetryDelayFunc(1, err, nil) - time.Second, nil
	}
}

func onTemporal(lim *weir.Limiter, id int, job func(context.Context) error) (time.Duration, error) {
	env := new(testsuite.WorkflowTestSuite).NewTestWorkflowEnvironment()
	send := func(ctx context.Context) error { return Temporal(ctx, lim, job) }
	env.RegisterActivityWithOptions(send, activity.RegisterOptions{Name: "send"})
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			ActivityID: strconv.Itoa(id), TaskQueue: "mail", StartToCloseTimeout: time.Hour, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
		}), "send").Get(ctx, nil)
	})
	err := env.GetWorkflowError()
	if denied, ok := errors.AsType[*temporal.ApplicationError](err); ok && denied.Type() == "RateLimit" {
		return denied.NextRetryDelay(), nil
	}
	return 0, err
}

// TestFrameworks delivers jobs, some of them again. The limiter allows 3 at first, and then
// one per second.
func TestFrameworks(t *testing.T) {
	for name, deliver := range map[string]framework{"River": onRiver, "asynq": onAsynq(t), "Temporal": onTemporal} {
		t.Run(name, func(t *testing.T) {
			now, pause := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), ""
			lim := must(New(memory.New(&memory.Options{Now: func() time.Time { return now }})))
			for i, row := range []struct {
				wait  time.Duration
				do    string        // the ID of a job, or pause or resume
				delay time.Duration // 0 if the job runs
			}{
				{0, "0", 0}, {0, "0", 0}, {0, "0", 0}, {0, "1", 0}, {0, "2", 0}, // job 0 is charged once
				{0, "3", time.Second}, {0, "2", 0},
				{400 * time.Millisecond, "3", 600 * time.Millisecond},
				{600*time.Millisecond - time.Microsecond, "3", time.Microsecond},
				{time.Microsecond, "3", 0},
				{0, "4", time.Second}, {0, "pause", 0}, {0, "3", 10 * time.Minute},
				{time.Second, "4", 10*time.Minute - time.Second},
				{10*time.Minute - time.Second - time.Microsecond, "4", time.Microsecond},
				{time.Microsecond, "4", 0},
				{0, "pause", 0}, {time.Minute, "5", 9 * time.Minute}, {0, "resume", 0}, {0, "5", 0},
			} {
				now = now.Add(row.wait)
				switch row.do {
				case "pause":
					pause = must(lim.Pause(t.Context(), 10*time.Minute, "mail"))
				case "resume":
					must(lim.Resume(t.Context(), pause, "mail"))
				default:
					ran := false
					delay, err := deliver(lim, must(strconv.Atoi(row.do)), func(context.Context) error {
						ran = true
						return nil
					})
					if ran != (row.delay == 0) || delay != row.delay || err != nil {
						t.Errorf("row %d: ran %v, delay %v, error %v, want delay %v", i, ran, delay, err, row.delay)
					}
				}
			}
			failed := errors.New("failed")
			if _, err := deliver(lim, 0, func(context.Context) error { return failed }); err == nil {
				t.Error("the error of a job is lost")
			}
		})
	}
}
