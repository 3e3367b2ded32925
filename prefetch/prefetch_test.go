package prefetch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/denycache"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/prefetch"
	"github.com/weir-go/weir/store/memory"
)

// A tap is a wrapper that records the requests that reach the store. If before is not
// nil, it is called before each request. If after is not nil, its error replaces the
// answer.
type tap struct {
	pool   *prefetch.Pool // around it
	mu     sync.Mutex
	calls  []weir.Request
	before func(ctx context.Context, r weir.Request)
	after  func(r weir.Request, res weir.Result) error
}

func (t *tap) wrap(_ *weir.Limiter, next weir.Decider) (weir.Decider, error) {
	return tapped{t, next}, nil
}

// take returns the recorded requests, and forgets them.
func (t *tap) take() []weir.Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	calls := t.calls
	t.calls = nil
	return calls
}

// ops returns the ops of the recorded requests, and forgets the requests.
func (t *tap) ops() string {
	var ops []weir.Op
	for _, r := range t.take() {
		ops = append(ops, r.Op)
	}
	return fmt.Sprint(ops)
}

// prefetches returns the number of recorded prefetches, and forgets the requests.
func (t *tap) prefetches() (n int) {
	for _, r := range t.take() {
		if r.Op == weir.TakeUpTo {
			n++
		}
	}
	return n
}

type tapped struct {
	*tap
	next weir.Decider
}

func (t tapped) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	t.mu.Lock()
	t.calls = append(t.calls, r)
	t.mu.Unlock()
	if t.before != nil {
		t.before(ctx, r)
	}
	res, err := t.next.Decide(ctx, r, each)
	if t.after != nil && err == nil {
		if err := t.after(r, res); err != nil {
			return weir.Result{}, err
		}
	}
	return res, err
}

// prefetching returns l with a Pool, and a tap on its calls.
func prefetching(t testing.TB, l *weir.Limiter, c *weirtest.Clock, p prefetch.Options) (*weir.Limiter, *tap) {
	t.Helper()
	if c != nil {
		p.Now = c.Now
	}
	log := &tap{pool: prefetch.New(&p)}
	return weirtest.Wrap(t, l, log.pool.Wrap, log.wrap), log
}

// wantError is weirtest.WantError for the errors of this package.
func wantError(t testing.TB, err, want error, says string) {
	t.Helper()
	weirtest.WantError(t, err, want, "prefetch", says)
}

// warm makes requests of the key "u", until the limiter holds at least n tokens of it.
func warm(t testing.TB, l *weir.Limiter, log *tap, n int64) (held int64) {
	t.Helper()
	log.take()
	for range 10_000 {
		weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
		if calls := log.take(); len(calls) > 0 && calls[0].Op == weir.TakeUpTo && calls[0].Cost > n {
			return calls[0].Cost - 1
		}
	}
	t.Fatal("nothing was prefetched")
	return 0
}

// prefetchable has every algorithm that can be prefetched, with a limit of 1,000 tokens.
var prefetchable = []algorithm.Algorithm{
	algorithm.GCRA{Rate: algorithm.PerSecond(100), Burst: 1000},
	algorithm.GCRA{Rate: algorithm.PerSecond(300), Burst: 1000},
	algorithm.TokenBucket{Capacity: 1000, Refill: algorithm.PerSecond(100)},
	algorithm.TokenBucket{Capacity: 1000, Refill: algorithm.PerSecond(100), AtOnce: true},
	weirtest.Window(1000, 10*time.Second),
	algorithm.FixedWindow{Limit: 1000, Window: 10 * time.Second, Aligned: true},
	algorithm.SlidingCounter{Limit: 1000, Window: 10 * time.Second},
	algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: 10 * time.Second, Limit: 1000}}},
	&algorithm.SlidingLog{Limit: 1000, Window: 10 * time.Second},
}

// While no time passes, a limiter that prefetches answers as one without does, with few
// calls.
func TestPrefetchSame(t *testing.T) {
	t.Parallel()
	for _, a := range prefetchable {
		for _, cost := range []int64{0, 1, 3} {
			t.Run(fmt.Sprintf("%T/%d", a, cost), func(t *testing.T) {
				t.Parallel()
				c := weirtest.NewClock()
				policy := weirtest.Rules(weir.Rule{Name: "a", Algorithm: a}, weir.Rule{Name: "b", Algorithm: weirtest.Window(2000, time.Hour)})
				bare := weirtest.NewPolicy(t, weirtest.NewStore(c), policy)
				l, log := prefetching(t, weirtest.NewPolicy(t, weirtest.NewStore(c), policy), c, prefetch.Options{})
				const steps = 1010
				for i := range steps {
					r := weir.Request{Key: weir.KeyOf("u"), Cost: cost}
					all, wantAll := make([]weir.Result, 2), make([]weir.Result, 2)
					want, err := bare.Decide(t.Context(), r, wantAll)
					if err != nil {
						t.Fatal(err)
					}
					got, err := l.Decide(t.Context(), r, all[:i%2*2])
					if want.Allowed { // tokens were consumed earlier
						got.ResetAfter = want.ResetAfter
						for n := range all {
							all[n].ResetAfter = wantAll[n].ResetAfter
						}
					}
					if err != nil || got != want {
						t.Fatalf("request %d: got %+v, %v, want %+v", i, got, err, want)
					}
					if i%2 == 1 && !slices.Equal(all, wantAll) {
						t.Fatalf("request %d: got %+v, want %+v", i, all, wantAll)
					}
				}
				allowed := int(1000 / max(cost, 1))
				if n := len(log.take()) - (steps - allowed); n > 50 {
					t.Errorf("%d allowed requests took %d calls, want at most 50", allowed, n)
				}
			})
		}
	}
}

