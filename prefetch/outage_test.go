package prefetch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/prefetch"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// During an outage, the held tokens are used, and nothing else is held. The tokens of a
// prefetch whose reply was lost come back.
func TestPrefetchOutage(t *testing.T) {
	t.Parallel()
	for _, fallback := range []outage.Fallback{outage.Open, outage.Closed, outage.Local} {
		t.Run(fallback.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				st := weirtest.NewFaulty()
				other := weirtest.New(t, st, weirtest.Window(1000, time.Hour))
				o := outage.Options{Fallback: fallback}
				if fallback == outage.Local {
					o.Processes = 1
				}
				l, log := prefetching(t, weirtest.Wrap(t, other, outage.New(&o).Wrap), nil, prefetch.Options{MaxAge: time.Minute})
				for range 200 {
					weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
				}
				held := 800 - weirtest.Left(t, other, "u").Remaining
				log.take()
				st.Set(weirtest.Lost)
				asked := st.Asked.Load()
				for range held {
					weirtest.Healthy(t, weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")}), nil)
				}
				if n := st.Asked.Load() - asked; held < 10 || n != 0 {
					t.Fatalf("%d tokens were held, and %d calls made", held, n)
				}
				got, err := l.Allow(t.Context(), "u")
				weirtest.Degraded(t, got, err)
				want := map[outage.Fallback]weir.Result{
					outage.Open:  {Allowed: true, Granted: 1},
					outage.Local: {Allowed: true, Granted: 1},
				}[fallback]
				if got.Allowed != want.Allowed || got.Granted != want.Granted {
					t.Errorf("got %+v, want %+v", got, want)
				}
				for range 50 {
					res, err := l.Allow(t.Context(), "u")
					weirtest.Degraded(t, res, err)
				}
				if n := log.prefetches(); n != 1 {
					t.Errorf("%d prefetches during the outage, want only the failed one", n)
				}
				st.Set(weirtest.Up)
				time.Sleep(2 * time.Second)
				for range 20 {
					res, err := l.Allow(t.Context(), "u")
					weirtest.Healthy(t, res, err)
				}
				if log.prefetches() == 0 {
					t.Error("nothing was prefetched after the outage")
				}
				if err := log.pool.Return(t.Context()); err != nil {
					t.Fatal(err)
				}
				// Of the requests during the outage, some were lost on the way to the
				// caller.
				used := 200 + held + 20
				if n := weirtest.Left(t, other, "u").Remaining; n > 1000-used || n < 1000-used-51 {
					t.Errorf("%d tokens remain, want from %d to %d", n, 1000-used-51, 1000-used)
				}
			})
		})
	}
}

// A prefetch that the process's share answers leaves the share for later requests. What
// it may have consumed in the store comes back after the outage.
func TestPrefetchShare(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		cost, want int64
	}{{1, 250}, {80, 3}} { // a prefetch for the cost 80 consumes 160 tokens
		synctest.Test(t, func(t *testing.T) {
			st := weirtest.NewFaulty()
			other := weirtest.New(t, st, weirtest.Window(1000, time.Hour))
			out := outage.New(&outage.Options{Fallback: outage.Local, Processes: 4})
			l, log := prefetching(t, weirtest.Wrap(t, other, out.Wrap), nil, prefetch.Options{MaxAge: time.Minute})
			for range 200 {
				weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
			}
			held := 800 - weirtest.Left(t, other, "u").Remaining
			for range held {
				weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
			}
			st.Set(weirtest.Lost)
			start := time.Now()
			first, err := l.AllowN(t.Context(), tt.cost, "u")
			if weirtest.Degraded(t, first, err); first.Remaining != 250-tt.cost || time.Since(start) != outage.DefaultBudget {
				t.Errorf("cost %d: the first answer was %+v after %v", tt.cost, first, time.Since(start))
			}
			allowed := int64(1)
			for range 300 {
				res, err := l.AllowN(t.Context(), tt.cost, "u")
				if weirtest.Degraded(t, res, err).Allowed {
					allowed++
				}
			}
			if allowed != tt.want {
				t.Errorf("cost %d: %d requests were allowed during the outage, want %d", tt.cost, allowed, tt.want)
			}
			if err := log.pool.Return(t.Context()); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("cost %d: during the outage, Return returned %v, want that the store is unavailable", tt.cost, err)
			}
			st.Set(weirtest.Up)
			time.Sleep(2 * time.Second)
			if err := log.pool.Return(t.Context()); err != nil {
				t.Fatal(err)
			}
			// The breaker opened after five requests, whose replies were lost. The first
			// was a prefetch.
			if got, want := weirtest.Left(t, other, "u").Remaining, 800-held-4*tt.cost; got != want {
				t.Errorf("cost %d: %d tokens remain, want %d", tt.cost, got, want)
			}
		})
	}
}

