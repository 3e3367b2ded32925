package algorithm_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/script"
)

func TestLeakyBucketTrace(t *testing.T) {
	t.Parallel()
	ms := time.Millisecond
	b := newBench(t, algorithm.LeakyBucket{Rate: algorithm.PerSecond(2), Queue: 3})
	for _, tt := range []struct {
		at      int64 // milliseconds
		cost    int64
		wait    time.Duration
		allowed bool
		left    int64 // the largest cost that is allowed at once
		delay   time.Duration
		reset   time.Duration
		retry   time.Duration
	}{
		{0, 5, 0, false, 4, 0, 0, never},
		{0, 5, time.Hour, false, 4, 0, 0, never},
		{0, 1, 0, true, 0, 0, 500 * ms, 0},
		{0, 1, 0, false, 0, 0, 500 * ms, 500 * ms}, // a request leaves now, so the next is denied without MaxWait
		{0, 1, 500*ms - us, false, 0, 0, 500 * ms, us},
		{0, 1, 500 * ms, true, 0, 500 * ms, 1000 * ms, 0},
		{100, 2, time.Hour, true, 0, 900 * ms, 1900 * ms, 0},
		{100, 1, 0, false, 0, 0, 1900 * ms, 1900 * ms},
		{100, 1, time.Hour, false, 0, 0, 1900 * ms, 400 * ms}, // the queue is no longer for that
		{100, 1, 300 * ms, false, 0, 0, 1900 * ms, 1600 * ms},
		{500, 1, time.Hour, true, 0, 1500 * ms, 2000 * ms, 0},
		{500, 5, 1, false, 0, 0, 2000 * ms, never},
		{2500 - 1, 1, 0, false, 0, 0, 1 * ms, 1 * ms},
		{2500, 1, 0, true, 0, 0, 500 * ms, 0},
		{2500, 1, 1, false, 0, 0, 500 * ms, 500 * ms},
		{3000, 4, 0, true, 0, 0, 2000 * ms, 0},
	} {
		want := verdict{Allowed: tt.allowed, Limit: 4, Remaining: tt.left, Delay: tt.delay, ResetAfter: tt.reset, RetryAfter: tt.retry}
		if got := b.wait(script.Consume, epoch+tt.at*1000, tt.cost, tt.wait); got != want {
			t.Errorf("at %d ms, cost %d, wait %v:\ngot  %+v\nwant %+v", tt.at, tt.cost, tt.wait, got, want)
		}
	}
}

// The Lua of a LeakyBucket differs from the Lua of a GCRA in the room section, and in the
// line of the refund section that checks for later requests in the queue.
func TestLeakyBucketLua(t *testing.T) {
	t.Parallel()
	section := func(lua, name string) string {
		_, rest, _ := strings.Cut(lua, "\n-- "+name+"\n")
		for _, next := range []string{"\n-- room\n", "\n-- take\n", "\n-- ends\n", "\n-- refund\n"} {
			rest, _, _ = strings.Cut(rest, next)
		}
		return strings.TrimSpace(regexp.MustCompile(`(?m)^--.*$`).ReplaceAllString(rest, ""))
	}
	queue := mustLimit(t, algorithm.LeakyBucket{Rate: algorithm.PerSecond(3)}).Kind.Common().Lua
	cells := mustLimit(t, algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 1}).Kind.Common().Lua
	for _, name := range []string{"advance", "take", "ends"} {
		if got, want := section(queue, name), section(cells, name); got == "" || got != want {
			t.Errorf("section %s is\n%s\nof a GCRA\n%s", name, got, want)
		}
	}
	if got := section(queue, "room"); got == "" || got == section(cells, "room") {
		t.Errorf("section room is\n%s", got)
	}
	got, want := strings.Split(section(queue, "refund"), "\n"), strings.Split(section(cells, "refund"), "\n")
	var changed []string
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			changed = append(changed, got[i])
		}
	}
	if len(got) != len(want) || len(changed) != 1 || changed[0] != "if behind > 0 then back = 0 end" {
		t.Errorf("the refund differs in %q", changed)
	}
}

func TestLeakyBucketRefund(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		which int // the index of the refunded request, of four that came at 0
		after time.Duration
		gave  bool
		delay time.Duration // Delay of the next request
	}{
		{"the last", 3, 0, true, 3 * time.Second},
		{"one in the middle", 2, 0, false, 4 * time.Second},
		{"the first", 0, 0, false, 4 * time.Second},
		{"the last, a moment before its turn", 3, 3*time.Second - us, true, us},
		{"the last, at its turn", 3, 3 * time.Second, true, 0},
		{"the last, halfway to the next turn", 3, 3500 * time.Millisecond, true, 0},
		{"the last, a moment before the next turn", 3, 4*time.Second - us, true, 0},
		{"the last, at the next turn", 3, 4 * time.Second, false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: 5})
			var charges []charge
			for range 4 {
				c, v := b.charge(epoch, 1, time.Minute)
				if !v.Allowed {
					t.Fatalf("got %+v", v)
				}
				charges = append(charges, c)
			}
			now := epoch + tt.after.Microseconds()
			if gave := b.refund(now, charges[tt.which]); gave != tt.gave {
				t.Errorf("refunded: %v, want %v", gave, tt.gave)
			}
			if got := b.wait(script.Peek, now, 1, time.Minute); got.Delay != tt.delay {
				t.Errorf("the next has a Delay of %v, want %v", got.Delay, tt.delay)
			}
		})
	}
}
