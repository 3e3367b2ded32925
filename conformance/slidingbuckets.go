package conformance

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// threeSpans has the spans of the published recipe of counters per second.
var threeSpans = algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{
	{Window: time.Second, Limit: 1000}, {Window: 10 * time.Second, Limit: 5000}, {Window: 15 * time.Second, Limit: 7000},
}}

// quarters has 8 buckets and one span.
var quarters = algorithm.SlidingBuckets{Width: 15 * time.Second, Spans: []algorithm.Span{{Window: 2 * time.Minute, Limit: 5}}}

// hourly gives no token back while a test runs.
var hourly = algorithm.SlidingBuckets{Width: time.Hour, Spans: []algorithm.Span{{Window: 24 * time.Hour, Limit: 60}, {Window: 12 * time.Hour, Limit: 50}}}

var slidingBucketsRules = []rule{
	{"Spans", "SlidingBuckets limits every span at once, and Window and Limit are those of the span that denies for the longest time", slidingBucketsSpans},
	{"Edges", "a span of SlidingBuckets slides by whole buckets", slidingBucketsEdges},
	{"Carry", "if limits change under a live key, SlidingBuckets keeps its counts", slidingBucketsCarry},
	{"History", "SlidingBuckets answers as a plain count by bucket does, and its keys hold what they hold on the reference store", asModel(anySlidingBuckets)},
	{"Exact", "a request denied by SlidingBuckets is denied until 1µs before RetryAfter is over, and passes when it is over", exact(anySlidingBuckets)},
	{"HotKey", "of many concurrent callers, SlidingBuckets allows exactly the limit", hotKey(hourly, 50)},
	{"Refill", "on the store's clock, a request denied by SlidingBuckets passes when RetryAfter is over, and not before", refill(func(d time.Duration) algorithm.Algorithm {
		return algorithm.SlidingBuckets{Width: d / 4, Spans: []algorithm.Span{{Window: d, Limit: 3}, {Window: d * 3 / 2, Limit: 100}}}
	})},
	{"Backwards", "a clock that steps back lengthens no wait for SlidingBuckets by more than the step, and allows nothing", slidingBucketsBackwards},
	{"Never", "SlidingBuckets denies a cost above the smallest limit with Never, and it changes nothing", neverFits(threeSpans)},
	{"Huge", "SlidingBuckets is exact at its bounds, and TakeUpTo consumes what it has there", huge([]algorithm.Algorithm{
		algorithm.SlidingBuckets{Width: time.Hour, Spans: []algorithm.Span{{Window: 100 * time.Hour, Limit: algorithm.MaxTokens}}},
		algorithm.SlidingBuckets{Width: time.Minute, Spans: []algorithm.Span{{Window: 128 * time.Minute, Limit: algorithm.MaxTokens - 1}, {Window: time.Minute, Limit: algorithm.MaxTokens - 2}}},
		algorithm.SlidingBuckets{Width: algorithm.MaxSpan / 128 * time.Microsecond, Spans: []algorithm.Span{{Window: algorithm.MaxSpan * time.Microsecond, Limit: 10}}},
	})},
	{"Foreign", "a foreign value at any key of a SlidingBuckets is an ErrForeign that names the key, and no key is changed", slidingBucketsForeign},
	{"ForeignType", "another type at any key of a SlidingBuckets is an ErrForeign that names the key, and no key is changed", slidingBucketsForeignType},
	{"PeekMany", "DoMany reads all keys of a SlidingBuckets, and answers peeks as Peek does", slidingBucketsPeekMany},
	{"Reset", "Reset deletes every key of a SlidingBuckets", slidingBucketsReset},
	{"Sixteen", "sixteen SlidingBuckets of up to 128 keys fit into one decision", slidingBucketsSixteen},
	{"UpTo", "TakeUpTo consumes as many tokens as every span of SlidingBuckets has", upTo(anySlidingBuckets)},
	{"Refund", "a refund of SlidingBuckets undoes a request at once, and later makes it no fuller than without the request", refunds(anySlidingBuckets)},
	{"Refunds", "many refunds of SlidingBuckets together refund no more than if their requests had never been made", neverMade(anySlidingBuckets)},
}

