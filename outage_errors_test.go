package weir_test

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
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// Misuse is an error, does not count as a failure, and takes no probe's place.
func TestOutageMisuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFaulty()
		l := onOutage(t, mustNew(t, st, capped{algorithm.SlidingLog{Limit: 5000, Window: time.Hour}, 1000}), weir.Outage{Fallback: weir.FailOpen})
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
		for range weir.DefaultOutageFailures {
			misuse()
		}
		res, err := l.Allow(t.Context(), "ann")
		healthy(t, res, err)
		st.set(down)
		fail(t, l)
		misuse()
		st.set(up)
		time.Sleep(weir.DefaultOutageProbe)
		misuse()
		res, err = l.Allow(t.Context(), "ann")
		healthy(t, res, err)
	})
}

// A remembered denial is not an answer of the store, so OnOutage is inside of a DenyCache.
func TestOutageAroundDenyCache(t *testing.T) {
	t.Parallel()
	other := func(weir.Decider) weir.Decider { return failing{} }
	l := mustNew(t, memory.New(nil), window(1, time.Hour)).Wrap(other, weir.DenyCache{}.Wrap)
	if _, err := l.OnOutage(weir.Outage{}); err == nil || !strings.Contains(err.Error(), "call OnOutage first") {
		t.Errorf("got %v, want an error", err)
	}
}

// A foreign value is an error of the store, which has answered.
func TestOutageForeign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFaulty()
		plant(t, st.Store, "weir:t:{bad}:f2", store.Tag{'x', '1'}, 1)
		l := onOutage(t, mustNew(t, st, window(9, time.Hour)), weir.Outage{Fallback: weir.FailOpen})
		foreign := func() {
			t.Helper()
			if res, err := l.Allow(t.Context(), "bad"); !errors.Is(err, store.ErrForeign) || res != (weir.Result{}) {
				t.Errorf("got %+v, %v, want ErrForeign", res, err)
			}
		}
		for range 2 * weir.DefaultOutageFailures {
			foreign()
		}
		st.set(down)
		fail(t, l)
		st.set(up)
		time.Sleep(weir.DefaultOutageProbe)
		foreign()
		res, err := l.Allow(t.Context(), "ann")
		healthy(t, res, err)
	})
}

// The end of a caller's context is the caller's error, and no failure of the store.
func TestOutageCallersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFaulty()
		st.set(hang)
		l := onOutage(t, mustNew(t, st, perSecond), weir.Outage{Fallback: weir.FailOpen})
		cancelled := func() {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(weir.DefaultOutageBudget/2, cancel)
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
		for range 2 * weir.DefaultOutageFailures {
			cancelled()
			expired(weir.DefaultOutageBudget / 2)
			expired(weir.DefaultOutageBudget)
			expired(0)
		}
		st.set(up)
		res, err := l.Allow(t.Context(), "ann")
		healthy(t, res, err)
		st.set(hang)
		fail(t, l)
		expired(0) // also while the breaker is open
		time.Sleep(weir.DefaultOutageProbe)
		expired(0) // this takes no probe's place
		st.set(up)
		res, err = l.Allow(t.Context(), "ann")
		healthy(t, res, err)
		// A probe whose caller goes says nothing, and the next probe is due an interval later.
		st.set(hang)
		fail(t, l)
		time.Sleep(weir.DefaultOutageProbe)
		cancelled()
		st.set(up)
		res, err = l.Allow(t.Context(), "ann")
		degraded(t, res, err)
		time.Sleep(weir.DefaultOutageProbe)
		res, err = l.Allow(t.Context(), "ann")
		healthy(t, res, err)
	})
}

// An unavailable store whose caller has gone returns the context's error too.
func TestOutageUnavailableAfterTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &hooked{Store: memory.New(nil), eval: func(ctx context.Context, _ *store.Script) error {
			<-ctx.Done()
			return fmt.Errorf("i/o timeout: %w", store.ErrUnavailable)
		}}
		l := onOutage(t, mustNew(t, st, perSecond), weir.Outage{Failures: 1})
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), weir.DefaultOutageBudget/2)
			res, err := l.Allow(ctx, "ann")
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, store.ErrUnavailable) || res != (weir.Result{}) {
				t.Errorf("got %+v, %v, want %v", res, err, context.DeadlineExceeded)
			}
		}
		res, err := l.Allow(t.Context(), "ann") // with the budget
		degraded(t, res, err)
	})
}

// An answer after the budget is the store's, and counts as a failure.
func TestOutageLateAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFaulty()
		st.set(slow)
		const probe = 10 * time.Second
		l := onOutage(t, mustNew(t, st, window(10, time.Hour)), weir.Outage{Fallback: weir.FailOpen, Probe: probe})
		for i := range weir.DefaultOutageFailures {
			res, err := l.Allow(t.Context(), "ann")
			if res = healthy(t, res, err); res.Remaining != int64(9-i) {
				t.Errorf("got %+v", res)
			}
		}
		res, err := l.Allow(t.Context(), "ann")
		degraded(t, res, err)
		time.Sleep(probe)
		res, err = l.Allow(t.Context(), "ann") // a probe that answers too late
		healthy(t, res, err)
		res, err = l.Allow(t.Context(), "ann")
		if degraded(t, res, err); !strings.Contains(res.Degraded.Error(), "budget of 50ms: the call took 2s: check that the store's client heeds deadlines") {
			t.Errorf("got %v", res.Degraded)
		}
	})
}

// If the caller goes, and the store answers all the same, the store works.
func TestOutageAnswerAfterTheCallerHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFaulty()
		st.set(slow)
		l := onOutage(t, mustNew(t, st, perSecond), weir.Outage{Failures: 1})
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(weir.DefaultOutageBudget/2, cancel)
			res, err := l.Allow(ctx, "ann")
			healthy(t, res, err)
		}
		st.set(up)
		res, err := l.Allow(t.Context(), "ann")
		healthy(t, res, err)
	})
}

// An inner wrapper can return any error. Only ErrUnavailable and the end of the budget are
// outages, and misuse is misuse in any case.
func TestOutageInnerErrors(t *testing.T) {
	t.Parallel()
	own := errors.New("an error of a wrapper")
	short, cancel := context.WithTimeout(t.Context(), weir.DefaultOutageBudget)
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
		l := mustNew(t, newFaulty(), perSecond).Wrap(func(weir.Decider) weir.Decider { return inner })
		res, err := onOutage(t, l, weir.Outage{Fallback: weir.FailOpen}).Allow(tt.ctx, tt.key)
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
	l := mustNew(t, st, perSecond)
	_, err := l.OnOutage(weir.Outage{})
	wantError(t, err, ignores, "OnOutage: Outage.Budget")
	if st.err = nil; onOutage(t, l, weir.Outage{}) == nil {
		t.Error("got no limiter")
	}
}

// A deadlines is a store.DeadlineChecker.
type deadlines struct {
	store.Store
	err error
}

func (d *deadlines) CheckDeadline() error { return d.err }
