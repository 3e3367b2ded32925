package conformance

import (
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

var fixedWindowRules = []rule{
	{"Anchored", "a FixedWindow starts with its first request", fixedWindowAnchored},
	{"Aligned", "an aligned FixedWindow starts at a multiple of its length", fixedWindowAligned},
	{"Carry", "if Limit or Window changes under a live key, the current window keeps its count and its end", fixedWindowCarry},
	{"History", "FixedWindow answers as a plain count does, and its keys hold what they hold on the reference store", asModel(anyFixedWindow)},
	{"Exact", "a request denied by FixedWindow is denied until 1µs before RetryAfter is over, and passes when it is over", exact(anyFixedWindow)},
	{"HotKey", "of many concurrent callers, FixedWindow allows exactly the limit", hotKey(algorithm.FixedWindow{Limit: 50, Window: time.Hour}, 50)},
	{"Refill", "on the store's clock, a request denied by FixedWindow passes when RetryAfter is over, and not before", refill(func(d time.Duration) algorithm.Algorithm {
		return algorithm.FixedWindow{Limit: 3, Window: d}
	})},
	{"Backwards", "a clock that steps back lengthens no wait for FixedWindow by more than the step, and allows nothing", fixedWindowBackwards},
	{"Never", "FixedWindow denies a cost above Limit with Never, and it changes nothing", neverFits(algorithm.FixedWindow{Limit: 5, Window: time.Minute})},
	{"Huge", "FixedWindow is exact at its bounds, and TakeUpTo consumes what it has there", huge([]algorithm.Algorithm{
		algorithm.FixedWindow{Limit: algorithm.MaxTokens, Window: time.Hour},
		algorithm.FixedWindow{Limit: algorithm.MaxTokens, Window: 24 * time.Hour, Aligned: true},
		algorithm.FixedWindow{Limit: 10, Window: algorithm.MaxSpan * time.Microsecond},
	})},
	{"UpTo", "TakeUpTo consumes as many tokens as FixedWindow has", upTo(anyFixedWindow)},
	{"Refund", "a refund of FixedWindow undoes a request at once, and later makes the window no fuller than without the request", refunds(anyFixedWindow)},
	{"Refunds", "many refunds of FixedWindow together refund no more than if their requests had never been made", neverMade(anyFixedWindow)},
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
	want := weir.Result{Limit: 2, Window: 2 * time.Minute, Rule: "one", RetryAfter: 59 * time.Second, ResetAfter: 59 * time.Second, Delay: weir.Never}
	if got != want {
		t.errorf("3 consumed of 5 per minute, then 2 per 2 minutes:\ngot  %+v\nwant %+v", got, want)
	}
}

func fixedWindowBackwards(t *T) {
	backwards(algorithm.FixedWindow{Limit: 3, Window: time.Minute})(t)
	backwards(algorithm.FixedWindow{Limit: 3, Window: time.Minute, Aligned: true})(t)
}
