package outage_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/denycache"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/prefetch"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// Misuse is an error, does not count as a failure, and takes no probe's place.
func TestOutageMisuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		l := onOutage(t, weirtest.New(t, st, weirtest.Capped(algorithm.SlidingLog{Limit: 5000, Window: time.Hour}, 1000)), outage.Options{Fallback: outage.Open})
		misuse := func() {
			t.Helper()
			for _, tt := range []struct {
				r    weir.Request
				each int
				want error
			}{
				{weir.Request{Key: weir.KeyOf("")}, 0, weir.ErrInvalidKey},
				{weir.Request{Key: weir.KeyOf("a", "b"), Op: weir.Peek}, 0, weir.ErrInvalidKey},
				{weir.Request{Key: weir.KeyOf("a"), Cost: -1}, 0, weir.ErrInvalidCost},
				{weir.Request{Key: weir.KeyOf("a"), Cost: 1001}, 0, weir.ErrInvalidCost},
				{weir.Request{Key: weir.KeyOf("a"), MaxWait: 1}, 0, weir.ErrUnsupported},
				{weir.Request{Key: weir.KeyOf("a"), Metadata: "m"}, 0, weir.ErrUnsupported},
				{weir.Request{Key: weir.KeyOf("a"), Op: weir.Renew, ID: "i"}, 0, weir.ErrUnsupported},
				{weir.Request{Key: weir.KeyOf("a"), Op: weir.Refund}, 0, weir.ErrInvalidKey},
				{weir.Request{Key: weir.KeyOf("a"), Op: 99}, 0, weir.ErrUnsupported},
			} {
				res, err := l.Decide(t.Context(), tt.r, make([]weir.Result, tt.each))
				if !errors.Is(err, tt.want) || errors.Is(err, store.ErrUnavailable) || res != (weir.Result{}) {
					t.Errorf("%+v: got %+v, %v, want %v", tt.r, res, err, tt.want)
				}
			}
		}
		for range outage.DefaultFailures {
			misuse()
		}
		res, err := l.Allow(t.Context(), "ann")
		weirtest.Healthy(t, res, err)
		st.Set(weirtest.Down)
		fail(t, l)
		misuse()
		st.Set(weirtest.Up)
		time.Sleep(outage.DefaultProbe)
		misuse()
		res, err = l.Allow(t.Context(), "ann")
		weirtest.Healthy(t, res, err)
	})
}

// A remembered denial and a held token are no answers of the store, so a Breaker is
// inside of a denycache.Cache and a prefetch.Pool, even if wrappers that pass on every
// request are in between.
func TestOutageAroundStandIns(t *testing.T) {
	t.Parallel()
	for inner, standIn := range map[string]weir.Wrapper{"*denycache.decider": denycache.New(nil).Wrap, "*prefetch.decider": prefetch.New(nil).Wrap} {
		between := observe.Observer(func(context.Context, observe.Decision) {}).Wrap
		l := weirtest.New(t, memory.New(nil), weirtest.Window(10, time.Hour))
		for name, wrap := range map[string]func() (*weir.Limiter, error){
			"inside":         func() (*weir.Limiter, error) { return l.Wrap(outage.New(nil).Wrap, standIn) },
			"two in between": func() (*weir.Limiter, error) { return l.Wrap(outage.New(nil).Wrap, between, weirtest.Pass, standIn) },
			"earlier":        func() (*weir.Limiter, error) { return weirtest.Wrap(t, l, between, standIn).Wrap(outage.New(nil).Wrap) },
		} {
			got, err := wrap()
			if got != nil {
				t.Errorf("%s, %s: got a limiter", inner, name)
			}
			wantError(t, err, nil, "has a "+inner+" inside the Breaker")
			wantError(t, err, nil, "give Limiter.Wrap the Breaker last, in its first call")
		}
		weirtest.Wrap(t, weirtest.Wrap(t, l, between, outage.New(nil).Wrap), weirtest.Pass, standIn)
	}
}

