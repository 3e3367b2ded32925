package prefetch_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/prefetch"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// Goroutines of several processes together are allowed the limit: never more, and nothing
// is lost.
func TestPrefetchConcurrent(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	other := weirtest.New(t, weirtest.NewStore(c), weirtest.Window(5000, time.Minute))
	var processes []*weir.Limiter
	var pools []*prefetch.Pool
	for i := range 3 {
		l, log := prefetching(t, other, c, prefetch.Options{MaxTokens: int64(10 << (2 * i)), MaxKeys: 4})
		processes, pools = append(processes, l), append(pools, log.pool)
	}
	var allowed [4]atomic.Int64
	var wg sync.WaitGroup
	for g := range 12 {
		wg.Go(func() {
			l := processes[g%3]
			for i := range 4000 {
				n := (i + g) % 4
				res, err := l.Allow(t.Context(), weirtest.Number(n))
				if err != nil {
					t.Error(err)
				}
				if res.Allowed {
					allowed[n].Add(1)
				}
				switch {
				case i%512 == 0:
					_ = pools[g%3].Return(t.Context())
				case i%64 == 0:
					c.Advance(50 * time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
	for _, p := range pools {
		if err := p.Return(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for n := range allowed {
		// 4 s at most have passed, so there was one window.
		if got, want := weirtest.Left(t, other, weirtest.Number(n)).Remaining, 5000-allowed[n].Load(); got != want {
			t.Errorf("key %d: %d tokens remain, want %d", n, got, want)
		}
	}
}

// prefetchWaiters starts n goroutines, and checks that each is allowed a request after
// one millisecond. wait waits for them.
func prefetchWaiters(t *testing.T, l *weir.Limiter, n int) (wait func()) {
	start := time.Now()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if res, err := l.Allow(t.Context(), "u"); err != nil || !res.Allowed || time.Since(start) != time.Millisecond {
				t.Errorf("after %v: %+v, %v", time.Since(start), res, err)
			}
		})
	}
	return wg.Wait
}

// Goroutines that need tokens while a prefetch is under way wait for it. Other keys do
// not wait, and a caller whose context ends does not either.
func TestPrefetchOneAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, log := prefetching(t, weirtest.New(t, memory.New(nil), weirtest.Window(100_000, time.Hour)), nil, prefetch.Options{MaxAge: time.Minute})
		log.before = func(ctx context.Context, r weir.Request) { time.Sleep(time.Millisecond) }
		for used := int64(0); used < 100; { // until the tokens of a large prefetch are used
			weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
			if calls := log.take(); len(calls) > 0 && calls[0].Cost >= 128 {
				for used = 1; used < calls[0].Cost; used++ {
					weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
				}
			}
		}
		start := time.Now()
		wait := prefetchWaiters(t, l, 100)
		synctest.Wait()
		short, cancel := context.WithTimeout(t.Context(), time.Microsecond)
		defer cancel()
		_, err := l.Allow(short, "u")
		if wantError(t, err, context.DeadlineExceeded, ""); time.Since(start) != time.Microsecond {
			t.Errorf("after %v: %v, want that the deadline passed", time.Since(start), err)
		}
		if _, err := l.Allow(t.Context(), "v"); err != nil || time.Since(start) != time.Millisecond+time.Microsecond {
			t.Errorf("another key: after %v: %v", time.Since(start), err)
		}
		wait()
		if ops := log.ops(); ops != "[TakeUpTo Consume]" {
			t.Errorf("%s reached the store, want one prefetch, and the request of the other key", ops)
		}
	})
}

// As many goroutines wait for a prefetch as it asks tokens for. The others consume their
// own tokens.
func TestPrefetchWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, log := prefetching(t, weirtest.New(t, memory.New(nil), weirtest.Window(100_000, time.Hour)), nil, prefetch.Options{MaxTokens: 10, MaxAge: time.Minute})
		log.before = func(ctx context.Context, r weir.Request) { time.Sleep(time.Millisecond) }
		for range warm(t, l, log, 9) {
			weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
		}
		prefetchWaiters(t, l, 50)()
		if calls := log.take(); len(calls) != 41 {
			t.Errorf("50 requests took %d calls, want a prefetch of 10 tokens, and 40 others", len(calls))
		}
	})
}

