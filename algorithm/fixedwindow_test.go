package algorithm_test

import (
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
)

func TestFixedWindowTrace(t *testing.T) {
	t.Parallel()
	type step struct {
		at        int64 // milliseconds
		cost      int64 // 0: a peek of 1
		allowed   bool
		remaining int64
		reset     time.Duration
		retry     time.Duration
	}
	ms := time.Millisecond
	for _, tt := range []struct {
		name  string
		limit algorithm.FixedWindow
		from  int64 // milliseconds after the epoch of the tests, which is a whole second
		steps []step
	}{
		{"anchored: the window starts with its first request", algorithm.FixedWindow{Limit: 3, Window: time.Second}, 400, []step{
			{0, 0, true, 3, 0, 0},
			{0, 4, false, 3, 0, never},
			{0, 1, true, 2, 1000 * ms, 0},
			{600, 1, true, 1, 400 * ms, 0},
			{600, 2, false, 1, 400 * ms, 400 * ms},
			{999, 1, true, 0, 1 * ms, 0},
			{999, 1, false, 0, 1 * ms, 1 * ms},
			{999, 0, false, 0, 1 * ms, 1 * ms},
			{999, 4, false, 0, 1 * ms, never},
			{1000, 4, false, 3, 0, never},
			{1000, 0, true, 3, 0, 0},
			{1700, 3, true, 0, 1000 * ms, 0},
			{2000, 1, false, 0, 700 * ms, 700 * ms},
			{2700, 1, true, 2, 1000 * ms, 0},
		}},
		{"aligned: windows start at multiples", algorithm.FixedWindow{Limit: 3, Window: time.Second, Aligned: true}, 400, []step{
			{0, 1, true, 2, 600 * ms, 0},
			{500, 2, true, 0, 100 * ms, 0},
			{599, 1, false, 0, 1 * ms, 1 * ms},
			{600, 3, true, 0, 1000 * ms, 0},
			{1599, 1, false, 0, 1 * ms, 1 * ms},
			{2599, 1, true, 2, 1 * ms, 0},
			{2600, 1, true, 2, 1000 * ms, 0},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, tt.limit)
			for _, s := range tt.steps {
				want := verdict{Allowed: s.allowed, Limit: tt.limit.Limit, Remaining: s.remaining, RetryAfter: s.retry, ResetAfter: s.reset}
				if got := b.takeOrPeek(epoch+(tt.from+s.at)*1000, s.cost); got != want {
					t.Errorf("at %d ms, cost %d: got %+v, want %+v", s.at, s.cost, got, want)
				}
			}
		})
	}
}

// If the limit changes, the current window keeps its count and its end.
func TestFixedWindowChangedLimit(t *testing.T) {
	t.Parallel()
	b := newBench(t, algorithm.FixedWindow{Limit: 5, Window: time.Minute})
	b.take(epoch, 4)
	at := epoch + time.Second.Microseconds()
	for _, tt := range []struct {
		name string
		to   algorithm.FixedWindow
		want verdict
	}{
		{"higher", algorithm.FixedWindow{Limit: 6, Window: time.Minute}, verdict{Allowed: true, Limit: 6, Remaining: 2, ResetAfter: 59 * time.Second}},
		{"lower", algorithm.FixedWindow{Limit: 3, Window: time.Minute}, verdict{Limit: 3, RetryAfter: 59 * time.Second, ResetAfter: 59 * time.Second}},
		{"longer", algorithm.FixedWindow{Limit: 4, Window: time.Hour}, verdict{Limit: 4, RetryAfter: 59 * time.Second, ResetAfter: 59 * time.Second}},
		{"shorter", algorithm.FixedWindow{Limit: 4, Window: time.Second}, verdict{Limit: 4, RetryAfter: 59 * time.Second, ResetAfter: 59 * time.Second}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			changed := *b
			changed.t = t
			changed.change(tt.to)
			if got := changed.peek(at, 1); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// A decision does not depend on whether an expired key has been removed, even if the
// window becomes longer under a live key.
func TestFixedWindowLengthened(t *testing.T) {
	t.Parallel()
	b := newBench(t, algorithm.FixedWindow{Limit: 1, Window: time.Second})
	b.take(epoch, 1)
	b.change(algorithm.FixedWindow{Limit: 1, Window: time.Minute})
	before := b.peek(epoch+1e6-1, 1)
	for _, at := range []int64{epoch + 1e6 - 1, epoch + 1e6, epoch + 2e6, epoch + 59e6, epoch + 60e6} {
		b.state.keep = false
		dropped := b.peek(at, 1)
		b.state.keep = true
		kept := b.peek(at, 1)
		if dropped != kept || dropped.Allowed != (at >= epoch+1e6) {
			t.Errorf("at %d µs: dropped %+v, kept %+v", at-epoch, dropped, kept)
		}
	}
	b.state.keep = false
	if got := b.peek(epoch+1e6-1+before.RetryAfter.Microseconds()-1, 1); got.Allowed {
		t.Errorf("told to wait %v, and one microsecond earlier it passes", before.RetryAfter)
	}
}
