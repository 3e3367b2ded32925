package guard

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Chase repeats an undo 1 s, 5 s and 25 s after the first, and up to a quarter later, until it has
// found the grant, or the grant has ended.
func TestChase(t *testing.T) {
	failed := errors.New("failed")
	for name, tt := range map[string]struct {
		life  time.Duration
		found int // the call that finds the grant, if it does not fail
		err   error
		want  int // calls
	}{
		"never found":              {1<<63 - 1, 0, nil, 4},
		"found at once":            {time.Hour, 1, nil, 1},
		"found by the second":      {time.Hour, 2, nil, 2},
		"found by the third":       {time.Hour, 3, nil, 3},
		"failing, though it finds": {time.Hour, 1, failed, 4},
		"a life of 25 s":           {25 * time.Second, 0, nil, 4},
		"a life of less":           {25*time.Second - 1, 0, nil, 3},
		"a life of 1 s":            {time.Second, 0, nil, 2},
		"a life of a moment":       {time.Second - 1, 0, nil, 1},
		"a first undo that hangs":  {time.Hour, 0, context.DeadlineExceeded, 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // the caller has gone
			var least, most [4]time.Duration
			for range 200 {
				start, calls := time.Now(), 0
				err := Chase(ctx, tt.life, func(ctx context.Context) (bool, error) {
					at, early := time.Since(start), [4]time.Duration{0, time.Second, 5 * time.Second, 25 * time.Second}[calls]
					if end, _ := ctx.Deadline(); at < early || at > early+early/4 || at > tt.life || time.Until(end) != Time || ctx.Err() != nil {
						t.Errorf("%s: call %d after %v, want it from %v on; ctx ends at %v: %v", name, calls, at, early, end, ctx.Err())
					}
					if least[calls] == 0 || at < least[calls] {
						least[calls] = at
					}
					most[calls] = max(most[calls], at)
					if calls++; calls == 1 && tt.err == context.DeadlineExceeded {
						<-ctx.Done()
					}
					return calls == tt.found, tt.err
				})
				time.Sleep(time.Hour)
				if synctest.Wait(); calls != tt.want || !errors.Is(err, tt.err) || Pending.Load() != 0 {
					t.Fatalf("%s: %d calls and %v, want %d; %d are pending", name, calls, err, tt.want, Pending.Load())
				}
			}
			for i := 1; i < tt.want && tt.life >= time.Hour; i++ {
				if most[i]-least[i] < least[i]/8 {
					t.Errorf("%s: call %d of 200 came from %v to %v: want jitter", name, i, least[i], most[i])
				}
			}
		})
	}
}

// At most MaxPending grants wait for another undo, without a goroutine. The others are counted.
func TestChaseBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, goroutines := Dropped.Load(), runtime.NumGoroutine()
		calls := make([]atomic.Int32, MaxPending+100)
		chase := func(i int, life time.Duration) {
			_ = Chase(t.Context(), life, func(context.Context) (bool, error) { return calls[i].Add(1) == 3, nil })
		}
		for i := range calls {
			chase(i, time.Hour)
		}
		for _, tt := range []struct {
			at    time.Duration
			taken int32
		}{{0, 1}, {1250 * time.Millisecond, 2}, {6250 * time.Millisecond, 3}} {
			time.Sleep(tt.at)
			synctest.Wait()
			for i := range calls {
				if n := calls[i].Load(); n != tt.taken && i < MaxPending || n != 1 && i >= MaxPending {
					t.Fatalf("after %v: %d undos of grant %d", tt.at, n, i)
				}
			}
			if n := runtime.NumGoroutine(); n > goroutines+10 {
				t.Errorf("after %v: %d goroutines, and %d at the start", tt.at, n, goroutines)
			}
		}
		chase(MaxPending, time.Hour) // there is room again
		chase(MaxPending+1, 0)       // has ended
		if time.Sleep(time.Minute); calls[MaxPending].Load() != 3 || calls[MaxPending+1].Load() != 2 || Dropped.Load()-before != 100 || Pending.Load() != 0 {
			t.Errorf("in the end: %d and %d undos, %d dropped, %d pending", calls[MaxPending].Load(), calls[MaxPending+1].Load(), Dropped.Load()-before, Pending.Load())
		}
	})
}
