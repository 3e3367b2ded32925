package observe_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/denycache"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// An Observer sees each decision with its outcome.
func TestObserver(t *testing.T) {
	t.Parallel()
	var seen []string
	observer := observe.Observer(func(_ context.Context, d observe.Decision) {
		seen = append(seen, fmt.Sprint(d.Request.Op, " ", d.Request.Cost, " ", d.Outcome(), " ", d.Result.Rule))
	})
	l := weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), algorithm.FixedWindow{Limit: 2, Window: time.Minute})
	l = weirtest.Wrap(t, l, observer.Wrap)
	ctx, u := t.Context(), weir.KeyOf("u")
	for _, tt := range []struct {
		want string
		call func() error
	}{
		{"Consume 0 allowed fixedwindow", func() error { _, err := l.Allow(ctx, "u"); return err }},
		{"Consume 2 denied fixedwindow", func() error { _, err := l.AllowN(ctx, 2, "u"); return err }},
		{"Peek 0 allowed fixedwindow", func() error { _, err := l.Peek(ctx, "u"); return err }},
		{"Refund 0 denied ", func() error { _, err := l.Refund(ctx, weir.Request{Key: u, ID: "x"}); return err }},
		{"Reset 0 allowed ", func() error { return l.Reset(ctx, "u") }},
	} {
		seen = nil
		if err := tt.call(); err != nil {
			t.Fatal(err)
		}
		if len(seen) != 1 || seen[0] != tt.want {
			t.Errorf("got %q, want %q", seen, tt.want)
		}
	}
}

// Each error, and each answer without the store, has an outcome.
func TestObserverOutcomes(t *testing.T) {
	t.Parallel()
	for allowed, want := range map[bool]observe.Outcome{true: observe.DegradedAllowed, false: observe.DegradedDenied} {
		d := observe.Decision{Result: weir.Result{Allowed: allowed, Degraded: store.ErrUnavailable}}
		if got := d.Outcome(); got != want {
			t.Errorf("degraded: got %q, want %q", got, want)
		}
	}
	for _, tt := range []struct {
		err  error
		want observe.Outcome
	}{
		{fmt.Errorf("x: %w", store.ErrUnavailable), observe.Unavailable},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), observe.Unavailable},
		{fmt.Errorf("x: %w: %w", store.ErrUnavailable, context.Canceled), observe.Unavailable},
		{context.Canceled, observe.Canceled},
		{store.ErrForeign, observe.Failed},
		{store.ErrScript, observe.Failed},
		{weir.ErrInvalidKey, observe.Failed},
	} {
		d := observe.Decision{Err: tt.err}
		if got := d.Outcome(); got != tt.want {
			t.Errorf("%v: got %q, want %q", tt.err, got, tt.want)
		}
	}
}

// An Observer measures the decision, gets the caller's context, and returns what it saw.
func TestObserverPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type contextKey struct{}
		refuse := errors.New("no")
		var got observe.Decision
		observer := observe.Observer(func(ctx context.Context, d observe.Decision) {
			if got = d; ctx.Value(contextKey{}) != "here" {
				t.Error("it got another context")
			}
		})
		l := weirtest.Wrap(t, weirtest.New(t, memory.New(nil), weirtest.PerSecond), observer.Wrap,
			weirtest.Around(func(weir.Decider) refuser { return refuser{refuse} }))
		_, err := l.Allow(context.WithValue(t.Context(), contextKey{}, "here"), "u")
		if err != refuse || got.Err != refuse || got.Took != time.Second || got.Request.Key != weir.KeyOf("u") {
			t.Errorf("got %v and %+v", err, got)
		}
	})
}

// An Observer that was added before a denycache.Cache sees only what reaches the store.
// One that was added later, or is an earlier argument, sees every answer.
func TestObserverOrder(t *testing.T) {
	t.Parallel()
	n := 0
	o := observe.Observer(func(context.Context, observe.Decision) { n++ }).Wrap
	for _, tt := range []struct {
		name string
		wrap func(l *weir.Limiter, cache weir.Wrapper) *weir.Limiter
		want int
	}{
		{"before", func(l *weir.Limiter, cache weir.Wrapper) *weir.Limiter {
			return weirtest.Wrap(t, weirtest.Wrap(t, l, o), cache)
		}, 2},
		{"after", func(l *weir.Limiter, cache weir.Wrapper) *weir.Limiter {
			return weirtest.Wrap(t, weirtest.Wrap(t, l, cache), o)
		}, 4},
		{"first", func(l *weir.Limiter, cache weir.Wrapper) *weir.Limiter { return weirtest.Wrap(t, l, o, cache) }, 4},
		{"second", func(l *weir.Limiter, cache weir.Wrapper) *weir.Limiter { return weirtest.Wrap(t, l, cache, o) }, 2},
	} {
		c := weirtest.NewClock()
		l := tt.wrap(weirtest.New(t, weirtest.NewStore(c), weirtest.Window(1, time.Minute)), denycache.New(&denycache.Options{Now: c.Now}).Wrap)
		n = 0
		for range 4 { // one is allowed, one is denied by the store, and two by the cache
			if _, err := l.Allow(t.Context(), "u"); err != nil {
				t.Fatal(err)
			}
		}
		if n != tt.want {
			t.Errorf("%s: it saw %d decisions, want %d", tt.name, n, tt.want)
		}
	}
}

