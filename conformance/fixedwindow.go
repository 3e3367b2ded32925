package conformance

import (
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

var fixedWindowRules = []rule{
	{"Anchored", "a FixedWindow starts with its first request", fixedWindowAnchored},
	{"Aligned", "an aligned FixedWindow starts at a multiple of its length", fixedWindowAligned},
	{"Carry", "when Limit or Window changes under a live key, the window under way keeps its count and its end", fixedWindowCarry},
	{"History", "FixedWindow answers as a plain count does, and leaves what the reference store holds", history(anyFixedWindow)},
	{"Exact", "FixedWindow denies 1µs before RetryAfter is over and admits when it is", exact(anyFixedWindow)},
	{"HotKey", "of many concurrent callers FixedWindow admits exactly the limit", hotKey(algorithm.FixedWindow{Limit: 50, Window: time.Hour}, 50)},
	{"Refill", "on the store's clock FixedWindow lets a denied caller pass after RetryAfter, not before", refill(algorithm.FixedWindow{Limit: 3, Window: 300 * time.Millisecond})},
	{"Backwards", "a clock that steps back extends no FixedWindow wait by more than the step, and admits nothing", fixedWindowBackwards},
	{"Never", "a cost above Limit is denied by FixedWindow for ever and changes nothing", neverFits(algorithm.FixedWindow{Limit: 5, Window: time.Minute})},
	{"Huge", "FixedWindow is exact at its bounds", huge([]algorithm.Algorithm{
		algorithm.FixedWindow{Limit: algorithm.MaxTokens, Window: time.Hour},
		algorithm.FixedWindow{Limit: algorithm.MaxTokens, Window: 24 * time.Hour, Aligned: true},
		algorithm.FixedWindow{Limit: 10, Window: algorithm.MaxSpan * time.Microsecond},
	})},
	{"UpTo", "FixedWindow takes as many tokens as there is room for, and keeps what is less than one", upTo(anyFixedWindow)},
	{"Refund", "a refund makes FixedWindow as if the tokens had not been taken, once, and inflates nothing later", refunds(anyFixedWindow)},
}

func fixedWindowAnchored(t *T) {
	s := time.Second
	t.trace(algorithm.FixedWindow{Limit: 3, Window: 10 * time.Second}, []step{
		{3 * s, 1, true, 2, 10 * s, 0},
		{4 * s, 3, false, 2, 9 * s, 9 * s},
		{4 * s, 0, true, 2, 9 * s, 0},
		{5 * s, 2, true, 0, 8 * s, 0},
		{5 * s, 1, false, 0, 8 * s, 8 * s},
		{13*s - time.Microsecond, 1, false, 0, time.Microsecond, time.Microsecond},
		{13 * s, 1, true, 2, 10 * s, 0},
		{23 * s, 4, false, 3, 0, weir.Never},
		{23 * s, 0, true, 3, 0, 0},
		{30 * s, 3, true, 0, 10 * s, 0},
		{60 * s, 1, true, 2, 10 * s, 0},
	})
}

func fixedWindowAligned(t *T) {
	s := time.Second
	t.trace(algorithm.FixedWindow{Limit: 3, Window: 10 * time.Second, Aligned: true}, []step{
		{3 * s, 1, true, 2, 7 * s, 0},
		{9 * s, 3, false, 2, 1 * s, 1 * s},
		{10*s - time.Microsecond, 2, true, 0, time.Microsecond, 0},
		{10*s - time.Microsecond, 1, false, 0, time.Microsecond, time.Microsecond},
		{10 * s, 3, true, 0, 10 * s, 0},
		{29 * s, 1, true, 2, 1 * s, 0},
		{30 * s, 4, false, 3, 0, weir.Never},
	})
}

func fixedWindowCarry(t *T) {
	c := newClock()
	minute := t.limiter(c, one(algorithm.FixedWindow{Limit: 5, Window: time.Minute}))
	small := t.limiter(c, one(algorithm.FixedWindow{Limit: 2, Window: 2 * time.Minute}))
	t.allow(minute, 3, "k")
	c.advance(time.Second)
	got := t.peek(small, 1, "k")
	want := weir.Result{Limit: 2, Rule: "one", RetryAfter: 59 * time.Second, ResetAfter: 59 * time.Second}
	if got != want {
		t.errorf("3 taken of 5 per minute, then 2 per 2 minutes:\ngot  %+v\nwant %+v", got, want)
	}
}

func fixedWindowBackwards(t *T) {
	backwards(algorithm.FixedWindow{Limit: 3, Window: time.Minute})(t)
	backwards(algorithm.FixedWindow{Limit: 3, Window: time.Minute, Aligned: true})(t)
}
