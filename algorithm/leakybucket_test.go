package algorithm_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
)

func TestLeakyBucketTrace(t *testing.T) {
	t.Parallel()
	ms := time.Millisecond
	b := newBench(t, algorithm.LeakyBucket{Rate: algorithm.PerSecond(2), Queue: 3})
	for _, tt := range []struct {
		at      int64 // milliseconds
		ask     algorithm.Request
		allowed bool
		left    int64
		delay   time.Duration
		reset   time.Duration
		retry   time.Duration
	}{
		{0, algorithm.Request{Cost: 5}, false, 4, 0, 0, never},
		{0, algorithm.Request{Cost: 1}, true, 3, 0, 500 * ms, 0},
		{0, algorithm.Request{Cost: 1, MaxWait: 500*ms - us}, false, 3, 0, 500 * ms, us},
		{0, algorithm.Request{Cost: 1, MaxWait: 500 * ms}, true, 2, 500 * ms, 1000 * ms, 0},
		{100, algorithm.Request{Cost: 2}, true, 0, 900 * ms, 1900 * ms, 0},
		{100, algorithm.Request{Cost: 1}, false, 0, 0, 1900 * ms, 400 * ms},
		{100, algorithm.Request{Cost: 1, MaxWait: time.Hour}, false, 0, 0, 1900 * ms, 400 * ms}, // the queue is no longer for that
		{100, algorithm.Request{Cost: 1, MaxWait: 300 * ms}, false, 0, 0, 1900 * ms, 1600 * ms},
		{500, algorithm.Request{Cost: 1}, true, 0, 1500 * ms, 2000 * ms, 0},
		{500, algorithm.Request{Cost: 0}, true, 0, 2000 * ms, 2000 * ms, 0},
		{500, algorithm.Request{Cost: 5, MaxWait: 1}, false, 0, 0, 2000 * ms, never},
		{2500, algorithm.Request{Cost: 1, MaxWait: 1}, true, 3, 0, 500 * ms, 0},
		{2500, algorithm.Request{Cost: 1, MaxWait: 1}, false, 3, 0, 500 * ms, 500 * ms},
		{3000, algorithm.Request{Cost: 4}, true, 0, 0, 2000 * ms, 0},
	} {
		script := b.program.Decide
		if tt.ask.Cost == 0 {
			script = b.program.Peek
		}
		want := algorithm.Verdict{Allowed: tt.allowed, Limit: 4, Remaining: tt.left, Delay: tt.delay, ResetAfter: tt.reset, RetryAfter: tt.retry}
		if got := b.ask(script, epoch+tt.at*1000, tt.ask); got != want {
			t.Errorf("at %d ms, %+v:\ngot  %+v\nwant %+v", tt.at, tt.ask, got, want)
		}
	}
}

// Requests that are allowed, each after its Delay, are an interval apart: to the
// microsecond, rounded up, and without drift. A day of three per second has 259,200.
func TestLeakyBucketTurns(t *testing.T) {
	t.Parallel()
	const day = 86_400_000_000
	b := newBench(t, algorithm.LeakyBucket{Rate: algorithm.PerSecond(3), Queue: 10})
	n := int64(0)
	for now := int64(epoch); ; {
		v := b.take(now, 1)
		if !v.Allowed {
			now += v.RetryAfter.Microseconds()
			continue
		}
		turn := now - epoch + v.Delay.Microseconds()
		if want := (n*1_000_000 + 2) / 3; turn != want {
			t.Fatalf("request %d has its turn at %d µs, want %d", n, turn, want)
		}
		if turn >= day {
			break
		}
		n++
	}
	if n != 259_200 {
		t.Errorf("%d left in a day, want 259200", n)
	}
}

