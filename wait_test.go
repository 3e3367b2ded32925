package weir_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A hundred waiters on one key go one interval apart, in the order of their
// reservations, and ask the store once each.
func TestWaitInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const waiters, interval = 100, 10 * time.Millisecond
		var mu sync.Mutex
		var evals, ended []time.Duration
		start := time.Now()
		st := &hooked{Store: memory.New(nil), eval: func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			evals = append(evals, time.Since(start))
			return nil
		}}
		l := mustNew(t, st, alone(algorithm.GCRA{Rate: algorithm.Every(interval), Burst: 1}), nil)
		var wg sync.WaitGroup
		for range waiters {
			wg.Go(func() {
				res, err := l.Wait(t.Context(), "k")
				if err != nil || !res.Allowed || res.Granted != 1 {
					t.Errorf("Wait: got %+v, %v", res, err)
				}
				mu.Lock()
				defer mu.Unlock()
				ended = append(ended, res.Delay)
				if now := time.Since(start); now != res.Delay {
					t.Errorf("a waiter whose turn comes after %v went after %v", res.Delay, now)
				}
			})
		}
		wg.Wait()
		if len(evals) != waiters || slices.Max(evals) != 0 {
			t.Errorf("%d waiters asked the store %d times, the last after %v, want once each, at once", waiters, len(evals), slices.Max(evals))
		}
		for i, d := range ended {
			if d != time.Duration(i)*interval {
				t.Fatalf("number %d went after %v, want %v", i, d, time.Duration(i)*interval)
			}
		}
	})
}

func TestWait(t *testing.T) {
	t.Parallel()
	hourly := algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 2}
	for _, tt := range []struct {
		name   string
		within time.Duration // of the deadline; 0: none
		cancel time.Duration // after which ctx is cancelled; 0: never
		taken  int64         // before
		cost   int64
		want   error
		text   string
		took   time.Duration
		evals  int
		left   time.Duration // until the limit is as new
	}{
		{"there", 0, 0, 0, 2, nil, "", 0, 1, 2 * time.Hour},
		{"nothing asked for", 0, 0, 2, 0, nil, "", 0, 1, 2 * time.Hour},
		{"in time", 0, 0, 2, 1, nil, "", time.Hour, 1, 2 * time.Hour},
		{"just in time", time.Hour, 0, 2, 1, nil, "", time.Hour, 1, 2 * time.Hour},
		{"a microsecond too late", time.Hour - time.Microsecond, 0, 2, 1, weir.ErrRefused, "1µs later", 0, 1, 2 * time.Hour},
		{"never", 0, 0, 0, 3, weir.ErrRefused, "never room for 3 tokens", 0, 1, 0},
		{"negative", 0, 0, 0, -1, weir.ErrInvalidCost, "-1", 0, 0, 0},
		{"cancelled", 0, time.Minute, 2, 1, context.Canceled, "", time.Minute, 2, 2*time.Hour - time.Minute},
		{"cancelled with all that was taken", 0, time.Minute, 1, 2, context.Canceled, "", time.Minute, 2, time.Hour - time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := &recorder{Store: memory.New(nil)}
				l := mustNew(t, r, alone(hourly), nil)
				if _, err := l.AllowN(t.Context(), tt.taken, "k"); err != nil {
					t.Fatal(err)
				}
				r.evals = 0
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.within > 0 {
					ctx, cancel = context.WithTimeout(ctx, tt.within)
					defer cancel()
				}
				if tt.cancel > 0 {
					time.AfterFunc(tt.cancel, cancel)
				}
				start := time.Now()
				res, err := l.WaitN(ctx, tt.cost, "k")
				if !errors.Is(err, tt.want) || tt.want != nil && !strings.Contains(err.Error(), tt.text) {
					t.Errorf("got %+v, %v, want %v %q", res, err, tt.want, tt.text)
				}
				if (err == nil) != res.Allowed {
					t.Errorf("got %+v with error %v", res, err)
				}
				if took := time.Since(start); took != tt.took || r.evals != tt.evals {
					t.Errorf("it took %v and %d calls, want %v and %d", took, r.evals, tt.took, tt.evals)
				}
				after, err := l.Peek(t.Context(), "k")
				if err != nil || after.ResetAfter != tt.left {
					t.Errorf("left %+v, %v, want it as new after %v", after, err, tt.left)
				}
			})
		})
	}
}

// A wait whose tokens cannot be given back says so, and does not wait for that for ever.
func TestWaitCancelledInAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("the cable is out")
		calls := 0
		st := &hooked{Store: memory.New(nil), eval: func(ctx context.Context) error {
			if calls++; calls < 2 {
				return nil
			}
			if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > time.Minute {
				t.Errorf("giving back has no deadline, or a late one: %v", deadline)
			}
			return down
		}}
		l := mustNew(t, st, alone(algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 1}), nil)
		if _, err := l.Reserve(t.Context(), weir.Request{Path: []string{"k"}, Cost: 1}); err != nil {
			t.Fatal(err)
		}
		calls = 0
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		time.AfterFunc(time.Minute, cancel)
		if res, err := l.Wait(ctx, "k"); !errors.Is(err, context.Canceled) || !errors.Is(err, down) || res.Allowed {
			t.Errorf("got %+v, %v, want both errors", res, err)
		}
	})
}