// Which requests held tokens answer, and what reaches the store instead.
func TestPrefetchAnswers(t *testing.T) {
	t.Parallel()
	u := weir.KeyOf("u")
	for name, tt := range map[string]struct {
		ask  weir.Request
		want string // the ops that reach the store
	}{
		"the same request":  {weir.Request{Key: u}, "[]"},
		"a higher cost":     {weir.Request{Key: u, Cost: 5}, "[]"},
		"too high a cost":   {weir.Request{Key: u, Cost: 100}, "[TakeUpTo Settle]"},
		"another key":       {weir.Request{Key: weir.KeyOf("v")}, "[Consume]"},
		"an ID":             {weir.Request{Key: u, ID: "x"}, "[Consume]"},
		"MaxWait":           {weir.Request{Key: u, MaxWait: time.Second}, "[Consume]"},
		"Metadata":          {weir.Request{Key: u, Metadata: "x"}, "[Consume]"},
		"a negative cost":   {weir.Request{Key: u, Cost: -1}, "[Consume]"},
		"Peek":              {weir.Request{Key: u, Op: weir.Peek}, "[Peek]"},
		"TakeUpTo":          {weir.Request{Key: u, Op: weir.TakeUpTo, Cost: 2}, "[TakeUpTo]"},
		"Force":             {weir.Request{Key: u, Op: weir.Force}, "[Force]"},
		"Refund":            {weir.Request{Key: u, Op: weir.Refund, ID: "x"}, "[Refund]"},
		"Settle":            {weir.Request{Key: u, Op: weir.Settle, ID: "x", Actual: weir.ActualCost(1)}, "[Settle]"},
		"another number of": {weir.Request{Key: weir.KeyOf("u", "v")}, "[Consume]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := weirtest.NewClock()
			other := weirtest.New(t, weirtest.NewStore(c), algorithm.TokenBucket{Capacity: 1000, Refill: algorithm.PerSecond(1)})
			l, log := prefetching(t, other, c, prefetch.Options{})
			held := warm(t, l, log, 10)
			want, wantErr := other.Decide(t.Context(), tt.ask, nil)
			got, err := l.Decide(t.Context(), tt.ask, nil)
			if ops := log.ops(); ops != tt.want {
				t.Errorf("%s reached the store, want %s", ops, tt.want)
			}
			if (err == nil) != (wantErr == nil) || got.Allowed != want.Allowed {
				t.Errorf("got %+v, %v, want %+v, %v", got, err, want, wantErr)
			}
			for range held - 5 { // what remains is still held
				weirtest.Allow(t, l, weir.Request{Key: u})
			}
			if ops := log.ops(); ops != "[]" {
				t.Errorf("%s reached the store, want that the tokens are still held", ops)
			}
		})
	}
}

// The results of held tokens are as of the prefetch, less the time since. A request that
// the limiter would not decide is an error, even if tokens are held.
func TestPrefetchResults(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	l, log := prefetching(t, weirtest.NewPolicy(t, weirtest.NewStore(c), weirtest.Rules(
		weir.Rule{Name: "a", Algorithm: weirtest.Window(1000, time.Minute)}, weir.Rule{Name: "b", Algorithm: weirtest.Window(2000, time.Hour)})), c, prefetch.Options{})
	held := warm(t, l, log, 10)
	c.Advance(300 * time.Millisecond)
	each := make([]weir.Result, 3)
	res, err := l.Decide(t.Context(), weir.Request{Key: weir.KeyOf("u"), Cost: 2}, each)
	want := weir.Result{Allowed: true, Granted: 2, Rule: "a", Limit: 1000, Window: time.Minute, Remaining: res.Remaining, ResetAfter: time.Minute - 300*time.Millisecond}
	other := weir.Result{Allowed: true, Granted: 2, Rule: "b", Limit: 2000, Window: time.Hour, Remaining: res.Remaining + 1000, ResetAfter: time.Hour - 300*time.Millisecond}
	if err != nil || res != want || !slices.Equal(each, []weir.Result{want, other, {}}) || log.ops() != "[]" {
		t.Errorf("got %+v, %+v, %v, want %+v, %+v", res, each, err, want, other)
	}
	_, err = l.Decide(t.Context(), weir.Request{Key: weir.KeyOf("u")}, each[:1])
	weirtest.WantError(t, err, nil, "weir", "each has 1 elements")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Allow(gone, "u"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the context has ended", err)
	}
	log.take()
	for range held - 2 {
		weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
	}
	if ops := log.ops(); ops != "[]" {
		t.Errorf("%s reached the store, want that errors use no tokens", ops)
	}
}

