package outage_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/denycache"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/prefetch"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// The errors of Wrap name the field and what is right.
func TestWrapErrors(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weirtest.NewFaulty(), weirtest.PerSecond)
	for _, tt := range []struct {
		o    outage.Options
		want string
	}{
		{outage.Options{Fallback: 3}, "Options.Fallback is Fallback(3): it must be Closed, Open or Local"},
		{outage.Options{Fallback: outage.Local}, "Options.Processes is 0: it must be the number of processes"},
		{outage.Options{Fallback: outage.Local, Processes: -1}, "Options.Processes is -1"},
		{outage.Options{Processes: 4}, "Options.Processes is 4 and Fallback is Closed: only Local uses Processes"},
		{outage.Options{Fallback: outage.Open, Processes: 4}, "Fallback is Open"},
		{outage.Options{Fallback: outage.Open, Floor: true}, "Options.Floor is true and Fallback is Open: only Local uses Floor"},
		{outage.Options{MaxKeys: 4}, "Options.MaxKeys is 4 and Fallback is Closed"},
		{outage.Options{Fallback: outage.Local, Processes: 4, MaxKeys: -4}, "Options.MaxKeys is -4: it must be at least 1"},
		{outage.Options{Budget: -1}, "Options.Budget is -1ns: it must be above 0, or 0 for the default of 50ms"},
		{outage.Options{Failures: -1}, "Options.Failures is -1: it must be at least 1, or 0 for the default of 5"},
		{outage.Options{Probe: -1}, "Options.Probe is -1ns: it must be above 0, or 0 for the default of 1s"},
		{outage.Options{Probe: time.Second, Budget: 2 * time.Second}, "Options.Probe is 1s and Budget is 2s: Probe must be at least Budget"},
	} {
		got, err := l.Wrap(outage.New(&tt.o).Wrap)
		if got != nil {
			t.Errorf("%+v: got a limiter", tt.o)
		}
		wantError(t, err, nil, tt.want)
	}
	for _, b := range []*outage.Breaker{nil, {}} {
		_, err := l.Wrap(b.Wrap)
		wantError(t, err, nil, "make one with New")
	}
	for _, b := range []*outage.Breaker{nil, {}, outage.New(&outage.Options{Budget: -1}), outage.New(nil)} {
		if s := b.State(); s != (outage.State{}) {
			t.Errorf("got %+v", s)
		}
		wantError(t, b.SetProcesses(4), nil, "the Breaker divides no limits")
	}
	once := onOutage(t, l, outage.Options{Budget: 2 * time.Second}) // Probe is then Budget
	_, err := weirtest.Wrap(t, once, weirtest.Pass).Wrap(outage.New(nil).Wrap)
	wantError(t, err, nil, "already has a Breaker: wrap it in one, once")
	if got := []string{outage.Closed.String(), outage.Open.String(), outage.Local.String()}; strings.Join(got, " ") != "Closed Open Local" {
		t.Errorf("got %v", got)
	}
	ignores := errors.New("the client ignores deadlines: set Heed")
	st := &deadlines{Store: memory.New(nil), err: ignores}
	_, err = weirtest.New(t, st, weirtest.PerSecond).Wrap(outage.New(nil).Wrap)
	wantError(t, err, ignores, "the client of the store does not suit Options.Budget: the client ignores deadlines: set Heed")
	if st.err = nil; onOutage(t, weirtest.New(t, st, weirtest.PerSecond), outage.Options{}) == nil {
		t.Error("got no limiter")
	}
}

// A deadlines is a store.DeadlineChecker.
type deadlines struct {
	store.Store
	err error
}

func (d *deadlines) CheckDeadline() error { return d.err }

// A remembered denial and a held token are no answers of the store, so a Breaker is
// inside of a denycache.Cache and a prefetch.Pool, even if wrappers that pass on every
// request are in between.
func TestWrapAroundStandIns(t *testing.T) {
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
			wantError(t, err, nil, "has a "+inner+" inside the Breaker, whose answers would be taken for those of the store: give Limiter.Wrap the Breaker last, in its first call")
		}
		weirtest.Wrap(t, weirtest.Wrap(t, l, between, outage.New(nil).Wrap), weirtest.Pass, standIn)
	}
}

