package algorithm_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// newRing is newBench for a limit with several keys.
func newRing(t testing.TB, a algorithm.Algorithm) *bench {
	t.Helper()
	b := newBench(t, a)
	b.state = newState(epoch, max(b.limit.Fragment().Keys, 1))
	return b
}

func spans(width time.Duration, list ...algorithm.Span) algorithm.SlidingBuckets {
	return algorithm.SlidingBuckets{Width: width, Spans: list}
}

// What cannot be kept is refused, and the error names the width that would do.
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
		{"one window twice", spans(s, many[0], many[1], algorithm.Span{Window: s, Limit: 7}), []string{"Spans[0] and [2] are both of 1s"}},
		{"no width", spans(0, many[0], many[1]), []string{"Width is 0s", "15.625ms would do"}},
		{"negative width", spans(-s, many[0]), []string{"Width is -1s", "would do"}},
		{"width of a part", spans(s+1, algorithm.Span{Window: 2 * s, Limit: 1}), []string{"Width is 1.000000001s", "whole microseconds", "1s would do"}},
		{"shortest width", spans(ms, algorithm.Span{Window: 128 * ms, Limit: 1}), nil},
		{"width too short", spans(ms/2, algorithm.Span{Window: 10 * ms, Limit: 1}), []string{"Width is 500µs", "at least 1ms", "1ms would do"}},
		{"128 buckets", spans(s, algorithm.Span{Window: 128 * s, Limit: 1}), nil},
		{"129 buckets", spans(s, algorithm.Span{Window: 129 * s, Limit: 1}), []string{"Width is 1s", "at most 128 times", "1.03"}},
		{"a day by minutes", spans(time.Minute, algorithm.Span{Window: 24 * time.Hour, Limit: 1}), []string{"11m15s would do"}},
		{"no multiple", spans(3*s, many[0], many[9-1]), []string{"Width is 3s", "1s would do"}},
		{"wider than a window", spans(2*s, many[0]), []string{"Width is 2s", "1s would do"}},
		{"no width does", spans(s, many[0], algorithm.Span{Window: 129 * s, Limit: 1}), []string{"no width does"}},
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

// The width that an error names does.
func TestSlidingBucketsWidthHint(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 5))
	for range 3000 {
		a := spans(time.Duration(r.Int64N(1e10)), algorithm.Span{Window: time.Duration(1+r.Int64N(4000)) * time.Millisecond, Limit: 1})
		if r.IntN(2) == 0 {
			a.Spans = append(a.Spans, algorithm.Span{Window: a.Spans[0].Window * time.Duration(2+r.Int64N(140)), Limit: 1})
		}
		_, err := a.NewLimit()
		if err == nil || strings.Contains(err.Error(), "no width does") {
			continue
		}
		hint, ok := strings.CutSuffix(err.Error(), " would do")
		if hint = hint[strings.LastIndex(hint, " ")+1:]; !ok {
			t.Fatalf("%v names no width", err)
		}
		if a.Width, err = time.ParseDuration(hint); err != nil {
			t.Fatal(err)
		}
		if _, err := a.NewLimit(); err != nil {
			t.Errorf("the width %v does not do: %v", hint, err)
		}
	}
}

// The limit keeps no slice of its caller's.
func TestSlidingBucketsCopies(t *testing.T) {
	t.Parallel()
	a := spans(time.Second, algorithm.Span{Window: 2 * time.Second, Limit: 3})
	b := newRing(t, a)
	a.Spans[0] = algorithm.Span{Window: time.Hour, Limit: 1}
	if got := b.take(epoch, 2); !got.Allowed || got.Limit != 3 || got.Span != 2*time.Second {
		t.Errorf("got %+v", got)
	}
}

// An answer is the same whether dead keys are there or gone, in every turn of the ring.
func TestSlidingBucketsDeadKeys(t *testing.T) {
	t.Parallel()
	a := spans(time.Second, algorithm.Span{Window: 5 * time.Second, Limit: 9}, algorithm.Span{Window: 2 * time.Second, Limit: 5})
	r := rand.New(rand.NewPCG(3, 9))
	gone, kept := newRing(t, a), newRing(t, a)
	kept.state.keep = true
	now := int64(epoch)
	for step := range 3000 {
		now += r.Int64N(pick(r, 1_000_000, 1_000_000, 1_000_000, 12_000_000))
		cost := r.Int64N(4)
		got, want := kept.take(now, cost), gone.take(now, cost)
		if got != want {
			t.Fatalf("step %d at %d, cost %d: with dead keys %+v, without %+v", step, now-epoch, cost, got, want)
		}
	}
}

func pick(r *rand.Rand, list ...int64) int64 { return list[r.IntN(len(list))] }