func slidingBucketsSpans(t *T) {
	s, s10, s15 := time.Second, 10*time.Second, 15*time.Second
	c := newClock()
	start := c.us // the first bucket is that of key 0
	l := t.limiter(c, one(threeSpans))
	for i, step := range []struct {
		at      time.Duration
		cost    int64
		allowed bool
		span    time.Duration
		limit   int64
		left    int64
		reset   time.Duration
		retry   time.Duration
	}{
		{0, 1, true, s, 1000, 999, s15, 0},
		{s / 2, 999, true, s, 1000, 0, 14*s + s/2, 0},
		{s / 2, 1, false, s, 1000, 0, 14*s + s/2, s / 2}, // a burst
		{1 * s, 1000, true, s, 1000, 0, s15, 0},
		{2 * s, 1000, true, s, 1000, 0, s15, 0},
		{3 * s, 1000, true, s, 1000, 0, s15, 0},
		{4 * s, 1000, true, s, 1000, 0, s15, 0},
		{5 * s, 1, false, s10, 5000, 0, 14 * s, 5 * s},
		{9 * s, 0, false, s10, 5000, 0, 10 * s, 1 * s},
		{9 * s, 1001, false, s, 1000, 1000, 10 * s, weir.Never}, // the span of 10 s denies for a second
		{10*s - time.Microsecond, 1, false, s10, 5000, 0, 9*s + time.Microsecond, time.Microsecond},
		{10 * s, 500, true, s, 1000, 500, s15, 0},
		{10 * s, 501, false, s, 1000, 500, s15, 1 * s},
		{10 * s, 500, true, s, 1000, 0, s15, 0},
		{11 * s, 999, true, s, 1000, 1, s15, 0},
		{12 * s, 2, false, s15, 7000, 1, 14 * s, 3 * s},
		{12 * s, 1, true, s15, 7000, 0, s15, 0},
		{12 * s, 1, false, s15, 7000, 0, s15, 3 * s},
		{15 * s, 1000, true, s, 1000, 0, 15 * s, 0}, // what was counted at 0 s has left, and its key with it
		{15 * s, 1, false, s, 1000, 0, 15 * s, s},
		{16*s - time.Microsecond, 2, false, s, 1000, 0, 14*s + time.Microsecond, time.Microsecond},
		{100 * s, 1, true, s, 1000, 999, s15, 0},
		{100 * s, 1000, false, s, 1000, 999, s15, 1 * s},
	} {
		c.us = start + step.at.Microseconds()
		want := weir.Result{
			Allowed: step.allowed, Limit: step.limit, Remaining: step.left,
			RetryAfter: step.retry, ResetAfter: step.reset, Rule: "one", Window: step.span,
		}
		if want.Granted = step.cost; !step.allowed {
			want.Granted, want.Delay = 0, weir.Never
		}
		req := weir.Request{Key: weir.KeyOf("spans"), Cost: step.cost}
		if step.cost == 0 {
			req.Op = weir.Peek
		}
		if got := t.do(l, req); got != want {
			t.errorf("step %d, cost %d at %v:\ngot  %+v\nwant %+v", i, step.cost, step.at, got, want)
		}
	}
}

func slidingBucketsEdges(t *T) {
	s, us := time.Second, time.Microsecond
	t.trace(algorithm.SlidingBuckets{Width: 2 * s, Spans: []algorithm.Span{{Window: 6 * s, Limit: 4}}}, []step{
		{1 * s, 1, true, 3, 5 * s, 0},
		{2*s - us, 1, true, 2, 4*s + us, 0},
		{5 * s, 2, true, 0, 5 * s, 0},
		{6*s - us, 1, false, 0, 4*s + us, us},
		{6 * s, 2, true, 0, 6 * s, 0}, // 4 have passed in the 5 s since 1 s, and 2 now
		{8 * s, 1, false, 0, 4 * s, 2 * s},
		{10*s - us, 3, false, 0, 2*s + us, 2*s + us},
		{10 * s, 3, false, 2, 2 * s, 2 * s},
		{10 * s, 2, true, 0, 6 * s, 0},
		{16*s - us, 4, false, 2, us, us},
		{16 * s, 4, true, 0, 6 * s, 0},
		{22 * s, 5, false, 4, 0, weir.Never},
	})
}

func slidingBucketsCarry(t *T) {
	c := newClock()
	wide := t.limiter(c, one(quarters))
	narrow := t.limiter(c, one(algorithm.SlidingBuckets{Width: quarters.Width, Spans: []algorithm.Span{
		{Window: time.Minute, Limit: 3}, {Window: quarters.Spans[0].Window, Limit: 2},
	}}))
	t.allow(wide, 4, "k")
	c.advance(time.Second)
	want := weir.Result{Limit: 2, Window: quarters.Spans[0].Window, Rule: "one", RetryAfter: 119 * time.Second, ResetAfter: 119 * time.Second, Delay: weir.Never}
	if got := t.peek(narrow, 1, "k"); got != want {
		t.errorf("4 consumed of 5, then the limits are 3 and 2:\ngot  %+v\nwant %+v", got, want)
	}
	if res := t.allow(wide, 1, "k"); !res.Allowed || res.Remaining != 0 {
		t.errorf("back at 5: got %+v, want the fifth token allowed", res)
	}
}

func slidingBucketsBackwards(t *T) {
	backwards(quarters)(t)
	backwards(algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: 3 * time.Second, Limit: 7}, {Window: time.Second, Limit: 2}}})(t)
}

func slidingBucketsForeign(t *T) {
	t.foreignInRing(func(key string) { t.put(key, 1) })
}

func slidingBucketsForeignType(t *T) {
	t.foreignInRing(func(key string) { t.eval(setScript, []string{key}) })
}

