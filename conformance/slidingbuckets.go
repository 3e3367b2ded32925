package conformance

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// threeSpans are those of the write-up on counters per second.
var threeSpans = algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{
	{Window: time.Second, Limit: 1000}, {Window: 10 * time.Second, Limit: 5000}, {Window: 15 * time.Second, Limit: 7000},
}}

// quarters has 8 buckets and one span.
var quarters = algorithm.SlidingBuckets{Width: 15 * time.Second, Spans: []algorithm.Span{{Window: 2 * time.Minute, Limit: 5}}}

// hourly has few tokens for longer than any test runs.
var hourly = algorithm.SlidingBuckets{Width: time.Hour, Spans: []algorithm.Span{{Window: 24 * time.Hour, Limit: 60}, {Window: 12 * time.Hour, Limit: 50}}}

var slidingBucketsRules = []rule{
	{"Spans", "SlidingBuckets holds every span at once, and names the one that denies", slidingBucketsSpans},
	{"Edges", "a span of SlidingBuckets slides by whole buckets", slidingBucketsEdges},
	{"Carry", "when limits change under a live key, SlidingBuckets keeps its counts", slidingBucketsCarry},
	{"History", "SlidingBuckets answers as a plain count by bucket does, and leaves what the reference store holds", history(anySlidingBuckets)},
	{"Exact", "SlidingBuckets denies 1µs before RetryAfter is over and admits when it is", exact(anySlidingBuckets)},
	{"HotKey", "of many concurrent callers SlidingBuckets admits exactly the limit", hotKey(hourly, 50)},
	{"Refill", "on the store's clock SlidingBuckets lets a denied caller pass after RetryAfter, not before", refill(algorithm.SlidingBuckets{
		Width: 50 * time.Millisecond, Spans: []algorithm.Span{{Window: 200 * time.Millisecond, Limit: 3}, {Window: 300 * time.Millisecond, Limit: 100}},
	})},
	{"Backwards", "a clock that steps back extends no SlidingBuckets wait by more than the step, and admits nothing", slidingBucketsBackwards},
	{"Never", "a cost above the smallest limit is denied by SlidingBuckets for ever and changes nothing", neverFits(threeSpans)},
	{"Huge", "SlidingBuckets is exact at its bounds", huge([]algorithm.Algorithm{
		algorithm.SlidingBuckets{Width: time.Hour, Spans: []algorithm.Span{{Window: 100 * time.Hour, Limit: algorithm.MaxTokens}}},
		algorithm.SlidingBuckets{Width: time.Minute, Spans: []algorithm.Span{{Window: 128 * time.Minute, Limit: algorithm.MaxTokens - 1}, {Window: time.Minute, Limit: algorithm.MaxTokens - 2}}},
		algorithm.SlidingBuckets{Width: algorithm.MaxSpan / 128 * time.Microsecond, Spans: []algorithm.Span{{Window: algorithm.MaxSpan * time.Microsecond, Limit: 10}}},
	})},
	{"Foreign", "someone else's value in any key of a ring is an ErrForeign that names it; no key is changed", slidingBucketsForeign},
	{"ForeignType", "a key of another type anywhere in a ring is an ErrForeign that names it; no key is changed", slidingBucketsForeignType},
	{"PeekMany", "PeekMany reads whole rings, and answers as Peek does", slidingBucketsPeekMany},
	{"Reset", "Reset deletes every key of a ring", slidingBucketsReset},
	{"Sixteen", "sixteen rings of up to 128 keys fit into one decision", slidingBucketsSixteen},
	{"UpTo", "SlidingBuckets takes as many tokens as there is room for, and keeps what is less than one", upTo(anySlidingBuckets)},
	{"Refund", "a refund makes SlidingBuckets as if the tokens had not been taken, once, and inflates nothing later", refunds(anySlidingBuckets)},
	{"Refunds", "many refunds of SlidingBuckets give together no more than if their requests had never been made", neverMade(anySlidingBuckets)},
}

