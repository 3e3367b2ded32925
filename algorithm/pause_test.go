package algorithm_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/script"
)

// pause runs Pause or Resume for the pause with this name, and reports what it replied.
func (b *bench) pause(v script.Verb, now int64, name string, d time.Duration) bool {
	n, _ := b.do(v, now, compose.Call{Cost: 1, Text: name, Wait: d.Microseconds()})
	return n == 1
}

// A key is closed until its last pause ends. A pause shortens no other, and not itself.
func TestPause(t *testing.T) {
	t.Parallel()
	const s = int64(1_000_000)
	open := verdict{Allowed: true, Limit: algorithm.MaxTokens, Remaining: algorithm.MaxTokens}
	closed := func(left time.Duration) verdict {
		return verdict{Limit: algorithm.MaxTokens, RetryAfter: left, ResetAfter: left}
	}
	b := newBench(t, algorithm.Pause{})
	for i, step := range []struct {
		at    int64
		verb  script.Verb
		name  string
		d     time.Duration
		found bool // what Pause and Resume reply
		want  verdict
	}{
		{0, script.Resume, "a", 0, false, open},
		{0, script.Pause, "a", 10 * time.Second, true, closed(10 * time.Second)},
		{1 * s, script.Pause, "b", 3 * time.Second, true, closed(9 * time.Second)}, // it ends first
		{2 * s, script.Pause, "a", time.Second, true, closed(8 * time.Second)},     // it was longer
		{2 * s, script.Resume, "a", 0, true, closed(2 * time.Second)},              // b goes on
		{2 * s, script.Resume, "a", 0, false, closed(2 * time.Second)},
		{3 * s, script.Resume, "c", 0, false, closed(time.Second)},
		{4*s - 1, script.Resume, "c", 0, false, closed(us)},
		{4 * s, script.Resume, "b", 0, false, open}, // it had ended
		{5 * s, script.Pause, "a", 2 * time.Second, true, closed(2 * time.Second)},
		{6 * s, script.Pause, "a", 2 * time.Second, true, closed(2 * time.Second)}, // extended by its owner
		{7 * s, script.Resume, "b", 0, false, closed(time.Second)},                 // a sleeper does not end it
		{8 * s, script.Resume, "b", 0, false, open},
		{9 * s, script.Pause, "a", us, true, closed(us)},
		{9*s + 1, script.Resume, "a", 0, false, open},
		{10 * s, script.Pause, "a", maxSpan, true, closed(maxSpan)},
	} {
		if found := b.pause(step.verb, epoch+step.at, step.name, step.d); found != step.found {
			t.Errorf("step %d: replied %v, want %v", i, found, step.found)
		}
		for name, got := range map[string]verdict{
			"peek": b.peek(epoch+step.at, 1), "all tokens": b.take(epoch+step.at, algorithm.MaxTokens), "more": b.take(epoch+step.at, algorithm.MaxTokens+1),
		} {
			if got != step.want {
				t.Errorf("step %d, %s:\ngot  %+v\nwant %+v", i, name, got, step.want)
			}
		}
	}
}

// A request is denied until the end of the pause, however long it can wait. It writes
// nothing.
func TestPauseWait(t *testing.T) {
	t.Parallel()
	b := newBench(t, algorithm.Pause{})
	b.pause(script.Pause, epoch, "a", 10*time.Second)
	writes := b.state.writes
	for _, v := range []script.Verb{script.Consume, script.Peek} {
		for _, wait := range []time.Duration{us, 10*time.Second - us, time.Hour, maxSpan} {
			if got := b.wait(v, epoch+1, 1, wait); got.Allowed || got.RetryAfter != 10*time.Second-us || got.ResetAfter != got.RetryAfter || got.Remaining != 0 {
				t.Errorf("with a wait of %v: got %+v", wait, got)
			}
		}
		if got := b.wait(v, epoch+10_000_000, 1, time.Hour); !got.Allowed || got.Delay != 0 || got.RetryAfter != 0 {
			t.Errorf("at the end: got %+v", got)
		}
	}
	for _, v := range []script.Verb{script.Consume, script.UpTo, script.Force, script.ConsumeMark, script.UpToMark, script.ForceMark, script.Refund, script.Settle} {
		b.do(v, epoch+1, compose.Call{Cost: 5, Gen: 1})
		b.do(v, epoch+10_000_000, compose.Call{Cost: 5, Gen: 1})
	}
	if b.state.writes != writes {
		t.Errorf("decisions wrote %d times", b.state.writes-writes)
	}
}