// A limit that has no share is an error of Wrap, With and SetProcesses, which changes
// nothing.
func TestNoShare(t *testing.T) {
	t.Parallel()
	st := weirtest.NewFaulty()
	st.Set(weirtest.Down)
	for _, tt := range []struct {
		algorithm algorithm.Algorithm
		is        error
		want      string
	}{
		{weirtest.Window(3, time.Hour), weir.ErrInvalidRule, "outage: rule \"fixedwindow\": its limit is 3, and the share of each of 4 processes is less than one token: raise the limit, or lower the number of processes; or set Floor, or set Fallback to Closed or Open"},
		{around{algorithm.Concurrency{Limit: 30, Lease: time.Minute}}, weir.ErrUnsupported, "a concurrency holds leases"},
		{weirtest.Capped(algorithm.SlidingLog{Limit: 3000, Window: time.Minute}, 1000), weir.ErrUnsupported, "; or set Fallback to Closed or Open"},
	} {
		_, err := weirtest.New(t, st, tt.algorithm).Wrap(outage.New(&local4).Wrap)
		wantError(t, err, tt.is, tt.want)
		if strings.Contains(err.Error(), "Floor") != (tt.is == weir.ErrInvalidRule) {
			t.Errorf("got %v, want the advice to set Floor only if it helps", err)
		}
	}
	out := outage.New(&local4)
	l := weirtest.Wrap(t, weirtest.New(t, st, weirtest.Window(40, time.Hour)), out.Wrap)
	share := func(want int64) {
		t.Helper()
		res, err := l.Peek(t.Context(), "ann")
		if res = weirtest.Degraded(t, res, err); res.Limit != want {
			t.Errorf("got a share of %d, want %d", res.Limit, want)
		}
	}
	set := func(n int) {
		t.Helper()
		if err := out.SetProcesses(n); err != nil {
			t.Error(err)
		}
	}
	wantError(t, out.SetProcesses(0), nil, "SetProcesses: the number of processes is 0: it must be at least 1")
	wantError(t, out.SetProcesses(41), weir.ErrInvalidRule, `rule "fixedwindow" has a limit of which at most 40 processes have a share: raise the limit, lower the number, or set Floor`)
	share(10)
	set(40)
	share(1)
	_, err := l.With(weir.Rule{Algorithm: weirtest.Window(39, time.Hour)})
	wantError(t, err, weir.ErrInvalidRule, "of each of 40 processes")
	set(5)
	weirtest.With(t, l, weir.Rule{Algorithm: weirtest.Window(30, time.Hour), Cost: 4})
	wantError(t, out.SetProcesses(8), weir.ErrInvalidRule, "at most 7 processes have a share")
	out = outage.New(&outage.Options{Fallback: outage.Local, Processes: 4, Floor: true})
	l = weirtest.Wrap(t, weirtest.New(t, st, weirtest.Window(3, time.Hour)), out.Wrap)
	set(1000)
	share(1)
}

// The limiters of With, Only and Wrap, and those that share a Breaker, share the state of
// the outage and of the shares, and have the shares of their own limits and the limiter's
// clock. A Reset of Only resets its rules alone. A Breaker cannot stand around two
// stores.
func TestWrapShares(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st, clock := weirtest.NewFaulty(), weirtest.NewClock()
		policy := func(name string, limit int64) *weir.Limiter {
			l, err := weir.NewPolicy(st, weir.Policy{Name: name, Segments: []string{"a", "b"}, Rules: []weir.Rule{
				{Name: "a", By: []string{"a"}, Algorithm: algorithm.SlidingLog{Limit: limit, Window: time.Hour}},
				{Name: "b", Algorithm: weirtest.Window(400, time.Hour)},
			}}, &weir.Options{Clock: clock.Now})
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		base, out := policy("t", 40), outage.New(&local4)
		inner := weirtest.Wrap(t, base, weirtest.Pass, out.Wrap)
		other := weirtest.Wrap(t, policy("other", 80), out.Wrap)
		outer := weirtest.Wrap(t, onOutage(t, base, local4), weirtest.Pass)
		away := func() {
			t.Helper()
			st.Set(weirtest.Down)
			for range 2 * outage.DefaultFailures {
				time.Sleep(outage.DefaultBudget / 5)
				for _, l := range []*weir.Limiter{inner, outer} {
					res, err := l.Peek(t.Context(), "x", "y")
					weirtest.Degraded(t, res, err)
				}
			}
		}
		away()
		for _, l := range []*weir.Limiter{inner, outer} {
			pro := weirtest.With(t, l, weir.Rule{Name: "a", Algorithm: algorithm.SlidingLog{Limit: 80, Window: time.Hour}})
			asked := st.Asked.Load()
			for range 2 {
				for i, tt := range []struct {
					l                *weir.Limiter
					limit, remaining int64
				}{{l, 10, 9}, {pro, 20, 18}, {weirtest.Only(t, l, "a"), 10, 7}, {weirtest.Only(t, pro, "a"), 20, 16}} {
					res, err := tt.l.Allow(t.Context(), "x", "y")
					if res = weirtest.Degraded(t, res, err); !res.Allowed || res.Limit != tt.limit || res.Remaining != tt.remaining || res.Rule != "a" {
						t.Errorf("%d: got %+v, want %d of %d", i, res, tt.remaining, tt.limit)
					}
				}
				clock.Advance(time.Hour)
			}
			if st.Asked.Load() != asked {
				t.Error("the limiters do not share the breaker")
			}
		}
		if res, err := other.Allow(t.Context(), "x", "y"); weirtest.Degraded(t, res, err).Limit != 20 || res.Remaining != 19 {
			t.Errorf("another policy: got %+v, want 19 of a share of 20", res)
		}
		if res, err := inner.AllowN(t.Context(), 7, "x", "y"); weirtest.Degraded(t, res, err).Remaining != 3 {
			t.Errorf("got %+v, want 3 left", res)
		}
		st.Set(weirtest.Up)
		time.Sleep(outage.DefaultProbe)
		if err := weirtest.Only(t, inner, "a").Reset(t.Context(), "x", "any"); err != nil {
			t.Fatal(err)
		}
		away()
		each := make([]weir.Result, 2)
		if weirtest.Decide(t, inner, weir.Request{Key: weir.KeyOf("x", "y"), Op: weir.Peek}, each...); each[0].Remaining != 10 || each[1].Remaining != 93 {
			t.Errorf("after a Reset: got %+v", each)
		}
		_, err := weirtest.New(t, weirtest.NewFaulty(), weirtest.Window(40, time.Hour)).Wrap(out.Wrap)
		wantError(t, err, nil, "limiter over another store: make a Breaker for each store")
	})
}
