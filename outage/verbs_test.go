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
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
)

var local4 = outage.Options{Fallback: outage.Local, Processes: 4}

// The zero Options deny. The errors of Wrap name the field and what is right.
func TestOutageErrors(t *testing.T) {
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
	once := onOutage(t, l, outage.Options{Budget: 2 * time.Second}) // Probe is then Budget
	_, err := weirtest.Wrap(t, once, weirtest.Pass).Wrap(outage.New(nil).Wrap)
	wantError(t, err, nil, "already has a Breaker: wrap it in one, once")
	if got := []string{outage.Closed.String(), outage.Open.String(), outage.Local.String()}; strings.Join(got, " ") != "Closed Open Local" {
		t.Errorf("got %v", got)
	}
}

// The limiters of With, Only and Wrap share the breaker and the state of the shares, and
// have the shares of their own limits.
func TestOutageWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		base := weirtest.NewPolicy(t, st, weirtest.Rules(weir.Rule{Name: "a", Algorithm: weirtest.Window(40, time.Hour)}, weir.Rule{Name: "b", Algorithm: weirtest.Window(400, time.Hour)}))
		inner := onOutage(t, weirtest.Wrap(t, base, weirtest.Pass), local4)
		outer := weirtest.Wrap(t, onOutage(t, base, local4), weirtest.Pass)
		for _, l := range []*weir.Limiter{inner, outer} {
			pro := weirtest.With(t, l, weir.Rule{Name: "a", Algorithm: weirtest.Window(80, time.Hour)})
			only := weirtest.Only(t, l, "a")
			st.Set(weirtest.Up)
			res, err := pro.Allow(t.Context(), "ann")
			if res = weirtest.Healthy(t, res, err); res.Limit != 80 {
				t.Errorf("got %+v", res)
			}
			st.Set(weirtest.Down)
			fail(t, l)
			asked := st.Asked.Load()
			for i, tt := range []struct {
				l                *weir.Limiter
				limit, remaining int64
			}{{l, 10, 9}, {pro, 20, 18}, {only, 10, 7}, {weirtest.Only(t, pro, "a"), 20, 16}} {
				res, err := tt.l.Allow(t.Context(), "ann")
				if res = weirtest.Degraded(t, res, err); !res.Allowed || res.Limit != tt.limit || res.Remaining != tt.remaining || res.Rule != "a" {
					t.Errorf("%d: got %+v, want %d of %d", i, res, tt.remaining, tt.limit)
				}
			}
			if st.Asked.Load() != asked {
				t.Error("the limiters do not share the breaker")
			}
			st.Set(weirtest.Up)
			time.Sleep(outage.DefaultProbe)
			res, err = pro.Allow(t.Context(), "ann")
			weirtest.Healthy(t, res, err)
			res, err = l.Allow(t.Context(), "ann")
			weirtest.Healthy(t, res, err)
		}
	})
}

// Limiters over one store can share a Breaker, and with it the state of the outage. Over
// another store, they cannot.
func TestOutageSharedBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, out := weirtest.NewFaulty(), outage.New(&local4)
		one := weirtest.Wrap(t, weirtest.New(t, st, weirtest.Window(40, time.Hour)), out.Wrap)
		other, err := weir.New("other", st, weirtest.Window(80, time.Hour), nil)
		if err != nil {
			t.Fatal(err)
		}
		other = weirtest.Wrap(t, other, out.Wrap)
		st.Set(weirtest.Down)
		fail(t, one)
		asked := st.Asked.Load()
		for l, limit := range map[*weir.Limiter]int64{one: 10, other: 20} {
			if res := weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("ann")}); res.Degraded == nil || res.Limit != limit || res.Remaining != limit-1 {
				t.Errorf("got %+v, want %d of a share of %d", res, limit-1, limit)
			}
		}
		if n := st.Asked.Load() - asked; n != 0 {
			t.Errorf("the store was asked %d times, want that the limiters share the circuit", n)
		}
		_, err = weirtest.New(t, weirtest.NewFaulty(), weirtest.Window(40, time.Hour)).Wrap(out.Wrap)
		wantError(t, err, nil, "limiter over another store: make a Breaker for each store")
	})
}