// foreignInRing puts a foreign value at one key of a SlidingBuckets, and tries every verb.
func (t *T) foreignInRing(spoil func(key string)) {
	c := newClock() // in the bucket of key 0
	for _, at := range []int{0, 1, 7} {
		name := "p" + strconv.Itoa(at)
		l := t.limiter(c,
			weir.Rule{Name: "first", Algorithm: tenPerMinute},
			weir.Rule{Name: "ring", Algorithm: quarters})
		keys := t.keysOf(name, "ring", quarters)
		if at != 0 {
			t.allow(l, 1, name) // one key exists, the others do not
		}
		spoil(keys[at])
		all := append([]string{t.keyOf(name, "first", tenPerMinute)}, keys...)
		before := t.mget(all...)
		t.refused(l, name, keys[at])
		for i, v := range t.mget(all...) {
			if v != before[i] {
				t.errorf("with a foreign key %d, key %q now holds %v, not %v", at, all[i], v, before[i])
			}
		}
	}
}

func slidingBucketsPeekMany(t *T) {
	c := newClock()
	l := t.limiter(c,
		weir.Rule{Name: "ring", Algorithm: quarters},
		weir.Rule{Name: "rate", Algorithm: tenPerMinute},
		weir.Rule{Name: "spans", Algorithm: threeSpans})
	var keys [][]string
	for i := range 7 {
		keys = append(keys, []string{"many" + strconv.Itoa(i)})
		for range i {
			t.allow(l, 1, keys[i]...)
			c.advance(4 * time.Second)
		}
	}
	for i, got := range l.DoMany(t.ctx, peeks(keys)) {
		if want := t.peek(l, 1, keys[i]...); got.Err != nil || got.Result != want {
			t.errorf("key %v:\ngot  %+v, %v\nwant %+v", keys[i], got.Result, got.Err, want)
		}
	}
}

func slidingBucketsReset(t *T) {
	c := newClock()
	l := t.limiter(c, weir.Rule{Name: "a", Algorithm: threeSpans}, weir.Rule{Name: "ring", Algorithm: quarters})
	for range 4 {
		t.allow(l, 1, "reset")
		t.allow(l, 1, "other")
		c.advance(15 * time.Second)
	}
	keys, others := t.keysOf("reset", "ring", quarters), t.keysOf("other", "ring", quarters)
	before := t.mget(others...)
	t.reset(t.only(l, "ring"), "reset")
	for i, v := range t.mget(keys...) {
		if v.Kind() != store.Nil {
			t.errorf("after Reset, %q holds %q", keys[i], v.Str())
		}
	}
	for i, v := range t.mget(others...) {
		if v != before[i] {
			t.errorf("Reset of another key changed %q", others[i])
		}
	}
}

func slidingBucketsSixteen(t *T) {
	c := newClock()
	rules := make([]weir.Rule, weir.MaxRules)
	for i := range rules {
		n := time.Duration(2)
		if i >= weir.MaxRules-2 {
			n = []time.Duration{64, algorithm.MaxBuckets}[i%2]
		}
		rules[i] = weir.Rule{Name: "r" + strconv.Itoa(i), Algorithm: algorithm.SlidingBuckets{
			Width: time.Minute, Spans: []algorithm.Span{{Window: n * time.Minute, Limit: 2 + int64(i%3)}},
		}}
	}
	l := t.limiter(c, rules...)
	for i, want := range []weir.Result{
		{Allowed: true, Granted: 1, Limit: 2, Remaining: 1, ResetAfter: 2 * time.Minute, Rule: "r0", Window: 2 * time.Minute},
		{Allowed: true, Granted: 1, Limit: 2, Remaining: 0, ResetAfter: 2 * time.Minute, Rule: "r0", Window: 2 * time.Minute},
		{Limit: 2, Rule: "r15", ResetAfter: 128 * time.Minute, RetryAfter: 128 * time.Minute, Window: 128 * time.Minute, Delay: weir.Never},
	} {
		if got := t.allow(l, 1, "sixteen"); got != want {
			t.errorf("request %d:\ngot  %+v\nwant %+v", i, got, want)
		}
	}
	t.reset(l, "sixteen")
	if got := t.peek(l, 2, "sixteen"); !got.Allowed {
		t.errorf("after a reset: got %+v, want it allowed", got)
	}
}

// anySlidingBuckets returns random spans, of one bucket and of 128 among them.
func anySlidingBuckets(r *rand.Rand) algorithm.Algorithm {
	a := algorithm.SlidingBuckets{Width: pick(r, time.Millisecond, 1500*time.Microsecond, 250*time.Millisecond, time.Second, time.Minute, time.Hour)}
	lengths := r.Perm(pick(r, 1, 3, 6))[:1]
	switch r.IntN(3) {
	case 0:
		lengths = append(lengths, 6+r.IntN(4))
	case 1:
		lengths = append(lengths, 11, 8+r.IntN(3))
	}
	if r.IntN(30) == 0 {
		lengths = append(lengths, algorithm.MaxBuckets-1)
	}
	limit := 1 + r.Int64N(8)
	for _, n := range lengths {
		dup := false
		for _, s := range a.Spans {
			dup = dup || s.Window == time.Duration(n+1)*a.Width
		}
		if !dup {
			a.Spans = append(a.Spans, algorithm.Span{Window: time.Duration(n+1) * a.Width, Limit: limit})
		}
		limit += r.Int64N(10)
	}
	return a
}
