package rediscell_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/rediscell"
	"github.com/weir-go/weir/store/memory"
)

// epoch is the start of virtual time.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// newThrottler returns a throttler whose clock shows *now.
func newThrottler(t *testing.T, now *time.Time) *rediscell.Throttler {
	t.Helper()
	th, err := rediscell.New("t", memory.New(&memory.Options{Now: func() time.Time { return *now }}), nil)
	if err != nil {
		t.Fatal(err)
	}
	return th
}

// The answers are those of redis-cell, except that times are rounded up.
func TestThrottleTrace(t *testing.T) {
	t.Parallel()
	now := epoch
	th := newThrottler(t, &now)
	for _, tt := range []struct {
		at       int64 // milliseconds
		quantity int64
		want     [5]int64
	}{
		{0, 6, [5]int64{1, 5, 5, -1, 0}},
		{0, 1, [5]int64{0, 5, 4, -1, 1}},
		{0, 1, [5]int64{0, 5, 3, -1, 2}},
		{0, 1, [5]int64{0, 5, 2, -1, 3}},
		{0, 1, [5]int64{0, 5, 1, -1, 4}},
		{0, 1, [5]int64{0, 5, 0, -1, 5}},
		{0, 1, [5]int64{1, 5, 0, 1, 5}},
		{3000, 1, [5]int64{0, 5, 2, -1, 3}},
		{3100, 1, [5]int64{0, 5, 1, -1, 4}},
		{4000, 1, [5]int64{0, 5, 1, -1, 4}},
		{8000, 1, [5]int64{0, 5, 4, -1, 1}},
		{9500, 1, [5]int64{0, 5, 4, -1, 1}},
		{9500, 0, [5]int64{0, 5, 4, -1, 1}},
		{9500, 2, [5]int64{0, 5, 2, -1, 3}},
		{9500, 5, [5]int64{1, 5, 2, 3, 3}},
		{9501, 5, [5]int64{1, 5, 2, 3, 3}}, // 2.999 s
		{10500, 5, [5]int64{1, 5, 3, 2, 2}},
		{15000, 6, [5]int64{1, 5, 5, -1, 0}},
	} {
		now = epoch.Add(time.Duration(tt.at) * time.Millisecond)
		got, err := th.Throttle(t.Context(), "k", 4, 1, time.Second, tt.quantity)
		if err != nil || got.Numbers() != tt.want {
			t.Errorf("at %d ms, quantity %d: got %v, %v, want %v", tt.at, tt.quantity, got.Numbers(), err, tt.want)
		}
		if got.Limited != (tt.want[0] == 1) {
			t.Errorf("at %d ms, quantity %d: got %+v", tt.at, tt.quantity, got)
		}
	}
}

// The limit can change with each call. The state stays.
func TestThrottleChangedLimit(t *testing.T) {
	t.Parallel()
	now := epoch
	th := newThrottler(t, &now)
	for i, tt := range []struct {
		maxBurst, count int64
		period          time.Duration
		quantity        int64
		want            [5]int64
	}{
		{9, 1, time.Second, 5, [5]int64{0, 10, 5, -1, 5}},
		{4, 1, time.Second, 1, [5]int64{1, 5, 0, 1, 5}},
		{19, 2, time.Second, 1, [5]int64{0, 20, 9, -1, 6}},
		{5999, 6000, time.Second, 6000, [5]int64{1, 6000, 0, 6, 6}},
		{0, 1, time.Hour, 1, [5]int64{1, 1, 0, 6, 6}},
		{9, 1, time.Second, 0, [5]int64{0, 10, 4, -1, 6}},
		{5, 1, time.Second, 0, [5]int64{0, 6, 0, -1, 6}}, // empty, and not overdrawn
		{4, 1, time.Second, 0, [5]int64{1, 5, 0, 1, 6}},
		{2, 3, time.Second, 0, [5]int64{1, 3, 0, 5, 6}},
	} {
		got, err := th.Throttle(t.Context(), "k", tt.maxBurst, tt.count, tt.period, tt.quantity)
		if err != nil || got.Numbers() != tt.want {
			t.Errorf("step %d: got %v, %v, want %v", i, got.Numbers(), err, tt.want)
		}
	}
}

func TestThrottleRejects(t *testing.T) {
	t.Parallel()
	now := epoch
	th := newThrottler(t, &now)
	for _, tt := range []struct {
		name            string
		key             string
		maxBurst, count int64
		period          time.Duration
		quantity        int64
		want            error
	}{
		{"largest burst", "k", algorithm.MaxTokens - 1_000_001, 1_000_000_000, time.Millisecond, 1, nil},
		{"no burst", "k", 0, 1, time.Second, 1, nil},
		{"negative quantity", "k", 4, 1, time.Second, -1, weir.ErrInvalidCost},
		{"negative burst", "k", -1, 1, time.Second, 1, weir.ErrInvalidLimit},
		{"burst too large", "k", algorithm.MaxTokens, 1_000_000_000, time.Millisecond, 1, weir.ErrInvalidLimit},
		{"greatest burst", "k", 1<<63 - 1, 1, time.Second, 1, weir.ErrInvalidLimit},
		{"no count", "k", 4, 0, time.Second, 1, weir.ErrInvalidLimit},
		{"no period", "k", 4, 1, 0, 1, weir.ErrInvalidLimit},
		{"fills too late", "k", 1 << 40, 1, time.Hour, 1, weir.ErrInvalidLimit},
		{"empty key", "", 4, 1, time.Second, 1, weir.ErrInvalidKey},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := th.Throttle(t.Context(), tt.key, tt.maxBurst, tt.count, tt.period, tt.quantity)
			if err != nil && !strings.HasPrefix(err.Error(), "weir: ") {
				t.Errorf("error %q has no prefix", err)
			}
			if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) || err != nil && got != (rediscell.Throttled{}) {
				t.Errorf("got %+v, %v, want %v", got, err, tt.want)
			}
		})
	}
	if th, err := rediscell.New("t", nil, nil); err == nil {
		t.Errorf("New of no store = %v, want an error", th)
	}
	if th, err := rediscell.New("t", memory.New(&memory.Options{MaxKeys: -1}), nil); err == nil {
		t.Errorf("New of a store that cannot work = %v, want an error", th)
	}
}

// A zero Throttler returns an error that names the constructor.
func TestZeroThrottler(t *testing.T) {
	t.Parallel()
	for _, th := range []*rediscell.Throttler{nil, {}} {
		if _, err := th.Throttle(t.Context(), "k", 1, 1, time.Second, 1); err == nil || !strings.Contains(err.Error(), "rediscell.New") {
			t.Errorf("got %v, want an error that names rediscell.New", err)
		}
	}
}

// A call of quantity 0 is not denied after calls of the same limit, whatever fraction of
// a microsecond the interval has.
func TestThrottleNothing(t *testing.T) {
	now := time.Unix(1767225600, 0)
	th, err := rediscell.New("api", memory.New(&memory.Options{Now: func() time.Time { return now }}), nil)
	if err != nil {
		t.Fatal(err)
	}
	for count := int64(1); count < 20_000; count += 7 {
		key := strconv.FormatInt(count, 10)
		for _, quantity := range []int64{1, 0} {
			got, err := th.Throttle(t.Context(), key, 0, count, time.Second, quantity)
			if err != nil || got.Limited {
				t.Fatalf("%d per second, quantity %d: got %+v, %v", count, quantity, got, err)
			}
		}
	}
}