// Nobody waits for the return of the unused tokens of another key, except the caller that
// makes it.
func TestPrefetchWaitsForNoReturn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, log := prefetching(t, weirtest.New(t, memory.New(nil), weirtest.Window(100_000, time.Hour)), nil, prefetch.Options{MaxTokens: 10, MaxAge: time.Minute})
		log.before = func(ctx context.Context, r weir.Request) { time.Sleep(time.Millisecond) }
		for range 10 {
			weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("other")})
		}
		time.Sleep(59 * time.Second)
		for range warm(t, l, log, 9) {
			weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
		}
		time.Sleep(time.Second) // now the tokens of the other key are too old
		log.take()
		start := time.Now()
		var wg sync.WaitGroup
		var late atomic.Int64
		for range 10 {
			wg.Go(func() {
				if res, err := l.Allow(t.Context(), "u"); err != nil || !res.Allowed {
					t.Errorf("got %+v, %v", res, err)
				}
				if time.Since(start) > time.Millisecond {
					late.Add(1)
				}
			})
		}
		wg.Wait()
		if ops := log.ops(); late.Load() != 1 || ops != "[TakeUpTo Settle]" {
			t.Errorf("%d requests were late, and %s reached the store, want 1, and a prefetch and a Settle", late.Load(), ops)
		}
	})
}

// If a prefetch does not bring enough tokens, a goroutine waits again, at most four
// times. If it brings none, nobody waits again.
func TestPrefetchWaitsAgain(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		brings int64
		want   map[weir.Op]int
		most   time.Duration
	}{
		{2, map[weir.Op]int{weir.TakeUpTo: 5, weir.Consume: 1}, 5 * time.Millisecond},
		{0, map[weir.Op]int{weir.TakeUpTo: 1, weir.Consume: 9, weir.Settle: 1}, 3 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			log := &tap{before: func(ctx context.Context, r weir.Request) { time.Sleep(time.Millisecond) }}
			most := int64(100)
			l := weirtest.Wrap(t, weirtest.New(t, memory.New(nil), weirtest.Window(100_000, time.Hour)),
				prefetch.New(&prefetch.Options{MaxTokens: 10, MaxAge: time.Minute}).Wrap,
				weirtest.Around(func(next weir.Decider) sparing { return sparing{next, &most} }), log.wrap)
			for range warm(t, l, log, 9) {
				weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
			}
			log.take()
			start := time.Now()
			most = tt.brings
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					_, _ = l.Allow(t.Context(), "u")
					if took := time.Since(start); took > tt.most {
						t.Errorf("a request took %v, want at most %v", took, tt.most)
					}
				})
			}
			wg.Wait()
			got := map[weir.Op]int{}
			for _, r := range log.take() {
				got[r.Op]++
			}
			if !maps.Equal(got, tt.want) {
				t.Errorf("%v reached the store, want %v", got, tt.want)
			}
		})
	}
}

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