// Tokens end with MaxAge, with their window, and when the clock goes back. They come back
// to the limit with a later call.
func TestPrefetchEnds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		algorithm algorithm.Algorithm
		before    time.Duration // the prefetch
		wait      time.Duration // after it
		want      string
		back      bool // tokens
	}{
		"just before MaxAge":                {weirtest.Window(1000, time.Hour), 0, time.Second - time.Microsecond, "[]", false},
		"MaxAge":                            {weirtest.Window(1000, time.Hour), 0, time.Second, "[Consume Settle]", true},
		"just before the end of the window": {weirtest.Window(1000, time.Minute), 59500 * time.Millisecond, 499_999 * time.Microsecond, "[]", false},
		"the end of the window":             {weirtest.Window(1000, time.Minute), 59500 * time.Millisecond, 500 * time.Millisecond, "[Consume]", false},
		"the end of one of two windows":     {nil, 59500 * time.Millisecond, 500 * time.Millisecond, "[Consume Settle]", true},
		"a full bucket":                     {algorithm.GCRA{Rate: algorithm.PerSecond(1000), Burst: 1000}, 0, 500 * time.Millisecond, "[]", false},
		"a full bucket, and MaxAge":         {algorithm.GCRA{Rate: algorithm.PerSecond(1000), Burst: 1000}, 0, 2 * time.Second, "[Consume]", false},
		"the clock went back":               {weirtest.Window(1000, time.Hour), 0, -time.Millisecond, "[TakeUpTo Settle]", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := weirtest.NewClock()
			policy := weirtest.Rules(weir.Rule{Name: "a", Algorithm: tt.algorithm})
			if tt.algorithm == nil {
				policy = weirtest.Rules(weir.Rule{Name: "b", Algorithm: weirtest.Window(1000, time.Hour)}, weir.Rule{Name: "a", Algorithm: weirtest.Window(1000, time.Minute)})
			}
			other := weirtest.NewPolicy(t, weirtest.NewStore(c), policy)
			l, log := prefetching(t, other, c, prefetch.Options{})
			weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
			c.Advance(tt.before)
			warm(t, l, log, 30)
			c.Advance(tt.wait)
			left, err := other.Only("b")
			if err != nil {
				left = other
			}
			was, err := left.Peek(t.Context(), "u")
			if err != nil {
				t.Fatal(err)
			}
			weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
			calls := log.take()
			ops, taken := []weir.Op{}, int64(0)
			for _, r := range calls {
				ops = append(ops, r.Op)
				switch r.Op {
				case weir.TakeUpTo:
					taken = r.Cost
				case weir.Consume:
					taken = 1
				}
			}
			if fmt.Sprint(ops) != tt.want {
				t.Fatalf("%v reached the store, want %s", ops, tt.want)
			}
			now, err := left.Peek(t.Context(), "u")
			if err != nil {
				t.Fatal(err)
			}
			if back := now.Remaining > was.Remaining-taken; back != tt.back {
				t.Errorf("%d tokens remained, then %d were prefetched, and %d remain: tokens came back: %v, want %v", was.Remaining, taken, now.Remaining, back, tt.back)
			}
		})
	}
}

