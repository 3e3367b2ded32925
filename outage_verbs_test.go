package weir_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

var local4 = weir.Outage{Fallback: weir.FailLocal, Processes: 4}

// The zero Outage denies. The errors of OnOutage name the field and what is right.
func TestOutageErrors(t *testing.T) {
	t.Parallel()
	l := mustNew(t, newFaulty(), perSecond)
	for _, tt := range []struct {
		o    weir.Outage
		want string
	}{
		{weir.Outage{Fallback: 3}, "Outage.Fallback is Fallback(3): it must be FailClosed, FailOpen or FailLocal"},
		{weir.Outage{Fallback: weir.FailLocal}, "Outage.Processes is 0: it must be the number of processes"},
		{weir.Outage{Fallback: weir.FailLocal, Processes: -1}, "Outage.Processes is -1"},
		{weir.Outage{Processes: 4}, "Outage.Processes is 4 and Fallback is FailClosed: only FailLocal uses Processes"},
		{weir.Outage{Fallback: weir.FailOpen, Processes: 4}, "Fallback is FailOpen"},
		{weir.Outage{MaxKeys: 4}, "Outage.MaxKeys is 4 and Fallback is FailClosed"},
		{weir.Outage{Fallback: weir.FailLocal, Processes: 4, MaxKeys: -4}, "Outage.MaxKeys is -4: it must be at least 1"},
		{weir.Outage{Budget: -1}, "Outage.Budget is -1ns: it must be above 0, or 0 for the default of 50ms"},
		{weir.Outage{Failures: -1}, "Outage.Failures is -1: it must be at least 1, or 0 for the default of 5"},
		{weir.Outage{Probe: -1}, "Outage.Probe is -1ns: it must be above 0, or 0 for the default of 1s"},
		{weir.Outage{Probe: time.Second, Budget: 2 * time.Second}, "Outage.Probe is 1s and Budget is 2s: Probe must be at least Budget"},
	} {
		if got, err := l.OnOutage(tt.o); got != nil || err == nil || !strings.HasPrefix(err.Error(), "weir: ") || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: got %v, want an error with %q", tt.o, err, tt.want)
		}
	}
	if got, err := new(weir.Limiter).OnOutage(weir.Outage{}); got != nil || err == nil {
		t.Errorf("a zero Limiter: got %v", err)
	}
	once := onOutage(t, l, weir.Outage{Budget: 2 * time.Second}) // Probe is then Budget
	if got, err := once.Wrap(pass).OnOutage(weir.Outage{}); got != nil || err == nil || !strings.Contains(err.Error(), "call OnOutage once") {
		t.Errorf("twice: got %v", err)
	}
	if got := []string{weir.FailClosed.String(), weir.FailOpen.String(), weir.FailLocal.String()}; strings.Join(got, " ") != "FailClosed FailOpen FailLocal" {
		t.Errorf("got %v", got)
	}
}

// The limiters of With, Only and Wrap share the breaker and the state of the shares, and have
// the shares of their own limits.
func TestOutageWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFaulty()
		base := mustPolicy(t, st, rules(weir.Rule{Name: "a", Algorithm: window(40, time.Hour)}, weir.Rule{Name: "b", Algorithm: window(400, time.Hour)}))
		inner := onOutage(t, base.Wrap(pass), local4)
		outer := onOutage(t, base, local4).Wrap(pass)
		for _, l := range []*weir.Limiter{inner, outer} {
			pro := mustWith(t, l, weir.Rule{Name: "a", Algorithm: window(80, time.Hour)})
			only := mustOnly(t, l, "a")
			st.set(up)
			res, err := pro.Allow(t.Context(), "ann")
			if res = healthy(t, res, err); res.Limit != 80 {
				t.Errorf("got %+v", res)
			}
			st.set(down)
			fail(t, l)
			asked := st.asked.Load()
			for i, tt := range []struct {
				l                *weir.Limiter
				limit, remaining int64
			}{{l, 10, 9}, {pro, 20, 18}, {only, 10, 7}, {mustOnly(t, pro, "a"), 20, 16}} {
				res, err := tt.l.Allow(t.Context(), "ann")
				if res = degraded(t, res, err); !res.Allowed || res.Limit != tt.limit || res.Remaining != tt.remaining || res.Rule != "a" {
					t.Errorf("%d: got %+v, want %d of %d", i, res, tt.remaining, tt.limit)
				}
			}
			if st.asked.Load() != asked {
				t.Error("the limiters do not share the breaker")
			}
			st.set(up)
			time.Sleep(weir.DefaultOutageProbe)
			res, err = pro.Allow(t.Context(), "ann")
			healthy(t, res, err)
			res, err = l.Allow(t.Context(), "ann")
			healthy(t, res, err)
		}
	})
}