// The share has the limiter's own clock, the divided algorithm of With, and the reset of
// Only.
func TestOutageShareIsBound(t *testing.T) {
	t.Parallel()
	st, clock := weirtest.NewFaulty(), weirtest.NewClock()
	l, err := weir.NewPolicy(st, weir.Policy{Name: "t", Segments: []string{"a", "b"}, Rules: []weir.Rule{
		{Name: "a", By: []string{"a"}, Algorithm: algorithm.SlidingLog{Limit: 8, Window: time.Hour}},
		{Name: "b", Algorithm: weirtest.Window(400, time.Hour)},
	}}, &weir.Options{Clock: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	l = onOutage(t, l, outage.Options{Fallback: outage.Local, Processes: 4, Failures: 1 << 30})
	l = weirtest.With(t, l, weir.Rule{Name: "a", Algorithm: algorithm.SlidingLog{Limit: 12, Window: time.Hour}})
	st.Set(weirtest.Down)
	exhaust := func() {
		t.Helper()
		for i := range 4 {
			res, err := l.Allow(t.Context(), "x", "y")
			if res = weirtest.Degraded(t, res, err); res.Allowed != (i < 3) || res.Limit != 3 {
				t.Errorf("request %d: got %+v", i, res)
			}
		}
	}
	exhaust()
	clock.Advance(time.Hour)
	exhaust()
	st.Set(weirtest.Up)
	if err := weirtest.Only(t, l, "a").Reset(t.Context(), "x", "any"); err != nil {
		t.Fatal(err)
	}
	st.Set(weirtest.Down)
	exhaust()
}

// Reset and Entries are errors during an outage. A Reset after it clears the share too, and
// a Force after it consumes nothing there.
func TestOutageReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		l := onOutage(t, weirtest.New(t, st, algorithm.MetadataWindow{Limit: 8, Window: 24 * time.Hour}), local4)
		st.Set(weirtest.Down)
		for range 10 {
			if err := l.Reset(t.Context(), "ann"); !errors.Is(err, store.ErrUnavailable) {
				t.Fatalf("got %v, want ErrUnavailable", err)
			}
		}
		if _, err := l.Entries(t.Context(), "ann"); !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("got %v, want ErrUnavailable", err)
		}
		exhaust := func(want int) {
			t.Helper()
			n := 0
			for {
				res, err := l.Allow(t.Context(), "ann")
				if res = weirtest.Degraded(t, res, err); !res.Allowed {
					break
				}
				n++
			}
			if n != want {
				t.Errorf("%d were allowed, want %d", n, want)
			}
		}
		exhaust(2)
		_ = l.Reset(t.Context(), "ann")
		exhaust(0)
		st.Set(weirtest.Up)
		time.Sleep(outage.DefaultProbe)
		if err := l.Reset(t.Context(), "ann"); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Force(t.Context(), 1, "ann"); err != nil {
			t.Fatal(err)
		}
		st.Set(weirtest.Down)
		exhaust(2)
	})
}

// A refund during an outage finds what was decided locally. What the store decided can be
// refunded later.
func TestOutageRefund(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		l := onOutage(t, weirtest.New(t, st, weirtest.Window(40, 24*time.Hour)), local4)
		one := weir.Request{Key: weir.KeyOf("ann"), ID: "1", Cost: 7}
		two := weir.Request{Key: weir.KeyOf("ann"), ID: "2", Cost: 7}
		both := weir.Request{Key: weir.KeyOf("ann"), ID: "3", Cost: 2}
		weirtest.Allow(t, l, one)
		st.Set(weirtest.Lost)
		weirtest.Allow(t, l, both) // in the store and in the process
		st.Set(weirtest.Down)
		if res := weirtest.Allow(t, l, two); res.Degraded == nil || res.Remaining != 1 {
			t.Fatalf("got %+v, want 1 left locally", res)
		}
		refund := func(r weir.Request, want bool, wantErr error) {
			t.Helper()
			if got, err := l.Refund(t.Context(), r); got.Found != want || !errors.Is(err, wantErr) {
				t.Errorf("refund of %s: got %v, %v, want %v, %v", r.ID, got, err, want, wantErr)
			}
		}
		less := two
		less.Cost = 6
		refund(less, false, weir.ErrInvalidCost)
		refund(two, true, nil)
		refund(two, false, store.ErrUnavailable)
		refund(one, false, store.ErrUnavailable)
		st.Set(weirtest.Up)
		time.Sleep(outage.DefaultProbe)
		refund(two, false, nil)
		if res := weirtest.Left(t, l, "ann"); res.Remaining != 31 {
			t.Errorf("got %+v, want 31 left", res)
		}
		refund(one, true, nil)
		refund(both, true, nil)
		refund(both, false, nil)
		if res := weirtest.Left(t, l, "ann"); res.Remaining != 40 {
			t.Errorf("got %+v, want 40 left", res)
		}
		st.Set(weirtest.Down)
		fail(t, l)
		if res := weirtest.Left(t, l, "ann"); res.Remaining != 10 {
			t.Errorf("got %+v, want 10 left locally", res)
		}
	})
}