// Values of the right form that no limiter wrote break nothing: they are an error, or
// the script and the verdict agree.
func FuzzSlidingBucketsHostile(f *testing.F) {
	list := []algorithm.SlidingBuckets{
		spans(time.Second, algorithm.Span{Window: 3 * time.Second, Limit: 5}, algorithm.Span{Window: time.Second, Limit: 2}),
		spans(maxSpan/128, algorithm.Span{Window: maxSpan, Limit: algorithm.MaxTokens}),
		spans(time.Millisecond, algorithm.Span{Window: time.Millisecond, Limit: 1}),
	}
	for i := range list {
		f.Add(i, int64(epoch), int64(epoch), int64(1), uint(0), int64(epoch), int64(1<<53-1), uint(2), int64(1))
		f.Add(i, int64(1), int64(1<<52-1), int64(1), uint(0), int64(3), int64(3), uint(1), int64(1<<53))
		f.Add(i, int64(1<<52-1), int64(0), int64(1<<53-1), uint(1), int64(0), int64(1<<53-1), uint(2), int64(0))
		f.Add(i, int64(1), int64(1<<53-1), int64(1), uint(0), int64(0), int64(0), uint(7), int64(2))
	}
	f.Fuzz(func(t *testing.T, which int, now, a, x int64, at uint, b, y int64, bt uint, cost int64) {
		l := mustLimit(t, list[uint(which)%uint(len(list))])
		now, cost = max(1, now&(1<<52-1)), max(0, cost)
		p := mustCompose(t, l.Fragment())
		keys := uint(l.Fragment().Keys)
		s := newState(now, int(keys))
		for _, v := range []struct {
			start, count int64
			at           uint
		}{{a, x, at}, {b, y, bt}} {
			n := store.Nums{Tag: store.Tag{'b', '1'}, Len: 2, N: [4]int64{v.start & (1<<53 - 1), v.count & (1<<53 - 1)}}
			s.keys[v.at%keys] = value{held: true, nums: n, expires: 1 << 62}
		}
		script := p.Decide
		if cost == 0 {
			script = p.Peek
		}
		args := l.AppendArgs(p.AppendNow(nil, 0), algorithm.Request{Cost: cost})
		reply, err := script.GoForm()(s, args, nil)
		if errors.Is(err, store.ErrForeign) {
			return
		}
		n, at2, err := p.Outcome(reply)
		if err != nil {
			t.Fatal(err)
		}
		got := l.Verdict(at2, n == 1 && cost > 0, p.State(reply, 0), algorithm.Request{Cost: cost})
		if n == 1 != got.Allowed {
			t.Fatalf("at %d, cost %d: the script says %v and the verdict %+v", now, cost, n == 1, got)
		}
		if got.Remaining < 0 || got.Remaining > got.Limit || got.RetryAfter < 0 || got.ResetAfter < 0 || got.Span == 0 {
			t.Fatalf("at %d, cost %d: impossible %+v", now, cost, got)
		}
		if s.writes > 0 && (s.ttl <= 0 || s.ttl%time.Millisecond != 0) {
			t.Fatalf("at %d, cost %d: written for %v", now, cost, s.ttl)
		}
	})
}

// A reply that no script gives is no panic.
func TestSlidingBucketsNonsense(t *testing.T) {
	t.Parallel()
	l := mustLimit(t, spans(time.Second, algorithm.Span{Window: 3 * time.Second, Limit: 5}))
	for _, s := range []algorithm.State{{1}, {1 << 53, 1 << 53}, {0, 1 << 53, 1 << 53, 1 << 53, 1 << 53, 1 << 53}, {0, 6, 0, 0}} {
		if v := l.Verdict(epoch, true, s, algorithm.Request{Cost: 1}); v.Remaining < 0 || v.RetryAfter < 0 || v.ResetAfter < 0 || v.Allowed != (s[1] < 5) {
			t.Errorf("%v: %+v", s, v)
		}
	}
}

// A fragment with several keys is composed with others: keys and foreign values are
// renumbered.
func TestComposeKeys(t *testing.T) {
	t.Parallel()
	two := func(lua string) *algorithm.Fragment {
		f := fragment("-- check\nlocal ok, count = true, redis.call('MGET', KEYS[1], KEYS[2])\n-- commit\n" + lua + "\n")
		f.Keys = 2
		return f
	}
	one := fragment(soundLua)
	p := mustCompose(t, one, two("redis.call('SET', KEYS[2], ARGV[1], 'PX', 1) return redis.error_reply('WEIRFOREIGN 2')"), one)
	for _, want := range []string{
		"redis.call('MGET', KEYS[2], KEYS[3])", "redis.call('SET', KEYS[3], ARGV[3], 'PX', 1)", "WEIRFOREIGN 3", "redis.call('SET', KEYS[4], count3 + 1",
	} {
		if !strings.Contains(p.Decide.Lua(), want) {
			t.Errorf("no %s in\n%s", want, p.Decide.Lua())
		}
	}
	for i := range 4 {
		if want := fmt.Sprintf("redis.call('UNLINK', KEYS[%d])\n", i+1); !strings.Contains(p.Reset.Lua(), want) {
			t.Errorf("no %s in\n%s", want, p.Reset.Lua())
		}
	}
	for _, lua := range []string{"redis.call('UNLINK', KEYS[3])", "redis.call('UNLINK', KEYS[0])", "return redis.error_reply('WEIRFOREIGN 3')"} {
		if _, err := algorithm.Compose(two(lua)); err == nil || !strings.Contains(err.Error(), "it has 2 keys") {
			t.Errorf("%s: %v, want an error", lua, err)
		}
	}
	for _, keys := range []int{-1, algorithm.MaxKeys + 1} {
		f := *one
		f.Keys = keys
		if _, err := algorithm.Compose(&f); err == nil || !strings.Contains(err.Error(), "at most 128 keys") {
			t.Errorf("%d keys: %v, want an error", keys, err)
		}
	}
}