func slidingBucketsSpans(t *T) {
	s, s10, s15 := time.Second, 10*time.Second, 15*time.Second
	c := newClock()
	start := c.us // where a turn of the ring begins
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
		{9 * s, 0, true, s10, 5000, 0, 10 * s, 0},
		{9 * s, 1001, false, s, 1000, 1000, 10 * s, weir.Never}, // the first that denies
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
	} {
		c.us = start + step.at.Microseconds()
		want := weir.Result{
			Allowed: step.allowed, Limit: step.limit, Remaining: step.left,
			RetryAfter: step.retry, ResetAfter: step.reset, Rule: "one", Span: step.span,
		}
		if step.allowed {
			want.Granted = step.cost
		}
		if got := t.allow(l, step.cost, "spans"); got != want {
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
	for _, tt := range []struct {
		cost int64
		want weir.Result
	}{
		{1, weir.Result{Limit: 3, Rule: "one", RetryAfter: 119 * time.Second, ResetAfter: 119 * time.Second, Span: time.Minute}},
		{0, weir.Result{Limit: 3, Rule: "one", RetryAfter: 119 * time.Second, ResetAfter: 119 * time.Second, Span: time.Minute}},
	} {
		if got := t.peek(narrow, tt.cost, "k"); got != tt.want {
			t.errorf("4 taken of 5, then 3 and 2 are the limits, cost %d:\ngot  %+v\nwant %+v", tt.cost, got, tt.want)
		}
	}
	if res := t.allow(wide, 1, "k"); !res.Allowed || res.Remaining != 0 {
		t.errorf("back at 5: got %+v, want the fifth to pass", res)
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

// foreignInRing makes one key of a ring someone else's, and tries every verb.
func (t *T) foreignInRing(spoil func(key string)) {
	c := newClock() // in the first bucket of a turn
	for _, at := range []int{0, 1, 7} {
		path := "p" + strconv.Itoa(at)
		l := t.limiter(c,
			weir.Rule{Name: "first", Algorithm: tenPerMinute},
			weir.Rule{Name: "ring", Algorithm: quarters})
		keys := t.keysOf(path, "ring", quarters)
		if at != 0 {
			t.allow(l, 1, path) // some keys are there and some are not
		}
		spoil(keys[at])
		all := append([]string{t.key(path, "first")}, keys...)
		before := t.mget(all...)
		t.refused(l, path, keys[at])
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
	var paths [][]string
	for i := range 7 {
		paths = append(paths, []string{"many" + strconv.Itoa(i)})
		for range i {
			t.allow(l, 1, paths[i]...)
			c.advance(4 * time.Second)
		}
	}
	got, err := l.PeekMany(t.ctx, paths)
	if err != nil || len(got) != len(paths) {
		t.fatalf("PeekMany: %d results, %v", len(got), err)
	}
	for i, path := range paths {
		if want := t.peek(l, 1, path...); got[i] != want {
			t.errorf("path %v:\ngot  %+v\nwant %+v", path, got[i], want)
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
	if err := l.ResetRule(t.ctx, "ring", "reset"); err != nil {
		t.errorf("ResetRule: %v", err)
	}
	for i, v := range t.mget(keys...) {
		if v.Kind() != store.Nil {
			t.errorf("after ResetRule, %q holds %q", keys[i], v.Str())
		}
	}
	for i, v := range t.mget(others...) {
		if v != before[i] {
			t.errorf("ResetRule of another path changed %q", others[i])
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
		{Allowed: true, Granted: 1, Limit: 2, Remaining: 1, ResetAfter: 2 * time.Minute, Rule: "r0", Span: 2 * time.Minute},
		{Allowed: true, Granted: 1, Limit: 2, Remaining: 0, ResetAfter: 2 * time.Minute, Rule: "r0", Span: 2 * time.Minute},
		{Limit: 2, Rule: "r0", ResetAfter: 2 * time.Minute, RetryAfter: 128 * time.Minute, Span: 2 * time.Minute},
	} {
		if got := t.allow(l, 1, "sixteen"); got != want {
			t.errorf("request %d:\ngot  %+v\nwant %+v", i, got, want)
		}
	}
	if err := l.Reset(t.ctx, "sixteen"); err != nil {
		t.errorf("Reset: %v", err)
	}
	if got := t.peek(l, 2, "sixteen"); !got.Allowed {
		t.errorf("after a reset: got %+v, want it to pass", got)
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