// A Reset ends the use of the held tokens, including those of a prefetch that is under
// way.
func TestPrefetchReset(t *testing.T) {
	t.Parallel()
	for _, during := range []bool{false, true} {
		c := weirtest.NewClock()
		other := weirtest.New(t, weirtest.NewStore(c), weirtest.Window(1000, time.Hour))
		l, log := prefetching(t, other, c, prefetch.Options{})
		warm(t, l, log, 10)
		plan, err := l.With(weir.Rule{Algorithm: weirtest.Window(1000, time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		if during {
			log.before = func(ctx context.Context, r weir.Request) {
				if r.Op == weir.TakeUpTo {
					log.before = nil
					if err := plan.Reset(ctx, "u"); err != nil {
						t.Error(err)
					}
				}
			}
			for log.before != nil {
				weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
			}
		} else if err := plan.Reset(t.Context(), "u"); err != nil {
			t.Fatal(err)
		}
		was := weirtest.Left(t, other, "u").Remaining
		log.take()
		weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
		if calls := log.take(); len(calls) == 0 || calls[0].Op != weir.TakeUpTo {
			t.Errorf("during a prefetch %v: %v reached the store, want that no token was held", during, calls)
		}
		if err := log.pool.Return(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := weirtest.Left(t, other, "u").Remaining; was < 900 || got < 998 {
			t.Errorf("during a prefetch %v: %d tokens remain, then %d", during, was, got)
		}
	}
}

// Limits that differ have tokens of their own, and limits that are equal share them.
func TestPrefetchLimits(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	l, log := prefetching(t, weirtest.NewPolicy(t, weirtest.NewStore(c), weirtest.Rules(
		weir.Rule{Name: "a", Algorithm: weirtest.Window(1000, time.Hour)}, weir.Rule{Name: "b", Algorithm: weirtest.Window(1000, time.Hour)})), c, prefetch.Options{})
	warm(t, l, log, 10)
	only := func(name string) *weir.Limiter {
		one, err := l.Only(name)
		if err != nil {
			t.Fatal(err)
		}
		return one
	}
	with := func(limit int64) *weir.Limiter {
		other, err := l.With(weir.Rule{Name: "a", Algorithm: weirtest.Window(limit, time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		return other
	}
	warm(t, only("a"), log, 10)
	for i, tt := range []struct {
		l    *weir.Limiter
		want string
	}{{with(1000), "[]"}, {with(999), "[Consume]"}, {only("a"), "[]"}, {only("b"), "[Consume]"}, {weirtest.Wrap(t, l), "[]"}} {
		weirtest.Allow(t, tt.l, weir.Request{Key: weir.KeyOf("u")})
		if ops := log.ops(); ops != tt.want {
			t.Errorf("limiter %d: %s reached the store, want %s", i, ops, tt.want)
		}
	}
}

// The windows of SlidingBuckets are limits too: a limiter with longer windows has none of
// the tokens.
func TestPrefetchOtherSpans(t *testing.T) {
	t.Parallel()
	spans := func(window time.Duration) algorithm.SlidingBuckets {
		return algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: window, Limit: 1000}}}
	}
	c := weirtest.NewClock()
	l, log := prefetching(t, weirtest.New(t, weirtest.NewStore(c), spans(5*time.Second)), c, prefetch.Options{})
	for range 100 {
		weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("k")})
	}
	log.take()
	weirtest.Allow(t, weirtest.With(t, l, weir.Rule{Algorithm: spans(10 * time.Second)}), weir.Request{Key: weir.KeyOf("k")})
	if ops := log.ops(); ops != "[Consume]" {
		t.Errorf("%s reached the store, want the Consume of a limiter that holds no tokens", ops)
	}
}

// Limiters over one store can share a Pool. They have the same tokens if their keys and
// limits are the same. Over another store, they cannot.
func TestPrefetchSharedPool(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	st := weirtest.NewStore(c)
	limiter := func(name string, opts *weir.Options) *weir.Limiter {
		l, err := weir.New(name, st, weirtest.Window(1000, time.Hour), opts)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l, log := prefetching(t, limiter("t", nil), c, prefetch.Options{})
	warm(t, l, log, 10)
	for i, tt := range []struct {
		l    *weir.Limiter
		want string
	}{{limiter("t", nil), "[]"}, {limiter("other", nil), "[Consume]"}, {limiter("t", &weir.Options{Prefix: "p"}), "[Consume]"}} {
		weirtest.Allow(t, weirtest.Wrap(t, tt.l, log.pool.Wrap, log.wrap), weir.Request{Key: weir.KeyOf("u")})
		if ops := log.ops(); ops != tt.want {
			t.Errorf("limiter %d: %s reached the store, want %s", i, ops, tt.want)
		}
	}
	_, err := weirtest.New(t, weirtest.NewStore(c), weirtest.Window(1000, time.Hour)).Wrap(log.pool.Wrap)
	wantError(t, err, nil, "limiter over another store: make a Pool for each store")
}

// Denials come from the store, with an exact RetryAfter, even if a cost is above what
// remains.
func TestPrefetchDenials(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	a := algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 100}
	other := weirtest.New(t, weirtest.NewStore(c), a)
	l, log := prefetching(t, other, c, prefetch.Options{})
	for range 60 {
		weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u"), Cost: 1})
	}
	if err := log.pool.Return(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, cost := range []int64{40, 30, 1, 5} {
		r := weir.Request{Key: weir.KeyOf("u"), Cost: cost}
		want, err := other.Decide(t.Context(), weir.Request{Key: r.Key, Op: weir.Peek, Cost: cost}, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := l.Decide(t.Context(), r, nil)
		if err != nil || got.Allowed != want.Allowed || got.RetryAfter != want.RetryAfter {
			t.Errorf("cost %d: got %+v, %v, want %+v", cost, got, err, want)
		}
		c.Advance(got.RetryAfter)
	}
}

// A cost near the largest integer is denied, as without a Pool.
func TestPrefetchHugeCost(t *testing.T) {
	t.Parallel()
	for _, cost := range []int64{prefetch.DefaultMaxTokens/2 + 1, 1 << 62, 1<<62 + 1, math.MaxInt64} {
		c := weirtest.NewClock()
		l, log := prefetching(t, weirtest.New(t, weirtest.NewStore(c), weirtest.Window(400, time.Hour)), c, prefetch.Options{})
		for range warm(t, l, log, 10) { // the key is busy, and has no tokens
			weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
		}
		log.take()
		res, err := l.Decide(t.Context(), weir.Request{Key: weir.KeyOf("u"), Cost: cost}, nil)
		if err != nil || res.Allowed || res.RetryAfter != weir.Never {
			t.Errorf("cost %d: got %+v, %v, want it denied for ever", cost, res, err)
		}
		if ops := log.ops(); ops != "[Consume]" {
			t.Errorf("cost %d: %s reached the store, want no prefetch", cost, ops)
		}
	}
}

// A batch counts the calls that reach the store, a batch as one.
type batch struct {
	next weir.Decider
	n    *int
}

func (b batch) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	*b.n++
	return b.next.Decide(ctx, r, each)
}

func (b batch) DecideMany(ctx context.Context, requests []weir.Request, answers []weir.Answer) {
	*b.n++
	weir.DecideMany(ctx, b.next, requests, answers)
}

// While no time passes, DoMany answers each request as a limiter without a Pool does. The
// requests that held tokens do not answer are one batch.
func TestDoMany(t *testing.T) {
	t.Parallel()
	c, n := weirtest.NewClock(), 0
	a := algorithm.TokenBucket{Capacity: 1000, Refill: algorithm.PerSecond(1)}
	bare := weirtest.New(t, weirtest.NewStore(c), a)
	pool := prefetch.New(&prefetch.Options{Now: c.Now})
	lim := weirtest.Wrap(t, weirtest.New(t, weirtest.NewStore(c), a), pool.Wrap,
		weirtest.Around(func(next weir.Decider) batch { return batch{next, &n} }))
	const batches = 200
	prefetches := 0
	for step := range batches {
		var requests []weir.Request
		for range 6 {
			requests = append(requests, weir.Request{Key: weir.KeyOf("busy")})
		}
		for i := range 4 {
			requests = append(requests, weir.Request{Key: weir.KeyOf(fmt.Sprint("rare", step, "-", i))})
		}
		switch {
		case step == 100:
			requests = append(requests[:3], weir.Request{Key: weir.KeyOf("busy"), Op: weir.Reset}, weir.Request{Key: weir.KeyOf("x"), Cost: -1})
		case step%10 == 0:
			requests = requests[6:]
		}
		before := n
		for i, got := range lim.DoMany(t.Context(), requests) {
			want, err := bare.Decide(t.Context(), requests[i], nil)
			if want.Allowed {
				want.ResetAfter = got.Result.ResetAfter // tokens were consumed earlier
			}
			if got.Result != want || (got.Err == nil) != (err == nil) {
				t.Fatalf("batch %d, %+v: got %+v, %v, want %+v, %v", step, requests[i], got.Result, got.Err, want, err)
			}
		}
		if n == before {
			t.Fatalf("batch %d: no call", step)
		}
		prefetches += n - before - 1
	}
	if prefetches == 0 || prefetches > 40 {
		t.Errorf("%d calls besides the %d batches, want from 1 to 40", prefetches, batches)
	}
	if _, err := lim.Wrap(prefetch.New(nil).Wrap); err == nil {
		t.Error("a second Pool is no error")
	}
	if err := pool.Return(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, want := weirtest.Left(t, lim, "busy"), weirtest.Left(t, bare, "busy")
	if got != want {
		t.Errorf("after Return: got %+v, want %+v", got, want)
	}
}

// If a prefetch brings too few tokens, later requests of the batch do not prefetch again.
func TestDoManyFew(t *testing.T) {
	t.Parallel()
	c, n := weirtest.NewClock(), 0
	other := weirtest.New(t, weirtest.NewStore(c), algorithm.TokenBucket{Capacity: 100_000, Refill: algorithm.PerHour(1)})
	lim := weirtest.Wrap(t, other, prefetch.New(&prefetch.Options{Now: c.Now}).Wrap,
		weirtest.Around(func(next weir.Decider) batch { return batch{next, &n} }))
	r := weir.Request{Key: weir.KeyOf("u"), Cost: 10}
	for range 200 {
		c.Advance(time.Millisecond)
		weirtest.Allow(t, lim, r)
	}
	weirtest.Allow(t, other, weir.Request{Key: r.Key, Cost: weirtest.Left(t, other, "u").Remaining - 5})
	c.Advance(2 * prefetch.DefaultMaxAge)
	n = 0
	lim.DoMany(t.Context(), slices.Repeat([]weir.Request{r}, 100))
	if n > 5 || n == 0 {
		t.Errorf("%d calls, want at most 5", n)
	}
}