// If the answer without the store is not package outage's, the request of a prefetch is
// passed on.
func TestPrefetchOtherFallback(t *testing.T) {
	t.Parallel()
	st := weirtest.NewFaulty()
	l, log := prefetching(t, weirtest.Wrap(t, weirtest.New(t, st, weirtest.Window(1000, time.Hour)),
		weirtest.Around(func(next weir.Decider) failOpen { return failOpen{next} })), nil, prefetch.Options{MaxAge: time.Minute})
	for range warm(t, l, log, 10) {
		weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
	}
	was := weirtest.Left(t, l, "u").Remaining
	log.take()
	st.Set(weirtest.Down)
	for i, want := range []string{"[TakeUpTo Consume]", "[Consume]", "[Consume]"} {
		if res := weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u"), Cost: 3}); res.Degraded == nil || res.Granted != 3 {
			t.Errorf("request %d: got %+v, want the answer of the wrapper", i, res)
		}
		if ops := log.ops(); ops != want {
			t.Errorf("request %d: %s reached the wrapper, want %s", i, ops, want)
		}
	}
	st.Set(weirtest.Up)
	if err := log.pool.Return(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := weirtest.Left(t, l, "u").Remaining; n != was {
		t.Errorf("%d tokens remain, want %d", n, was)
	}
}

// A failOpen allows every request for which the store is unavailable.
type failOpen struct{ next weir.Decider }

func (f failOpen) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	res, err := f.next.Decide(ctx, r, each)
	if errors.Is(err, store.ErrUnavailable) {
		return weir.Result{Allowed: true, Granted: r.Cost, Degraded: err}, nil
	}
	return res, err
}

// If a prefetch fails, its caller gets the error. What it consumed comes back with a
// later call, even if returning it failed first.
func TestPrefetchLost(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	other := weirtest.New(t, weirtest.NewStore(c), weirtest.Window(1000, time.Hour))
	l, log := prefetching(t, other, c, prefetch.Options{})
	fails := map[weir.Op]bool{}
	log.after = func(r weir.Request, _ weir.Result) error {
		if fails[r.Op] {
			return fmt.Errorf("lost: %w", store.ErrUnavailable)
		}
		return nil
	}
	for range warm(t, l, log, 10) {
		weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
	}
	was := weirtest.Left(t, other, "u").Remaining
	fails[weir.TakeUpTo], fails[weir.Settle] = true, true
	if _, err := l.Allow(t.Context(), "u"); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
	if n := weirtest.Left(t, other, "u").Remaining; n > was-10 {
		t.Fatalf("%d tokens remain, want fewer than %d", n, was)
	}
	if err := log.pool.Return(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
	fails[weir.TakeUpTo] = false
	weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("v")}) // tries to return the tokens, in vain
	fails[weir.Settle] = false
	log.take()
	weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("x")}) // does not try again so soon
	if ops := log.ops(); ops != "[Consume]" {
		t.Errorf("%s reached the store, want no Settle", ops)
	}
	c.Advance(time.Second)
	weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("w")})
	if ops := log.ops(); ops != "[Consume Settle]" {
		t.Errorf("%s reached the store, want a Settle", ops)
	}
	if n := weirtest.Left(t, other, "u").Remaining; n != was {
		t.Errorf("%d tokens remain, want %d", n, was)
	}
}

// The tokens of a prefetch whose reply was lost come back as long as any span of the
// limit has them, even after Result.Window.
func TestPrefetchLostForLong(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	other := weirtest.New(t, weirtest.NewStore(c), algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{
		{Window: 10 * time.Second, Limit: 1000}, {Window: 100 * time.Second, Limit: 1000},
	}})
	l, log := prefetching(t, other, c, prefetch.Options{})
	for range warm(t, l, log, 10) {
		weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
	}
	was := weirtest.Left(t, other, "u").Remaining
	log.after = func(weir.Request, weir.Result) error { return fmt.Errorf("lost: %w", store.ErrUnavailable) }
	if _, err := l.Allow(t.Context(), "u"); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
	log.after = nil
	c.Advance(11 * time.Second)
	if n := weirtest.Left(t, other, "u").Remaining; n >= was {
		t.Fatalf("%d tokens remain, want fewer than %d", n, was)
	}
	if err := log.pool.Return(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := weirtest.Left(t, other, "u").Remaining; n != was {
		t.Errorf("%d tokens remain, want %d", n, was)
	}
}

