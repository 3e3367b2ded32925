package limiters

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/internal/decisions"
	"github.com/weir-go/weir/conformance/internal/suite"
)

func checkWait(t *decisions.T) {
	const waiters, interval = 20, 10 * time.Millisecond
	l := t.Limiter(nil, decisions.One(algorithm.GCRA{Rate: algorithm.Every(interval), Burst: 1}))
	start := t.Time()
	ended := make([]time.Duration, waiters)
	var wg sync.WaitGroup
	for w := range waiters {
		t.Goes(&wg, func() {
			res, err := l.Wait(t.Ctx, "wait")
			if err != nil || !res.Allowed || res.Granted != 1 {
				t.Errorf("Wait: got %+v, %v", res, err)
			}
			ended[w] = t.Time().Sub(start)
		})
	}
	wg.Wait()
	if n := t.Wrote.Evals.Load(); n != waiters {
		t.Errorf("%d callers called the store %d times, want once each", waiters, n)
	}
	// Caller n may go n intervals after the first caller, which goes after the start.
	for i := range ended {
		early := 0
		for _, at := range ended {
			if at+suite.Skew < time.Duration(i)*interval {
				early++
			}
		}
		if early > i {
			t.Errorf("%d of %d callers went before %v, want at most %d", early, waiters, time.Duration(i)*interval, i)
		}
	}
}

func checkRefused(t *decisions.T) {
	l := t.Limiter(nil, decisions.One(algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 3}))
	t.Allow(l, 2, "k")
	before := t.Peek(l, 1, "k")
	for _, cost := range []int64{2, 4} {
		ctx, cancel := context.WithTimeout(t.Ctx, suite.CheckTime/2)
		asked := t.Wrote.Evals.Load()
		res, err := l.WaitN(ctx, cost, "k")
		cancel()
		if !errors.Is(err, weir.ErrDenied) || res.Allowed || res.RetryAfter <= 0 || (res.RetryAfter == weir.Never) != (cost > 3) {
			t.Errorf("a wait for %d tokens, of which one is available: got %+v, %v, want ErrDenied", cost, res, err)
		}
		if n := t.Wrote.Evals.Load() - asked; n != 1 {
			t.Errorf("the wait called the store %d times, want once", n)
		}
	}
	if res, err := l.Wait(t.Ctx, "k"); err != nil || res.Delay != 0 {
		t.Errorf("a wait for an available token: got %+v, %v", res, err)
	}
	ctx, cancel := context.WithCancel(t.Ctx)
	cancel()
	asked := t.Wrote.Evals.Load()
	if res, err := l.Wait(ctx, "k"); !errors.Is(err, context.Canceled) || t.Wrote.Evals.Load() != asked {
		t.Errorf("a wait whose context is done: got %+v, %v, and %d calls", res, err, t.Wrote.Evals.Load()-asked)
	}
	if after := t.Peek(l, 1, "k"); before.Remaining != 1 || after.Remaining != 0 || after.RetryAfter > time.Hour {
		t.Errorf("one token was consumed of\n     %+v\nleft %+v", before, after)
	}
	asked = t.Wrote.Evals.Load()
	if res, err := l.Reserve(context.WithoutCancel(t.Ctx), weir.Request{Key: weir.KeyOf("k")}); err == nil || res != nil || t.Wrote.Evals.Load() != asked {
		t.Errorf("Reserve without MaxWait and without a deadline: got %+v, %v, and %d calls, want an error", res, err, t.Wrote.Evals.Load()-asked)
	}
}

func checkCancel(t *decisions.T) {
	l := t.Limiter(nil, decisions.One(algorithm.GCRA{Rate: algorithm.PerMinute(2), Burst: 1}))
	for try := 1; ; try++ {
		key := "cancelled" + strconv.Itoa(try)
		before, after, late := cancelledWait(t, l, key)
		if late {
			return
		}
		if after.ResetAfter <= before.ResetAfter+suite.Skew && after.RetryAfter <= 30*time.Second {
			break
		}
		if try == 3 { // a client can send the refund before the call, if that has not ended
			t.Errorf("a cancelled wait made\n     %+v\nout of %+v", after, before)
			break
		}
	}
	t.Allow(l, 1, "k")
	res, err := l.Reserve(t.Ctx, weir.Request{Key: weir.KeyOf("k")})
	if err != nil || !res.Allowed || res.Delay > 30*time.Second {
		t.Fatalf("Reserve: got %+v, %v", res, err)
	}
	for _, want := range []bool{true, false} {
		if gave, err := res.Cancel(t.Ctx); err != nil || gave != want {
			t.Errorf("Cancel: got %v, %v, want %v", gave, err, want)
		}
	}
	if after := t.Peek(l, 1, "k"); after.RetryAfter > 30*time.Second {
		t.Errorf("a cancelled reservation left %+v", after)
	}
}

// cancelledWait consumes the token of key, cancels a wait for the next one, and returns the
// answers of a Peek before and after the wait. late reports that the refund of the wait did not
// end within its second.
func cancelledWait(t *decisions.T, l *weir.Limiter, key string) (before, after weir.Result, late bool) {
	t.Allow(l, 1, key)
	before = t.Peek(l, 1, key)
	asked := t.Wrote.Evals.Load()
	ctx, cancel := context.WithCancel(t.Ctx)
	done := make(chan error, 1)
	var wg sync.WaitGroup
	t.Goes(&wg, func() {
		_, err := l.Wait(ctx, key)
		done <- err
	})
	for try := 0; t.Wrote.Evals.Load() == asked && try < 1000; try++ {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(10 * time.Millisecond) // usually, the call waits now; if not, the same checks hold
	cancel()
	wg.Wait()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a wait that was cancelled: got error %v, want context.Canceled", err)
		}
		late = errors.Is(err, context.DeadlineExceeded)
	default:
	}
	return before, t.Peek(l, 1, key), late
}
