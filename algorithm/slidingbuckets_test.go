package algorithm_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
)

func spans(width time.Duration, list ...algorithm.Span) algorithm.SlidingBuckets {
	return algorithm.SlidingBuckets{Width: width, Spans: list}
}

// An invalid limit is an error, which names a width that would be valid.
func TestSlidingBucketsInvalid(t *testing.T) {
	t.Parallel()
	s, ms := time.Second, time.Millisecond
	many := make([]algorithm.Span, algorithm.MaxSpans+1)
	for i := range many {
		many[i] = algorithm.Span{Window: time.Duration(i+1) * s, Limit: 1}
	}
	for _, tt := range []struct {
		name  string
		limit algorithm.SlidingBuckets
		says  []string // nil: valid
	}{
		{"three spans", spans(s, many[0], many[2], many[1]), nil},
		{"most spans", spans(s, many[:algorithm.MaxSpans]...), nil},
		{"too many spans", spans(s, many...), []string{"Spans has 9", "from 1 to 8"}},
		{"no spans", spans(s), []string{"Spans has 0", "from 1 to 8"}},
		{"no limit", spans(s, many[0], algorithm.Span{Window: 2 * s}), []string{"Spans[1].Limit is 0", "from 1 to 9007199254740991"}},
		{"largest limit", spans(s, algorithm.Span{Window: s, Limit: algorithm.MaxTokens}), nil},
		{"limit too large", spans(s, algorithm.Span{Window: s, Limit: algorithm.MaxTokens + 1}), []string{"Spans[0].Limit is 9007199254740992"}},
		{"least limit", spans(s, algorithm.Span{Window: s, Limit: math.MinInt64}), []string{"Spans[0].Limit is -9223372036854775808"}},
		{"no window", spans(s, algorithm.Span{Limit: 1}), []string{"Spans[0].Window is 0s", "from 1µs"}},
		{"window of a part", spans(s, algorithm.Span{Limit: 1, Window: s + 1}), []string{"Spans[0].Window is 1.000000001s", "whole number"}},
		{"window too long", spans(s, algorithm.Span{Limit: 1, Window: maxSpan + us}), []string{"Spans[0].Window is", maxSpan.String()}},
		{"one window twice", spans(s, many[0], many[1], algorithm.Span{Window: s, Limit: 7}), []string{"Spans[0] and Spans[2] have the same Window, 1s"}},
		{"no width", spans(0, many[0], many[1]), []string{"Width is 0s", "15.625ms would be valid"}},
		{"negative width", spans(-s, many[0]), []string{"Width is -1s", "would be valid"}},
		{"width of a part", spans(s+1, algorithm.Span{Window: 2 * s, Limit: 1}), []string{"Width is 1.000000001s", "whole microseconds", "1s would be valid"}},
		{"shortest width", spans(ms, algorithm.Span{Window: 128 * ms, Limit: 1}), nil},
		{"width too short", spans(ms/2, algorithm.Span{Window: 10 * ms, Limit: 1}), []string{"Width is 500µs", "at least 1ms", "1ms would be valid"}},
		{"128 buckets", spans(s, algorithm.Span{Window: 128 * s, Limit: 1}), nil},
		{"129 buckets", spans(s, algorithm.Span{Window: 129 * s, Limit: 1}), []string{"Width is 1s", "at most 128 buckets", "1.03"}},
		{"a day by minutes", spans(time.Minute, algorithm.Span{Window: 24 * time.Hour, Limit: 1}), []string{"11m15s would be valid"}},
		{"no multiple", spans(3*s, many[0], many[9-1]), []string{"Width is 3s", "1s would be valid"}},
		{"wider than a window", spans(2*s, many[0]), []string{"Width is 2s", "1s would be valid"}},
		{"no width is valid", spans(s, many[0], algorithm.Span{Window: 129 * s, Limit: 1}), []string{"no width is valid"}},
		{"longest", spans(maxSpan/128, algorithm.Span{Window: maxSpan, Limit: 1}), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l, err := tt.limit.NewLimit()
			if tt.says == nil {
				if err != nil || l == nil {
					t.Errorf("NewLimit of %+v = %v, %v, want a limit", tt.limit, l, err)
				}
				return
			}
			if l != nil || !errors.Is(err, algorithm.ErrInvalidLimit) {
				t.Fatalf("NewLimit of %+v = %v, %v, want ErrInvalidLimit", tt.limit, l, err)
			}
			for _, s := range tt.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("error %q does not say %q", err, s)
				}
			}
		})
	}
}