// fill makes requests for the keys in turn, until each key holds prefetched tokens.
func fill(t *testing.T, l *weir.Limiter, keys ...string) {
	t.Helper()
	for range 100 {
		for _, key := range keys {
			weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf(key)})
		}
	}
}

// If the server of some keys does not answer, the return of their tokens delays one
// request of other keys per second, by one second. Tokens of other keys come back in
// between.
func TestPrefetchServerAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := false
		settled := map[weir.Key]int{}
		l, log := prefetching(t, weirtest.New(t, memory.New(nil), weirtest.Window(100_000, time.Hour)), nil, prefetch.Options{})
		log.before = func(ctx context.Context, r weir.Request) {
			if away && r.Op == weir.Settle && r.Key != weir.KeyOf("b") {
				<-ctx.Done()
			}
		}
		log.after = func(r weir.Request, _ weir.Result) error {
			if r.Op == weir.Settle {
				settled[r.Key]++
			}
			return nil
		}
		fill(t, l, "a", "c", "b")
		clear(settled)
		away = true
		time.Sleep(prefetch.DefaultMaxAge)
		start, late := time.Now(), 0
		for i := 0; time.Since(start) < 20*time.Second; i++ {
			was := time.Now()
			weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf(weirtest.Number(i))})
			switch took := time.Since(was); took {
			case 0:
			case time.Second:
				late++
			default:
				t.Errorf("a request took %v", took)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if late != 10 || settled[weir.KeyOf("b")] != 1 {
			t.Errorf("%d requests were late, want 10; the tokens of a key whose server works came back %d times, want once", late, settled[weir.KeyOf("b")])
		}
	})
}

// A key of a server that is away can stay busy: each prefetch of it fails. Tokens of
// other servers still come back, and Return returns them too.
func TestPrefetchBusyKeyAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := false
		settled := map[weir.Key]int{}
		l, log := prefetching(t, weirtest.New(t, memory.New(nil), weirtest.Window(100_000, time.Hour)), nil, prefetch.Options{})
		log.before = func(ctx context.Context, r weir.Request) {
			if away && r.Op == weir.Settle && r.Key == weir.KeyOf("a") {
				<-ctx.Done()
			}
		}
		log.after = func(r weir.Request, _ weir.Result) error {
			switch {
			case away && r.Key == weir.KeyOf("a"):
				return fmt.Errorf("away: %w", store.ErrUnavailable)
			case r.Op == weir.Settle:
				settled[r.Key]++
			}
			return nil
		}
		fill(t, l, "a", "b", "c")
		clear(settled)
		away = true
		time.Sleep(prefetch.DefaultMaxAge)
		for i := range 100 {
			if _, err := l.Allow(t.Context(), "a"); !errors.Is(err, store.ErrUnavailable) {
				t.Fatalf("a request for the server that is away returned %v", err)
			}
			weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf(weirtest.Number(i))})
			time.Sleep(100 * time.Millisecond)
		}
		if settled[weir.KeyOf("b")] != 1 || settled[weir.KeyOf("c")] != 1 {
			t.Errorf("%v: the tokens of b and c must come back once", settled)
		}
		fill(t, l, "d")
		clear(settled)
		if err := log.pool.Return(t.Context()); err == nil {
			t.Error("Return returned no error, want the one of the server that is away")
		}
		if settled[weir.KeyOf("d")] != 1 {
			t.Errorf("%v: Return must return the tokens of d", settled)
		}
	})
}

