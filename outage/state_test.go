package outage_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
)

// OnChange can use the limiter, the Breaker, and cause the next change. A panic in it
// does not stop later calls.
func TestOnChangeCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		var l *weir.Limiter
		var out *outage.Breaker
		var told []bool
		depth := 0
		change := func(f weirtest.Fault) (died any) {
			st.Set(f)
			defer func() { died = recover() }()
			time.Sleep(outage.DefaultProbe)
			_, _ = l.Allow(t.Context(), "ann")
			return nil
		}
		out = outage.New(&outage.Options{Failures: 1, OnChange: func(s outage.State) {
			told = append(told, s.Down)
			if depth++; depth > 1 {
				t.Error("OnChange is called while it is called")
			}
			defer func() { depth-- }()
			_ = out.State()
			switch len(told) {
			case 1: // ends the outage
				change(weirtest.Up)
			case 3:
				panic("OnChange panics")
			}
		}})
		l = weirtest.Wrap(t, weirtest.New(t, st, weirtest.PerSecond), out.Wrap)
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

// Many callers of a store that fails and comes back race. The changes are told in order,
// one after the other.
func TestOnChangeOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls, last atomic.Int64
		o := outage.Options{Fallback: outage.Local, Processes: 2, Failures: 1, Budget: time.Millisecond, Probe: time.Millisecond}
		o.OnChange = func(s outage.State) {
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
		}
		st, out := weirtest.NewFaulty(), outage.New(&o)
		base := weirtest.Wrap(t, weirtest.New(t, st, weirtest.Window(1<<30, time.Hour)), out.Wrap)
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				l, rnd := weirtest.With(t, base, weir.Rule{Algorithm: weirtest.Window(1<<20, time.Hour)}), rand.New(rand.NewPCG(uint64(i), 5))
				for n := range 500 {
					st.Set([]weirtest.Fault{weirtest.Up, weirtest.Down, weirtest.Hang}[rnd.IntN(3)])
					r := weir.Request{Key: weir.KeyOf(weirtest.Number(n % 3)), ID: weirtest.Number(n)}
					if res, err := l.Decide(t.Context(), r, nil); err != nil || !res.Allowed {
						t.Errorf("got %+v, %v", res, err)
					}
					if _, err := l.Refund(t.Context(), r); err != nil && !errors.Is(err, store.ErrUnavailable) {
						t.Error(err)
					}
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