// A LeakyBucket lets pass what a GCRA with one more for its Burst does, and writes
// the same; neither takes the other's key for a foreign one.
func TestLeakyBucketIsGCRA(t *testing.T) {
	t.Parallel()
	for i, rate := range []algorithm.Rate{algorithm.PerSecond(10), algorithm.PerSecond(3), algorithm.PerSecond(7_000_000)} {
		r := rand.New(rand.NewPCG(uint64(i), 7))
		queue, cells := algorithm.LeakyBucket{Rate: rate, Queue: 8}, algorithm.GCRA{Rate: rate, Burst: 9}
		left, right := newBench(t, queue), newBench(t, cells)
		now := int64(epoch)
		for step := range 2000 {
			now += r.Int64N(3*max(rate.Period.Microseconds()/rate.Count, 1)+1) - 1
			cost := 1 + r.Int64N(3)
			got, want := left.take(now, cost), right.take(now, cost)
			if delay := got.Delay; got.Allowed && delay > want.ResetAfter {
				t.Fatalf("%v: a Delay of %v in a queue that is empty in %v", rate, delay, want.ResetAfter)
			}
			if got.Delay = 0; got != want {
				t.Fatalf("cost %d at %v: got %+v, GCRA says %+v", cost, rate, got, want)
			}
			if left.state.keys[0].nums != right.state.keys[0].nums {
				t.Fatalf("it holds %v, of a GCRA %v", left.state.keys[0].nums, right.state.keys[0].nums)
			}
			if step%100 == 0 {
				left.change(queue)
				left.state, right.state = right.state, left.state
			}
		}
	}
}

// What a LeakyBucket changes in GCRA's script is what a refund goes by: whether
// somebody waits who must not be passed.
func TestLeakyBucketScript(t *testing.T) {
	t.Parallel()
	for _, rate := range []algorithm.Rate{algorithm.PerSecond(1), algorithm.PerSecond(3)} {
		queue := mustLimit(t, algorithm.LeakyBucket{Rate: rate}).Fragment()
		cells := mustLimit(t, algorithm.GCRA{Rate: rate, Burst: 1}).Fragment()
		if queue.Name != "leakybucket" || cells.Name != "gcra" {
			t.Errorf("named %q and %q", queue.Name, cells.Name)
		}
		got, want := strings.Split(queue.Lua, "\n"), strings.Split(cells.Lua, "\n")
		var changed []string
		for i := range want {
			if i >= len(got) || got[i] != want[i] {
				changed = append(changed, want[i])
			}
		}
		if len(got) != len(want) || len(changed) != 1 || !strings.HasPrefix(changed[0], "if waits and ") || !strings.Contains(queue.Lua, "\n-- refund\n") {
			t.Errorf("at %v it changes %q", rate, changed)
		}
	}
}

func TestLeakyBucketRefund(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		which  int // of four that came at once, at 0
		after  time.Duration
		gave   bool
		delay  time.Duration // of the next
		remain int64
	}{
		{"the last", 3, 0, true, 3 * time.Second, 3},
		{"one in the middle", 2, 0, false, 4 * time.Second, 2},
		{"the first", 0, 0, false, 4 * time.Second, 2},
		{"the last, a moment before its turn", 3, 3*time.Second - us, true, us, 5},
		{"the last, halfway to the next turn", 3, 3500 * time.Millisecond, true, 0, 6},
		{"the last, when all is over", 3, 4 * time.Second, false, 0, 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: 5})
			var charges []algorithm.Charge
			for range 4 {
				c, v := b.charge(epoch, algorithm.Request{Cost: 1})
				if !v.Allowed {
					t.Fatalf("got %+v", v)
				}
				charges = append(charges, c)
			}
			now := epoch + tt.after.Microseconds()
			if gave := b.refund(now, charges[tt.which]); gave != tt.gave {
				t.Errorf("gave back: %v, want %v", gave, tt.gave)
			}
			got := b.peek(now, 1)
			if got.Delay != tt.delay {
				t.Errorf("the next has a Delay of %v, want %v", got.Delay, tt.delay)
			}
			if got := b.peek(now, 0); got.Remaining != tt.remain {
				t.Errorf("%d are left, want %d", got.Remaining, tt.remain)
			}
		})
	}
}
