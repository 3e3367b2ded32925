package outage_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// An outage is told once when it begins and once when it ends, with its cause, its time
// and the number of answers. The state says the same meanwhile.
func TestOnChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		var told []outage.State
		out := outage.New(&outage.Options{Fallback: outage.Open, OnChange: func(s outage.State) { told = append(told, s) }})
		l := weirtest.Wrap(t, weirtest.New(t, st, weirtest.PerSecond), out.Wrap)
		allow := func() {
			t.Helper()
			if _, err := l.Allow(t.Context(), "ann"); err != nil {
				t.Fatal(err)
			}
		}
		allow()
		if s := out.State(); s != (outage.State{}) {
			t.Errorf("before the outage: got %+v", s)
		}
		for n := range int64(2) {
			st.Set(weirtest.Down)
			allow() // a failure alone is no outage
			st.Set(weirtest.Up)
			allow()
			time.Sleep(time.Minute)
			st.Set(weirtest.Down)
			began := time.Now().Add(time.Second)
			for range outage.DefaultFailures { // a second each
				time.Sleep(time.Second)
				allow()
			}
			for range 10 {
				allow()
			}
			for _, s := range []outage.State{out.State(), told[2*n]} {
				answers := int64(outage.DefaultFailures + 10)
				if s == told[2*n] {
					answers = outage.DefaultFailures - 1 // the last failure has not been answered
				}
				if !s.Down || s.Outages != n+1 || !s.Began.Equal(began) || s.Lasted != 4*time.Second || s.Answers != answers ||
					!errors.Is(s.Cause, store.ErrUnavailable) || !strings.Contains(s.Cause.Error(), "did not decide") {
					t.Errorf("outage %d: got %+v, want that it began at %v and has %d answers", n, s, began, answers)
				}
			}
			st.Set(weirtest.Up)
			time.Sleep(outage.DefaultProbe)
			allow()
			for range 3 { // the state of an outage that has ended does not change
				time.Sleep(time.Hour)
				allow()
				for _, s := range []outage.State{out.State(), told[2*n+1]} {
					if s.Down || s.Outages != n+1 || !s.Began.Equal(began) || s.Lasted != 5*time.Second || s.Answers != 15 || s.Cause == nil {
						t.Errorf("after outage %d: got %+v", n, s)
					}
				}
			}
		}
		if len(told) != 4 {
			t.Errorf("%d changes were told, want 4", len(told))
		}
	})
}

// OnChange can use the limiter, the Breaker, and cause the next change. A panic in it
// does not stop later calls.
func TestOnChangeCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		var l *weir.Limiter
		var out *outage.Breaker
		var told []bool
		depth := 0
		out = outage.New(&outage.Options{Failures: 1, OnChange: func(s outage.State) {
			told = append(told, s.Down)
			if depth++; depth > 1 {
				t.Error("OnChange is called while it is called")
			}
			defer func() { depth-- }()
			_ = out.State()
			switch len(told) {
			case 1: // ends the outage
				st.Set(weirtest.Up)
				time.Sleep(outage.DefaultProbe)
				_, _ = l.Allow(t.Context(), "ann")
			case 3:
				panic("OnChange panics")
			}
		}})
		l = weirtest.Wrap(t, weirtest.New(t, st, weirtest.PerSecond), out.Wrap)
		change := func(f weirtest.Fault) (died any) {
			st.Set(f)
			defer func() { died = recover() }()
			time.Sleep(outage.DefaultProbe)
			_, _ = l.Allow(t.Context(), "ann")
			return nil
		}
		for i, died := range []any{change(weirtest.Down), change(weirtest.Down), change(weirtest.Up)} {
			if (died != nil) != (i == 1) {
				t.Errorf("change %d: got the panic %v", i, died)
			}
		}
		if got, want := fmt.Sprint(told), "[true false true false]"; got != want {
			t.Errorf("told %v, want %v", got, want)
		}
	})
}

// However many callers there are, the changes are told in order, one after the other.
func TestOnChangeOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stores [4]*weirtest.Faulty
		var calls, last atomic.Int64
		out := outage.New(&outage.Options{Failures: 1, Budget: time.Millisecond, Probe: time.Millisecond, OnChange: func(s outage.State) {
			if calls.Add(1) != 1 {
				t.Error("two changes are told at once")
			}
			n := 2 * s.Outages
			if s.Down {
				n--
			}
			if !last.CompareAndSwap(n-1, n) {
				t.Errorf("change %d is told after change %d", n, last.Load())
			}
			time.Sleep(5 * time.Millisecond)
			calls.Add(-1)
		}})
		shared := weirtest.NewFaulty()
		var wg sync.WaitGroup
		for i := range stores {
			l := weirtest.Wrap(t, weirtest.New(t, shared, weirtest.PerSecond), out.Wrap)
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(i), 5))
				for range 2000 {
					shared.Set([]weirtest.Fault{weirtest.Up, weirtest.Down}[rnd.IntN(2)])
					_, _ = l.Allow(t.Context(), "ann")
					time.Sleep(time.Duration(rnd.IntN(3000)) * time.Microsecond)
				}
			})
		}
		wg.Wait()
		s := out.State()
		want := 2 * s.Outages
		if s.Down {
			want--
		}
		if last.Load() != want || want < 100 {
			t.Errorf("%d changes were told, want %d", last.Load(), want)
		}
	})
}

// A Breaker that was not made with New has no outage.
func TestStateOfZero(t *testing.T) {
	t.Parallel()
	for _, b := range []*outage.Breaker{nil, new(outage.Breaker), outage.New(&outage.Options{Budget: -1}), outage.New(nil)} {
		if s := b.State(); s != (outage.State{}) {
			t.Errorf("got %+v", s)
		}
	}
}

// The cause tells a setting that must be corrected.
func TestStateMisconfigured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wrong := fmt.Errorf("%w: %w: NOAUTH", store.ErrUnavailable, store.ErrMisconfigured)
		inner := failing{wrong}
		out := outage.New(&outage.Options{Fallback: outage.Open, Failures: 1})
		l := weirtest.Wrap(t, weirtest.New(t, memory.New(nil), weirtest.PerSecond), weirtest.Around(func(weir.Decider) failing { return inner }))
		l = weirtest.Wrap(t, l, out.Wrap)
		res, err := l.Allow(t.Context(), "ann")
		res = weirtest.Degraded(t, res, err)
		for what, err := range map[string]error{"Degraded": res.Degraded, "Cause": out.State().Cause} {
			if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, store.ErrMisconfigured) {
				t.Errorf("%s is %v, want both errors", what, err)
			}
		}
	})
}
