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

// chased calls Chase with an undo that fails if err is not nil, and otherwise finds the grant with
// call number found. It returns when undo was called.
func chased(t *testing.T, life time.Duration, found int, err error) (calls []time.Duration) {
	t.Helper()
	start := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // the caller has gone
	got := Chase(ctx, life, func(ctx context.Context) (bool, error) {
		calls = append(calls, time.Since(start))
		if end, ok := ctx.Deadline(); ctx.Err() != nil || !ok || time.Until(end) != Time {
			t.Errorf("undo has a context that ends at %v: %v", end, ctx.Err())
		}
		return len(calls) == found, err
	})
	if !errors.Is(got, err) {
		t.Errorf("got %v, want %v", got, err)
	}
	time.Sleep(time.Hour)
	synctest.Wait()
	if n := pending.Load(); n != 0 {
		t.Errorf("%d are pending in the end", n)
	}
	return calls
}

// Chase repeats an undo 1 s, 5 s and 25 s after the first, and up to a quarter later, until it has
// found the grant or the grant has ended.
func TestChase(t *testing.T) {
	failed := errors.New("failed")
	for _, tt := range []struct {
		name  string
		life  time.Duration
		found int
		err   error
		want  int // calls
	}{
		{"never found", 1<<63 - 1, 0, nil, 4},
		{"found at once", time.Hour, 1, nil, 1},
		{"found by the second", time.Hour, 2, nil, 2},
		{"found by the third", time.Hour, 3, nil, 3},
		{"failing", time.Hour, 0, failed, 4},
		{"failing, though it was found", time.Hour, 1, failed, 4},
		{"a life of 25 s", 25 * time.Second, 0, nil, 4},
		{"a life of 20 s", 20 * time.Second, 0, nil, 3},
		{"a life of 1 s", time.Second, 0, nil, 2},
		{"a life of less", time.Second - 1, 0, nil, 1},
		{"no life", 0, 0, nil, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var least, most [4]time.Duration
				for range 200 {
					calls := chased(t, tt.life, tt.found, tt.err)
					if len(calls) != tt.want {
						t.Fatalf("calls at %v, want %d", calls, tt.want)
					}
					for i, at := range calls {
						early := []time.Duration{0, time.Second, 5 * time.Second, 25 * time.Second}[i]
						if at < early || at > early+early/4 || at > max(tt.life, 0) {
							t.Fatalf("calls at %v: want number %d from %v on, and at most a quarter later", calls, i, early)
						}
						if least[i] == 0 || at < least[i] {
							least[i] = at
						}
						most[i] = max(most[i], at)
					}
				}
				for i := 1; i < tt.want && tt.life >= time.Hour; i++ { // of 200 calls
					if spread := most[i] - least[i]; spread < least[i]/8 {
						t.Errorf("call %d came from %v to %v: want them spread over a quarter", i, least[i], most[i])
					}
				}
			})
		})
	}
}

// At most MaxPending grants wait for another undo, without a goroutine. Others are counted, and
// their undo is not repeated.
func TestChaseBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const more = 100
		before, goroutines := Dropped(), runtime.NumGoroutine()
		calls := make([]atomic.Int32, MaxPending+more)
		for i := range calls {
			_ = Chase(t.Context(), time.Hour, func(context.Context) (bool, error) { return calls[i].Add(1) == 3, nil })
		}
		check := func(at string, taken, dropped int) {
			t.Helper()
			synctest.Wait()
			for i := range calls {
				if n, want := int(calls[i].Load()), map[bool]int{true: taken, false: 1}[i < MaxPending]; n != want {
					t.Fatalf("%s: undo of grant %d was called %d times, want %d", at, i, n, want)
				}
			}
			if n := runtime.NumGoroutine(); n > goroutines+10 {
				t.Errorf("%s: there are %d goroutines, and %d at the start", at, n, goroutines)
			}
			if n := Dropped() - before; n != int64(dropped) {
				t.Errorf("%s: got %d dropped, want %d", at, n, dropped)
			}
		}
		check("at once", 1, more)
		_ = Chase(t.Context(), 0, func(context.Context) (bool, error) { return false, nil }) // has ended
		check("a grant that has ended", 1, more)
		time.Sleep(1250 * time.Millisecond)
		check("after the first repetition", 2, more)
		_ = Chase(t.Context(), time.Hour, func(context.Context) (bool, error) { return true, nil })
		check("a grant that was found", 2, more)
		_ = Chase(t.Context(), time.Hour, func(context.Context) (bool, error) { return false, nil })
		check("while all wait for the second", 2, more+1)
		time.Sleep(5 * time.Second)
		check("after the second", 3, more+1)
		if calls := chased(t, time.Hour, 2, nil); len(calls) != 2 {
			t.Errorf("afterwards: calls at %v, want that there is room again", calls)
		}
	})
}

// Undo calls undo once, whatever comes of it.
func TestUndo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var calls []time.Time
		err := Undo(ctx, func(ctx context.Context) (bool, error) {
			calls = append(calls, time.Now())
			<-ctx.Done()
			return false, ctx.Err()
		})
		took := time.Since(calls[0])
		time.Sleep(time.Hour)
		if !errors.Is(err, context.DeadlineExceeded) || took != Time || len(calls) != 1 {
			t.Errorf("got %v after %v, calls at %v; want one that ends after %v", err, took, calls, Time)
		}
	})
}
