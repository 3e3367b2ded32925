package weir_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/store"
)

// During an outage, the held tokens are used, and nothing else is held. The tokens of a prefetch
// whose reply was lost come back.
func TestPrefetchOutage(t *testing.T) {
	t.Parallel()
	for _, fallback := range []weir.Fallback{weir.FailOpen, weir.FailClosed, weir.FailLocal} {
		t.Run(fallback.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				st := newFaulty()
				other := mustNew(t, st, window(1000, time.Hour))
				o := weir.Outage{Fallback: fallback}
				if fallback == weir.FailLocal {
					o.Processes = 1
				}
				l, log := prefetching(t, onOutage(t, other, o), nil, weir.Prefetch{MaxAge: time.Minute})
				for range 200 {
					allow(t, l, weir.Request{Key: weir.KeyOf("u")})
				}
				held := 800 - left(t, other, "u").Remaining
				log.take()
				st.set(lost)
				asked := st.asked.Load()
				for range held {
					healthy(t, allow(t, l, weir.Request{Key: weir.KeyOf("u")}), nil)
				}
				if n := st.asked.Load() - asked; held < 10 || n != 0 {
					t.Fatalf("%d tokens were held, and %d calls made", held, n)
				}
				got, err := l.Allow(t.Context(), "u")
				degraded(t, got, err)
				want := map[weir.Fallback]weir.Result{
					weir.FailOpen:  {Allowed: true, Granted: 1},
					weir.FailLocal: {Allowed: true, Granted: 1},
				}[fallback]
				if got.Allowed != want.Allowed || got.Granted != want.Granted {
					t.Errorf("got %+v, want %+v", got, want)
				}
				for range 50 {
					res, err := l.Allow(t.Context(), "u")
					degraded(t, res, err)
				}
				if n := log.prefetches(); n != 1 {
					t.Errorf("%d prefetches during the outage, want the one that failed", n)
				}
				st.set(up)
				time.Sleep(2 * time.Second)
				for range 20 {
					res, err := l.Allow(t.Context(), "u")
					healthy(t, res, err)
				}
				if log.prefetches() == 0 {
					t.Error("nothing was prefetched after the outage")
				}
				if err := l.ReturnPrefetched(t.Context()); err != nil {
					t.Fatal(err)
				}
				// Of the requests during the outage, some were lost on the way to the caller.
				used := 200 + held + 20
				if n := left(t, other, "u").Remaining; n > 1000-used || n < 1000-used-51 {
					t.Errorf("%d tokens remain, want from %d to %d", n, 1000-used-51, 1000-used)
				}
			})
		})
	}
}

// If a prefetch fails, its caller gets the error. What it consumed comes back with a later call,
// also if returning it failed first.
func TestPrefetchLost(t *testing.T) {
	t.Parallel()
	c := newClock()
	other := mustNew(t, newStore(c), window(1000, time.Hour))
	log := new(tap)
	fails := map[weir.Op]bool{}
	log.after = func(r weir.Request, _ weir.Result) error {
		if fails[r.Op] {
			return fmt.Errorf("lost: %w", store.ErrUnavailable)
		}
		return nil
	}
	l, err := other.Wrap(log.wrap).Prefetch(weir.Prefetch{Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	for range warm(t, l, log, 10) {
		allow(t, l, weir.Request{Key: weir.KeyOf("u")})
	}
	was := left(t, other, "u").Remaining
	fails[weir.TakeUpTo], fails[weir.Settle] = true, true
	if _, err := l.Allow(t.Context(), "u"); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
	if n := left(t, other, "u").Remaining; n > was-10 {
		t.Fatalf("%d tokens remain, want fewer than %d", n, was)
	}
	if err := l.ReturnPrefetched(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
	fails[weir.TakeUpTo] = false
	allow(t, l, weir.Request{Key: weir.KeyOf("v")}) // tries to return the tokens, in vain
	fails[weir.Settle] = false
	log.take()
	allow(t, l, weir.Request{Key: weir.KeyOf("w")})
	if ops := log.ops(); ops != "[Consume Settle]" {
		t.Errorf("%s reached the store, want a Settle", ops)
	}
	if n := left(t, other, "u").Remaining; n != was {
		t.Errorf("%d tokens remain, want %d", n, was)
	}
}

// A panic in the next Decider leaves no goroutine waiting.
func TestPrefetchPanic(t *testing.T) {
	t.Parallel()
	c := newClock()
	log := new(tap)
	l, err := mustNew(t, newStore(c), window(1000, time.Hour)).Wrap(log.wrap).Prefetch(weir.Prefetch{Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	for range warm(t, l, log, 10) {
		allow(t, l, weir.Request{Key: weir.KeyOf("u")})
	}
	log.before = func(context.Context, weir.Request) { panic("a defect") }
	func() {
		defer func() {
			if recover() == nil {
				t.Error("there was no panic")
			}
		}()
		_, _ = l.Allow(t.Context(), "u")
	}()
	log.before = nil
	allow(t, l, weir.Request{Key: weir.KeyOf("u")})
}
