package prefetch_test

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/prefetch"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A sparing is a wrapper that consumes at most a number of tokens at once. If it is 0, a
// TakeUpTo fails.
type sparing struct {
	next weir.Decider
	most *int64
}

func (c sparing) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	if r.Op == weir.TakeUpTo {
		r.Cost = min(r.Cost, *c.most)
	}
	res, err := c.next.Decide(ctx, r, each)
	if r.Op == weir.TakeUpTo && *c.most == 0 {
		return weir.Result{}, store.ErrUnavailable
	}
	return res, err
}

// Goroutines that need tokens while a prefetch is under way wait for it: one for each
// token that it asks for. The others consume their own tokens. If it does not bring
// enough, a goroutine waits again, at most four times. If it brings none, nobody waits
// again. Nobody waits for the return of tokens of another key, except the caller that
// makes it. Requests of another key do not wait, nor does a caller whose context ends.
func TestWaits(t *testing.T) {
	t.Parallel()
	const trip = time.Millisecond
	for name, tt := range map[string]struct {
		maxTokens, brings int64
		old               bool // the tokens of another key are too old
		goroutines        int
		want              map[weir.Op]int // reach the store
		most              time.Duration   // for a request
		late              int64           // requests that take longer than a trip
	}{
		"all wait":              {1000, 1000, false, 200, map[weir.Op]int{weir.TakeUpTo: 1, weir.Consume: 1}, trip, 0},
		"more than tokens":      {10, 1000, false, 50, map[weir.Op]int{weir.TakeUpTo: 1, weir.Consume: 40}, trip, 0},
		"a return":              {10, 1000, true, 10, map[weir.Op]int{weir.TakeUpTo: 1, weir.Settle: 1}, 2 * trip, 1},
		"again and again":       {10, 2, false, 10, map[weir.Op]int{weir.TakeUpTo: 5, weir.Consume: 1}, 5 * trip, 8},
		"a prefetch that fails": {10, 0, false, 10, map[weir.Op]int{weir.TakeUpTo: 1, weir.Consume: 9, weir.Settle: 1}, 3 * trip, 9},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				most := int64(1000)
				l, log := prefetching(t, weirtest.New(t, memory.New(nil), weirtest.Window(100_000, time.Hour)), nil, prefetch.Options{MaxTokens: tt.maxTokens, MaxAge: time.Minute},
					weirtest.Around(func(next weir.Decider) sparing { return sparing{next, &most} }))
				log.before = func(ctx context.Context, r weir.Request) { time.Sleep(trip) }
				if tt.old {
					fill(t, l, "other")
					time.Sleep(59 * time.Second)
				}
				for range warm(t, l, log, min(tt.maxTokens, 250)-1) {
					weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
				}
				if tt.old {
					time.Sleep(time.Second)
				}
				log.take()
				start := time.Now()
				most = tt.brings
				var wg sync.WaitGroup
				var late atomic.Int64
				for range tt.goroutines {
					wg.Go(func() {
						res, err := l.Allow(t.Context(), "u")
						took := time.Since(start)
						if tt.brings > 0 && (err != nil || !res.Allowed) || took > tt.most {
							t.Errorf("after %v: %+v, %v", took, res, err)
						}
						if took > trip {
							late.Add(1)
						}
					})
				}
				synctest.Wait()
				if !tt.old && tt.brings == tt.maxTokens {
					short, cancel := context.WithTimeout(t.Context(), time.Microsecond)
					defer cancel()
					_, err := l.Allow(short, "u")
					if wantError(t, err, context.DeadlineExceeded, ""); time.Since(start) != time.Microsecond {
						t.Errorf("a short deadline: after %v: %v", time.Since(start), err)
					}
					if _, err := l.Allow(t.Context(), "v"); err != nil || time.Since(start) != trip+time.Microsecond {
						t.Errorf("another key: after %v: %v", time.Since(start), err)
					}
				}
				wg.Wait()
				got := map[weir.Op]int{}
				for _, r := range log.take() {
					got[r.Op]++
				}
				if !maps.Equal(got, tt.want) || late.Load() != tt.late {
					t.Errorf("%v reached the store, want %v; %d requests were late, want %d", got, tt.want, late.Load(), tt.late)
				}
			})
		})
	}
}

// A panic in the next Decider leaves no goroutine waiting.
func TestPanic(t *testing.T) {
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

// Goroutines of several processes together are allowed the limit: never more, and nothing
// is lost.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	other := weirtest.New(t, weirtest.NewStore(c), weirtest.Window(5000, time.Minute))
	var processes [3]*weir.Limiter
	var taps [3]*tap
	for i := range processes {
		processes[i], taps[i] = prefetching(t, other, c, prefetch.Options{MaxTokens: int64(10 << (2 * i)), MaxKeys: 4})
	}
	var allowed [4]atomic.Int64
	var wg sync.WaitGroup
	for g := range 12 {
		wg.Go(func() {
			for i := range 4000 {
				n := (i + g) % 4
				res, err := processes[g%3].Allow(t.Context(), weirtest.Number(n))
				if err != nil {
					t.Error(err)
				}
				if res.Allowed {
					allowed[n].Add(1)
				}
				switch {
				case i%512 == 0:
					_ = taps[g%3].pool.Return(t.Context())
				case i%64 == 0:
					c.Advance(50 * time.Millisecond) // in all 4 s at most, so there is one window
				}
			}
		})
	}
	wg.Wait()
	for _, log := range taps {
		if err := log.pool.Return(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for n := range allowed {
		if got, want := weirtest.Left(t, other, weirtest.Number(n)).Remaining, 5000-allowed[n].Load(); got != want {
			t.Errorf("key %d: %d tokens remain, want %d", n, got, want)
		}
	}
}
