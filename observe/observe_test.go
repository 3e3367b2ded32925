package observe_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/denycache"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// Each answer has an outcome.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	yes := weir.Result{Allowed: true}
	for _, tt := range []struct {
		op   weir.Op
		res  weir.Result
		err  error
		want observe.Outcome
	}{
		{weir.Consume, yes, nil, observe.Allowed},
		{weir.Consume, weir.Result{}, nil, observe.Denied},
		{weir.Reset, yes, nil, observe.Allowed},
		{weir.Refund, weir.Result{}, nil, observe.Denied},
		{weir.Finish, weir.Result{Replayed: true}, nil, observe.Allowed},
		{weir.Consume, weir.Result{Replayed: true}, nil, observe.Denied},
		{weir.Consume, weir.Result{Allowed: true, Shadow: weir.ErrDenied}, nil, observe.ShadowDenied},
		{weir.Consume, weir.Result{Allowed: true, Shadow: store.ErrForeign}, nil, observe.Allowed},
		{weir.Consume, weir.Result{Shadow: weir.ErrDenied}, nil, observe.Denied},
		{weir.Consume, weir.Result{Allowed: true, Degraded: store.ErrUnavailable}, nil, observe.DegradedAllowed},
		{weir.Consume, weir.Result{Degraded: store.ErrUnavailable}, nil, observe.DegradedDenied},
		{weir.Consume, weir.Result{}, fmt.Errorf("x: %w", store.ErrUnavailable), observe.Unavailable},
		{weir.Consume, weir.Result{}, fmt.Errorf("x: %w", context.DeadlineExceeded), observe.Unavailable},
		{weir.Consume, weir.Result{}, fmt.Errorf("x: %w: %w", store.ErrUnavailable, context.Canceled), observe.Unavailable},
		{weir.Consume, weir.Result{}, context.Canceled, observe.Canceled},
		{weir.Consume, weir.Result{}, store.ErrForeign, observe.Failed},
		{weir.Consume, weir.Result{}, store.ErrScript, observe.Failed},
		{weir.Consume, weir.Result{}, weir.ErrInvalidKey, observe.Failed},
	} {
		d := observe.Decision{Request: weir.Request{Op: tt.op}, Result: tt.res, Err: tt.err}
		if got := d.Outcome(); got != tt.want {
			t.Errorf("%v, %+v, %v: got %q, want %q", tt.op, tt.res, tt.err, got, tt.want)
		}
	}
}

// A slow is a Decider that takes a second.
type slow struct{ next weir.Decider }

func (s slow) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	time.Sleep(time.Second)
	return s.next.Decide(ctx, r, each)
}

// An Observer measures the decision, gets the caller's context, and returns what it saw,
// with the results of each rule.
func TestObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type contextKey struct{}
		var got observe.Decision
		observer := observe.Observer(func(ctx context.Context, d observe.Decision) {
			if got = d; ctx.Value(contextKey{}) != "here" {
				t.Error("it got another context")
			}
		})
		l := weirtest.Wrap(t, weirtest.New(t, memory.New(nil), weirtest.PerSecond), observer.Wrap, weirtest.Around(func(next weir.Decider) slow { return slow{next} }))
		ctx, each := context.WithValue(t.Context(), contextKey{}, "here"), make([]weir.Result, 1)
		for _, r := range []weir.Request{{Key: weir.KeyOf("u")}, {Key: weir.KeyOf("u"), Op: weir.Peek, Cost: 9}, {Key: weir.KeyOf("")}} {
			res, err := l.Decide(ctx, r, each)
			if got != (observe.Decision{Request: r, Result: res, Err: err, Took: time.Second}) || each[0].Rule != "gcra" {
				t.Errorf("got %+v, %v and %+v, observed %+v", res, err, each, got)
			}
		}
	})
}

// An Observer inside a denycache.Cache sees only what reaches the store. One around it
// sees every answer.
func TestObserverOrder(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	around, inside := 0, 0
	count := func(n *int) weir.Wrapper {
		return observe.Observer(func(context.Context, observe.Decision) { *n++ }).Wrap
	}
	l := weirtest.Wrap(t, weirtest.New(t, weirtest.NewStore(c), weirtest.Window(1, time.Minute)),
		count(&around), denycache.New(&denycache.Options{Now: c.Now}).Wrap, count(&inside))
	for range 4 { // one is allowed, one is denied by the store, and two by the cache
		weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf("u")})
	}
	if around != 4 || inside != 2 {
		t.Errorf("the Observers saw %d and %d decisions, want 4 and 2", around, inside)
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
