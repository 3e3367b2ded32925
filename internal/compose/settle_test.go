package compose_test

import (
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/script"
)

// settle settles the decision id, and returns its cost after that, or -1 if it was not
// found. No rule must keep tokens.
func (b *bench) settle(p *compose.Program, rules int, id string, actual, gen int64) int64 {
	b.t.Helper()
	o := b.run(p, rules, script.Settle, id, compose.Call{Cost: actual, Gen: gen})
	switch {
	case o.Kept > 0:
		b.t.Fatalf("%+v", o)
	case !o.Allowed:
		return -1
	}
	return o.Granted
}

// Settle refunds or consumes the difference, in all rules without a Cost, and keeps the
// markers.
func TestSettle(t *testing.T) {
	t.Parallel()
	b, p := newBench(t), mustProgram(t,
		compose.Rule{Limit: mustLimit(t, algorithm.FixedWindow{Limit: 5, Window: 10 * time.Second})},
		compose.Rule{Limit: mustLimit(t, algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 3}), Cost: 2},
		compose.Rule{Limit: mustLimit(t, algorithm.SlidingLog{Limit: 5, Window: 10 * time.Second})})
	b.do(p, 3, script.ConsumeMark, "a", compose.Call{Cost: 4, Gen: 7})
	keys := []string{"{x}:0:0", "{x}:1:0", "{x}:0:%id=a", "{x}:1:%id=a", "{x}:2:%id=a"}
	cell := "g2 1767225602000000 0 0 7 0 0"
	for i, tt := range []struct {
		actual, want int64
		left         [2]int64 // of the rules without a Cost
		values       []string
	}{
		{4, 4, [2]int64{1, 1}, []string{"f2 1767225610000000 4 7", cell, "i2 7 4 4 4 0 1767225610000000 4 0", "i2 7 2 4 4 1793165496993809 1767225602000000 0 0 0 0", "i2 7 4 4 4 0 1767225600000000 1 0 1767225610000000"}},
		{1, 1, [2]int64{4, 4}, []string{"f2 1767225610000000 1 7", cell, "i3 7 1 1 4 0 1767225610000000 4 0", "i3 7 2 1 4 1793165496993809 1767225602000000 0 0 0 0", "i3 7 1 1 4 0 1767225600000000 1 0 1767225610000000"}},
		{9, 9, [2]int64{0, 0}, []string{"f2 1767225610000000 9 7", cell, "i3 7 9 9 4 0 1767225610000000 9 0", "i3 7 2 9 4 1793165496993809 1767225602000000 0 0 0 0", "i3 22 8 9 4 0 1767225600000000 2 0 1767225610000000"}},
		{9, 9, [2]int64{0, 0}, nil},
		{7, 7, [2]int64{0, 0}, []string{"f2 1767225610000000 7 7", cell, "i3 7 7 7 4 0 1767225610000000 9 0", "i3 7 2 7 4 1793165496993809 1767225602000000 0 0 0 0", "i3 22 6 7 4 0 1767225600000000 2 0 1767225610000000"}},
		{0, 0, [2]int64{5, 4}, []string{"", cell, "i3 7 0 0 4 0 1767225610000000 9 0", "i3 7 2 0 4 1793165496993809 1767225602000000 0 0 0 0", "i3 22 0 0 4 0 1767225600000000 2 0 1767225610000000"}},
	} {
		if got := b.settle(p, 3, "a", tt.actual, int64(20+i)); got != tt.want {
			t.Errorf("%d: settled at %d, want %d", i, got, tt.want)
		}
		if got := b.values(keys...); tt.values != nil && !slices.Equal(got, tt.values) {
			t.Errorf("%d: the keys hold\n%q, want\n%q", i, got, tt.values)
		}
		_, answers := b.do(p, 3, script.Peek, "", compose.Call{Cost: 1})
		if answers[0].Remaining != tt.left[0] || answers[2].Remaining != tt.left[1] {
			t.Errorf("%d: %d and %d left, want %v", i, answers[0].Remaining, answers[2].Remaining, tt.left)
		}
		if n, answers := b.do(p, 3, script.ConsumeMark, "a", compose.Call{Cost: 4, Gen: 50}); n != tt.want || answers[0].Granted != tt.want {
			t.Errorf("%d: a repeat of the decision: %d, %+v, want %d", i, n, answers, tt.want)
		}
	}
	if got := b.settle(p, 3, "b", 4, 60); got != -1 {
		t.Errorf("an unknown decision is settled at %d", got)
	}
	b.now += 10e6
	if got := b.settle(p, 3, "a", 4, 61); got != -1 {
		t.Errorf("a decision that has ended is settled at %d", got)
	}
}

// A settlement to more charges rules whose marker has ended, or whose key was deleted,
// too.
func TestSettleAfterTheEndOfARule(t *testing.T) {
	t.Parallel()
	b, p := newBench(t), pair(t, 0, 0)
	b.do(p, 2, script.ConsumeMark, "a", compose.Call{Cost: 2, Gen: 7})
	b.now += 2e6 // the GCRA has all tokens again
	if got := b.settle(p, 2, "a", 5, 8); got != 5 {
		t.Errorf("settled at %d, want 5", got)
	}
	want := []string{"f2 1767225610000000 5 7", "g2 1767225605000000 0 0 8 0 0", "i3 7 5 5 2 0 1767225610000000 5 0", "i3 8 3 5 2 1793165496993808 1767225605000000 0 0 0 0"}
	if got := b.values("{x}:0:0", "{x}:1:0", "{x}:0:%id=a", "{x}:1:%id=a"); !slices.Equal(got, want) {
		t.Errorf("the keys hold\n%q, want\n%q", got, want)
	}
	b.do(p, 2, script.Reset, "", compose.Call{Cost: 1})
	if got := b.settle(p, 2, "a", 6, 9); got != 6 {
		t.Errorf("after a reset: settled at %d, want 6", got)
	}
	for _, want := range [][2]int64{{4, 2}, {5, 3}} { // a refund returns the one token
		if _, answers := b.do(p, 2, script.Peek, "", compose.Call{Cost: 1}); answers[0].Remaining != want[0] || answers[1].Remaining != want[1] {
			t.Errorf("%d and %d left, want %v", answers[0].Remaining, answers[1].Remaining, want)
		}
		b.do(p, 2, script.Refund, "a", compose.Call{})
	}
}

// A refund after a settlement to more returns no token that had been refilled before it.
func TestRefundAfterSettle(t *testing.T) {
	t.Parallel()
	b, p := newBench(t), mustProgram(t, compose.Rule{Limit: mustLimit(t, algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 20})})
	b.do(p, 1, script.ConsumeMark, "a", compose.Call{Cost: 5, Gen: 1})
	b.now += 4e6 // one token of a is left
	b.do(p, 1, script.Consume, "", compose.Call{Cost: 4})
	b.now += 500_000 // half a token of a is left
	if got := b.settle(p, 1, "a", 8, 2); got != 8 {
		t.Fatalf("settled at %d, want 8", got)
	}
	b.do(p, 1, script.Refund, "a", compose.Call{})
	if _, answers := b.do(p, 1, script.Peek, "", compose.Call{Cost: 1}); answers[0].Remaining != 15 {
		t.Errorf("got %+v, want the 15 tokens that were there before the settlement", answers[0])
	}
}