// A Force is an error for every Fallback, and consumes nothing in the process.
func TestOutageForce(t *testing.T) {
	t.Parallel()
	for _, o := range []outage.Options{{}, {Fallback: outage.Open}, {Fallback: outage.Local, Processes: 1}} {
		st := &weirtest.Hooked{Store: weirtest.NewStore(weirtest.NewClock()), Before: func(context.Context, *store.Script) error { return store.ErrUnavailable }}
		l := onOutage(t, weirtest.New(t, st, weirtest.Window(5, time.Hour)), o)
		if res, err := l.Force(t.Context(), 9, "k"); !errors.Is(err, store.ErrUnavailable) || res != (weir.Result{}) {
			t.Errorf("%v: got %+v, %v, want ErrUnavailable", o.Fallback, res, err)
		}
		if res := weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf("k")}); res.Allowed != (o.Fallback != outage.Closed) || res.Degraded == nil {
			t.Errorf("%v: got %+v", o.Fallback, res)
		}
	}
}

// A decision that Local made is settled in the process. Other decisions are settled by
// the store, when it is back.
func TestOutageSettle(t *testing.T) {
	t.Parallel()
	down := false
	st := &weirtest.Hooked{Store: weirtest.NewStore(weirtest.NewClock()), Before: func(context.Context, *store.Script) error {
		if down {
			return store.ErrUnavailable
		}
		return nil
	}}
	l := onOutage(t, weirtest.New(t, st, weirtest.Window(10, time.Hour)), outage.Options{Fallback: outage.Local, Processes: 2, Failures: 100})
	key := weir.KeyOf("k")
	before, during := weir.Request{Key: key, Cost: 4, ID: "before"}, weir.Request{Key: key, Cost: 2, ID: "during"}
	weirtest.Decide(t, l, before)
	down = true
	if res := weirtest.Decide(t, l, during); !res.Allowed || res.Degraded == nil {
		t.Fatalf("got %+v, want a decision of the process", res)
	}
	if ok, err := l.Settle(t.Context(), before, 1); ok.Found || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Settle of a decision of the store = %v, %v, want ErrUnavailable", ok, err)
	}
	during.Op, during.Actual = weir.Settle, weir.ActualCost(5)
	each := []weir.Result{{Rule: "of another request"}}
	if res := weirtest.Decide(t, l, during, each...); !res.Allowed || res.Granted != 5 || res.Degraded == nil || each[0] != (weir.Result{}) {
		t.Errorf("Settle of a decision of the process: got %+v and %+v", res, each)
	}
	if res := weirtest.Decide(t, l, weir.Request{Key: key, Op: weir.Peek}); res.Allowed || res.Degraded == nil {
		t.Errorf("got %+v, want no token of the share left", res)
	}
	down = false
	if ok, err := l.Settle(t.Context(), before, 1); !ok.Found || err != nil {
		t.Errorf("Settle after the outage = %v, %v", ok, err)
	}
	if res := weirtest.Decide(t, l, weir.Request{Key: key, Op: weir.Peek}); res.Remaining != 9 {
		t.Errorf("got %+v, want 9 of 10 left", res)
	}
}

// When the share's memory is full, a new key is denied, and known keys are decided as
// before.
func TestOutageFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		st.Set(weirtest.Down)
		l := onOutage(t, weirtest.New(t, st, weirtest.Window(40, time.Hour)), outage.Options{Fallback: outage.Local, Processes: 4, MaxKeys: 100})
		allowed := 0
		for i := range 1000 {
			res, err := l.Allow(t.Context(), weirtest.Number(i))
			if res = weirtest.Degraded(t, res, err); res.Allowed {
				allowed++
			} else if res.RetryAfter > outage.DefaultProbe || res.Limit != 40 {
				t.Fatalf("got %+v", res)
			}
		}
		if allowed != 100 {
			t.Errorf("%d keys were allowed, want 100", allowed)
		}
		for i := range 100 {
			for range 20 {
				res, err := l.Allow(t.Context(), weirtest.Number(i))
				if weirtest.Degraded(t, res, err); res.Allowed {
					allowed++
				}
			}
		}
		if allowed != 1000 {
			t.Errorf("%d were allowed, want 10 for each of 100 keys", allowed)
		}
		time.Sleep(time.Hour + 2*time.Second)
		for i := range 1000 { // expired keys make room, a few at each request
			res, err := l.Allow(t.Context(), weirtest.Number(2000+i))
			weirtest.Degraded(t, res, err)
			allowed -= map[bool]int{true: 10}[res.Allowed]
		}
		if allowed != 0 {
			t.Errorf("%d keys are missing after the others expired", allowed/10)
		}
	})
}