// The share has the limiter's own clock, the divided algorithm of With, and the reset of Only.
func TestOutageShareIsBound(t *testing.T) {
	t.Parallel()
	st, clock := newFaulty(), newClock()
	l, err := weir.NewPolicy(st, weir.Policy{Name: "t", Segments: []string{"a", "b"}, Rules: []weir.Rule{
		{Name: "a", By: []string{"a"}, Algorithm: algorithm.SlidingLog{Limit: 8, Window: time.Hour}},
		{Name: "b", Algorithm: window(400, time.Hour)},
	}}, &weir.Options{Clock: clock.now})
	if err != nil {
		t.Fatal(err)
	}
	l = onOutage(t, l, weir.Outage{Fallback: weir.FailLocal, Processes: 4, Failures: 1 << 30})
	l = mustWith(t, l, weir.Rule{Name: "a", Algorithm: algorithm.SlidingLog{Limit: 12, Window: time.Hour}})
	st.set(down)
	exhaust := func() {
		t.Helper()
		for i := range 4 {
			res, err := l.Allow(t.Context(), "x", "y")
			if res = degraded(t, res, err); res.Allowed != (i < 3) || res.Limit != 3 {
				t.Errorf("request %d: got %+v", i, res)
			}
		}
	}
	exhaust()
	clock.advance(time.Hour)
	exhaust()
	st.set(up)
	if err := mustOnly(t, l, "a").Reset(t.Context(), "x", "any"); err != nil {
		t.Fatal(err)
	}
	st.set(down)
	exhaust()
}

// Reset and Entries are errors during an outage. A Reset after it clears the share too.
func TestOutageReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFaulty()
		l := onOutage(t, mustNew(t, st, algorithm.MetadataWindow{Limit: 8, Window: 24 * time.Hour}), local4)
		st.set(down)
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
				if res = degraded(t, res, err); !res.Allowed {
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
		st.set(up)
		time.Sleep(weir.DefaultOutageProbe)
		if err := l.Reset(t.Context(), "ann"); err != nil {
			t.Fatal(err)
		}
		st.set(down)
		exhaust(2)
	})
}

// A refund during an outage finds what was decided locally. What the store decided can be
// refunded later.
func TestOutageRefund(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFaulty()
		l := onOutage(t, mustNew(t, st, window(40, 24*time.Hour)), local4)
		one := weir.Request{Key: weir.KeyOf("ann"), ID: "1", Cost: 7}
		two := weir.Request{Key: weir.KeyOf("ann"), ID: "2", Cost: 7}
		both := weir.Request{Key: weir.KeyOf("ann"), ID: "3", Cost: 2}
		allow(t, l, one)
		st.set(lost)
		allow(t, l, both) // in the store and in the process
		st.set(down)
		if res := allow(t, l, two); res.Degraded == nil || res.Remaining != 1 {
			t.Fatalf("got %+v, want 1 left locally", res)
		}
		refund := func(r weir.Request, want bool, wantErr error) {
			t.Helper()
			if got, err := l.Refund(t.Context(), r); got != want || !errors.Is(err, wantErr) {
				t.Errorf("refund of %s: got %v, %v, want %v, %v", r.ID, got, err, want, wantErr)
			}
		}
		less := two
		less.Cost = 6
		refund(less, false, weir.ErrInvalidCost)
		refund(two, true, nil)
		refund(two, false, store.ErrUnavailable)
		refund(one, false, store.ErrUnavailable)
		st.set(up)
		time.Sleep(weir.DefaultOutageProbe)
		refund(two, false, nil)
		if res := left(t, l, "ann"); res.Remaining != 31 {
			t.Errorf("got %+v, want 31 left", res)
		}
		refund(one, true, nil)
		refund(both, true, nil)
		refund(both, false, nil)
		if res := left(t, l, "ann"); res.Remaining != 40 {
			t.Errorf("got %+v, want 40 left", res)
		}
		st.set(down)
		fail(t, l)
		if res := left(t, l, "ann"); res.Remaining != 10 {
			t.Errorf("got %+v, want 10 left locally", res)
		}
	})
}

// When the share's memory is full, a new key is denied, and known keys are decided as before.
func TestOutageFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFaulty()
		st.set(down)
		l := onOutage(t, mustNew(t, st, window(40, time.Hour)), weir.Outage{Fallback: weir.FailLocal, Processes: 4, MaxKeys: 100})
		allowed := 0
		for i := range 1000 {
			res, err := l.Allow(t.Context(), number(i))
			if res = degraded(t, res, err); res.Allowed {
				allowed++
			} else if res.RetryAfter > weir.DefaultOutageProbe || res.Limit != 40 {
				t.Fatalf("got %+v", res)
			}
		}
		if allowed != 100 {
			t.Errorf("%d keys were allowed, want 100", allowed)
		}
		for i := range 100 {
			for range 20 {
				res, err := l.Allow(t.Context(), number(i))
				if degraded(t, res, err); res.Allowed {
					allowed++
				}
			}
		}
		if allowed != 1000 {
			t.Errorf("%d were allowed, want 10 for each of 100 keys", allowed)
		}
		time.Sleep(time.Hour + 2*time.Second)
		for i := range 1000 { // expired keys make room, a few at each request
			res, err := l.Allow(t.Context(), number(2000+i))
			degraded(t, res, err)
			allowed -= map[bool]int{true: 10}[res.Allowed]
		}
		if allowed != 0 {
			t.Errorf("%d keys are missing after the others expired", allowed/10)
		}
	})
}