// The wrapped limiter stores the results of each rule.
func TestObserverEach(t *testing.T) {
	t.Parallel()
	o := observe.Observer(func(context.Context, observe.Decision) {})
	each := make([]weir.Result, 1)
	l := weirtest.Wrap(t, weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), weirtest.PerSecond), o.Wrap)
	if _, err := l.Decide(t.Context(), weir.Request{Key: weir.KeyOf("u")}, each); err != nil || each[0].Rule != "gcra" {
		t.Errorf("got %+v, %v", each, err)
	}
}

// A batcher is a store whose batches take a second, and whose other calls take a minute.
type batcher struct{ store.Store }

func (b batcher) Eval(ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	time.Sleep(time.Minute)
	return b.Store.Eval(ctx, s, keys, args, reply)
}

func (b batcher) EvalBatch(ctx context.Context, calls []store.Eval) {
	time.Sleep(time.Second)
	for i := range calls {
		calls[i].Reply, calls[i].Err = b.Store.Eval(ctx, calls[i].Script, calls[i].Keys, calls[i].Args, calls[i].Reply)
	}
}

// DoMany keeps its batches inside Observers: each sees every decision, and the decisions
// of one batch took equally long. Around a Decider that decides one request at a time,
// each decision has its own time.
func TestObserverMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen [2][]observe.Decision
		o := func(i int) weir.Wrapper {
			return observe.Observer(func(_ context.Context, d observe.Decision) { seen[i] = append(seen[i], d) }).Wrap
		}
		l := weirtest.New(t, batcher{memory.New(nil)}, weirtest.Window(3, time.Hour))
		out := outage.New(&outage.Options{Budget: time.Hour})
		for name, tt := range map[string]struct {
			wrappers []weir.Wrapper
			took     time.Duration
		}{
			"only observers":        {[]weir.Wrapper{o(0), o(1)}, time.Second},
			"around a Breaker":      {[]weir.Wrapper{o(0), o(1), out.Wrap}, time.Second},
			"inside a Breaker":      {[]weir.Wrapper{o(0), out.Wrap, o(1)}, time.Second},
			"around a user wrapper": {[]weir.Wrapper{o(0), o(1), weirtest.Pass}, time.Minute},
			"around a Cache":        {[]weir.Wrapper{o(0), o(1), denycache.New(nil).Wrap}, time.Second},
		} {
			seen = [2][]observe.Decision{}
			key := weir.KeyOf(name)
			requests := []weir.Request{{Key: key, Cost: 2}, {Key: key, Cost: 5}, {Key: weir.KeyOf("")}, {Key: key}}
			answers := weirtest.Wrap(t, l, tt.wrappers...).DoMany(t.Context(), requests)
			for i, want := range []observe.Outcome{observe.Allowed, observe.Denied, observe.Failed, observe.Allowed} {
				for j := range seen {
					if len(seen[j]) != len(requests) {
						t.Fatalf("%s: observer %d saw %d decisions, want %d", name, j, len(seen[j]), len(requests))
					}
					d := seen[j][i]
					took := tt.took
					if want == observe.Failed && took == time.Minute {
						took = 0
					}
					if d.Outcome() != want || d.Request != requests[i] || d.Result != answers[i].Result || d.Err != answers[i].Err || d.Took != took {
						t.Errorf("%s: observer %d, decision %d: got %+v, want %s after %v", name, j, i, d, want, took)
					}
				}
			}
		}
	})
}

// A refuser takes a second to return an error.
type refuser struct{ err error }

func (r refuser) Decide(context.Context, weir.Request, []weir.Result) (weir.Result, error) {
	time.Sleep(time.Second)
	return weir.Result{}, r.err
}

// A nil Observer is an error of Wrap, as a nil TopDenied is.
func TestObserverNil(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), weirtest.PerSecond)
	for says, w := range map[string]weir.Wrapper{
		"the Observer is nil: convert a function to an Observer": observe.Observer(nil).Wrap,
		"the TopDenied is nil: pass a pointer to one":            (*observe.TopDenied)(nil).Wrap,
	} {
		got, err := l.Wrap(w)
		if got != nil {
			t.Errorf("%s: got a limiter", says)
		}
		weirtest.WantError(t, err, nil, "observe", says)
	}
}

// An Observer allocates nothing.
func TestObserverAllocs(t *testing.T) {
	n := 0
	l := weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), weirtest.PerSecond)
	l = weirtest.Wrap(t, l, observe.Observer(func(context.Context, observe.Decision) { n++ }).Wrap)
	ctx := t.Context()
	if allocs := testing.AllocsPerRun(100, func() { _, _ = l.Allow(ctx, "u") }); allocs != 0 && !weirtest.Race {
		t.Errorf("got %v allocations of a decision, want 0", allocs)
	}
	if n == 0 {
		t.Error("it was not called")
	}
}