// A foreign value is an error of the store, which has answered.
func TestOutageForeign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		weirtest.Plant(t, st.Store, "weir:t:{bad}:f2", store.Tag{'x', '1'}, 1)
		l := onOutage(t, weirtest.New(t, st, weirtest.Window(9, time.Hour)), outage.Options{Fallback: outage.Open})
		foreign := func() {
			t.Helper()
			if res, err := l.Allow(t.Context(), "bad"); !errors.Is(err, store.ErrForeign) || res != (weir.Result{}) {
				t.Errorf("got %+v, %v, want ErrForeign", res, err)
			}
		}
		for range 2 * outage.DefaultFailures {
			foreign()
		}
		st.Set(weirtest.Down)
		fail(t, l)
		st.Set(weirtest.Up)
		time.Sleep(outage.DefaultProbe)
		foreign()
		res, err := l.Allow(t.Context(), "ann")
		weirtest.Healthy(t, res, err)
	})
}

// The end of a caller's context is the caller's error, and no failure of the store.
func TestOutageCallersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		st.Set(weirtest.Hang)
		l := onOutage(t, weirtest.New(t, st, weirtest.PerSecond), outage.Options{Fallback: outage.Open})
		cancelled := func() {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(outage.DefaultBudget/2, cancel)
			if res, err := l.Allow(ctx, "ann"); !errors.Is(err, context.Canceled) || res != (weir.Result{}) {
				t.Errorf("got %+v, %v, want %v", res, err, context.Canceled)
			}
		}
		expired := func(after time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			if res, err := l.Allow(ctx, "ann"); !errors.Is(err, context.DeadlineExceeded) || res != (weir.Result{}) {
				t.Errorf("got %+v, %v, want %v", res, err, context.DeadlineExceeded)
			}
		}
		for range 2 * outage.DefaultFailures {
			cancelled()
			expired(outage.DefaultBudget / 2)
			expired(outage.DefaultBudget)
			expired(0)
		}
		st.Set(weirtest.Up)
		res, err := l.Allow(t.Context(), "ann")
		weirtest.Healthy(t, res, err)
		st.Set(weirtest.Hang)
		fail(t, l)
		expired(0) // even while the breaker is open
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = l.Allow(ended, "ann")
		wantError(t, err, context.Canceled, "")
		time.Sleep(outage.DefaultProbe)
		expired(0) // this takes no probe's place
		st.Set(weirtest.Up)
		res, err = l.Allow(t.Context(), "ann")
		weirtest.Healthy(t, res, err)
		// A probe whose caller goes says nothing, and the next probe is due an interval
		// later.
		st.Set(weirtest.Hang)
		fail(t, l)
		time.Sleep(outage.DefaultProbe)
		cancelled()
		st.Set(weirtest.Up)
		res, err = l.Allow(t.Context(), "ann")
		weirtest.Degraded(t, res, err)
		time.Sleep(outage.DefaultProbe)
		res, err = l.Allow(t.Context(), "ann")
		weirtest.Healthy(t, res, err)
	})
}

// An unavailable store whose caller has gone returns the context's error too.
func TestOutageUnavailableAfterTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &weirtest.Hooked{Store: memory.New(nil), Before: func(ctx context.Context, _ *store.Script) error {
			<-ctx.Done()
			return fmt.Errorf("i/o timeout: %w", store.ErrUnavailable)
		}}
		l := onOutage(t, weirtest.New(t, st, weirtest.PerSecond), outage.Options{Failures: 1})
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), outage.DefaultBudget/2)
			res, err := l.Allow(ctx, "ann")
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, store.ErrUnavailable) || res != (weir.Result{}) {
				t.Errorf("got %+v, %v, want %v", res, err, context.DeadlineExceeded)
			}
		}
		res, err := l.Allow(t.Context(), "ann") // with the budget
		weirtest.Degraded(t, res, err)
	})
}