// Return returns exactly what was not used, for every algorithm.
func TestReturn(t *testing.T) {
	t.Parallel()
	for _, a := range prefetchable {
		t.Run(fmt.Sprintf("%T", a), func(t *testing.T) {
			t.Parallel()
			c := weirtest.NewClock()
			other := weirtest.New(t, weirtest.NewStore(c), a)
			l, log := prefetching(t, other, c, prefetch.Options{})
			plan := weirtest.With(t, weirtest.Wrap(t, l), weir.Rule{Algorithm: a}) // shares the held tokens
			const used = 200
			for i := range used {
				weirtest.Allow(t, []*weir.Limiter{l, plan}[i%2], weir.Request{Key: weir.KeyOf("u")})
			}
			if n := log.prefetches(); n == 0 || n > 20 {
				t.Errorf("%d prefetches, want from 1 to 20 for both limiters", n)
			}
			if res := weirtest.Left(t, other, "u"); res.Remaining >= 1000-used {
				t.Fatalf("got %+v, want that tokens are held", res)
			}
			log.take()
			for range 2 {
				if err := log.pool.Return(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if res := weirtest.Left(t, other, "u"); res.Remaining != 1000-used {
				t.Errorf("%d remain, want %d", res.Remaining, 1000-used)
			}
			if ops := log.ops(); ops != "[Settle]" {
				t.Errorf("%s reached the store, want one Settle", ops)
			}
			weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
			if ops := log.ops(); ops != "[TakeUpTo]" {
				t.Errorf("%s reached the store, want that the tokens are no longer held", ops)
			}
		})
	}
	if err := prefetch.New(nil).Return(t.Context()); err != nil {
		t.Errorf("without a limiter: %v", err)
	}
	for _, p := range []*prefetch.Pool{nil, {}} {
		wantError(t, p.Return(t.Context()), nil, "make one with New")
	}
}

// A limiter whose tokens cannot be consumed ahead of requests says why.
func TestPrefetchMisuse(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	good := weir.Rule{Name: "good", Algorithm: weirtest.PerSecond}
	for want, p := range map[string]weir.Policy{
		`rule "x" has the Cost 2`:                  weirtest.Rules(good, weir.Rule{Name: "x", Algorithm: weirtest.PerSecond, Cost: 2}),
		`rule "x" counts the unit "u", of which`:   {Units: []string{"u"}, Rules: []weir.Rule{good, {Name: "x", Unit: "u", Algorithm: weirtest.PerSecond}}},
		`rule "x" is a shadow rule`:                weirtest.Rules(good, weir.Rule{Name: "x", Algorithm: weirtest.PerSecond, Shadow: true}),
		`rule "x" is a concurrency, which holds`:   weirtest.Rules(good, weir.Rule{Name: "x", Algorithm: algorithm.Concurrency{Limit: 1, Lease: time.Second}, Cost: 1}),
		`rule "x" is a leakybucket, whose`:         weirtest.Rules(good, weir.Rule{Name: "x", Algorithm: algorithm.LeakyBucket{Rate: algorithm.PerSecond(1)}}),
		`"x" is a leakybucket, whose requests`:     weirtest.Rules(good, weir.Rule{Name: "x", Algorithm: &algorithm.LeakyBucket{Rate: algorithm.PerSecond(1)}}),
		`rule "x" is a pause, which requests with`: weirtest.Rules(good, weir.Rule{Name: "x", Algorithm: algorithm.Pause{}}),
		`rule "x" is a metadatawindow, which can`:  weirtest.Rules(good, weir.Rule{Name: "x", Algorithm: algorithm.MetadataWindow{Limit: 1, Window: time.Second}}),
	} {
		_, err := weirtest.NewPolicy(t, st, p).Wrap(prefetch.New(nil).Wrap)
		wantError(t, err, weir.ErrUnsupported, want)
	}
	l := weirtest.New(t, st, weirtest.PerSecond)
	for want, p := range map[string]prefetch.Options{
		"Options.MaxTokens is 1:":       {MaxTokens: 1},
		"Options.MaxTokens is -1:":      {MaxTokens: -1},
		"Options.MaxTokens is 1048577:": {MaxTokens: 1<<20 + 1},
		"Options.MaxAge is 1µs:":        {MaxAge: time.Microsecond},
		"Options.MaxAge is 1h0m1s:":     {MaxAge: time.Hour + time.Second},
		"Options.MaxKeys is -1:":        {MaxKeys: -1},
		"Options.MaxKeys is 16777217:":  {MaxKeys: 1<<24 + 1},
	} {
		got, err := l.Wrap(prefetch.New(&p).Wrap)
		if got != nil {
			t.Errorf("%+v: got a limiter", p)
		}
		wantError(t, err, nil, want)
	}
	for _, p := range []*prefetch.Pool{nil, {}} {
		_, err := l.Wrap(p.Wrap)
		wantError(t, err, nil, "make one with New")
	}
	l = weirtest.Wrap(t, l, prefetch.New(&prefetch.Options{MaxTokens: 2, MaxAge: time.Millisecond, MaxKeys: 1}).Wrap)
	_, err := weirtest.Wrap(t, l, denycache.New(nil).Wrap, weirtest.Pass).Wrap(prefetch.New(nil).Wrap)
	wantError(t, err, nil, "already has a Pool: wrap it in one, once")
	_, err = l.With(weir.Rule{Algorithm: weirtest.PerSecond, Cost: 2})
	wantError(t, err, weir.ErrUnsupported, "has the Cost 2")
	if _, err = l.With(weir.Rule{Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(2), Burst: 9}}); err != nil {
		t.Error(err)
	}
}