// A reservation is of a path that its caller may change afterwards, and is given
// back once.
func TestReservationCancel(t *testing.T) {
	t.Parallel()
	c := newClock()
	l := mustNew(t, newStore(c), []weir.Rule{
		{Name: "all", By: []int{0}, Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 1}},
		{Name: "user", By: []int{0, 1}, Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1}, Cost: 1},
	}, nil)
	path := []string{"a", "u"}
	var list []weir.Reservation
	for range 2 {
		r, err := l.Reserve(t.Context(), weir.Request{Path: path, Cost: 1, MaxWait: time.Minute})
		if err != nil || !r.Allowed {
			t.Fatalf("Reserve: got %+v, %v", r, err)
		}
		list = append(list, r)
	}
	if d := list[1].Delay; d != time.Second {
		t.Errorf("the second goes after %v, want the later of both rules, 1s", d)
	}
	path[1] = "v"
	for _, want := range []bool{true, false} {
		if gave, err := list[1].Cancel(t.Context()); gave != want || err != nil {
			t.Errorf("Cancel: got %v, %v, want %v", gave, err, want)
		}
	}
	res, err := l.Do(t.Context(), weir.Request{Path: []string{"a", "u"}, Cost: 1, MaxWait: time.Minute})
	if err != nil || res.Delay != time.Second {
		t.Errorf("the next: got %+v, %v, want it to go in place of the second", res, err)
	}
	refused, err := l.Reserve(t.Context(), weir.Request{Path: []string{"a", "u"}, Cost: 2})
	if err != nil || refused.Allowed {
		t.Errorf("more than there can be: got %+v, %v", refused, err)
	}
	if gave, err := refused.Cancel(t.Context()); gave || err != nil {
		t.Errorf("Cancel of a denial: got %v, %v", gave, err)
	}
	if gave, err := new(weir.Reservation).Cancel(t.Context()); gave || err != nil {
		t.Errorf("Cancel of nothing: got %v, %v", gave, err)
	}
}

// What an error leaves open is given back if it was taken.
func TestReservationCancelAfterAnError(t *testing.T) {
	t.Parallel()
	lost := fmt.Errorf("%w: the reply was lost", store.ErrUnavailable)
	st := memory.New(nil)
	after := &hooked{Store: st, eval: func(context.Context) error { return nil }}
	l := mustNew(t, after, alone(algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 2}), nil)
	after.lose = lost
	r, err := l.Reserve(t.Context(), weir.Request{Path: []string{"k"}, Cost: 2})
	if !errors.Is(err, lost) || r.Allowed {
		t.Fatalf("Reserve: got %+v, %v", r, err)
	}
	after.lose = nil
	for _, want := range []bool{true, false} {
		if gave, err := r.Cancel(t.Context()); gave != want || err != nil {
			t.Errorf("Cancel: got %v, %v, want %v", gave, err, want)
		}
	}
	if res, err := l.Peek(t.Context(), "k"); err != nil || res.Remaining != 2 {
		t.Errorf("left %+v, %v, want all", res, err)
	}
}

// A request that makes no sense took nothing, and to give it back is no worse than to
// make it.
func TestReservationCancelOfMisuse(t *testing.T) {
	t.Parallel()
	l := mustNew(t, newStore(newClock()), alone(algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 2}), nil)
	for _, req := range []weir.Request{
		{Path: []string{"k"}, Cost: 1, Limits: []algorithm.Limit{}},
		{Path: []string{"k"}, Cost: 1, Limits: make([]algorithm.Limit, 2)},
		{Path: []string{"k"}, Cost: 1, Each: []weir.Result{}},
		{Path: []string{"k"}, Cost: -1},
		{Cost: 1},
	} {
		r, err := l.Reserve(t.Context(), req)
		if err == nil || r.Allowed {
			t.Errorf("%+v: Reserve: got %+v, %v, want an error", req, r, err)
		}
		if gave, _ := r.Cancel(t.Context()); gave {
			t.Errorf("%+v: Cancel gave something", req)
		}
	}
}

// What limits a reservation was made under is its own, as its path is.
func TestReservationKeepsLimits(t *testing.T) {
	t.Parallel()
	l := mustNew(t, newStore(newClock()), alone(algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 2}), nil)
	limit, err := algorithm.GCRA{Rate: algorithm.PerHour(3), Burst: 5}.NewLimit()
	if err != nil {
		t.Fatal(err)
	}
	other, err := algorithm.FixedWindow{Limit: 5, Window: time.Hour}.NewLimit()
	if err != nil {
		t.Fatal(err)
	}
	limits := []algorithm.Limit{limit}
	r, err := l.Reserve(t.Context(), weir.Request{Path: []string{"k"}, Cost: 5, Limits: limits})
	if err != nil || !r.Allowed {
		t.Fatalf("Reserve: got %+v, %v", r, err)
	}
	limits[0] = other
	if gave, err := r.Cancel(t.Context()); !gave || err != nil {
		t.Errorf("Cancel: got %v, %v", gave, err)
	}
}

// A hooked store runs eval before each decision, and fails with its error.
type hooked struct {
	store.Store
	eval func(ctx context.Context) error
	lose error // of a call that was made all the same
}

func (h *hooked) Eval(ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	if h.lose != nil {
		_, _ = h.Store.Eval(ctx, s, keys, args, nil)
		return reply, h.lose
	}
	if err := h.eval(ctx); err != nil {
		return reply, err
	}
	return h.Store.Eval(ctx, s, keys, args, reply)
}

// alone is the rule of a limiter that has no other.
func alone(a algorithm.Algorithm) []weir.Rule { return []weir.Rule{{Algorithm: a}} }
