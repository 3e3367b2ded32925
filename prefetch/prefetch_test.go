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
	"github.com/weir-go/weir/internal/weirtest"
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

// prefetching returns l with a Pool, a tap on its calls, and then the wrappers inside.
func prefetching(t testing.TB, l *weir.Limiter, c *weirtest.Clock, p prefetch.Options, inside ...weir.Wrapper) (*weir.Limiter, *tap) {
	t.Helper()
	if c != nil {
		p.Now = c.Now
	}
	log := &tap{pool: prefetch.New(&p)}
	return weirtest.Wrap(t, l, append([]weir.Wrapper{log.pool.Wrap, log.wrap}, inside...)...), log
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

// fill makes requests for the keys in turn, until each key holds prefetched tokens.
func fill(t *testing.T, l *weir.Limiter, keys ...string) {
	t.Helper()
	for range 100 {
		for _, key := range keys {
			weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf(key)})
		}
	}
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
// calls. Return returns exactly what was not used.
func TestSame(t *testing.T) {
	t.Parallel()
	for _, a := range prefetchable {
		for _, cost := range []int64{0, 1, 3} {
			t.Run(fmt.Sprintf("%T/%d", a, cost), func(t *testing.T) {
				t.Parallel()
				c := weirtest.NewClock()
				policy := weirtest.Rules(weir.Rule{Name: "a", Algorithm: a}, weir.Rule{Name: "b", Algorithm: weirtest.Window(2000, time.Hour)})
				bare, other := weirtest.NewPolicy(t, weirtest.NewStore(c), policy), weirtest.NewPolicy(t, weirtest.NewStore(c), policy)
				l, log := prefetching(t, other, c, prefetch.Options{})
				calls := 0
				const steps = 1010
				for i := range steps {
					r := weir.Request{Key: weir.KeyOf("u"), Cost: cost}
					all, wantAll := make([]weir.Result, 2), make([]weir.Result, 2)
					want := weirtest.Decide(t, bare, r, wantAll...)
					got := weirtest.Decide(t, l, r, all[:i%2*2]...)
					if want.Allowed { // tokens were consumed earlier
						got.ResetAfter = want.ResetAfter
						for n := range all {
							all[n].ResetAfter = wantAll[n].ResetAfter
						}
					}
					if got != want || i%2 == 1 && !slices.Equal(all, wantAll) {
						t.Fatalf("request %d: got %+v of %+v, want %+v of %+v", i, got, all, want, wantAll)
					}
					if i != 200 {
						continue
					}
					held := weirtest.Left(t, other, "u").Remaining < weirtest.Left(t, bare, "u").Remaining
					calls += len(log.take())
					for range 2 {
						if err := log.pool.Return(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					if got, want := weirtest.Left(t, other, "u").Remaining, weirtest.Left(t, bare, "u").Remaining; got != want || !held {
						t.Errorf("%d tokens remain, want %d; some were held: %v", got, want, held)
					}
					if ops := log.ops(); ops != "[Settle]" {
						t.Errorf("Return: %s reached the store, want one Settle", ops)
					}
				}
				allowed := 1000 / max(cost, 1)
				if n := calls + len(log.take()) - (steps - int(allowed)); n > 60 {
					t.Errorf("%d allowed requests took %d calls, want at most 60", allowed, n)
				}
			})
		}
	}
}

// Which requests held tokens answer, and when they end: with MaxAge, with their window,
// and when the clock goes back. What they do not answer reaches the store. Tokens that
// have ended are returned if they are still in a limit.
func TestAnswers(t *testing.T) {
	t.Parallel()
	u := weir.KeyOf("u")
	same := weir.Request{Key: u}
	one := func(a algorithm.Algorithm) weir.Policy { return weirtest.Rules(weir.Rule{Name: "a", Algorithm: a}) }
	hour, minute := one(weirtest.Window(1000, time.Hour)), one(weirtest.Window(1000, time.Minute))
	both := weirtest.Rules(weir.Rule{Name: "b", Algorithm: weirtest.Window(1000, time.Hour)}, minute.Rules[0])
	bucket := one(algorithm.GCRA{Rate: algorithm.PerSecond(1000), Burst: 1000})
	const late = 59500 * time.Millisecond // in a window of a minute
	for name, tt := range map[string]struct {
		policy weir.Policy
		before time.Duration // the prefetch
		wait   time.Duration // after it
		ask    weir.Request
		want   string // the ops that reach the store
	}{
		"the same request":                  {hour, 0, 0, same, "[]"},
		"a higher cost":                     {hour, 0, 0, weir.Request{Key: u, Cost: 5}, "[]"},
		"too high a cost":                   {hour, 0, 0, weir.Request{Key: u, Cost: 100}, "[TakeUpTo Settle]"},
		"another key":                       {hour, 0, 0, weir.Request{Key: weir.KeyOf("v")}, "[Consume]"},
		"an ID":                             {hour, 0, 0, weir.Request{Key: u, ID: "x"}, "[Consume]"},
		"MaxWait":                           {bucket, 0, 0, weir.Request{Key: u, MaxWait: time.Second}, "[Consume]"},
		"Metadata":                          {hour, 0, 0, weir.Request{Key: u, Metadata: "x"}, "[Consume]"},
		"Costs":                             {hour, 0, 0, weir.Request{Key: u, Costs: weir.CostsOf(map[string]int64{"x": 1})}, "[Consume]"},
		"a negative cost":                   {hour, 0, 0, weir.Request{Key: u, Cost: -1}, "[Consume]"},
		"Peek":                              {hour, 0, 0, weir.Request{Key: u, Op: weir.Peek}, "[Peek]"},
		"TakeUpTo":                          {hour, 0, 0, weir.Request{Key: u, Op: weir.TakeUpTo, Cost: 2}, "[TakeUpTo]"},
		"Force":                             {hour, 0, 0, weir.Request{Key: u, Op: weir.Force}, "[Force]"},
		"Refund":                            {hour, 0, 0, weir.Request{Key: u, Op: weir.Refund, ID: "x"}, "[Refund]"},
		"Settle":                            {hour, 0, 0, weir.Request{Key: u, Op: weir.Settle, ID: "x", Actual: weir.ActualCost(1)}, "[Settle]"},
		"more segments":                     {hour, 0, 0, weir.Request{Key: weir.KeyOf("u", "v")}, "[Consume]"},
		"just before MaxAge":                {hour, 0, time.Second - time.Microsecond, same, "[]"},
		"MaxAge":                            {hour, 0, time.Second, same, "[Consume Settle]"},
		"just before the end of the window": {minute, late, 499_999 * time.Microsecond, same, "[]"},
		"the end of the window":             {minute, late, 500 * time.Millisecond, same, "[Consume]"},
		"the end of one of two windows":     {both, late, 500 * time.Millisecond, same, "[Consume Settle]"},
		"a full bucket":                     {bucket, 0, 500 * time.Millisecond, same, "[]"},
		"a full bucket, and MaxAge":         {bucket, 0, 2 * time.Second, same, "[Consume]"},
		"the clock went back":               {hour, 0, -time.Millisecond, same, "[TakeUpTo Settle]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := weirtest.NewClock()
			other := weirtest.NewPolicy(t, weirtest.NewStore(c), tt.policy)
			l, log := prefetching(t, other, c, prefetch.Options{})
			weirtest.Allow(t, l, same)
			c.Advance(tt.before)
			held := warm(t, l, log, 30)
			c.Advance(tt.wait)
			_, wantErr := other.Decide(t.Context(), tt.ask, nil)
			res, err := l.Decide(t.Context(), tt.ask, nil)
			if ops := log.ops(); ops != tt.want || (err == nil) != (wantErr == nil) || tt.ask.Op == weir.Consume && res.Allowed != (err == nil) {
				t.Errorf("%s reached the store, want %s; got %+v, %v", ops, tt.want, res, err)
			}
			if tt.wait != 0 || tt.ask.Cost > held {
				return
			}
			for range held - 5 { // what remains is still held
				weirtest.Allow(t, l, same)
			}
			if ops := log.ops(); ops != "[]" {
				t.Errorf("%s reached the store, want that the tokens are still held", ops)
			}
		})
	}
}

// The results of held tokens are as of the prefetch, less the time since. A request that
// the limiter would not decide is an error, even if tokens are held.
func TestResults(t *testing.T) {
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

// A limiter whose tokens cannot be consumed ahead of requests says why.
func TestMisuse(t *testing.T) {
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
		wantError(t, p.Return(t.Context()), nil, "make one with New")
	}
	if err := prefetch.New(nil).Return(t.Context()); err != nil {
		t.Errorf("Return without a limiter: %v", err)
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
