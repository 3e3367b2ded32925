package conformance

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

func limiterWait(t *T) {
	const waiters, interval = 20, 10 * time.Millisecond
	l := t.limiter(nil, one(algorithm.GCRA{Rate: algorithm.Every(interval), Burst: 1}))
	start := t.time()
	var mu sync.Mutex
	var ended []time.Duration
	var wg sync.WaitGroup
	for range waiters {
		t.goes(&wg, func() {
			res, err := l.Wait(t.ctx, "wait")
			if err != nil || !res.Allowed || res.Granted != 1 {
				t.errorf("Wait: got %+v, %v", res, err)
			}
			now, err := t.store.Time(t.ctx)
			if err != nil {
				t.errorf("Time: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			ended = append(ended, now.Sub(start))
		})
	}
	wg.Wait()
	if n := t.wrote.evals.Load(); n != waiters {
		t.errorf("%d callers called the store %d times, want once each", waiters, n)
	}
	// Caller n may go n intervals after the first caller, which goes after the start.
	for i := range ended {
		early := 0
		for _, at := range ended {
			if at+skew < time.Duration(i)*interval {
				early++
			}
		}
		if early > i {
			t.errorf("%d of %d callers went before %v, want at most %d", early, waiters, time.Duration(i)*interval, i)
		}
	}
}

func limiterRefused(t *T) {
	l := t.limiter(nil, one(algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 3}))
	t.allow(l, 2, "k")
	before := t.peek(l, 1, "k")
	for _, cost := range []int64{2, 4} {
		ctx, cancel := context.WithTimeout(t.ctx, checkTime/2)
		asked := t.wrote.evals.Load()
		res, err := l.WaitN(ctx, cost, "k")
		cancel()
		if !errors.Is(err, weir.ErrDenied) || res.Allowed || res.RetryAfter <= 0 || (res.RetryAfter == weir.Never) != (cost > 3) {
			t.errorf("a wait for %d tokens, of which one is available: got %+v, %v, want ErrDenied", cost, res, err)
		}
		if n := t.wrote.evals.Load() - asked; n != 1 {
			t.errorf("the wait called the store %d times, want once", n)
		}
	}
	if res, err := l.Wait(t.ctx, "k"); err != nil || res.Delay != 0 {
		t.errorf("a wait for an available token: got %+v, %v", res, err)
	}
	ctx, cancel := context.WithCancel(t.ctx)
	cancel()
	asked := t.wrote.evals.Load()
	if res, err := l.Wait(ctx, "k"); !errors.Is(err, context.Canceled) || t.wrote.evals.Load() != asked {
		t.errorf("a wait whose context is done: got %+v, %v, and %d calls", res, err, t.wrote.evals.Load()-asked)
	}
	if after := t.peek(l, 1, "k"); before.Remaining != 1 || after.Remaining != 0 || after.RetryAfter > time.Hour {
		t.errorf("one token was consumed of\n     %+v\nleft %+v", before, after)
	}
	asked = t.wrote.evals.Load()
	if res, err := l.Reserve(context.WithoutCancel(t.ctx), weir.Request{Key: weir.KeyOf("k")}); err == nil || res != nil || t.wrote.evals.Load() != asked {
		t.errorf("Reserve without MaxWait and without a deadline: got %+v, %v, and %d calls, want an error", res, err, t.wrote.evals.Load()-asked)
	}
}

func limiterCancel(t *T) {
	l := t.limiter(nil, one(algorithm.GCRA{Rate: algorithm.PerMinute(2), Burst: 1}))
	t.allow(l, 1, "k")
	before := t.peek(l, 1, "k")
	asked := t.wrote.evals.Load()
	ctx, cancel := context.WithCancel(t.ctx)
	done := make(chan error, 1)
	var wg sync.WaitGroup
	t.goes(&wg, func() {
		_, err := l.Wait(ctx, "k")
		done <- err
	})
	for try := 0; t.wrote.evals.Load() == asked && try < 1000; try++ {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(10 * time.Millisecond) // usually, the call waits now; if not, the same checks hold
	cancel()
	wg.Wait()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.errorf("a wait that was cancelled: got error %v, want context.Canceled", err)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			return // the refund did not end within a second
		}
	default:
	}
	if after := t.peek(l, 1, "k"); after.ResetAfter > before.ResetAfter+skew || after.RetryAfter > 30*time.Second {
		t.errorf("a cancelled wait made\n     %+v\nout of %+v", after, before)
	}
	res, err := l.Reserve(t.ctx, weir.Request{Key: weir.KeyOf("k")})
	if err != nil || !res.Allowed || res.Delay > 30*time.Second {
		t.fatalf("Reserve: got %+v, %v", res, err)
	}
	for _, want := range []bool{true, false} {
		if gave, err := res.Cancel(t.ctx); err != nil || gave != want {
			t.errorf("Cancel: got %v, %v, want %v", gave, err, want)
		}
	}
	if after := t.peek(l, 1, "k"); after.RetryAfter > 30*time.Second {
		t.errorf("a cancelled reservation left %+v", after)
	}
}
