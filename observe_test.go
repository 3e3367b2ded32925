package weir_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// An Observer sees each decision with its outcome.
func TestObserver(t *testing.T) {
	t.Parallel()
	var seen []string
	observer := weir.Observer(func(_ context.Context, d weir.Decision) {
		seen = append(seen, fmt.Sprint(d.Request.Op, " ", d.Request.Cost, " ", d.Outcome(), " ", d.Result.Rule))
	})
	l := mustNew(t, newStore(newClock()), algorithm.FixedWindow{Limit: 2, Window: time.Minute}).Wrap(observer.Wrap)
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
	for allowed, want := range map[bool]weir.Outcome{true: weir.DegradedAllowed, false: weir.DegradedDenied} {
		d := weir.Decision{Result: weir.Result{Allowed: allowed, Degraded: store.ErrUnavailable}}
		if got := d.Outcome(); got != want {
			t.Errorf("degraded: got %q, want %q", got, want)
		}
	}
	for _, tt := range []struct {
		err  error
		want weir.Outcome
	}{
		{fmt.Errorf("x: %w", store.ErrUnavailable), weir.Unavailable},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), weir.Unavailable},
		{fmt.Errorf("x: %w: %w", store.ErrUnavailable, context.Canceled), weir.Unavailable},
		{context.Canceled, weir.Canceled},
		{store.ErrForeign, weir.Failed},
		{store.ErrScript, weir.Failed},
		{weir.ErrInvalidKey, weir.Failed},
	} {
		d := weir.Decision{Err: tt.err}
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
		var got weir.Decision
		observer := weir.Observer(func(ctx context.Context, d weir.Decision) {
			if got = d; ctx.Value(contextKey{}) != "here" {
				t.Error("it got another context")
			}
		})
		l := mustNew(t, memory.New(nil), perSecond).Wrap(observer.Wrap, func(weir.Decider) weir.Decider { return refuser{refuse} })
		_, err := l.Allow(context.WithValue(t.Context(), contextKey{}, "here"), "u")
		if err != refuse || got.Err != refuse || got.Took != time.Second || got.Request.Key != weir.KeyOf("u") {
			t.Errorf("got %v and %+v", err, got)
		}
	})
}

// An Observer that was added before a DenyCache sees only what reaches the store. One that
// was added later, or is an earlier argument, sees every answer.
func TestObserverOrder(t *testing.T) {
	t.Parallel()
	n := 0
	o := weir.Observer(func(context.Context, weir.Decision) { n++ }).Wrap
	for _, tt := range []struct {
		name string
		wrap func(l *weir.Limiter, cache func(weir.Decider) weir.Decider) *weir.Limiter
		want int
	}{
		{"before", func(l *weir.Limiter, cache func(weir.Decider) weir.Decider) *weir.Limiter {
			return l.Wrap(o).Wrap(cache)
		}, 2},
		{"after", func(l *weir.Limiter, cache func(weir.Decider) weir.Decider) *weir.Limiter {
			return l.Wrap(cache).Wrap(o)
		}, 4},
		{"first", func(l *weir.Limiter, cache func(weir.Decider) weir.Decider) *weir.Limiter { return l.Wrap(o, cache) }, 4},
		{"second", func(l *weir.Limiter, cache func(weir.Decider) weir.Decider) *weir.Limiter { return l.Wrap(cache, o) }, 2},
	} {
		c := newClock()
		l := tt.wrap(mustNew(t, newStore(c), window(1, time.Minute)), weir.DenyCache{Now: c.now}.Wrap)
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

// The wrapped limiter stores the results of each rule. An Observer around nothing is an
// error of the limiter.
func TestObserverEach(t *testing.T) {
	t.Parallel()
	o := weir.Observer(func(context.Context, weir.Decision) {})
	each := make([]weir.Result, 1)
	l := mustNew(t, newStore(newClock()), perSecond)
	if _, err := l.Wrap(o.Wrap).Decide(t.Context(), weir.Request{Key: weir.KeyOf("u")}, each); err != nil || each[0].Rule != "gcra" {
		t.Errorf("got %+v, %v", each, err)
	}
	_, err := l.Wrap(o.Wrap, func(weir.Decider) weir.Decider { return nil }).Allow(t.Context(), "u")
	wantError(t, err, nil, "Limiter.Wrap")
	if o.Wrap(nil) != nil {
		t.Error("Wrap made a Decider of nil")
	}
}

// A refuser takes a second to return an error.
type refuser struct{ err error }

func (r refuser) Decide(context.Context, weir.Request, []weir.Result) (weir.Result, error) {
	time.Sleep(time.Second)
	return weir.Result{}, r.err
}

// A nil Observer observes nothing. It allocates nothing either.
func TestObserverNil(t *testing.T) {
	l := mustNew(t, newStore(newClock()), perSecond)
	if res, err := l.Wrap(weir.Observer(nil).Wrap).Allow(t.Context(), "u"); err != nil || !res.Allowed {
		t.Errorf("got %+v, %v", res, err)
	}
	n := 0
	counting := l.Wrap(weir.Observer(func(context.Context, weir.Decision) { n++ }).Wrap)
	ctx := t.Context()
	if allocs := testing.AllocsPerRun(100, func() { _, _ = counting.Allow(ctx, "u") }); allocs != 0 && !raceEnabled {
		t.Errorf("got %v allocations of a decision, want 0", allocs)
	}
	if n == 0 {
		t.Error("it was not called")
	}
}
