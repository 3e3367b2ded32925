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

// A day starts at midnight UTC.
func TestFixedWindowAlignedDay(t *testing.T) {
	t.Parallel()
	b := newBench(t, algorithm.FixedWindow{Limit: 1, Window: 24 * time.Hour, Aligned: true})
	at := time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)
	midnight := time.Date(2026, 3, 15, 0, 0, 0, 0, time.UTC)
	if got, want := b.take(at.UnixMicro(), 1).ResetAfter, midnight.Sub(at); got != want {
		t.Errorf("ResetAfter %v, want %v", got, want)
	}
}

// A window starts with its first request, even if it is longer than the time since 1970,
// or if virtual time starts early.
func TestFixedWindowLongerThanSince1970(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	for _, tt := range []struct {
		name   string
		now    int64
		window time.Duration
	}{
		{"80 years", epoch, 80 * year},
		{"an hour, at the first microsecond", 1, time.Hour},
		{"an hour, half an hour in", (30 * time.Minute).Microseconds(), time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, algorithm.FixedWindow{Limit: 1, Window: tt.window})
			if got := b.take(tt.now, 1); !got.Allowed || got.ResetAfter != tt.window {
				t.Errorf("got %+v, want a window of %v from now", got, tt.window)
			}
			if got := b.take(tt.now, 1); got.Allowed || got.RetryAfter != tt.window {
				t.Errorf("got %+v, want a wait of %v", got, tt.window)
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

// A refund returns tokens while their window lasts. It does not move the window. If it
// leaves no consumed tokens in the window, the next request starts a new window.
func TestFixedWindowRefund(t *testing.T) {
	t.Parallel()
	const second = 1_000_000
	for _, tt := range []struct {
		name   string
		others int64 // tokens of an earlier request
		after  int64
		gave   bool
		left   int64         // tokens left after the refund
		next   time.Duration // ResetAfter after one more token
	}{
		{"the only tokens", 0, second / 2, true, 5, time.Second},
		{"with others", 2, second / 2, true, 3, time.Second / 2},
		{"just before the end", 2, second - 1, true, 3, us},
		{"at the end", 2, second, false, 5, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, algorithm.FixedWindow{Limit: 5, Window: time.Second})
			if tt.others > 0 {
				b.take(epoch, tt.others)
			}
			was, _ := b.charge(epoch, 3, 0)
			if gave := b.refund(epoch+tt.after, was); gave != tt.gave {
				t.Errorf("refunded: %v, want %v", gave, tt.gave)
			}
			if got := b.peek(epoch+tt.after, 1); got.Remaining != tt.left {
				t.Errorf("%d are left, want %d", got.Remaining, tt.left)
			}
			if got := b.take(epoch+tt.after, 1); got.ResetAfter != tt.next {
				t.Errorf("the window ends in %v, want %v", got.ResetAfter, tt.next)
			}
		})
	}
}