// The width that an error names is valid.
func TestSlidingBucketsWidthHint(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 5))
	times := 3000
	if testing.Short() {
		times = 300
	}
	for range times {
		a := spans(time.Duration(r.Int64N(1e10)), algorithm.Span{Window: time.Duration(1+r.Int64N(4000)) * time.Millisecond, Limit: 1})
		if r.IntN(2) == 0 {
			a.Spans = append(a.Spans, algorithm.Span{Window: a.Spans[0].Window * time.Duration(2+r.Int64N(140)), Limit: 1})
		}
		_, err := a.NewLimit()
		if err == nil || strings.Contains(err.Error(), "no width is valid") {
			continue
		}
		hint, ok := strings.CutSuffix(err.Error(), " would be valid")
		if hint = hint[strings.LastIndex(hint, " ")+1:]; !ok {
			t.Fatalf("%v names no width", err)
		}
		if a.Width, err = time.ParseDuration(hint); err != nil {
			t.Fatal(err)
		}
		if _, err := a.NewLimit(); err != nil {
			t.Errorf("the width %v is not valid: %v", hint, err)
		}
	}
}

// answer is do. The answer has its window.
func (b *bench) answer(v script.Verb, now, cost int64) compose.Result {
	b.state.now = now
	c := compose.Call{Cost: cost}
	reply, err := b.program.Script(v).GoForm()(b.state, b.program.AppendArgs(nil, v, &c), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	o, err := b.program.Parse(v, reply, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.program.Result(0, v, &o, &c)
}

// A limit keeps no slice of its caller.
func TestSlidingBucketsCopies(t *testing.T) {
	t.Parallel()
	a := spans(time.Second, algorithm.Span{Window: 2 * time.Second, Limit: 3})
	b := newBench(t, a)
	a.Spans[0] = algorithm.Span{Window: time.Hour, Limit: 1}
	if got := b.answer(script.Consume, epoch, 2); !got.Allowed || got.Limit != 3 || got.Window != 2*time.Second {
		t.Errorf("got %+v", got)
	}
}

// If the request is denied, the answer describes the span with the longest wait.
// Otherwise it describes the span with the fewest tokens left.
func TestSlidingBucketsSpans(t *testing.T) {
	t.Parallel()
	const s = time.Second
	b := newBench(t, spans(s, algorithm.Span{Window: s, Limit: 3}, algorithm.Span{Window: 4 * s, Limit: 6}, algorithm.Span{Window: 2 * s, Limit: 5}))
	for i, step := range []struct {
		at      time.Duration
		cost    int64
		allowed bool
		answer  compose.Result
	}{
		{0, 2, true, compose.Result{Limit: 3, Window: s, Remaining: 1, ResetAfter: 4 * s}},
		{s / 2, 2, false, compose.Result{Limit: 3, Window: s, Remaining: 1, RetryAfter: s / 2, ResetAfter: 7 * s / 2}},
		{s / 2, 4, false, compose.Result{Limit: 3, Window: s, Remaining: 1, RetryAfter: never, ResetAfter: 7 * s / 2}},
		{s, 3, true, compose.Result{Limit: 3, Window: s, ResetAfter: 4 * s}},
		{s, 2, false, compose.Result{Limit: 6, Window: 4 * s, Remaining: 1, RetryAfter: 3 * s, ResetAfter: 4 * s}}, // all three deny
		{s, 1, false, compose.Result{Limit: 3, Window: s, RetryAfter: s, ResetAfter: 4 * s}},                       // two spans have the same wait
		{2 * s, 1, true, compose.Result{Limit: 6, Window: 4 * s, ResetAfter: 4 * s}},
		{4*s - us, 1, false, compose.Result{Limit: 6, Window: 4 * s, RetryAfter: us, ResetAfter: 2*s + us}},
		{4 * s, 1, true, compose.Result{Limit: 6, Window: 4 * s, Remaining: 1, ResetAfter: 4 * s}},
		{3 * s, 2, false, compose.Result{Limit: 6, Window: 4 * s, Remaining: 1, RetryAfter: 2 * s, ResetAfter: 5 * s}}, // the clock stepped back
		{8 * s, 1, true, compose.Result{Limit: 3, Window: s, Remaining: 2, ResetAfter: 4 * s}},
	} {
		got := b.answer(script.Consume, epoch+step.at.Microseconds(), step.cost)
		want := step.answer
		if want.Allowed, want.Delay = step.allowed, never; step.allowed {
			want.Granted, want.Delay = step.cost, 0
		}
		if got != want {
			t.Errorf("step %d, cost %d at %v:\ngot  %+v\nwant %+v", i, step.cost, step.at, got, want)
		}
	}
}

// An answer does not depend on whether expired keys have been removed.
func TestSlidingBucketsExpiredKeys(t *testing.T) {
	t.Parallel()
	a := spans(time.Second, algorithm.Span{Window: 5 * time.Second, Limit: 9}, algorithm.Span{Window: 2 * time.Second, Limit: 5})
	r := rand.New(rand.NewPCG(3, 9))
	gone, kept := newBench(t, a), newBench(t, a)
	kept.state.keep = true
	now := int64(epoch)
	for step := range 3000 {
		now += r.Int64N(pick(r, 1_000_000, 1_000_000, 1_000_000, 12_000_000))
		cost := r.Int64N(4)
		got, want := kept.takeOrPeek(now, cost), gone.takeOrPeek(now, cost)
		if got != want {
			t.Fatalf("step %d at %d, cost %d: with expired keys %+v, without %+v", step, now-epoch, cost, got, want)
		}
	}
}

func pick(r *rand.Rand, list ...int64) int64 { return list[r.IntN(len(list))] }

// For values with the right layout that no limiter wrote, there is an error, or the
// script and the answer agree.
func FuzzSlidingBucketsHostile(f *testing.F) {
	list := []algorithm.SlidingBuckets{
		spans(time.Second, algorithm.Span{Window: 3 * time.Second, Limit: 5}, algorithm.Span{Window: time.Second, Limit: 2}),
		spans(maxSpan/128, algorithm.Span{Window: maxSpan, Limit: algorithm.MaxTokens}),
		spans(time.Millisecond, algorithm.Span{Window: time.Millisecond, Limit: 1}),
	}
	for i := range list {
		f.Add(i, int64(epoch), int64(epoch), int64(1), uint(0), int64(epoch), int64(1<<53-1), uint(2), int64(1))
		f.Add(i, int64(1), int64(1<<52-1), int64(1), uint(0), int64(3), int64(3), uint(1), int64(1<<53-1))
		f.Add(i, int64(1<<52-1), int64(0), int64(1<<53-1), uint(1), int64(0), int64(1<<53-1), uint(2), int64(0))
		f.Add(i, int64(1), int64(1<<53-1), int64(1), uint(0), int64(0), int64(0), uint(7), int64(2))
	}
	f.Fuzz(func(t *testing.T, which int, now, a, x int64, at uint, c, y int64, ct uint, cost int64) {
		b := newBench(t, list[uint(which)%uint(len(list))])
		now, cost = max(1, now&(1<<52-1)), cost&(1<<53-1)
		keys := uint(b.program.Keys(0))
		for _, v := range []struct {
			start, count int64
			at           uint
		}{{a, x, at}, {c, y, ct}} {
			n := store.Nums{Tag: store.Tag{'b', '2'}, Len: 2, N: [store.MaxNums]int64{v.start & (1<<53 - 1), v.count & (1<<53 - 1)}}
			b.state.keys[v.at%keys] = value{held: true, nums: n, expires: 1 << 62}
		}
		v, args := script.Consume, compose.Call{Cost: cost}
		if cost == 0 {
			v, args.Cost = script.Peek, 1
		}
		b.state.now = now
		reply, err := b.program.Script(v).GoForm()(b.state, b.program.AppendArgs(nil, v, &args), nil)
		if errors.Is(err, store.ErrForeign) {
			return
		}
		o, err := b.program.Parse(v, reply, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := b.program.Result(0, v, &o, &args)
		if (o.Head() == 1) != got.Allowed {
			t.Fatalf("at %d, cost %d: the script says %d and the answer %+v", now, cost, o.Head(), got)
		}
		b.checkPossible(verdictOf(got))
	})
}

// A reply that no script makes does not cause a panic.
func TestSlidingBucketsNonsense(t *testing.T) {
	t.Parallel()
	p := mustProgram(t, mustLimit(t, spans(time.Second, algorithm.Span{Window: 3 * time.Second, Limit: 5})))
	for _, ints := range []string{"1 0 0 0 0", "9007199254740992 9007199254740992 0 0 0", "0 9007199254740992 9007199254740992 9007199254740992 9007199254740992", "0 6 0 0 0"} {
		c := compose.Call{Cost: 1}
		o, err := p.Parse(script.Consume, []store.Value{store.BulkValue("1;1767225600 0;" + ints)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if a := p.Result(0, script.Consume, &o, &c); a.Remaining < 0 || a.RetryAfter < 0 || a.ResetAfter < 0 {
			t.Errorf("%s: %+v", ints, a)
		}
	}
}

// Limits with the same shape share a kind. The cache of shapes is bounded, and keeps the
// most recently used shapes.
func TestSlidingBucketsShapes(t *testing.T) {
	a := spans(time.Second, algorithm.Span{Window: 3 * time.Second, Limit: 5}, algorithm.Span{Window: time.Second, Limit: 2})
	first := mustLimit(t, a).Kind
	other := func(n int) {
		mustLimit(t, spans(time.Second, algorithm.Span{Window: time.Duration(n) * time.Second, Limit: 1}))
	}
	for n := range 128 {
		other(n + 1)
		a.Width, a.Spans = a.Width*2, []algorithm.Span{{Window: a.Width * 6, Limit: int64(n + 1)}, {Window: a.Width * 2, Limit: 9}}
		if a.Width > time.Hour {
			a.Width, a.Spans = time.Second, []algorithm.Span{{Window: 3 * time.Second, Limit: 5}, {Window: time.Second, Limit: 2}}
		}
		if mustLimit(t, a).Kind != first {
			t.Fatalf("after %d other shapes, the shape that is in use has another kind", n)
		}
	}
	for n := range 128 {
		other(n + 1)
	}
	if mustLimit(t, a).Kind == first {
		t.Error("128 shapes later, the shape has the same kind: the cache has no bound")
	}
}