// A Force consumes even during a pause.
func TestPauseForce(t *testing.T) {
	t.Parallel()
	b := newBench(t, algorithm.Pause{})
	b.pause(script.Pause, epoch, "a", time.Second)
	if n, got := b.do(script.Force, epoch, compose.Call{Cost: 7}); n != 7 || !got.Allowed || got.Delay != 0 || got.Remaining != 0 || got.ResetAfter != time.Second {
		t.Errorf("got %d tokens, %+v", n, got)
	}
}

// Beyond MaxPauses, pauses share an entry. The key stays closed until the last of them
// ends, even if all others are resumed.
func TestPauseMany(t *testing.T) {
	t.Parallel()
	b := newBench(t, algorithm.Pause{})
	for i := range algorithm.MaxPauses {
		b.pause(script.Pause, epoch, fmt.Sprint(i), time.Minute+time.Duration(i)*time.Second)
	}
	b.pause(script.Pause, epoch, "long", 10*time.Minute)
	b.pause(script.Pause, epoch, "short", 5*time.Minute)
	b.pause(script.Pause, epoch, "7", 2*time.Minute) // it has an entry
	if n := len(b.state.keys[0].set); n != algorithm.MaxPauses+1 {
		t.Fatalf("%d entries, want %d", n, algorithm.MaxPauses+1)
	}
	for i := range algorithm.MaxPauses {
		if !b.pause(script.Resume, epoch, fmt.Sprint(i), 0) {
			t.Errorf("pause %d was not found", i)
		}
	}
	if b.pause(script.Resume, epoch, "long", 0) {
		t.Error("a pause without an entry was found")
	}
	if got := b.peek(epoch, 1); got.RetryAfter != 10*time.Minute {
		t.Errorf("got %+v, want it closed for 10 min", got)
	}
	// Ended pauses make room for others.
	now := int64(epoch + 600_000_000)
	for i := range algorithm.MaxPauses {
		b.pause(script.Pause, now, fmt.Sprint(i), time.Second)
	}
	if n := len(b.state.keys[0].set); n != algorithm.MaxPauses {
		t.Errorf("%d entries, want %d", n, algorithm.MaxPauses)
	}
}

// The key lives until the last pause would end, even if that pause is resumed or a
// shorter one begins later, and to the end of a millisecond.
func TestPauseTTL(t *testing.T) {
	t.Parallel()
	b := newBench(t, algorithm.Pause{})
	for i, tt := range []struct {
		at   int64
		name string
		d    time.Duration
		want time.Duration
	}{
		{0, "a", 1500 * us, 2 * time.Millisecond},
		{0, "b", time.Second, time.Second},
		{1, "c", time.Millisecond, time.Second},
		{2_000_000, "c", time.Millisecond, time.Millisecond},
	} {
		b.pause(script.Pause, epoch+tt.at, tt.name, tt.d)
		if b.state.ttl != tt.want {
			t.Errorf("%d: the TTL is %v, want %v", i, b.state.ttl, tt.want)
		}
	}
	b.do(script.Pause, epoch+3_000_000, compose.Call{Cost: 1, Now: epoch + 3_000_000, Text: "a", Wait: 1_000_000})
	if want := time.Hour + time.Second; b.state.ttl != want {
		t.Errorf("with a caller's clock, the TTL is %v, want %v", b.state.ttl, want)
	}
}

// If the clock steps back, a pause lasts longer by the step, and not more.
func TestPauseClock(t *testing.T) {
	t.Parallel()
	b := newBench(t, algorithm.Pause{})
	b.state.keep = true
	b.pause(script.Pause, epoch+10_000_000, "a", 5*time.Second)
	for at, want := range map[int64]time.Duration{4_000_000: 11 * time.Second, 15_000_000: 0, 14_000_000: time.Second} {
		if got := b.peek(epoch+at, 1); got.RetryAfter != want {
			t.Errorf("at %d µs: got %+v, want it closed for %v", at, got, want)
		}
	}
	b.pause(script.Pause, epoch+4_000_000, "a", time.Second)
	if got := b.peek(epoch+4_000_000, 1); got.RetryAfter != 11*time.Second {
		t.Errorf("got %+v, want that the step shortens no pause", got)
	}
}