// An answer after the budget is the store's, and counts as a failure.
func TestOutageLateAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		st.Set(weirtest.Slow)
		const probe = 10 * time.Second
		l := onOutage(t, weirtest.New(t, st, weirtest.Window(10, time.Hour)), outage.Options{Fallback: outage.Open, Probe: probe})
		for i := range outage.DefaultFailures {
			res, err := l.Allow(t.Context(), "ann")
			if res = weirtest.Healthy(t, res, err); res.Remaining != int64(9-i) {
				t.Errorf("got %+v", res)
			}
		}
		res, err := l.Allow(t.Context(), "ann")
		weirtest.Degraded(t, res, err)
		time.Sleep(probe)
		res, err = l.Allow(t.Context(), "ann") // a probe that answers too late
		weirtest.Healthy(t, res, err)
		res, err = l.Allow(t.Context(), "ann")
		if weirtest.Degraded(t, res, err); !strings.Contains(res.Degraded.Error(), "budget of 50ms: the call took 2s: check that the store's client heeds deadlines") {
			t.Errorf("got %v", res.Degraded)
		}
	})
}

// If the caller goes, and the store answers all the same, the store works.
func TestOutageAnswerAfterTheCallerHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		st.Set(weirtest.Slow)
		l := onOutage(t, weirtest.New(t, st, weirtest.PerSecond), outage.Options{Failures: 1})
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(outage.DefaultBudget/2, cancel)
			res, err := l.Allow(ctx, "ann")
			weirtest.Healthy(t, res, err)
		}
		st.Set(weirtest.Up)
		res, err := l.Allow(t.Context(), "ann")
		weirtest.Healthy(t, res, err)
	})
}

// An inner wrapper can return any error. Only ErrUnavailable and the end of the budget
// are outages, and misuse is misuse in any case.
func TestOutageInnerErrors(t *testing.T) {
	t.Parallel()
	own := errors.New("an error of a wrapper")
	short, cancel := context.WithTimeout(t.Context(), outage.DefaultBudget)
	defer cancel()
	for _, tt := range []struct {
		ctx        context.Context
		key        string
		inner      error
		want       error
		isDegraded bool
	}{
		{t.Context(), "ann", own, own, false},
		{t.Context(), "ann", context.Canceled, context.Canceled, false},
		{short, "ann", context.DeadlineExceeded, context.DeadlineExceeded, false},
		{t.Context(), "ann", context.DeadlineExceeded, nil, true},
		{t.Context(), "ann", store.ErrUnavailable, nil, true},
		{t.Context(), "", store.ErrUnavailable, weir.ErrInvalidKey, false},
	} {
		inner := failing{tt.inner}
		l := weirtest.Wrap(t, weirtest.New(t, weirtest.NewFaulty(), weirtest.PerSecond), weirtest.Around(func(weir.Decider) failing { return inner }))
		res, err := onOutage(t, l, outage.Options{Fallback: outage.Open}).Allow(tt.ctx, tt.key)
		if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) || (res.Degraded != nil) != tt.isDegraded {
			t.Errorf("%+v: got %+v, %v", tt, res, err)
		}
	}
}

// A failing is a Decider that returns its error.
type failing struct{ err error }

func (f failing) Decide(context.Context, weir.Request, []weir.Result) (weir.Result, error) {
	return weir.Result{}, f.err
}

// A store whose client ignores deadlines cannot answer within a budget.
func TestOutageDeadline(t *testing.T) {
	t.Parallel()
	ignores := errors.New("the client ignores deadlines: set Heed")
	st := &deadlines{Store: memory.New(nil), err: ignores}
	l := weirtest.New(t, st, weirtest.PerSecond)
	_, err := l.Wrap(outage.New(nil).Wrap)
	wantError(t, err, ignores, "the client of the store does not suit Options.Budget: the client ignores deadlines: set Heed")
	if st.err = nil; onOutage(t, l, outage.Options{}) == nil {
		t.Error("got no limiter")
	}
}

// A deadlines is a store.DeadlineChecker.
type deadlines struct {
	store.Store
	err error
}

func (d *deadlines) CheckDeadline() error { return d.err }