// Long after the last failed return, the tokens of a failed prefetch come back first.
func TestPrefetchLateFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lost := false
		var settled []weir.Key
		l, log := prefetching(t, weirtest.New(t, memory.New(nil), weirtest.Window(100_000, time.Hour)), nil, prefetch.Options{})
		log.after = func(r weir.Request, _ weir.Result) error {
			if lost && r.Op == weir.TakeUpTo {
				return fmt.Errorf("lost: %w", store.ErrUnavailable)
			}
			if r.Op == weir.Settle {
				settled = append(settled, r.Key)
			}
			return nil
		}
		fill(t, l, "a", "b")
		if err := log.pool.Return(t.Context()); err != nil {
			t.Fatal(err)
		}
		fill(t, l, "b")
		time.Sleep(prefetch.DefaultMaxAge)
		lost = true
		if _, err := l.Allow(t.Context(), "a"); !errors.Is(err, store.ErrUnavailable) {
			t.Fatal(err)
		}
		lost, settled = false, nil
		for range 2 {
			weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("c")})
		}
		if !slices.Equal(settled, []weir.Key{weir.KeyOf("a"), weir.KeyOf("b")}) {
			t.Errorf("the tokens of %v came back, want those of a and then b", settled)
		}
	})
}

// If the context ends while Return returns tokens, there is an error, even if the last
// return succeeded.
func TestReturnLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, log := prefetching(t, weirtest.New(t, memory.New(nil), weirtest.Window(100_000, time.Hour)), nil, prefetch.Options{})
		fill(t, l, "a", "b", "c")
		ctx, cancel := context.WithCancel(t.Context())
		log.after = func(weir.Request, weir.Result) error {
			cancel()
			return nil
		}
		log.take()
		if err := log.pool.Return(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want that the context ended", err)
		}
		if err := log.pool.Return(t.Context()); err != nil {
			t.Error(err)
		}
		if ops := log.ops(); ops != "[Settle Settle Settle]" {
			t.Errorf("%s reached the store, want that each prefetch was returned once", ops)
		}
	})
}

// A panic in the next Decider leaves no goroutine waiting.
func TestPrefetchPanic(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	l, log := prefetching(t, weirtest.New(t, weirtest.NewStore(c), weirtest.Window(1000, time.Hour)), c, prefetch.Options{})
	for range warm(t, l, log, 10) {
		weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
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
	weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
}

// If a return ends with the short deadline of its caller, callers with more time still
// return tokens.
func TestPrefetchReturnShort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tries, returned := 0, 0
		l, log := prefetching(t, weirtest.New(t, memory.New(nil), weirtest.Window(100_000, time.Hour)), nil, prefetch.Options{})
		log.before = func(ctx context.Context, r weir.Request) {
			if r.Op != weir.Settle {
				return
			}
			tries++
			select { // a round trip takes 20 ms
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
				returned++
			}
		}
		fill(t, l, "a", "b", "c", "d", "e")
		time.Sleep(2 * prefetch.DefaultMaxAge)
		tries, returned = 0, 0
		for i := range 1000 { // 10 s: nine of ten callers have less than a round trip
			ctx, cancel := context.WithCancel(t.Context())
			if i%10 != 9 {
				ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
			}
			if _, err := l.Allow(ctx, "z"+weirtest.Number(i)); err != nil {
				t.Fatal(err)
			}
			cancel()
			time.Sleep(10 * time.Millisecond)
		}
		if returned != 5 || tries > 15 {
			t.Errorf("%d of 5 prefetches came back after %d tries, want all, and at most one more try in each second", returned, tries)
		}
	})
}

// While one server of a cluster is away, each of its prefetches delays the others once,
// and not again and again.
func TestPrefetchReturnTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const keys = 20 // of the server that is away
		away, back := false, time.Duration(0)
		var start time.Time
		l, log := prefetching(t, weirtest.New(t, memory.New(nil), weirtest.Window(100_000, 2*time.Hour)), nil, prefetch.Options{})
		log.before = func(ctx context.Context, r weir.Request) {
			switch {
			case !away || r.Op != weir.Settle:
			case r.Key == weir.KeyOf("b"):
				back = time.Since(start)
			default:
				<-ctx.Done()
			}
		}
		for range 60 {
			for i := range keys {
				weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf(weirtest.Number(i))})
			}
			weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("b")})
		}
		away, start = true, time.Now()
		time.Sleep(prefetch.DefaultMaxAge)
		for i := 0; back == 0 && time.Since(start) < time.Hour; i++ {
			weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("y" + weirtest.Number(i))})
			time.Sleep(100 * time.Millisecond)
		}
		// A return that fails takes a second, and then there is a pause of a second.
		if most := prefetch.DefaultMaxAge + (keys+1)*2100*time.Millisecond; back == 0 || back > most {
			t.Errorf("the tokens of the server that works came back after %v, want at most %v", back, most)
		}
	})
}
