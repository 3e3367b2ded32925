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

// A key is closed until its last pause ends, for every request, whatever it can wait. A pause
// shortens no other, and not itself. The key lives as long, to the end of a millisecond.
func TestPause(t *testing.T) {
	t.Parallel()
	const s = int64(1_000_000)
	open := verdict{Allowed: true, Limit: algorithm.MaxTokens, Remaining: algorithm.MaxTokens}
	closed := func(left time.Duration) verdict {
		return verdict{Limit: algorithm.MaxTokens, RetryAfter: left, ResetAfter: left}
	}
	b := newBench(t, algorithm.Pause{})
	b.state.keep = true
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
		{4*s - 1, script.Resume, "c", 0, false, closed(us)},
		{4 * s, script.Resume, "b", 0, false, open}, // it had ended
		{5 * s, script.Pause, "a", 2 * time.Second, true, closed(2 * time.Second)},
		{6 * s, script.Pause, "a", 2 * time.Second, true, closed(2 * time.Second)}, // extended by its owner
		{7 * s, script.Resume, "b", 0, false, closed(time.Second)},                 // a sleeper does not end it
		{8 * s, script.Resume, "b", 0, false, open},
		{9 * s, script.Pause, "a", us, true, closed(us)},
		{9*s + 1, script.Resume, "a", 0, false, open},
		{20 * s, script.Pause, "a", 5 * time.Second, true, closed(5 * time.Second)},
		{14 * s, script.Pause, "a", time.Second, true, closed(11 * time.Second)}, // the clock stepped back
		{25 * s, script.Resume, "b", 0, false, open},
		{26 * s, script.Pause, "a", maxSpan, true, closed(maxSpan)},
	} {
		now := epoch + step.at
		if found := b.pause(step.verb, now, step.name, step.d); found != step.found {
			t.Errorf("step %d: replied %v, want %v", i, found, step.found)
		}
		if want := step.want.ResetAfter + time.Millisecond - us; step.verb == script.Pause && b.state.ttl != want.Truncate(time.Millisecond) {
			t.Errorf("step %d: the TTL is %v, want %v", i, b.state.ttl, want)
		}
		writes := b.state.writes
		for name, got := range map[string]verdict{
			"peek": b.peek(now, 1), "all tokens": b.take(now, algorithm.MaxTokens), "more": b.take(now, algorithm.MaxTokens+1),
			"a request that can wait": b.wait(script.Consume, now, 1, maxSpan),
		} {
			if got != step.want {
				t.Errorf("step %d, %s:\ngot  %+v\nwant %+v", i, name, got, step.want)
			}
		}
		for _, v := range []script.Verb{script.UpTo, script.ConsumeMark, script.UpToMark, script.ForceMark, script.Refund, script.Settle} {
			b.do(v, now, compose.Call{Cost: 5, Gen: 1})
		}
		if n, got := b.do(script.Force, now, compose.Call{Cost: 7}); n != 7 || !got.Allowed || got.Delay != 0 || b.state.writes != writes {
			t.Errorf("step %d: a Force consumed %d, and got %+v; %d writes", i, n, got, b.state.writes-writes)
		}
	}
	b.do(script.Reset, epoch, compose.Call{Cost: 1})
	b.do(script.Pause, epoch, compose.Call{Cost: 1, Now: epoch, Text: "a", Wait: s})
	if want := time.Hour + time.Second; b.state.ttl != want {
		t.Errorf("with a caller's clock, the TTL is %v, want %v", b.state.ttl, want)
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
